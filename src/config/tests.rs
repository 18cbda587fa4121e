//! The configuration as an operator writes it.

use super::*;

const EXAMPLE: &str = include_str!("../../config.example.toml");

const LEAST: &str =
    "[database]\nurl = \"env:DVP_DATABASE_URL\"\n[secrets]\nmaster_key = \"file:/run/dvp/master\"\n";

/// What is said against the example with a piece of it changed.
fn complaint(piece: &str, by: &str) -> String {
    assert!(EXAMPLE.contains(piece), "{piece}");
    match Config::parse(&EXAMPLE.replacen(piece, by, 1)) {
        Ok(_) => panic!("{by} was taken"),
        Err(error) => format!("{error:#}"),
    }
}

#[test]
fn the_example_is_read_whole() {
    let config = Config::parse(EXAMPLE).unwrap();
    assert_eq!(config.roles, Role::ALL);
    assert_eq!((config.chains.len(), config.assets.len(), config.pairs.len()), (1, 4, 3));
    assert!(config.liquidity.order_book);
    assert_eq!(config.chains[0].relayer_keys.len(), 2);
}

#[test]
fn the_example_names_every_key_there_is() {
    // What it leaves out has a default worth knowing; each is shown all the same.
    for key in [
        "roles",
        "url",
        "max_connections",
        "master_key",
        "listen",
        "connections",
        "in_flight",
        "certificate",
        "key",
        "client_ca",
        "client_certificate_required",
        "ca",
        "fill_window",
        "timelock",
        "offramp",
        "payout",
        "folder",
        "account",
        "bic",
        "country",
        "name",
        "chain_id",
        "rpc_urls",
        "ws_url",
        "deployment",
        "permit_name",
        "relayer_keys",
        "confirmations",
        "finality_margin",
        "range_margin",
        "poll_interval",
        "bump_after",
        "balance_low_wei",
        "symbol",
        "exponent",
        "chain",
        "address",
        "currency",
        "base",
        "quote",
        "reference_price",
        "protocol_fee_bps",
        "payout_fee_minor",
        "network_fee_minor",
        "id",
        "wallet",
        "spread_bps",
        "full_depth_bps",
        "pairs",
        "candidate_ttl",
        "firm_ttl",
        "provider_id",
        "probe_minor",
        "timeout",
        "refresh_every",
        "good_for",
        "pause",
        "stale_after",
        "order_book",
    ] {
        assert!(EXAMPLE.contains(&format!("{key} = ")), "{key}");
    }
}

#[test]
fn a_command_beside_the_service_needs_database_and_secrets_only() {
    let config = Config::parse(LEAST).unwrap();
    assert_eq!(config.roles, Role::ALL);
    assert!(config.api.is_none() && config.chains.is_empty());
}

#[test]
fn what_is_wrong_is_told_with_the_keys_name() {
    for (piece, by, said) in [
        ("max_connections", "max_conections", "line 14, max_conections: unknown field `max_conections`"),
        ("\"worker\"]", "\"wroker\"]", "unknown variant `wroker`"),
        ("roles = [\"api\", \"fix\", \"indexer\", \"worker\"]", "roles = []", "roles names none"),
        ("\"env:DVP_DATABASE_URL\"", "\"postgres://u:p@h/d\"", "env:NAME"),
        ("\"127.0.0.1:8080\"", "\"localhost\"", "invalid socket address"),
        ("timelock = \"24h\"", "timelock = \"24\"", "a duration is a whole number and its unit"),
        ("timelock = \"24h\"", "timelock = \"1h\"", "settlement.fill_window must be shorter"),
        ("payout = \"simulated\"", "payout = \"hawala\"", "unknown variant `hawala`"),
        ("offramp = \"simulated\"", "offramp = \"bank_files\"", "unknown variant `bank_files`"),
        ("bic = \"COBADEFFXXX\"", "bic = \"COBA\"", "bank.accounts[0].bic: COBA is no BIC"),
        ("currency = \"EUR\"\naccount", "currency = \"euro\"\naccount", "bank.accounts[0].currency"),
        ("country = \"DE\"", "country = \"DEU\"", "bank.accounts[0].country"),
        ("confirmations = 2", "confirmations = 0", "chains[0]: confirmations must be at least 1"),
        ("\"env:DVP_RELAYER_KEY\"", "\"0x4242\"", "a key's place is"),
        ("balance_low_wei = \"1", "balance_low_wei = \"-1", "balance_low_wei"),
        (
            "chain = \"sepolia\"\naddress = \"0x1c",
            "chain = \"mars\"\naddress = \"0x1c",
            "assets[0]: chain: no [[chains]]",
        ),
        (
            "currency = \"USD\"",
            "chain = \"sepolia\"",
            "assets[2]: USD needs either chain and address, or currency",
        ),
        ("symbol = \"WETH\"", "symbol = \"USDC\"", "assets[1].symbol: USDC is there twice"),
        ("quote = \"EUR\"", "quote = \"GBP\"", "pairs[1].quote: no [[assets]] has the symbol GBP"),
        ("[\"USD\", \"EUR\"]]", "[\"USD\", \"GBP\"]]", "liquidity.providers[0].pairs: no [[assets]]"),
        ("payout_fee_minor = \"50\"", "payout_fee_minor = \"0.5\"", "payout_fee_minor"),
        ("id = \"desk\"", "id = \"northwind\"", "two sources are called northwind"),
    ] {
        let complaint = complaint(piece, by);
        assert!(complaint.contains(said), "{by}: {complaint}");
    }
}

#[test]
fn a_complaint_never_shows_what_was_given_for_a_secret() {
    let given = "master_key = \"0123456789abcdef\"";
    let complaint = complaint("master_key = \"file:/etc/dvp/master-key\"", given);
    assert!(complaint.starts_with("line 18, master_key: ") && complaint.contains("env:NAME"), "{complaint}");
    assert!(!complaint.contains("0123456789abcdef"), "{complaint}");
}

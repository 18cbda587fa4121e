//! The configuration as an operator writes it.

use std::sync::Arc;
use std::time::Duration;

use dvp_core::workflow::RailUse;
use dvp_rails::inventory::Inventory;

use super::rails::RailCallsSection;
use super::*;

const EXAMPLE: &str = include_str!("../../config.example.toml");

const LEAST: &str = "environment = \"test\"\n[database]\nurl = \"env:DVP_DATABASE_URL\"\n[secrets]\nmaster_key = \"file:/run/dvp/master\"\n";

/// The error of the example with one part changed.
fn complaint(piece: &str, by: &str) -> String {
    assert!(EXAMPLE.contains(piece), "{piece}");
    match Config::parse(&EXAMPLE.replacen(piece, by, 1)) {
        Ok(_) => panic!("{by} was taken"),
        Err(error) => format!("{error:#}"),
    }
}

#[test]
fn the_example_parses() {
    let config = Config::parse(EXAMPLE).unwrap();
    assert_eq!(config.roles, Role::ALL);
    assert_eq!((config.chains.len(), config.assets.len(), config.pairs.len()), (1, 4, 3));
    assert!(config.liquidity.order_book);
    assert_eq!((config.chains[0].relayer_keys.len(), config.chains[0].relayers()), (2, 4));
}

/// The example with a second chain and further assets.
fn with_base(further: &str) -> anyhow::Result<Config> {
    let chain = "\n[[chains]]\nname = \"base\"\nchain_id = 8453\nrpc_urls = [\"https://base.example.com\"]\n\
                 deployment = \"/etc/dvp/base.json\"\n";
    Config::parse(&format!("{EXAMPLE}{chain}{further}"))
}

fn token(symbol: &str, chain: &str) -> String {
    let address = "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913";
    format!("[[assets]]\nsymbol = \"{symbol}\"\nexponent = 6\nchain = \"{chain}\"\naddress = \"{address}\"\n")
}

#[test]
fn a_chain_with_a_coin_has_gas_for_network_fees() {
    let gas = |config: &Config, n: usize| config.chains[n].gas().unwrap();
    let config = with_base("").unwrap();
    assert!(gas(&config, 1).is_none(), "its pairs keep the configured fee");
    let home = gas(&config, 0).unwrap();
    assert_eq!((home.chain_id, home.tip_floor_wei), (11_155_111, 1_000_000));
    assert_eq!((home.gas.chain.as_str(), home.gas.coin.as_str()), ("sepolia", "WETH"));
    assert_eq!((home.gas.settlement_gas, home.gas.payment_gas), (125_000, 50_000));
    let base = with_base("coin = \"ETH\"\npayment_gas = 7\n").unwrap();
    let base = gas(&base, 1).unwrap().gas;
    assert_eq!((base.coin.as_str(), base.settlement_gas, base.payment_gas), ("ETH", 125_000, 7));
    for (piece, by, says) in [
        ("coin = \"WETH\"", "coin = \"\"", "coin is empty"),
        ("settlement_gas = 125000", "settlement_gas = 0", "settlement_gas must be at least 1"),
        ("payment_gas = 50000", "payment_gas = 0", "payment_gas must be at least 1"),
        (
            "base = \"WETH\"\nquote = \"USDC\"\nstale_after",
            "base = \"ETH\"\nquote = \"USDC\"\nstale_after",
            "no [[assets]] has the symbol ETH",
        ),
    ] {
        let error = complaint(piece, by);
        assert!(error.contains(says), "{says}: {error}");
    }
    // A feed may price a coin that is no asset.
    let feed = EXAMPLE.replacen("coin = \"WETH\"", "coin = \"ETH\"", 1);
    let feed = feed.replacen(
        "base = \"WETH\"\nquote = \"USDC\"\nstale_after",
        "base = \"ETH\"\nquote = \"USDC\"\nstale_after",
        1,
    );
    assert_eq!(Config::parse(&feed).unwrap().liquidity.feeds[0].base, "ETH");
}

#[test]
fn a_pool_has_a_kind_with_its_own_fee_and_bounds() {
    for (piece, by, says) in [
        ("kind = \"uniswap_v2\"", "kind = \"uniswap_v3\"", "liquidity.pools[0].fee_bps: a v3 pool tells"),
        ("kind = \"uniswap_v2\"", "kind = \"curve\"", "unknown variant `curve`"),
        ("fee_bps = 30 ", "fee_bps = 10000 ", "fee_bps is not below 10000"),
        ("average_window = \"10m\"", "average_window = \"25h\"", "average_window is not between 1s and 1d"),
        ("price_band_bps = 500", "price_band_bps = 10000", "price_band_bps is not between 1 and 9999"),
    ] {
        let error = complaint(piece, by);
        assert!(error.contains(says), "{says}: {error}");
    }
}

#[test]
fn a_token_of_a_second_chain_is_an_asset_of_its_own() {
    let config = with_base(&token("USDC.base", "base")).unwrap();
    assert_eq!((config.chains.len(), config.assets.len()), (2, 5));
    let pair = |base: &str, quote: &str| format!("[[pairs]]\nbase = \"{base}\"\nquote = \"{quote}\"\n");
    assert!(with_base(&(token("USDC.base", "base") + &pair("USDC.base", "USD"))).is_ok());
    for (further, expected) in [
        (token("USDC", "base"), "USDC is there twice"),
        (token("USDC.sepolia", "sepolia"), "USDC.sepolia is USDC"),
        (token("DAI", "optimism"), "no [[chains]] is called optimism"),
    ] {
        let error = with_base(&further).err().map(|error| format!("{error:#}")).unwrap_or_default();
        assert!(error.contains(expected), "{expected}: {error}");
    }
}

#[test]
fn a_pairs_smallest_order_pays_a_fee_unless_it_is_configured() {
    let all = Config::parse(EXAMPLE).unwrap().pairs;
    assert!(all.iter().all(|pair| pair.min_input_minor.is_some()), "the example names it");
    let without = EXAMPLE.replacen("min_input_minor = \"2000\"\n", "", 1);
    let pairs = Config::parse(&without).unwrap().pairs;
    let least = pairs.iter().find(|pair| pair.min_input_minor.is_none()).unwrap();
    assert_eq!((least.protocol_fee_bps, least.min_input().get()), (5, 2_000));
}

/// Keys with defaults are in the example, too, but for those of unusual chains.
#[test]
fn the_example_contains_every_key() {
    const UNUSUAL: [&str; 3] = ["finality_depth", "trust_bloom", "trust_receipts"];
    let sections = [
        include_str!("../config.rs"),
        include_str!("cell.rs"),
        include_str!("chain.rs"),
        include_str!("cool_down.rs"),
        include_str!("database.rs"),
        include_str!("gate.rs"),
        include_str!("listeners.rs"),
        include_str!("market.rs"),
        include_str!("rails.rs"),
        include_str!("screening.rs"),
        include_str!("signers.rs"),
    ];
    let fields = sections.iter().flat_map(|text| text.lines());
    let keys = fields.filter_map(|line| Some(line.strip_prefix("    pub ")?.split_once(": ")?.0));
    let of_bank = ["account", "bic", "country"];
    for key in keys.chain(of_bank).filter(|key| !UNUSUAL.contains(key)) {
        let is_there = [format!("{key} = "), format!("{key}]")].iter().any(|text| EXAMPLE.contains(text));
        assert!(is_there, "{key}");
    }
}

#[test]
fn an_offline_command_needs_database_and_secrets_only() {
    let config = Config::parse(LEAST).unwrap();
    assert_eq!(config.roles, [Role::Api, Role::Fix, Role::Indexer, Role::Worker], "without [console]");
    assert!(config.api.is_none() && config.chains.is_empty());
}

#[test]
fn errors_name_the_key() {
    for (piece, by, said) in [
        ("orders = 8", "oders = 8", "oders: unknown field `oders`"),
        ("url = \"env:DVP_DATABASE_URL\"", "", "give one of database.url and database.urls"),
        (
            "[database]\n",
            "[database]\nurls = [\"env:DVP_DATABASE_URL\"]\n",
            "give one of database.url and database.urls",
        ),
        ("lookups = 4", "lookups = 1", "database.pools lookups: 1 connections are fewer than the 2"),
        ("background = 20", "background = 9", "database.pools background: 9 connections are fewer"),
        ("[database.pools]", "max_connections = 40\n[database.pools]", "exclude each other"),
        ("\"worker\", \"console\"]", "\"wroker\"]", "unknown variant `wroker`"),
        ("https://console.example.com", "https://console.example.com/path", "console.url"),
        ("https://console.example.com", "ftp://console.example.com", "console.url"),
        ("idle = \"30m\"", "idle = \"13h\"", "console.idle is above zero and at most console.session"),
        (
            "step_up = \"5m\"",
            "step_up = \"13h\"",
            "console.step_up is above zero and at most console.session",
        ),
        (
            "roles = [\"api\", \"fix\", \"indexer\", \"worker\", \"console\"]",
            "roles = []",
            "roles names none",
        ),
        ("\"env:DVP_DATABASE_URL\"", "\"postgres://u:p@h/d\"", "env:NAME"),
        ("\"127.0.0.1:8080\"", "\"localhost\"", "invalid socket address"),
        ("fill_window = \"1h\"", "fill_window = \"1\"", "a duration is a whole number and its unit"),
        (
            "fill_window = \"1h\"",
            "fill_window = \"5m\"",
            "settlement.fill_window must be longer than the 300 s",
        ),
        ("fill_window = \"1h\"", "fill_window = \"168h\"", "settlement.fill_window is 167h at most"),
        (
            "timelock_margin = \"1d\"",
            "timelock_margin = \"59m\"",
            "settlement.timelock_margin is 1h at least",
        ),
        ("timelock_margin = \"1d\"", "timelock_margin = \"60d\"", "settlement.timelock_margin is too long"),
        ("timelock_margin = \"1d\"", "timelock = \"14d\"", "timelock: unknown field `timelock`"),
        ("payout = \"simulated\"", "payout = \"hawala\"", "unknown variant `hawala`"),
        (
            "concurrency = 128",
            "concurrency = 0",
            "rails.offramp_calls.concurrency: 0 is not between 1 and 1024",
        ),
        ("concurrency = 64", "concurrency = 1025", "rails.payout_calls.concurrency: 1025 is not between"),
        (
            "poll_max = \"30s\"",
            "poll_max = \"100ms\"",
            "rails.offramp_calls.poll_max is not between 500ms and 1h",
        ),
        ("poll_max = \"15m\"", "poll_max = \"2h\"", "rails.payout_calls.poll_max is not between"),
        (
            "stuck_after = \"15m\"",
            "stuck_after = \"30s\"",
            "rails.offramp_calls.stuck_after is not between 1m and 30d",
        ),
        ("stuck_after = \"1h\"", "stuck_after = \"31d\"", "rails.payout_calls.stuck_after is not between"),
        (
            "poll_interval = \"250ms\"",
            "poll_interval = \"10ms\"",
            "bank.poll_interval is not between 50ms and 10m",
        ),
        ("settles_after = \"1m\"", "settles_after = \"2h\"", "bank.settles_after is not between 1s and 1h"),
        ("offramp = \"simulated\"", "offramp = \"bank_files\"", "unknown variant `bank_files`"),
        (
            "account = \"DE8937",
            "account = \"XX8937",
            "bank.accounts[0].account: XX89370400440532013000 is no IBAN",
        ),
        ("bic = \"COBADEFFXXX\"", "bic = \"COBA\"", "bank.accounts[0].bic: COBA is no BIC"),
        ("currency = \"EUR\"\naccount", "currency = \"euro\"\naccount", "bank.accounts[0].currency"),
        ("country = \"DE\"", "country = \"DEU\"", "bank.accounts[0].country"),
        ("country = \"DE\"", "country = \"ZZ\"", "bank.accounts[0].country: ZZ is no ISO 3166 code"),
        ("bic = \"COBADEFFXXX\"", "bic = \"COBAZZFFXXX\"", "bank.accounts[0].bic"),
        ("currency = \"EUR\"\naccount", "currency = \"EUZ\"\naccount", "bank.accounts[0].currency"),
        (
            "symbol = \"USD\"\nexponent = 2",
            "symbol = \"USD\"\nexponent = 6",
            "assets[2]: exponent: USD has 2 decimals (ISO 4217), not 6",
        ),
        (
            "symbol = \"EUR\"\nexponent = 2",
            "symbol = \"EURO\"\nexponent = 2",
            "assets[3]: symbol: that of the currency EUR is its code",
        ),
        (
            "exponent = 2\ncurrency = \"USD\"",
            "exponent = 2\ncurrency = \"usd\"",
            "assets[2]: currency: usd is no",
        ),
        (
            "wallet = \"0x9965507D1a55bcC2695C58ba16FB37d819B0A4dc\"",
            "wallet = \"0x9965507D1a55bcC2695C58ba16FB37d819B0A4dC\"",
            "liquidity.providers[0].wallet: 0x9965507D1a55bcC2695C58ba16FB37d819B0A4dC has a wrong checksum",
        ),
        (
            "wallet = \"0x9965507D1a55bcC2695C58ba16FB37d819B0A4dc\"",
            "wallet = \"0x0000000000000000000000000000000000000000\"",
            "liquidity.providers[0].wallet: 0x0000000000000000000000000000000000000000 is the zero address",
        ),
        (
            "wallet = \"0x976EA74026E726554dB657fA54763abd0C3a0aa9\"",
            "wallet = \"0x1c7D4B196Cb0C7B01d743Fbc6116a902379C7238\"",
            "liquidity.external[0].wallet: 0x1c7D4B196Cb0C7B01d743Fbc6116a902379C7238 is the token contract of USDC",
        ),
        ("confirmations = 2", "confirmations = 0", "chains[0]: confirmations must be at least 1"),
        ("wait = \"2 blocks\"", "wait = \"0 blocks\"", "a payout waits for"),
        ("wait = \"2 blocks\"", "wait = \"soon\"", "a payout waits for"),
        ("below = \"1000000000\"", "below = \"1.5\"", "chains[0]: payout_gate[0].below is no whole number"),
        (
            "asset = \"USDC\", below",
            "asset = \"USD\", below",
            "chains[0]: payout_gate[0].asset: USD is no token",
        ),
        ("asset = \"USDC\", below = \"50", "below = \"50", "chains[0]: payout_gate[1].below needs an asset"),
        (
            "{ wait = \"finalized\" }",
            "{ asset = \"WETH\", wait = \"safe\" }",
            "chains[0]: payout_gate[2]: the last step",
        ),
        (
            "asset = \"USDC\", below = \"1000000000\", wait",
            "wait",
            "chains[0]: payout_gate[0]: it fits every order",
        ),
        (
            "symbol = \"WETH\"\nexponent = 18\nchain = \"sepolia\"\naddress",
            "symbol = \"WETH\"\nexponent = 18\nchain = \"sepolia\"\nwrapped = \"0xff\"\naddress",
            "assets[1]: WETH needs either chain and address or wrapped, or currency",
        ),
        (
            "symbol = \"WETH\"\nexponent = 18\nchain = \"sepolia\"\naddress = \"0xfFf9976782d46CC05630D1f6eBAb18b2324d6B14\"",
            "symbol = \"WETH\"\nexponent = 18\nchain = \"sepolia\"\nwrapped = \"0x1c7d4b196cb0c7b01d743fbc6116a902379c7238\"",
            "assets[1]: WETH and USDC are held as the same token",
        ),
        ("\"env:DVP_RELAYER_KEY\"", "\"0x4242\"", "a key's place is"),
        ("balance_low_wei = \"1", "balance_low_wei = \"-1", "balance_low_wei"),
        (
            "chain = \"sepolia\"\naddress = \"0x1c",
            "chain = \"mars\"\naddress = \"0x1c",
            "assets[0]: chain: no [[chains]]",
        ),
        (
            "exponent = 2\ncurrency = \"USD\"",
            "exponent = 2\nchain = \"sepolia\"",
            "assets[2]: USD needs either chain and address or wrapped, or currency",
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
fn each_rail_is_used_as_configured() {
    let config = Config::parse(EXAMPLE).unwrap();
    let minutes = |minutes: i64| minutes * 60_000;
    assert_eq!((config.patience().convert_ms, config.patience().pay_ms), (minutes(15), minutes(60)));
    let rails = config.rails.unwrap();
    let usual = RailUse::of(Arc::new(Inventory));
    let payout = rails.payout_calls.of(Arc::new(Inventory));
    assert_eq!((payout.concurrency, payout.poll_max), (64, Duration::from_secs(15 * 60)));
    let unsaid = RailCallsSection::default().of(Arc::new(Inventory));
    assert_eq!((unsaid.concurrency, unsaid.poll_max), (usual.concurrency, usual.poll_max));
    assert_eq!(Config::parse(LEAST).unwrap().patience().pay_ms, minutes(15));
}

#[test]
fn the_timelock_margin_must_cover_the_slowest_payout() {
    let with =
        |margin: &str, payout: &str| {
            EXAMPLE
                .replacen("timelock_margin = \"1d\"", &format!("timelock_margin = \"{margin}\""), 1)
                .replacen("payout = \"simulated\"", &format!("payout = \"{payout}\""), 1)
        };
    Config::parse(&with("50d", "simulated")).unwrap();
    let error = Config::parse(&with("50d", "bank_files")).unwrap_err().to_string();
    assert!(
        error.starts_with(
            "settlement.timelock_margin is too long: with the fill window and the payout's 14 days"
        ),
        "{error}"
    );
    Config::parse(&with("45d", "bank_files")).unwrap();
}

#[test]
fn errors_never_show_secrets() {
    let given = "master_key = \"0123456789abcdef\"";
    let complaint = complaint("master_key = \"file:/etc/dvp/master-key\"", given);
    assert!(complaint.starts_with("line 47, master_key: ") && complaint.contains("env:NAME"), "{complaint}");
    assert!(!complaint.contains("0123456789abcdef"), "{complaint}");
}

const AWS_KMS: &str = "[[chains.aws_kms_signers]]\nregion = \"eu-central-1\"\nkey = \"alias/relayer\"\n\
    address = \"0x90F79bf6EB2c4f870365E785982E1f101E93b906\"\n";
const GCP_KMS: &str = "[[chains.gcp_kms_signers]]\n\
    key = \"projects/p/locations/l/keyRings/r/cryptoKeys/k/cryptoKeyVersions/1\"\n\
    address = \"0x90F79bf6EB2c4f870365E785982E1f101E93b906\"\n";

#[test]
fn signers_that_cannot_be_used_name_their_field() {
    for (piece, by, why) in [
        ("https://signer.example.com:8443", "http://signer.example.com", "chains[0]: remote_signers[0]: url"),
        ("key = \"relayer-3\" ", "key = \"\" ", "chains[0]: pkcs11_signers[0]: key is empty"),
        (
            "timeout = \"5s\" # for one signature",
            "timeout = \"9s\" #",
            "pkcs11_signers[0]: timeout is not between",
        ),
        ("pin = \"file:/etc/dvp/relayer-3-pin\"", "pin = \"1234\"", "a secret is given as"),
        ("0x3C44CdDdB6a900fa2b585dd299e03d12FA4293BC", "0x3C44", "address"),
    ] {
        let complaint = complaint(piece, by);
        assert!(complaint.contains(why) && !complaint.contains("1234"), "{complaint}");
    }
    // Sections of key management services are for programs that are built with them.
    for (section, feature, piece, why) in [
        (AWS_KMS, "aws-kms", "", ""),
        (GCP_KMS, "gcp-kms", "", ""),
        (AWS_KMS, "aws-kms", "access_key_id = \"env:ID\"", "belong together"),
        (AWS_KMS, "aws-kms", "timeout = \"9s\"", "timeout is not between"),
        (AWS_KMS, "aws-kms", "secret_access_key = \"1234\"", "a secret is given as"),
        (GCP_KMS, "gcp-kms", "timeout = \"9s\"", "timeout is not between"),
    ] {
        let parsed =
            Config::parse(&EXAMPLE.replacen("[screening]", &format!("{section}{piece}\n[screening]"), 1));
        let built = [("aws-kms", cfg!(feature = "aws-kms")), ("gcp-kms", cfg!(feature = "gcp-kms"))];
        let is_built = built.contains(&(feature, true));
        match parsed {
            Ok(config) => {
                assert!(is_built && why.is_empty(), "{section}{piece}");
                assert_eq!(config.chains[0].relayers(), 5);
            }
            Err(error) => {
                let said = format!("{error:#}");
                let is_secret = why.starts_with("a secret");
                let expected = if is_built || is_secret { why } else { "built without the feature" };
                assert!(!expected.is_empty() && said.contains(expected), "{section}{piece}: {said}");
                assert!(!said.contains("1234"), "{said}");
            }
        }
    }
    // Files are read when the accounts are.
    let config = |keys: &str| {
        let start = EXAMPLE.find("relayer_keys = [\"env").unwrap();
        let end = start + EXAMPLE[start..].find('\n').unwrap();
        Config::parse(&format!("{}{keys}{}", &EXAMPLE[..start], &EXAMPLE[end..])).unwrap()
    };
    let said = format!("{:#}", config("").chains[0].accounts().unwrap_err());
    assert!(
        said.starts_with("chains.pkcs11_signers[0] of sepolia: pin: the file /etc/dvp/relayer-3-pin"),
        "{said}"
    );
    let mut remote = config("");
    remote.chains[0].pkcs11_signers.clear();
    let said = format!("{:#}", remote.chains[0].accounts().unwrap_err());
    assert!(said.starts_with("chains.remote_signers[0] of sepolia: client_key: the file"), "{said}");
}

#[test]
fn a_live_deployment_has_no_simulated_rails() {
    let live = |pieces: &[(&str, &str)]| {
        let start = EXAMPLE.replacen("environment = \"test\"", "environment = \"live\"", 1);
        pieces.iter().fold(start, |text, (piece, by)| {
            assert!(text.contains(piece), "{piece}");
            text.replacen(piece, by, 1)
        })
    };
    let offramp = ("offramp = \"simulated\"", "offramp = \"inventory\"");
    let payout = ("payout = \"simulated\"", "payout = \"bank_files\"");
    let complaint = |text: &str| format!("{:#}", Config::parse(text).unwrap_err());
    assert!(complaint(&live(&[])).starts_with("rails.offramp: "), "{}", complaint(&live(&[])));
    assert!(complaint(&live(&[offramp])).starts_with("rails.payout: "));
    let private = ("allow_private = false", "allow_private = true");
    assert!(complaint(&live(&[offramp, payout, private])).starts_with("webhooks.allow_private: "));
    assert!(Config::parse(&live(&[offramp, payout])).unwrap().environment.is_live());
}

#[test]
fn a_desk_requires_https_or_a_loopback_address() {
    for url in ["http://desk.example.com", "ftp://localhost", "http://10.0.0.1"] {
        let complaint = complaint("https://desk.example.com/v2", url);
        assert!(complaint.contains("desk.url") && complaint.contains("https"), "{complaint}");
    }
    for url in ["http://localhost:9", "http://127.0.0.1:9/", "http://[::1]:9/v1"] {
        Config::parse(&EXAMPLE.replacen("https://desk.example.com/v2", url, 1)).unwrap();
    }
    let without = EXAMPLE.replacen("offramp = \"simulated\"", "offramp = \"http\"", 1);
    Config::parse(&without).unwrap();
    let start = without.find("\n[desk]\n").unwrap() + 1;
    let end = start + without[start..].find("\n\n").unwrap();
    let complaint = Config::parse(&format!("{}{}", &without[..start], &without[end..])).unwrap_err();
    assert!(complaint.to_string().contains("needs the section [desk]"), "{complaint}");
}

#[test]
fn the_first_master_key_is_the_current_one() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, digit: char| {
        let path = dir.path().join(name);
        std::fs::write(&path, digit.to_string().repeat(64)).unwrap();
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        path.display().to_string()
    };
    let (new, old) = (file("new", 'b'), file("old", 'a'));
    let parse =
        |secrets: String| Config::parse(&LEAST.replace("master_key = \"file:/run/dvp/master\"", &secrets));
    let single = parse(format!("master_key = \"file:{old}\"")).unwrap().vault().unwrap();
    let listed = |ids: [&str; 2]| {
        let [first, second] = ids;
        format!(
            "master_keys = [{{ id = \"{first}\", key = \"file:{new}\" }}, {{ id = \"{second}\", key = \"file:{old}\" }}]"
        )
    };
    let rotated = parse(listed(["2026", "1"])).unwrap().vault().unwrap();
    assert_eq!(rotated.ids().collect::<Vec<_>>(), ["2026", "1"]);
    let sealed = single.seal("o", b"s").unwrap();
    assert_eq!(rotated.open("o", &sealed).unwrap(), b"s");
    assert!(single.open("o", &rotated.seal("o", b"s").unwrap()).is_err());
    assert!(parse(listed(["1", "1"])).unwrap().vault().is_err());
    let both = format!("master_key = \"file:{old}\"\n{}", listed(["a", "b"]));
    assert!(parse(both).unwrap_err().to_string().contains("either"));
    assert!(parse(String::new()).unwrap_err().to_string().contains("either"));
}

#[test]
fn a_bank_has_an_account_in_every_currency_that_orders_receive() {
    let bank = EXAMPLE.replace("payout = \"simulated\"", "payout = \"bank_files\"");
    Config::parse(&bank).unwrap();
    let without = bank.replace("currency = \"USD\"\naccount", "currency = \"GBP\"\naccount");
    let refused = format!("{:#}", Config::parse(&without).unwrap_err());
    assert!(refused.contains("pairs[0].quote: bank.accounts has no account to pay USD from"), "{refused}");
}

#[test]
fn the_digest_is_of_what_every_process_must_have_alike() {
    let digest = |text: &str| Config::parse(text).unwrap().digest;
    let own = EXAMPLE.replacen("rpc_urls = [\"https://rpc-1.example.com\", ", "rpc_urls = [", 1);
    let roles = EXAMPLE.replacen("roles = [\"api\", ", "roles = [", 1);
    for same in [&own, &format!("# Ours\n{EXAMPLE}"), &roles] {
        assert_ne!(same, EXAMPLE);
        assert_eq!(digest(same), digest(EXAMPLE));
    }
    let other = EXAMPLE.replacen("payout = \"simulated\"", "payout = \"bank_files\"", 1);
    assert_ne!(digest(&other), digest(EXAMPLE), "a simulated worker beside one that pays");
    assert_ne!(digest(&EXAMPLE.replacen("protocol_fee_bps = 5", "protocol_fee_bps = 6", 1)), digest(EXAMPLE));
}

//! The ready file: other programs rely on its fields, so they are only ever added to.

use std::net::SocketAddr;

use dvp_domain::operator::OperatorRole;
use dvp_sandbox::anvil::Anvil;
use serde_json::{Value, json};

use super::chain::{NAME, SandboxChain};
use super::files::{OPERATORS, PartnerSecrets, Secrets};
use super::market::CURRENCIES;
use super::seed::{SERVICE_COMP_ID, SESSIONS};

/// Recipients the simulated bank knows; the last four characters choose how it behaves.
const BENEFICIARIES: [&str; 9] = [
    "bene_straight:dest_10000000",
    "bene_slow:dest_10000001",
    "bene_closed:dest_10000002",
    "bene_unconverted:dest_10000003",
    "bene_timeout:dest_10000004",
    "bene_down:dest_10000005",
    "bene_slowfx:dest_10000006",
    "bene_silent:dest_10000007",
    "bene_resting:dest_10000008",
];

pub(super) fn document(
    (http, fix): (SocketAddr, SocketAddr),
    database_urls: &[String],
    anvil: &Anvil,
    chain: &SandboxChain,
    secrets: &Secrets,
) -> Value {
    let at = &chain.deployment;
    let tokens: Vec<Value> = at
        .tokens
        .iter()
        .map(|t| json!({"symbol": t.symbol, "address": t.address.to_string(), "decimals": t.decimals}))
        .collect();
    let fiat = CURRENCIES.map(|symbol| json!({"symbol": symbol, "decimals": 2}));
    let assets: Vec<Value> = at
        .tokens
        .iter()
        .map(|token| json!({"symbol": token.symbol, "decimals": token.decimals}))
        .chain(fiat)
        .collect();
    let wallets: Vec<Value> = chain
        .wallets
        .iter()
        .map(|wallet| {
            let key = format!("0x{}", hex::encode(wallet.to_bytes()));
            json!({"address": wallet.address().to_string(), "privateKey": key})
        })
        .collect();
    json!({
        "http": format!("http://{http}"),
        "databaseUrl": database_urls.first(),
        "databaseUrls": database_urls,
        "partner": partner(&secrets.partner),
        "otherPartner": partner(&secrets.other_partner),
        "fix": {
            "host": fix.ip().to_string(),
            "port": fix.port(),
            "sessions": SESSIONS.map(|session| fix_session(session, secrets)),
        },
        "chain": {
            "rpcUrl": anvil.rpc_url(),
            "wsUrl": anvil.ws_url(),
            "chainId": at.chain_id,
            "name": NAME,
            "contracts": {
                "permit": at.permit.to_string(),
                "escrow": at.escrow.to_string(),
                "settler": at.settler.to_string(),
                "anchor": at.anchor.to_string(),
                "payouts": at.payouts.to_string(),
            },
            "tokens": tokens,
            "wallets": wallets,
        },
        "assets": assets,
        "beneficiaries": BENEFICIARIES,
        "consoleToken": secrets.operators.get(OPERATORS[0]),
        "operators": OPERATORS[1..].iter().map(|name| operator(name, secrets)).collect::<Vec<_>>(),
    })
}

fn operator(name: &str, secrets: &Secrets) -> Value {
    let roles = OperatorRole::ALL.map(OperatorRole::as_str);
    json!({"name": name, "token": secrets.operators.get(name), "roles": roles})
}

fn partner(secrets: &PartnerSecrets) -> Value {
    json!({
        "name": secrets.name,
        "env": "test",
        "apiKey": secrets.api_key,
        "signingSecret": secrets.signing_secret,
    })
}

fn fix_session((begin_string, client, version): (&str, &str, Option<&str>), secrets: &Secrets) -> Value {
    let mut session = json!({
        "beginString": begin_string,
        "senderCompId": client,
        "targetCompId": SERVICE_COMP_ID,
        "username": secrets.partner.name,
        "password": secrets.fix_password,
    });
    if let (Some(version), Some(fields)) = (version, session.as_object_mut()) {
        fields.insert("defaultApplVerId".into(), json!(version));
    }
    session
}

//! The ready file: other programs rely on its fields, so they are only ever added to.

use std::net::SocketAddr;

use alloy::signers::local::PrivateKeySigner;
use dvp_chain_indexer::deploy::DeployedToken;
use dvp_domain::operator::OperatorRole;
use serde_json::{Value, json};

use super::chain::SandboxChain;
use super::files::{OPERATORS, PartnerSecrets, Secrets};
use super::inventory::{COIN, COIN_DECIMALS, CURRENCIES};
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
    chains: &[SandboxChain],
    secrets: &Secrets,
) -> Value {
    let tokens =
        chains.iter().flat_map(|chain| chain.deployment.tokens.iter().map(move |token| (chain, token)));
    let tokens = tokens
        .map(|(chain, token)| json!({"symbol": chain.symbol(&token.symbol), "decimals": token.decimals}));
    let coins = chains.iter().filter(|chain| chain.deployment.coin.is_some());
    let coins = coins.map(|chain| json!({"symbol": chain.symbol(COIN), "decimals": COIN_DECIMALS}));
    let fiat = CURRENCIES.map(|symbol| json!({"symbol": symbol, "decimals": 2}));
    let assets: Vec<Value> = tokens.chain(coins).chain(fiat).collect();
    let chains: Vec<Value> = chains.iter().map(chain_view).collect();
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
        "chain": chains.first(),
        "chains": chains,
        "assets": assets,
        "beneficiaries": BENEFICIARIES,
        "consoleToken": secrets.operators.get(OPERATORS[0]),
        "operators": OPERATORS[1..].iter().map(|name| operator(name, secrets)).collect::<Vec<_>>(),
    })
}

/// A token's `symbol` is its ticker, as in an intent that names the chain; its `asset` is the symbol by which the rest
/// of the service knows it, as in FIX.
fn chain_view(chain: &SandboxChain) -> Value {
    let at = &chain.deployment;
    let token = |token: &DeployedToken| {
        json!({
            "symbol": token.symbol,
            "asset": chain.symbol(&token.symbol),
            "address": token.address.to_string(),
            "decimals": token.decimals,
        })
    };
    let coin = at.coin.map(|coin| {
        json!({
            "symbol": COIN,
            "asset": chain.symbol(COIN),
            "decimals": COIN_DECIMALS,
            "gate": coin.gate.to_string(),
            "wrapped": coin.wrapped.to_string(),
        })
    });
    json!({
        "rpcUrl": chain.rpc_url,
        "wsUrl": chain.ws_url,
        "chainId": at.chain_id,
        "name": chain.name(),
        "contracts": {
            "permit": at.permit.to_string(),
            "escrow": at.escrow.to_string(),
            "settler": at.settler.to_string(),
            "anchor": at.anchor.to_string(),
            "payouts": at.payouts.to_string(),
        },
        "coin": coin,
        "tokens": at.tokens.iter().map(token).collect::<Vec<_>>(),
        "wallets": chain.wallets.iter().map(wallet).collect::<Vec<_>>(),
        "contractWallet": contract_wallet(chain),
    })
}

fn wallet(wallet: &PrivateKeySigner) -> Value {
    let key = format!("0x{}", hex::encode(wallet.to_bytes()));
    json!({"address": wallet.address().to_string(), "privateKey": key})
}

/// Its owners sign in this order, one signature after the other.
fn contract_wallet(chain: &SandboxChain) -> Value {
    let mut owners: Vec<_> = chain.wallets.iter().take(2).collect();
    owners.sort_unstable_by_key(|owner| owner.address());
    let owners: Vec<Value> = owners.into_iter().map(wallet).collect();
    json!({"address": chain.contract_wallet.to_string(), "owners": owners})
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

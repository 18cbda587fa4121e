//! Orders, and permits really signed by their wallets.

use alloy::primitives::Address;
use alloy::signers::SignerSync as _;
use alloy::signers::local::PrivateKeySigner;
use dvp_core::chain::permit::PermitDomain;
use dvp_core::context::now;
use dvp_core::engine::{Engine, EngineError, SubmitCommand};
use dvp_core::writer::Outcome;
use dvp_domain::intent::{Bounds, IntentRequest, Permit};
use dvp_domain::money::Minor;
use dvp_domain::time::Timestamp;
use dvp_store::orders::intents::Tenant;
use serde_json::json;

use crate::market::{BASE_ESCROW, BASE_ID, CHAIN_ID, ESCROW, PERMIT, TOKEN, WETH};

/// Submits a partner's order to an engine.
pub async fn submit(
    engine: &Engine,
    tenant: &Tenant,
    request: IntentRequest,
) -> Result<Outcome, EngineError> {
    let command = SubmitCommand { tenant: tenant.clone(), request, idempotency: None, fix: None };
    engine.submit(command).await.map(|done| done.outcome)
}

/// How long a permit is good for.
const PERMIT_SECS: u64 = 7200;

/// An order's terms, without the party that places it.
#[derive(Debug, Clone, Copy)]
pub struct Terms<'a> {
    /// Asset and minor units.
    pub input: (&'a str, u128),
    pub output: &'a str,
    pub account: &'a str,
}

/// A best-effort order of any kind, by a wallet of its own.
pub fn order_for(terms: &Terms<'_>) -> IntentRequest {
    order_by(&PrivateKeySigner::random(), 0, terms)
}

/// A best-effort order of a wallet. Of a token, it has a permit with the nonce; of money, it is paid from a deposit.
pub fn order_by(wallet: &PrivateKeySigner, nonce: u128, terms: &Terms<'_>) -> IntentRequest {
    order_at(now(), wallet, nonce, terms)
}

/// The same at a time of the test's.
pub fn order_at(at: Timestamp, wallet: &PrivateKeySigner, nonce: u128, terms: &Terms<'_>) -> IntentRequest {
    let (symbol, input) = terms.input;
    let id = uuid::Uuid::new_v4().to_string();
    let is_fiat = |symbol: &str| matches!(symbol, "USD" | "EUR");
    let asset =
        |symbol: &str| json!({"type": if is_fiat(symbol) { "fiat" } else { "erc20" }, "symbol": symbol});
    let token = if symbol == "WETH" { WETH } else { TOKEN };
    let permit = (!is_fiat(symbol)).then(|| {
        sign(wallet, Permit { deadline: at.unix_secs() + PERMIT_SECS, ..permit(token, input, nonce) })
    });
    serde_json::from_value(json!({
        "intent_id": id, "client_reference": format!("ref-{id}"), "user": format!("{:#x}", wallet.address()),
        "input_asset": asset(symbol), "output_asset": asset(terms.output),
        "bounds": {"exact_input": {"input": input.to_string(), "min_output": "1"}},
        "quote_id": null, "deadline": at.plus_millis(600_000), "settlement_type": "hybrid",
        "output_recipient": null,
        "beneficiary": {"account": terms.account, "name": "Jane Doe", "country": "US", "payoutMethod": "ach"},
        "permit": permit, "actor_type": "institution", "side": "sell", "metadata": null,
    }))
    .unwrap()
}

/// The same order of the token on the other chain ([`Market::with_base`](crate::Market::with_base)), with the permit
/// signed for it.
pub fn on_base(wallet: &PrivateKeySigner, mut order: IntentRequest) -> IntentRequest {
    order.input_asset.symbol = "USDC.base".into();
    order.input_asset.chain = Some("base".into());
    let permit = Permit { spender: BASE_ESCROW.into(), ..order.permit.take().unwrap() };
    order.permit = Some(sign_for(BASE_ID, wallet, permit));
    order
}

/// The same order of the chain's coin, by a wallet without any funds.
pub fn of_coin(order: IntentRequest, bounds: Bounds) -> IntentRequest {
    let input_asset = serde_json::from_value(json!({"type": "native", "symbol": "ETH"})).unwrap();
    IntentRequest { input_asset, bounds, permit: None, ..order }
}

/// The same order for an output that falls over a time, from `target` to `limit`.
pub fn ranged(order: IntentRequest, target: u128, limit: u128, lifetime_ms: i64) -> IntentRequest {
    let received_at = now();
    let bounds = Bounds::Range {
        max_input: order.bounds.max_input(),
        target_output: Minor::new(target),
        min_output: Minor::new(limit),
        received_at,
    };
    IntentRequest { bounds, deadline: received_at.plus_millis(lifetime_ms), ..order }
}

/// An order of 100 USDC for USD, by a wallet of its own, paid to `account`.
pub fn order(account: &str) -> IntentRequest {
    order_of(100_000_000, account)
}

/// An order of `amount` minor units of USDC for USD, by a wallet of its own, paid to `account`.
pub fn order_of(input: u128, account: &str) -> IntentRequest {
    order_for(&Terms { input: ("USDC", input), output: "USD", account })
}

/// An unsigned permit for the escrow, valid for two hours.
pub fn permit(token: &str, amount: u128, nonce: u128) -> Permit {
    Permit {
        token: token.into(),
        amount_minor: Minor::new(amount),
        spender: ESCROW.into(),
        nonce: Minor::new(nonce),
        deadline: now().unix_secs() + PERMIT_SECS,
        signature: String::new(),
    }
}

/// Signs a permit with a wallet.
pub fn sign(wallet: &PrivateKeySigner, permit: Permit) -> Permit {
    sign_for(CHAIN_ID, wallet, permit)
}

fn sign_for(chain: u64, wallet: &PrivateKeySigner, permit: Permit) -> Permit {
    let domain = PermitDomain::new("Permit", chain, PERMIT.parse::<Address>().unwrap());
    let signature = wallet.sign_hash_sync(&domain.digest(&permit).unwrap().into()).unwrap();
    Permit { signature: format!("0x{}", hex::encode(signature.as_bytes())), ..permit }
}

//! Tokens of two chains: each order is locked, moved and anchored on its token's chain, and a halted chain holds up its
//! own orders only.

use alloy::primitives::Address;
use alloy::signers::SignerSync as _;
use alloy::signers::local::PrivateKeySigner;
use dvp_core::chain::expected;
use dvp_core::context::ChainConfig;
use dvp_core::permit::PermitDomain;
use dvp_core::writer::{Outcome, Refusal};
use dvp_domain::asset::{Asset, AssetKind};
use dvp_domain::chain::ChainFact;
use dvp_domain::decision::Reason;
use dvp_domain::intent::{IntentRequest, Permit};
use dvp_domain::permit::PermitDefect;
use dvp_testing::Harness;
use dvp_testing::market::{Market, PERMIT, TOKEN, pair};
use dvp_testing::orders::{Terms, order_by};
use dvp_testing::wait::wait_for;

use crate::scenes;

const BASE: u64 = 8_453;
const BASE_ESCROW: &str = "0x00000000000000000000000000000000000000e2";
const DOLLARS: Terms<'_> = Terms { input: ("USDC", 100_000_000), output: "USD", account: "000123456789" };
/// Its payout takes a while.
const WAITING: Terms<'_> = Terms { account: "000123450001", ..DOLLARS };

async fn harness() -> Harness {
    Harness::new(market()).await
}

/// USDC on two chains, with the same address.
pub(crate) fn market() -> Market {
    let mut market = scenes::market().with_funds("north", "USD", 100_000_000_000);
    let base = ChainConfig::new(
        "base",
        BASE,
        BASE_ESCROW,
        "0x00000000000000000000000000000000000000a2",
        PERMIT,
        "Permit",
    );
    market.further_chains.push(base.unwrap());
    let kind = AssetKind::Erc20 { chain: "base".into(), address: TOKEN.into() };
    market.registry.assets.push(Asset { symbol: "USDC.base".into(), exponent: 6, kind });
    market.registry.pairs.extend([pair("USDC.base", "USD", "1"), pair("USDC", "USDC.base", "1")]);
    market
}

/// The same order of the token on the other chain, with the permit signed for it.
fn on_base(wallet: &PrivateKeySigner, order: IntentRequest) -> IntentRequest {
    let mut order = order;
    order.input_asset.symbol = "USDC.base".into();
    order.input_asset.chain = Some("base".into());
    let permit = Permit { spender: BASE_ESCROW.into(), ..order.permit.take().unwrap() };
    let domain = PermitDomain::new("Permit", BASE, PERMIT.parse::<Address>().unwrap());
    let signature = wallet.sign_hash_sync(&domain.digest(&permit).unwrap().into()).unwrap();
    order.permit = Some(Permit { signature: format!("0x{}", hex::encode(signature.as_bytes())), ..permit });
    order
}

fn halt(harness: &Harness, is_halted: bool) {
    let base = harness.engine.context().chains.of(Some("base")).unwrap();
    base.halt.set(is_halted);
}

/// The chains of an order's commands.
async fn chains_of(harness: &Harness, reference: &str) -> Vec<i64> {
    sqlx::query_scalar("select distinct chain_id from chain_command where reference = $1")
        .bind(reference)
        .fetch_all(harness.pool())
        .await
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wallet_has_its_nonces_and_its_orders_on_each_chain() {
    let harness = harness().await;
    harness.start_workers();
    let wallet = PrivateKeySigner::random();
    let home = harness.accept(order_by(&wallet, 0, &DOLLARS)).await;
    let base = harness.accept(on_base(&wallet, order_by(&wallet, 0, &DOLLARS))).await;
    for (accepted, chain, escrowed) in [(&home, 31_337, "USDC"), (&base, 8_453, "USDC.base")] {
        let (entity, create) = harness.command(&accepted.reference, "create").await;
        harness.report_fact(&entity, &expected::goal(&create)).await;
        wait_for("the lock", || async {
            (harness.account("escrow", escrowed).await == "100000000").then_some(())
        })
        .await;
        let (_, fill) = harness.command(&accepted.reference, "fill").await;
        harness.report_fact(&entity, &expected::goal(&fill)).await;
        let (_, settle) = harness.command(&accepted.reference, "settle").await;
        harness.report_fact(&entity, &expected::goal(&settle)).await;
        let (entity, anchor) = harness.command(&accepted.reference, "anchor").await;
        harness.report_fact(&entity, &expected::goal(&anchor)).await;
        harness.wait_for_state(&accepted.reference, "completed").await;
        assert_eq!(chains_of(&harness, &accepted.reference).await, [chain]);
    }
    assert_eq!(harness.account("escrow", "USDC.base").await, "0");
    harness.check_books().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_permit_is_verified_for_its_tokens_chain() {
    let harness = harness().await;
    let wallet = PrivateKeySigner::random();
    let signed_at_home = IntentRequest {
        permit: order_by(&wallet, 0, &DOLLARS).permit,
        ..on_base(&wallet, order_by(&wallet, 0, &DOLLARS))
    };
    let defect = async |order| match harness.submit(order).await {
        Outcome::Refused(Refusal::InvalidPermit(defect)) => defect,
        other => panic!("{other:?}"),
    };
    assert_eq!(defect(signed_at_home).await, PermitDefect::Spender);
    // The contracts of both chains may have the same addresses: the domain has the chain's id.
    let mut spender_only = order_by(&wallet, 0, &DOLLARS);
    spender_only.input_asset.chain = Some("anvil".into());
    let mut base = on_base(&wallet, order_by(&wallet, 0, &DOLLARS));
    base.permit.as_mut().unwrap().signature = spender_only.permit.unwrap().signature;
    assert_eq!(defect(base).await, PermitDefect::Signer);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fact_of_another_chain_moves_no_order() {
    let harness = harness().await;
    harness.start_workers();
    let wallet = PrivateKeySigner::random();
    let accepted = harness.accept(on_base(&wallet, order_by(&wallet, 0, &DOLLARS))).await;
    let (entity, create) = harness.command(&accepted.reference, "create").await;
    let created = serde_json::to_value(expected::goal(&create)).unwrap();
    for (n, fact) in [created, serde_json::to_value(ChainFact::Cancelled).unwrap()].into_iter().enumerate() {
        sqlx::query(
            "insert into chain_fact (chain_id, entity, kind, payload, block_hash, tx_hash, log_index, block_time) \
             values (31337, $1, 'x', $2, sha256('b'), sha256('t'), $3, now())",
        )
        .bind(&entity)
        .bind(fact)
        .bind(i64::try_from(n).unwrap())
        .execute(harness.pool())
        .await
        .unwrap();
    }
    let set_aside = "select count(*) from chain_fact where differs is not null and consumed_at is not null";
    harness.wait_for_count(set_aside, 2).await;
    harness.wait_for_state(&accepted.reference, "locking").await;
    assert_eq!(harness.account("escrow", "USDC.base").await, "0");
    harness.play_chain(&accepted.reference).await;
    harness.wait_for_state(&accepted.reference, "completed").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_halted_chain_takes_no_order_and_begins_no_leg_while_the_other_goes_on() {
    let harness = harness().await;
    harness.start_workers();
    let wallet = PrivateKeySigner::random();
    let before = harness.accept(on_base(&wallet, order_by(&wallet, 0, &WAITING))).await;
    let (entity, create) = harness.command(&before.reference, "create").await;
    halt(&harness, true);
    let refused = harness.submit(on_base(&wallet, order_by(&wallet, 1, &DOLLARS))).await;
    assert!(matches!(refused, Outcome::Rejected { reason: Reason::ChainHalted, .. }), "{refused:?}");
    // What was read before the halt is applied; the leg that follows waits.
    harness.report_fact(&entity, &expected::goal(&create)).await;
    harness.wait_for_state(&before.reference, "converting").await;
    let home = harness.accept(order_by(&wallet, 0, &DOLLARS)).await;
    harness.play_chain(&home.reference).await;
    harness.wait_for_state(&home.reference, "completed").await;
    let waits =
        "select count(*) from effect where kind = 'offramp' and not called and last_result = 'paused'";
    harness.wait_for_count(waits, 1).await;
    assert_eq!(harness.count("select count(*) from simulated_rail where leg = 'payout'").await, 1);

    halt(&harness, false);
    sqlx::query("update effect set run_at = now()").execute(harness.pool()).await.unwrap();
    let (_, fill) = harness.command(&before.reference, "fill").await;
    harness.report_fact(&entity, &expected::goal(&fill)).await;
    let (_, settle) = harness.command(&before.reference, "settle").await;
    harness.report_fact(&entity, &expected::goal(&settle)).await;
    harness.wait_for_state(&before.reference, "completed").await;
    let paid = "select count(*) from simulated_rail where leg = 'payout' and executed = 1";
    assert_eq!(harness.count(paid).await, 2);
    harness.check_books().await;
}

//! Orders of a token for a token of another chain: locked, committed and released on the one, paid on the other, which
//! may stand still at any moment.

use std::time::Duration;

use alloy::signers::local::PrivateKeySigner;
use chrono::Utc;
use dvp_core::chain::expected;
use dvp_core::context::now;
use dvp_core::operators::operations::{Action, ResolveError};
use dvp_domain::asset::AssetType;
use dvp_domain::chain::{ChainCommand, ChainFact};
use dvp_domain::settlement::leg::LegKind;
use dvp_testing::Harness;
use dvp_testing::chain::failed;
use dvp_testing::orders::{Terms, order_at};

use crate::chains;
use crate::scenes::{both_decide, report_on};

const HOME: i64 = 31_337;
const BASE: i64 = 8_453;
const ACROSS: Terms<'_> =
    Terms { input: ("USDC", 100_000_000), output: "USDC.base", account: "000123456789" };
/// The commitment may be reported until then, and what is not paid is settled then: by the windows of the harness.
const TOO_LATE_TO_PAY: Duration = Duration::from_secs(3_600 + 1_800);
const SETTLED: Duration = Duration::from_secs(3_600 + 600 + 1_800);

async fn harness() -> Harness {
    let market = chains::market().with_funds("north", "USDC.base", 1_000_000_000);
    let harness = Harness::in_virtual_time(market, now().plus_millis(3_600_000)).await;
    harness.start_workers();
    harness
}

/// An accepted order whose commands up to the commitment have succeeded.
async fn committed(harness: &Harness) -> (String, Vec<u8>) {
    let mut order = order_at(harness.clock().now(), &PrivateKeySigner::random(), 0, &ACROSS);
    order.output_asset.kind = AssetType::Erc20;
    let reference = harness.accept(order).await.reference;
    let entity = harness.play(&reference, "create").await;
    harness.command(&reference, "fill").await;
    (reference, entity)
}

/// An order whose payment was requested.
async fn paying(harness: &Harness) -> (String, Vec<u8>) {
    let (reference, entity) = committed(harness).await;
    harness.play(&reference, "fill").await;
    harness.command(&reference, "transfer").await;
    (reference, entity)
}

async fn commands(harness: &Harness, reference: &str) -> Vec<(i64, String)> {
    harness
        .rows_of("select chain_id, kind from chain_command where reference = $1 order by id", reference)
        .await
}

async fn debt(harness: &Harness) -> String {
    harness.account("debt", "USDC.base").await
}

/// The other chain says that it was never paid, and cannot be any more.
async fn never_paid(harness: &Harness, entity: &[u8]) {
    harness.report_fact(entity, &failed("transfer", "transfer_rejected")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_is_locked_on_one_chain_and_paid_on_the_other() {
    let harness = harness().await;
    let (reference, _) = paying(&harness).await;
    let (ChainCommand::Create(create), ChainCommand::Transfer(transfer)) =
        (harness.command(&reference, "create").await.1, harness.command(&reference, "transfer").await.1)
    else {
        panic!("other commands")
    };
    assert!(transfer.not_after + 600 <= create.timelock - 1_800, "it is final before the lock is settled");
    assert_eq!(harness.account("escrow", "USDC").await, "100000000");
    harness.wait_for_state(&reference, "paying").await;
    for kind in ["transfer", "settle", "anchor"] {
        harness.play(&reference, kind).await;
    }
    harness.wait_for_state(&reference, "completed").await;
    let on = |chain: i64, kind: &str| (chain, kind.to_owned());
    let expected = ["create", "fill", "transfer", "settle", "anchor"]
        .map(|kind| on(if kind == "transfer" { BASE } else { HOME }, kind));
    assert_eq!(commands(&harness, &reference).await, expected);
    assert_eq!(harness.account("escrow", "USDC").await, "0");
    harness.check_books().await;
    // The timer that nothing needs any more changes nothing.
    harness.advance(SETTLED).await;
    harness.wait_for_count("select count(*) from effect", 0).await;
    harness.wait_for_state(&reference, "completed").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payment_is_believed_of_its_own_chain_only() {
    let harness = harness().await;
    let (reference, entity) = paying(&harness).await;
    let (_, transfer) = harness.command(&reference, "transfer").await;
    let (_, fill) = harness.command(&reference, "fill").await;
    for (chain, fact) in
        [(HOME, expected::goal(&transfer)), (BASE, expected::goal(&fill)), (BASE, ChainFact::Cancelled)]
    {
        report_on(&harness, chain, &entity, &fact, 0).await;
    }
    harness.wait_for_count("select count(*) from chain_fact where differs is not null", 3).await;
    harness.wait_for_state(&reference, "paying").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_the_other_chain_stands_still_the_lock_is_settled_and_the_output_owed_until_it_is_paid() {
    let harness = harness().await;
    let (reference, entity) = paying(&harness).await;
    harness.wait_for_state(&reference, "paying").await;
    harness.advance(SETTLED).await;
    harness.wait_for_state(&reference, "owing").await;
    harness.play(&reference, "settle").await;
    harness.wait_for_count("select count(*) from chain_fact where consumed_at is null", 0).await;
    assert_ne!(debt(&harness).await, "0", "the output is owed");
    assert_eq!(harness.account("escrow", "USDC").await, "0");
    // It comes back, and had the payment.
    harness.play(&reference, "transfer").await;
    harness.wait_for_state(&reference, "completed").await;
    assert_eq!(debt(&harness).await, "0");
    harness.check_books().await;
    // Its relayer is late with what it believed before: the order is paid.
    never_paid(&harness, &entity).await;
    harness.wait_for_count("select count(*) from chain_fact where consumed_at is null", 0).await;
    harness.wait_for_state(&reference, "completed").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payment_that_was_never_made_leaves_the_lock_or_a_debt_that_operators_return() {
    let harness = harness().await;
    let (in_time, entity) = paying(&harness).await;
    never_paid(&harness, &entity).await;
    harness.wait_for_state(&in_time, "payout_failed").await;
    assert_eq!(harness.account("escrow", "USDC").await, "100000000", "anyone may refund it at the timelock");

    let (late, entity) = paying(&harness).await;
    harness.wait_for_state(&late, "paying").await;
    harness.advance(SETTLED).await;
    harness.wait_for_state(&late, "owing").await;
    harness.play(&late, "settle").await;
    never_paid(&harness, &entity).await;
    harness.wait_for_count("select count(*) from chain_fact where consumed_at is null", 0).await;
    let returned = Action::ReturnDebt { provider_reference: "0xback".into(), at: Utc::now() };
    both_decide(&harness, &late, returned).await;
    harness.wait_for_state(&late, "payout_failed").await;
    assert_eq!(debt(&harness).await, "0");
    harness.check_books().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commitment_reported_too_late_is_not_paid_whatever_the_other_chains_clock_says() {
    let harness = harness().await;
    let (reference, _) = committed(&harness).await;
    harness.advance(TOO_LATE_TO_PAY).await;
    harness.play(&reference, "fill").await;
    harness.wait_for_state(&reference, "payout_failed").await;
    assert!(commands(&harness, &reference).await.iter().all(|(_, kind)| kind != "transfer"));
    harness.check_books().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn operators_decide_about_a_payment_in_tokens_only_when_it_is_a_debt() {
    let harness = harness().await;
    let (reference, _) = paying(&harness).await;
    harness.wait_for_state(&reference, "paying").await;
    let paid = Action::MarkPaid { leg: LegKind::Payout, provider_reference: "W1".into(), at: Utc::now() };
    let failed = Action::Fail { leg: LegKind::Payout, code: "chain_gone".into() };
    let retry = Action::Retry { leg: LegKind::Payout };
    for action in [&paid, &failed, &retry] {
        let refused = harness.decide("jo", &reference, action.clone()).await;
        assert!(matches!(refused, Err(ResolveError::NotWaiting { .. })), "{action:?}: {refused:?}");
    }
    harness.advance(SETTLED).await;
    harness.wait_for_state(&reference, "owing").await;
    harness.play(&reference, "settle").await;
    // Decisions are about a version of the order, which the fact changes.
    harness.wait_for_count("select count(*) from chain_fact where consumed_at is null", 0).await;
    let refused = harness.decide("jo", &reference, retry).await;
    assert!(matches!(refused, Err(ResolveError::NotWaiting { .. })), "{refused:?}");
    // The chain has it: only its finality is awaited.
    let set = "update chain_command set state = $1 where kind = 'transfer'";
    sqlx::query(set).bind("done").execute(harness.pool()).await.unwrap();
    let refused = harness.decide("jo", &reference, failed).await;
    assert!(matches!(refused, Err(ResolveError::Contradicted(_))), "{refused:?}");
    sqlx::query(set).bind("pending").execute(harness.pool()).await.unwrap();
    both_decide(&harness, &reference, paid).await;
    harness.wait_for_state(&reference, "completed").await;
    let open = "select count(*) from chain_command where kind = 'transfer' and state in ('pending', 'sent')";
    assert_eq!(harness.count(open).await, 0, "what was paid another way is not paid by the relayer");
    assert_eq!(debt(&harness).await, "0");
    harness.check_books().await;
}

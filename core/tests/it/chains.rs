//! Tokens of two chains: each order is locked, moved, anchored and compared on its token's chain, and a halted chain holds
//! up its own orders only.

use alloy::signers::local::PrivateKeySigner;
use chrono::{TimeDelta, Utc};
use dvp_core::chain::backlog;
use dvp_core::chain::expected;
use dvp_core::operators::operations::{Action, CHAIN_LOST, ResolveError};
use dvp_core::workflow::retention::{Ages, round};
use dvp_core::writer::{Outcome, Refusal};
use dvp_domain::chain::ChainFact;
use dvp_domain::decision::Reason;
use dvp_domain::intent::IntentRequest;
use dvp_domain::permit::PermitDefect;
use dvp_domain::reconcile::{BreakKind, Moment, Patience, judge};
use dvp_domain::settlement::leg::LegKind;
use dvp_store::chain::commands::count_open;
use dvp_store::reconcile::wallets::register;
use dvp_store::reconcile::{
    NewPoint, OpenKind, Point, Scope, list_booked, list_lone_entities, list_open_entities, set_point,
};
use dvp_testing::Harness;
use dvp_testing::market::{Market, TOKEN};
use dvp_testing::orders::{Terms, on_base, order_by};
use dvp_testing::wait::wait_for;

use crate::acceptance::commands;
use crate::scenes;

const DOLLARS: Terms<'_> = Terms { input: ("USDC", 100_000_000), output: "USD", account: "000123456789" };
/// Its payout takes a while.
const WAITING: Terms<'_> = Terms { account: "000123450001", ..DOLLARS };

async fn harness() -> Harness {
    Harness::new(market()).await
}

/// USDC on two chains, with the same address.
pub(crate) fn market() -> Market {
    scenes::market().with_base().with_funds("north", "USD", 100_000_000_000)
}

fn halt(harness: &Harness, is_halted: bool) {
    let base = harness.engine.context().chains.of(Some("base")).unwrap();
    base.halt.set(is_halted);
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
    assert!(matches!(defect(signed_at_home).await, PermitDefect::Spender { escrow: Some(_) }));
    // The contracts of both chains may have the same addresses: the domain has the chain's id.
    let mut spender_only = order_by(&wallet, 0, &DOLLARS);
    spender_only.input_asset.chain = Some("anvil".into());
    let mut base = on_base(&wallet, order_by(&wallet, 0, &DOLLARS));
    base.permit.as_mut().unwrap().signature = spender_only.permit.unwrap().signature;
    assert_eq!(defect(base).await, PermitDefect::Signer);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_permit_for_replaced_contracts_is_refused_and_names_the_right_escrow() {
    const NEW: &str = "0x00000000000000000000000000000000000000e9";
    let mut market = market();
    let base = &mut market.further_chains[0];
    base.ending.push(base.taking.clone());
    base.taking.escrow = NEW.to_owned();
    let harness = Harness::new(market).await;
    let wallet = PrivateKeySigner::random();
    let old = on_base(&wallet, order_by(&wallet, 0, &DOLLARS));
    // As over FIX, where no spender is sent.
    let mut unsaid = on_base(&wallet, order_by(&wallet, 0, &DOLLARS));
    unsaid.permit.as_mut().unwrap().spender = NEW.to_owned();
    for request in [old, unsaid] {
        let Outcome::Refused(Refusal::InvalidPermit(defect)) = harness.submit(request).await else {
            panic!("accepted")
        };
        assert_eq!(defect, PermitDefect::Replaced { escrow: NEW.parse().unwrap() });
        assert!(defect.to_string().contains(NEW), "{defect}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fact_of_another_chain_moves_no_order() {
    let harness = harness().await;
    harness.start_workers();
    let wallet = PrivateKeySigner::random();
    let accepted = harness.accept(on_base(&wallet, order_by(&wallet, 0, &DOLLARS))).await;
    let (entity, create) = harness.command(&accepted.reference, "create").await;
    for fact in [expected::goal(&create), ChainFact::Cancelled] {
        scenes::report_on(&harness, 31_337, &entity, &fact, 0).await;
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
    harness.command(&before.reference, "create").await;
    halt(&harness, true);
    let refused = harness.submit(on_base(&wallet, order_by(&wallet, 1, &DOLLARS))).await;
    assert!(matches!(refused, Outcome::Rejected { reason: Reason::ChainHalted, .. }), "{refused:?}");
    // What was read before the halt is applied; the leg that follows waits.
    harness.play(&before.reference, "create").await;
    harness.wait_for_state(&before.reference, "converting").await;
    let home = harness.accept(order_by(&wallet, 0, &DOLLARS)).await;
    harness.play_chain(&home.reference).await;
    harness.wait_for_state(&home.reference, "completed").await;
    let waits =
        "select count(*) from effect where kind = 'offramp' and not called and last_result = 'paused'";
    harness.wait_for_count(waits, 1).await;
    assert_eq!(harness.count("select count(*) from simulated_rail where leg = 'payout'").await, 1);

    halt(&harness, false);
    harness.run("update effect set run_at = now()").await;
    for kind in ["fill", "settle"] {
        harness.play(&before.reference, kind).await;
    }
    harness.wait_for_state(&before.reference, "completed").await;
    let paid = "select count(*) from simulated_rail where leg = 'payout' and executed = 1";
    assert_eq!(harness.count(paid).await, 2);
    harness.check_books().await;
}

/// An order of the token of the home chain for that of the other one.
fn across(wallet: &PrivateKeySigner, nonce: u128) -> IntentRequest {
    let mut order = order_by(wallet, nonce, &DOLLARS);
    order.output_asset = order.input_asset.clone();
    order.output_asset.symbol = "USDC.base".into();
    order.output_asset.chain = Some("base".into());
    order.beneficiary = None;
    order.output_recipient = Some(order.user.clone());
    order
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_that_the_other_chain_cannot_pay_in_time_is_refused() {
    let harness = harness().await;
    harness.fund("north", "USDC.base", 1_000_000_000).await;
    let wallet = PrivateKeySigner::random();
    let base = harness.engine.context().chains.of(Some("base")).unwrap();
    let look = async || {
        let mut conn = harness.pool().acquire().await.unwrap();
        base.backlog.look(&count_open(&mut conn, 8_453, backlog::WINDOW).await.unwrap());
    };
    look().await;
    harness.accept(across(&wallet, 0)).await;
    // Sixty a second are assumed: more than an hour's work.
    let window = harness.engine.context().windows.fill_secs;
    commands(&harness, 8_453, "transfer", "pending", i32::try_from(window * 60 + 60).unwrap()).await;
    look().await;
    let refused = harness.submit(across(&wallet, 1)).await;
    assert!(matches!(refused, Outcome::Rejected { reason: Reason::NoLiquidity, .. }), "{refused:?}");
    halt(&harness, true);
    harness.run("delete from chain_command where reference like 'transfer%'").await;
    look().await;
    let refused = harness.submit(across(&wallet, 1)).await;
    assert!(matches!(refused, Outcome::Rejected { reason: Reason::ChainHalted, .. }), "{refused:?}");
    halt(&harness, false);
    harness.accept(across(&wallet, 1)).await;
}

/// The decision of two operators.
async fn decide(harness: &Harness, reference: &str, action: Action) -> Result<(), ResolveError> {
    for operator in ["jo", "kim"] {
        harness.decide(operator, reference, action.clone()).await?;
    }
    Ok(())
}

/// An order whose payment on the other chain is in a transaction when its timelock is near: its lock is settled, and
/// its output owed.
async fn owing(harness: &Harness, nonce: i64) -> String {
    let accepted = harness.accept(across(&PrivateKeySigner::random(), 0)).await;
    for kind in ["create", "fill"] {
        harness.play(&accepted.reference, kind).await;
    }
    harness.command(&accepted.reference, "transfer").await;
    harness.wait_for_state(&accepted.reference, "paying").await;
    for statement in [
        "insert into relayer_account (chain_id, signer, next_nonce) \
         select 8453, decode(repeat('01', 20), 'hex'), $1 where $2 <> '' on conflict do nothing",
        "insert into nonce_slot (chain_id, signer, nonce, state) \
         select 8453, decode(repeat('01', 20), 'hex'), $1, 'broadcast' where $2 <> ''",
        "insert into slot_command (chain_id, signer, nonce, command_id) \
         select 8453, decode(repeat('01', 20), 'hex'), $1, id from chain_command \
         where kind = 'transfer' and reference = $2",
        "update chain_command set state = 'sent' where kind = 'transfer' and reference = $2 and $1 >= 0",
        "update execution set state = jsonb_set(state, '{lock,deadlines,settle_at}', '0'), version = version + 1 \
         where reference = $2 and $1 >= 0",
        "update effect set run_at = now() where kind = 'timelock' and reference = $2 and $1 >= 0",
    ] {
        sqlx::query(statement).bind(nonce).bind(&accepted.reference).execute(harness.pool()).await.unwrap();
    }
    harness.wait_for_state(&accepted.reference, "owing").await;
    harness.play(&accepted.reference, "settle").await;
    wait_for("the settled lock", || async {
        let settled =
            "select count(*) from execution where reference = $1 and state ->> 'settle_tx' is not null";
        let count: i64 =
            sqlx::query_scalar(settled).bind(&accepted.reference).fetch_one(harness.pool()).await.unwrap();
        (count == 1).then_some(())
    })
    .await;
    accepted.reference
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payment_that_may_still_be_included_fails_only_with_its_chain() {
    let harness = harness().await;
    harness.fund("north", "USDC.base", 1_000_000_000).await;
    harness.start_workers();
    let fail = |code: &str| Action::Fail { leg: LegKind::Payout, code: code.into() };
    let returned = || Action::ReturnDebt { provider_reference: "W-1".into(), at: chrono::Utc::now() };
    let failed = async |reference: &str, code: &str| {
        let failed =
            "select count(*) from execution where reference = $1 and state #>> '{failure,code}' = $2";
        wait_for("the failure", || async {
            let query = sqlx::query_scalar::<_, i64>(failed).bind(reference).bind(code);
            (query.fetch_one(harness.pool()).await.unwrap() == 1).then_some(())
        })
        .await;
    };
    let (used_up, lost) = (owing(&harness, 0).await, owing(&harness, 1).await);
    for reference in [&used_up, &lost] {
        let refused = decide(&harness, reference, fail("never_paid")).await;
        assert!(
            matches!(refused, Err(ResolveError::Contradicted(why)) if why.contains("included")),
            "{refused:?}"
        );
    }
    // Given up, and final without its event having been read, are no proof that it is not there.
    for state in [
        "state = 'abandoned'",
        "state = 'final', succeeded = true, block_number = 1, block_hash = sha256('b'), judged = false",
    ] {
        let moved = sqlx::AssertSqlSafe(format!("update nonce_slot set {state} where nonce = 0"));
        harness.run(moved).await;
        let refused = decide(&harness, &used_up, fail("never_paid")).await;
        assert!(matches!(refused, Err(ResolveError::Contradicted(_))), "{state}: {refused:?}");
    }
    // Another transaction has the nonce of the first, in a final block.
    harness.run("update nonce_slot set state = 'foreign' where nonce = 0").await;
    decide(&harness, &used_up, fail("never_paid")).await.unwrap();
    failed(&used_up, "never_paid").await;
    // The transaction of the second is lost with its chain.
    decide(&harness, &lost, fail(CHAIN_LOST)).await.unwrap();
    failed(&lost, CHAIN_LOST).await;
    // A nonce that was counted as used up may be back after a reorganization.
    harness.run("update nonce_slot set state = 'broadcast' where nonce = 0").await;
    let refused = decide(&harness, &used_up, returned()).await;
    assert!(
        matches!(refused, Err(ResolveError::Contradicted(why)) if why.contains("included")),
        "{refused:?}"
    );
    decide(&harness, &lost, returned()).await.unwrap();
    harness
        .wait_for_count("select count(*) from execution where state ->> 'debt_returned' is not null", 1)
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payment_that_is_being_signed_is_not_failed() {
    let harness = harness().await;
    harness.fund("north", "USDC.base", 1_000_000_000).await;
    harness.start_workers();
    let reference = owing(&harness, 0).await;
    // Not signed yet.
    for statement in
        ["delete from slot_command", "update chain_command set state = 'pending' where kind = 'transfer'"]
    {
        harness.run(statement).await;
    }
    let mut signing = harness.pool().begin().await.unwrap();
    for statement in [
        "update chain_command set state = 'sent' where kind = 'transfer'",
        "insert into slot_command (chain_id, signer, nonce, command_id) \
         select 8453, decode(repeat('01', 20), 'hex'), 0, id from chain_command where kind = 'transfer'",
    ] {
        sqlx::query(statement).execute(&mut *signing).await.unwrap();
    }
    let fail = Action::Fail { leg: LegKind::Payout, code: "never_paid".into() };
    let (decided, ()) = tokio::join!(decide(&harness, &reference, fail), async {
        tokio::time::sleep(std::time::Duration::from_millis(300)).await;
        signing.commit().await.unwrap();
    });
    assert!(matches!(decided, Err(ResolveError::Contradicted(_))), "{decided:?}");
}

const HOME: i64 = 31_337;
const OTHER: i64 = 8_453;

/// Stores an event of a chain, as its indexer does.
async fn store_event(harness: &Harness, chain_id: i64, event: &str, entity: &[u8]) {
    sqlx::query(
        "insert into chain_log (chain_id, block_hash, log_index, block_number, block_time, tx_hash, contract, event, \
                                entity, seq, fact) \
         select $1, sha256('b'), n, 10, now(), sha256('t'), decode(repeat('ee', 20), 'hex'), $2, $3, n, '{}' \
         from (select count(*) + 1 as n from chain_log) stored",
    )
    .bind(chain_id)
    .bind(event)
    .bind(entity)
    .execute(harness.pool())
    .await
    .unwrap();
}

/// The breaks of a comparison with a chain: of the whole history, or since a block.
async fn breaks(harness: &Harness, chain_id: i64, since: Option<i64>) -> Vec<BreakKind> {
    let ended_since = Utc::now() - TimeDelta::days(400);
    let scope = Scope { chain_id, facts_number: 100, block_number: 100, since, ended_since };
    let mut conn = harness.pool().acquire().await.unwrap();
    let open = list_open_entities(&mut conn, &scope, &[], 10).await.unwrap();
    let mut subjects = list_booked(&mut conn, &scope, &open, "", 10).await.unwrap().subjects;
    subjects.extend(list_lone_entities(&mut conn, &scope, &[], 10).await.unwrap().subjects);
    let moment = Moment { now: Utc::now().into(), block_secs: 0, patience: Patience::default() };
    let found = subjects.iter().flat_map(|subject| judge(subject, &moment));
    found.map(|found| found.kind).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payment_or_a_lock_under_the_id_of_another_chains_order_is_foreign() {
    let harness = harness().await;
    harness.start_workers();
    let accepted = harness.accept(order_by(&PrivateKeySigner::random(), 0, &DOLLARS)).await;
    let (entity, _) = harness.command(&accepted.reference, "create").await;
    for event in ["Created", "Locked"] {
        store_event(&harness, HOME, event, &entity).await;
    }
    store_event(&harness, OTHER, "Paid", &entity).await;
    // The last comparison has left it open.
    let at = Point { block_number: 50, block_hash: vec![0; 32], full_at: Utc::now() };
    let mut point = NewPoint::new(OTHER, at);
    point.keep(OpenKind::Entity, std::slice::from_ref(&entity));
    let mut tx = harness.pool().begin().await.unwrap();
    set_point(&mut tx, &point).await.unwrap();
    tx.commit().await.unwrap();
    for since in [None, Some(5), Some(50)] {
        assert_eq!(breaks(&harness, OTHER, since).await, [BreakKind::PayoutWithoutExecution], "{since:?}");
        assert_eq!(breaks(&harness, HOME, since).await, Vec::new(), "{since:?}");
    }
    store_event(&harness, OTHER, "Locked", &entity).await;
    for since in [None, Some(5)] {
        assert_eq!(
            breaks(&harness, OTHER, since).await,
            [BreakKind::LockWithoutExecution, BreakKind::PayoutWithoutExecution],
            "{since:?}"
        );
    }
}

/// A completed order with its events and its anchor, whose work on the chain was deleted. Returns its reference and its
/// id on the chain.
async fn long_ended(harness: &Harness, order: IntentRequest, chain_id: i64) -> (String, Vec<u8>) {
    let reference = harness.accept(order).await.reference;
    let (entity, _) = harness.command(&reference, "create").await;
    harness.play_chain(&reference).await;
    let finality = "select count(*) from execution where jsonb_typeof(state -> 'finality') = 'object'";
    harness.wait_for_count(finality, 1).await;
    for event in ["Created", "Locked", "Filled", "Settled", "Released"] {
        store_event(harness, chain_id, event, &entity).await;
    }
    let anchored = "insert into chain_log (chain_id, block_hash, log_index, block_number, block_time, tx_hash, contract, \
                                           event, entity, seq, fact) \
                    select $1, sha256('b'), 0, 10, now(), decode(substr(e.state #>> '{finality,txHash}', 3), 'hex'), \
                           decode(substr(e.state #>> '{finality,contractAddress}', 3), 'hex'), 'Anchored', \
                           r.content_hash, 1, '{}' from execution e join receipt r using (reference)";
    sqlx::query(anchored).bind(chain_id).execute(harness.pool()).await.unwrap();
    for statement in [
        "update chain_command set state = 'done', done_at = now() - interval '91 days', \
                created_at = now() - interval '91 days'",
        "update execution set terminal_at = now() - interval '91 days'",
        "delete from effect",
    ] {
        harness.run(statement).await;
    }
    assert_eq!(round(harness.pool(), &Ages::default()).await.failed, Vec::<&str>::new());
    assert_eq!(harness.count("select count(*) from chain_command").await, 0);
    (reference, entity)
}

/// The market with the tokens that a service makes known at its start.
async fn harness_with_tokens() -> Harness {
    let harness = harness().await;
    harness.start_workers();
    let tokens = [(HOME, "USDC"), (OTHER, "USDC.base")];
    let tokens = tokens.map(|(chain, asset)| (chain, asset.to_owned(), TOKEN.to_owned()));
    let mut conn = harness.pool().acquire().await.unwrap();
    register(&mut conn, &[], &tokens).await.unwrap();
    harness
}

#[tokio::test(flavor = "multi_thread")]
async fn a_late_return_of_an_order_is_compared_with_its_own_chain_only() {
    for (own, other) in [(HOME, OTHER), (OTHER, HOME)] {
        let harness = harness_with_tokens().await;
        let wallet = PrivateKeySigner::random();
        let order = order_by(&wallet, 0, &DOLLARS);
        let order = if own == OTHER { on_base(&wallet, order) } else { order };
        let (reference, entity) = long_ended(&harness, order, own).await;
        let returned = Action::MarkReturned {
            provider_reference: "R1".into(),
            at: Utc::now(),
            came: None,
            code: "beneficiary_account_closed".into(),
        };
        decide(&harness, &reference, returned).await.unwrap();
        harness.wait_for_state(&reference, "reversed").await;
        // Its events are from before the point.
        for since in [None, Some(50)] {
            assert_eq!(breaks(&harness, own, since).await, [BreakKind::PaymentReturned], "{own} {since:?}");
            assert_eq!(breaks(&harness, other, since).await, Vec::new(), "{other} {since:?}");
        }
        store_event(&harness, other, "Paid", &entity).await;
        for since in [None, Some(5)] {
            let found = breaks(&harness, other, since).await;
            assert_eq!(found, [BreakKind::PayoutWithoutExecution], "{other} {since:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_across_is_compared_with_both_chains_after_its_work_there_was_deleted() {
    let harness = harness_with_tokens().await;
    harness.fund("north", "USDC.base", 1_000_000_000).await;
    let (_, entity) = long_ended(&harness, across(&PrivateKeySigner::random(), 0), HOME).await;
    assert_eq!(breaks(&harness, HOME, None).await, Vec::new());
    assert_eq!(breaks(&harness, OTHER, None).await, [BreakKind::SettledNotPaid]);
    store_event(&harness, OTHER, "Paid", &entity).await;
    for chain in [HOME, OTHER] {
        assert_eq!(breaks(&harness, chain, None).await, Vec::new(), "{chain}");
    }
}

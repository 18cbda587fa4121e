//! Neither an order nor the sum of a day's orders exceeds a limit set by two operators.

use dvp_core::engine::Engine;
use dvp_core::operators::approvals::{ApprovalError, approve};
use dvp_core::operators::limits::{LimitChange, LimitError, request};
use dvp_core::operators::requests::{ChangeError, Maker, RequestedChange};
use dvp_core::writer::Outcome;
use dvp_domain::decision::Reason;
use dvp_domain::intent::IntentRequest;
use dvp_domain::limit::{LimitScope, Period};
use dvp_domain::money::Minor;
use dvp_testing::Harness;
use dvp_testing::orders::{Terms, order, order_for, order_of, submit};
use dvp_testing::wait::wait_past_midnight;

use crate::scenes;

const MAKER: Maker<'_> = Maker { operator: "jo", reason: "new partner", evidence: "risk memo 7" };

fn limit(scope: LimitScope, target: &str, asset: &str, period: Period, amount: Option<u128>) -> LimitChange {
    let (target, asset) = (target.to_owned(), asset.to_owned());
    LimitChange { scope, target, asset, period, amount_minor: amount.map(Minor::new) }
}

async fn wanted(harness: &Harness, change: &LimitChange) -> Result<RequestedChange, LimitError> {
    let mut conn = harness.pool().acquire().await.unwrap();
    request(&mut conn, &harness.market.targets(), change, MAKER).await
}

async fn approved(harness: &Harness, id: &str, by: &str) -> Result<(), ApprovalError> {
    approve(&mut harness.pool().acquire().await.unwrap(), id, by, "seen").await.map(drop)
}

async fn set(harness: &Harness, change: &LimitChange) {
    let requested = wanted(harness, change).await.unwrap();
    assert!(!requested.repeated);
    approved(harness, &requested.approval.id, "mika").await.unwrap();
}

fn code(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Accepted(_) => "accepted",
        Outcome::Rejected { reason, .. } => reason.as_str(),
        other => panic!("{other:?}"),
    }
}

async fn submitted(engine: &Engine, harness: &Harness, request: IntentRequest) -> Outcome {
    submit(engine, &harness.tenant, request).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn each_limit_refuses_by_its_own_code_and_reserves_nothing() {
    wait_past_midnight().await;
    let harness = scenes::harness().await;
    let partner = harness.tenant.partner_id.clone();
    let first = harness.accept(order("000123450000")).await.plan.priced;
    let (input, output, paid) = (100_000_000, first.gross_output.get(), first.output.get());
    let held = "select sum(reserved)::bigint from account_balance";
    let before = harness.count(held).await;
    for (scope, target, asset, amount) in [
        (LimitScope::Everything, "", "USDC", input),
        (LimitScope::Partner, partner.as_str(), "USDC", input),
        (LimitScope::Pair, "USDC/USD", "USDC", input),
        (LimitScope::Provider, "north", "USD", output),
        (LimitScope::Rail, "offramp", "USDC", input),
        (LimitScope::Rail, "payout", "USD", paid),
        (LimitScope::Chain, "anvil", "USDC", input),
    ] {
        let prefix =
            if scope == LimitScope::Everything { String::new() } else { scope.as_str().to_owned() + "_" };
        // One order was accepted today, and is open.
        for (period, refused, room) in [
            (Period::Order, amount - 1, amount),
            (Period::Day, 2 * amount - 1, 1 << 60),
            (Period::Open, 2 * amount - 1, 1 << 60),
        ] {
            let of = |amount| limit(scope, target, asset, period, amount);
            set(&harness, &of(Some(refused))).await;
            let outcome = harness.submit(order("000123450000")).await;
            let code_of = format!("{prefix}{}_limit_exceeded", period.as_str());
            assert_eq!(code(&outcome), code_of, "{scope:?} {target}");
            set(&harness, &of(Some(room))).await;
            set(&harness, &of(Some(refused))).await;
            set(&harness, &of(None)).await;
        }
    }
    assert_eq!(harness.count(held).await, before);
    assert_eq!(harness.count("select count(*) from execution").await, 1);
    let other = harness.other_tenant().await.partner_id;
    let others = [
        limit(LimitScope::Partner, &other, "USDC", Period::Day, Some(0)),
        limit(LimitScope::Partner, &partner, "WETH", Period::Order, Some(0)),
        limit(LimitScope::Pair, "USD/USDC", "USD", Period::Day, Some(0)),
        limit(LimitScope::Provider, "south", "USD", Period::Day, Some(0)),
        limit(LimitScope::Everything, "", "USDC", Period::Order, Some(input)),
        limit(LimitScope::Everything, "", "USDC", Period::Day, Some(2 * input)),
    ];
    for other in &others {
        set(&harness, other).await;
    }
    harness.accept(order("000123450000")).await;
    assert_eq!(code(&harness.submit(order("000123450000")).await), "day_limit_exceeded");
    harness.check_books().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_orders_in_several_processes_do_not_exceed_a_days_limit() {
    wait_past_midnight().await;
    let harness = scenes::harness().await;
    let partner = harness.tenant.partner_id.clone();
    set(&harness, &limit(LimitScope::Partner, &partner, "USDC", Period::Day, Some(70_000_000))).await;
    let engines = scenes::engines(&harness, 3);
    let orders = (0..30).map(|n| {
        let engine = &engines[n % engines.len()];
        let request = order_of(10_000_000, "000123450000");
        submitted(engine, &harness, request)
    });
    let outcomes = futures_util::future::join_all(orders).await;
    let accepted = outcomes.iter().filter(|outcome| code(outcome) == "accepted").count();
    assert_eq!(accepted, 7, "{outcomes:?}");
    assert!(
        outcomes.iter().all(|outcome| matches!(code(outcome), "accepted" | "partner_day_limit_exceeded"))
    );
    let used = "select amount::bigint from limit_usage where scope = 'partner' and asset = 'USDC'";
    assert_eq!(harness.count(used).await, 70_000_000);
    // Another process has nothing of it in memory.
    let fresh = harness.another_engine();
    let one = order_of(1_000_000, "000123450000");
    let outcome = submitted(&fresh, &harness, one).await;
    assert_eq!(code(&outcome), "partner_day_limit_exceeded");
    harness.check_books().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_provider_fills_what_one_may_not() {
    let harness = scenes::harness().await;
    harness.fund("south", "EUR", 10_000_000).await;
    harness.fund("north", "EUR", 10_000_000).await;
    harness.deposit("USD", 1_000_000).await;
    set(&harness, &limit(LimitScope::Provider, "north", "EUR", Period::Day, Some(0))).await;
    let request = order_for(&Terms { input: ("USD", 10_000), output: "EUR", account: "000123456789" });
    let accepted = harness.accept(request).await;
    assert!(accepted.plan.slices.iter().all(|slice| slice.provider_id == "south"), "{accepted:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_is_changed_by_two_operators_and_the_change_is_recorded() {
    let harness = scenes::harness().await;
    let all = |amount| limit(LimitScope::Everything, "", "USDC", Period::Order, amount);
    let requested = wanted(&harness, &all(Some(1))).await.unwrap();
    harness.accept(order("000123450000")).await;
    let again = wanted(&harness, &all(Some(1))).await.unwrap();
    assert!(again.repeated && again.approval.id == requested.approval.id);
    let other = wanted(&harness, &all(Some(2))).await;
    assert!(
        matches!(&other, Err(LimitError::Change(ChangeError::OtherRequested(id))) if *id == requested.approval.id),
        "{other:?}"
    );
    let own = approved(&harness, &requested.approval.id, " JO").await;
    assert!(matches!(own, Err(ApprovalError::OwnRequest)), "{own:?}");
    approved(&harness, &requested.approval.id, "mika").await.unwrap();
    match harness.submit(order("000123450000")).await {
        Outcome::Rejected { reason: Reason::Limit(_), .. } => {}
        other => panic!("{other:?}"),
    }
    for impossible in [
        limit(LimitScope::Everything, "x", "USDC", Period::Order, Some(1)),
        limit(LimitScope::Pair, "USDC/USD", "USD", Period::Day, Some(1)),
        limit(LimitScope::Pair, "USDC", "USDC", Period::Day, Some(1)),
        limit(LimitScope::Provider, "", "USD", Period::Day, Some(1)),
    ] {
        let refused = wanted(&harness, &impossible).await;
        assert!(matches!(refused, Err(LimitError::Target(_))), "{impossible:?}: {refused:?}");
    }
    let kept = "select count(*) from audit_entry where source = 'order_limit' and entry like '%USDC%'";
    harness.wait_for_count(kept, 1).await;
    assert!(sqlx::query("delete from order_limit").execute(harness.pool()).await.is_err());
}

/// Compares the sums of the changes of open orders with the open executions, by scope.
async fn check_open(harness: &Harness) -> i64 {
    let open = harness
        .count("select coalesce(sum(amount), 0)::bigint from open_change where scope = 'everything' and asset = 'USDC'")
        .await;
    let executions = harness
        .count(
            "select coalesce(sum((terms->'input'->>'amount')::numeric), 0)::bigint from execution \
             where terms->'input'->>'asset' = 'USDC' and state_name in \
                 ('accepted', 'locking', 'converting', 'committing', 'paying', 'owing', 'releasing')",
        )
        .await;
    assert_eq!(open, executions);
    open
}

#[tokio::test(flavor = "multi_thread")]
async fn open_orders_are_limited_in_all_processes_until_they_end() {
    wait_past_midnight().await;
    let harness = scenes::harness().await;
    let partner = harness.tenant.partner_id.clone();
    harness.accept(order("000123450000")).await;
    assert_eq!(check_open(&harness).await, 100_000_000);
    let three = limit(LimitScope::Partner, &partner, "USDC", Period::Open, Some(130_000_000));
    set(&harness, &three).await;
    let engines = scenes::engines(&harness, 3);
    let orders = (0..15).map(|n| submitted(&engines[n % 3], &harness, order_of(10_000_000, "000123450008")));
    let outcomes = futures_util::future::join_all(orders).await;
    let accepted: Vec<String> = outcomes
        .iter()
        .filter_map(|outcome| match outcome {
            Outcome::Accepted(accepted) => Some(accepted.reference.clone()),
            other => {
                assert_eq!(code(other), "partner_open_limit_exceeded");
                None
            }
        })
        .collect();
    assert_eq!((accepted.len(), check_open(&harness).await), (3, 130_000_000));
    // A cancelled order is not open any more; cancelling twice counts once.
    for _ in 0..2 {
        engines[0].cancel(&harness.tenant, &accepted[0], None).await.unwrap();
    }
    assert_eq!(check_open(&harness).await, 120_000_000);
    assert_eq!(
        code(&harness.submit(order_of(10_000_001, "000123450000")).await),
        "partner_open_limit_exceeded"
    );
    harness.accept(order_of(10_000_000, "000123450000")).await;
    assert_eq!(check_open(&harness).await, 130_000_000);
    harness.check_books().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_is_open_until_its_end_and_sums_are_right_during_merges() {
    let harness = scenes::harness().await;
    harness.start_workers();
    let merge = async || {
        let mut conn = harness.pool().acquire().await.unwrap();
        while dvp_store::operators::limits::merge_open(&mut conn, 1000).await.unwrap() > 0 {}
    };
    let paid = harness.accept(order("000123450000")).await.reference;
    let refused = harness.accept(order("000123450003")).await.reference;
    assert_eq!(check_open(&harness).await, 200_000_000);
    merge().await;
    harness.play_until(&paid, |kind| kind == "settle").await;
    harness.wait_for_state(&paid, "completed").await;
    assert_eq!(check_open(&harness).await, 100_000_000);
    harness.play_until(&refused, |kind| kind == "create").await;
    harness.wait_for_state(&refused, "conversion_failed").await;
    assert_eq!(check_open(&harness).await, 0);
    merge().await;
    assert_eq!(harness.count("select count(*) from open_change").await, 0, "nothing is left of ended orders");
    let usage = "select count(*) from limit_usage";
    let kept = harness.count(usage).await;
    harness.run("update limit_usage set day = day - 89 where scope = 'pair'").await;
    harness.run("update limit_usage set day = day - 92 where scope = 'rail'").await;
    let round =
        dvp_core::workflow::retention::round(harness.pool(), &dvp_core::workflow::retention::Ages::default())
            .await;
    assert_eq!(round.deleted.get("limit_usage"), Some(&2));
    assert_eq!(harness.count(usage).await, kept - 2);
    harness.check_books().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_between_counting_and_commit_counts_and_accepts_nothing() {
    let harness = scenes::harness().await;
    let partner = harness.tenant.partner_id.clone();
    for period in [Period::Day, Period::Open] {
        set(&harness, &limit(LimitScope::Partner, &partner, "USDC", period, Some(100_000_000))).await;
    }
    // The last statement of a batch increments the feed's counter: a batch waits there with everything counted.
    let mut held = harness.pool().begin().await.unwrap();
    sqlx::query("select from feed_counter for update").execute(&mut *held).await.unwrap();
    let engine = harness.another_engine();
    let submitting = tokio::spawn({
        let (tenant, request) = (harness.tenant.clone(), order("000123450000"));
        async move { submit(&engine, &tenant, request).await }
    });
    let waiting = "select count(pg_terminate_backend(pid)) from pg_stat_activity \
                   where datname = current_database() and wait_event_type = 'Lock'";
    harness.wait_for_count(waiting, 1).await;
    let counted = "select (select count(*) from limit_usage) + (select count(*) from open_change)";
    assert_eq!(harness.count(counted).await, 0, "killed with its batch");
    assert_eq!(harness.count("select count(*) from execution").await, 0);
    held.rollback().await.unwrap();
    // The writer retries the batch on a new connection, once.
    match submitting.await.unwrap() {
        Ok(outcome) => assert_eq!(code(&outcome), "accepted"),
        Err(error) => {
            tracing::info!(%error, "the batch was given up");
            harness.accept(order("000123450000")).await;
        }
    }
    assert_eq!(harness.count("select count(*) from execution").await, 1);
    assert_eq!(check_open(&harness).await, 100_000_000);
    let used = "select amount::bigint from limit_usage where scope = 'partner' and asset = 'USDC'";
    assert_eq!(harness.count(used).await, 100_000_000);
    harness.check_books().await;
}

#[tokio::test]
async fn a_limit_is_of_a_target_and_an_asset_that_exist() {
    let harness = scenes::harness().await;
    for (scope, target, asset, problem) in [
        (LimitScope::Partner, "acm", "USDC", "there is no partner acm"),
        (LimitScope::Pair, "usdc/usd", "usdc", "there is no pair usdc/usd, did you mean USDC/USD?"),
        (LimitScope::Provider, "nort", "USD", "there is no provider nort, did you mean north?"),
        (LimitScope::Chain, "anvill", "USDC", "there is no chain anvill, did you mean anvil?"),
        (LimitScope::Chain, "anvil", "USD", "USD is no token of anvil"),
        (LimitScope::Everything, "", "usdc", "there is no asset usdc, did you mean USDC?"),
        (LimitScope::Rail, "payout", "US", "there is no asset US, did you mean USD?"),
    ] {
        let change = limit(scope, target, asset, Period::Day, Some(1));
        let refused = wanted(&harness, &change).await.unwrap_err();
        assert!(refused.to_string().starts_with(problem), "{refused}");
        let removal = LimitChange { amount_minor: None, ..change };
        assert!(wanted(&harness, &removal).await.is_err(), "{problem}");
    }
    assert_eq!(harness.count("select count(*) from approval").await, 0);
    // One that is set is removed although its target is gone.
    let gone = "insert into order_limit (scope, target, asset, period, amount, approval) \
                values ('provider', 'gone', 'USD', 'day', 5, 'apr_1')";
    harness.run(gone).await;
    wanted(&harness, &limit(LimitScope::Provider, "gone", "USD", Period::Day, None)).await.unwrap();
}

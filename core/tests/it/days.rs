//! Settlements that take days, in virtual time.
//!
//! Each story starts on a Friday evening. An order has three days to be filled, so its fill deadline is Monday 20:00;
//! the payout has four business days from then on, and the margin is two days:
//!
//! ```text
//! Fri 20:00 ── Mon 02:00 ──── Mon 20:00 ───── Tue 20:00 ── Sat 00:00 ─ Sun 00:00 ───── Mon 00:00
//! accepted     begin_before   fill_deadline   pay_before   overdue     settle_at       timelock
//! ```

mod bank;

use std::sync::Arc;
use std::time::Duration;

use alloy::signers::local::PrivateKeySigner;
use chrono::{DateTime, TimeDelta, Utc};
use dvp_core::operators::operations::Action;
use dvp_core::workflow::RailUse;
use dvp_domain::ledger::Owner;
use dvp_domain::windows::{PayoutTime, Windows};
use dvp_rails::LegKind;
use dvp_testing::market::pair;
use dvp_testing::orders::{Terms, order_at};
use dvp_testing::wait::wait_for;
use dvp_testing::{Harness, Market};

use self::bank::{Bank, Manner};

const FRIDAY_EVENING: &str = "2032-03-12T20:00:00Z";
const DAY_SECS: u64 = 24 * 60 * 60;
/// The provider's initial balance, in cents.
const FUNDS: u128 = 1_000_000;

fn at(text: &str) -> DateTime<Utc> {
    text.parse().unwrap()
}

/// A harness on Friday evening.
async fn friday_evening() -> Harness {
    friday_evening_with_margin(2 * DAY_SECS).await
}

async fn friday_evening_with_margin(margin_secs: u64) -> Harness {
    let market = Market {
        windows: Windows {
            fill_secs: 3 * DAY_SECS,
            margin_secs,
            payout: PayoutTime::BusinessDays,
            finality_secs: 3_600,
        },
        ..Market::new(vec![pair("USDC", "USD", "1")]).with_funds("north", "USD", FUNDS)
    };
    Harness::in_virtual_time(market, at(FRIDAY_EVENING).into()).await
}

type Manners<'a> = &'a [(&'static str, Manner)];

/// Starts the workers with a desk that converts and a bank that pays.
fn start(harness: &Harness, desk: Manners<'_>, bank: Manners<'_>) -> (Arc<Bank>, Arc<Bank>) {
    let rail = |manners: Manners<'_>| Arc::new(Bank::new(harness.clock(), manners.iter().cloned()));
    let (desk, bank) = (rail(desk), rail(bank));
    harness.start_workers_over(desk.clone(), bank.clone());
    (desk, bank)
}

/// Waits until the workers have done all due work.
async fn settle_down(harness: &Harness) {
    let due = "select (select count(*) from effect where run_at <= now()) \
               + (select count(*) from chain_fact where consumed_at is null and retracted_at is null)";
    harness.wait_for_count(due, 0).await;
}

/// Lets time pass hour by hour, and the workers do what is due at each.
async fn pass_until(harness: &Harness, until: &str) {
    settle_down(harness).await;
    let now = || harness.clock().now().to_utc();
    let until = at(until);
    while now() < until {
        let step = (until - now()).min(TimeDelta::hours(1));
        harness.advance(step.to_std().unwrap()).await;
        settle_down(harness).await;
    }
}

/// Accepts an order at the present time, and lets its chain commands up to a kind succeed.
async fn accept_and_play(harness: &Harness, account: &str, last: &str) -> String {
    let terms = Terms { input: ("USDC", 100_000_000), output: "USD", account };
    let order = order_at(harness.clock().now(), &PrivateKeySigner::random(), 0, &terms);
    let reference = harness.accept(order).await.reference;
    harness.play_until(&reference, |kind| kind == last).await;
    reference
}

async fn failure(harness: &Harness, reference: &str) -> String {
    let code = "select state #>> '{failure,code}' from execution where reference = $1";
    harness.row_of::<(String,)>(code, reference).await.0
}

async fn commands(harness: &Harness, reference: &str, kind: &str) -> usize {
    let kinds = "select kind from chain_command where reference = $1";
    let kinds: Vec<(String,)> = harness.rows_of(kinds, reference).await;
    kinds.iter().filter(|(one,)| one == kind).count()
}

async fn paid_at(harness: &Harness, reference: &str) -> DateTime<Utc> {
    let row: (DateTime<Utc>,) = harness
        .row_of("select occurred_at from event where reference = $1 and type = 'payout.completed'", reference)
        .await;
    row.0
}

async fn decide(harness: &Harness, operator: &str, reference: &str, action: &Action) {
    let decided = || async { harness.decide(operator, reference, action.clone()).await.ok() };
    wait_for("the decision", decided).await;
}

async fn available(harness: &Harness) -> (u128, u128) {
    harness.balance(&Owner::Provider("north".into()), "USD").await
}

#[tokio::test(flavor = "multi_thread")]
async fn weekend_payments_are_ordered_once_and_an_unanswered_one_resolved() {
    let harness = friday_evening().await;
    let (_, bank) = start(&harness, &[], &[("000123", Manner::Books), ("000999", Manner::Silent)]);
    let booked = accept_and_play(&harness, "000123", "fill").await;
    let unanswered = accept_and_play(&harness, "000999", "fill").await;
    for account in ["000123", "000999"] {
        wait_for("the order", || async { (bank.calls(account) == 1).then_some(()) }).await;
    }
    // After the cut-off on Friday: the bank processes the payments on Monday, and books them on Tuesday.
    pass_until(&harness, "2032-03-15T23:00:00Z").await;
    for reference in [&booked, &unanswered] {
        assert_eq!(harness.state(reference).await, "paying");
    }
    pass_until(&harness, "2032-03-16T10:00:00Z").await;
    harness.wait_for_state(&booked, "releasing").await;
    harness.play_chain(&booked).await;
    harness.wait_for_state(&booked, "completed").await;
    assert_eq!(paid_at(&harness, &booked).await, at("2032-03-16T09:00:00Z"), "the bank's time");

    // Two days later operators find the other payment on a statement.
    pass_until(&harness, "2032-03-18T12:00:00Z").await;
    assert_eq!(harness.state(&unanswered).await, "paying");
    let paid = Action::MarkPaid {
        leg: LegKind::Payout,
        provider_reference: "S17".into(),
        at: at("2032-03-17T09:00:00Z"),
    };
    for operator in ["jo", "mika"] {
        assert_eq!(harness.state(&unanswered).await, "paying");
        decide(&harness, operator, &unanswered, &paid).await;
    }
    harness.play_chain(&unanswered).await;
    harness.wait_for_state(&unanswered, "completed").await;
    assert_eq!((bank.calls("000123"), bank.calls("000999")), (1, 1));
    harness.check_books().await;
}

/// The margin is an hour, so that half an hour is left from the time to settle (Sat 00:30) to the timelock; the bank is
/// queried as rarely as may be.
#[tokio::test(flavor = "multi_thread")]
async fn a_rarely_queried_payment_is_settled_before_the_timelock() {
    let harness = friday_evening_with_margin(3_600).await;
    let rail = |manners: Manners<'_>| Arc::new(Bank::new(harness.clock(), manners.iter().cloned()));
    let (desk, bank) = (rail(&[]), rail(&[("000135", Manner::BooksAt(at("2032-03-24T09:00:00Z")))]));
    let rarely = RailUse { poll_max: Duration::from_secs(3_600), ..RailUse::of(bank) };
    harness.start_workers_using(RailUse::of(desk), rarely);
    let late = accept_and_play(&harness, "000135", "fill").await;
    pass_until(&harness, "2032-03-20T00:10:00Z").await;
    // Queried once more shortly before the time to settle.
    let due = "update effect set run_at = now() where reference = $1 and attempts > 15";
    assert_eq!(harness.run_of(due, &late).await, 1);
    pass_until(&harness, "2032-03-20T00:20:00Z").await;
    assert_eq!(harness.state(&late).await, "paying");
    pass_until(&harness, "2032-03-20T00:31:00Z").await;
    harness.wait_for_state(&late, "owing").await;
    assert_eq!(commands(&harness, &late, "settle").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payout_is_retried_for_days_until_too_little_time_is_left() {
    let harness = friday_evening().await;
    let manners = [
        ("000126", Manner::DownUntil(at("2032-03-14T12:00:00Z"))),
        ("000127", Manner::DownUntil(at("2032-03-17T12:00:00Z"))),
    ];
    let (_, bank) = start(&harness, &[], &manners);
    let paid = accept_and_play(&harness, "000126", "fill").await;
    let unpaid = accept_and_play(&harness, "000127", "fill").await;
    pass_until(&harness, "2032-03-14T11:00:00Z").await;
    assert_eq!(bank.calls("000126"), 0);
    assert!(bank.unreached("000126") >= 39, "an attempt an hour: {}", bank.unreached("000126"));
    pass_until(&harness, "2032-03-14T13:00:00Z").await;
    harness.play_chain(&paid).await;
    harness.wait_for_state(&paid, "completed").await;

    // The bank's days begin on Monday for what it gets at the weekend.
    assert_eq!(harness.state(&unpaid).await, "paying");
    pass_until(&harness, "2032-03-16T19:00:00Z").await;
    harness.wait_for_state(&unpaid, "payout_failed").await;
    assert_eq!(failure(&harness, &unpaid).await, "timelock_near");
    // The relayer does not return what is committed on the chain.
    assert_eq!(commands(&harness, &unpaid, "cancel").await, 0);
    // The bank is back, and is not called any more. From the timelock on the funds can be refunded.
    pass_until(&harness, "2032-03-21T23:00:00Z").await;
    assert_eq!(commands(&harness, &unpaid, "refund").await, 0);
    pass_until(&harness, "2032-03-22T01:00:00Z").await;
    harness.play_until(&unpaid, |kind| kind == "refund").await;
    let refunded = "select count(*) from execution where state #>> '{lock,refunded}' = 'true'";
    harness.wait_for_count(refunded, 1).await;
    assert_eq!((bank.calls("000126"), bank.calls("000127")), (1, 0));
    let (available, reserved) = available(&harness).await;
    assert!(available < FUNDS && reserved == 0, "one order was paid: {available}, {reserved}");
    harness.check_books().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conversion_is_retried_for_days_and_its_lock_returned_in_time() {
    let harness = friday_evening().await;
    let manners = [
        ("000128", Manner::DownUntil(at("2032-03-14T12:00:00Z"))),
        ("000129", Manner::DownUntil(at("2032-03-16T12:00:00Z"))),
    ];
    let (desk, bank) = start(&harness, &manners, &[]);
    let converted = accept_and_play(&harness, "000128", "create").await;
    let withheld = accept_and_play(&harness, "000129", "create").await;
    pass_until(&harness, "2032-03-14T11:00:00Z").await;
    assert!(desk.unreached("000128") >= 39, "an attempt an hour: {}", desk.unreached("000128"));
    pass_until(&harness, "2032-03-14T13:00:00Z").await;
    harness.play_chain(&converted).await;
    harness.wait_for_state(&converted, "completed").await;

    pass_until(&harness, "2032-03-15T01:00:00Z").await;
    assert_eq!(harness.state(&withheld).await, "converting");
    pass_until(&harness, "2032-03-15T03:00:00Z").await;
    harness.wait_for_state(&withheld, "conversion_failed").await;
    assert_eq!(failure(&harness, &withheld).await, "fill_deadline_near");
    harness.play_until(&withheld, |kind| kind == "cancel").await;
    let refunded = "select count(*) from execution where state #>> '{lock,refunded}' = 'true'";
    harness.wait_for_count(refunded, 1).await;
    // The desk is back, and is not called any more.
    pass_until(&harness, "2032-03-16T13:00:00Z").await;
    assert_eq!((desk.calls("000128"), desk.calls("000129")), (1, 0));
    assert_eq!((bank.calls("000128"), bank.calls("000129")), (1, 0));
    assert_eq!(available(&harness).await.1, 0);
    harness.check_books().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commitment_is_paid_unless_it_is_seen_too_late() {
    let harness = friday_evening().await;
    let (_, bank) = start(&harness, &[], &[]);
    let late = accept_and_play(&harness, "000131", "create").await;
    let too_late = accept_and_play(&harness, "000132", "create").await;
    pass_until(&harness, "2032-03-15T21:00:00Z").await;
    assert_eq!(harness.state(&late).await, "committing");
    harness.play_chain(&late).await;
    harness.wait_for_state(&late, "completed").await;

    pass_until(&harness, "2032-03-16T21:00:00Z").await;
    harness.play(&too_late, "fill").await;
    harness.wait_for_state(&too_late, "payout_failed").await;
    assert_eq!(failure(&harness, &too_late).await, "timelock_near");
    assert_eq!((bank.calls("000131"), bank.calls("000132")), (1, 0));
    harness.check_books().await;
}

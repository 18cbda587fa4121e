use super::*;
use crate::event::Stage;
use crate::plan::OrderKind;
use crate::settlement::tests::terms_of;
use crate::settlement::{Conversion, DeskOutcome, Failure, Finality, LegDone, Lock, Position, Reversal};

const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);
const MOMENT: Moment = Moment {
    now: NOW,
    block_secs: 1_800_000_000,
    patience: Patience {
        idle_ms: 60_000,
        convert_ms: 60_000,
        pay_ms: 60_000,
        settle_ms: 30_000,
        anchor_ms: 30_000,
        expiring_ms: 600_000,
        recall_answer_ms: 60_000,
        recall_return_ms: 60_000,
    },
};
const LONG_AGO: Timestamp = Timestamp::from_millis(1_799_999_900_000);

fn lock() -> Lock {
    crate::settlement::tests::lock()
}

fn done() -> LegDone {
    LegDone { provider_reference: "ref".into(), occurred_at: NOW }
}

fn failure() -> Failure {
    Failure { stage: Stage::Payout, code: "c".into(), message: "m".into(), retryable: false }
}

fn finality() -> Finality {
    Finality { tx_hash: "0xa".into(), contract_address: "0xC".into(), chain_id: 1 }
}

fn completed() -> State {
    completed_with(Some(filled()), Some("0xs"))
}

fn completed_with(lock: Option<Lock>, settle_tx: Option<&str>) -> State {
    State::Completed {
        offramp: lock.is_some().then(|| done().into()),
        lock,
        payout: done(),
        settle_tx: settle_tx.map(str::to_owned),
        finality: Some(finality()),
        reversal: None,
    }
}

/// A filled lock whose payout is not overdue yet.
fn filled() -> Lock {
    let mut lock = crate::settlement::tests::filled();
    lock.deadlines.overdue_at = NOW.plus_millis(1_800_000);
    lock
}

fn paying() -> State {
    State::Paying { lock: Some(filled()), offramp: Some(done().into()), leg: Default::default() }
}

fn owing(failure: Option<Failure>) -> State {
    let (offramp, settle_tx) = (Some(done().into()), Some("0xs".into()));
    State::Owing { lock: filled(), offramp, leg: Default::default(), settle_tx, failure, is_reopened: false }
}

fn releasing() -> State {
    State::Releasing { lock: filled(), offramp: Some(done().into()), payout: done() }
}

fn converting() -> State {
    State::Converting { lock: Some(lock()), leg: Default::default() }
}

fn failed() -> State {
    State::PayoutFailed { lock: Some(lock()), offramp: None, failure: failure(), debt_returned: None }
}

/// A settlement whose records all agree, with the named events.
fn subject(state: State, events: &[&str]) -> Subject {
    let terms = terms_of(OrderKind::TokenToFiat);
    let now = events.iter().fold(OnChain::default(), |state, event| state.after(event));
    let locked = (now.settler != SettlerState::None).then_some(terms.input.amount);
    let receipt = matches!(state, State::Completed { .. }).then(|| Receipted {
        content_hash: "0xh".into(),
        computed_hash: "0xh".into(),
        anchor: Some(Anchored { tx_hash: "0xa".into(), contract: "0xc".into() }),
    });
    let contracts = Contracts {
        state: now,
        lock: (now.escrow != EscrowState::None).then(|| ProvenLock {
            amount: terms.input.amount,
            token: "0xt".into(),
            fill_deadline: MOMENT.block_secs + 3_600,
            timelock: MOMENT.block_secs + 7_200,
        }),
        terms_differ: false,
    };
    Subject {
        entity: "0xe".into(),
        booked: Some(Booked {
            terms,
            state,
            is_locked_elsewhere: false,
            changed_at: NOW,
            receipt,
            failed_command: None,
            differing_fact: None,
            bank: None,
            with_bank_since: None,
            recall: None,
        }),
        kept: StoredEvents { now, at_block: now, locked, paid: None },
        contracts: Some(contracts),
    }
}

const LOCKED: &[&str] = &["Created", "Locked"];
const FILLED: &[&str] = &["Created", "Locked", "Filled"];
const SETTLED: &[&str] = &["Created", "Locked", "Filled", "Settled", "Released"];
const CANCELLED: &[&str] = &["Created", "Locked", "Cancelled", "Refunded"];

fn kinds(subject: &Subject) -> Vec<&'static str> {
    judge(subject, &MOMENT).iter().map(|found| found.kind.as_str()).collect()
}

#[test]
fn a_settlement_in_progress_is_no_break_at_any_step() {
    let failed_on_chain = State::Failed { failure: failure() };
    let refunded = State::PayoutFailed {
        lock: Some(Lock { refunded: true, ..lock() }),
        offramp: None,
        failure: failure(),
        debt_returned: None,
    };
    let committing = State::Committing { lock: lock(), offramp: done().into() };
    let returned = State::PayoutFailed {
        lock: Some(filled()),
        offramp: None,
        failure: failure(),
        debt_returned: Some(done()),
    };
    let steps: [(State, &[&str]); 16] = [
        (State::Accepted, &[]),
        (State::Cancelled, &[]),
        (State::Expired, &[]),
        (failed_on_chain, &[]),
        (State::Locking, &[]),
        (State::Locking, LOCKED),
        (converting(), LOCKED),
        (committing.clone(), LOCKED),
        (committing, FILLED),
        (paying(), FILLED),
        (returned, SETTLED),
        (releasing(), FILLED),
        (releasing(), SETTLED),
        (completed(), SETTLED),
        (failed(), LOCKED),
        (refunded, CANCELLED),
    ];
    for (state, events) in steps {
        let reported = format!("{state:?} {events:?}");
        let mut subject = subject(state, events);
        assert_eq!(kinds(&subject), [""; 0], "{reported}");
        subject.contracts = None;
        assert_eq!(kinds(&subject), [""; 0], "{reported}, not asked");
    }
}

#[test]
fn money_for_money_ignores_the_escrow() {
    let mut subject = subject(completed_with(None, None), &[]);
    subject.booked.as_mut().unwrap().terms = terms_of(OrderKind::FiatToFiat);
    assert_eq!(kinds(&subject), [""; 0]);
}

#[test]
fn an_execution_past_the_final_block_is_no_break_yet() {
    let mut subject = subject(converting(), LOCKED);
    subject.kept.at_block = OnChain::default();
    subject.contracts.as_mut().unwrap().state = OnChain::default();
    assert_eq!(kinds(&subject), [""; 0]);
}

fn overdue() -> State {
    let mut lock = filled();
    lock.deadlines.overdue_at = NOW;
    State::Paying { lock: Some(lock), offramp: Some(done().into()), leg: Default::default() }
}

/// A planted fault, and the one break that it causes.
type Planted = (&'static str, State, &'static [&'static str], fn(&mut Subject));

fn booked(subject: &mut Subject) -> &mut Booked {
    subject.booked.as_mut().unwrap()
}

fn contracts(subject: &mut Subject) -> &mut Contracts {
    subject.contracts.as_mut().unwrap()
}

fn held(subject: &mut Subject) -> &mut ProvenLock {
    contracts(subject).lock.as_mut().unwrap()
}

#[test]
fn each_planted_break_is_found_and_no_other() {
    let house_paid = completed_with(Some(Lock { refunded: true, ..filled() }), None);
    let planted: Vec<Planted> = vec![
        ("lock_without_execution", State::Accepted, LOCKED, |s| s.booked = None),
        ("lock_without_execution", State::Cancelled, LOCKED, |_| {}),
        ("execution_without_lock", converting(), &[], |_| {}),
        ("execution_without_lock", completed(), &[], |_| {}),
        ("amount_mismatch", converting(), LOCKED, |s| s.kept.locked = Some(Minor::new(1))),
        ("amount_mismatch", converting(), LOCKED, |s| held(s).amount = Minor::new(1)),
        ("terms_mismatch", State::Locking, LOCKED, |s| {
            booked(s).differing_fact = Some("token is 0xa, but 0xb was requested".into());
        }),
        ("paid_not_settled", releasing(), FILLED, |s| booked(s).changed_at = LONG_AGO),
        ("paid_not_settled", completed(), FILLED, |_| {}),
        ("execution_without_lock", paying(), LOCKED, |_| {}),
        ("settled_not_paid", owing(None), SETTLED, |_| {}),
        ("settled_not_paid", owing(Some(failure())), SETTLED, |_| {}),
        ("timelock_expiring", paying(), FILLED, |s| s.booked.as_mut().unwrap().state = overdue()),
        ("refund_due", failed(), FILLED, |s| booked(s).changed_at = LONG_AGO),
        ("refund_due", failed(), LOCKED, |s| booked(s).changed_at = LONG_AGO),
        ("paid_not_settled", house_paid, CANCELLED, |_| {}),
        ("settled_not_paid", converting(), SETTLED, |_| {}),
        ("settled_not_paid", failed(), SETTLED, |_| {}),
        ("anchor_missing", completed(), SETTLED, |s| booked(s).receipt = None),
        ("anchor_missing", completed(), SETTLED, |s| {
            booked(s).receipt.as_mut().unwrap().anchor = None;
        }),
        ("anchor_mismatch", completed(), SETTLED, |s| {
            booked(s).receipt.as_mut().unwrap().computed_hash = "0xother".into();
        }),
        ("anchor_mismatch", completed(), SETTLED, |s| {
            booked(s).receipt.as_mut().unwrap().anchor.as_mut().unwrap().tx_hash = "0xother".into();
        }),
        ("timelock_expiring", converting(), LOCKED, |s| held(s).timelock = MOMENT.block_secs + 500),
        ("timelock_expiring", converting(), LOCKED, |s| held(s).fill_deadline = MOMENT.block_secs - 600),
        ("refund_due", converting(), LOCKED, |s| held(s).timelock = MOMENT.block_secs),
        ("refund_due", failed(), LOCKED, |s| held(s).fill_deadline = MOMENT.block_secs),
        ("stuck", State::Locking, &[], |s| booked(s).changed_at = LONG_AGO),
        ("stuck", releasing(), FILLED, |s| booked(s).failed_command = Some("settle".into())),
        ("payout_without_execution", State::Accepted, &["Paid"], |s| s.booked = None),
        ("index_mismatch", converting(), LOCKED, |s| contracts(s).state = OnChain::default()),
        ("index_mismatch", converting(), LOCKED, |s| contracts(s).terms_differ = true),
    ];
    for (expected, state, events, plant) in planted {
        let mut subject = subject(state, events);
        plant(&mut subject);
        assert_eq!(kinds(&subject), [expected], "{subject:?}");
    }
}

#[test]
fn a_token_payout_is_compared_with_the_order() {
    let terms = terms_of(OrderKind::FiatToToken);
    let pays = |state, paid| {
        let mut subject = subject(state, if paid { &["Paid"] } else { &[] });
        subject.kept.paid = paid.then_some(terms.output.amount);
        booked(&mut subject).terms = terms.clone();
        subject
    };
    let completed = completed_with(None, None);
    let gave_up = State::PayoutFailed { lock: None, offramp: None, failure: failure(), debt_returned: None };
    assert_eq!(kinds(&pays(completed.clone(), true)), [""; 0]);
    assert_eq!(kinds(&pays(completed.clone(), false)), ["settled_not_paid"]);
    assert_eq!(kinds(&pays(gave_up, true)), ["paid_not_settled"]);
    let mut other = pays(completed, true);
    other.kept.paid = Some(Minor::new(1));
    assert_eq!(kinds(&other), ["amount_mismatch"]);
}

#[test]
fn differing_counts_blocks_and_balances_are_breaks() {
    let of = |found: Option<Break>| found.map(|found| found.kind);
    assert_eq!(of(judge_count("0xc", 3, 3, 3)), None);
    assert_eq!(of(judge_count("0xc", 4, 3, 3)), Some(BreakKind::IndexMismatch));
    assert_eq!(of(judge_count("0xc", 3, 3, 2)), Some(BreakKind::IndexMismatch));
    assert_eq!(of(judge_balance("0xt", 5, 5)), None);
    assert_eq!(of(judge_balance("0xt", 4, 5)), Some(BreakKind::EscrowShort));
    assert_eq!(of(judge_block(7, "0xa", Some("0xa"))), None);
    assert_eq!(of(judge_block(7, "0xa", None)), Some(BreakKind::IndexMismatch));
}

#[test]
fn a_swap_holds_no_funds_and_is_no_break() {
    let mut subject = subject(completed(), &["Created", "Filled", "Settled", "Paid"]);
    booked(&mut subject).terms = terms_of(OrderKind::TokenToToken);
    assert_eq!(kinds(&subject), [""; 0]);
}

#[test]
fn a_leg_is_stuck_after_its_rails_time_limit() {
    let stuck = |state: State, minutes: i64| {
        let mut subject = subject(state, &[]);
        booked(&mut subject).terms = terms_of(OrderKind::FiatToFiat);
        let patience = Patience { idle_ms: 60_000, convert_ms: 300_000, pay_ms: 600_000, ..MOMENT.patience };
        let now = booked(&mut subject).changed_at.plus_millis(minutes * 60_000 + 1);
        let moment = Moment { now, patience, ..MOMENT };
        judge(&subject, &moment).iter().any(|found| found.kind == BreakKind::Stuck)
    };
    let converting = || State::Converting { lock: None, leg: Default::default() };
    let paying = || State::Paying { lock: None, offramp: None, leg: Default::default() };
    let asked = State::ConversionFailed {
        lock: None,
        failure: failure(),
        desk: DeskOutcome::Asked(Default::default()),
    };
    for (state, minutes) in [(State::Locking, 1), (converting(), 5), (paying(), 10), (asked, 5)] {
        assert!(!stuck(state.clone(), minutes - 1), "{} after {minutes} minutes less one", state.name());
        assert!(stuck(state.clone(), minutes), "{} after {minutes} minutes", state.name());
    }
}

#[test]
fn an_unused_conversion_is_a_break_until_its_position_is_closed() {
    let failed = |position| State::PayoutFailed {
        lock: Some(Lock { refunded: true, ..lock() }),
        offramp: Some(Conversion { position, ..done().into() }),
        failure: failure(),
        debt_returned: None,
    };
    assert_eq!(kinds(&subject(failed(Position::Kept), CANCELLED)), ["converted_not_used"]);
    assert_eq!(kinds(&subject(failed(Position::TakenOver), CANCELLED)), [""; 0]);
}

#[test]
fn a_payment_at_a_bank_is_stuck_after_the_banks_time() {
    let since = NOW.millis();
    let with_bank = |days: i64, since: Option<i64>| {
        let paying = State::Paying { lock: None, offramp: None, leg: Default::default() };
        let mut subject = subject(paying, &[]);
        booked(&mut subject).terms = terms_of(OrderKind::FiatToFiat);
        booked(&mut subject).with_bank_since = since.map(Timestamp::from_millis);
        let moment = Moment { now: NOW.plus_millis(days * 86_400_000), ..MOMENT };
        judge(&subject, &moment).iter().map(|found| found.kind).collect::<Vec<_>>()
    };
    assert_eq!(with_bank(1, None), [BreakKind::Stuck], "no bank has it");
    assert_eq!(with_bank(5, Some(since)), [], "five business days at least");
    assert_eq!(with_bank(15, Some(since)), [BreakKind::Stuck]);
}

#[test]
fn a_recall_is_a_break_without_an_answer_without_a_return_and_when_contradicted() {
    let found = |state: State, status, since, is_contradicted, bank| {
        let mut subject = subject(state, SETTLED);
        booked(&mut subject).recall = Some(OpenRecall { status, since, is_contradicted });
        booked(&mut subject).bank = bank;
        kinds(&subject)
    };
    let reversed = |resolved| {
        let State::Completed { lock, offramp, payout, settle_tx, finality, .. } = completed() else {
            unreachable!("completed")
        };
        let reversal =
            Some(Box::new(Reversal { returned: done(), came: None, failure: failure(), resolved }));
        State::Completed { lock, offramp, payout, settle_tx, finality, reversal }
    };
    for status in RecallStatus::ALL {
        let (late, contradicted) = match status {
            RecallStatus::Approved | RecallStatus::Sent | RecallStatus::Pending => {
                (vec!["recall_unanswered"], vec!["recall_contradicted"])
            }
            RecallStatus::Accepted => (vec!["recall_not_returned"], vec!["recall_contradicted"]),
            RecallStatus::Unrequested => (vec!["recall_contradicted"], vec!["recall_contradicted"]),
            RecallStatus::Rejected
            | RecallStatus::Recalled
            | RecallStatus::NotNeeded
            | RecallStatus::Withdrawn => (vec![], vec!["recall_contradicted"]),
        };
        let paid = Some(BankWord::Paid);
        assert_eq!(found(completed(), status, LONG_AGO, false, paid), late, "{status:?}");
        assert_eq!(found(completed(), status, NOW, true, paid), contradicted, "{status:?}");
        if status != RecallStatus::Unrequested {
            assert_eq!(found(completed(), status, NOW, false, paid), [""; 0], "{status:?} in time");
        }
    }
    let accepted = |state, bank| found(state, RecallStatus::Accepted, LONG_AGO, false, bank);
    assert_eq!(accepted(reversed(None), None), ["payment_returned"], "it came back");
    let unpaid = || State::PayoutFailed {
        lock: Some(Lock { refunded: true, ..lock() }),
        offramp: None,
        failure: failure(),
        debt_returned: Some(done()),
    };
    assert_eq!(accepted(unpaid(), None), [""; 0], "it was not made");
    let both = accepted(unpaid(), Some(BankWord::Paid));
    assert_eq!(both, ["decision_contradicted", "recall_not_returned"], "it was made after all");
}

/// The other chain of an order of two.
fn paid_there(state: State, events: &[&str]) -> Vec<&'static str> {
    let mut subject = subject(state, events);
    booked(&mut subject).terms = crate::settlement::tests::across();
    booked(&mut subject).is_locked_elsewhere = true;
    kinds(&subject)
}

#[test]
fn the_chain_of_a_payment_is_compared_with_the_payment_only() {
    let unpaid = || owing(Some(failure()));
    for (state, events) in [
        (paying(), &[][..]),
        (paying(), &["Paid"]),
        (owing(None), &[]),
        (owing(None), &["Paid"]),
        (unpaid(), &[]),
        (failed(), &[]),
        (releasing(), &["Paid"]),
        (completed(), &["Paid"]),
    ] {
        assert_eq!(paid_there(state.clone(), events), [""; 0], "{} {events:?}", state.name());
    }
    for (state, events, found) in [
        (releasing(), &[][..], "settled_not_paid"),
        (completed(), &[], "settled_not_paid"),
        (failed(), &["Paid"], "paid_not_settled"),
        (unpaid(), &["Paid"], "paid_not_settled"),
        (paying(), &["Created", "Locked"], "lock_without_execution"),
    ] {
        assert_eq!(paid_there(state.clone(), events), [found], "{} {events:?}", state.name());
    }
}

#[test]
fn the_chain_of_a_lock_is_compared_with_the_lock_and_a_debt_is_a_break_there() {
    let here = |state: State, events: &[&str]| {
        let mut subject = subject(state, events);
        booked(&mut subject).terms = crate::settlement::tests::across();
        kinds(&subject)
    };
    for (state, events) in
        [(paying(), FILLED), (releasing(), FILLED), (completed(), SETTLED), (failed(), LOCKED)]
    {
        assert_eq!(here(state.clone(), events), [""; 0], "{} {events:?}", state.name());
    }
    assert_eq!(here(owing(None), SETTLED), ["settled_not_paid"]);
    assert_eq!(here(completed(), FILLED), ["paid_not_settled"]);
}

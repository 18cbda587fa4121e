use std::collections::BTreeMap;

use expect_test::expect_file;

use super::*;
use crate::decision::tests;
use crate::event::Stage;
use crate::ids::{PartnerId, Reference};
use crate::plan::{InputFunding, OrderKind};
use crate::terms::AssetAmount;

const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);
const LATER: Timestamp = Timestamp::from_millis(1_800_000_009_000);

fn terms() -> Terms {
    let request = tests::request();
    let plan = tests::accepted(&request);
    let amount =
        |asset: &str, amount, exponent| AssetAmount { asset: asset.into(), amount, exponent, chain: None };
    Terms {
        reference: Reference::from_unique("1"),
        partner_id: PartnerId::from_unique("1"),
        livemode: false,
        input: amount("USDC", plan.priced.input, 6),
        output: amount("USD", plan.priced.output, 2),
        request,
        plan,
        accepted_at: NOW,
        entity: "0x00".into(),
        hashlock: "0x00".into(),
        lock_at: NOW,
        counts_as_open: true,
        escrows: BTreeMap::new(),
        registered: None,
        trace: None,
    }
}

pub(crate) const KINDS: [OrderKind; 4] =
    [OrderKind::TokenToFiat, OrderKind::TokenToToken, OrderKind::FiatToFiat, OrderKind::FiatToToken];

/// The same amounts as an order of any kind.
pub(crate) fn terms_of(kind: OrderKind) -> Terms {
    let mut terms = terms();
    terms.plan.kind = kind;
    if !kind.locks_input() {
        let (asset, amount) = (terms.input.asset.clone(), terms.input.amount);
        terms.plan.funding = InputFunding::PartnerBalance { asset, amount };
    }
    terms
}

/// An order of a token for a token of another chain.
pub(crate) fn across() -> Terms {
    let mut terms = terms_of(OrderKind::TokenToToken);
    terms.input.chain = Some("home".into());
    terms.output.chain = Some("away".into());
    terms
}

pub(crate) fn lock() -> Lock {
    let deadlines = Deadlines { begin_before: LATER, pay_before: LATER, overdue_at: LATER, settle_at: LATER };
    Lock::new("0xl".into(), LATER, deadlines)
}

/// The same, once the chain is committed to the payout.
pub(crate) fn filled() -> Lock {
    Lock { filled: true, ..lock() }
}

/// An order of every kind, with the states it can be in.
fn orders() -> Vec<(Terms, Vec<State>)> {
    let of = |kind| (terms_of(kind), states_of(kind));
    // Across chains tokens are locked, committed and paid as for money.
    KINDS.map(of).into_iter().chain([(across(), states_of(OrderKind::TokenToFiat))]).collect()
}

/// The states an order of a kind can be in.
fn states_of(kind: OrderKind) -> Vec<State> {
    let converts = terms_of(kind).converts();
    let mut states = states();
    for state in &mut states {
        match state {
            State::Converting { lock, .. } | State::ConversionFailed { lock, .. } if !kind.locks_input() => {
                *lock = None;
            }
            State::Paying { lock, offramp, .. }
            | State::Completed { lock, offramp, .. }
            | State::PayoutFailed { lock, offramp, .. } => {
                lock.take_if(|_| !kind.locks_input());
                offramp.take_if(|_| !converts);
            }
            _ => {}
        }
    }
    states.retain(|state| match state {
        State::Locking | State::Failed { .. } => kind.locks_input(),
        State::Committing { .. } | State::Owing { .. } | State::Releasing { .. } => {
            kind == OrderKind::TokenToFiat
        }
        State::Converting { .. } | State::ConversionFailed { .. } => {
            converts && kind != OrderKind::TokenToToken
        }
        State::Paying { .. } | State::PayoutFailed { .. } => kind != OrderKind::TokenToToken,
        _ => true,
    });
    states
}

fn done() -> LegDone {
    LegDone { provider_reference: "ref".into(), occurred_at: NOW }
}

fn conversion() -> Conversion {
    done().into()
}

fn kept(position: Position) -> Conversion {
    Conversion { position, ..conversion() }
}

fn conversion_failed(desk: DeskOutcome) -> State {
    State::ConversionFailed { lock: Some(lock()), failure: failure(), desk }
}

fn failure() -> Failure {
    Failure { stage: Stage::Payout, code: "c".into(), message: "m".into(), retryable: false }
}

fn converting() -> State {
    State::Converting { lock: Some(lock()), leg: Leg::default() }
}

fn committing() -> State {
    State::Committing { lock: lock(), offramp: conversion() }
}

fn paying() -> State {
    State::Paying { lock: Some(filled()), offramp: Some(conversion()), leg: Leg::default() }
}

fn owing(settle_tx: Option<&str>, failure: Option<Failure>) -> State {
    let settle_tx = settle_tx.map(str::to_owned);
    let (offramp, leg, is_reopened) = (Some(conversion()), Leg::default(), false);
    State::Owing { lock: filled(), offramp, leg, settle_tx, failure, is_reopened }
}

/// A failed order whose payment the bank has made after all.
fn reopened(settle_tx: Option<&str>) -> State {
    let mut state = owing(settle_tx, Some(failure()));
    if let State::Owing { is_reopened, .. } = &mut state {
        *is_reopened = true;
    }
    state
}

fn completed() -> State {
    State::Completed {
        lock: Some(filled()),
        offramp: Some(conversion()),
        payout: done(),
        settle_tx: Some("0xs".into()),
        finality: None,
        reversal: None,
    }
}

pub(crate) fn returned(came: Option<Minor>) -> Happened {
    Happened::PaymentReturned { done: done(), came, code: "c".into(), message: "m".into(), at: LATER }
}

fn reversed() -> State {
    completed().step(&terms(), returned(None)).unwrap().next
}

fn resolved() -> State {
    let resolved = Happened::ReversalResolved { remedy: Remedy::PaidAgain, done: done() };
    reversed().step(&terms(), resolved).unwrap().next
}

fn payout_failed() -> State {
    let (lock, offramp) = (Some(filled()), Some(kept(Position::Kept)));
    State::PayoutFailed { lock, offramp, failure: failure(), debt_returned: None }
}

fn with_position(position: Position) -> State {
    let mut state = if position == Position::Short { completed() } else { payout_failed() };
    if let State::PayoutFailed { offramp, .. } | State::Completed { offramp, .. } = &mut state {
        *offramp = Some(kept(position));
    }
    state
}

fn states() -> Vec<State> {
    vec![
        State::Resting,
        State::Accepted,
        State::Locking,
        converting(),
        committing(),
        paying(),
        owing(None, None),
        State::Releasing { lock: filled(), offramp: Some(conversion()), payout: done() },
        completed(),
        conversion_failed(DeskOutcome::NotExecuted),
        payout_failed(),
        State::Cancelled,
        State::Expired,
        State::Failed { failure: failure() },
    ]
}

/// States whose lock has changed, and later states of debts.
fn variants() -> Vec<(&'static str, State)> {
    let with = |mut state: State, change: fn(&mut Lock)| {
        state.lock_mut().map(change);
        state
    };
    let refunded = |lock: &mut Lock| lock.refunded = true;
    let lost = |lock: &mut Lock| lock.lost = true;
    vec![
        (" (refunded)", with(converting(), refunded)),
        (" (lost)", with(converting(), lost)),
        (" (filled)", with(converting(), |lock| lock.filled = true)),
        (" (refunded)", with(paying(), refunded)),
        (" (lost)", with(paying(), lost)),
        (" (fill lost)", with(paying(), |lock| lock.filled = false)),
        (" (unpaid)", owing(None, Some(failure()))),
        (" (fill lost)", with(owing(None, None), |lock| lock.filled = false)),
        (" (settled)", owing(Some("0xs"), None)),
        (" (settled, unpaid)", owing(Some("0xs"), Some(failure()))),
        (" (refunded)", with(owing(None, None), refunded)),
        ("", reversed()),
        (" (resolved)", resolved()),
        (" (lost)", with(payout_failed(), lost)),
        (" (fill lost)", with(payout_failed(), |lock| lock.filled = false)),
        (" (refunded)", with(payout_failed(), refunded)),
        (" (taken over)", with_position(Position::TakenOver)),
        (" (short)", with_position(Position::Short)),
        (" (desk asked)", conversion_failed(DeskOutcome::Asked(Leg::default()))),
        (" (converted)", conversion_failed(DeskOutcome::Executed(kept(Position::Kept)))),
        (" (reopened)", reopened(None)),
        (" (reopened, settled)", reopened(Some("0xs"))),
    ]
}

pub(super) fn everything() -> Vec<(&'static str, Happened)> {
    let paid = done;
    let done = || RailAnswer::Done(done());
    let waits = || RailAnswer::InProgress { provider_reference: "ref".into() };
    let fails = || RailAnswer::Failed { code: "c".into(), message: "m".into(), retryable: false };
    let finality = Finality { tx_hash: "0xa".into(), contract_address: "0xc".into(), chain_id: 1 };
    vec![
        ("matched", Happened::Matched),
        ("lock_due", Happened::LockDue),
        ("cancel_requested", Happened::CancelRequested),
        ("deadline_passed", Happened::DeadlinePassed { at: LATER }),
        ("locked", Happened::Locked { lock: lock(), at: LATER }),
        ("lock_failed", Happened::LockFailed { code: "c".into(), message: "m".into(), at: LATER }),
        ("refused", Happened::Refused { code: "c".into(), message: "m".into(), at: LATER }),
        ("lock_lost", Happened::LockLost { at: LATER }),
        ("offramp in progress", Happened::Offramp { answer: waits(), at: LATER }),
        ("offramp done", Happened::Offramp { answer: done(), at: NOW }),
        ("offramp done late", Happened::Offramp { answer: done(), at: LATER }),
        ("offramp failed", Happened::Offramp { answer: fails(), at: LATER }),
        (
            "conversion_given_up",
            Happened::ConversionGivenUp { code: "c".into(), message: "m".into(), at: LATER },
        ),
        ("payout in progress", Happened::Payout { answer: waits(), at: LATER }),
        ("payout done", Happened::Payout { answer: done(), at: LATER }),
        ("payout failed", Happened::Payout { answer: fails(), at: LATER }),
        ("found paid", Happened::FoundPaid { done: paid(), at: LATER }),
        ("withheld", Happened::Withheld { why: Withheld::TooLate, at: LATER }),
        ("filled", Happened::Filled { at: NOW }),
        ("filled late", Happened::Filled { at: LATER }),
        ("fill_lost", Happened::FillLost),
        ("fill_failed", Happened::FillFailed { code: "c".into(), message: "m".into(), at: LATER }),
        ("timelock_near", Happened::TimelockNear),
        ("settled", Happened::Settled { tx_hash: "0xs".into(), at: LATER }),
        ("refunded", Happened::Refunded { tx_hash: "0xr".into(), at: LATER }),
        ("debt_returned", Happened::DebtReturned { done: paid(), at: LATER }),
        ("payment_returned", returned(Some(Minor::new(1)))),
        ("paid again", Happened::ReversalResolved { remedy: Remedy::PaidAgain, done: paid() }),
        ("stands", Happened::ReversalResolved { remedy: Remedy::Stands, done: paid() }),
        ("given back", Happened::ReversalResolved { remedy: Remedy::GivenBack, done: paid() }),
        ("conversion_closed", Happened::ConversionClosed),
        ("anchored", Happened::Anchored(finality)),
    ]
}

/// The events of an order up to its end. Its state refuses those that do not apply to its kind.
pub(super) fn straight() -> Vec<Happened> {
    let done = || RailAnswer::Done(done());
    vec![
        Happened::LockDue,
        Happened::Locked { lock: lock(), at: NOW },
        Happened::Offramp { answer: done(), at: NOW },
        Happened::Filled { at: NOW },
        Happened::Payout { answer: done(), at: NOW },
        Happened::Settled { tx_hash: "0xs".into(), at: NOW },
    ]
}

pub(crate) fn event(name: &str) -> Happened {
    everything().into_iter().find(|(one, _)| *one == name).unwrap().1
}

/// Any event; half of them are those of a straight history.
pub(crate) fn any_event(choice: u8) -> Happened {
    let (straight, mut all) = (straight(), everything());
    let choice = usize::from(choice);
    if choice < 128 {
        straight[choice % straight.len()].clone()
    } else {
        all.swap_remove(choice % all.len()).1
    }
}

/// Every state that an order of the kind can be in, its transitions, and the events that it refuses.
fn table((terms, states): (Terms, Vec<State>)) -> String {
    let mut table = String::new();
    let effects = |effects: &[Effect]| effects.iter().map(effect_name).collect::<Vec<_>>().join(", ");
    let begun = accept(&terms);
    table.push_str(&format!("-> accepted [intent.accepted] {{{}}}\n", effects(&begun.effects)));
    if !terms.locks() {
        let at_once = accept_and_begin(&terms).unwrap();
        let events: Vec<_> = at_once.events.iter().map(|reported| reported.kind.as_str()).collect();
        let (events, next) = (events.join(", "), at_once.next.name());
        table.push_str(&format!("-> {next} [{events}] {{{}}}\n", effects(&at_once.effects)));
    }
    let rests = rest(&terms);
    table.push_str(&format!("-> resting [intent.accepted] {{{}}}\n", effects(&rests.effects)));
    let is_committed = states.iter().any(|state| matches!(state, State::Committing { .. }));
    let mut states: Vec<_> = states.into_iter().map(|state| ("", state)).collect();
    if is_committed {
        states.extend(variants());
    }
    for (gone, state) in states {
        let mut refused = Vec::new();
        let from = state.name();
        for (name, happened) in everything() {
            let Ok(step) = state.clone().step(&terms, happened) else {
                refused.push(name);
                continue;
            };
            let events: Vec<_> = step.events.iter().map(|reported| reported.kind.as_str()).collect();
            let (effects, to) = (effects(&step.effects), step.next.name());
            table.push_str(&format!("{from}{gone} + {name} -> {to} [{}] {{{effects}}}\n", events.join(", ")));
        }
        table.push_str(&format!("{from}{gone} refuses {}\n", refused.join(", ")));
    }
    table
}

#[test]
fn the_table_of_states_and_events_is_the_committed_one() {
    let title = |terms: &Terms| match terms.plan.kind {
        OrderKind::TokenToFiat => "tokens for money",
        OrderKind::TokenToToken if terms.crosses() => "tokens for tokens of another chain",
        OrderKind::TokenToToken => "tokens for tokens",
        OrderKind::FiatToFiat => "money for money",
        OrderKind::FiatToToken => "money for tokens",
    };
    let tables: Vec<String> =
        orders().into_iter().map(|order| format!("# {}\n{}", title(&order.0), table(order))).collect();
    expect_file!["transitions.txt"].assert_eq(&tables.join("\n"));
}

fn effect_name(effect: &Effect) -> &'static str {
    match effect {
        Effect::StartAt(_) => "start at",
        Effect::CreateOnChain => "create",
        Effect::CallOfframp => "call offramp",
        Effect::CallPayout => "call payout",
        Effect::SwapOnChain => "swap",
        Effect::Fill => "fill",
        Effect::WithdrawLock => "withdraw lock",
        Effect::WithdrawFill => "withdraw fill",
        Effect::Settle => "settle on the chain",
        Effect::GiveBack => "give back",
        Effect::PublishPermit => "publish permit",
        Effect::IssueReceipt => "issue receipt",
        Effect::DropTimers => "drop timers",
        Effect::Rest => "rest",
        Effect::EndRest => "end rest",
        Effect::BringForward(_) => "bring forward",
        Effect::TransferOnChain => "transfer",
        Effect::SettleBy(_) => "settle by",
        Effect::Post(posting) => posting.reason.as_str(),
    }
}

#[test]
fn a_rail_that_forgets_an_answered_call_is_not_called_again() {
    let claim = leg::CallRecord { called_before: true, in_flight: false };
    let requested =
        |state: &State| state.requested(claim, leg::RailResponse::NeverSeen, Timestamp::from_millis(0));
    assert_eq!(requested(&converting()), leg::Then::Call, "never seen, long after the call");
    let State::Converting { lock, .. } = converting() else { panic!("not converting") };
    let answered = Leg { in_progress: true, provider_reference: Some("DESK-1".into()) };
    let answered = State::Converting { lock, leg: answered };
    assert_eq!(requested(&answered), leg::Then::Later { called: true });
}

#[test]
fn a_payout_that_is_too_late_is_withheld_by_the_rails_word_only() {
    use leg::{First, LegKind, RailResponse, Then};
    let claim = leg::CallRecord { called_before: false, in_flight: false };
    let mut state = paying();
    let (late, last) = (LATER, LATER.plus_millis(1));
    state.lock_mut().unwrap().deadlines.settle_at = last;
    assert_eq!(state.first(LegKind::Payout, claim, Timestamp::from_millis(0)), First::Call);
    let in_progress = RailResponse::Answer(RailAnswer::InProgress { provider_reference: "B1".into() });
    assert_eq!(state.first(LegKind::Payout, claim, late), First::Ask);
    assert!(matches!(state.requested(claim, in_progress, late), Then::Take(_)));
    let withheld = Then::Withhold(Withheld::TimelockNear);
    assert_eq!(state.requested(claim, RailResponse::NeverSeen, late), withheld);
    assert_eq!(state.requested(claim, RailResponse::NeverSeen, last), withheld);
    for silent in [RailResponse::Down, RailResponse::Silence] {
        assert_eq!(state.requested(claim, silent.clone(), late), Then::Later { called: true });
        assert_eq!(state.requested(claim, silent, last), Then::Settle);
    }
    state.lock_mut().unwrap().refunded = true;
    assert_eq!(state.first(LegKind::Payout, claim, Timestamp::from_millis(0)), First::Ask);
    let converting = converting();
    let lock = converting.lock().unwrap();
    let too_late = lock.deadlines.begin_before;
    let withheld = Then::Withhold(Withheld::TooLate);
    assert_eq!(converting.first(LegKind::Offramp, claim, too_late), First::Ask);
    assert_eq!(converting.requested(claim, RailResponse::NeverSeen, too_late), withheld);
}

#[test]
fn a_conversion_that_was_given_up_is_asked_about_until_the_desk_has_said_what_became_of_it() {
    use leg::{First, LegKind, RailResponse, Then};
    let in_flight = |in_flight| leg::CallRecord { called_before: true, in_flight };
    let asked = conversion_failed(DeskOutcome::Asked(Leg::default()));
    assert_eq!(asked.first(LegKind::Offramp, in_flight(false), NOW), First::Ask);
    let never = |state: &State, claim| state.requested(claim, RailResponse::NeverSeen, NOW);
    assert_eq!(never(&asked, in_flight(true)), Then::Later { called: true });
    assert_eq!(never(&asked, in_flight(false)), Then::Withhold(Withheld::GivenUp));
    let waits = RailAnswer::InProgress { provider_reference: "D-1".into() };
    let confirmed = asked.step(&terms(), Happened::Offramp { answer: waits, at: NOW }).unwrap().next;
    assert_eq!(never(&confirmed, in_flight(false)), Then::Later { called: true }, "it has answered for it");
    assert_eq!(confirmed.confirmed(LegKind::Offramp), Some("D-1"));
}

#[test]
fn a_conversion_from_the_inventory_leaves_no_position() {
    let leg = hex::encode(leg::LegKind::Offramp.reference(&terms().reference));
    let done = LegDone { provider_reference: leg::inventory_reference(&leg), occurred_at: NOW };
    let mut paying = paying();
    if let State::Paying { offramp, .. } = &mut paying {
        *offramp = Some(done.into());
    }
    let fails = RailAnswer::Failed { code: "c".into(), message: "m".into(), retryable: false };
    let failed = paying.step(&terms(), Happened::Payout { answer: fails, at: LATER }).unwrap();
    assert_eq!((failed.next.open_position(), failed.effects.len()), (None, 1), "{:?}", failed.effects);
}

#[test]
fn funds_are_reported_in_the_contracts_place() {
    let terms = terms();
    let json = |state: &State, kind| {
        serde_json::to_value(crate::snapshot::snapshot(&terms, state, kind, str::to_owned)).unwrap()
    };
    let accepted = json(&State::Accepted, EventType::IntentAccepted);
    assert_eq!(accepted["fundsState"]["location"], "none_moved");
    assert!(accepted["lock"].is_null() && accepted["offramp"].is_null() && accepted["payout"].is_null());
    let initiated = json(&converting(), EventType::OfframpInitiated);
    assert_eq!(initiated["fundsState"]["location"], "locked");
    assert_eq!(initiated["fundsState"]["lockTxHash"], "0xl");
    assert_eq!(initiated["offramp"]["status"], "initiated");
    let converted = json(&committing(), EventType::OfframpCompleted);
    assert!(converted["payout"].is_null());
    assert_eq!(converted["offramp"]["offrampId"], "ref");
    assert_eq!(json(&paying(), EventType::PayoutInitiated)["payout"]["status"], "initiated");
    let completed = json(&completed(), EventType::PayoutCompleted);
    assert_eq!(completed["fundsState"], serde_json::json!({"location": "released"}));
    assert_eq!(completed["beneficiary"]["accountLast4"], "6789");
}

#[test]
fn a_transaction_replaced_by_a_deep_reorganization_is_updated() {
    let terms = terms();
    let seen = |tx: &str| Finality { tx_hash: tx.into(), contract_address: "0xc".into(), chain_id: 1 };
    let anchored = completed().step(&terms, Happened::Anchored(seen("0xa"))).unwrap().next;
    assert!(anchored.clone().step(&terms, Happened::Anchored(seen("0xa"))).is_err(), "nothing new");
    let relocked = Lock { tx_hash: "0xl2".into(), ..lock() };
    let again = [
        Happened::Locked { lock: relocked, at: LATER },
        Happened::Settled { tx_hash: "0xs2".into(), at: LATER },
        Happened::Anchored(seen("0xa2")),
    ];
    let last = again.into_iter().fold(anchored, |state, happened| {
        let step = state.step(&terms, happened).unwrap();
        assert!(step.events.is_empty() && step.effects.is_empty());
        step.next
    });
    let State::Completed { lock: Some(lock), settle_tx, finality, .. } = last else { panic!("{last:?}") };
    assert_eq!((lock.tx_hash.as_str(), settle_tx.as_deref()), ("0xl2", Some("0xs2")));
    assert_eq!(finality, Some(seen("0xa2")));
}

#[test]
fn the_receipt_hash_ignores_the_anchors_fields() {
    let done = LegDone { provider_reference: "bank".into(), occurred_at: NOW };
    let receipt = crate::receipt::issue(&terms(), Some(&done.clone().into()), &done, LATER);
    let finality = Finality { tx_hash: "0xa".into(), contract_address: "0xc".into(), chain_id: 1 };
    let shown = crate::receipt::with_finality(&receipt.body, Some(&finality));
    assert_eq!(shown["finality"]["chainId"], 1);
    assert_eq!(crate::receipt::hash(&shown), receipt.content_hash);
    let fees = |v: &serde_json::Value| v["fees"].as_array().unwrap().len();
    assert_eq!(fees(&shown), 3);
    assert_eq!(crate::receipt::check(&shown), Ok(()));
}

#[test]
fn money_for_money_has_no_offramp_and_no_lock() {
    let terms = terms_of(OrderKind::FiatToFiat);
    let done = LegDone { provider_reference: "bank".into(), occurred_at: NOW };
    let receipt = crate::receipt::issue(&terms, None, &done, LATER);
    assert!(receipt.body["offramp"].is_null());
    let started = State::Accepted.step(&terms, Happened::LockDue).unwrap();
    assert_eq!(started.events[0].kind, EventType::PayoutInitiated);
    let reported =
        crate::snapshot::snapshot(&terms, &started.next, EventType::PayoutInitiated, str::to_owned);
    let reported = serde_json::to_value(reported).unwrap();
    assert!(reported["lock"].is_null() && reported["offramp"].is_null());
    assert_eq!(reported["payout"]["status"], "initiated");
    assert_eq!(reported["fundsState"], serde_json::json!({"location": "none_moved"}));
}

#[test]
fn a_swap_reports_every_event_in_order() {
    let terms = terms_of(OrderKind::TokenToToken);
    let swapped =
        State::Locking.step(&terms, Happened::Settled { tx_hash: "0xs".into(), at: LATER }).unwrap();
    let reported: Vec<_> = swapped.events.iter().map(|reported| reported.kind.as_str()).collect();
    assert_eq!(reported, ["offramp.initiated", "offramp.completed", "payout.initiated", "payout.completed"]);
    let shown = |at: usize| {
        let Emitted { kind, state, .. } = &swapped.events[at];
        serde_json::to_value(crate::snapshot::snapshot(&terms, state, *kind, str::to_owned)).unwrap()
    };
    assert_eq!(shown(0)["fundsState"]["lockTxHash"], "0xs");
    assert_eq!((&shown(1)["offramp"]["status"], &shown(1)["payout"]), (&"completed".into(), &().into()));
    assert_eq!(shown(2)["payout"]["status"], "initiated");
    assert_eq!(shown(3)["fundsState"], serde_json::json!({"location": "released"}));
}

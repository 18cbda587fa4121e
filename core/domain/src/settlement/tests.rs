use expect_test::expect;

use super::*;
use crate::decision::{Decision, QuoteLookup, decide, tests};
use crate::quote::Market;

const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);
const LATER: Timestamp = Timestamp::from_millis(1_800_000_009_000);

fn terms() -> Terms {
    let (registry, provider, request) = (tests::registry(), tests::provider(), tests::request());
    let market = Market { registry: &registry, provider: &provider, available: Minor::new(1_000_000) };
    let Decision::Accepted(plan) = decide(&request, &market, &QuoteLookup::NotAsked, "bank", NOW) else {
        panic!()
    };
    let amount =
        |asset: &str, amount, exponent| AssetAmount { asset: asset.into(), amount, exponent, chain: None };
    Terms {
        reference: Reference::from_unique("1"),
        partner_id: PartnerId::from_unique("1"),
        livemode: false,
        input: amount("USDC", plan.priced.input, 6),
        output: amount("USD", plan.priced.output, 2),
        request,
        plan: *plan,
        accepted_at: NOW,
        entity: "0x00".into(),
        hashlock: "0x00".into(),
        lock_at: NOW,
    }
}

fn states() -> Vec<State> {
    let lock = || Lock { tx_hash: "0xl".into(), timelock_expires_at: LATER };
    let done = || LegDone { provider_reference: "ref".into(), occurred_at: NOW };
    let failure =
        || Failure { stage: Stage::Payout, code: "c".into(), message: "m".into(), retryable: false };
    vec![
        State::Accepted,
        State::Locking,
        State::Converting { lock: lock(), leg: Leg::default() },
        State::Paying { lock: lock(), offramp: done(), leg: Leg::default() },
        State::Releasing { lock: lock(), offramp: done(), payout: done(), filled: false },
        State::Completed {
            lock: lock(),
            offramp: done(),
            payout: done(),
            settle_tx: "0xs".into(),
            finality: None,
        },
        State::ConversionFailed { lock: lock(), failure: failure(), refunded: false },
        State::PayoutFailed { lock: lock(), offramp: done(), failure: failure(), refunded: false },
        State::Cancelled,
        State::Expired,
        State::Failed { failure: failure() },
    ]
}

fn everything() -> Vec<(&'static str, Happened)> {
    let done = || RailAnswer::Done(LegDone { provider_reference: "ref".into(), occurred_at: NOW });
    let waits = || RailAnswer::InProgress { provider_reference: "ref".into() };
    let fails = || RailAnswer::Failed { code: "c".into(), message: "m".into(), retryable: false };
    let finality = Finality { tx_hash: "0xa".into(), contract_address: "0xc".into(), chain_id: 1 };
    vec![
        ("lock_due", Happened::LockDue),
        ("cancel_asked", Happened::CancelAsked),
        ("deadline_passed", Happened::DeadlinePassed { at: LATER }),
        (
            "locked",
            Happened::Locked { lock: Lock { tx_hash: "0xl".into(), timelock_expires_at: LATER }, at: LATER },
        ),
        ("lock_failed", Happened::LockFailed { code: "c".into(), message: "m".into(), at: LATER }),
        ("offramp in progress", Happened::Offramp { answer: waits(), at: LATER }),
        ("offramp done", Happened::Offramp { answer: done(), at: LATER }),
        ("offramp failed", Happened::Offramp { answer: fails(), at: LATER }),
        ("payout in progress", Happened::Payout { answer: waits(), at: LATER }),
        ("payout done", Happened::Payout { answer: done(), at: LATER }),
        ("payout failed", Happened::Payout { answer: fails(), at: LATER }),
        ("filled", Happened::Filled),
        ("settled", Happened::Settled { tx_hash: "0xs".into() }),
        ("refunded", Happened::Refunded),
        ("anchored", Happened::Anchored(finality)),
    ]
}

#[test]
fn the_whole_table_of_states_and_events() {
    let terms = terms();
    let mut table = String::new();
    for state in states() {
        for (name, happened) in everything() {
            let Ok(step) = state.clone().step(&terms, happened) else { continue };
            let events: Vec<_> = step.events.iter().map(|told| told.kind.as_str()).collect();
            let effects: Vec<_> = step.effects.iter().map(effect_name).collect();
            table.push_str(&format!(
                "{} + {name} -> {} [{}] {{{}}}\n",
                state.name(),
                step.next.name(),
                events.join(", "),
                effects.join(", ")
            ));
        }
    }
    expect![[r#"
        accepted + lock_due -> locking [] {create}
        accepted + cancel_asked -> cancelled [intent.cancelled] {drop timers, release reservation}
        accepted + deadline_passed -> expired [intent.expired] {drop timers, release reservation}
        locking + locked -> converting [offramp.initiated] {drop timers, post, call offramp}
        locking + lock_failed -> failed [intent.failed] {drop timers, release reservation}
        converting + offramp in progress -> converting [offramp.in_progress] {}
        converting + offramp done -> paying [offramp.completed, payout.initiated] {call payout}
        converting + offramp failed -> conversion_failed [offramp.failed] {release reservation}
        paying + payout in progress -> paying [payout.in_progress] {}
        paying + payout done -> releasing [] {spend reservation, post, fill and settle}
        paying + payout failed -> payout_failed [payout.failed] {release reservation}
        releasing + filled -> releasing [] {}
        releasing + settled -> completed [payout.completed] {post, issue receipt}
        completed + anchored -> completed [] {}
        conversion_failed + refunded -> conversion_failed [] {post}
        payout_failed + refunded -> payout_failed [] {post}
    "#]]
    .assert_eq(&table);
}

fn effect_name(effect: &Effect) -> &'static str {
    match effect {
        Effect::LockAt(_) => "lock at",
        Effect::ExpireAt(_) => "expire at",
        Effect::CreateOnChain => "create",
        Effect::CallOfframp => "call offramp",
        Effect::CallPayout => "call payout",
        Effect::FillAndSettle => "fill and settle",
        Effect::IssueReceipt => "issue receipt",
        Effect::DropTimers => "drop timers",
        Effect::ReleaseReservation => "release reservation",
        Effect::SpendReservation => "spend reservation",
        Effect::Post(_) => "post",
    }
}

#[test]
fn a_terminal_state_tells_nothing_more() {
    let terms = terms();
    for state in states().into_iter().filter(State::is_terminal) {
        for (_, happened) in everything() {
            if let Ok(step) = state.clone().step(&terms, happened) {
                assert!(step.events.is_empty() && step.next.name() == state.name());
            }
        }
    }
}

#[test]
fn progress_of_a_leg_is_told_once() {
    let terms = terms();
    let answer = || RailAnswer::InProgress { provider_reference: "ref".into() };
    let first =
        states().swap_remove(2).step(&terms, Happened::Offramp { answer: answer(), at: LATER }).unwrap();
    let second = first.next.clone().step(&terms, Happened::Offramp { answer: answer(), at: LATER }).unwrap();
    assert_eq!((first.events.len(), second.events.len()), (1, 0));
}

#[test]
fn the_terminal_event_is_the_one_that_says_so() {
    let terms = terms();
    for state in states() {
        for (_, happened) in everything() {
            let Ok(step) = state.clone().step(&terms, happened) else { continue };
            for told in &step.events {
                assert_eq!(told.kind.is_terminal(), told.state.is_terminal(), "{:?}", told.kind);
            }
        }
    }
}

#[test]
fn funds_are_said_to_be_where_the_contract_says() {
    let terms = terms();
    let json = |state: &State, kind| {
        serde_json::to_value(crate::event::snapshot(&terms, state, kind, None)).unwrap()
    };
    let states = states();
    let accepted = json(&states[0], EventType::IntentAccepted);
    assert_eq!(accepted["fundsState"]["location"], "none_moved");
    assert!(accepted["lock"].is_null() && accepted["offramp"].is_null() && accepted["payout"].is_null());
    let initiated = json(&states[2], EventType::OfframpInitiated);
    assert_eq!(initiated["fundsState"]["location"], "locked");
    assert_eq!(initiated["fundsState"]["lockTxHash"], "0xl");
    assert_eq!(initiated["offramp"]["status"], "initiated");
    let converted = json(&states[3], EventType::OfframpCompleted);
    assert!(converted["payout"].is_null());
    assert_eq!(converted["offramp"]["offrampId"], "ref");
    assert_eq!(json(&states[3], EventType::PayoutInitiated)["payout"]["status"], "initiated");
    let completed = json(&states[5], EventType::PayoutCompleted);
    assert_eq!(completed["fundsState"], serde_json::json!({"location": "released"}));
    assert_eq!(completed["beneficiary"]["accountLast4"], "6789");
}

#[test]
fn the_receipt_hash_ignores_what_the_anchor_adds() {
    let done = LegDone { provider_reference: "bank".into(), occurred_at: NOW };
    let receipt = crate::receipt::issue(&terms(), &done, &done, LATER);
    let finality = Finality { tx_hash: "0xa".into(), contract_address: "0xc".into(), chain_id: 1 };
    let shown = crate::receipt::with_finality(&receipt.body, Some(&finality));
    assert_eq!(shown["finality"]["chainId"], 1);
    assert_eq!(crate::receipt::hash(&shown), receipt.content_hash);
    let fees = |v: &serde_json::Value| v["fees"].as_array().unwrap().len();
    assert_eq!(fees(&shown), 3);
}

#[test]
fn every_movement_balances_and_ends_where_it_should() {
    let terms = terms();
    let moves = [ledger::locked(&terms), ledger::paid(&terms), ledger::released(&terms)].concat();
    let net = |account: &str, asset: &str| -> i128 {
        let units = |m: &Move| i128::try_from(m.amount.minor.get()).unwrap();
        let of = |m: &&Move| m.asset == asset;
        let gained: i128 = moves.iter().filter(of).filter(|m| m.to.to_string() == account).map(units).sum();
        let given: i128 = moves.iter().filter(of).filter(|m| m.from.to_string() == account).map(units).sum();
        gained - given
    };
    assert_eq!(net("escrow", "USDC"), 0);
    assert_eq!(net("external:0xAbc", "USDC"), -100_000_000);
    assert_eq!(net("provider:north", "USDC"), 99_950_000);
    assert_eq!(net("fees", "USDC"), 50_000);
    assert_eq!(net("external:exe_1", "USD"), 9_935);
    assert_eq!(net("provider:north", "USD"), -9_985);
}

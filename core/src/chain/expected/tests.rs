//! Every field counts.

use dvp_domain::chain::{PermitArgs, SwapCommand, TransferCommand};

use super::*;

const TOKEN: &str = "0x1c7D4B196Cb0C7B01d743Fbc6116a902379C7238";
const OTHER: &str = "0x00000000000000000000000000000000000000aa";
const WORD: &str = "0x1111111111111111111111111111111111111111111111111111111111111111";

fn permit() -> Option<PermitArgs> {
    Some(PermitArgs { amount: "100".into(), nonce: "0".into(), deadline: 1, signature: "0x".into() })
}

fn output() -> OutputArgs {
    OutputArgs { token: TOKEN.into(), receiver: OTHER.into(), amount: "40".into() }
}

fn create() -> ChainCommand {
    ChainCommand::Create(Box::new(CreateCommand {
        entity: WORD.into(),
        maker: "0xAb".into(),
        solver: "0xcd".into(),
        token: TOKEN.into(),
        amount: "100".into(),
        lock_by: 1,
        fill_deadline: 2,
        timelock: 3,
        hashlock: WORD.into(),
        terms: WORD.into(),
        permit: permit(),
    }))
}

fn transfer() -> ChainCommand {
    ChainCommand::Transfer(Box::new(TransferCommand {
        entity: WORD.into(),
        payer: "0xcd".into(),
        receiver: OTHER.into(),
        token: TOKEN.into(),
        amount: "40".into(),
        not_after: 1,
    }))
}

fn swap() -> ChainCommand {
    ChainCommand::Swap(Box::new(SwapCommand {
        entity: WORD.into(),
        maker: "0xab".into(),
        solver: "0xcd".into(),
        token: TOKEN.into(),
        amount: "100".into(),
        lock_by: 1,
        terms: WORD.into(),
        output: output(),
        permit: permit(),
    }))
}

fn settle() -> ChainCommand {
    ChainCommand::Settle { entity: WORD.into(), preimage: None }
}

fn fill() -> ChainCommand {
    ChainCommand::Fill { entity: WORD.into(), payout_ref: WORD.into() }
}

fn with(command: &ChainCommand, path: &[&str], value: serde_json::Value) -> ChainFact {
    let mut fact = serde_json::to_value(goal(command)).unwrap();
    let field = path.iter().fold(&mut fact, |fact, key| fact.get_mut(key).unwrap());
    assert_ne!(*field, value);
    *field = value;
    serde_json::from_value(fact).unwrap()
}

#[test]
fn a_fact_equal_to_its_command_has_no_difference() {
    for command in [create(), fill(), settle(), swap(), transfer()] {
        let fact = goal(&command);
        assert_eq!(difference(&fact, &[command]), None);
    }
}

#[test]
fn hex_is_the_same_in_either_case() {
    let command = create();
    let fact = with(&command, &["lock", "token"], TOKEN.to_lowercase().into());
    assert_eq!(difference(&fact, &[command]), None);
}

#[test]
fn every_field_of_a_lock_a_swap_a_fill_and_a_payment_is_compared() {
    let word = format!("0x{}", "22".repeat(32));
    for (command, path, value) in [
        (create(), &["amount"] as &[&str], "99".into()),
        (create(), &["timelock"], 4.into()),
        (create(), &["lock", "maker"], OTHER.into()),
        (create(), &["lock", "solver"], OTHER.into()),
        (create(), &["lock", "token"], OTHER.into()),
        (create(), &["lock", "fill_deadline"], 1.into()),
        (create(), &["lock", "hashlock"], word.clone().into()),
        (create(), &["lock", "terms"], word.clone().into()),
        (swap(), &["swap", "maker"], OTHER.into()),
        (swap(), &["swap", "solver"], OTHER.into()),
        (swap(), &["swap", "token"], OTHER.into()),
        (swap(), &["swap", "amount"], "99".into()),
        (swap(), &["swap", "lock_by"], 2.into()),
        (swap(), &["swap", "terms"], word.clone().into()),
        (fill(), &["payout_ref"], word.into()),
        (transfer(), &["payer"], OTHER.into()),
        (transfer(), &["receiver"], TOKEN.into()),
        (transfer(), &["token"], OTHER.into()),
        (transfer(), &["amount"], "41".into()),
    ] {
        let fact = with(&command, path, value);
        let found = difference(&fact, &[command]).unwrap();
        assert_eq!(Some(&found.field), path.last());
        assert!(FIELDS.contains(&found.field), "{} is not a metric's label", found.field);
        assert_ne!(found.requested, found.reported);
    }
}

#[test]
fn a_fact_without_a_command_differs() {
    for command in [create(), swap(), fill(), transfer()] {
        let fact = goal(&command);
        assert_eq!(difference(&fact, &[]).unwrap().field, "command");
    }
    let fact = goal(&fill());
    assert_eq!(difference(&fact, &[create()]).unwrap().field, "command", "locked, and never to be filled");
}

#[test]
fn a_swap_fills_and_pays_by_the_output_that_was_agreed() {
    let payout_ref = binding(&output(), WORD).unwrap();
    let paid = goal(&transfer());
    let requested = [swap()];
    assert_eq!(difference(&ChainFact::Filled { payout_ref }, &requested), None);
    assert_eq!(difference(&paid, &requested), None);
    let less = with(&transfer(), &["amount"], "39".into());
    assert_eq!(difference(&less, &requested).unwrap().field, "amount");
}

#[test]
fn a_swap_is_no_release_of_a_lock_and_the_other_way_round() {
    let (released, swapped) = (goal(&settle()), goal(&swap()));
    assert_eq!(difference(&released, &[swap()]).unwrap().field, "swap");
    assert_eq!(difference(&swapped, &[create(), fill(), settle()]).unwrap().field, "swap");
    assert_eq!(difference(&swapped, &[create(), fill()]).unwrap().field, "command");
    assert_eq!(difference(&released, &[create(), fill()]), None, "by any account with the preimage");
}

#[test]
fn facts_without_terms_are_taken_as_they_are() {
    let settled = ChainFact::Settled { swap: None };
    for fact in [settled, ChainFact::Cancelled, ChainFact::Refunded, ChainFact::Anchored] {
        assert_eq!(difference(&fact, &[]), None);
    }
}

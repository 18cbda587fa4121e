use proptest::prelude::*;

use super::*;
use crate::ledger::deposited;
use crate::ledger::tests::Books;

pub(super) fn transfer(amount: u128) -> Transfer {
    Transfer {
        id: TransferId::from_unique("1"),
        from: "00a".parse().unwrap(),
        to: "00b".parse().unwrap(),
        owner: Owner::Provider("north".into()),
        asset: "USD".into(),
        amount_minor: Minor::new(amount),
        sent_at: Timestamp::from_millis(1_800_000_000_000),
    }
}

const EVENTS: [Event; 4] = [Event::Receipt, Event::TakeBack, Event::Receive, Event::Refuse];

#[test]
fn every_event_in_every_state_has_one_outcome() {
    let mut table = String::new();
    for state in TransferState::ALL {
        for event in EVENTS {
            let outcome = match state.step(event) {
                Ok(Outcome::Changed(next)) => next.as_str().to_owned(),
                Ok(Outcome::Repeated) => "=".to_owned(),
                Err(contradiction) => contradiction.to_string(),
            };
            table += &format!("{:<11}{:<9}{outcome}\n", state.as_str(), format!("{event:?}"));
        }
    }
    expect_test::expect_file!["states.txt"].assert_eq(&table);
}

#[test]
fn a_state_is_read_as_it_is_written() {
    for state in TransferState::ALL {
        assert_eq!(TransferState::parse(state.as_str()), Some(state));
        assert_eq!(serde_json::to_value(state).unwrap(), state.as_str());
    }
    assert_eq!(TransferState::parse("lost"), None);
}

#[test]
fn a_defect_is_named_by_its_field() {
    assert_eq!(transfer(1).check(), Ok(()));
    assert_eq!(transfer(0).check(), Err(TransferFault::Nothing));
    let here = Transfer { to: "00a".parse().unwrap(), ..transfer(1) };
    assert_eq!(here.check(), Err(TransferFault::OneCell));
    let nobody = Transfer { owner: Owner::Provider(String::new()), ..transfer(1) };
    assert_eq!(nobody.check(), Err(TransferFault::Text("provider")));
    let nobody = Transfer { owner: Owner::Partner { id: String::new(), livemode: true }, ..transfer(1) };
    assert_eq!(nobody.check(), Err(TransferFault::Text("partner")));
    let two_lines = Transfer { asset: "US\nD".into(), ..transfer(1) };
    assert_eq!(two_lines.check(), Err(TransferFault::Text("asset")));
}

/// What a partner has prefunded.
pub(super) fn of_partner() -> Owner {
    Owner::Partner { id: "ptn_1".into(), livemode: false }
}

fn posted(state: TransferState, transfer: &Transfer) -> Vec<Posting> {
    match state {
        TransferState::Sent | TransferState::Confirmed => vec![transfer.sent()],
        TransferState::TakenBack => vec![transfer.sent(), transfer.taken_back()],
        TransferState::Received => vec![transfer.received()],
        TransferState::Announced | TransferState::Refused => Vec::new(),
    }
}

proptest! {
    /// Whatever arrives at both sides in whatever order: the owner has the amount once, and never twice.
    #[test]
    fn the_amount_is_in_one_place(
        amount in 1_u128..1_000,
        is_partner: bool,
        steps in proptest::collection::vec((any::<bool>(), 0_usize..4), 0..12),
    ) {
        let owner = if is_partner { of_partner() } else { Owner::Provider("north".into()) };
        let transfer = Transfer { owner: owner.clone(), ..transfer(amount) };
        let (mut out, mut at_other) = (TransferState::Sent, TransferState::Announced);
        for (is_out, event) in steps {
            let event = EVENTS[event];
            // A receipt and a refusal exist only once the receiver has signed them.
            let is_signed = match event {
                Event::Receipt => at_other == TransferState::Received,
                Event::TakeBack => at_other == TransferState::Refused,
                Event::Receive | Event::Refuse => true,
            };
            let side = if is_out { &mut out } else { &mut at_other };
            if is_signed && let Ok(Outcome::Changed(next)) = side.step(event) {
                prop_assert!(side.is_open() && !next.is_open());
                prop_assert_eq!(side.direction(), next.direction());
                *side = next;
            }
        }
        let mut sender = Books::default();
        sender.take(&deposited(owner, "USD", Minor::new(amount)));
        let mut receiver = Books::default();
        for posting in posted(out, &transfer) {
            sender.take(&posting);
        }
        for posting in posted(at_other, &transfer) {
            receiver.take(&posting);
        }
        let amount = i128::try_from(amount).unwrap();
        let transit = (
            sender.minor("external:transit:00b:total", "USD"),
            receiver.minor("external:transit:00a:total", "USD"),
        );
        prop_assert_eq!(transit, (out.in_transit() * amount, at_other.in_transit() * amount));
        let available = if is_partner { "partner:ptn_1:test:available" } else { "provider:north:available" };
        let spendable = sender.minor(available, "USD") + receiver.minor(available, "USD");
        prop_assert_eq!(spendable + transit.0 + transit.1, amount);
        prop_assert!(spendable == 0 || spendable == amount);
    }
}

//! A model checker explores every interleaving of one order of a token for money, up to a stated bound.
//!
//! The actors: the chain with its clock, its contract and its callers (a relayer that is late or stopped, a malicious
//! user who cancels, and empties or fills the wallet, anyone); the bank, which answers days later, fails, was never
//! reached, makes a payment that it had refused, gives one back or takes that back, and is heard late; workers that may stop between any
//! two lines; facts that arrive late and twice, and a lock that a reorganization removes; operators who decide meanwhile,
//! one of whom signs anything, and who give a conversion up that the desk carries out afterwards. The service is the code itself: [`State::step`] and the rules of a [`leg`](super::leg).
//!
//! | bound | default | more with |
//! |---|---|---|
//! | orders | 1: orders share nothing but the clock and batches | |
//! | positions of the clock | 6: [`service::Clock`] | |
//! | reorganizations | 2 | `DVP_PROTOCOL_REORGS` |
//! | restores of the database behind the call of the bank, which the bank remembers | 0, and 1 with one reorganization | |
//! | how often the bank changes its word | 0, and 3 with one reorganization | `DVP_PROTOCOL_CHANGES` |
//! | calls of the bank on their way at once | 2 | |
//! | crashes, repeated facts, repeated calls, silence | any number | |
//!
//! Assumed, and enforced by the clock here: between the moment from which an unanswered payout is settled and the
//! timelock a worker has time for a turn and the relayer for one transaction (`timelock_margin`, an hour at least).
//!
//! Assumed, and not enforced: a commitment that passed the payout gate is not reverted ([`Action::Reorganized`] stops
//! there). A payout that was requested on a reverted commitment can be paid beside a cancel, whatever the service does;
//! the depth of the gate decides how unlikely that is.
//!
//! What the bank does to both sides after the service has done its part is the bank's: nobody can know that it will make
//! a payment that it has refused. The service must not return an input, nor pay an output another way, once it knows.
//!
//! The former protocol, in which the bank was called first and the chain committed afterwards, is checked in the same
//! world, with a relayer that is never late: the checker must find its double payment. It must also find one in the
//! present protocol without the margin, and under the earlier rules by which a failed payout was never reopened, and by
//! which operators could fail a payment that the bank had.

mod across;
mod before;
mod service;
mod world;

use stateright::{Checker, CheckerBuilder, Model, Property};

use self::before::Before;
use self::service::{Current, Ended, Service};
use self::world::{Bank, ExplorationBounds, ModelAction, Slot, World};

/// One order in a world with these bounds.
struct Protocol<S> {
    bounds: ExplorationBounds,
    service: std::marker::PhantomData<fn() -> S>,
}

impl<S: Service> Protocol<S> {
    fn check(bounds: ExplorationBounds) -> CheckerBuilder<Self> {
        Self { bounds, service: std::marker::PhantomData }.checker()
    }
}

impl<S: Service> Model for Protocol<S> {
    type State = World<S>;
    type Action = ModelAction;

    fn init_states(&self) -> Vec<World<S>> {
        vec![World::new(self.bounds)]
    }

    fn actions(&self, world: &World<S>, actions: &mut Vec<ModelAction>) {
        actions.extend(world.possible().map(|(action, _)| action));
    }

    fn next_state(&self, world: &World<S>, action: ModelAction) -> Option<World<S>> {
        world.after(action)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(NEVER_BOTH, |_, world: &World<S>| {
                !world.maker_has_both() || world.is_the_banks()
            }),
            Property::always(ONCE, |_, world: &World<S>| world.bank_received <= 1),
            Property::always(PAID_ONCE, |_, world: &World<S>| {
                !world.beneficiary_is_paid_twice() || world.is_the_banks()
            }),
            Property::always(COMMITTED, |_, world: &World<S>| {
                // The bank may change its word whenever it likes.
                world.bank != Bank::Paid
                    || world.has_changed
                    || matches!(world.slot, Slot::Filled | Slot::Settled)
            }),
            Property::always(SETTLED_UP, |_, world: &World<S>| {
                world.possible().next().is_some() || world.is_settled_up()
            }),
            Property::always(POSITION, |_, world: &World<S>| {
                world.service.has_open_position() == world.has_unused_conversion()
            }),
            Property::sometimes("converted after it was given up", |_, world: &World<S>| {
                world.has_unused_conversion() && world.service.name() == "conversion_failed"
            }),
            Property::sometimes("completed", |_, world: &World<S>| world.is_end("completed", Slot::Settled)),
            Property::sometimes("never locked", |_, world: &World<S>| world.is_end("failed", Slot::None)),
            Property::sometimes("conversion failed, given back", |_, world: &World<S>| {
                world.is_end("conversion_failed", Slot::Returned)
            }),
            Property::sometimes("payout failed, given back", |_, world: &World<S>| {
                world.is_end("payout_failed", Slot::Returned)
            }),
            Property::sometimes("cancelled by the user from the fill deadline on", |_, world: &World<S>| {
                world.slot == Slot::Returned && !world.was_filled && world.cancelled_by_user
            }),
            Property::sometimes("returned by two operators", |_, world: &World<S>| {
                world.returned_by_operators
            }),
            Property::sometimes("a debt that pages", |_, world: &World<S>| {
                world.service.is_owing() && world.slot == Slot::Settled
            }),
            Property::sometimes("a debt that is paid", |_, world: &World<S>| {
                world.was_owing && world.is_end("completed", Slot::Settled)
            }),
            Property::sometimes("a debt that is paid another way", |_, world: &World<S>| world.debt_paid),
            Property::sometimes("a debt that is given back", |_, world: &World<S>| world.debt_returned),
            Property::sometimes("a lock that was lost", |_, world: &World<S>| {
                world.slot == Slot::None && world.service.name() == "payout_failed"
            }),
        ]
    }
}

const NEVER_BOTH: &str = "maker and beneficiary are never both paid";
const ONCE: &str = "the bank is asked to pay once";
const PAID_ONCE: &str = "the beneficiary is paid once";
const SETTLED_UP: &str = "every debt at the end is paid, or an operator is paged";
const POSITION: &str = "a conversion has a position exactly when its order ends without it";
const COMMITTED: &str = "no payment is made before the chain is committed";

#[expect(clippy::disallowed_methods, reason = "a larger bound can be set for a run")]
fn reorgs() -> u8 {
    std::env::var("DVP_PROTOCOL_REORGS").ok().and_then(|text| text.parse().ok()).unwrap_or(2)
}

#[expect(clippy::disallowed_methods, reason = "a larger bound can be set for a run")]
fn changes() -> u8 {
    std::env::var("DVP_PROTOCOL_CHANGES").ok().and_then(|text| text.parse().ok()).unwrap_or(3)
}

/// The shortest path to a world that violates the property.
fn shortest<S: Service>(bounds: ExplorationBounds, property: &'static str) -> (World<S>, Vec<ModelAction>) {
    let found = |depth| {
        let checker = Protocol::<S>::check(bounds).target_max_depth(depth).spawn_bfs().join();
        checker.discovery(property)
    };
    let path = (1..40).find_map(found).unwrap();
    (path.last_state().clone(), path.into_actions())
}

#[test]
fn no_interleaving_pays_both_sides_and_every_end_is_reached() {
    let bounds = ExplorationBounds { reorgs: reorgs(), restores: 0, changes: 0, has_margin: true };
    let checker = Protocol::<Current>::check(bounds).threads(2).spawn_bfs().join();
    println!("{bounds:?}: {} states, {} deep", checker.unique_state_count(), checker.max_depth());
    checker.assert_properties();
    assert!(checker.unique_state_count() > 12_000, "the world has shrunk");
}

#[test]
fn no_word_of_a_bank_that_changes_it_makes_the_service_pay_both_sides_or_neither() {
    let bounds = ExplorationBounds { reorgs: 1, restores: 0, changes: changes(), has_margin: true };
    let checker = Protocol::<Current>::check(bounds).threads(2).spawn_bfs().join();
    println!("{bounds:?}: {} states, {} deep", checker.unique_state_count(), checker.max_depth());
    for property in [NEVER_BOTH, ONCE, PAID_ONCE, COMMITTED, SETTLED_UP, POSITION] {
        checker.assert_no_discovery(property);
    }
    assert!(checker.unique_state_count() > 12_000, "the world has shrunk");
}

#[test]
fn the_refund_beside_a_refused_payment_that_was_made_is_found() {
    let bounds = ExplorationBounds { reorgs: 0, restores: 0, changes: 1, has_margin: true };
    let (world, actions) = shortest::<Ended<false>>(bounds, NEVER_BOTH);
    println!("refused, made and refunded: {actions:?}");
    assert_eq!((world.slot, world.bank), (Slot::Returned, Bank::Paid));
    assert!(actions.contains(&ModelAction::BankChangesItsWord), "{actions:?}");
}

#[test]
fn the_second_payment_beside_a_return_that_was_taken_back_is_found() {
    let bounds = ExplorationBounds { reorgs: 0, restores: 0, changes: 2, has_margin: true };
    let (world, actions) = shortest::<Ended<false>>(bounds, PAID_ONCE);
    println!("returned, taken back and paid again: {actions:?}");
    assert!(world.beneficiary_is_paid_twice() && actions.contains(&ModelAction::PaidAgain), "{actions:?}");
}

#[test]
fn the_refund_beside_a_payment_that_operators_failed_at_the_bank_is_found() {
    let bounds = ExplorationBounds { reorgs: 0, restores: 0, changes: 0, has_margin: true };
    let (world, actions) = shortest::<Ended<true>>(bounds, NEVER_BOTH);
    println!("failed at the bank, made and refunded: {actions:?}");
    assert_eq!((world.slot, world.bank), (Slot::Returned, Bank::Paid));
    assert!(actions.contains(&ModelAction::OperatorsFail), "{actions:?}");
}

#[test]
fn a_database_that_has_forgotten_the_call_of_the_bank_pays_no_side_twice() {
    let bounds = ExplorationBounds { reorgs: 1, restores: 1, changes: 0, has_margin: true };
    let checker = Protocol::<Current>::check(bounds).threads(2).spawn_bfs().join();
    println!("{bounds:?}: {} states, {} deep", checker.unique_state_count(), checker.max_depth());
    checker.assert_properties();
}

#[test]
fn the_double_payment_of_a_late_commitment_is_found() {
    let (world, actions) = shortest::<Before>(
        ExplorationBounds { reorgs: 0, restores: 0, changes: 0, has_margin: true },
        NEVER_BOTH,
    );
    println!("paid twice: {actions:?}");
    assert_eq!((world.slot, world.bank), (Slot::Returned, Bank::Paid));
    let end = actions.iter().position(|action| *action == ModelAction::UserCancels);
    assert!(end.is_some() && actions.contains(&ModelAction::BankPays), "{actions:?}");
}

#[test]
fn a_payment_before_the_commitment_is_found() {
    let (world, actions) = shortest::<Before>(
        ExplorationBounds { reorgs: 0, restores: 0, changes: 0, has_margin: true },
        COMMITTED,
    );
    assert_eq!((world.slot, world.bank), (Slot::Locked, Bank::Paid), "{actions:?}");
}

#[test]
fn a_settlement_after_its_timelock_is_found() {
    let (world, actions) = shortest::<Current>(
        ExplorationBounds { reorgs: 0, restores: 0, changes: 0, has_margin: false },
        NEVER_BOTH,
    );
    println!("without a margin: {actions:?}");
    assert_eq!((world.slot, world.bank), (Slot::Returned, Bank::Paid));
    assert!(actions.contains(&ModelAction::AnybodyRefunds), "{actions:?}");
}

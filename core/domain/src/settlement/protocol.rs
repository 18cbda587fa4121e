//! A model checker explores every interleaving of one order of a token for money, up to a stated bound.
//!
//! The actors: the chain with its clock, its contract and its callers (a relayer that is late or stopped, a malicious
//! user, anyone); the bank, which answers days later, fails, or was never reached; workers that may stop between any
//! two lines; facts that arrive late and twice, and a lock that a reorganization removes; two operators, one of whom
//! signs anything. The service is the code itself: [`State::step`] and the rules of a [`leg`](super::leg).
//!
//! | bound | default | more with |
//! |---|---|---|
//! | orders | 1: orders share nothing but the clock and batches | |
//! | positions of the clock | 6: [`world::Clock`] | |
//! | reorganizations | 2 | `DVP_PROTOCOL_REORGS` |
//! | restores of the database behind the call of the bank, which the bank remembers | 0, and 1 with one reorganization | |
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
//! The former protocol, in which the bank was called first and the chain committed afterwards, is checked in the same
//! world, with a relayer that is never late: the checker must find its double payment. It must also find one in the
//! present protocol without the margin.

mod across;
mod before;
mod service;
mod world;

use stateright::{Checker, CheckerBuilder, Model, Property};

use self::before::Before;
use self::service::{Current, Service};
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
            Property::always(NEVER_BOTH, |_, world: &World<S>| !world.maker_has_both()),
            Property::always(ONCE, |_, world: &World<S>| world.bank_received <= 1),
            Property::always("the beneficiary is paid once", |_, world: &World<S>| {
                !world.beneficiary_is_paid_twice()
            }),
            Property::always(COMMITTED, |_, world: &World<S>| {
                world.bank != Bank::Paid || matches!(world.slot, Slot::Filled | Slot::Settled)
            }),
            Property::always(
                "every debt at the end is paid, or an operator is paged",
                |_, world: &World<S>| world.possible().next().is_some() || world.is_settled_up(),
            ),
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
const COMMITTED: &str = "no payment is made before the chain is committed";

#[expect(clippy::disallowed_methods, reason = "a larger bound can be set for a run")]
fn reorgs() -> u8 {
    std::env::var("DVP_PROTOCOL_REORGS").ok().and_then(|text| text.parse().ok()).unwrap_or(2)
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
    let bounds = ExplorationBounds { reorgs: reorgs(), restores: 0, has_margin: true };
    let checker = Protocol::<Current>::check(bounds).threads(2).spawn_bfs().join();
    println!("{bounds:?}: {} states, {} deep", checker.unique_state_count(), checker.max_depth());
    checker.assert_properties();
    assert!(checker.unique_state_count() > 12_000, "the world has shrunk");
}

#[test]
fn a_database_that_has_forgotten_the_call_of_the_bank_pays_no_side_twice() {
    let bounds = ExplorationBounds { reorgs: 1, restores: 1, has_margin: true };
    let checker = Protocol::<Current>::check(bounds).threads(2).spawn_bfs().join();
    println!("{bounds:?}: {} states, {} deep", checker.unique_state_count(), checker.max_depth());
    checker.assert_properties();
}

#[test]
fn the_double_payment_of_a_late_commitment_is_found() {
    let (world, actions) =
        shortest::<Before>(ExplorationBounds { reorgs: 0, restores: 0, has_margin: true }, NEVER_BOTH);
    println!("paid twice: {actions:?}");
    assert_eq!((world.slot, world.bank), (Slot::Returned, Bank::Paid));
    let end = actions.iter().position(|action| *action == ModelAction::UserCancels);
    assert!(end.is_some() && actions.contains(&ModelAction::BankPays), "{actions:?}");
}

#[test]
fn a_payment_before_the_commitment_is_found() {
    let (world, actions) =
        shortest::<Before>(ExplorationBounds { reorgs: 0, restores: 0, has_margin: true }, COMMITTED);
    assert_eq!((world.slot, world.bank), (Slot::Locked, Bank::Paid), "{actions:?}");
}

#[test]
fn a_settlement_after_its_timelock_is_found() {
    let (world, actions) =
        shortest::<Current>(ExplorationBounds { reorgs: 0, restores: 0, has_margin: false }, NEVER_BOTH);
    println!("without a margin: {actions:?}");
    assert_eq!((world.slot, world.bank), (Slot::Returned, Bank::Paid));
    assert!(actions.contains(&ModelAction::AnybodyRefunds), "{actions:?}");
}

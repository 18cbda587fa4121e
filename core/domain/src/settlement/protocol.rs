//! A model checker explores every interleaving of one order of a token for money, up to a stated bound.
//!
//! The actors: the chain with its clock, its contract and its callers (a relayer that is late or stopped, a malicious
//! user who cancels, and empties or fills the wallet, anyone); the bank, which answers days later, fails, was never
//! reached, makes a payment that it had refused, gives one back or takes that back, and is heard late; workers that may
//! stop between any two lines; facts that arrive late and twice, and a lock that a reorganization removes; operators who
//! decide meanwhile, one of whom signs anything, and who give a conversion up that the desk carries out afterwards. The
//! service is the code itself: [`State::step`](super::State::step) and the rules of a [`leg`](super::leg).
//!
//! | bound | default | more with |
//! |---|---|---|
//! | orders | 1: orders share nothing but the clock and batches | |
//! | positions of the clock | 6: [`Clock`] | |
//! | reorganizations | 2 | `DVP_PROTOCOL_REORGS` |
//! | restores of the database behind the call of the bank, which the bank remembers | 0, and 1 with one reorganization | |
//! | how often the bank changes its word | 0, and 3 with one reorganization | `DVP_PROTOCOL_CHANGES` |
//! | calls of the bank on their way at once | 2 | |
//! | crashes, repeated facts, repeated calls, silence | any number | |
//!
//! Assumed, and enforced by the clock here: between the moment from which an unanswered payout is settled and the
//! timelock a worker has time for a turn and the relayer for one transaction (`timelock_margin`, an hour at least).
//!
//! Assumed, and not enforced: a commitment that passed the payout gate is not reverted
//! ([`Action::Reorganized`](world::Action::Reorganized) stops there). A payout that was requested on a reverted
//! commitment can be paid beside a cancel, whatever the service does; the depth of the gate decides how unlikely that is.
//!
//! What the bank does to both sides after the service has done its part is the bank's: nobody can know that it will make
//! a payment that it has refused. The service must not return an input, nor pay an output another way, once it knows.
//!
//! Each mistake of [`Defect`](world::Defect) is planted, and the checker must find what it breaks.

mod across;
mod bank;
mod world;

use std::marker::PhantomData;

use stateright::{Checker, Model, Property};

use self::bank::{ByBank, COMMITTED, ONCE, PAID_ONCE, POSITION};
use self::world::{Action, Bounds, Clock, Defect, Payout, Slot, World};

/// One order in a world with these bounds.
struct Protocol<P> {
    bounds: Bounds,
    payout: PhantomData<fn() -> P>,
}

impl<P: Payout> Protocol<P> {
    fn explore(bounds: Bounds) -> impl Checker<Self> {
        let checker = Self { bounds, payout: PhantomData }.checker().threads(2).spawn_bfs().join();
        println!("{bounds:?}: {} states, {} deep", checker.unique_state_count(), checker.max_depth());
        checker
    }

    /// The planted mistake violates the property.
    fn finds(bounds: Bounds, property: &'static str) {
        let path = Self::explore(bounds).discovery(property);
        let path = path.unwrap_or_else(|| panic!("{bounds:?}: {property}: nothing is found"));
        println!("{property}: {:?}", path.into_actions());
    }
}

impl<P: Payout> Model for Protocol<P> {
    type State = World<P>;
    type Action = Action<P::Action>;

    fn init_states(&self) -> Vec<World<P>> {
        vec![World::new(self.bounds)]
    }

    fn actions(&self, world: &World<P>, actions: &mut Vec<Self::Action>) {
        actions.extend(world.possible().map(|(action, _)| action));
    }

    fn next_state(&self, world: &World<P>, action: Self::Action) -> Option<World<P>> {
        world.after(action)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = vec![
            Property::always(NEVER_BOTH, |_, world: &World<P>| {
                !world.maker_has_both() || world.payout.is_the_payers()
            }),
            Property::always(SETTLED_UP, |_, world: &World<P>| {
                world.possible().next().is_some() || world.is_settled_up()
            }),
            Property::sometimes("completed", |_, world: &World<P>| world.is_end("completed", Slot::Settled)),
            Property::sometimes("conversion failed, given back", |_, world: &World<P>| {
                world.is_end("conversion_failed", Slot::Returned)
            }),
            Property::sometimes("returned by two operators", |_, world: &World<P>| {
                world.returned_by_operators
            }),
            Property::sometimes("a debt that is paid", |_, world: &World<P>| {
                world.was_owing && world.is_end("completed", Slot::Settled)
            }),
            Property::sometimes("a debt that is given back", |_, world: &World<P>| world.debt_returned),
        ];
        properties.extend(P::properties());
        properties
    }
}

const NEVER_BOTH: &str = "maker and recipient are never both paid";
const SETTLED_UP: &str = "every debt at the end is paid, or an operator is paged";

#[expect(clippy::disallowed_methods, reason = "a larger bound can be set for a run")]
fn bound(name: &str, default: u8) -> u8 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn reorgs() -> u8 {
    bound("DVP_PROTOCOL_REORGS", 2)
}

#[test]
fn no_interleaving_pays_both_sides_and_every_end_is_reached() {
    let checker = Protocol::<ByBank>::explore(Bounds { reorgs: reorgs(), ..Bounds::default() });
    checker.assert_properties();
    assert!(checker.unique_state_count() > 12_000, "the world has shrunk");
}

#[test]
fn no_word_of_a_bank_that_changes_it_makes_the_service_pay_both_sides_or_neither() {
    let changes = bound("DVP_PROTOCOL_CHANGES", 3);
    let checker = Protocol::<ByBank>::explore(Bounds { reorgs: 1, changes, ..Bounds::default() });
    for property in [NEVER_BOTH, ONCE, PAID_ONCE, COMMITTED, SETTLED_UP, POSITION] {
        checker.assert_no_discovery(property);
    }
    assert!(checker.unique_state_count() > 12_000, "the world has shrunk");
}

#[test]
fn a_database_that_has_forgotten_the_call_of_the_bank_pays_no_side_twice() {
    Protocol::<ByBank>::explore(Bounds { reorgs: 1, restores: 1, ..Bounds::default() }).assert_properties();
}

#[test]
fn a_planted_defect_is_found() {
    for (defect, changes, property) in [
        (Defect::NoMargin, 0, NEVER_BOTH),
        (Defect::NoCommitment, 0, NEVER_BOTH),
        (Defect::NoCommitment, 0, COMMITTED),
        // The refund beside a payment that was refused and made, and the second one beside a return that was taken back.
        (Defect::EndsUnpaid, 1, NEVER_BOTH),
        (Defect::EndsUnpaid, 2, PAID_ONCE),
        (Defect::FailsSent, 0, NEVER_BOTH),
    ] {
        Protocol::<ByBank>::finds(Bounds { changes, defect: Some(defect), ..Bounds::default() }, property);
    }
}

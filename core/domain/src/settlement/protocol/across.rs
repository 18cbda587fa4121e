//! The same for an order of a token for a token of another chain: the lock and its clock on the one chain, the payment
//! with its last second on the other.
//!
//! The other chain has a clock of its own, which lags as far as it likes: it stands still at any moment and for as long
//! as it likes, because nothing makes its actions happen. A reorganization there takes back what is not final, and its
//! next block may be earlier than the one that was taken back. A payment that was sent stays on its way until it is in a
//! block, whatever the service has decided meanwhile.
//!
//! Assumed, and enforced here: what is final is not taken back, and a block is not earlier than the one before it.

mod world;

use stateright::{Checker, CheckerBuilder, Model, Property};

use self::world::{Action, Defect, Payment, World};
use super::world::Slot;
use super::{NEVER_BOTH, reorgs};

struct Across {
    reorgs: u8,
    defect: Option<Defect>,
}

const NEVER_NEITHER: &str = "the maker has the output, or a debt that pages, for a lock that was settled";

impl Across {
    fn check(self) -> CheckerBuilder<Self> {
        self.checker()
    }
}

impl Model for Across {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        vec![World::new(self.reorgs, self.defect)]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        actions.extend(world.possible().map(|(action, _)| action));
    }

    fn next_state(&self, world: &World, action: Action) -> Option<World> {
        world.after(action)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(NEVER_BOTH, |_, world: &World| !world.maker_has_both()),
            Property::always(NEVER_NEITHER, |_, world: &World| !world.maker_has_neither()),
            Property::always("no payment is sent before the chain is committed", |_, world: &World| {
                world.payment == Payment::None || world.was_filled
            }),
            Property::always("every debt at the end is paid, or an operator is paged", |_, world: &World| {
                world.possible().next().is_some() || world.is_settled_up()
            }),
            Property::sometimes("completed", |_, world: &World| world.is_end("completed", Slot::Settled)),
            Property::sometimes("conversion failed, given back", |_, world: &World| {
                world.is_end("conversion_failed", Slot::Returned)
            }),
            Property::sometimes("never paid, given back", |_, world: &World| {
                world.is_end("payout_failed", Slot::Returned) && world.was_filled
            }),
            Property::sometimes("returned by two operators", |_, world: &World| world.returned_by_operators),
            Property::sometimes(
                "a debt that pages while the other chain stands still",
                |_, world: &World| {
                    world.is_owing() && world.slot == Slot::Settled && world.payment == Payment::Included
                },
            ),
            Property::sometimes("a debt that turns out to be paid", |_, world: &World| {
                world.was_owing && world.is_end("completed", Slot::Settled)
            }),
            Property::sometimes("a debt that is given back", |_, world: &World| world.debt_returned),
        ]
    }
}

#[test]
fn no_interleaving_of_two_chains_pays_both_sides_or_neither() {
    let checker = Across { reorgs: reorgs(), defect: None }.check().threads(2).spawn_bfs().join();
    println!("two chains: {} states, {} deep", checker.unique_state_count(), checker.max_depth());
    checker.assert_properties();
    assert!(checker.unique_state_count() > 5_000, "the world has shrunk");
}

#[test]
fn a_planted_defect_of_two_chains_is_found() {
    for (defect, property) in [
        (Defect::ProofAtHead, NEVER_BOTH),
        (Defect::GateAtHead, NEVER_NEITHER),
        (Defect::NoTimer, NEVER_BOTH),
        (Defect::NoLastSecond, NEVER_BOTH),
    ] {
        let checker = Across { reorgs: 1, defect: Some(defect) }.check().threads(2).spawn_bfs().join();
        let path = checker.discovery(property).unwrap_or_else(|| panic!("{defect:?} is not found"));
        println!("{defect:?}: {:?}", path.into_actions());
    }
}

//! How an order of the model begins: what screening and operators say, whoever still works by what they said before.

use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use super::worker::{At, End};
use super::*;

impl World {
    /// What an order that is due to begin does. `false`: the worker has nothing more to do.
    pub(super) fn begin(&mut self, worker: &mut Worker, beginning: Beginning) -> bool {
        let (now, deadline) = (at(self.now), self.terms.request.deadline);
        let happened = match beginning {
            // A restored database has forgotten that it began.
            Beginning::Hold | Beginning::Cancel | Beginning::Refuse | Beginning::Expire
                if self.has_begun_there() =>
            {
                worker.is_cleared = true;
                Happened::LockDue
            }
            Beginning::Screen => {
                assert!(now < deadline, "the order is screened after its deadline");
                worker.stage = At::Ask;
                return true;
            }
            Beginning::Hold => {
                self.office.was_held = true;
                self.end(worker, End::Again { called: false });
                return false;
            }
            Beginning::Begin => {
                let released = worker.decided == Some(StartDecision::Release);
                assert!(!released || now < deadline, "the order is released after its deadline");
                Happened::LockDue
            }
            Beginning::Cancel => Happened::CancelRequested,
            Beginning::Expire => Happened::DeadlinePassed { at: deadline },
            Beginning::Refuse => Happened::Refused { code: "s".into(), message: "m".into(), at: now },
        };
        worker.stage = At::Commit(happened, End::Done);
        true
    }

    /// What the events of its chain and the rail of its first leg show.
    pub(super) fn has_begun_there(&self) -> bool {
        let is_called = self.rails.values().any(|rail| rail.is_ahead && rail.arrived > 0);
        let is_paid = self.terms.pays_on_chain() && self.chain.paid > 0;
        self.chain.created.is_some() || self.terms.swaps() && self.chain.settled || is_called || is_paid
    }

    /// What must be true of a beginning, however it was decided.
    pub(super) fn check_beginning(&self, worker: &Worker, happened: &Happened) {
        match happened {
            Happened::LockDue => {
                assert!(worker.is_cleared, "the order begins, and nobody has passed or released it");
                let is_refused = self.office.refused && !self.has_begun_there();
                assert!(!is_refused, "the order begins, and operators have refused it");
            }
            Happened::Refused { .. } => {
                assert!(worker.is_refused, "the order is refused, and nobody has refused it");
            }
            Happened::DeadlinePassed { at: deadline } => {
                assert!(at(self.now) >= *deadline, "the order expires before its deadline");
            }
            _ => {}
        }
    }
}

/// One move before an order begins: workers screen and stall for longer than their claim, the service changes its mind,
/// operators decide.
fn one(world: &mut World, (what, pick): (u8, u8)) {
    let n = usize::from(pick);
    match what % 16 {
        0..3 => world.pass(i64::from(pick) * 160),
        3..6 => world.claim(n),
        6..10 => world.advance(n, pick),
        10 if pick < 80 => drop(world.workers.pop()),
        11 => world.cancel_by(pick),
        12 | 13 => world.office(1, pick % 30),
        _ => world.office(1, pick.max(30)),
    }
}

impl World {
    fn cancel_by(&mut self, pick: u8) {
        if pick < 20 {
            self.cancel();
        }
    }
}

#[test]
fn an_order_begins_only_when_it_was_passed_or_released_and_never_when_it_was_refused() {
    let config = ProptestConfig { source_file: Some(file!()), ..ProptestConfig::with_cases(4_000) };
    let histories = (any_kind(), any_result(), prop::collection::vec(any::<(u8, u8)>(), 20..120));
    let began = Cell::new([0_u32; 3]);
    let checked = TestRunner::new(config).run(&histories, |(kind, on_error, history)| {
        let mut world = World::new(kind, &[], (false, false), false);
        world.terms.request.deadline = world.terms.accepted_at.plus_millis(400_000);
        world.on_error = on_error;
        world.says = ScreeningResult::Hold;
        for choice in history {
            one(&mut world, choice);
            world.account_for();
        }
        let begun = !matches!(world.db.state, State::Accepted) && !world.db.state.is_terminal();
        let office = &world.office;
        let [released, refused, passed] = began.get();
        began.set([
            released + u32::from(begun && office.released),
            refused + u32::from(!begun && office.refused),
            passed + u32::from(begun && !office.released),
        ]);
        Ok(())
    });
    if let Err(broken) = checked {
        panic!("{broken}");
    }
    assert!(began.get().iter().all(|count| *count > 50), "{:?} released, refused, passed", began.get());
}

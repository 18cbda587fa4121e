//! A restore: the database goes back to an earlier moment, while the chain, the rails and the bank have gone on. The
//! index tells again what the database has forgotten; a rail knows a call by its reference.

use super::*;

/// The database at a moment, with the operators' decisions in it.
pub(super) struct Backup {
    db: Database,
    verdicts: BTreeMap<LegKind, RailAnswer>,
    /// How many facts there had been.
    facts: usize,
}

impl World {
    fn back_up(&mut self) {
        let facts = self.chain.told.len() + self.chain.facts.len();
        self.backup = Some(Backup { db: self.db.clone(), verdicts: self.office.verdicts.clone(), facts });
    }

    /// All processes have ended.
    fn restore(&mut self) {
        let Some(Backup { db, verdicts, facts }) = self.backup.take() else { return };
        self.workers.clear();
        self.db = db;
        // What the relayer had found impossible is forgotten, and found again.
        let is_event = |fact: &Happened| {
            !matches!(
                fact,
                Happened::LockFailed { .. }
                    | Happened::FillFailed { .. }
                    | Happened::Payout { answer: RailAnswer::Failed { .. }, .. }
            )
        };
        let known = facts - self.db.indexed;
        let forgotten = self.chain.told.split_off(self.db.indexed);
        let unread = std::mem::take(&mut self.chain.facts);
        let told_again = forgotten.into_iter().chain(unread).enumerate();
        self.chain.facts =
            told_again.filter(|(n, fact)| *n < known || is_event(fact)).map(|(_, fact)| fact).collect();
        self.office.forget(verdicts);
        let now = self.now;
        for rail in self.rails.values_mut() {
            rail.is_ahead = true;
            while !rail.calls.is_empty() {
                rail.receive(now);
            }
        }
        // The index reads the chain again before a leg begins or is given up.
        while !self.chain.facts.is_empty() {
            self.index(false);
        }
        while !self.db.facts.is_empty() {
            self.take_fact(0);
            while !self.workers.is_empty() {
                self.advance(0, 255);
            }
        }
    }

    /// Somebody ends an order that has not begun as far as the database knows.
    fn end_before_beginning(&mut self, ending: u8) {
        let is_held = self.office.was_held;
        match ending {
            0 if !self.has_begun_there() => self.cancel(),
            1 => self.says = ScreeningResult::Fail,
            2 => self.says = ScreeningResult::Hold,
            3 if is_held => self.decide_beginning(1),
            4 => self.now = self.now.max(self.terms.request.deadline.millis()),
            _ => {}
        }
    }

    /// What must be true however far the database went back: the service does not move money twice, and the order ends
    /// or is a debt that an operator sees.
    fn check_restored(&self) {
        let delivered = self.delivered();
        assert!(delivered <= 1, "the beneficiary was paid twice");
        assert!(delivered == 0 || !self.chain.gone, "maker and beneficiary were both paid");
        if matches!(self.db.state, State::Expired | State::Cancelled | State::Failed { .. }) {
            assert!(
                self.rails[&LegKind::Offramp].executed == 0 && delivered == 0,
                "the order ended before its beginning, and was paid"
            );
        }
        self.check_position();
        if self.chain.settled && delivered == 1 {
            let state = self.db.state.name();
            assert!(
                matches!(self.db.state, State::Completed { .. }),
                "paid and settled, and the order is {state}"
            );
        }
    }
}

#[test]
fn after_a_restore_to_any_moment_every_order_ends_and_nobody_is_paid_twice() {
    let (stages, ahead) = (RefCell::new(BTreeMap::<_, u32>::new()), Cell::new(0_u32));
    let ended_early = Cell::new(0_u32);
    let config = ProptestConfig { source_file: Some(file!()), ..ProptestConfig::with_cases(HISTORIES) };
    let moves = |least| prop::collection::vec(any::<(u8, u8)>(), least..400);
    // Orders that lock nothing begin with a call of a rail.
    let money = prop_oneof![Just(OrderKind::FiatToFiat), Just(OrderKind::FiatToToken)];
    let kinds = prop_oneof![4 => any_kind(), 1 => money.prop_map(|kind| (kind, false))];
    let moved = (prop_oneof![moves(0), prop::collection::vec(any::<(u8, u8)>(), 0..20)], moves(20));
    let histories = (kinds, prop::bool::weighted(0.1), any::<bool>(), moved, 0..6_u8);
    let checked =
        TestRunner::new(config).run(&histories, |(kind, refuses, at_once, (before, since), ending)| {
            let mut world = World::new(kind, &[], (false, refuses), at_once);
            // A reorganization and an operator are moves of the other test.
            let moves = |world: &mut World, moves: Vec<(u8, u8)>| {
                for (what, pick) in moves.into_iter().filter(|(what, _)| !matches!(what % 48, 40 | 44..)) {
                    world.one((what, pick));
                }
            };
            moves(&mut world, before);
            world.back_up();
            *stages.borrow_mut().entry(world.db.state.name()).or_default() += 1;
            let version = world.db.version;
            moves(&mut world, since);
            ahead.set(ahead.get() + u32::from(world.db.version > version));
            world.restore();
            if world.db.state == State::Accepted {
                ended_early.set(ended_early.get() + u32::from(world.has_begun_there()));
                world.end_before_beginning(ending);
            }
            world.settle_down();
            world.check_restored();
            Ok(())
        });
    if let Err(broken) = checked {
        panic!("{broken}");
    }
    let stages = stages.into_inner();
    println!("restored to {stages:?}; {} were ahead", ahead.get());
    assert!(ended_early.get() > 50, "{ended_early:?} had begun and were accepted again");
    for stage in ["accepted", "locking", "converting", "committing", "paying", "releasing"] {
        assert!(stages.get(stage).is_some_and(|count| *count > 10), "{stage}: {stages:?}");
    }
}

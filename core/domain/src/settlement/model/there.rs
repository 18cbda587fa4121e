//! The other chain of an order of two: it stands still, its clock lags, and a reorganization takes back what is not
//! final. A payment that was sent is on its way until its last second, whatever the service has decided.

use super::*;

#[derive(Debug, Default)]
pub(super) struct There {
    stands_still: bool,
    /// The last second of the payment that was sent.
    not_after: Option<i64>,
    /// The time of the last block, and of the final one.
    time: i64,
    final_time: i64,
    is_paid: bool,
    is_final: bool,
}

impl World {
    /// The relayer of the other chain sends the payment, or learns that it can never be made. `None`: not yet.
    pub(super) fn transfer_there(&mut self) -> Option<Option<Happened>> {
        let pay_before = self.db.state.lock().map_or(0, |lock| lock.deadlines.pay_before.millis());
        let (now, there) = (self.now, &mut self.chain.there);
        if there.is_final {
            return Some(None);
        }
        // By the service's clock: the other chain's may lag so far that it would still pay.
        if now <= pay_before {
            there.not_after.get_or_insert(pay_before);
        }
        let not_after = there.not_after.unwrap_or(pay_before);
        if there.is_paid || there.final_time <= not_after {
            return None;
        }
        let (code, message) = ("c".into(), "m".into());
        let answer = RailAnswer::Failed { code, message, retryable: false };
        Some(Some(Happened::Payout { answer, at: at(self.now) }))
    }

    pub(super) fn go_on_there(&mut self, pick: u8) {
        match pick % 8 {
            0 => self.chain.there.stands_still ^= true,
            1 => self.reorganize_there(),
            2..6 if !self.chain.there.stands_still => self.mine_there(i64::from(pick)),
            _ if !self.chain.there.stands_still => self.finalize_there(),
            _ => {}
        }
    }

    /// It is as fast as the clock again.
    pub(super) fn recover_there(&mut self) {
        self.chain.there.stands_still = false;
        self.mine_there(255);
        self.finalize_there();
    }

    fn mine_there(&mut self, part: i64) {
        let now = self.now;
        let there = &mut self.chain.there;
        there.time += (now - there.time).max(0) * part / 255;
        there.is_paid |= there.not_after.is_some_and(|last| there.time <= last);
    }

    fn reorganize_there(&mut self) {
        let there = &mut self.chain.there;
        there.is_paid &= there.is_final;
        there.time = there.final_time;
    }

    fn finalize_there(&mut self) {
        let there = &mut self.chain.there;
        there.final_time = there.time;
        if there.is_paid && !there.is_final {
            there.is_final = true;
            self.chain.paid += 1;
            self.db.commands.retain(|command| *command != Command::Transfer);
            self.chain.facts.push(Happened::Payout { answer: done(self.now), at: at(self.now) });
        }
    }
}

/// The service stands still from the commitment until after the timelock, and the other chain's clock is far behind.
#[test]
fn a_payment_is_not_sent_after_its_last_second_by_the_services_clock() {
    let mut world = World::new((OrderKind::TokenToToken, true), &[], (false, false), false);
    for round in 0.. {
        world.work_steadily(round, 100);
        world.rails.values_mut().for_each(|rail| {
            while !rail.calls.is_empty() {
                rail.receive(world.now);
            }
            rail.finished = true;
        });
        if world.chain.filled {
            break;
        }
    }
    assert_eq!(world.db.state.name(), "committing");
    world.now += TIMELOCK;
    for round in 0..20 {
        world.work_steadily(round, 100);
    }
    world.chain.there.time = world.now - TIMELOCK;
    world.mine_there(0);
    world.finalize_there();
    world.settle_down();
    world.check();
    assert_eq!(world.db.state.name(), "payout_failed");
}

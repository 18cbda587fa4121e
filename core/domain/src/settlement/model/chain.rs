//! The chain of the model: the relayer's commands, what anyone may do on it, and its reorganizations.

use super::*;

/// Milliseconds until a reverted commitment is sent again.
const RESENT_AFTER: i64 = 30_000;

#[derive(Debug, Default)]
pub(super) struct Chain {
    pub(super) created: Option<i64>,
    /// A transaction with the lock or swap is out, whatever the database knows of it.
    pub(super) is_signed: bool,
    pub(super) filled: bool,
    /// When the relayer sends a reverted commitment again.
    pub(super) fill_due: Option<i64>,
    pub(super) settled: bool,
    pub(super) gone: bool,
    /// A reorganization removed the lock and what followed it.
    pub(super) lost: bool,
    pub(super) paid: u32,
    /// The chain of the payment of an order of two.
    pub(super) there: super::there::There,
    /// Facts of blocks that are not deep enough yet.
    pub(super) facts: Vec<Happened>,
    /// Facts that the index has told, in their order.
    pub(super) told: Vec<Happened>,
}

impl World {
    /// The relayer carries out one command, or learns that it can never succeed.
    pub(super) fn relay(&mut self, pick: usize, fails: bool) {
        if self.db.commands.is_empty() {
            return;
        }
        let n = pick % self.db.commands.len();
        self.sign(n);
        let Some(fact) = self.carry_out(self.db.commands[n], fails) else { return };
        self.db.commands.remove(n);
        self.chain.facts.extend(fact);
    }

    /// A lock or swap becomes part of a signed transaction, which may be included at any time from now on.
    pub(super) fn sign(&mut self, pick: usize) {
        let command = self.db.commands.get(pick);
        if matches!(command, Some(Command::Create | Command::Swap)) {
            (self.db.is_signed, self.chain.is_signed) = (true, true);
        }
    }

    /// `None`: not yet. A failure is final only where the contract's state makes it so.
    fn carry_out(&mut self, command: Command, fails: bool) -> Option<Option<Happened>> {
        if command == Command::Transfer && self.terms.crosses() {
            return self.transfer_there();
        }
        let (now, chain) = (self.now, &mut self.chain);
        let failed = || ("c".to_owned(), "m".to_owned(), at(now));
        let since = chain.created.map(|created| now - created);
        let held = since.is_some() && !chain.gone && !chain.lost;
        let (code, message, at_now) = failed();
        let fact = match command {
            // The event was there before the command.
            Command::Create if chain.created.is_some() => return Some(None),
            Command::Swap | Command::Settle if chain.settled => return Some(None),
            Command::Transfer if chain.paid > 0 => return Some(None),
            Command::Create | Command::Swap if fails => Happened::LockFailed { code, message, at: at_now },
            Command::Create => {
                chain.created = Some(now);
                locked_at(now)
            }
            Command::Swap => {
                (chain.settled, chain.paid) = (true, chain.paid + 1);
                Happened::Settled { tx_hash: "0xs".into(), at: at_now }
            }
            Command::Transfer if fails => {
                let answer = RailAnswer::Failed { code, message, retryable: false };
                Happened::Payout { answer, at: at_now }
            }
            Command::Transfer => {
                chain.paid += 1;
                Happened::Payout { answer: done(now), at: at_now }
            }
            Command::Fill if chain.filled => return Some(None),
            Command::Fill if chain.gone || since.is_some_and(|since| since >= FILL) => {
                Happened::FillFailed { code, message, at: at_now }
            }
            Command::Fill if !held => return None,
            Command::Fill => {
                chain.filled = true;
                Happened::Filled { at: at_now }
            }
            // It can never succeed: an operator is notified, the settlement is not.
            Command::Settle if chain.gone => return Some(None),
            Command::Settle if !held || !chain.filled || since.is_some_and(|since| since >= TIMELOCK) => {
                return None;
            }
            Command::Settle => {
                chain.settled = true;
                Happened::Settled { tx_hash: "0xs".into(), at: at_now }
            }
            Command::GiveBack if chain.gone || chain.filled => return Some(None),
            Command::GiveBack if !held => return None,
            Command::GiveBack => {
                chain.gone = true;
                refunded_at(now)
            }
            Command::Anchor => Happened::Anchored(Finality {
                tx_hash: "0xa".into(),
                contract_address: "0xc".into(),
                chain_id: 1,
            }),
        };
        Some(Some(fact))
    }

    /// Anyone may return an unfilled lock from the fill deadline on, and any lock from the timelock on.
    pub(super) fn anyone(&mut self) {
        let Some(created) = self.chain.created else { return };
        let (chain, now) = (&mut self.chain, self.now);
        let cancels = !chain.filled && now >= created + FILL;
        let refunds = now >= created + TIMELOCK;
        if !chain.gone && !chain.settled && !chain.lost && (cancels || refunds) {
            chain.gone = true;
            chain.facts.push(refunded_at(now));
        }
    }

    /// A reorganization reverts a reported lock with all that followed it; the same transaction is included again
    /// later.
    pub(super) fn lose_lock(&mut self) {
        let reported = self.chain.facts.is_empty() && self.db.facts.is_empty();
        let chain = &mut self.chain;
        if reported
            && chain.created.is_some()
            && !chain.filled
            && !chain.gone
            && !chain.lost
            && !chain.settled
        {
            chain.lost = true;
            chain.facts.push(Happened::LockLost { at: at(self.now) });
        }
    }

    /// A reorganization reverts a reported commitment, and reports it before the rail is called; the relayer sends it
    /// again. A report after the call comes too late for any rule: the payout gate is for that case.
    pub(super) fn lose_fill(&mut self) {
        // The payment of an order of two chains is requested with the report of its commitment.
        if self.fill_losses == 0 || self.terms.crosses() {
            return;
        }
        let reported = self.chain.facts.is_empty() && self.db.facts.is_empty();
        let payout = &self.rails[&LegKind::Payout];
        let called = payout.arrived > 0 || !payout.calls.is_empty();
        let at_work = self
            .workers
            .iter()
            .any(|worker| worker.fact.is_some() || worker.task == Some(Task::Leg(LegKind::Payout)));
        let chain = &mut self.chain;
        if !reported || called || at_work || !chain.filled || chain.gone || chain.lost || chain.settled {
            return;
        }
        chain.filled = false;
        self.fill_losses -= 1;
        chain.fill_due = Some(self.now + RESENT_AFTER);
        if let Ok(step) = self.db.state.clone().step(&self.terms, Happened::FillLost) {
            self.write(step);
        }
    }

    pub(super) fn find_fill(&mut self) {
        if self.chain.fill_due.take_if(|due| *due <= self.now).is_some() {
            self.db.commands.push(Command::Fill);
        }
    }

    pub(super) fn find_lock(&mut self) {
        if let Some(created) = self.chain.created.filter(|_| self.chain.lost) {
            self.chain.lost = false;
            self.chain.facts.push(locked_at(created));
        }
    }
}

fn locked_at(created: i64) -> Happened {
    let deadlines = Deadlines {
        begin_before: at(created + FILL - MARGIN),
        pay_before: at(created + PAY),
        overdue_at: at(created + PAY),
        settle_at: at(created + SETTLE),
    };
    Happened::Locked { lock: Lock::new("0xl".into(), at(created + TIMELOCK), deadlines), at: at(created) }
}

fn refunded_at(now: i64) -> Happened {
    Happened::Refunded { tx_hash: "0xr".into(), at: at(now) }
}

//! Workers: each claims due work or takes a fact, asks, calls and commits, and may stop at any line.

use super::*;

pub(super) enum At {
    Load,
    Ask,
    Call,
    Listen,
    Commit(Happened, End),
}

#[derive(Debug, Clone, Copy)]
pub(super) enum End {
    Done,
    Again { called: bool },
}

/// A worker with a claim, which may stop at any line.
pub(super) struct Worker {
    pub(super) task: Option<Task>,
    pub(super) fact: Option<Happened>,
    pub(super) claim: CallRecord,
    pub(super) called_at: i64,
    pub(super) fence: u64,
    /// The operators' decision as it was when the work was claimed.
    pub(super) decided: Option<StartDecision>,
    /// Screening passed the order, or operators released it; screening or operators refused it.
    pub(super) is_cleared: bool,
    pub(super) is_refused: bool,
    pub(super) seen: (State, u64),
    pub(super) stage: At,
}

impl World {
    pub(super) fn claim(&mut self, pick: usize) {
        let now = self.now;
        let free: Vec<Task> = (self.db.effects.iter())
            .filter(|(_, row)| row.due <= now && row.claimed_until < now)
            .map(|(task, _)| *task)
            .collect();
        let Some(task) = free.get(pick % free.len().max(1)).copied() else { return };
        let Some(row) = self.db.effects.get_mut(&task) else { return };
        let in_flight = row.called && now - row.called_at < IN_FLIGHT;
        // A restored database has forgotten later calls.
        let is_older = self.rails.values().any(|rail| rail.is_ahead);
        let claim = CallRecord { called_before: row.called || is_older, in_flight };
        if !row.called {
            row.called_at = now;
        }
        (row.called, row.claimed_until, row.fence) = (true, now + CLAIM, row.fence + 1);
        let (called_at, fence, decided) = (row.called_at, row.fence, row.decided);
        let is_cleared = decided == Some(StartDecision::Release);
        let is_refused = decided == Some(StartDecision::Refuse);
        let worker = self.worker(Some(task), None);
        self.workers.push(Worker { claim, called_at, fence, decided, is_cleared, is_refused, ..worker });
    }

    pub(super) fn take_fact(&mut self, pick: usize) {
        let Some(fact) = self.db.facts.get(pick % self.db.facts.len().max(1)).cloned() else { return };
        let worker = self.worker(None, Some(fact));
        self.workers.push(worker);
    }

    fn worker(&self, task: Option<Task>, fact: Option<Happened>) -> Worker {
        Worker {
            task,
            fact,
            claim: CallRecord { called_before: false, in_flight: false },
            called_at: 0,
            fence: 0,
            decided: None,
            is_cleared: false,
            is_refused: false,
            seen: (self.db.state.clone(), self.db.version),
            stage: At::Load,
        }
    }

    /// One move of one worker. When `luck` is below 64, the rail is down; below 96, it does not answer.
    pub(super) fn advance(&mut self, pick: usize, luck: u8) {
        if self.workers.is_empty() {
            return;
        }
        let mut worker = self.workers.remove(pick % self.workers.len());
        if self.move_on(&mut worker, luck) {
            self.workers.push(worker);
        }
    }

    /// `false`: the worker is finished.
    fn move_on(&mut self, worker: &mut Worker, luck: u8) -> bool {
        let leg = match worker.task {
            Some(Task::Leg(leg)) => leg,
            Some(Task::Start | Task::Timelock) | None => LegKind::Offramp,
        };
        let answer = self.rails[&leg].answer(self.now);
        match std::mem::replace(&mut worker.stage, At::Load) {
            At::Load => return self.load(worker, leg),
            At::Ask if worker.task == Some(Task::Start) => {
                let result = if luck < 16 { self.on_error } else { self.says };
                worker.is_cleared |= result == ScreeningResult::Pass;
                worker.is_refused |= result == ScreeningResult::Fail;
                return self.begin(worker, Beginning::after(result));
            }
            At::Ask => {
                let response = match luck {
                    0..64 => RailResponse::Down,
                    64..96 => RailResponse::Silence,
                    _ => answer.map_or(RailResponse::NeverSeen, RailResponse::Answer),
                };
                let then = worker.seen.0.requested(worker.claim, response, at(self.now));
                return self.then(worker, leg, then);
            }
            At::Call if luck < 64 => return self.then(worker, leg, State::called(RailResponse::Down)),
            At::Call => {
                let lock = worker.seen.0.lock();
                assert!(!lock.is_some_and(|lock| lock.refunded), "paid for returned funds");
                if leg == LegKind::Payout && lock.is_some() {
                    assert!(self.chain.filled, "paid before the chain was committed");
                }
                let not_after = worker.called_at + RAIL_TIMEOUT;
                self.rails.entry(leg).or_default().calls.push(not_after);
                worker.stage = At::Listen;
            }
            At::Listen => {
                let response = if luck < 96 { None } else { answer };
                let then = State::called(response.map_or(RailResponse::Silence, RailResponse::Answer));
                return self.then(worker, leg, then);
            }
            At::Commit(happened, end) => return self.commit(worker, happened, end),
        }
        true
    }

    fn load(&mut self, worker: &mut Worker, leg: LegKind) -> bool {
        worker.seen = (self.db.state.clone(), self.db.version);
        if let Some(fact) = &worker.fact {
            worker.stage = At::Commit(fact.clone(), End::Done);
            return true;
        }
        if worker.task == Some(Task::Start) {
            let deadline = self.terms.request.deadline;
            let first = Beginning::first(worker.decided, at(self.now), deadline, true);
            return self.begin(worker, first);
        }
        if worker.task == Some(Task::Timelock) {
            let end = match worker.seen.0.timer(at(self.now), self.office.is_booked) {
                Timer::Settle => {
                    worker.stage = At::Commit(Happened::TimelockNear, End::Done);
                    return true;
                }
                Timer::Later(_) => End::Again { called: false },
                Timer::Nothing => End::Done,
            };
            self.end(worker, end);
            return false;
        }
        if let Some(answer) = self.office.verdicts.get(&leg)
            && worker.seen.0.awaits(leg)
        {
            let happened = worker.seen.0.decided(leg, answer.clone(), at(self.now));
            let is_given_up = matches!(happened, Happened::ConversionGivenUp { .. });
            let end = if is_given_up { End::Again { called: true } } else { End::Done };
            worker.stage = At::Commit(happened, end);
            return true;
        }
        match worker.seen.0.first(leg, worker.claim, at(self.now)) {
            First::Call if self.office.is_paused(leg) => {
                self.end(worker, End::Again { called: false });
                return false;
            }
            First::Nothing => {
                self.end(worker, End::Done);
                return false;
            }
            First::Ask => worker.stage = At::Ask,
            First::Call => worker.stage = At::Call,
            First::Wait => {
                self.end(worker, End::Again { called: false });
                return false;
            }
        }
        true
    }

    fn then(&mut self, worker: &mut Worker, leg: LegKind, then: Then) -> bool {
        let at = at(self.now);
        match then {
            Then::Take(answer) => {
                let waits = matches!(answer, RailAnswer::InProgress { .. });
                let end = if waits { End::Again { called: true } } else { End::Done };
                worker.stage = At::Commit(leg.answered(answer, at), end);
            }
            Then::Call if self.office.is_paused(leg) => {
                self.end(worker, End::Again { called: false });
                return false;
            }
            Then::Call => {
                let row = worker.task.and_then(|task| self.db.effects.get_mut(&task));
                let Some(row) = row.filter(|row| row.fence == worker.fence) else { return false };
                (row.called_at, worker.called_at) = (self.now, self.now);
                worker.stage = At::Call;
            }
            Then::Withhold(_) if self.has_open_facts() => {
                self.end(worker, End::Again { called: true });
                return false;
            }
            Then::Withhold(why) => {
                worker.stage = At::Commit(Happened::Withheld { why, at }, End::Done);
            }
            Then::Settle => {
                worker.stage = At::Commit(Happened::TimelockNear, End::Again { called: true });
            }
            Then::Later { called } => {
                self.end(worker, End::Again { called });
                return false;
            }
        }
        true
    }

    /// What the chain had when the process began may say that it is not too late.
    fn has_open_facts(&self) -> bool {
        !self.db.facts.is_empty() || !self.db.early.is_empty()
    }

    /// Ends a claim whose fence is still valid.
    pub(super) fn end(&mut self, worker: &Worker, end: End) {
        let Some(task) = worker.task else { return };
        let Some(row) = self.db.effects.get_mut(&task).filter(|row| row.fence == worker.fence) else {
            return;
        };
        match end {
            End::Done => drop(self.db.effects.remove(&task)),
            End::Again { called } => (row.due, row.called, row.claimed_until) = (self.now + 500, called, 0),
        }
    }

    /// Commits the step, what it consumes and the end of the claim, or nothing.
    fn commit(&mut self, worker: &mut Worker, happened: Happened, end: End) -> bool {
        let (state, version) = worker.seen.clone();
        let step = state.step(&self.terms, happened.clone()).ok();
        if step.is_some() && version != self.db.version {
            // An answer is applied again; a decision made on the old state is made again.
            if matches!(happened, Happened::Offramp { .. } | Happened::Payout { .. }) {
                worker.seen = (self.db.state.clone(), self.db.version);
                worker.stage = At::Commit(happened, end);
            }
            return true;
        }
        if worker.task == Some(Task::Start) && step.is_some() {
            // Operators have decided since the work was claimed, or somebody else has claimed it.
            let row = self.db.effects.get(&Task::Start);
            if row.is_none_or(|row| row.fence != worker.fence) {
                return false;
            }
            self.check_beginning(worker, &happened);
        }
        let consumed = worker.fact.as_ref();
        if let Some(open) = consumed.and_then(|fact| self.db.facts.iter().position(|open| open == fact)) {
            let is_early = step.is_none() && worker.seen.0.takes_later(&self.terms, &self.db.facts[open]);
            match (is_early, version == self.db.version) {
                (true, true) => self.db.early.push(self.db.facts[open].clone()),
                // The settlement has changed: it is offered again at once.
                (true, false) => return false,
                (false, _) => {}
            }
            self.db.facts.remove(open);
        }
        let is_given_up = matches!(happened, Happened::ConversionGivenUp { .. });
        if let Some(step) = step {
            self.write(step);
            if is_given_up {
                self.office.verdicts.remove(&LegKind::Offramp);
                self.office.has_given_up = true;
            }
        }
        self.end(worker, end);
        false
    }
}

//! Processes one batch after another: each is written as a whole, or bisected until the failing units are found.
//!
//! The writer waits only for the database. A unit that fails because of its data is answered immediately, and so are
//! the units that depend on it. While the database is unavailable, queued and new units are answered immediately, and
//! one connection at a time is attempted.
//!
//! A unit whose COMMIT was not acknowledged is tried again; its own keys show whether it was committed.
//!
//! Kept by `core/tests/it/unavailable.rs::every_caller_is_answered_while_one_connection_at_a_time_is_tried` and
//! `core/tests/it/unknown.rs::settlement_survives_a_lost_acknowledgement_of_each_commit`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use dvp_store::Fault;
use tokio::sync::oneshot;
use tokio::time::timeout;
use tracing::{Instrument, Span, debug, error, info, warn};

use super::batch::Patience;
use super::connection::{Failure, Manner, WriterConnections};
use super::fair_queue::{Flow, NextBatch, UnitSource};
use super::figures::{self, BatchTimer, Running};
use super::pieces::{Pieces, Split};
use super::queue::Taking;
use super::sessions::unbroken;
use super::unit::{Done, Unit};
use super::{BatchContext, WriteError};

/// The maximum number of units in one transaction.
const BATCH_UNITS: usize = 512;
/// The time limit for the pieces of a failed batch and for units of an isolated tenant, so that they do not delay the
/// others.
const SHORT: Patience = Patience { lock: Duration::from_millis(100), statement: Duration::from_secs(1) };
/// How often the same units are retried immediately after a conflict with another transaction.
const CONFLICTS: u32 = 3;
/// How often a batch is retried on a new connection.
const RECONNECTS: u32 = 1;
/// After this many failed transactions with units of one tenant, the rest of them waits for the tenant's next turn.
const FAILURES_A_TURN: u32 = 32;
/// After this many consecutive units that timed out, with nothing written between, all are assumed to wait for the same
/// lock.
const SLOW_IN_A_ROW: u32 = 4;
/// How long there is no batch before committed work is handed over without one.
const IDLE: Duration = Duration::from_secs(1);
/// The delay between two connection attempts: at first, and at most.
const PROBE_MIN: Duration = Duration::from_millis(100);
const PROBE_MAX: Duration = Duration::from_secs(2);

pub(super) struct Waiting {
    pub(super) unit: Unit,
    pub(super) reply: oneshot::Sender<Result<Done, WriteError>>,
    pub(super) span: Span,
    pub(super) since: Instant,
}

impl Waiting {
    /// Answers the unit. One that has failed breaks its chain: it is answered while no other batch is being written.
    fn answer(self, done: Result<Done, WriteError>) {
        if let Some(part) = &self.unit.fix {
            match done {
                // What it was based on has changed: it may have been written before, or is tried again in the chain.
                Ok(_) | Err(WriteError::Stale { .. }) => {}
                Err(
                    WriteError::Busy
                    | WriteError::Stopped
                    | WriteError::Unavailable(_)
                    | WriteError::Slow(_)
                    | WriteError::Store(_),
                ) => part.chain.break_off(),
            }
        }
        // The caller no longer waits; its outcome is in the database.
        let _ = self.reply.send(done);
    }
}

/// Writes batches until the queue ends.
pub(super) async fn run(place: Arc<BatchContext>, queue: Taking<Waiting>, running: Running) {
    let mut carrier = Carrier {
        place,
        queue,
        connections: WriterConnections::default(),
        running,
        probe_after: Duration::ZERO,
    };
    figures::available(true);
    while let Some(taken) = carrier.next().await {
        if let Err(outage) = carrier.carry(taken).await
            && !carrier.wait_out(&outage).await
        {
            return;
        }
    }
}

fn commit_span(taken: &NextBatch<Waiting>) -> Span {
    for (_, waiting) in &taken.units {
        figures::waited(waiting.since.elapsed());
    }
    tracing::debug_span!("commit", units = taken.units.len())
}

/// The database is unavailable, with the reason.
struct Outage(Arc<str>);

struct Carrier {
    place: Arc<BatchContext>,
    queue: Taking<Waiting>,
    connections: WriterConnections,
    running: Running,
    /// The delay before the next connection attempt; none after a batch that was written.
    probe_after: Duration,
}

/// The rest of a batch, and its progress.
struct Course {
    units: Vec<Option<(Flow, Waiting)>>,
    pieces: Pieces,
    batch: BatchTimer,
    conflicts: u32,
    reconnects: u32,
    /// Failed transactions since the first attempt of a piece of one tenant only, and units answered since.
    failures_within: u32,
    answered_within: u32,
    slow_in_a_row: u32,
    apart: bool,
    has_failed: bool,
}

impl Course {
    fn of(taken: NextBatch<Waiting>, batch: BatchTimer) -> Self {
        let mut groups: Vec<usize> = Vec::with_capacity(taken.units.len());
        for (at, (flow, _)) in taken.units.iter().enumerate() {
            let before = at.checked_sub(1).and_then(|at| taken.units.get(at));
            let group = groups.last().copied().unwrap_or(0);
            let same = before.is_none_or(|(other, _)| other.shares_turns_with(flow));
            groups.push(if same { group } else { group + 1 });
        }
        Self {
            batch,
            units: taken.units.into_iter().map(Some).collect(),
            pieces: Pieces::whole(groups),
            conflicts: 0,
            reconnects: 0,
            failures_within: 0,
            answered_within: 0,
            slow_in_a_row: 0,
            apart: taken.apart,
            has_failed: false,
        }
    }

    /// The unanswered units of a piece that can still be written. Units that depend on a failed unit are answered here.
    fn open(&mut self, piece: std::ops::Range<usize>) -> Vec<usize> {
        let waiting = |at: &usize| self.units.get(*at).is_some_and(Option::is_some);
        let open: Vec<usize> = piece.filter(waiting).collect();
        let unbroken = unbroken(&self.borrow(&open));
        let (mut kept, mut stale) = (Vec::with_capacity(open.len()), 0);
        for (at, is_unbroken) in open.into_iter().zip(unbroken) {
            if is_unbroken {
                kept.push(at);
            } else {
                stale += 1;
                self.answer(at, Err(WriteError::Stale { what: "the FIX session" }));
            }
        }
        if stale > 0 {
            debug!(units = stale, "units that build on a failed one are stale");
            figures::failed("stale", stale);
        }
        kept
    }

    /// The first attempt is the whole batch; the pieces of a failed batch are attempted with checks.
    fn manner(&self) -> Manner {
        let is_piece = self.has_failed;
        Manner { trust_nothing: is_piece, patience: (is_piece || self.apart).then_some(SHORT) }
    }

    fn borrow(&self, units: &[usize]) -> Vec<&Unit> {
        let unit = |at: &usize| self.units.get(*at)?.as_ref().map(|(_, waiting)| &waiting.unit);
        units.iter().filter_map(unit).collect()
    }

    fn answer(&mut self, at: usize, done: Result<Done, WriteError>) {
        if let Some((_, waiting)) = self.units.get_mut(at).and_then(Option::take) {
            self.answered_within += 1;
            waiting.answer(done);
        }
    }

    /// Answers the units that were written, each with its outcome.
    fn answer_each(&mut self, units: Vec<usize>, done: Vec<Result<Done, WriteError>>) {
        for (at, done) in units.into_iter().zip(done) {
            match (&done, self.unit(at)) {
                (Err(WriteError::Stale { .. }), _) => figures::failed("stale", 1),
                (Ok(done), Some(unit)) => figures::decided(unit, &done.outcome),
                (Ok(_) | Err(_), _) => {}
            }
            self.answer(at, done);
        }
    }

    fn unit(&self, at: usize) -> Option<&Unit> {
        self.units.get(at)?.as_ref().map(|(_, waiting)| &waiting.unit)
    }

    fn flow(&self, at: usize) -> Option<&Flow> {
        self.units.get(at)?.as_ref().map(|(flow, _)| flow)
    }

    /// All unanswered units.
    fn take_rest(&mut self) -> Vec<(Flow, Waiting)> {
        self.units.iter_mut().filter_map(Option::take).collect()
    }

    fn answer_rest(&mut self, why: &Arc<str>) {
        let rest = self.take_rest();
        answer_unavailable(rest, why);
    }

    /// The units of a piece whose outcome is unknown: only the database has their sessions' numbers.
    fn forget_chains(&self, units: &[usize]) {
        for part in self.borrow(units).into_iter().filter_map(|unit| unit.fix.as_ref()) {
            part.chain.forget();
        }
    }
}

fn answer_unavailable(units: Vec<(Flow, Waiting)>, why: &Arc<str>) {
    let count = u64::try_from(units.len()).unwrap_or(u64::MAX);
    figures::failed(Fault::Unavailable.as_str(), count);
    for (_, waiting) in units {
        waiting.answer(Err(WriteError::Unavailable(Arc::clone(why))));
    }
}

impl Carrier {
    /// The next batch. Until there is one, committed work that was not handed over is: it has places that other work
    /// waits for.
    async fn next(&mut self) -> Option<NextBatch<Waiting>> {
        while self.connections.has_unconfirmed() {
            match timeout(IDLE, self.queue.next(BATCH_UNITS)).await {
                Ok(next) => return next,
                Err(_) => self.connections.confirm(&self.place).await,
            }
        }
        self.queue.next(BATCH_UNITS).await
    }

    /// Writes a batch and answers all its units, except those that return to the queue.
    async fn carry(&mut self, taken: NextBatch<Waiting>) -> Result<(), Outage> {
        let span = commit_span(&taken);
        let timer = self.running.begin(Instant::now(), taken.units.len());
        self.carry_pieces(Course::of(taken, timer)).instrument(span).await
    }

    async fn carry_pieces(&mut self, mut course: Course) -> Result<(), Outage> {
        let course = &mut course;
        let first = course.flow(0).cloned();
        while let Some(piece) = course.pieces.next() {
            if self.must_pause(course) {
                let rest = course.take_rest();
                warn!(
                    units = rest.len(),
                    "too many failing units of one tenant; the rest waits for the tenant's next turn"
                );
                if let Some((flow, _)) = rest.first() {
                    self.queue.set_apart(flow);
                }
                self.queue.put_back(rest);
                return Ok(());
            }
            loop {
                let open = course.open(piece.clone());
                if open.is_empty() {
                    break;
                }
                match self.connections.commit(&self.place, &course.borrow(&open), course.manner()).await {
                    Ok(done) => {
                        self.probe_after = Duration::ZERO;
                        (course.conflicts, course.slow_in_a_row) = (0, 0);
                        course.answer_each(open, done);
                        break;
                    }
                    Err(failure) => {
                        if self.failed(course, &piece, &open, failure)? == Next::GoOn {
                            break;
                        }
                    }
                }
            }
        }
        if course.apart
            && !course.has_failed
            && let Some(flow) = first
        {
            self.queue.was_good(&flow);
        }
        Ok(())
    }

    /// One tenant's failing units alternate with the others.
    fn must_pause(&self, course: &Course) -> bool {
        course.pieces.is_within() && course.failures_within >= FAILURES_A_TURN && course.answered_within > 0
    }

    /// A transaction failed. Decides what happens to its units.
    fn failed(
        &mut self,
        course: &mut Course,
        piece: &std::ops::Range<usize>,
        open: &[usize],
        failure: Failure,
    ) -> Result<Next, Outage> {
        let Failure { error, fault, is_unknown, timed_out } = failure;
        course.has_failed = true;
        course.failures_within += 1;
        if is_unknown {
            course.forget_chains(open);
            self.connections.trust_nothing();
        }
        match fault {
            Fault::Unavailable if !timed_out && course.reconnects < RECONNECTS => {
                warn!(%error, units = open.len(), "writer connection lost, retrying its units");
                course.reconnects += 1;
                return Ok(Next::Again);
            }
            Fault::Conflict if course.conflicts < CONFLICTS => {
                debug!(%error, "batch conflicted with a concurrent transaction, retrying");
                course.conflicts += 1;
                return Ok(Next::Again);
            }
            Fault::Unavailable => {
                let why: Arc<str> = error.to_string().into();
                course.answer_rest(&why);
                return Err(Outage(why));
            }
            Fault::Data | Fault::Conflict | Fault::Slow => {}
        }
        course.conflicts = 0;
        if course.batch.age() > self.place.limits.transaction {
            error!(%error, "batch exceeded its time limit; its remaining units are answered as unavailable");
            course.answer_rest(&error.to_string().into());
            return Ok(Next::GoOn);
        }
        if open.len() > 1 && course.pieces.split(piece) == Split::Halved {
            debug!(%error, units = open.len(), "batch failed, trying its halves");
            return Ok(Next::GoOn);
        }
        self.failed_alone(course, open, error, fault);
        Ok(Next::GoOn)
    }

    /// One unit cannot be written.
    fn failed_alone(&self, course: &mut Course, open: &[usize], failed: dvp_store::StoreError, fault: Fault) {
        let Some(at) = open.first().copied() else { return };
        let Some((flow, waiting)) = course.units.get(at).and_then(Option::as_ref) else { return };
        // The submitter of a suspect unit has already logged it.
        if flow.source != UnitSource::Suspect {
            let _entered = waiting.span.enter();
            error!(
                error = %failed, kind = fault.as_str(), work = waiting.unit.work.as_str(),
                subject = waiting.unit.work.subject(), partner = flow.tenant.partner_id, flow = ?flow.source,
                "unit rejected by the database and rolled back; its caller gets an error"
            );
        }
        figures::failed(fault.as_str(), 1);
        self.queue.set_apart(flow);
        if fault == Fault::Data {
            course.answer(at, Err(WriteError::Store(failed)));
            return;
        }
        let why: Arc<str> = failed.to_string().into();
        course.answer(at, Err(WriteError::Slow(Arc::clone(&why))));
        course.slow_in_a_row += 1;
        if course.slow_in_a_row >= SLOW_IN_A_ROW {
            course.answer_rest(&why);
        }
    }

    /// Answers all units immediately until the database is available. `false`: the queue has ended.
    async fn wait_out(&mut self, outage: &Outage) -> bool {
        let began = Instant::now();
        let mut answered = 0_usize;
        error!(
            error = %outage.0,
            "database unavailable; units are answered as unavailable until a connection succeeds"
        );
        figures::available(false);
        let mut why = Arc::clone(&outage.0);
        loop {
            let Self { place, queue, connections, probe_after, .. } = self;
            let pause = *probe_after;
            let probe = async {
                tokio::time::sleep(pause).await;
                connections.probe(place).await
            };
            let mut probe = std::pin::pin!(probe);
            let probed = loop {
                tokio::select! {
                    probed = &mut probe => break probed,
                    waiting = queue.all() => match waiting {
                        Some(waiting) => {
                            answered += waiting.len();
                            answer_unavailable(waiting, &why);
                        }
                        None => return false,
                    },
                }
            };
            *probe_after = (*probe_after * 2).clamp(PROBE_MIN, PROBE_MAX);
            match probed {
                Ok(()) => break,
                Err(error) => {
                    debug!(%error, next_ms = probe_after.as_millis(), "database still unavailable");
                    why = error.to_string().into();
                }
            }
        }
        info!(after_ms = began.elapsed().as_millis(), answered, "database available again");
        self.connections.trust_nothing();
        figures::available(true);
        true
    }
}

/// What to do with a piece whose transaction failed.
#[derive(PartialEq, Eq)]
enum Next {
    /// Retry the same piece.
    Again,
    /// Continue with the next piece.
    GoOn,
}

//! One session: its state machine, its connection when there is one, and its place in the commit order.
//!
//! ```text
//! socket ──> Session ──outputs──> commits (in flight, bounded) ──acknowledged──> socket
//! ```
//!
//! Messages are read while earlier ones are being committed; when too many are in flight, reading stops and the
//! peer's TCP window fills. Everything leaves in the order of `pending`, so numbers leave in order. A commit that
//! fails ends the connection and the numbers are loaded anew: what the peer was not told, it asks for.

mod limiter;
mod metrics;
mod outgoing;
mod presence;
mod reason;

use std::{
    collections::VecDeque,
    pin::Pin,
    sync::Arc,
    time::{Duration, Instant},
};

use dvp_fix::{
    SeqNum,
    codec::{Garbled, MessageRef},
    schedule::{Epoch, Schedule},
    session::{Output, Session, SessionConfig, Stored, Transmit},
};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use self::metrics::{Picture, SessionMetrics};
use crate::{
    application::{Application, Commit, Numbers, Turn, Unavailable, UnderWay},
    clock,
    connection::{Attach, Connection, Inbound, Pass},
    limits::MessageLimits,
};
use limiter::Limiter;
pub(crate) use outgoing::Outgoing;
pub use outgoing::SlowConsumer;
use reason::CloseReason;

/// Commits in flight at most; beyond that the socket is not read.
const IN_FLIGHT_MAX: usize = 256;
/// Bytes encoded before they are written, though more frames wait to be read.
const OUT_MAX: usize = 64 * 1024;
/// What a peer hears that sends more than it may.
const RATE_TEXT: &str = "message rate exceeded";
/// Between attempts to load a session's numbers.
const RETRY: Duration = Duration::from_millis(500);

/// Runs one session, connected or not.
pub struct Driver<A> {
    app: A,
    session: Session,
    connection: Option<Connection>,
    /// How the connection's peer was let in.
    pass: Option<Pass>,
    /// Is the Logon that comes next the one that was let in?
    is_admitted: bool,
    limiter: Limiter,
    /// The peer has been told to go, and what it still sends is not looked at, but for its Logout.
    is_cut_off: bool,
    attach: mpsc::Receiver<Attach>,
    pending: VecDeque<Pending>,
    /// Session messages of this turn, which follow the commit of their numbers.
    batch: Vec<Transmit>,
    /// Are there numbers of this turn that no commit has yet?
    dirty: bool,
    /// The outbound number as of the last commit queued.
    enqueued_out: SeqNum,
    /// Counts connections, so that what was meant for one does not go to the next.
    generation: u64,
    /// What may be written, in the form of the wire.
    out: Outgoing,
    slow_consumer: SlowConsumer,
    /// A slice of a resend that waits until the peer has taken what is before it.
    fetch: Option<(SeqNum, SeqNum)>,
    /// A connection that gets the session if the present one turns out to be dead, and when that is decided.
    newcomer: Option<(Box<Attach>, Instant)>,
    /// Told to stop: when patience with the peer's Logout ends.
    draining: Option<Instant>,
    /// Messages of the turn under way that are durable already.
    ready: Vec<Transmit>,
    name: String,
    metrics: SessionMetrics,
}

/// What has to leave, in order.
enum Pending {
    /// `next_in` is durable with it.
    Commit {
        commit: UnderWay,
        generation: u64,
        next_in: SeqNum,
        since: Instant,
    },
    Message(Transmit),
    Close,
}

/// Why a turn could not be finished.
enum Broken {
    /// The connection; the session stays as it is.
    Connection(CloseReason),
    /// The store: what is in memory may be ahead of it.
    Store(Unavailable),
}

impl From<Unavailable> for Broken {
    fn from(error: Unavailable) -> Self {
        Self::Store(error)
    }
}

/// What woke the driver.
enum Event {
    Attached(Box<Attach>),
    /// The socket took or gave bytes.
    Progress(std::io::Result<()>),
    Committed(Result<Vec<Stored>, Unavailable>),
    Timer,
    Reports,
    /// The peer takes nothing.
    Stalled,
    /// The present connection did not answer.
    TakeOver,
    Shutdown,
}

impl<A: Application> Driver<A> {
    /// A driver that takes its connections from `attach`.
    pub fn new(app: A, config: SessionConfig, attach: mpsc::Receiver<Attach>) -> Self {
        let name = config.session_id();
        let metrics = SessionMetrics::new(&name);
        let session = Session::new(Arc::new(config), clock::now(), SeqNum::FIRST, SeqNum::FIRST);
        Self {
            app,
            session,
            connection: None,
            pass: None,
            is_admitted: false,
            limiter: Limiter::new(MessageLimits::default(), clock::now().mono),
            is_cut_off: false,
            attach,
            pending: VecDeque::new(),
            batch: Vec::new(),
            dirty: false,
            enqueued_out: SeqNum::FIRST,
            generation: 0,
            out: Outgoing::default(),
            slow_consumer: SlowConsumer::default(),
            fetch: None,
            newcomer: None,
            draining: None,
            ready: Vec::new(),
            name,
            metrics,
        }
    }

    /// Changes what a peer may leave unread.
    #[must_use]
    pub const fn with_slow_consumer(mut self, slow_consumer: SlowConsumer) -> Self {
        self.slow_consumer = slow_consumer;
        self
    }

    /// Runs until told to stop, or until nobody can attach any more. Then logs out, waits a while for the peer's
    /// Logout, and for what is in flight.
    pub async fn run(mut self, shutdown: CancellationToken) {
        if !self.load(&shutdown).await {
            return;
        }
        loop {
            let event = self.next_event(&shutdown).await;
            let turn = match event {
                Event::Shutdown if self.draining.is_some() => break,
                Event::Shutdown => self.begin_draining().await,
                event => self.handle(event).await,
            };
            if let Err(broken) = turn {
                self.recover(broken, &shutdown).await;
            }
            self.show();
            if self.connection.is_none() {
                if self.draining.is_some() {
                    break;
                }
                if let Some((attach, _)) = self.newcomer.take()
                    && let Err(broken) = self.attached(attach).await
                {
                    self.recover(broken, &shutdown).await;
                }
            }
        }
        if self.settle().await.is_err() {
            debug!(session = self.name, "could not finish what was in flight");
        }
        self.hang_up(CloseReason::Draining).await;
    }

    fn show(&self) {
        self.metrics.show(&Picture {
            next_in: self.session.next_in(),
            next_out: self.session.next_out(),
            is_connected: self.connection.is_some(),
            has_gap: self.session.has_gap(),
            bytes_queued: self.out.len(),
        });
    }

    /// Is there room for what reading, or a report, leads to?
    fn may_take_more(&self) -> bool {
        self.pending.len() < IN_FLIGHT_MAX && self.out.len() < OUT_MAX && self.fetch.is_none()
    }

    async fn next_event(&mut self, shutdown: &CancellationToken) -> Event {
        let may_take_more = self.may_take_more();
        let timer = self.session.poll_timeout();
        // What happens between two sessions is reported in the next: a number of this one would be forgotten with it.
        let may_report = may_take_more && self.session.is_open() && self.draining.is_none();
        let stall = self.out.gives_up_at(self.slow_consumer);
        let take_over = self.newcomer.as_ref().map(|(_, at)| *at);
        let draining = self.draining;
        let commit = self.pending.front_mut().and_then(|pending| match pending {
            Pending::Commit { commit, .. } => Some(commit),
            Pending::Message(_) | Pending::Close => None,
        });
        tokio::select! {
            () = shutdown.cancelled(), if draining.is_none() => Event::Shutdown,
            () = sleep_until(draining) => Event::Shutdown,
            done = wait(commit) => Event::Committed(done),
            done = progress(self.connection.as_mut(), &mut self.out, may_take_more) => Event::Progress(done),
            () = sleep_until(timer) => Event::Timer,
            () = sleep_until(stall) => Event::Stalled,
            () = sleep_until(take_over) => Event::TakeOver,
            attached = self.attach.recv(), if draining.is_none() =>
                attached.map_or(Event::Shutdown, |attach| Event::Attached(Box::new(attach))),
            () = self.app.wait_for_reports(), if may_report => Event::Reports,
        }
    }

    async fn handle(&mut self, event: Event) -> Result<(), Broken> {
        match event {
            Event::Attached(attach) => self.attached(attach).await?,
            Event::Progress(Ok(())) => {}
            Event::Progress(Err(error)) => {
                debug!(session = self.name, %error, "connection ended");
                return Err(Broken::Connection(CloseReason::PeerClosed));
            }
            Event::Committed(done) => self.committed(done?),
            Event::Timer => {
                self.session.handle_timeout(clock::now());
                self.drain(None).await?;
                if let Some(connection) = &mut self.connection {
                    connection.rest();
                    self.out.shrink();
                }
            }
            Event::Reports => {
                let (app, mut turn) = self.turn();
                if let Some(commit) = app.report(&mut turn).await? {
                    self.push_commit(commit, self.session.next_in());
                }
            }
            Event::Stalled if self.has_stalled() => {
                return Err(Broken::Connection(CloseReason::SlowConsumer));
            }
            // It took something meanwhile.
            Event::Stalled => {}
            Event::TakeOver => return Err(Broken::Connection(CloseReason::TakenOver)),
            Event::Shutdown => {}
        }
        loop {
            if self.fetch.is_some() {
                self.drain(None).await?;
            }
            self.read_frames().await?;
            let was_held_up = !self.may_take_more();
            self.write_out().await?;
            // What was held up until now may have nothing else to wait for.
            if !was_held_up || !self.may_take_more() && !self.may_fetch() || self.connection.is_none() {
                break;
            }
        }
        self.judge_newcomer();
        Ok(())
    }

    const fn may_fetch(&self) -> bool {
        self.fetch.is_some() && self.out.len() < OUT_MAX
    }

    fn has_stalled(&self) -> bool {
        let now = clock::now().mono;
        self.out.gives_up_at(self.slow_consumer).is_some_and(|at| at <= now)
    }

    /// Takes frames that were read already, as long as there is room in flight.
    async fn read_frames(&mut self) -> Result<(), Broken> {
        let Some(connection) = &mut self.connection else { return Ok(()) };
        // Taken out while its frames are looked at, so that none has to be copied.
        let mut inbound = std::mem::take(&mut connection.inbound);
        let done = self.take_frames(&mut inbound).await;
        if let Some(connection) = &mut self.connection {
            connection.inbound = inbound;
        }
        done
    }

    async fn take_frames(&mut self, inbound: &mut Inbound) -> Result<(), Broken> {
        while self.may_take_more() {
            let Some(connection) = &self.connection else { return Ok(()) };
            match inbound.next(connection.frame_max) {
                Ok(Some(frame)) => self.frame(frame).await?,
                Ok(None) => return Ok(()),
                Err(error) => {
                    warn!(session = self.name, %error, "connection given up");
                    return Err(Broken::Connection(CloseReason::FrameTooLong));
                }
            }
            self.encode_ready();
            if self.out.len() >= OUT_MAX {
                self.write_out().await?;
            }
        }
        Ok(())
    }

    async fn frame(&mut self, frame: Result<MessageRef<'_>, Garbled>) -> Result<(), Broken> {
        match frame {
            Ok(message) => {
                let now = clock::now();
                if self.is_cut_off && message.msg_type() != b"5" {
                    return Ok(());
                }
                if !self.limiter.count(message.msg_type(), now.mono) {
                    return self.cut_off(now).await;
                }
                self.session.handle_message(now, message);
                self.drain(Some(message)).await
            }
            Err(error) => {
                debug!(session = self.name, %error, "garbled message ignored");
                self.session.handle_garbled(clock::now());
                self.drain(None).await
            }
        }
    }

    async fn attached(&mut self, attach: Box<Attach>) -> Result<(), Broken> {
        if self.session.is_connected() || self.connection.is_some() {
            return self.second_connection(attach).await;
        }
        let Attach { connection, logon, pass } = *attach;
        debug!(session = self.name, peer = %connection.peer, "logon");
        self.generation += 1;
        self.connection = Some(connection);
        let now = clock::now();
        self.limiter = Limiter::new(pass.admission.limits, now.mono);
        self.pass = Some(pass);
        (self.is_admitted, self.is_cut_off) = (true, false);
        self.session.connect(now);
        self.session.handle_message(now, logon.view());
        let done = self.drain(Some(logon.view())).await;
        self.is_admitted = false;
        done
    }

    /// Carries out the session's outputs, in order. `handed_in` is the message they are about.
    async fn drain(&mut self, handed_in: Option<MessageRef<'_>>) -> Result<(), Broken> {
        loop {
            if let Some((from, to)) = self.fetch {
                if self.out.len() >= OUT_MAX {
                    // What comes next waits until the peer has taken what came before.
                    break;
                }
                self.fetch = None;
                let stored = self.app.stored(from, to).await?;
                self.session.handle_stored(clock::now(), to, stored);
            }
            let Some(output) = self.session.poll_output() else { break };
            self.carry_out(output, handed_in).await?;
        }
        self.flush_batch().await
    }

    async fn carry_out(&mut self, output: Output, handed_in: Option<MessageRef<'_>>) -> Result<(), Broken> {
        match output {
            Output::Authenticate(_) => {
                let is_genuine = self.may_log_on(handed_in).await;
                self.session.handle_authentication(clock::now(), is_genuine);
            }
            Output::Persist { .. } => self.dirty = true,
            Output::Transmit(message) => self.batch.push(message),
            Output::LoggedOn => {
                if let Some(connection) = &mut self.connection {
                    connection.trust();
                }
                info!(session = self.name, next_in = %self.session.next_in(), "logged on");
                self.app.connected(true);
            }
            Output::Reset => {
                self.settle().await?;
                self.reset().await?;
            }
            Output::Epoch(epoch) => {
                self.settle().await?;
                self.app.begin_epoch(epoch).await?;
            }
            Output::Deliver { queued, .. } => {
                if let Some(message) = queued.as_ref().map(|queued| queued.view()).or(handed_in) {
                    self.deliver(message).await?;
                }
            }
            Output::Fetch { from, to } => {
                // What is in flight belongs to the range too: a gap fill over it would lose it for the peer.
                self.settle().await?;
                self.fetch = Some((from, to));
            }
            Output::Disconnect => {
                self.flush_batch().await?;
                self.pending.push_back(Pending::Close);
            }
        }
        Ok(())
    }

    /// The first Logon of a connection was looked at by the gatekeeper before it came here; one inside a session (it
    /// asks for a reset) is looked at now.
    async fn may_log_on(&mut self, logon: Option<MessageRef<'_>>) -> bool {
        let (Some(logon), Some(pass)) = (logon, &mut self.pass) else { return false };
        if std::mem::replace(&mut self.is_admitted, false) {
            return true;
        }
        match pass.admits(&logon.to_owned()).await {
            Ok(_) => true,
            Err(reason) => {
                warn!(session = self.name, %reason, "logon inside the session refused");
                false
            }
        }
    }

    async fn deliver(&mut self, message: MessageRef<'_>) -> Result<(), Broken> {
        if self.app.is_about_earlier(message) {
            self.settle().await?;
        }
        self.flush_batch().await?;
        let may_act = self.limiter.may_act(|| clock::now().mono);
        let (app, mut turn) = self.turn();
        let commit = if may_act || is_refusal(message) {
            app.deliver(message, &mut turn).await?
        } else {
            app.refuse(message, RATE_TEXT, &mut turn).await?
        };
        self.dirty = false;
        self.push_commit(commit, self.session.next_in());
        Ok(())
    }

    fn turn(&mut self) -> (&mut A, Turn<'_>) {
        let Self { app, session, enqueued_out, ready, .. } = self;
        (app, Turn::new(session, enqueued_out, ready, clock::now()))
    }

    /// Queues the commit of this turn's numbers, and behind it the session messages that need it.
    async fn flush_batch(&mut self) -> Result<(), Broken> {
        // A resend repeats numbers and needs no commit of its own.
        let has_new = self.batch.iter().any(|message| message.orig_sending_time.is_none());
        if self.dirty && (has_new || self.pending.is_empty()) {
            let (app, mut turn) = self.turn();
            let commit = app.persist(turn.numbers()).await?;
            self.dirty = false;
            self.push_commit(commit, self.session.next_in());
        }
        self.pending.extend(self.batch.drain(..).map(Pending::Message));
        Ok(())
    }

    async fn reset(&mut self) -> Result<(), Broken> {
        let first = SeqNum::FIRST;
        let numbers =
            Numbers { next_in: first, next_out_before: self.enqueued_out, next_out: first, reset: true };
        let commit = self.app.persist(numbers).await?;
        self.enqueued_out = first;
        self.push_commit(commit, first);
        Ok(())
    }

    fn push_commit(&mut self, commit: Commit, next_in: SeqNum) {
        match commit {
            Commit::Ready => {
                self.session.note_durable(next_in);
                self.pending.extend(self.ready.drain(..).map(Pending::Message));
            }
            Commit::UnderWay(commit) => {
                let (generation, since) = (self.generation, clock::now().mono);
                self.pending.push_back(Pending::Commit { commit, generation, next_in, since });
            }
        }
    }

    /// The commit at the front is durable: its messages take its place.
    fn committed(&mut self, messages: Vec<Stored>) {
        let Some(Pending::Commit { generation, next_in, since, .. }) = self.pending.pop_front() else {
            return;
        };
        self.metrics.committed(clock::now().mono.saturating_duration_since(since));
        self.session.note_durable(next_in);
        if generation != self.generation || self.connection.is_none() {
            // Nobody to tell, or somebody who will ask: numbers of a connection before this one.
            return;
        }
        for message in messages.into_iter().rev() {
            self.pending.push_front(Pending::Message(Transmit {
                seq: message.seq,
                msg_type: message.msg_type,
                body: message.body,
                sending_time: message.sending_time,
                orig_sending_time: None,
            }));
        }
    }

    /// Waits for everything in flight, and writes it out.
    async fn settle(&mut self) -> Result<(), Broken> {
        self.flush_batch().await?;
        loop {
            self.encode_ready();
            let Some(Pending::Commit { commit, .. }) = self.pending.front_mut() else { break };
            let done = commit.await?;
            self.committed(done);
        }
        self.write_out().await
    }

    /// Encodes messages from the front of `pending` up to the first commit in flight or the close.
    fn encode_ready(&mut self) {
        while let Some(Pending::Message(_)) = self.pending.front() {
            let Some(Pending::Message(message)) = self.pending.pop_front() else { return };
            if self.connection.is_some() {
                self.metrics.sent(&message);
                self.session.encode(clock::now(), &message, self.out.buffer());
            }
            self.session.recycle(message.body);
        }
    }

    /// Writes what the peer takes at once, and closes when that is what comes next. The rest goes as it is taken.
    async fn write_out(&mut self) -> Result<(), Broken> {
        self.encode_ready();
        if let Some(connection) = self.connection.as_mut().filter(|_| !self.out.is_done()) {
            if let Err(error) = connection.write_now(&mut self.out).await {
                info!(session = self.name, %error, "cannot write");
                return Err(Broken::Connection(CloseReason::PeerClosed));
            }
            if self.out.len() > self.slow_consumer.bytes_max {
                return Err(Broken::Connection(CloseReason::SlowConsumer));
            }
        }
        if matches!(self.pending.front(), Some(Pending::Close)) && self.out.is_done() {
            self.pending.pop_front();
            let reason =
                if self.draining.is_some() { CloseReason::Draining } else { CloseReason::SessionEnded };
            self.hang_up(reason).await;
        }
        Ok(())
    }

    /// Ends the connection. Commits in flight go on; their messages stay in the store.
    async fn hang_up(&mut self, reason: CloseReason) {
        self.out.clear();
        self.batch.clear();
        self.ready.clear();
        self.fetch = None;
        self.pending.retain(|pending| matches!(pending, Pending::Commit { .. }));
        self.session.disconnected();
        self.app.connected(false);
        self.pass = None;
        if let Some(connection) = self.connection.take() {
            info!(session = self.name, peer = %connection.peer, reason = reason.name(), "disconnected");
            self.metrics.disconnected(reason);
            connection.close().await;
        }
    }

    async fn recover(&mut self, broken: Broken, shutdown: &CancellationToken) {
        match broken {
            Broken::Connection(reason) => self.hang_up(reason).await,
            Broken::Store(error) => {
                self.hang_up(CloseReason::StoreFailed).await;
                warn!(session = self.name, %error, "commit failed; the session's numbers are loaded anew");
                self.load(shutdown).await;
            }
        }
    }

    /// Loads the numbers, once nothing is in flight that could change them. `false` when told to stop before.
    async fn load(&mut self, shutdown: &CancellationToken) -> bool {
        while let Some(pending) = self.pending.pop_front() {
            if let Pending::Commit { commit, .. } = pending {
                // Whatever came of it is in the store.
                let _ = commit.await;
            }
        }
        self.dirty = false;
        loop {
            match self.load_session().await {
                Ok((next_in, next_out, epoch)) => {
                    let config = Arc::new(self.session.config().clone());
                    self.session = Session::new(config, clock::now(), next_in, next_out).in_epoch(epoch);
                    self.enqueued_out = next_out;
                    return true;
                }
                Err(error) => warn!(session = self.name, %error, "cannot load the session's numbers"),
            }
            tokio::select! {
                () = shutdown.cancelled() => return false,
                () = tokio::time::sleep(RETRY) => {}
            }
        }
    }

    async fn load_session(&mut self) -> Result<(SeqNum, SeqNum, Option<Epoch>), Unavailable> {
        let (next_in, next_out) = self.app.load().await?;
        let has_schedule = self.session.config().schedule != Schedule::CONTINUOUS;
        let epoch = if has_schedule { self.app.epoch().await? } else { None };
        Ok((next_in, next_out, epoch))
    }
}

/// A BusinessMessageReject is never answered with another.
fn is_refusal(message: MessageRef<'_>) -> bool {
    message.msg_type() == b"j"
}

async fn wait(commit: Option<&mut UnderWay>) -> Result<Vec<Stored>, Unavailable> {
    match commit {
        Some(commit) => Pin::new(commit).await,
        None => std::future::pending().await,
    }
}

async fn progress(
    connection: Option<&mut Connection>,
    out: &mut Outgoing,
    may_read: bool,
) -> std::io::Result<()> {
    match connection {
        Some(connection) => connection.progress(out, may_read).await,
        None => std::future::pending().await,
    }
}

async fn sleep_until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline.into()).await,
        None => std::future::pending().await,
    }
}

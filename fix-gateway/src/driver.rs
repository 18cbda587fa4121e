//! One session: its state machine, its connection if there is one, and its commits.
//!
//! ```text
//! socket ──> Session ──outputs──> commits (in flight, bounded) ──acknowledged──> socket
//! ```
//!
//! Messages are read while earlier ones are being committed; when too many are in flight, reading stops and the peer's
//! TCP window fills. Everything is transmitted in the order of `pending`, so that numbers are in order. After a failed
//! commit the connection ends and the numbers are loaded again; the peer requests the messages that it missed.
//!
//! A MsgSeqNum never identifies two messages: the inbound number, the order's effect and its report are one
//! transaction; of a parked order, the inbound number and the row that parks it are one, and the end of that row, the
//! effect and the report another.
//!
//! Kept by `fix-gateway/tests/it/sessions.rs::numbers_continue_after_a_kill_and_nothing_is_lost_or_repeated`.

mod control;
mod flight;
mod inbound;
mod limiter;
mod metrics;
mod outputs;
mod peer;
mod presence;
mod reached;
mod reason;
mod recovery;
mod resets;
mod wake;

use std::{
    collections::VecDeque,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

use dvp_fix::{
    SeqNum, UtcNanos,
    session::{Now, ResendSlice, Session, SessionConfig, Transmit},
};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use self::metrics::{Picture, SessionMetrics};
use crate::{
    application::{Application, Unavailable},
    archive::Recorder,
    clock,
    connection::{Attach, Outgoing, SlowConsumer},
    limits::Pace,
    status::{Noted, Slot},
};
pub(crate) use control::{Ask, Control};
use flight::Pending;
use peer::Peer;
use reached::Reached;
use reason::CloseReason;
use resets::Resets;
use wake::{Alarm, Event};

/// The maximum number of commits in flight; beyond it the socket is not read.
const IN_FLIGHT_MAX: usize = 256;
/// Bytes encoded before they are written, even if more frames are unread.
const OUT_MAX: usize = 64 * 1024;
/// The Logout text when this process stops.
const DRAIN_TEXT: &str = "server draining, please reconnect";
const RATE_TEXT: &str = "message rate exceeded";

/// Runs one session, connected or not.
pub struct Driver<A> {
    app: A,
    session: Session,
    peer: Option<Peer>,
    attach: mpsc::Receiver<Attach>,
    /// Operators' commands; `None` where there are none.
    control: Option<mpsc::Receiver<Control>>,
    /// A command that is executed after the disconnect, and the time limit of the connection.
    errand: Option<(Control, Instant)>,
    /// The session is released as soon as its peer disconnects.
    ends_when_idle: bool,
    /// The numbers are those of the store, or follow from them. Not so from a failed commit until they are loaded again.
    is_loaded: bool,
    /// The numbers that the peer has received.
    reached: Reached,
    pending: VecDeque<Pending>,
    /// Session messages of this turn, which follow the commit of their numbers.
    batch: Vec<Transmit>,
    /// The inbound number that the session wants to be durable, until a commit with it is queued. The session's own
    /// number may be past a message that is still to be delivered.
    unqueued_in: Option<SeqNum>,
    /// The outbound number of the last queued commit.
    enqueued_out: SeqNum,
    /// Counts connections, so that messages for one connection do not go to the next.
    generation: u64,
    /// Encoded bytes to be written.
    out: Outgoing,
    slow_consumer: SlowConsumer,
    /// A slice of a resend that waits until the peer has taken the previous one, for the resend pace, and for other
    /// events.
    fetch: Option<ResendSlice>,
    resend_pace: Pace,
    read_pace: Pace,
    resets: Resets,
    /// Cancelled when the driver is to stop.
    stop: CancellationToken,
    /// A second connection that gets the session if the present one does not answer, and when that is decided.
    newcomer: Option<(Box<Attach>, Instant)>,
    /// After a stop: the time limit for the peer's Logout.
    draining: Option<Instant>,
    /// Both clocks, as of the beginning of the turn or of its last wait.
    now: Now,
    /// The timer of the earliest deadline.
    alarm: Alarm,
    /// Hands messages over to the archive.
    recorder: Option<Recorder>,
    /// Counts turns, so that socket and reports are checked first alternately.
    turns: usize,
    name: String,
    metrics: SessionMetrics,
    /// Whether a peer is connected, for others.
    is_connected: Arc<AtomicBool>,
    /// When the last messages were read and written.
    last_in: Option<UtcNanos>,
    last_out: Option<UtcNanos>,
    /// Where operators see the session's state.
    slot: Option<Arc<Slot>>,
}

/// Why a turn failed.
enum Broken {
    /// The connection failed; the session's state is valid.
    Connection(CloseReason),
    /// The store failed: the state in memory may be ahead of it.
    Store(Unavailable),
}

impl From<Unavailable> for Broken {
    fn from(error: Unavailable) -> Self {
        Self::Store(error)
    }
}

impl<A: Application> Driver<A> {
    /// A driver that gets its connections from `attach`.
    pub fn new(app: A, config: SessionConfig, attach: mpsc::Receiver<Attach>) -> Self {
        let name = config.session_id();
        let metrics = SessionMetrics::new(&name);
        let now = clock::now();
        let session = Session::new(Arc::new(config), now, SeqNum::FIRST, SeqNum::FIRST);
        Self {
            app,
            session,
            peer: None,
            attach,
            control: None,
            errand: None,
            ends_when_idle: false,
            is_loaded: false,
            reached: Reached::default(),
            pending: VecDeque::new(),
            batch: Vec::new(),
            unqueued_in: None,
            enqueued_out: SeqNum::FIRST,
            generation: 0,
            out: Outgoing::default(),
            slow_consumer: SlowConsumer::default(),
            fetch: None,
            resend_pace: Pace::RESENDS,
            read_pace: Pace::READS,
            resets: Resets::new(now.mono),
            stop: CancellationToken::new(),
            newcomer: None,
            draining: None,
            now,
            alarm: Alarm::default(),
            recorder: None,
            turns: 0,
            name,
            metrics,
            is_connected: Arc::default(),
            last_in: None,
            last_out: None,
            slot: None,
        }
    }

    /// Whether a peer is connected, from now on.
    pub(crate) fn is_connected(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.is_connected)
    }

    /// Sets the channel of operators' commands.
    #[must_use]
    pub(crate) fn with_control(mut self, control: mpsc::Receiver<Control>) -> Self {
        self.control = Some(control);
        self
    }

    /// Sets where messages are recorded.
    #[must_use]
    pub(crate) fn with_recorder(mut self, recorder: Option<Recorder>) -> Self {
        self.recorder = recorder;
        self
    }

    /// Sets where the session's state is noted for operators.
    #[must_use]
    pub(crate) fn with_slot(mut self, slot: Arc<Slot>) -> Self {
        self.slot = Some(slot);
        self
    }

    /// Sets the limits of unread output.
    #[must_use]
    pub const fn with_slow_consumer(mut self, slow_consumer: SlowConsumer) -> Self {
        self.slow_consumer = slow_consumer;
        self
    }

    /// Sets the pace of resends.
    #[must_use]
    pub const fn with_resend_pace(mut self, resend_pace: Pace) -> Self {
        self.resend_pace = resend_pace;
        self
    }

    /// Sets the pace at which a connection is read; the peer's TCP window does the rest.
    #[must_use]
    pub const fn with_read_pace(mut self, read_pace: Pace) -> Self {
        self.read_pace = read_pace;
        self
    }

    /// Runs until shutdown is requested, or until `attach` is closed. Then logs out, and waits for the peer's Logout,
    /// within a limit, and for the commits in flight.
    pub async fn run(mut self, shutdown: CancellationToken) {
        self.stop = shutdown.clone();
        if !self.load(&shutdown).await {
            return;
        }
        let mut stop = pin!(shutdown.clone().cancelled_owned());
        loop {
            let event = self.next_event(stop.as_mut()).await;
            self.read_clocks();
            let turn = match event {
                Event::Shutdown if self.draining.is_some() => break,
                Event::Shutdown => self.begin_end(DRAIN_TEXT).await,
                event => self.handle(event).await,
            };
            if let Err(broken) = turn {
                self.recover(broken, &shutdown).await;
            }
            self.show();
            if let Some(recorder) = &mut self.recorder {
                recorder.hand_over();
            }
            // The stop was requested before the numbers could be loaded.
            if !self.is_loaded {
                break;
            }
            if self.peer.is_none() {
                if let Err(broken) = self.run_errand().await {
                    self.recover(broken, &shutdown).await;
                }
                if self.draining.is_some() || self.ends_when_idle || !self.is_loaded {
                    break;
                }
                if let Some((attach, _)) = self.newcomer.take()
                    && let Err(broken) = self.attached(attach).await
                {
                    self.recover(broken, &shutdown).await;
                }
                if let Err(broken) = self.keep_mark().await {
                    self.recover(broken, &shutdown).await;
                }
            }
        }
        self.finish().await;
    }

    /// Waits for everything in flight, and closes the connection.
    async fn finish(mut self) {
        if self.settle().await.is_err() {
            debug!(session = self.name, "could not finish what was in flight");
        }
        self.hang_up(CloseReason::Draining).await;
        if self.keep_mark().await.is_err() || self.settle().await.is_err() {
            debug!(
                session = self.name,
                "what the peer has seen is not recorded; it may be sent again after a reset"
            );
        }
        if let Some(recorder) = &mut self.recorder {
            recorder.hand_over();
        }
    }

    /// The only function of a driver that reads the clocks.
    fn read_clocks(&mut self) {
        self.now = clock::now();
    }

    fn show(&self) {
        self.is_connected.store(self.peer.is_some(), Ordering::Relaxed);
        let (next_in, next_out, gap) = (self.session.next_in(), self.session.next_out(), self.session.gap());
        if let Some(slot) = &self.slot {
            let peer = self.peer.as_ref().map(|peer| (peer.connection.peer, peer.since));
            slot.note(Noted { peer, last_in: self.last_in, last_out: self.last_out, next_in, next_out, gap });
        }
        self.metrics.show(&Picture {
            next_in,
            next_out,
            is_connected: self.peer.is_some(),
            has_gap: gap.is_some(),
            bytes_queued: self.out.len(),
        });
    }

    /// Is there room for the results of a read, or of a report?
    fn may_take_more(&self) -> bool {
        self.pending.len() < IN_FLIGHT_MAX && self.out.len() < OUT_MAX && self.fetch.is_none()
    }

    async fn handle(&mut self, event: Event) -> Result<(), Broken> {
        match event {
            Event::Attached(attach) => self.attached(attach).await?,
            Event::Progress(Ok(bytes)) => {
                if let Some(peer) = &mut self.peer {
                    peer.read.spend(self.read_pace, bytes, self.now.mono);
                }
            }
            Event::Progress(Err(error)) => {
                debug!(session = self.name, %error, "connection ended");
                return Err(Broken::Connection(CloseReason::PeerClosed));
            }
            Event::Committed(done) => {
                self.committed(done)?;
                while let Some(done) = self.next_committed().await {
                    self.committed(done)?;
                }
            }
            Event::Timer => {
                self.session.handle_timeout(self.now);
                self.drain(None).await?;
                if let Some(peer) = &mut self.peer {
                    peer.connection.rest();
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
            // The socket has taken bytes meanwhile.
            Event::Stalled => {}
            Event::TakeOver => return Err(Broken::Connection(CloseReason::TakenOver)),
            Event::Chore => {
                let (app, mut turn) = self.turn();
                if let Some(commit) = app.handle_timeout(&mut turn).await? {
                    self.push_commit(commit, self.session.next_in());
                }
            }
            Event::Control(control) => self.controlled(control).await?,
            Event::ErrandDue => return Err(Broken::Connection(CloseReason::Operator)),
            Event::ForwarderStops => self.forwarder_stops().await?,
            // A store in memory waits for nothing: other tasks of the thread run between slices.
            Event::Resend => tokio::task::yield_now().await,
            Event::Read | Event::Shutdown => {}
        }
        loop {
            if self.fetch.is_some() {
                self.drain(None).await?;
            }
            self.read_frames().await?;
            let was_held_up = !self.may_take_more();
            self.write_out().await?;
            // Output that was held back may have nothing else to wait for. The next slice of a resend is an event.
            if !was_held_up || !self.may_take_more() || self.peer.is_none() {
                break;
            }
        }
        self.judge_newcomer();
        Ok(())
    }

    /// Is a slice of a resend due?
    fn may_fetch(&self) -> bool {
        self.resend_goes_on_at().is_some_and(|at| at <= self.now.mono)
    }

    /// When the next slice of a resend is due; `None` when there is none, or the peer must take earlier bytes first.
    fn resend_goes_on_at(&self) -> Option<Instant> {
        let peer = self.peer.as_ref().filter(|_| self.fetch.is_some() && self.out.len() < OUT_MAX)?;
        Some(peer.resent.goes_on_at(self.resend_pace))
    }

    /// When the connection is read again, if it has to wait for its pace.
    fn reads_at(&self) -> Option<Instant> {
        self.peer.as_ref()?.reads_at(self.read_pace, self.now.mono)
    }

    fn has_stalled(&self) -> bool {
        self.out.gives_up_at(self.slow_consumer).is_some_and(|at| at <= self.now.mono)
    }

    async fn attached(&mut self, attach: Box<Attach>) -> Result<(), Broken> {
        if self.session.is_connected() || self.peer.is_some() {
            return self.second_connection(attach).await;
        }
        let Attach { connection, logon, pass, stopping } = *attach;
        debug!(session = self.name, peer = %connection.peer, "logon");
        self.generation += 1;
        // The slice may have waited for the previous one.
        self.read_clocks();
        let now = self.now;
        if let Some(recorder) = &mut self.recorder {
            recorder.read(now.utc, logon.view().bytes());
        }
        self.last_in = Some(now.utc);
        self.peer = Some(Peer::new(connection, pass, stopping, now));
        self.reached.connected();
        self.session.connect(now);
        self.session.handle_message(now, logon.view());
        let done = self.drain(Some(logon.view())).await;
        if let Some(peer) = &mut self.peer {
            peer.logged_on();
        }
        done
    }
}

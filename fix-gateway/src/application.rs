//! The application behind a session's driver: it stores the messages and processes them.

use std::{future::Future, pin::Pin, time::Instant};

use dvp_fix::{
    SeqNum, Stamp,
    codec::{Body, MessageRef},
    schedule::Epoch,
    session::{Now, ResendSlice, Session, Stored},
};

/// The store failed. The connection ends; the peer sends unacknowledged messages again.
#[derive(Debug, thiserror::Error)]
#[error("{why}")]
pub struct Unavailable {
    why: String,
    is_data: bool,
}

impl Unavailable {
    /// The store is unavailable or overloaded: a retry may succeed.
    pub const fn new(why: String) -> Self {
        Self { why, is_data: false }
    }

    /// The data violates a rule: a retry fails in the same way.
    pub const fn data(why: String) -> Self {
        Self { why, is_data: true }
    }

    /// Whether a retry fails in the same way.
    pub const fn is_data(&self) -> bool {
        self.is_data
    }
}

/// Work in the order of the commits. Resolves once everything is durable, to the messages that may then be transmitted,
/// by ascending number. The work proceeds without being polled.
pub type Commit = Pin<Box<dyn Future<Output = Result<Vec<Stored>, Unavailable>> + Send>>;

/// A session's numbers before and after a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Numbers {
    pub next_in: SeqNum,
    pub next_out_before: SeqNum,
    pub next_out: SeqNum,
    /// Both numbers restart at 1, and stored messages are deleted.
    pub reset: bool,
    /// The numbers of messages that the peer has received.
    pub reach: Reach,
}

/// The numbers of our messages that the peer has received.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Reach {
    /// The peer has received messages up to this number, as far as is known. The value may lag.
    pub seen: SeqNum,
    /// Messages beyond this number have not been written to a socket. The value may be too high.
    pub written: SeqNum,
    /// The highest number of an application message.
    pub stored: SeqNum,
}

/// Numbers that do not continue the previous ones: after a reset, or set by an operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Renumbering {
    pub next_in: SeqNum,
    pub next_out_before: SeqNum,
    /// The next outbound number when no message is kept.
    pub next_out: SeqNum,
    /// Stored messages that the peer has not received, and still needs, are renumbered from here on.
    pub first_kept: SeqNum,
    /// The received numbers before the change.
    pub reach: Reach,
}

impl Renumbering {
    /// The numbers afterwards, when this many messages are kept.
    pub const fn numbers(&self, kept: u64) -> Numbers {
        let next_out = if kept == 0 { self.next_out } else { SeqNum(self.first_kept.0.saturating_add(kept)) };
        let stored = if kept == 0 { SeqNum(0) } else { next_out.previous() };
        let reach = Reach { seen: SeqNum(0), written: SeqNum(0), stored };
        Numbers { next_in: self.next_in, next_out_before: self.next_out_before, next_out, reset: true, reach }
    }
}

/// The store and the business logic of one session.
pub trait Application: Send + 'static {
    /// The session's present next inbound and next outbound number.
    fn load(&mut self) -> impl Future<Output = Result<(SeqNum, SeqNum), Unavailable>> + Send;

    /// The schedule window of the stored numbers; `None` when it was never recorded. Only needed for a session with a
    /// schedule.
    fn epoch(&mut self) -> impl Future<Output = Result<Option<Epoch>, Unavailable>> + Send {
        std::future::ready(Ok(None))
    }

    /// Makes the window of the numbers durable.
    fn begin_epoch(&mut self, _: Epoch) -> impl Future<Output = Result<(), Unavailable>> + Send {
        std::future::ready(Ok(()))
    }

    /// Makes numbers durable that belong to no application message.
    fn persist(&mut self, numbers: Numbers) -> impl Future<Output = Result<Commit, Unavailable>> + Send;

    /// Makes a reset of the numbers durable, and in the same commit renumbers the messages that the peer has not
    /// received. Returns their number. An application without a store keeps none.
    fn renumber(
        &mut self,
        to: Renumbering,
    ) -> impl Future<Output = Result<(Commit, u64), Unavailable>> + Send {
        let commit = self.persist(to.numbers(0));
        async { Ok((commit.await?, 0)) }
    }

    /// Makes numbers durable that an operator has set. The outbound number has not decreased, the inbound one may have.
    fn set_numbers(&mut self, numbers: Numbers) -> impl Future<Output = Result<Commit, Unavailable>> + Send {
        self.persist(numbers)
    }

    /// The received numbers as they were loaded.
    fn reach(&mut self) -> impl Future<Output = Result<Reach, Unavailable>> + Send {
        std::future::ready(Ok(Reach::default()))
    }

    /// When [`Application::handle_timeout`] must be called.
    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    /// Processes due work, regardless of the session's schedule. A commit of the turn's numbers, if it took them.
    fn handle_timeout(
        &mut self,
        _: &mut Turn<'_>,
    ) -> impl Future<Output = Result<Option<Commit>, Unavailable>> + Send {
        std::future::ready(Ok(None))
    }

    /// Processes an application message. Answers are numbered with [`Turn::reserve`]; the message's effect and
    /// [`Turn::numbers`] are one commit. Returns once the commit is queued.
    fn deliver(
        &mut self,
        message: MessageRef<'_>,
        turn: &mut Turn<'_>,
    ) -> impl Future<Output = Result<Commit, Unavailable>> + Send;

    /// Answers an application message with a BusinessMessageReject (throttled) instead of processing it. Only needed for a
    /// session whose message rate is limited.
    fn refuse(
        &mut self,
        _: MessageRef<'_>,
        _: &str,
        _: &mut Turn<'_>,
    ) -> impl Future<Output = Result<Commit, Unavailable>> + Send {
        std::future::ready(Err(Unavailable::new("no message is refused here".to_owned())))
    }

    /// Must everything before this message be durable before it is delivered?
    fn is_about_earlier(&self, _: MessageRef<'_>) -> bool {
        false
    }

    /// The first stored messages of a range, ascending. Fewer than the limit mean that no more are stored. An application
    /// without a store has none.
    fn stored(&mut self, _: ResendSlice) -> impl Future<Output = Result<Vec<Stored>, Unavailable>> + Send {
        std::future::ready(Ok(Vec::new()))
    }

    /// Waits until [`Application::report`] may have something. May be dropped at any time.
    fn wait_for_reports(&mut self) -> impl Future<Output = ()> + Send {
        std::future::pending()
    }

    /// Takes and numbers the pending reports; `None` when there are none.
    fn report(
        &mut self,
        _: &mut Turn<'_>,
    ) -> impl Future<Output = Result<Option<Commit>, Unavailable>> + Send {
        std::future::ready(Ok(None))
    }

    /// The peer has logged on, or has disconnected.
    fn connected(&mut self, _: bool) {}
}

/// Assigns numbers for one commit.
pub struct Turn<'a> {
    session: &'a mut Session,
    enqueued_out: &'a mut SeqNum,
    reach: &'a mut Reach,
    now: Now,
}

impl<'a> Turn<'a> {
    pub(crate) const fn new(
        session: &'a mut Session,
        enqueued_out: &'a mut SeqNum,
        reach: &'a mut Reach,
        now: Now,
    ) -> Self {
        Self { session, enqueued_out, reach, now }
    }

    /// The next outbound number.
    pub fn reserve(&mut self) -> SeqNum {
        let seq = self.session.reserve();
        self.reach.stored = seq;
        seq
    }

    /// SendingTime(52) of the messages numbered in this turn.
    pub fn sending_time(&self) -> Stamp {
        self.session.stamp_of(self.now.utc)
    }

    /// An empty body, with a reused buffer if there is one.
    pub fn body(&mut self) -> Body {
        self.session.body()
    }

    /// The numbers after this turn. Called once, when all are reserved; the commit must be queued.
    pub fn numbers(&mut self) -> Numbers {
        let next_out = self.session.next_out();
        if self.session.is_connected() {
            self.reach.written = self.reach.written.max(next_out.previous());
        }
        let numbers = Numbers {
            next_in: self.session.next_in(),
            next_out_before: *self.enqueued_out,
            next_out,
            reset: false,
            reach: *self.reach,
        };
        *self.enqueued_out = numbers.next_out;
        numbers
    }
}

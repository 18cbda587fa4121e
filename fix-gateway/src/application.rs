//! What a session's driver needs from whoever stores its messages and acts upon them.

use std::{future::Future, pin::Pin, time::Instant};

use dvp_fix::{
    SeqNum, UtcNanos,
    codec::{Body, MessageRef, MsgType},
    schedule::Epoch,
    session::{Now, Session, Stored, Transmit},
};

/// The store could not do it. The connection ends; what was not acknowledged comes again.
#[derive(Debug, thiserror::Error)]
#[error("{why}")]
pub struct Unavailable {
    why: String,
    is_data: bool,
}

impl Unavailable {
    /// The store does not answer, or takes nothing now: the same again may succeed.
    pub const fn new(why: String) -> Self {
        Self { why, is_data: false }
    }

    /// What was to be written or read breaks a rule: the same again fails in the same way.
    pub const fn data(why: String) -> Self {
        Self { why, is_data: true }
    }

    /// Whether the same again fails in the same way.
    pub const fn is_data(&self) -> bool {
        self.is_data
    }
}

/// When what was asked for is durable, and the messages that may be transmitted then.
pub enum Commit {
    /// It is durable already, and so is what was handed to [`Turn::transmit`], which goes out now.
    Ready,
    /// The work is under way, in the order in which commits were asked for.
    UnderWay(UnderWay),
}

/// Resolves once everything is durable, to the messages that may now be transmitted, by ascending number. Waiting for
/// it does not drive it.
pub type UnderWay = Pin<Box<dyn Future<Output = Result<Vec<Stored>, Unavailable>> + Send>>;

impl Commit {
    /// A commit whose work is under way.
    pub fn under_way(work: impl Future<Output = Result<Vec<Stored>, Unavailable>> + Send + 'static) -> Self {
        Self::UnderWay(Box::pin(work))
    }
}

/// A session's numbers before and after a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Numbers {
    pub next_in: SeqNum,
    pub next_out_before: SeqNum,
    pub next_out: SeqNum,
    /// Both count from 1 again, and stored messages are forgotten.
    pub reset: bool,
    /// How far the peer has been reached.
    pub reach: Reach,
}

/// How far a peer has been reached by our messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Reach {
    /// It has seen them up to this number, as far as is known. This may lag.
    pub seen: SeqNum,
    /// Those beyond this number have not been written to a socket. This may run ahead.
    pub written: SeqNum,
    /// The highest number of an application message.
    pub stored: SeqNum,
}

/// Numbers that do not go on from those before: both begin anew, or an operator sets them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Renumbering {
    pub next_in: SeqNum,
    pub next_out_before: SeqNum,
    /// The next outbound number when no message is kept.
    pub next_out: SeqNum,
    /// Stored messages that the peer has not seen, and still wants, get the numbers from here on.
    pub first_kept: SeqNum,
    /// How far the peer had been reached with the numbers before.
    pub reach: Reach,
}

impl Renumbering {
    /// The numbers afterwards, when so many messages are kept.
    pub const fn numbers(&self, kept: u64) -> Numbers {
        let next_out = if kept == 0 { self.next_out } else { SeqNum(self.first_kept.0.saturating_add(kept)) };
        let stored = if kept == 0 { SeqNum(0) } else { next_out.previous() };
        let reach = Reach { seen: SeqNum(0), written: SeqNum(0), stored };
        Numbers { next_in: self.next_in, next_out_before: self.next_out_before, next_out, reset: true, reach }
    }
}

/// The store and the business behind one session.
pub trait Application: Send + 'static {
    /// Where the session left off: next inbound and next outbound number.
    fn load(&mut self) -> impl Future<Output = Result<(SeqNum, SeqNum), Unavailable>> + Send;

    /// Which window of the schedule the stored numbers belong to; `None` when that was never recorded. Not needed where
    /// the session has no schedule.
    fn epoch(&mut self) -> impl Future<Output = Result<Option<Epoch>, Unavailable>> + Send {
        std::future::ready(Ok(None))
    }

    /// Makes durable which window the numbers belong to from now on.
    fn begin_epoch(&mut self, _: Epoch) -> impl Future<Output = Result<(), Unavailable>> + Send {
        std::future::ready(Ok(()))
    }

    /// Makes numbers durable that no application message comes with.
    fn persist(&mut self, numbers: Numbers) -> impl Future<Output = Result<Commit, Unavailable>> + Send;

    /// Makes durable that the numbers begin anew, and in the same commit gives new numbers to the messages that the peer
    /// has not seen. Returns how many these are. An application that stores nothing keeps nothing.
    fn renumber(
        &mut self,
        to: Renumbering,
    ) -> impl Future<Output = Result<(Commit, u64), Unavailable>> + Send {
        let commit = self.persist(to.numbers(0));
        async { Ok((commit.await?, 0)) }
    }

    /// Makes durable what an operator has set the numbers to. The outbound one has not gone back, the inbound one may.
    fn set_numbers(&mut self, numbers: Numbers) -> impl Future<Output = Result<Commit, Unavailable>> + Send {
        self.persist(numbers)
    }

    /// How far the peer had been reached when the numbers were loaded.
    fn reach(&mut self) -> impl Future<Output = Result<Reach, Unavailable>> + Send {
        std::future::ready(Ok(Reach::default()))
    }

    /// When [`Application::handle_timeout`] wants to be called.
    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    /// Does what is due, whatever the session's schedule says.
    fn handle_timeout(&mut self) -> impl Future<Output = Result<(), Unavailable>> + Send {
        std::future::ready(Ok(()))
    }

    /// Acts upon an application message. Answers are numbered with [`Turn::reserve`]; what the message leads to and
    /// [`Turn::numbers`] are one commit. Returns once the commit has its place in line.
    fn deliver(
        &mut self,
        message: MessageRef<'_>,
        turn: &mut Turn<'_>,
    ) -> impl Future<Output = Result<Commit, Unavailable>> + Send;

    /// Answers an application message with a BusinessMessageReject (throttled) instead of acting upon it.
    fn refuse(
        &mut self,
        message: MessageRef<'_>,
        text: &str,
        turn: &mut Turn<'_>,
    ) -> impl Future<Output = Result<Commit, Unavailable>> + Send;

    /// Must everything before this message be durable before it is delivered?
    fn is_about_earlier(&self, message: MessageRef<'_>) -> bool;

    /// Stored messages of a range, ascending.
    fn stored(
        &mut self,
        from: SeqNum,
        to: SeqNum,
    ) -> impl Future<Output = Result<Vec<Stored>, Unavailable>> + Send;

    /// Waits until [`Application::report`] may have something. May be dropped at any time.
    fn wait_for_reports(&mut self) -> impl Future<Output = ()> + Send;

    /// Takes what happened meanwhile and numbers it; `None` when there is nothing.
    fn report(
        &mut self,
        turn: &mut Turn<'_>,
    ) -> impl Future<Output = Result<Option<Commit>, Unavailable>> + Send;

    /// The peer has logged on, or gone.
    fn connected(&mut self, is_connected: bool);
}

/// Gives out numbers for one commit.
pub struct Turn<'a> {
    session: &'a mut Session,
    enqueued_out: &'a mut SeqNum,
    reach: &'a mut Reach,
    ready: &'a mut Vec<Transmit>,
    now: Now,
}

impl<'a> Turn<'a> {
    pub(crate) const fn new(
        session: &'a mut Session,
        enqueued_out: &'a mut SeqNum,
        reach: &'a mut Reach,
        ready: &'a mut Vec<Transmit>,
        now: Now,
    ) -> Self {
        Self { session, enqueued_out, reach, ready, now }
    }

    /// The next outbound number.
    pub fn reserve(&mut self) -> SeqNum {
        let seq = self.session.reserve();
        self.reach.stored = seq;
        seq
    }

    /// SendingTime(52) of what is numbered in this turn.
    pub const fn sending_time(&self) -> UtcNanos {
        self.now.utc
    }

    /// An empty body whose buffer has been used before, if there is one.
    pub fn body(&mut self) -> Body {
        self.session.body()
    }

    /// Hands over a message that is durable, under a number of this turn. Only for a turn that ends in
    /// [`Commit::Ready`].
    pub fn transmit(&mut self, seq: SeqNum, msg_type: MsgType, body: Body) {
        let sending_time = self.now.utc;
        self.ready.push(Transmit { seq, msg_type, body, sending_time, orig_sending_time: None });
    }

    /// The numbers as they are after this turn. Called once, when all are reserved; the commit must be queued.
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

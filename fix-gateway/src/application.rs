//! What a session's driver needs from whoever stores its messages and acts upon them.

use std::{future::Future, pin::Pin};

use dvp_fix::{
    SeqNum, UtcNanos,
    codec::{Body, MessageRef, MsgType},
    schedule::Epoch,
    session::{Now, Session, Stored, Transmit},
};

/// The store could not do it. The connection ends; what was not acknowledged comes again.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Unavailable(pub String);

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
    ready: &'a mut Vec<Transmit>,
    now: Now,
}

impl<'a> Turn<'a> {
    pub(crate) const fn new(
        session: &'a mut Session,
        enqueued_out: &'a mut SeqNum,
        ready: &'a mut Vec<Transmit>,
        now: Now,
    ) -> Self {
        Self { session, enqueued_out, ready, now }
    }

    /// The next outbound number.
    pub fn reserve(&mut self) -> SeqNum {
        self.session.reserve()
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
    pub const fn numbers(&mut self) -> Numbers {
        let numbers = Numbers {
            next_in: self.session.next_in(),
            next_out_before: *self.enqueued_out,
            next_out: self.session.next_out(),
            reset: false,
        };
        *self.enqueued_out = numbers.next_out;
        numbers
    }
}

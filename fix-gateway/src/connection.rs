//! A connection: frames in, bytes out, both bounded.

mod outgoing;

use std::{
    future::poll_fn,
    io,
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use dvp_fix::{
    Precision, SeqNum, Stamp,
    codec::{Body, Encoding, Framed, Framer, Garbled, Head, Message, MessageRef, MsgType, Parser, encode},
    session::Discarded,
    tag,
};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio_util::sync::CancellationToken;

pub(crate) use self::outgoing::Outgoing;
pub use self::outgoing::SlowConsumer;
use crate::{
    clock,
    gate::{Admission, Gatekeeper, NotAdmitted, Origin},
    limits::FRAME_MAX,
    sources::ConnectionSlot,
};

pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin + 'static {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> Stream for T {}

/// The time limit for the peer to take our last bytes.
const CLOSE_MAX: Duration = Duration::from_secs(1);

/// The initial read size; it is doubled while reads are full.
const READ_MIN: usize = 2 * 1024;
const READ_MAX: usize = 64 * 1024;
const _: () = assert!(READ_MIN <= READ_MAX && READ_MAX <= FRAME_MAX, "a read is at most a frame");

pub(crate) struct Connection {
    stream: Box<dyn Stream>,
    pub(crate) inbound: Inbound,
    /// The present size limit of a frame.
    pub(crate) frame_max: usize,
    read_bytes: usize,
    pub(crate) peer: SocketAddr,
    /// The slot of an unauthenticated connection, until it is authenticated.
    place: Option<Box<ConnectionSlot>>,
}

/// Unprocessed input. Taken out of its [`Connection`] while its frames are processed.
#[derive(Default)]
pub(crate) struct Inbound {
    framer: Framer,
    parser: Parser,
    /// Of the session's text, once the session is known.
    encoding: Encoding,
    /// The latest frame in UTF-8, where it came otherwise.
    utf8: Vec<u8>,
}

/// An authenticated connection with its Logon as the first message.
#[derive(Debug)]
pub struct Attach {
    pub(crate) connection: Connection,
    pub(crate) logon: Message,
    pub(crate) pass: Pass,
    /// Of a forwarded connection: cancelled when the process that forwards it stops.
    pub(crate) stopping: Option<CancellationToken>,
}

impl Attach {
    /// A connection whose session is known, by its Logon.
    pub(crate) fn new(
        mut connection: Connection,
        logon: Message,
        pass: Pass,
        stopping: Option<CancellationToken>,
    ) -> Self {
        let encoding = pass.gatekeeper.encoding();
        connection.inbound.encoding = encoding;
        Self { connection, logon: read(encoding, &logon), pass, stopping }
    }
}

/// A Logon in UTF-8, to be decided upon.
pub(crate) fn read(encoding: Encoding, logon: &Message) -> Message {
    // What was parsed once can be parsed again.
    encoding.message(logon.clone()).unwrap_or_else(|_| logon.clone())
}

/// How the peer was authenticated.
#[derive(Debug)]
pub(crate) struct Pass {
    pub(crate) gatekeeper: Arc<dyn Gatekeeper>,
    pub(crate) origin: Origin,
    pub(crate) admission: Admission,
}

impl Pass {
    /// May the peer log on again, within its session?
    pub(crate) async fn admits(&self, logon: &Message) -> Result<Admission, NotAdmitted> {
        self.gatekeeper.admit(logon, &self.origin).await
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").field("peer", &self.peer).finish_non_exhaustive()
    }
}

impl Inbound {
    /// The next complete frame of the input. One of more than `frame_max` bytes is passed over.
    pub(crate) fn next(&mut self, frame_max: usize) -> io::Result<Option<Frame<'_>>> {
        self.framer.set_limit(frame_max);
        match self.framer.next_frame() {
            // The framer limits incomplete frames only: a frame that arrived in a single read may be longer.
            Framed::Frame(frame) if frame.len() <= frame_max && !self.encoding.is_plain(frame) => {
                self.utf8 = match self.parser.parse(frame) {
                    Ok(message) => self.encoding.decoded(message),
                    Err(garbled) => return Ok(Some(Frame::Garbled(garbled))),
                };
                Ok(Some(self.parser.parse(&self.utf8).map_or_else(Frame::Garbled, Frame::Message)))
            }
            Framed::Frame(frame) if frame.len() <= frame_max => {
                Ok(Some(self.parser.parse(frame).map_or_else(Frame::Garbled, Frame::Message)))
            }
            Framed::Discarded(head) => Ok(Some(Frame::TooLong(Discarded::of(head)))),
            Framed::Incomplete => Ok(None),
            Framed::Frame(_) | Framed::TooLong => {
                Err(io::Error::new(io::ErrorKind::InvalidData, "frame too long"))
            }
        }
    }
}

/// One frame of the input.
pub(crate) enum Frame<'a> {
    Message(MessageRef<'a>),
    Garbled(Garbled),
    /// It was discarded; what is known of it, if its beginning says so.
    TooLong(Option<Discarded>),
}

impl Connection {
    /// The first frame may have `frame_max` bytes. A connection that another process forwards has its slot there.
    pub(crate) fn new(
        stream: Box<dyn Stream>,
        peer: SocketAddr,
        frame_max: usize,
        place: Option<ConnectionSlot>,
    ) -> Self {
        let (inbound, place) = (Inbound::default(), place.map(Box::new));
        Self { stream, inbound, frame_max, read_bytes: READ_MIN, peer, place }
    }

    /// The stream, and the bytes that were read and not processed.
    pub(crate) fn into_stream(self) -> (Box<dyn Stream>, Vec<u8>) {
        (self.stream, self.inbound.framer.unread().to_vec())
    }

    /// Sends bytes before the connection has a session. The result of the write does not matter.
    pub(crate) async fn send(&mut self, bytes: &[u8]) {
        let written = async {
            self.stream.write_all(bytes).await?;
            self.stream.flush().await
        };
        let _ = tokio::time::timeout(CLOSE_MAX, written).await;
    }

    /// The peer is authenticated, and may send longer frames.
    pub(crate) fn trust(&mut self) {
        self.frame_max = FRAME_MAX;
        self.place = None;
    }

    /// Reads once, and returns the number of bytes. Nothing is lost when this is dropped while it waits.
    pub(crate) async fn fill(&mut self) -> io::Result<usize> {
        poll_fn(|cx| self.poll_fill(cx)).await
    }

    /// Performs the next operation for which the socket is ready: writes bytes of `out`, or reads when that
    /// `is_wanted`. Returns the number of bytes read.
    pub(crate) fn poll_progress(
        &mut self,
        cx: &mut Context<'_>,
        out: &mut Outgoing,
        is_wanted: bool,
    ) -> Poll<io::Result<usize>> {
        let was_done = out.is_done();
        let written = self.poll_write_out(cx, out);
        if written.is_ready() && !was_done {
            return written.map_ok(|()| 0);
        }
        if is_wanted { self.poll_fill(cx) } else { Poll::Pending }
    }

    /// Writes as much as the socket accepts without blocking.
    pub(crate) async fn write_now(&mut self, out: &mut Outgoing) -> io::Result<()> {
        poll_fn(|cx| match self.poll_write_out(cx, out) {
            Poll::Ready(done) => Poll::Ready(done),
            Poll::Pending => Poll::Ready(Ok(())),
        })
        .await
    }

    fn poll_write_out(&mut self, cx: &mut Context<'_>, out: &mut Outgoing) -> Poll<io::Result<()>> {
        while !out.is_done() {
            let mut stream = Pin::new(&mut self.stream);
            let polled = if out.len() > 0 {
                stream.as_mut().poll_write(cx, out.rest()).map_ok(Some)
            } else {
                stream.as_mut().poll_flush(cx).map_ok(|()| None)
            };
            match polled {
                Poll::Ready(Ok(Some(0))) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Poll::Ready(Ok(Some(bytes))) => out.took(bytes),
                Poll::Ready(Ok(None)) => out.flushed(),
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => {
                    out.stalled(clock::now().mono);
                    return Poll::Pending;
                }
            }
        }
        Poll::Ready(Ok(()))
    }

    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let mut room = ReadBuf::new(self.inbound.framer.room(self.read_bytes));
        match Pin::new(&mut self.stream).poll_read(cx, &mut room) {
            Poll::Ready(Ok(())) => {}
            Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
            Poll::Pending => return Poll::Pending,
        }
        let (bytes, is_full) = (room.filled().len(), room.remaining() == 0);
        if bytes == 0 {
            return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
        }
        if is_full {
            self.read_bytes = READ_MAX.min(self.read_bytes * 2);
        }
        self.inbound.framer.filled(bytes);
        Poll::Ready(Ok(bytes))
    }

    /// Releases unused memory after a quiet period.
    pub(crate) fn rest(&mut self) {
        self.read_bytes = READ_MIN;
        self.inbound.framer.shrink();
    }

    /// Sends a Logout that refuses a Logon. Its number 1 is no number of the session.
    pub(crate) async fn refuse(&mut self, logon: &Message, reason: &str) {
        let text = |tag| logon.text(tag).unwrap_or_default();
        // The session's precision is not known here, and a peer that writes seconds may read no more.
        let has_fraction = text(tag::SENDING_TIME).contains('.');
        let precision = if has_fraction { Precision::Millis } else { Precision::Seconds };
        let head = Head {
            begin_string: text(tag::BEGIN_STRING),
            msg_type: MsgType::LOGOUT,
            seq: SeqNum::FIRST,
            sender_comp_id: text(tag::TARGET_COMP_ID),
            target_comp_id: text(tag::SENDER_COMP_ID),
            sending_time: Stamp { time: clock::now().utc, precision },
            orig_sending_time: None,
            last_processed: None,
        };
        let mut bytes = Vec::new();
        encode(&head, &Body::new().field(tag::TEXT, reason), &mut bytes);
        self.send(&bytes).await;
        let _ = tokio::time::timeout(CLOSE_MAX, self.stream.shutdown()).await;
    }

    /// Closes our side, so that the peer reads everything before the end.
    pub(crate) async fn close(mut self) {
        // The peer may have disconnected already.
        let _ = tokio::time::timeout(CLOSE_MAX, self.stream.shutdown()).await;
    }
}

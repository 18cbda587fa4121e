//! A connection: frames in, bytes out, with bounds on both.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use dvp_fix::{
    SeqNum,
    codec::{Body, Framed, Framer, Garbled, Head, Message, MessageRef, MsgType, Parser, encode},
    tag,
};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use crate::{
    acceptor::Place,
    clock,
    gate::{Admission, Gatekeeper, NotAdmitted, Origin},
};

/// Whatever carries bytes both ways.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin + 'static {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> Stream for T {}

/// A frame of an authenticated peer may be this long.
const FRAME_MAX: usize = 64 * 1024;
/// A peer that takes nothing for this long is gone.
const WRITE_MAX: Duration = Duration::from_secs(10);

/// Bytes asked for at first; a peer that fills them is given twice as much the next time.
const READ_MIN: usize = 2 * 1024;
/// Bytes asked for at most.
const READ_MAX: usize = 64 * 1024;

/// A connection and what was read of it.
pub(crate) struct Connection {
    stream: Box<dyn Stream>,
    pub(crate) inbound: Inbound,
    /// Bytes that one frame may have.
    pub(crate) frame_max: usize,
    read_bytes: usize,
    pub(crate) peer: SocketAddr,
    /// The place among strangers, until the peer is none.
    place: Option<Box<Place>>,
}

/// What was read and not yet understood. Taken out of its [`Connection`] while its frames are looked at.
#[derive(Default)]
pub(crate) struct Inbound {
    framer: Framer,
    parser: Parser,
}

/// A connection whose first message says which session it is for, and whose peer may use that session.
#[derive(Debug)]
pub struct Attach {
    pub(crate) connection: Connection,
    pub(crate) logon: Message,
    pub(crate) pass: Pass,
}

/// How a peer was let in.
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
    /// A frame that was read already, if there is a whole one of at most `frame_max` bytes.
    pub(crate) fn next(&mut self, frame_max: usize) -> io::Result<Option<Result<MessageRef<'_>, Garbled>>> {
        self.framer.set_limit(frame_max);
        match self.framer.next_frame() {
            Framed::Frame(frame) => Ok(Some(self.parser.parse(frame))),
            Framed::Incomplete => Ok(None),
            Framed::TooLong => Err(io::Error::new(io::ErrorKind::InvalidData, "frame too long")),
        }
    }
}

impl Connection {
    /// The first frame may have `frame_max` bytes.
    pub(crate) fn new(stream: Box<dyn Stream>, peer: SocketAddr, frame_max: usize, place: Place) -> Self {
        let (inbound, place) = (Inbound::default(), Some(Box::new(place)));
        Self { stream, inbound, frame_max, read_bytes: READ_MIN, peer, place }
    }

    /// The peer is no stranger any more, and may send longer frames.
    pub(crate) fn trust(&mut self) {
        self.frame_max = FRAME_MAX;
        self.place = None;
    }

    /// Reads once. Nothing is lost when this is dropped while it waits.
    pub(crate) async fn fill(&mut self) -> io::Result<()> {
        let room = self.inbound.framer.room(self.read_bytes);
        let room_bytes = room.len();
        let bytes = self.stream.read(room).await?;
        if bytes == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if bytes == room_bytes {
            self.read_bytes = READ_MAX.min(self.read_bytes * 2);
        }
        self.inbound.framer.filled(bytes);
        Ok(())
    }

    /// Gives back what memory it can: nothing has come for a while.
    pub(crate) fn rest(&mut self) {
        self.read_bytes = READ_MIN;
        self.inbound.framer.shrink();
    }

    /// Writes all, or fails when the peer does not take it in time.
    pub(crate) async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let write = async {
            self.stream.write_all(bytes).await?;
            self.stream.flush().await
        };
        tokio::time::timeout(WRITE_MAX, write).await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
    }

    /// Tells a peer that its Logon is refused, and nothing else. The number 1 is no number of the session.
    pub(crate) async fn refuse(&mut self, logon: &Message) {
        let text = |tag| logon.text(tag).unwrap_or_default();
        let head = Head {
            begin_string: text(tag::BEGIN_STRING),
            msg_type: MsgType::LOGOUT,
            seq: SeqNum::FIRST,
            sender_comp_id: text(tag::TARGET_COMP_ID),
            target_comp_id: text(tag::SENDER_COMP_ID),
            sending_time: clock::now().utc,
            orig_sending_time: None,
            last_processed: None,
        };
        let mut bytes = Vec::new();
        encode(&head, &Body::new().field(tag::TEXT, "logon refused"), &mut bytes);
        // Whether it arrives makes no difference to us.
        let _ = self.write(&bytes).await;
    }

    /// Closes our side, so that the peer reads everything before the end.
    pub(crate) async fn close(mut self) {
        // The peer may be gone already: there is nobody to tell.
        let _ = tokio::time::timeout(WRITE_MAX, self.stream.shutdown()).await;
    }
}

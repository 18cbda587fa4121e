//! A connection: frames in, bytes out, with bounds on both.

use std::{io, net::SocketAddr, time::Duration};

use dvp_fix::codec::{Framed, Framer, Garbled, Message};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

/// Whatever carries bytes both ways.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin + 'static {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> Stream for T {}

/// A frame of an authenticated peer may be this long.
const FRAME_MAX: usize = 64 * 1024;
/// Before that, a Logon must do.
const LOGON_MAX: usize = 4 * 1024;
/// A peer that takes nothing for this long is gone.
const WRITE_MAX: Duration = Duration::from_secs(10);

/// A connection and what was read of it.
pub(crate) struct Connection {
    stream: Box<dyn Stream>,
    framer: Framer,
    buffer: Vec<u8>,
    pub(crate) peer: SocketAddr,
}

/// A connection whose first message says which session it is for.
pub struct Attach {
    pub(crate) connection: Connection,
    pub(crate) logon: Message,
}

impl Connection {
    pub(crate) fn new(stream: Box<dyn Stream>, peer: SocketAddr) -> Self {
        Self { stream, framer: Framer::new(LOGON_MAX), buffer: vec![0; 16 * 1024], peer }
    }

    /// The peer may send longer frames from now on.
    pub(crate) const fn trust(&mut self) {
        self.framer.set_limit(FRAME_MAX);
    }

    /// A frame that was read already, if there is a whole one.
    pub(crate) fn buffered(&mut self) -> io::Result<Option<Result<Message, Garbled>>> {
        match self.framer.next_frame() {
            Framed::Frame(frame) => Ok(Some(Message::parse(frame))),
            Framed::Incomplete => Ok(None),
            Framed::TooLong => Err(io::Error::new(io::ErrorKind::InvalidData, "frame too long")),
        }
    }

    /// Reads once. Nothing is lost when this is dropped while it waits.
    pub(crate) async fn fill(&mut self) -> io::Result<()> {
        let bytes = self.stream.read(&mut self.buffer).await?;
        if bytes == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.framer.push(&self.buffer[..bytes]);
        Ok(())
    }

    /// Writes all, or fails when the peer does not take it in time.
    pub(crate) async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let write = async {
            self.stream.write_all(bytes).await?;
            self.stream.flush().await
        };
        tokio::time::timeout(WRITE_MAX, write).await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
    }

    /// Closes our side, so that the peer reads everything before the end.
    pub(crate) async fn close(mut self) {
        // The peer may be gone already: there is nobody to tell.
        let _ = tokio::time::timeout(WRITE_MAX, self.stream.shutdown()).await;
    }
}

//! The bytes between two processes. The forwarding process sends a header and then frames, the owner one byte and then
//! the session's bytes as they are.
//!
//! ```text
//! forwarder: u16 length, header (JSON) | u16 length, bytes of the peer | … | u16 0: the forwarder stops
//! owner:     u8 verdict                | bytes for the peer
//! ```

use std::{
    io,
    net::SocketAddr,
    pin::Pin,
    task::{Context, Poll, ready},
};

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio_util::sync::CancellationToken;

use crate::{
    gate::{NotAdmitted, Origin},
    tls::PeerCertificate,
};

/// The size limit of a header: a certificate has a few names.
const HEADER_MAX: usize = 16 * 1024;
/// The size limit of a frame.
pub(super) const FRAME_MAX: usize = 16 * 1024;

/// The origin of a forwarded connection, as the forwarding process saw it.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    peer: SocketAddr,
    certificate: Option<Certificate>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Certificate {
    sha256: [u8; 32],
    names: Vec<String>,
}

/// The header of a connection. A certificate whose names do not fit is forwarded without them.
pub(super) fn header(origin: &Origin) -> Vec<u8> {
    let encoded = |with_names: bool| {
        let certificate = origin.certificate.as_ref().map(|PeerCertificate { sha256, names }| Certificate {
            sha256: *sha256,
            names: if with_names { names.clone() } else { Vec::new() },
        });
        serde_json::to_vec(&Header { peer: origin.addr, certificate }).unwrap_or_default()
    };
    let bytes =
        Some(encoded(true)).filter(|bytes| bytes.len() <= HEADER_MAX).unwrap_or_else(|| encoded(false));
    let length = u16::try_from(bytes.len()).unwrap_or(0);
    [&length.to_be_bytes()[..], &bytes].concat()
}

pub(super) async fn read_header(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Origin> {
    let length = usize::from(stream.read_u16().await?);
    if length > HEADER_MAX {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut bytes = vec![0; length];
    stream.read_exact(&mut bytes).await?;
    let Header { peer, certificate } = serde_json::from_slice(&bytes)?;
    let certificate = certificate.map(|Certificate { sha256, names }| PeerCertificate { sha256, names });
    Ok(Origin { addr: peer, certificate })
}

/// Writes bytes of the peer, in as many frames as they need.
pub(super) async fn write_frame(stream: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> io::Result<()> {
    for part in bytes.chunks(FRAME_MAX) {
        stream.write_u16(u16::try_from(part.len()).map_err(io::Error::other)?).await?;
        stream.write_all(part).await?;
    }
    stream.flush().await
}

/// Notifies the owner that the forwarding process stops.
pub(super) async fn write_stop(stream: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
    stream.write_u16(0).await?;
    stream.flush().await
}

/// The owner's decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The session's bytes follow.
    Admitted,
    NotHere,
    /// The session's driver did not take the connection in time.
    Busy,
    Refused(NotAdmitted),
}

/// Verdicts by their codes, which never change.
const VERDICTS: [(u8, Verdict); 12] = [
    (0, Verdict::Admitted),
    (1, Verdict::NotHere),
    (2, Verdict::Busy),
    (16, Verdict::Refused(NotAdmitted::Disabled)),
    (17, Verdict::Refused(NotAdmitted::Address)),
    (18, Verdict::Refused(NotAdmitted::Certificate)),
    (19, Verdict::Refused(NotAdmitted::Credentials)),
    (20, Verdict::Refused(NotAdmitted::Stale)),
    (21, Verdict::Refused(NotAdmitted::Replayed)),
    (22, Verdict::Refused(NotAdmitted::Locked)),
    (23, Verdict::Refused(NotAdmitted::Unavailable)),
    (24, Verdict::Refused(NotAdmitted::NewPassword)),
];

impl Verdict {
    pub(super) fn of(code: u8) -> Option<Self> {
        VERDICTS.iter().find(|(known, _)| *known == code).map(|(_, verdict)| *verdict)
    }

    pub(crate) fn code(self) -> u8 {
        let unavailable = 23;
        VERDICTS.iter().find(|(_, verdict)| *verdict == self).map_or(unavailable, |(code, _)| *code)
    }
}

/// The owner's end of a forwarded connection: reads the peer's bytes out of the frames.
pub(crate) struct Forwarded<S> {
    stream: S,
    /// Bytes of the present frame that are not read yet.
    remaining: usize,
    /// The first byte of the next frame's length.
    half: Option<u8>,
    /// Cancelled when the forwarding process stops.
    stopping: CancellationToken,
}

impl<S> Forwarded<S> {
    pub(super) fn new(stream: S) -> Self {
        Self { stream, remaining: 0, half: None, stopping: CancellationToken::new() }
    }

    pub(crate) fn stopping(&self) -> CancellationToken {
        self.stopping.clone()
    }
}

impl<S: AsyncRead + Unpin> Forwarded<S> {
    /// Reads the length of the next frame. `false`: the stream has ended.
    fn poll_length(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        while self.remaining == 0 {
            let mut byte = [0];
            let mut room = ReadBuf::new(&mut byte);
            ready!(Pin::new(&mut self.stream).poll_read(cx, &mut room))?;
            let Some(byte) = room.filled().first().copied() else {
                let is_whole = self.half.is_none();
                return Poll::Ready(if is_whole {
                    Ok(false)
                } else {
                    Err(io::ErrorKind::UnexpectedEof.into())
                });
            };
            match self.half.take() {
                None => self.half = Some(byte),
                Some(first) => {
                    self.remaining = usize::from(u16::from_be_bytes([first, byte]));
                    if self.remaining > FRAME_MAX {
                        return Poll::Ready(Err(io::ErrorKind::InvalidData.into()));
                    }
                    if self.remaining == 0 {
                        self.stopping.cancel();
                    }
                }
            }
        }
        Poll::Ready(Ok(true))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Forwarded<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if !ready!(this.poll_length(cx))? {
            return Poll::Ready(Ok(()));
        }
        let limit = this.remaining.min(buffer.remaining());
        if limit == 0 {
            return Poll::Ready(Ok(()));
        }
        let mut part = ReadBuf::new(buffer.initialize_unfilled_to(limit));
        ready!(Pin::new(&mut this.stream).poll_read(cx, &mut part))?;
        let read = part.filled().len();
        if read == 0 {
            return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
        }
        buffer.advance(read);
        this.remaining -= read;
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Forwarded<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn frames_carry_every_byte_in_order_and_the_stop_between_them() {
        let (mut near, far) = tokio::io::duplex(7);
        let sent: Vec<u8> = (0..FRAME_MAX * 2 + 11).map(|n| u8::try_from(n % 251).unwrap()).collect();
        let mut far = Forwarded::new(far);
        let stopping = far.stopping();
        let (first, second) = sent.split_at(FRAME_MAX + 3);
        let sending = async {
            write_frame(&mut near, first).await.unwrap();
            write_stop(&mut near).await.unwrap();
            write_frame(&mut near, second).await.unwrap();
            drop(near);
        };
        let reading = async {
            let mut before = vec![0; first.len()];
            far.read_exact(&mut before).await.unwrap();
            let was_stopping = stopping.is_cancelled();
            let mut after = Vec::new();
            far.read_to_end(&mut after).await.unwrap();
            (was_stopping, [before, after].concat())
        };
        let ((), (was_stopping, received)) = tokio::join!(sending, reading);
        assert!(!was_stopping && stopping.is_cancelled());
        assert_eq!(received, sent);
    }

    #[tokio::test]
    async fn a_cut_or_oversized_frame_is_an_error() {
        for bytes in [&[0, 3, b'a'][..], &[0][..], &[0xff, 0xff, b'a'][..]] {
            let mut end = Vec::new();
            assert!(Forwarded::new(bytes).read_to_end(&mut end).await.is_err(), "{bytes:?}");
        }
    }

    #[tokio::test]
    async fn the_header_carries_the_peers_address_and_certificate() {
        let certificate = PeerCertificate { sha256: [9; 32], names: vec!["fix.acme.example".to_owned()] };
        let origin = Origin { addr: "[2001:db8::7]:4711".parse().unwrap(), certificate: Some(certificate) };
        let read = read_header(&mut header(&origin).as_slice()).await.unwrap();
        assert_eq!((read.addr, read.certificate), (origin.addr, origin.certificate));
        for wrong in [&b"\x00\x02{}"[..], b"\xff\xff", b"\x00\x01", b"\x00\x04null"] {
            assert!(read_header(&mut &*wrong).await.is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn each_verdict_has_a_code_of_its_own() {
        for (code, verdict) in VERDICTS {
            assert_eq!((Verdict::of(code), verdict.code()), (Some(verdict), code));
        }
        assert_eq!(Verdict::of(99), None);
    }
}

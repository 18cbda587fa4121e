//! Copies between a peer and the owner of its session, with bounded buffers: who does not read makes the other side
//! wait.

use std::{io, sync::Arc, time::Duration};

use metrics::gauge;
use parking_lot::Mutex;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, split},
    net::TcpStream,
    task::JoinSet,
    time::timeout,
};
use tokio_rustls::client::TlsStream;
use tokio_util::sync::CancellationToken;
use tracing::error;

use super::wire::{FRAME_MAX, write_frame, write_stop};
use crate::connection::Stream;

/// How long a side may take no byte. The session's owner gives up on a slow peer before.
const STALL_MAX: Duration = Duration::from_secs(30);
/// How long the other side may go on after one has ended, or the process stops.
const END_MAX: Duration = Duration::from_secs(5);

/// The forwarded connections of this process. Clones share them; the last one ends them.
#[derive(Debug, Clone)]
pub(crate) struct Relays {
    tasks: Arc<Mutex<JoinSet<()>>>,
    /// The process stops.
    shutdown: CancellationToken,
}

impl Relays {
    pub(super) fn new() -> Self {
        Self { tasks: Arc::default(), shutdown: CancellationToken::new() }
    }

    /// Copies between peer and owner until one of them ends. `read_ahead` are bytes of the peer that follow its Logon.
    pub(crate) fn start(&self, peer: Box<dyn Stream>, read_ahead: Vec<u8>, owner: TlsStream<TcpStream>) {
        let shutdown = self.shutdown.clone();
        let mut tasks = self.tasks.lock();
        while let Some(ended) = tasks.try_join_next() {
            report(ended);
        }
        tasks.spawn(async move {
            let _forwarded = Count::new();
            relay(peer, read_ahead, owner, shutdown).await;
        });
    }

    /// Notifies the owners that this process stops, and waits for the end of all connections.
    pub(crate) async fn stop(&self) {
        self.shutdown.cancel();
        let mut tasks = std::mem::take(&mut *self.tasks.lock());
        while let Some(ended) = tasks.join_next().await {
            report(ended);
        }
    }
}

fn report(ended: Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended {
        error!(%error, "a forwarded connection's task failed");
    }
}

/// One in the number of forwarded connections.
struct Count;

impl Count {
    fn new() -> Self {
        gauge!("dvp_fix_forwarded_connections").increment(1.0);
        Self
    }
}

impl Drop for Count {
    fn drop(&mut self) {
        gauge!("dvp_fix_forwarded_connections").decrement(1.0);
    }
}

async fn relay(
    peer: impl AsyncRead + AsyncWrite,
    read_ahead: Vec<u8>,
    owner: impl AsyncRead + AsyncWrite,
    shutdown: CancellationToken,
) {
    let (mut from_peer, mut to_peer) = split(peer);
    let (mut from_owner, mut to_owner) = split(owner);
    let ending = CancellationToken::new();
    let up = async {
        // An error has the same consequence as the end.
        let _ = to_owner_until_end(&mut from_peer, &read_ahead, &mut to_owner, &shutdown).await;
        let _ = to_owner.shutdown().await;
    };
    let down = async {
        let _ = to_peer_until_end(&mut from_owner, &mut to_peer).await;
        let _ = timeout(END_MAX, to_peer.shutdown()).await;
    };
    // The owner ends every connection: it answers the peer's end, and a stop, by its own end.
    let limit = async {
        tokio::select! {
            () = ending.cancelled() => {}
            () = shutdown.cancelled() => {}
        }
        tokio::time::sleep(END_MAX).await;
    };
    let up = async {
        up.await;
        ending.cancel();
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = down => {}
        () = up => {}
        () = limit => {}
    }
}

/// Copies in frames, and notifies the owner when this process stops.
async fn to_owner_until_end(
    from: &mut (impl AsyncRead + Unpin),
    read_ahead: &[u8],
    to: &mut (impl AsyncWrite + Unpin),
    shutdown: &CancellationToken,
) -> io::Result<()> {
    if !read_ahead.is_empty() {
        stalling(write_frame(to, read_ahead)).await?;
    }
    let mut buffer = vec![0; FRAME_MAX];
    let mut is_stopping = false;
    loop {
        let read = tokio::select! {
            () = shutdown.cancelled(), if !is_stopping => None,
            read = from.read(&mut buffer) => Some(read?),
        };
        match read {
            None => {
                is_stopping = true;
                stalling(write_stop(to)).await?;
            }
            Some(0) => return Ok(()),
            Some(bytes) => stalling(write_frame(to, buffer.get(..bytes).unwrap_or_default())).await?,
        }
    }
}

async fn to_peer_until_end(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
) -> io::Result<()> {
    let mut buffer = vec![0; FRAME_MAX];
    loop {
        let bytes = from.read(&mut buffer).await?;
        if bytes == 0 {
            return Ok(());
        }
        stalling(async {
            to.write_all(buffer.get(..bytes).unwrap_or_default()).await?;
            to.flush().await
        })
        .await?;
    }
}

async fn stalling(write: impl Future<Output = io::Result<()>>) -> io::Result<()> {
    timeout(STALL_MAX, write).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

#[cfg(test)]
mod tests {
    use super::super::wire::Forwarded;
    use super::*;

    /// The relay between two streams; the peer's end and the owner's.
    fn start(shutdown: &CancellationToken) -> (tokio::io::DuplexStream, Forwarded<tokio::io::DuplexStream>) {
        let ((peer, far_peer), (owner, far_owner)) = (tokio::io::duplex(64), tokio::io::duplex(64));
        tokio::spawn(relay(far_peer, b"ahead".to_vec(), far_owner, shutdown.clone()));
        (peer, Forwarded::new(owner))
    }

    #[tokio::test]
    async fn bytes_pass_both_ways_and_each_end_is_passed_on() {
        let shutdown = CancellationToken::new();
        let (mut peer, mut owner) = start(&shutdown);
        peer.write_all(b" and after").await.unwrap();
        let mut received = [0; 15];
        owner.read_exact(&mut received).await.unwrap();
        assert_eq!(&received, b"ahead and after");
        owner.write_all(b"report").await.unwrap();
        let mut report = [0; 6];
        peer.read_exact(&mut report).await.unwrap();
        assert_eq!(&report, b"report");
        // The peer ends its side, and still gets what the owner sends.
        peer.shutdown().await.unwrap();
        assert_eq!(owner.read(&mut [0]).await.unwrap(), 0);
        owner.write_all(b"last").await.unwrap();
        owner.shutdown().await.unwrap();
        let mut last = Vec::new();
        peer.read_to_end(&mut last).await.unwrap();
        assert_eq!(last, b"last");
    }

    #[tokio::test]
    async fn the_owner_learns_of_a_stop_after_the_bytes_before_it() {
        let shutdown = CancellationToken::new();
        let (mut peer, mut owner) = start(&shutdown);
        let stopping = owner.stopping();
        peer.write_all(b"!").await.unwrap();
        let mut before = [0; 6];
        owner.read_exact(&mut before).await.unwrap();
        assert!(!stopping.is_cancelled());
        shutdown.cancel();
        let owner = tokio::spawn(async move {
            let mut rest = Vec::new();
            owner.read_to_end(&mut rest).await.unwrap();
            rest
        });
        stopping.cancelled().await;
        // What the peer answers still passes.
        peer.write_all(b"logout").await.unwrap();
        peer.shutdown().await.unwrap();
        assert_eq!(owner.await.unwrap(), b"logout");
    }
}

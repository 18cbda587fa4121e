//! A TCP proxy before PostgreSQL: it counts transactions, and fails on demand.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use sqlx::PgPool;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions, PgSslMode};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Pass,
    /// The next COMMIT is executed, and its connection ends before the answer.
    CutAtCommit,
    /// The next COMMIT does not reach the server, as one that a fail-over loses; from then on [`Mode::Refuse`].
    LoseCommit,
    /// The same as [`Mode::CutAtCommit`] with every second COMMIT from now on.
    CutEverySecondCommit,
    /// The next statement that follows a COMMIT outside a transaction is executed, and its connection ends before the
    /// answer.
    CutAfterCommit,
    /// Bytes are accepted and dropped, as by a host that has vanished.
    Hang,
    /// Connections end, and new ones end immediately.
    Refuse,
}

struct Counts {
    connections: AtomicUsize,
    transactions: AtomicUsize,
    commits: AtomicUsize,
}

pub(crate) struct Proxy {
    options: PgConnectOptions,
    mode: Arc<watch::Sender<Mode>>,
    counts: Arc<Counts>,
}

impl Proxy {
    /// A proxy before the database that `direct` leads to over TCP.
    pub(crate) async fn before(direct: PgConnectOptions) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let upstream = (direct.get_host().to_owned(), direct.get_port());
        let mode = Arc::new(watch::Sender::new(Mode::Pass));
        let counts = Arc::new(Counts { connections: 0.into(), transactions: 0.into(), commits: 0.into() });
        let (modes, counted) = (Arc::clone(&mode), Arc::clone(&counts));
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                counted.connections.fetch_add(1, Ordering::Relaxed);
                let server = TcpStream::connect(&upstream).await.unwrap();
                pump(client, server, Arc::clone(&modes), Arc::clone(&counted));
            }
        });
        let options = direct.host("127.0.0.1").port(port).ssl_mode(PgSslMode::Disable);
        Self { options, mode, counts }
    }

    /// A pool whose connections go through the proxy.
    pub(crate) fn pool(&self) -> PgPool {
        PgPoolOptions::new().max_connections(4).connect_lazy_with(self.options.clone())
    }

    pub(crate) fn set(&self, mode: Mode) {
        self.mode.send_replace(mode);
    }

    /// Waits until the proxy has lost a COMMIT.
    pub(crate) async fn has_lost(&self) {
        self.mode.subscribe().wait_for(|mode| *mode == Mode::Refuse).await.unwrap();
    }

    /// Waits until the proxy has cut a connection.
    pub(crate) async fn has_cut(&self) {
        self.mode.subscribe().wait_for(|mode| *mode == Mode::Pass).await.unwrap();
    }

    pub(crate) fn transactions(&self) -> usize {
        self.counts.transactions.load(Ordering::Relaxed)
    }

    pub(crate) fn connections(&self) -> usize {
        self.counts.connections.load(Ordering::Relaxed)
    }
}

/// The shared state of a connection's two directions.
struct Link {
    mode: Arc<watch::Sender<Mode>>,
    counts: Arc<Counts>,
    /// The last message was a COMMIT.
    has_committed: AtomicBool,
    is_cut: AtomicBool,
}

fn pump(client: TcpStream, server: TcpStream, mode: Arc<watch::Sender<Mode>>, counts: Arc<Counts>) {
    for stream in [&client, &server] {
        stream.set_nodelay(true).unwrap();
    }
    let link = Arc::new(Link { mode, counts, has_committed: false.into(), is_cut: false.into() });
    let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
    tokio::spawn(async move {
        let mut modes = link.mode.subscribe();
        tokio::select! {
            () = requests(from_client, to_server, &link) => {}
            () = answers(from_server, to_client, &link) => {}
            _ = modes.wait_for(|mode| *mode == Mode::Refuse) => {}
        }
    });
}

async fn requests(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, link: &Link) {
    let mut modes = link.mode.subscribe();
    // The startup message has no type.
    let mut head = 4;
    let (mut unread, mut chunk) = (Vec::new(), vec![0; 64 * 1024]);
    while let Ok(count @ 1..) = from.read(&mut chunk).await {
        let _ = modes.wait_for(|mode| *mode != Mode::Hang).await;
        unread.extend_from_slice(&chunk[..count]);
        while let Some(message) = message(&unread, head) {
            look_at(message, link);
            if link.has_committed.load(Ordering::SeqCst) && *link.mode.borrow() == Mode::LoseCommit {
                link.mode.send_replace(Mode::Refuse);
                return;
            }
            let length = message.len();
            to.write_all(message).await.unwrap_or(());
            unread.drain(..length);
            head = 5;
        }
    }
}

/// A whole message at the beginning of the bytes.
fn message(bytes: &[u8], head: usize) -> Option<&[u8]> {
    let length = bytes.get(head - 4..head)?;
    let length = u32::from_be_bytes(length.try_into().unwrap());
    bytes.get(..head - 4 + usize::try_from(length).unwrap())
}

fn look_at(message: &[u8], link: &Link) {
    let follows_commit = link.has_committed.swap(false, Ordering::SeqCst) && !message.starts_with(b"Q");
    if follows_commit && *link.mode.borrow() == Mode::CutAfterCommit {
        link.is_cut.store(true, Ordering::SeqCst);
    }
    if message.starts_with(b"Q") {
        let text = message[5..].to_ascii_uppercase();
        if text.starts_with(b"BEGIN") {
            link.counts.transactions.fetch_add(1, Ordering::Relaxed);
        }
        if text.starts_with(b"COMMIT") {
            let is_odd = link.counts.commits.fetch_add(1, Ordering::SeqCst).is_multiple_of(2);
            let is_cut = match *link.mode.borrow() {
                Mode::CutAtCommit => true,
                Mode::CutEverySecondCommit => is_odd,
                Mode::Pass | Mode::CutAfterCommit | Mode::LoseCommit | Mode::Hang | Mode::Refuse => false,
            };
            link.is_cut.store(is_cut, Ordering::SeqCst);
            link.has_committed.store(true, Ordering::SeqCst);
        }
    }
}

async fn answers(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, link: &Link) {
    let mut modes = link.mode.subscribe();
    let mut chunk = vec![0; 64 * 1024];
    while let Ok(count @ 1..) = from.read(&mut chunk).await {
        if link.is_cut.load(Ordering::SeqCst) {
            link.mode.send_if_modified(|mode| {
                let is_last = matches!(*mode, Mode::CutAtCommit | Mode::CutAfterCommit);
                if is_last {
                    *mode = Mode::Pass;
                }
                is_last
            });
            return;
        }
        let _ = modes.wait_for(|mode| *mode != Mode::Hang).await;
        if to.write_all(&chunk[..count]).await.is_err() {
            return;
        }
    }
}

//! Forwards connections to a host: sqlx connects to a Unix socket of this process, the relay to the server.
//!
//! A connection ends when either side closes it, when TCP finds the other end gone, when an answer is overdue, or when
//! the database is found unavailable. In every case a waiting caller gets an error immediately. Only this process can
//! use the relay: a private certificate authenticates it.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixListener, UnixStream};
use tokio::time::timeout;
use tracing::warn;
use uuid::Uuid;

use super::availability::Availability;
use super::tls::{self, Client};

/// The time limit of TCP and TLS together.
const CONNECT_LIMIT: Duration = Duration::from_secs(3);
/// The time limit of the server's silence before its first ReadyForQuery.
const STARTUP_LIMIT: Duration = Duration::from_secs(4);
/// Keepalive: an idle connection is probed after this time, and closed when three probes are unanswered.
const KEEPALIVE_AFTER: Duration = Duration::from_secs(5);
const KEEPALIVE_EVERY: Duration = Duration::from_secs(2);
const KEEPALIVE_RETRIES: u32 = 3;
/// How long sent data may stay unacknowledged.
#[cfg(target_os = "linux")]
const UNACKNOWLEDGED: Duration = Duration::from_secs(10);
/// The pause after an error of the listener itself, such as too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
const BUFFER_BYTES: usize = 16 * 1024;
/// The interval of checking for overdue answers.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The time limit for a connection's last bytes.
const GOODBYE: Duration = Duration::from_secs(1);

/// The server, and the protocol settings for it.
#[derive(Debug)]
pub(super) struct Upstream {
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) tls: Option<Client>,
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

impl Upstream {
    pub(super) fn place(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    /// The name is resolved for every connection, so that a fail-over by DNS takes effect.
    async fn connect(&self) -> io::Result<Box<dyn Stream>> {
        let socket = TcpStream::connect((self.host.as_str(), self.port)).await?;
        socket.set_nodelay(true)?;
        let options = SockRef::from(&socket);
        options.set_tcp_keepalive(
            &TcpKeepalive::new()
                .with_time(KEEPALIVE_AFTER)
                .with_interval(KEEPALIVE_EVERY)
                .with_retries(KEEPALIVE_RETRIES),
        )?;
        #[cfg(target_os = "linux")]
        options.set_tcp_user_timeout(Some(UNACKNOWLEDGED))?;
        Ok(match &self.tls {
            Some(client) => Box::new(client.secure(socket).await?),
            None => Box::new(socket),
        })
    }
}

/// Opens a relay for the lifetime of the process and returns the directory of its socket for sqlx.
pub(super) fn open(
    upstream: Arc<Upstream>,
    port: u16,
    answer: Option<Duration>,
    availability: Availability,
) -> io::Result<PathBuf> {
    let dir = socket_dir()?;
    let listener = UnixListener::bind(dir.join(format!(".s.PGSQL.{port}")))?;
    tokio::spawn(async move {
        loop {
            match listener.accept().await {
                Ok((local, _)) if is_own(&local) => {
                    tokio::spawn(carry(local, Arc::clone(&upstream), answer, availability.clone()));
                }
                Ok(_) => warn!("a foreign process tried to use the database relay"),
                Err(error) => {
                    warn!(%error, "database relay could not open a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    });
    Ok(dir)
}

/// Linux has abstract socket names, which are no files: nothing is left behind, and no directory must be writable.
#[cfg(target_os = "linux")]
fn socket_dir() -> io::Result<PathBuf> {
    Ok(PathBuf::from(format!("\0dvp-database-{}", Uuid::new_v4().simple())))
}

#[cfg(not(target_os = "linux"))]
fn socket_dir() -> io::Result<PathBuf> {
    use std::os::unix::fs::DirBuilderExt as _;
    let dir = std::env::temp_dir().join(format!("dvp-{}", Uuid::new_v4().simple()));
    std::fs::DirBuilder::new().mode(0o700).create(&dir)?;
    Ok(dir)
}

fn is_own(local: &UnixStream) -> bool {
    let pid = local.peer_cred().ok().and_then(|peer| peer.pid());
    pid.and_then(|pid| u32::try_from(pid).ok()) == Some(std::process::id())
}

/// How a connection ended.
enum End {
    /// One side closed it.
    Closed,
    Failed(io::Error),
    Overdue,
    Lost,
}

async fn carry(
    mut local: UnixStream,
    upstream: Arc<Upstream>,
    answer: Option<Duration>,
    mut availability: Availability,
) {
    let connected = match timeout(CONNECT_LIMIT, upstream.connect()).await {
        Ok(connected) => connected.map_err(|error| tls::told(&error)),
        Err(_) => Err(format!("no connection within {} s", CONNECT_LIMIT.as_secs())),
    };
    let remote = match connected {
        Ok(remote) => remote,
        Err(reason) => return refuse(&mut local, &upstream, &reason).await,
    };
    let progress = Progress::new();
    let (mut from_local, mut to_local) = local.split();
    let (mut from_remote, mut to_remote) = tokio::io::split(remote);
    let end = tokio::select! {
        end = ask(&mut from_local, &mut to_remote, &progress) => end,
        end = reply(&mut from_remote, &mut to_local, &progress) => end,
        () = progress.overdue(answer) => End::Overdue,
        () = availability.lost_anew() => End::Lost,
    };
    let reason = match end {
        End::Closed => {
            let _ = timeout(GOODBYE, to_remote.shutdown()).await;
            return;
        }
        End::Failed(error) => tls::told(&error),
        End::Overdue if !progress.is_ready() => format!("no answer within {} s", STARTUP_LIMIT.as_secs()),
        End::Overdue => "an answer is overdue".to_owned(),
        // Reported once, by the watch.
        End::Lost => return,
    };
    if !progress.is_ready() {
        return refuse(&mut local, &upstream, &reason).await;
    }
    warn!(database = upstream.place(), reason, "database relay closed a connection");
}

/// Forwards sqlx's messages to the server.
async fn ask(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    progress: &Progress,
) -> End {
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let bytes = match from.read(&mut buffer).await {
            Ok(0) | Err(_) => return End::Closed,
            Ok(read) => buffer.get(..read).unwrap_or_default(),
        };
        progress.asked();
        let written = async {
            to.write_all(bytes).await?;
            to.flush().await
        };
        if let Err(error) = written.await {
            return End::Failed(error);
        }
    }
}

/// Forwards the server's messages to sqlx.
async fn reply(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    progress: &Progress,
) -> End {
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut tail = Tail::default();
    loop {
        let bytes = match from.read(&mut buffer).await {
            Ok(0) => return End::Closed,
            Ok(read) => buffer.get(..read).unwrap_or_default(),
            Err(error) => return End::Failed(error),
        };
        progress.answered(tail.is_ready_after(bytes));
        if to.write_all(bytes).await.is_err() {
            return End::Closed;
        }
    }
}

/// Sends sqlx, in the server's place, why there is no connection, so that the reason is logged.
async fn refuse(local: &mut UnixStream, upstream: &Upstream, reason: &str) {
    // sqlx's first message is read first: closing with unread input would lose the error message.
    let mut startup = [0; 1024];
    let _ = timeout(GOODBYE, local.read(&mut startup)).await;
    let reason = format!("{}: {reason}", upstream.place());
    let _ = timeout(GOODBYE, local.write_all(&fatal(&reason))).await;
}

/// An ErrorResponse of severity FATAL with SQLSTATE 08001 (the client was unable to establish a connection).
fn fatal(reason: &str) -> Vec<u8> {
    let text = reason.replace('\0', " ");
    let fields = format!("SFATAL\0VFATAL\0C08001\0M{text}\0\0");
    // The length counts itself.
    let length = u32::try_from(fields.len() + 4).unwrap_or(u32::MAX);
    [&b"E"[..], &length.to_be_bytes(), fields.as_bytes()].concat()
}

/// Since when an answer is due.
struct Progress {
    began: Instant,
    /// In milliseconds after `began`, plus one; zero when no answer is due.
    due_since: AtomicU64,
    /// Whether the server has accepted the connection.
    ready: AtomicBool,
}

impl Progress {
    fn new() -> Self {
        Self { began: Instant::now(), due_since: AtomicU64::new(0), ready: AtomicBool::new(false) }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX).saturating_add(1)
    }

    fn asked(&self) {
        self.due_since.store(self.now(), Ordering::Relaxed);
    }

    /// A part of an answer, or with `ready` its end. An unsolicited message makes no answer due.
    fn answered(&self, ready: bool) {
        self.ready.fetch_or(ready, Ordering::Relaxed);
        if self.due_since.load(Ordering::Relaxed) != 0 {
            self.due_since.store(if ready { 0 } else { self.now() }, Ordering::Relaxed);
        }
    }

    fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Relaxed)
    }

    /// Returns when an answer is due and nothing has arrived for this long.
    async fn overdue(&self, answer: Option<Duration>) {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let limit = if self.is_ready() { answer.unwrap_or(Duration::MAX) } else { STARTUP_LIMIT };
            let due_since = self.due_since.load(Ordering::Relaxed);
            let waited = Duration::from_millis(self.now().saturating_sub(due_since));
            if due_since != 0 && waited >= limit {
                return;
            }
        }
    }
}

/// The last bytes of the server's output.
#[derive(Default)]
struct Tail(Vec<u8>);

impl Tail {
    /// ReadyForQuery: its type, its length, and one byte of state.
    const READY: [u8; 5] = [b'Z', 0, 0, 0, 5];

    /// Whether the server is ready for the next query.
    fn is_ready_after(&mut self, bytes: &[u8]) -> bool {
        let keep = Self::READY.len() + 1;
        let new = bytes.get(bytes.len().saturating_sub(keep)..).unwrap_or_default();
        self.0.extend_from_slice(new);
        self.0.drain(..self.0.len().saturating_sub(keep));
        self.0.starts_with(&Self::READY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_an_answer_is_seen_however_it_arrives() {
        let answer = b"C\0\0\0\rSELECT 1\0Z\0\0\0\x05I";
        for at in 1..answer.len() {
            let mut tail = Tail::default();
            let (first, second) = answer.split_at(at);
            assert!(!tail.is_ready_after(first), "{at}");
            assert!(tail.is_ready_after(second), "{at}");
            assert!(!tail.is_ready_after(b"A"), "{at}");
        }
    }

    #[test]
    fn a_refusal_is_an_error_response_of_the_protocol() {
        let message = fatal("db:5432: no\0");
        assert_eq!(message[..5], [b'E', 0, 0, 0, 40]);
        assert_eq!(message.len(), 41);
        assert!(message.ends_with(b"Mdb:5432: no \0\0"));
    }
}

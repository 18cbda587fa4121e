//! Forwards connections to a server: sqlx connects to a Unix socket of this process, the relay to the server.
//!
//! A connection ends when either side closes it, when TCP finds the other end gone, when an answer is overdue, when
//! the database is found unavailable or another server is followed, and when the server says that a commit was not
//! confirmed by a standby. In every case a waiting caller gets an error immediately: the outcome of its COMMIT is
//! unknown, and a new connection shows it. Only this process can use the relay: a private certificate authenticates it.
//!
//! Where servers replicate, a new connection commits a barrier ([`barrier`]) before sqlx may use it.
//!
//! Kept by `core/tests/it/away.rs::waits_for_a_vanished_host_end_with_errors_and_recover`.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixListener, UnixStream};
use tokio::time::timeout;
use tracing::warn;
use uuid::Uuid;

use super::barrier;
use super::primary::{Place, Primary};
use super::tls::{self, Client};
use super::wire::{self, Message, Scanner};

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

/// Which server the connections of a relay go to, and what they carry.
#[derive(Debug, Clone)]
pub(super) struct Route {
    pub(super) servers: Arc<[Arc<Upstream>]>,
    pub(super) primary: Primary,
    /// This server, and not the followed one.
    pub(super) only: Option<usize>,
    /// Connections begin with a barrier.
    pub(super) has_barrier: bool,
    /// Connections carry nothing but barriers, which may be cancelled.
    pub(super) is_probe: bool,
}

impl Route {
    fn server(&self, place: Place) -> Option<Arc<Upstream>> {
        self.servers.get(self.only.or(place.server)?).cloned()
    }

    /// Returns when connections of this place must be closed.
    async fn left(&self, place: Place) {
        if self.only.is_some() {
            return std::future::pending().await;
        }
        self.primary.left(place).await;
    }
}

/// The servers, for display.
pub(super) fn places(servers: &[Arc<Upstream>]) -> String {
    servers.iter().map(|server| server.place()).collect::<Vec<_>>().join(", ")
}

/// Opens a relay for the lifetime of the process and returns the directory of its socket for sqlx.
pub(super) fn open(route: Route, port: u16, answer: Option<Duration>) -> io::Result<PathBuf> {
    let dir = socket_dir()?;
    let listener = UnixListener::bind(dir.join(format!(".s.PGSQL.{port}")))?;
    tokio::spawn(async move {
        loop {
            match listener.accept().await {
                Ok((local, _)) if is_own(&local) => {
                    tokio::spawn(carry(local, route.clone(), answer));
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

enum End {
    /// One side closed it.
    Closed,
    Failed(io::Error),
    /// It was not opened, or its server is not the primary.
    Refused(String),
    Overdue,
    /// Its server is no longer followed.
    Left,
    Unconfirmed,
}

async fn carry(mut local: UnixStream, route: Route, answer: Option<Duration>) {
    let place = route.primary.place();
    let progress = Progress::new();
    let Some(server) = route.server(place) else {
        let reason = format!("none of {} is known to be the primary", places(&route.servers));
        return refuse(&mut local, &reason, &progress).await;
    };
    let end = tokio::select! {
        end = converse(&mut local, &route, &server, answer, &progress) => end,
        () = route.left(place) => End::Left,
    };
    // A barrier that waits for a standby keeps its connection at the server. Nothing is lost with it.
    if progress.is_in_barrier() || (route.is_probe && progress.is_due()) {
        tokio::spawn(timeout(CONNECT_LIMIT, cancel(Arc::clone(&server), progress.key())));
    }
    let reason = match end {
        // Reported once, by the watch.
        End::Closed | End::Left => return,
        End::Failed(error) => tls::reported(&error),
        End::Refused(reason) => reason,
        End::Overdue if progress.is_in_barrier() => {
            format!("no standby confirmed a write within {} s", STARTUP_LIMIT.as_secs())
        }
        End::Overdue if !progress.is_ready() => format!("no answer within {} s", STARTUP_LIMIT.as_secs()),
        End::Overdue => "an answer is overdue".to_owned(),
        End::Unconfirmed => {
            route.primary.lose();
            "a commit was not confirmed by a standby; its outcome is unknown".to_owned()
        }
    };
    if !progress.is_ready() {
        return refuse(&mut local, &format!("{}: {reason}", server.place()), &progress).await;
    }
    warn!(database = server.place(), reason, "database relay closed a connection");
}

async fn converse(
    local: &mut UnixStream,
    route: &Route,
    server: &Upstream,
    answer: Option<Duration>,
    progress: &Progress,
) -> End {
    let mut remote = match timeout(CONNECT_LIMIT, server.connect()).await {
        Ok(Ok(remote)) => remote,
        Ok(Err(error)) => return End::Refused(tls::reported(&error)),
        Err(_) => return End::Refused(format!("no connection within {} s", CONNECT_LIMIT.as_secs())),
    };
    let opened = async {
        let (ready, mut rest) = start(local, &mut remote, progress).await?;
        if route.has_barrier {
            pass_barrier(local, &mut remote, &mut rest, route, progress).await?;
        }
        rest.splice(0..0, ready.0);
        local.write_all(&rest).await.map_err(|_| End::Closed)
    };
    if let Err(end) = opened.await {
        return end;
    }
    progress.opened();
    let (mut from_local, mut to_local) = local.split();
    let (mut from_remote, mut to_remote) = tokio::io::split(remote);
    let end = tokio::select! {
        end = ask(&mut from_local, &mut to_remote, progress) => end,
        end = reply(&mut from_remote, &mut to_local, progress) => end,
        () = progress.overdue(answer) => End::Overdue,
    };
    if matches!(end, End::Closed) {
        let _ = timeout(GOODBYE, to_remote.shutdown()).await;
    }
    end
}

/// Forwards both ways until the server is ready for the first query. Returns that message, which sqlx has not got, and
/// the bytes after it.
async fn start(
    local: &mut UnixStream,
    remote: &mut Box<dyn Stream>,
    progress: &Progress,
) -> Result<(Message, Vec<u8>), End> {
    let (mut from_local, mut to_local) = local.split();
    let (mut from_remote, mut to_remote) = tokio::io::split(remote);
    let (mut requests, mut answers) = (vec![0; BUFFER_BYTES], vec![0; BUFFER_BYTES]);
    let mut buffer = Vec::new();
    loop {
        tokio::select! {
            read = from_local.read(&mut requests) => {
                let bytes = match read {
                    Ok(0) | Err(_) => return Err(End::Closed),
                    Ok(read) => requests.get(..read).unwrap_or_default(),
                };
                progress.started();
                to_remote.write_all(bytes).await.map_err(End::Failed)?;
                to_remote.flush().await.map_err(End::Failed)?;
            }
            read = from_remote.read(&mut answers) => match read.map_err(End::Failed)? {
                0 => return Err(End::Closed),
                read => buffer.extend_from_slice(answers.get(..read).unwrap_or_default()),
            },
            () = tokio::time::sleep(STARTUP_LIMIT) => return Err(End::Overdue),
        }
        while let Some(message) = Message::take(&mut buffer) {
            match message.kind() {
                b'Z' => return Ok((message, buffer)),
                b'K' => progress.has_key(message.body()),
                _ => {}
            }
            to_local.write_all(&message.0).await.map_err(|_| End::Closed)?;
        }
    }
}

async fn pass_barrier(
    local: &mut UnixStream,
    remote: &mut Box<dyn Stream>,
    rest: &mut Vec<u8>,
    route: &Route,
    progress: &Progress,
) -> Result<(), End> {
    let floor = route.primary.floor();
    progress.in_barrier(true);
    let mut unexpected = [0];
    let answer = tokio::select! {
        answer = timeout(STARTUP_LIMIT, barrier::pass(remote, rest)) => answer.map_err(|_| End::Overdue)?,
        // sqlx sends nothing before the server is ready, unless it gives up.
        _ = local.read(&mut unexpected) => return Err(End::Closed),
    };
    progress.in_barrier(false);
    answer.and_then(|answer| route.primary.admit(answer, floor)).map_err(End::Refused)
}

/// Cancels the barrier of a connection that is closed.
async fn cancel(server: Arc<Upstream>, key: Vec<u8>) {
    if !key.is_empty()
        && let Ok(mut socket) = server.connect().await
    {
        let _ = socket.write_all(&wire::cancel_request(&key)).await;
        let _ = socket.flush().await;
        let _ = socket.shutdown().await;
    }
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
        progress.requested();
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
    let mut scanner = Scanner::default();
    loop {
        let bytes = match from.read(&mut buffer).await {
            Ok(0) => return End::Closed,
            Ok(read) => buffer.get(..read).unwrap_or_default(),
            Err(error) => return End::Failed(error),
        };
        scanner.scan(bytes);
        if scanner.has_unconfirmed_commit() {
            return End::Unconfirmed;
        }
        progress.answered(scanner.is_ready());
        if to.write_all(bytes).await.is_err() {
            return End::Closed;
        }
    }
}

/// Sends sqlx, in the server's place, why there is no connection, so that the reason is logged.
async fn refuse(local: &mut UnixStream, reason: &str, progress: &Progress) {
    // sqlx's first message is read first: closing with unread input would lose the error message.
    if !progress.has_started() {
        let mut startup = [0; 1024];
        let _ = timeout(GOODBYE, local.read(&mut startup)).await;
    }
    let _ = timeout(GOODBYE, local.write_all(&wire::fatal(reason))).await;
}

/// How far a connection is, and since when an answer is due.
struct Progress {
    began: Instant,
    /// In milliseconds after `began`, plus one; zero when no answer is due.
    due_since: AtomicU64,
    /// Whether sqlx's first message was read.
    started: AtomicBool,
    in_barrier: AtomicBool,
    /// Whether sqlx may use the connection.
    ready: AtomicBool,
    /// The body of BackendKeyData.
    key: OnceLock<Vec<u8>>,
}

impl Progress {
    fn new() -> Self {
        Self {
            began: Instant::now(),
            due_since: AtomicU64::new(0),
            started: AtomicBool::new(false),
            in_barrier: AtomicBool::new(false),
            ready: AtomicBool::new(false),
            key: OnceLock::new(),
        }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX).saturating_add(1)
    }

    fn has_key(&self, key: &[u8]) {
        let _ = self.key.set(key.to_owned());
    }

    fn key(&self) -> Vec<u8> {
        self.key.get().cloned().unwrap_or_default()
    }

    fn in_barrier(&self, is: bool) {
        self.in_barrier.store(is, Ordering::Relaxed);
    }

    fn is_in_barrier(&self) -> bool {
        self.in_barrier.load(Ordering::Relaxed)
    }

    fn started(&self) {
        self.started.store(true, Ordering::Relaxed);
    }

    fn has_started(&self) -> bool {
        self.started.load(Ordering::Relaxed)
    }

    fn opened(&self) {
        self.ready.store(true, Ordering::Relaxed);
    }

    fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Relaxed)
    }

    fn requested(&self) {
        self.due_since.store(self.now(), Ordering::Relaxed);
    }

    /// A part of an answer, or with `ready` its end. An unsolicited message makes no answer due.
    fn answered(&self, ready: bool) {
        if self.is_due() {
            self.due_since.store(if ready { 0 } else { self.now() }, Ordering::Relaxed);
        }
    }

    fn is_due(&self) -> bool {
        self.due_since.load(Ordering::Relaxed) != 0
    }

    /// Returns when an answer is due and nothing has arrived for this long.
    async fn overdue(&self, answer: Option<Duration>) {
        let Some(limit) = answer else { return std::future::pending().await };
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let due_since = self.due_since.load(Ordering::Relaxed);
            let waited = Duration::from_millis(self.now().saturating_sub(due_since));
            if due_since != 0 && waited >= limit {
                return;
            }
        }
    }
}

//! The listener: reads one Logon and passes the connection to the session it names.
//!
//! ```text
//! accept ─> address counted ─> PROXY header ─> allow-list ─> TLS ─> one Logon ─> the session's driver
//! ```
//!
//! An unauthenticated connection costs a bounded buffer, one of a bounded number of slots, and a few seconds; its peer
//! learns nothing. All of this happens in a task of its own, so that no connection delays another, and every such task
//! ends with the listener.

mod directory;
mod forwarded;
mod proxy;

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use dvp_core::listeners::source::is_in;
use dvp_domain::text::clean;
use dvp_fix::codec::Message;
use ipnet::IpNet;
use metrics::counter;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore, mpsc},
    task::JoinSet,
    time::Instant,
};
use tokio_rustls::client::TlsStream;
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info, warn};

pub use directory::{Directory, SessionKey};
use directory::{Entry, Place};
pub(crate) use forwarded::accept_forwarded;

use crate::{
    connection::{Attach, Connection, Frame, Pass, Stream, read},
    forward::{ForwardError, Forwarding, Relays, Verdict},
    gate::{NotAdmitted, Origin},
    sources::{self, Budget, Sources, Visit},
    tls::Tls,
};

/// The pause after a failed accept.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How long the next connection waits for a slot when all are in use; meanwhile the kernel's queue absorbs a burst.
const PLACE_WAIT: Duration = Duration::from_millis(250);
/// How long an authenticated connection waits for its session's driver.
const ATTACH_WAIT: Duration = Duration::from_secs(5);

/// How one listener treats unauthenticated connections.
#[derive(Debug, Clone, Default)]
pub struct ListenerConfig {
    /// Plain TCP when absent.
    pub tls: Option<Arc<Tls>>,
    /// Load balancers that send a PROXY header (version 1 or 2) with their client's address. If there are any,
    /// connections from other addresses, or without the header, are closed.
    pub proxies: Vec<IpNet>,
    /// Networks that may connect; all when empty.
    pub allow: Vec<IpNet>,
    pub budget: Budget,
    /// When a Logon is refused, counted from its arrival: the delay slows guessing, and the time of a check is not
    /// visible.
    pub refusal_delay: Duration,
    /// The answer to a refused Logon.
    pub refusal: LogonRefusal,
}

/// The answer to a refused Logon, the same for every reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LogonRefusal {
    /// No answer: the connection ends.
    #[default]
    Silent,
    /// A Logout without a reason, which uses no sequence number of the session.
    Logout,
}

/// Who takes an authenticated connection.
enum Target {
    Session(mpsc::Sender<Attach>, Pass),
    /// The process that owns its session.
    Owner(Relays, Box<TlsStream<TcpStream>>),
}

struct LogonListener {
    config: ListenerConfig,
    sources: Sources,
    directory: Directory,
    /// How connections reach sessions of other processes, if they do.
    forwarding: Option<Forwarding>,
}

/// Why a connection was closed. It is logged and not sent to the peer.
#[derive(Debug, thiserror::Error)]
enum AcceptError {
    #[error("took too long")]
    TooSlow,
    #[error("not a trusted proxy")]
    NotAProxy,
    #[error("PROXY header")]
    Proxy(#[source] io::Error),
    #[error("address not allowed")]
    Address,
    #[error("{0}")]
    TooMany(#[from] sources::TooMany),
    #[error("TLS handshake")]
    Tls(#[source] io::Error),
    #[error("no logon")]
    NoLogon,
    #[error("logon for no session here")]
    NoSession,
    #[error("{0}")]
    NotAdmitted(#[from] NotAdmitted),
    #[error("session is busy")]
    Busy,
    #[error("the session's owner has released it")]
    Moved,
    #[error("forwarding to the session's owner")]
    Forward(#[from] ForwardError),
}

/// The Logout text for a refused Logon, the same for every peer.
const REFUSED_TEXT: &str = "logon refused";

impl AcceptError {
    /// The Logout text, if one is sent.
    fn said(&self, refusal: LogonRefusal) -> Option<String> {
        match (self, refusal) {
            (Self::NotAdmitted(reason), _) if reason.is_told() => Some(reason.to_string()),
            (_, LogonRefusal::Logout) => Some(REFUSED_TEXT.to_owned()),
            (_, LogonRefusal::Silent) => None,
        }
    }

    /// The reason in one word, for metrics.
    const fn name(&self) -> &'static str {
        match self {
            Self::TooSlow => "too_slow",
            Self::NotAProxy => "not_a_proxy",
            Self::Proxy(_) => "proxy_header",
            Self::Address => "address",
            Self::TooMany(_) => "too_many",
            Self::Tls(_) => "tls",
            Self::NoLogon => "no_logon",
            Self::NoSession => "no_session",
            Self::NotAdmitted(reason) => reason.name(),
            Self::Busy => "busy",
            Self::Moved | Self::Forward(_) => "forward",
        }
    }

    /// Whether another process may be the session's owner. A Logon that the owner may have accepted is not offered again.
    const fn may_be_elsewhere(&self) -> bool {
        matches!(self, Self::Moved | Self::Forward(ForwardError::Connect(_) | ForwardError::TooSlow))
    }
}

/// Accepts on a plain listener without restrictions, until shutdown is requested.
pub async fn accept(listener: TcpListener, directory: Directory, shutdown: CancellationToken) {
    accept_with(Arc::new(listener), ListenerConfig::default(), directory, None, shutdown).await;
}

/// Accepts until shutdown is requested. A connection that cannot be accepted affects no other. Unauthenticated
/// connections are closed when this ends or is dropped.
pub(crate) async fn accept_with(
    listener: Arc<TcpListener>,
    config: ListenerConfig,
    directory: Directory,
    forwarding: Option<Forwarding>,
    shutdown: CancellationToken,
) {
    let places = Arc::new(Semaphore::new(config.budget.unauthenticated_max));
    let sources = Sources::new(&config.budget);
    let acceptor = Arc::new(LogonListener { config, sources, directory, forwarding });
    let mut unauthenticated = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            () = shutdown.cancelled() => break,
            Some(ended) = unauthenticated.join_next() => {
                if let Err(error) = ended {
                    error!(%error, "connection task failed");
                }
                continue;
            }
            accepted = listener.accept() => accepted,
        };
        let (stream, addr) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // The process is most likely out of file descriptors: wait until some are closed.
                warn!(%error, "accepting a connection failed, will retry");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let place = tokio::time::timeout(PLACE_WAIT, Arc::clone(&places).acquire_owned()).await;
        let Ok(Ok(permit)) = place else {
            warn!(peer = %addr, "too many unauthenticated connections");
            continue;
        };
        let acceptor = Arc::clone(&acceptor);
        unauthenticated.spawn(async move {
            if let Err(refused) = acceptor.handshake(stream, addr, permit).await {
                note(addr, None, &refused);
            }
        });
    }
    unauthenticated.shutdown().await;
}

impl LogonListener {
    async fn handshake(
        &self,
        stream: TcpStream,
        addr: SocketAddr,
        permit: OwnedSemaphorePermit,
    ) -> Result<(), AcceptError> {
        let budget = &self.config.budget;
        let began = Instant::now();
        // A report should not wait for the next one. Without the option it only does.
        let _ = stream.set_nodelay(true);
        let opened = tokio::time::timeout_at(began + budget.handshake, self.open(stream, addr));
        let (stream, origin, visit) = opened.await.map_err(|_| AcceptError::TooSlow)??;
        let place = (permit, visit);
        let mut connection = Connection::new(stream, origin.addr, budget.logon_bytes_max, Some(place));
        let logon = tokio::time::timeout_at(began + budget.logon, first_message(&mut connection));
        let logon = logon.await.map_err(|_| AcceptError::TooSlow)?.ok_or(AcceptError::NoLogon)?;
        let logon_came = Instant::now();
        // An unknown session is searched for within the delay of a refusal.
        let until = logon_came + self.config.refusal_delay.saturating_mul(9) / 10;
        match self.find(&logon, &origin, until).await {
            Ok(Target::Session(session, pass)) => {
                let attach = Attach::new(connection, logon, pass, None);
                // The driver is busy with other connections, or gone. The wait is short.
                session.send_timeout(attach, ATTACH_WAIT).await.map_err(|_| AcceptError::Busy)
            }
            Ok(Target::Owner(relays, owner)) => {
                let (stream, read_ahead) = connection.into_stream();
                relays.start(stream, read_ahead, *owner);
                Ok(())
            }
            Err(refused) => {
                let delay = refused_after(logon_came.elapsed(), self.config.refusal_delay);
                tokio::time::sleep_until(logon_came + delay).await;
                if let Some(text) = refused.said(self.config.refusal) {
                    connection.refuse(&logon, &text).await;
                }
                note(origin.addr, SessionKey::of(&logon).as_ref(), &refused);
                Ok(())
            }
        }
    }

    /// The session that a Logon names, here or at another process, if the peer may use it.
    async fn find(&self, logon: &Message, origin: &Origin, until: Instant) -> Result<Target, AcceptError> {
        let key = SessionKey::of(logon).ok_or(AcceptError::NoSession)?;
        loop {
            match self.directory.find(&key, until).await.ok_or(AcceptError::NoSession)? {
                Place::Here(Entry { gatekeeper, sender }) => {
                    let admission = gatekeeper.admit(&read(gatekeeper.encoding(), logon), origin).await?;
                    debug!(peer = %origin.addr, session = key.peer_comp_id, "admitted");
                    return Ok(Target::Session(
                        sender,
                        Pass { gatekeeper, origin: origin.clone(), admission },
                    ));
                }
                Place::At(address) => match self.offer(&address, logon, origin).await {
                    // The session may be moving to another owner.
                    Err(refused) if refused.may_be_elsewhere() && Instant::now() < until => {
                        self.directory.wait_for_refresh(until).await;
                    }
                    offered => return offered,
                },
            }
        }
    }

    /// Offers the connection to the owner of its session.
    async fn offer(&self, address: &str, logon: &Message, origin: &Origin) -> Result<Target, AcceptError> {
        let forwarding = self.forwarding.as_ref().ok_or(AcceptError::NoSession)?;
        let (stream, verdict) = forwarding.offer(address, origin, logon).await?;
        match verdict {
            Verdict::Admitted => {
                debug!(peer = %origin.addr, address, "forwarded");
                counter!("dvp_fix_connections_forwarded_total").increment(1);
                Ok(Target::Owner(forwarding.relays().clone(), Box::new(stream)))
            }
            Verdict::NotHere => Err(AcceptError::Moved),
            Verdict::Busy => Err(AcceptError::Busy),
            Verdict::Refused(reason) => Err(AcceptError::NotAdmitted(reason)),
        }
    }

    /// Everything before the first FIX byte.
    async fn open(
        &self,
        mut stream: TcpStream,
        addr: SocketAddr,
    ) -> Result<(Box<dyn Stream>, Origin, Visit), AcceptError> {
        let peer = self.who_is_there(&mut stream, addr).await?;
        let visit = self.sources.enter(peer.ip(), std::time::Instant::now())?;
        if !self.config.allow.is_empty() && !is_in(&self.config.allow, peer.ip()) {
            return Err(AcceptError::Address);
        }
        let Some(tls) = &self.config.tls else {
            return Ok((Box::new(stream), Origin { addr: peer, certificate: None }, visit));
        };
        let (stream, certificate) = tls.accept(stream).await.map_err(AcceptError::Tls)?;
        Ok((Box::new(stream), Origin { addr: peer, certificate }, visit))
    }

    async fn who_is_there(
        &self,
        stream: &mut TcpStream,
        addr: SocketAddr,
    ) -> Result<SocketAddr, AcceptError> {
        if self.config.proxies.is_empty() {
            return Ok(addr);
        }
        if !is_in(&self.config.proxies, addr.ip()) {
            return Err(AcceptError::NotAProxy);
        }
        let said = proxy::read_header(stream).await.map_err(AcceptError::Proxy)?;
        Ok(said.unwrap_or(addr))
    }
}

/// One line and one count of each refused connection; `named`: the session of its Logon.
fn note(peer: SocketAddr, named: Option<&SessionKey>, refused: &AcceptError) {
    const NAME_MAX: usize = 200;
    let session = named.map(|key| clean(&key.to_string(), NAME_MAX));
    info!(%peer, session, reason = refused as &dyn std::error::Error, "connection refused");
    counter!("dvp_fix_connections_refused_total", "reason" => refused.name()).increment(1);
}

/// When a refused Logon is answered, counted from its arrival: after the delay, or after a multiple of it when the
/// decision took longer.
fn refused_after(decided_after: Duration, delay: Duration) -> Duration {
    let times = decided_after.as_nanos().div_ceil(delay.as_nanos().max(1)).max(1);
    delay.saturating_mul(u32::try_from(times).unwrap_or(u32::MAX))
}

/// `None` when the first frame is garbled or no Logon.
async fn first_message(connection: &mut Connection) -> Option<Message> {
    loop {
        let frame_max = connection.frame_max;
        match connection.inbound.next(frame_max).ok()? {
            Some(Frame::Message(message)) if message.msg_type() == b"A" => return Some(message.to_owned()),
            Some(_) => return None,
            None => connection.fill().await.map(drop).ok()?,
        }
    }
}

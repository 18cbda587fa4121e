//! Connections that reach a process without their session: they are forwarded to the session's owner before their Logon
//! is answered, so that the peer notices nothing.
//!
//! ```text
//! peer ──> process A: PROXY header, allow-list, TLS, budget, Logon ──mutual TLS──> process B: credentials, session
//! ```
//!
//! Process A applies the limits on unauthenticated connections, and answers a refused Logon as one of its own. Process B
//! gets the peer's address and certificate from A and decides by them as for its own connections. A forwarded connection
//! is never forwarded again: B has the session, or A tries another owner.
//!
//! Both processes prove that they have a master key of the service; see [`identity`].
//!
//! Kept by `fix-gateway/tests/it/processes.rs::every_session_is_reached_through_every_process` and
//! `fix-gateway/tests/it/processes.rs::only_processes_of_the_service_forward_connections`.

mod identity;
mod relay;
mod wire;

use std::{net::SocketAddr, sync::Arc, time::Duration};

use dvp_core::secrets::Vault;
use dvp_fix::codec::Message;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::{Instant, timeout, timeout_at},
};
use tokio_rustls::{
    TlsAcceptor, TlsConnector,
    client::TlsStream,
    rustls::{self, pki_types::ServerName},
    server,
};

pub(crate) use self::relay::Relays;
pub(crate) use self::wire::{Forwarded, Verdict};
use crate::gate::Origin;

/// How long an owner may take to accept the connection, TLS included.
const CONNECT_MAX: Duration = Duration::from_secs(2);
/// How long the owner may take to check the Logon.
const VERDICT_MAX: Duration = Duration::from_secs(8);

/// Where the other processes of the service reach this one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForwardConfig {
    /// The listener for forwarded connections; port 0 takes any free one.
    pub listen: SocketAddr,
    /// `host:port` by which the other processes reach it; the listener's own address when absent.
    pub address: Option<String>,
}

/// Why a connection could not be forwarded.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ForwardError {
    #[error("the owner is not reached")]
    Connect(#[source] std::io::Error),
    #[error("the owner does not accept the connection in time")]
    TooSlow,
    /// The owner may have accepted the Logon.
    #[error("the owner does not answer")]
    NoVerdict,
}

/// Both sides' TLS, with the keys of this service.
#[derive(Clone)]
pub(crate) struct Forwarding {
    connector: TlsConnector,
    acceptor: TlsAcceptor,
    relays: Relays,
}

impl std::fmt::Debug for Forwarding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Forwarding").finish_non_exhaustive()
    }
}

impl Forwarding {
    pub(crate) fn new(vault: &Vault) -> Result<Self, rustls::Error> {
        let (client, server) = identity::configs(&vault.process_keys())?;
        let (connector, acceptor) =
            (TlsConnector::from(Arc::new(client)), TlsAcceptor::from(Arc::new(server)));
        Ok(Self { connector, acceptor, relays: Relays::new() })
    }

    pub(crate) const fn relays(&self) -> &Relays {
        &self.relays
    }

    /// Offers a connection with its Logon to the process at `address`.
    pub(crate) async fn offer(
        &self,
        address: &str,
        origin: &Origin,
        logon: &Message,
    ) -> Result<(TlsStream<TcpStream>, Verdict), ForwardError> {
        let until = Instant::now() + CONNECT_MAX;
        let connected = timeout_at(until, self.connect(address)).await.map_err(|_| ForwardError::TooSlow)?;
        let mut stream = connected.map_err(ForwardError::Connect)?;
        let offered = timeout(VERDICT_MAX, async {
            stream.write_all(&wire::header(origin)).await?;
            wire::write_frame(&mut stream, logon.view().bytes()).await?;
            stream.read_u8().await
        });
        let verdict = offered.await.ok().and_then(Result::ok).and_then(Verdict::of);
        Ok((stream, verdict.ok_or(ForwardError::NoVerdict)?))
    }

    /// The owner's side: the handshake and the header. The caller limits the time.
    pub(crate) async fn accept(
        &self,
        stream: TcpStream,
    ) -> std::io::Result<(Forwarded<server::TlsStream<TcpStream>>, Origin)> {
        let mut stream = self.acceptor.accept(stream).await?;
        let origin = wire::read_header(&mut stream).await?;
        Ok((Forwarded::new(stream), origin))
    }

    async fn connect(&self, address: &str) -> std::io::Result<TlsStream<TcpStream>> {
        let stream = TcpStream::connect(address).await?;
        let _ = stream.set_nodelay(true);
        // The owner proves its key, whatever its name is.
        let name = ServerName::try_from("dvp").map_err(std::io::Error::other)?;
        self.connector.connect(name, stream).await
    }
}

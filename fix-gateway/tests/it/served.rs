//! A session on a socket of its own, with a test's application behind it.

use std::net::SocketAddr;

use dvp_fix::{dictionary::Rules, session::SessionConfig};
use dvp_fix_gateway::{Application, Directory, Driver, SessionKey, acceptor};
use tokio::{net::TcpListener, task::JoinSet};
use tokio_util::sync::CancellationToken;

use super::client::Client;

pub(crate) const ORDER: &str = "11=A|21=1|38=1|40=1|54=1|55=USDC/USD|60=20261121-12:00:40";

pub(crate) struct Served {
    pub(crate) addr: SocketAddr,
    stop: CancellationToken,
    tasks: JoinSet<()>,
}

/// The configuration of `FIX.4.4:DVP->ACME`.
pub(crate) fn config() -> SessionConfig {
    SessionConfig::new("FIX.4.4", "DVP", "ACME", Rules::strict("FIX.4.4", "FIX.4.4").unwrap())
}

impl Served {
    pub(crate) async fn start(app: impl Application) -> Self {
        Self::start_as(app, config(), |driver| driver).await
    }

    /// A session that differs from that of the other tests.
    pub(crate) async fn start_as<A: Application>(
        app: A,
        config: SessionConfig,
        change: impl FnOnce(Driver<A>) -> Driver<A>,
    ) -> Self {
        let directory = Directory::default();
        let attach = directory.announce(SessionKey::of_session(&config));
        let (stop, mut tasks) = (CancellationToken::new(), JoinSet::new());
        tasks.spawn(change(Driver::new(app, config, attach)).run(stop.clone()));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        tasks.spawn(acceptor::accept(listener, directory, stop.clone()));
        Self { addr, stop, tasks }
    }

    pub(crate) async fn connect(&self) -> Client {
        Client::connect(self.addr, "FIX.4.4", "ACME").await
    }

    /// Ends the session.
    pub(crate) async fn end(self) {
        self.stop.cancel();
        self.tasks.join_all().await;
    }
}

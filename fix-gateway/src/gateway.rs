//! All FIX sessions of this process and their listeners.
//!
//! A session has one owner among all processes, by a lease in the database. The owner's driver runs whether or not the
//! peer is connected, because reports are also written for a disconnected peer.

use std::{net::SocketAddr, sync::Arc};

use dvp_core::engine::Engine;
use dvp_store::{
    PgPool,
    workers::{Items, Worker, supervise_until},
};
use tokio::{net::TcpListener, sync::Notify};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};
use tracing::error;
use uuid::Uuid;

use crate::{
    acceptor::{self, Directory, ListenerConfig},
    archive::Archive,
    config::GatewayConfig,
    feed::{self, Feed},
    forward::{ForwardConfig, Forwarding},
    gate::Lockouts,
    status::Board,
    supervisor::{SESSION_LOOK_MAX, SessionSupervisor},
};

/// The gateway, bound and not yet running.
pub struct FixGateway {
    listeners: Vec<(TcpListener, ListenerConfig)>,
    engine: Engine,
    pool: PgPool,
    config: GatewayConfig,
    directory: Directory,
    owner: Uuid,
    forward: Option<Forward>,
}

/// The listener for connections that other processes forward, and the address by which these reach it.
struct Forward {
    listener: TcpListener,
    address: String,
    forwarding: Forwarding,
}

impl Forward {
    async fn bind(config: &ForwardConfig, engine: &Engine) -> std::io::Result<Self> {
        let forwarding = Forwarding::new(&engine.context().vault).map_err(std::io::Error::other)?;
        let listener = TcpListener::bind(config.listen).await?;
        let address = match &config.address {
            Some(address) => address.clone(),
            None => listener.local_addr()?.to_string(),
        };
        Ok(Self { listener, address, forwarding })
    }
}

impl FixGateway {
    /// Binds the first listener; port 0 takes any free one. `owner` of leases is drawn here.
    pub async fn bind(
        addr: SocketAddr,
        engine: Engine,
        pool: PgPool,
        config: GatewayConfig,
    ) -> std::io::Result<(Self, SocketAddr)> {
        let directory = Directory::kept_up_to_date();
        let listeners = Vec::new();
        let forward = match &config.forward {
            Some(forward) => Some(Forward::bind(forward, &engine).await?),
            None => None,
        };
        let mut gateway = Self { listeners, engine, pool, config, directory, owner: Uuid::new_v4(), forward };
        let first = gateway.config.listener.clone();
        let local = gateway.listen(addr, first).await?;
        Ok((gateway, local))
    }

    /// Binds one more listener, to the same sessions; port 0 takes any free one. A refused Logon is answered there as
    /// on every other, so that no listener reveals more than another.
    pub async fn listen(&mut self, addr: SocketAddr, config: ListenerConfig) -> std::io::Result<SocketAddr> {
        let GatewayConfig { refusal_delay, refusal, .. } = self.config;
        let config = ListenerConfig { refusal_delay, refusal, ..config };
        let listener = TcpListener::bind(addr).await?;
        let local = listener.local_addr()?;
        self.listeners.push((listener, config));
        Ok(local)
    }

    /// Where other processes forward connections to this one, if they do.
    pub fn forward_address(&self) -> Option<&str> {
        self.forward.as_ref().map(|forward| forward.address.as_str())
    }

    /// Runs until shutdown is requested; then logs the sessions out, releases them, and completes the commits in
    /// flight.
    pub async fn run(self, shutdown: CancellationToken) {
        let Self { listeners, engine, pool, config, directory, owner, forward } = self;
        let lockout = config.lockout;
        let (feed, changed) = (Feed::default(), Arc::<Notify>::default());
        // Dropping this future ends everything it started.
        let _follower = {
            let (feed, pool, changed) = (feed.clone(), pool.clone(), Arc::clone(&changed));
            let follow = move |_| feed::follow(feed.clone(), pool.clone(), Arc::clone(&changed));
            supervised(Worker::FixFeed, &shutdown, follow)
        };
        let mut tasks = Vec::new();
        let background = engine.in_background().pool().clone();
        let archive = config.archives_messages.then(|| {
            let (archive, writer) = Archive::over(background.clone());
            tasks.push(AbortOnDropHandle::new(tokio::spawn(writer.run_supervised())));
            archive
        });
        let board = Board::default();
        let written = board.clone();
        let write = move |stop| written.clone().write(background.clone(), owner, stop);
        tasks.push(supervised(Worker::FixStatus, &shutdown, write));
        let supervisor = SessionSupervisor {
            items: Items::new(pool.clone(), Worker::FixSessions, SESSION_LOOK_MAX),
            engine,
            pool,
            config,
            directory: directory.clone(),
            owner,
            forward_address: forward.as_ref().map(|forward| forward.address.clone()),
            feed,
            changed,
            lockouts: Arc::new(Lockouts::new(lockout)),
            archive,
            board,
        };
        let forwarding = forward.map(|Forward { listener, forwarding, .. }| {
            let (listener, forwarded, directory) =
                (Arc::new(listener), forwarding.clone(), directory.clone());
            let accept = move |stop| {
                let listener = Arc::clone(&listener);
                acceptor::accept_forwarded(listener, forwarded.clone(), directory.clone(), stop)
            };
            tasks.push(supervised(Worker::FixListeners, &shutdown, accept));
            forwarding
        });
        for (listener, config) in listeners {
            if let Some(tls) = config.tls.clone() {
                let watch = move |stop| Arc::clone(&tls).watch(stop);
                tasks.push(supervised(Worker::FixListeners, &shutdown, watch));
            }
            let (listener, directory, forwarding) =
                (Arc::new(listener), directory.clone(), forwarding.clone());
            let accept = move |stop| {
                let (listener, directory) = (Arc::clone(&listener), directory.clone());
                acceptor::accept_with(listener, config.clone(), directory, forwarding.clone(), stop)
            };
            tasks.push(supervised(Worker::FixListeners, &shutdown, accept));
        }
        let relaying = async {
            shutdown.cancelled().await;
            if let Some(forwarding) = forwarding {
                forwarding.relays().stop().await;
            }
        };
        let stop = shutdown.clone();
        let keeping = async move {
            // With it ends the last handle of the archive.
            let supervisor = supervisor;
            let keep = || supervisor.keep(stop.clone());
            supervise_until(Worker::FixSessions, || stop.is_cancelled(), keep).await;
        };
        tokio::join!(keeping, relaying);
        for task in tasks {
            if let Err(error) = task.await {
                error!(%error, "task failed");
            }
        }
    }
}

/// Runs a worker until `shutdown`, which it notices itself.
fn supervised<F: Future<Output = ()> + Send + 'static>(
    worker: Worker,
    shutdown: &CancellationToken,
    start: impl Fn(CancellationToken) -> F + Send + Sync + 'static,
) -> AbortOnDropHandle<()> {
    let shutdown = shutdown.clone();
    AbortOnDropHandle::new(tokio::spawn(async move {
        supervise_until(worker, || shutdown.is_cancelled(), || start(shutdown.clone())).await;
    }))
}

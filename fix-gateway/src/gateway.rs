//! All FIX sessions of this process and their listeners.
//!
//! A session has one owner among all processes, by a lease in the database. The owner's driver runs whether or not the
//! peer is connected, because reports are also written for a disconnected peer.

use std::{net::SocketAddr, sync::Arc};

use dvp_core::engine::Engine;
use dvp_store::PgPool;
use tokio::{net::TcpListener, sync::Notify};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};
use tracing::error;
use uuid::Uuid;

use crate::{
    acceptor::{self, Directory, ListenerConfig},
    config::GatewayConfig,
    feed::{self, Feed},
    gate::Lockouts,
    supervisor::SessionSupervisor,
};

/// The gateway, bound and not yet running.
pub struct FixGateway {
    listeners: Vec<(TcpListener, ListenerConfig)>,
    engine: Engine,
    pool: PgPool,
    config: GatewayConfig,
    directory: Directory,
    owner: Uuid,
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
        let mut gateway = Self { listeners, engine, pool, config, directory, owner: Uuid::new_v4() };
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

    /// Runs until told to stop; then logs the sessions out, releases them, and completes the commits in flight.
    pub async fn run(self, shutdown: CancellationToken) {
        let Self { listeners, engine, pool, config, directory, owner } = self;
        let lockout = config.lockout;
        let (feed, changed) = (Feed::default(), Arc::<Notify>::default());
        // Dropping this future ends everything it started.
        let following = feed::follow(feed.clone(), pool.clone(), Arc::clone(&changed));
        let _follower = AbortOnDropHandle::new(tokio::spawn(following));
        let supervisor = SessionSupervisor {
            engine,
            pool,
            config,
            directory: directory.clone(),
            owner,
            feed,
            changed,
            lockouts: Arc::new(Lockouts::new(lockout)),
        };
        let mut tasks = Vec::new();
        for (listener, config) in listeners {
            if let Some(tls) = config.tls.clone() {
                tasks.push(AbortOnDropHandle::new(tokio::spawn(tls.watch(shutdown.clone()))));
            }
            let accepting = acceptor::accept_with(listener, config, directory.clone(), shutdown.clone());
            tasks.push(AbortOnDropHandle::new(tokio::spawn(accepting)));
        }
        supervisor.keep(shutdown).await;
        for task in tasks {
            join(task).await;
        }
    }
}

async fn join(task: AbortOnDropHandle<()>) {
    if let Err(error) = task.await {
        error!(%error, "task failed");
    }
}

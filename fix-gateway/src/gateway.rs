//! All FIX sessions of this process: which of them it owns, and the door they are reached by.
//!
//! A session has one owner among all processes, by a lease in the database. The owner's driver runs whether or not the
//! peer is connected, because reports are written for a peer that is away, too.

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use dvp_core::{
    engine::Engine,
    store::{
        PgPool, StoreError,
        fix::{self, FixSessionRow},
        fix_settings::{FixSessionSettings, find_settings},
        lease::Lease,
    },
};
use sqlx::postgres::PgListener;
use tokio::{net::TcpListener, sync::watch, task::JoinSet};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};
use tracing::{debug, error, info, warn};
use uuid::Uuid;

use crate::{
    acceptor::{self, Directory, DoorConfig, SessionKey},
    agreement::session_config,
    desk::Desk,
    driver::{Driver, SlowConsumer},
    gate::{Lockouts, SessionGate},
};

/// Sessions read at once.
const PAGE: i64 = 500;
/// Before sessions are looked up because somebody named one that is not here: strangers may do so all the time.
const REFRESH_PAUSE: Duration = Duration::from_millis(20);
/// The channel that the writer notifies when the feed grows.
const FEED_CHANNEL: &str = "dvp_feed";

/// How the gateway keeps its sessions.
#[derive(Debug, Clone)]
pub struct GatewayConfig {
    /// How long a session stays with an owner that has stopped renewing.
    pub lease_ttl: Duration,
    /// How often new sessions, and sessions whose owner has died, are looked for.
    pub refresh: Duration,
    /// After which a refused Logon on the plain listener is answered.
    pub refusal_delay: Duration,
    /// What a peer may leave unread.
    pub slow_consumer: SlowConsumer,
}

impl Default for GatewayConfig {
    fn default() -> Self {
        Self {
            lease_ttl: Duration::from_secs(10),
            refresh: Duration::from_secs(2),
            refusal_delay: Duration::from_secs(1),
            slow_consumer: SlowConsumer::default(),
        }
    }
}

/// The gateway, bound and not yet running.
pub struct FixGateway {
    doors: Vec<(TcpListener, DoorConfig)>,
    engine: Engine,
    pool: PgPool,
    config: GatewayConfig,
    directory: Directory,
    owner: Uuid,
}

impl FixGateway {
    /// Binds a plain listener; port 0 takes any free one. `owner` of leases is drawn here.
    pub async fn bind(
        addr: SocketAddr,
        engine: Engine,
        pool: PgPool,
        config: GatewayConfig,
    ) -> std::io::Result<(Self, SocketAddr)> {
        let directory = Directory::kept_up_to_date();
        let doors = Vec::new();
        let mut gateway = Self { doors, engine, pool, config, directory, owner: Uuid::new_v4() };
        let door = DoorConfig { refusal_delay: gateway.config.refusal_delay, ..DoorConfig::default() };
        let local = gateway.listen(addr, door).await?;
        Ok((gateway, local))
    }

    /// Binds one more listener, to the same sessions; port 0 takes any free one.
    pub async fn listen(&mut self, addr: SocketAddr, door: DoorConfig) -> std::io::Result<SocketAddr> {
        let listener = TcpListener::bind(addr).await?;
        let local = listener.local_addr()?;
        self.doors.push((listener, door));
        Ok(local)
    }

    /// Runs until told to stop; then sessions are logged out and given up, and what is in flight is finished.
    pub async fn run(self, shutdown: CancellationToken) {
        let Self { doors, engine, pool, config, directory, owner } = self;
        let (grown, feed) = watch::channel(0);
        // Dropping this future ends everything it started.
        let follower =
            AbortOnDropHandle::new(tokio::spawn(follow_feed(pool.clone(), grown, shutdown.clone())));
        let lockouts = Arc::default();
        let keeper = Keeper { engine, pool, config, directory: directory.clone(), owner, feed, lockouts };
        let mut tasks = vec![follower];
        for (listener, door) in doors {
            if let Some(tls) = door.tls.clone() {
                tasks.push(AbortOnDropHandle::new(tokio::spawn(tls.watch(shutdown.clone()))));
            }
            let accepting = acceptor::accept_with(listener, door, directory.clone(), shutdown.clone());
            tasks.push(AbortOnDropHandle::new(tokio::spawn(accepting)));
        }
        keeper.keep(shutdown).await;
        for task in tasks {
            join(task).await;
        }
    }
}

async fn join(task: AbortOnDropHandle<()>) {
    if let Err(error) = task.await {
        error!(%error, "task ended badly");
    }
}

/// Ticks whenever the feed grows. Losing the connection costs only time: sessions look for themselves, too.
async fn follow_feed(pool: PgPool, grown: watch::Sender<u64>, shutdown: CancellationToken) {
    let follow = async {
        loop {
            match listen(&pool, &grown).await {
                Ok(()) => return,
                Err(error) => warn!(%error, "not told when the feed grows"),
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    tokio::select! {
        () = shutdown.cancelled() => {}
        () = follow => {}
    }
}

async fn listen(pool: &PgPool, grown: &watch::Sender<u64>) -> Result<(), sqlx::Error> {
    let mut listener = PgListener::connect_with(pool).await?;
    listener.listen(FEED_CHANNEL).await?;
    while !grown.is_closed() {
        listener.recv().await?;
        grown.send_modify(|ticks| *ticks = ticks.wrapping_add(1));
    }
    Ok(())
}

/// Takes sessions that nobody owns, and runs their drivers.
struct Keeper {
    engine: Engine,
    pool: PgPool,
    config: GatewayConfig,
    directory: Directory,
    owner: Uuid,
    feed: watch::Receiver<u64>,
    lockouts: Arc<Lockouts>,
}

impl Keeper {
    async fn keep(self, shutdown: CancellationToken) {
        let mut running: HashMap<String, CancellationToken> = HashMap::new();
        let mut tasks: JoinSet<String> = JoinSet::new();
        loop {
            if let Err(error) = self.take_free(&mut running, &mut tasks, &shutdown).await {
                warn!(%error, "cannot look for sessions");
            }
            self.directory.refreshed();
            tokio::select! {
                () = shutdown.cancelled() => break,
                () = tokio::time::sleep(self.config.refresh) => {}
                () = self.directory.refresh_asked() => tokio::time::sleep(REFRESH_PAUSE).await,
                Some(ended) = tasks.join_next() => match ended {
                    Ok(session_id) => { running.remove(&session_id); }
                    Err(error) => {
                        error!(%error, "a session ended badly");
                        // Which one is not known: those whose token is gone are taken again by their lease.
                        running.retain(|_, token| !token.is_cancelled());
                    }
                },
            }
        }
        while let Some(ended) = tasks.join_next().await {
            if let Err(error) = ended {
                error!(%error, "a session ended badly");
            }
        }
    }

    async fn take_free(
        &self,
        running: &mut HashMap<String, CancellationToken>,
        tasks: &mut JoinSet<String>,
        shutdown: &CancellationToken,
    ) -> Result<(), StoreError> {
        let mut after = String::new();
        loop {
            let mut conn = self.pool.acquire().await?;
            let sessions = fix::list_sessions(&mut conn, &after, PAGE).await?;
            drop(conn);
            let Some(last) = sessions.last() else { return Ok(()) };
            after.clone_from(&last.session_id);
            for session in sessions {
                if running.contains_key(&session.session_id) {
                    continue;
                }
                let name = format!("fix:{}", session.session_id);
                let lease = Lease::acquire(&self.pool, &name, self.owner, self.config.lease_ttl).await?;
                if let Some(lease) = lease {
                    let mut conn = self.pool.acquire().await?;
                    let settings = find_settings(&mut conn, &session.session_id).await?.unwrap_or_default();
                    drop(conn);
                    let token = shutdown.child_token();
                    running.insert(session.session_id.clone(), token.clone());
                    self.start(session, &settings, lease, token, tasks);
                }
            }
        }
    }

    fn start(
        &self,
        session: FixSessionRow,
        settings: &FixSessionSettings,
        lease: Lease,
        token: CancellationToken,
        tasks: &mut JoinSet<String>,
    ) {
        let session_id = session.session_id.clone();
        let config = match session_config(&session, settings) {
            Ok(config) => config,
            Err(reason) => {
                error!(session_id, %reason, "this session cannot be run");
                return;
            }
        };
        let key = SessionKey {
            begin_string: session.begin_string.clone(),
            peer_comp_id: session.client_comp_id.clone(),
            our_comp_id: session.service_comp_id.clone(),
        };
        info!(session_id, "session taken");
        let gate = SessionGate::new(self.engine.clone(), session_id.clone(), Arc::clone(&self.lockouts));
        let attach = self.directory.announce_guarded(key.clone(), Arc::new(gate));
        let desk = Desk::new(self.engine.clone(), session, settings, self.feed.clone());
        let driver = Driver::new(desk, config, attach).with_slow_consumer(self.config.slow_consumer);
        let (pool, directory, ttl) = (self.pool.clone(), self.directory.clone(), self.config.lease_ttl);
        tasks.spawn(async move {
            // A task of its own: a session that is busy must not lose its lease over it.
            let lease = Arc::new(Mutex::new(lease));
            let renewing = cancel_when_lost(pool.clone(), Arc::clone(&lease), ttl, token.clone());
            let renewing = AbortOnDropHandle::new(tokio::spawn(renewing));
            driver.run(token).await;
            drop(renewing);
            directory.withdraw(&key);
            if let Err(error) = held(&lease).release(&pool).await {
                debug!(%error, session_id, "lease not released; it will run out");
            }
            session_id
        });
    }
}

/// The lease as it is now: taking it again after a pause changes its fence.
type Held = Arc<Mutex<Lease>>;

fn held(lease: &Held) -> Lease {
    // No code panics while it holds the lease.
    lease.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Renews the lease for as long as that is possible, and ends the session when it is not.
async fn cancel_when_lost(pool: PgPool, lease: Held, ttl: Duration, session: CancellationToken) {
    let mut renewed_at = tokio::time::Instant::now();
    loop {
        tokio::time::sleep(ttl / 3).await;
        let current = held(&lease);
        match renew(&pool, &current, ttl).await {
            Ok(Some(renewed)) => {
                *lease.lock().unwrap_or_else(PoisonError::into_inner) = renewed;
                renewed_at = tokio::time::Instant::now();
            }
            Ok(None) => break,
            // The database may be away for a moment; the lease holds a little longer than that.
            Err(error) => {
                warn!(%error, lease = current.name, "lease not renewed");
                if renewed_at.elapsed() >= ttl {
                    break;
                }
            }
        }
    }
    warn!(lease = held(&lease).name, "lease lost");
    session.cancel();
}

/// `None`: somebody else has the lease, or had it meanwhile. One that ran out because the database was slow, and that
/// nobody took, goes on.
async fn renew(pool: &PgPool, lease: &Lease, ttl: Duration) -> Result<Option<Lease>, StoreError> {
    if lease.renew(pool).await? {
        return Ok(Some(lease.clone()));
    }
    let again = Lease::acquire(pool, &lease.name, lease.owner, ttl).await?;
    let Some(again) = again else { return Ok(None) };
    if again.fence == lease.fence + 1 {
        return Ok(Some(again));
    }
    again.release(pool).await?;
    Ok(None)
}

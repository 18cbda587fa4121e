//! The sessions of this process: acquires leases of sessions without an owner, runs their drivers, and passes
//! operators' commands to them.
//!
//! One query per sweep reads every session with its lease, so that sessions of other processes cost nothing more. A
//! failed driver is restarted, with a growing delay; a session with an invalid configuration waits until its row
//! changes. Unauthenticated connections cause no queries: a new session is found by the next sweep, which its
//! notification triggers immediately.

mod commands;
mod faults;

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use dvp_core::engine::Engine;
use dvp_fix::session::SessionConfig;
use dvp_store::{
    PgPool, StoreError,
    database::lease::LeaseGuard,
    fix::{
        self, ConfiguredSession, FixPopulation, FixSessionRow, UnreadableSession,
        settings::FixSessionSettings,
    },
    workers::{self, Items, Step, guarded},
};
use tokio::{
    sync::{Notify, mpsc, oneshot},
    task::{Id, JoinError, JoinSet},
};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};
use tracing::{error, info, warn};
use uuid::Uuid;

use crate::{
    acceptor::{Directory, SessionKey},
    archive::Archive,
    config::GatewayConfig,
    driver::{Ask, Control, Driver},
    feed::Feed,
    gate::{Lockouts, SessionGate},
    order_entry::OrderEntry,
    session_config::{Terms, session_config},
    status::Board,
};
use faults::Faults;

/// Sessions read at once.
const PAGE: i64 = 500;
/// The delay after a notification, so that many changes cost one sweep.
const CHANGE_PAUSE: Duration = Duration::from_millis(20);
/// The capacity of a driver's command queue.
const CONTROL_QUEUE: usize = 4;
/// A session without an owner that no process takes within its share is taken by any process after this time. All of them
/// look at the moment when a lease is released or ends, so that those with room are first.
const LEFT_OVER_AFTER: Duration = Duration::from_millis(500);
/// A session taken beyond the share is released for balance after this time at the earliest: a process that could not take
/// it may be able to by then.
const LEFT_OVER_KEPT: Duration = Duration::from_secs(60);
/// From the end of another process's lease to the sweep that finds it ended, so that the clock's steps do not matter.
const LEASE_ENDED: Duration = Duration::from_millis(20);
/// The longest time for one session in a sweep.
pub(crate) const SESSION_LOOK_MAX: Duration = Duration::from_secs(2);
/// A session whose driver runs for so long is no longer set aside.
const RUNS_AFTER: Duration = Duration::from_secs(2);
const DISABLED_TEXT: &str = "session disabled";

/// Acquires sessions without an owner, and runs their drivers.
pub(crate) struct SessionSupervisor {
    /// The sessions that fail.
    pub(crate) items: Items,
    pub(crate) engine: Engine,
    pub(crate) pool: PgPool,
    pub(crate) config: GatewayConfig,
    pub(crate) directory: Directory,
    pub(crate) owner: Uuid,
    /// Where other processes forward connections to this one. `None`: this process shares sessions with no other.
    pub(crate) forward_address: Option<String>,
    pub(crate) feed: Feed,
    /// Notified when a session may have changed.
    pub(crate) changed: Arc<Notify>,
    pub(crate) lockouts: Arc<Lockouts>,
    pub(crate) archive: Option<Archive>,
    pub(crate) board: Board,
}

/// A session whose driver runs in this process.
struct Running {
    control: mpsc::Sender<Control>,
    terms: Terms,
    key: SessionKey,
    since: Instant,
    /// The request to the driver to end.
    sent: Option<Ask>,
    is_connected: Arc<AtomicBool>,
    /// No other process took the session: it is not released for balance until then.
    kept_until: Option<Instant>,
}

/// The sessions of this process.
#[derive(Default)]
struct Sessions {
    running: HashMap<String, Running>,
    tasks: JoinSet<Result<(), StoreError>>,
    ids: HashMap<Id, String>,
    faults: Faults,
    /// Sessions without an owner, beyond this process's share, and since when.
    left_over: HashMap<String, Instant>,
    /// When the first lease of another process ends that is not renewed by then.
    first_end: Option<Instant>,
}

impl SessionSupervisor {
    pub(crate) async fn keep(&self, shutdown: CancellationToken) {
        let mut sessions = Sessions::default();
        while !shutdown.is_cancelled() {
            if let Err(error) = self.sweep(&mut sessions, &shutdown).await {
                warn!(%error, "session sweep failed, will retry");
            }
            self.directory.refreshed();
            // A session that ended because of the stop must not be acquired again.
            let pause = sessions.next_sweep(Instant::now(), self.config.refresh);
            tokio::select! {
                biased;
                () = shutdown.cancelled() => break,
                () = tokio::time::sleep(pause) => {}
                () = self.changed.notified() => tokio::time::sleep(CHANGE_PAUSE).await,
                Some(ended) = sessions.tasks.join_next_with_id() => self.note_ended(&mut sessions, ended).await,
            }
        }
        if let Err(error) = self.leave().await {
            warn!(%error, "registration of this process not deleted, it will expire");
        }
        while let Some(ended) = sessions.tasks.join_next_with_id().await {
            self.note_ended(&mut sessions, ended).await;
        }
    }

    /// A session whose driver failed is set aside until it runs again.
    async fn note_ended(
        &self,
        sessions: &mut Sessions,
        ended: Result<(Id, Result<(), StoreError>), JoinError>,
    ) {
        if let Some((session_id, why)) = sessions.ended(&self.directory, ended) {
            self.items.note(&session_id, &session_id, Err(why)).await;
        }
    }

    /// Registers this process among those that share the sessions. Returns its share; `None` without a limit.
    async fn register(&self) -> Result<Option<usize>, StoreError> {
        let Some(address) = &self.forward_address else { return Ok(None) };
        let mut conn = self.pool.acquire().await?;
        // A process that is gone leaves the share before its leases expire.
        let alive = self.config.lease_ttl / 2;
        let FixPopulation { sessions, processes } =
            fix::register_process(&mut conn, self.owner, address, alive).await?;
        let share = sessions.div_euclid(processes.max(1)) + i64::from(sessions % processes.max(1) > 0);
        Ok(Some(usize::try_from(share).unwrap_or(usize::MAX)))
    }

    async fn leave(&self) -> Result<(), StoreError> {
        if self.forward_address.is_none() {
            return Ok(());
        }
        let mut conn = self.pool.acquire().await?;
        fix::leave_processes(&mut conn, self.owner).await
    }

    /// Checks every session once.
    async fn sweep(&self, sessions: &mut Sessions, shutdown: &CancellationToken) -> Result<(), StoreError> {
        sessions.first_end = None;
        let share = self.register().await?;
        let mut elsewhere = HashMap::new();
        let mut after = String::new();
        loop {
            let mut conn = self.pool.acquire().await?;
            let page = fix::list_configured(&mut conn, &after, PAGE).await?;
            drop(conn);
            let Some(last) = page.last() else { break };
            after = match last {
                Ok(found) => found.session.session_id.clone(),
                Err(unreadable) => unreadable.session_id.clone(),
            };
            for found in page {
                match found {
                    Ok(found) => {
                        if let Some(address) = self.owner_elsewhere(&found) {
                            elsewhere.insert(key(&found.session), address);
                        }
                        let session_id = found.session.session_id.clone();
                        let looking = async {
                            workers::at(Step::FixSessionLook, &session_id).await?;
                            self.look_at(sessions, found, share, shutdown).await;
                            Ok::<_, StoreError>(())
                        };
                        // A session that is set aside here because its driver failed is looked at all the same.
                        if let Err(error) = guarded(SESSION_LOOK_MAX, looking).await {
                            self.items.note(&session_id, &session_id, Err(error.to_string())).await;
                        }
                    }
                    Err(UnreadableSession { session_id, error }) => {
                        if sessions.faults.is_news(&session_id, None) {
                            error!(session_id, %error, "session row is unreadable; skipped until it changes");
                        }
                        if !self.items.is_set_aside(&session_id) {
                            self.items.note(&session_id, &session_id, Err(error.to_string())).await;
                        }
                    }
                }
            }
        }
        self.directory.set_elsewhere(elsewhere);
        if let Some(share) = share {
            sessions.release_surplus(share);
        }
        self.carry_out_commands(sessions).await
    }

    /// Where another process that owns the session takes forwarded connections.
    fn owner_elsewhere(&self, found: &ConfiguredSession) -> Option<String> {
        self.forward_address.as_ref()?;
        found.owner.filter(|owner| *owner != self.owner)?;
        found.forward_address.clone()
    }

    async fn look_at(
        &self,
        sessions: &mut Sessions,
        found: ConfiguredSession,
        share: Option<usize>,
        shutdown: &CancellationToken,
    ) {
        let ConfiguredSession { session, settings, owner, held_for, .. } = found;
        let terms = Terms::of(&session, &settings);
        let session_id = session.session_id.clone();
        let config = session_config(&session, &settings);
        if let Err(reason) = &config
            && session.enabled
            && sessions.faults.is_news(&session_id, Some(&terms))
        {
            error!(session_id, %reason, "session configuration is invalid; skipped until it changes");
        }
        if let Some(running) = sessions.running.get_mut(&session_id) {
            if !session.enabled {
                running.ask_to_end(Ask::End { text: DISABLED_TEXT });
            } else if config.is_ok() && running.terms != terms {
                info!(session_id, "session configuration changed; restarting once its peer disconnects");
                running.ask_to_end(Ask::EndWhenIdle);
            }
            return;
        }
        let is_free = owner.is_none_or(|owner| owner == self.owner);
        let Ok(config) = config else { return };
        if !is_free || !session.enabled {
            sessions.left_over.remove(&session_id);
            if let Some(held_for) = held_for.filter(|_| session.enabled) {
                let end = Instant::now() + held_for + LEASE_ENDED;
                sessions.first_end = Some(sessions.first_end.map_or(end, |first| first.min(end)));
            }
            return;
        }
        if !sessions.may_take(&session_id, share, Instant::now()) {
            return;
        }
        if shutdown.is_cancelled() || !sessions.faults.may_start(&session_id, Instant::now()) {
            return;
        }
        let name = format!("fix:{session_id}");
        match LeaseGuard::try_acquire(&self.pool, &name, self.owner, self.config.lease_ttl).await {
            Ok(Some(guard)) => self.start(sessions, (session, settings), terms, config, guard, shutdown),
            Ok(None) => {}
            Err(error) => warn!(session_id, %error, "acquiring the session lease failed, will retry"),
        }
    }

    fn start(
        &self,
        sessions: &mut Sessions,
        (session, settings): (FixSessionRow, FixSessionSettings),
        terms: Terms,
        config: SessionConfig,
        guard: LeaseGuard,
        shutdown: &CancellationToken,
    ) {
        let session_id = session.session_id.clone();
        let key = key(&session);
        info!(session_id, "session lease acquired");
        let lockouts = Arc::clone(&self.lockouts);
        let encoding = config.rules.encoding;
        let gate =
            SessionGate::new(self.engine.clone(), session_id.clone(), terms.clone(), encoding, lockouts);
        let attach = self.directory.announce_guarded(key.clone(), Arc::new(gate));
        let feed = if settings.drop_copy {
            self.feed.subscribe_to_partner(&session.partner_id, session.livemode)
        } else {
            self.feed.subscribe(&session_id)
        };
        let parked_orders_max = self.config.parked_orders_max;
        let order_entry =
            OrderEntry::new(self.engine.clone(), self.owner, session, &settings, feed, parked_orders_max);
        let (control, controlled) = mpsc::channel(CONTROL_QUEUE);
        let driver = Driver::new(order_entry, config, attach)
            .with_slow_consumer(self.config.slow_consumer)
            .with_control(controlled)
            .with_slot(self.board.slot(&session_id))
            .with_recorder(self.archive.as_ref().map(|archive| archive.recorder(&session_id, encoding)));
        let is_connected = driver.is_connected();
        let (id, pool, stop) = (session_id.clone(), self.pool.clone(), shutdown.child_token());
        let items = self.items.clone();
        let running = async move {
            workers::at(Step::FixSessionRun, &id).await?;
            let running_well = async {
                tokio::time::sleep(RUNS_AFTER).await;
                items.refresh().await;
                if items.is_set_aside(&id) {
                    items.note(&id, &id, Ok(())).await;
                }
                std::future::pending::<()>().await;
            };
            tokio::select! {
                () = run(driver, guard, pool, stop) => {}
                () = running_well => {}
            }
            Ok(())
        };
        let task = sessions.tasks.spawn(running);
        sessions.ids.insert(task.id(), session_id.clone());
        let since = Instant::now();
        let kept_until = sessions.left_over.remove(&session_id).map(|_| since + LEFT_OVER_KEPT);
        let running = Running { control, terms, key, since, sent: None, is_connected, kept_until };
        sessions.running.insert(session_id, running);
    }
}

/// The CompIDs by which a Logon names the session.
fn key(session: &FixSessionRow) -> SessionKey {
    SessionKey {
        begin_string: session.begin_string.clone(),
        peer_comp_id: session.client_comp_id.clone(),
        our_comp_id: session.service_comp_id.clone(),
    }
}

impl Sessions {
    /// Whether this process may take a session without an owner: within its share at once, and beyond it when no other
    /// process has taken the session for [`LEFT_OVER_AFTER`].
    fn may_take(&mut self, session_id: &str, share: Option<usize>, now: Instant) -> bool {
        if share.is_none_or(|share| self.running.len() < share) {
            self.left_over.remove(session_id);
            return true;
        }
        let since = self.left_over.entry(session_id.to_owned()).or_insert(now);
        now.saturating_duration_since(*since) >= LEFT_OVER_AFTER
    }

    /// The time until the next sweep: `refresh`, or less when a session may have to be taken before.
    fn next_sweep(&self, now: Instant, refresh: Duration) -> Duration {
        let left_over = self.left_over.values().map(|since| *since + LEFT_OVER_AFTER);
        // What was not taken when it was due waits for the usual sweep.
        let due = left_over.chain(self.first_end).filter(|due| *due > now).min();
        due.map_or(refresh, |due| refresh.min(due.saturating_duration_since(now)))
    }

    /// Releases sessions beyond this process's share. Those with a peer stay until it disconnects.
    fn release_surplus(&mut self, share: usize) {
        let now = Instant::now();
        let is_balanced =
            |running: &Running| running.sent.is_none() && running.kept_until.is_none_or(|until| until <= now);
        let surplus = self.running.values().filter(|running| is_balanced(running)).count();
        let surplus = surplus.saturating_sub(share);
        let idle = self
            .running
            .iter_mut()
            .filter(|(_, running)| is_balanced(running) && !running.is_connected.load(Ordering::Relaxed));
        for (session_id, running) in idle.take(surplus) {
            info!(session_id, share, "session released to another process");
            running.ask_to_end(Ask::EndWhenIdle);
        }
    }

    /// Removes a session whose driver has ended. A failed driver is restarted later: returns the session, and why.
    fn ended(
        &mut self,
        directory: &Directory,
        ended: Result<(Id, Result<(), StoreError>), JoinError>,
    ) -> Option<(String, String)> {
        let id = match &ended {
            Ok((id, _)) => *id,
            Err(error) => error.id(),
        };
        let session_id = self.ids.remove(&id)?;
        let running = self.running.remove(&session_id)?;
        directory.withdraw(&running.key);
        let why = match ended {
            Ok((_, Ok(()))) => {
                info!(session_id, "session stopped");
                return None;
            }
            Ok((_, Err(error))) => error.to_string(),
            Err(error) => error.to_string(),
        };
        let retry_in = self.faults.failed(&session_id, running.since.elapsed(), Instant::now());
        let retry_in_ms = retry_in.as_millis();
        error!(session_id, error = why, retry_in_ms, "session driver failed, restarting it");
        Some((session_id, why))
    }
}

/// Runs a driver for as long as the lease is held.
async fn run(driver: Driver<OrderEntry>, mut guard: LeaseGuard, pool: PgPool, session: CancellationToken) {
    let ended = CancellationToken::new();
    // A task of its own: a session that is busy must not lose its lease over it.
    let keeping = AbortOnDropHandle::new(tokio::spawn({
        let (pool, session, ended) = (pool.clone(), session.clone(), ended.clone());
        async move {
            tokio::select! {
                () = guard.keep_until_lost(&pool) => session.cancel(),
                () = ended.cancelled() => {}
            }
            guard
        }
    }));
    Box::pin(driver.run(session)).await;
    ended.cancel();
    match keeping.await {
        Ok(guard) => guard.release(&pool).await,
        Err(error) => error!(%error, "lease renewal task failed; the lease will expire"),
    }
}

impl Running {
    /// Sends one request; if the driver's queue is full, the next sweep retries.
    fn ask_to_end(&mut self, ask: Ask) {
        if self.sent == Some(ask) {
            return;
        }
        // The end of the task is the answer.
        let (answer, _) = oneshot::channel();
        if self.control.try_send(Control { ask, answer }).is_ok() {
            self.sent = Some(ask);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panicked_driver_is_identified_and_restarted_later() {
        let (directory, mut sessions) = (Directory::default(), Sessions::default());
        let key = SessionKey {
            begin_string: "FIX.4.4".to_owned(),
            peer_comp_id: "ACME".to_owned(),
            our_comp_id: "DVP".to_owned(),
        };
        let _attach = directory.announce(key.clone());
        let task = sessions.tasks.spawn(async { panic!("a defect") });
        sessions.ids.insert(task.id(), "acme".to_owned());
        let terms =
            Terms::of(&crate::session_config::tests::row("FIX.4.4", None), &FixSessionSettings::default());
        let (control, _controlled) = mpsc::channel(1);
        let running = Running {
            control,
            terms,
            key: key.clone(),
            since: Instant::now(),
            sent: None,
            is_connected: Arc::default(),
            kept_until: None,
        };
        sessions.running.insert("acme".to_owned(), running);
        let ended = sessions.tasks.join_next_with_id().await.unwrap();
        sessions.ended(&directory, ended);
        assert!(sessions.running.is_empty() && sessions.ids.is_empty());
        assert!(directory.find_here(&key).is_none());
        let now = Instant::now();
        assert!(!sessions.faults.may_start("acme", now));
        assert!(sessions.faults.may_start("acme", now + Duration::from_secs(2)));
    }
}

//! The sessions whose drivers run in this process, by the CompIDs of a Logon.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use dvp_fix::{codec::Message, session::SessionConfig, tag};
use parking_lot::Mutex;
use tokio::{
    sync::{Notify, mpsc},
    time::Instant,
};

use crate::{
    connection::Attach,
    gate::{Anyone, Gatekeeper},
};

/// How long a Logon waits in a new process that has not searched for its sessions yet.
const BEGIN_WAIT: Duration = Duration::from_secs(5);

/// The CompIDs by which a Logon names a session.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SessionKey {
    pub begin_string: String,
    /// SenderCompID(49) of the Logon: the peer.
    pub peer_comp_id: String,
    /// TargetCompID(56) of the Logon: us.
    pub our_comp_id: String,
}

/// As sessions are named: `FIX.4.4:DVP->ACME`.
impl std::fmt::Display for SessionKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}->{}", self.begin_string, self.our_comp_id, self.peer_comp_id)
    }
}

impl SessionKey {
    pub fn of_session(config: &SessionConfig) -> Self {
        Self {
            begin_string: config.begin_string.clone(),
            peer_comp_id: config.target_comp_id.clone(),
            our_comp_id: config.sender_comp_id.clone(),
        }
    }

    pub(crate) fn of(logon: &Message) -> Option<Self> {
        Some(Self {
            begin_string: std::str::from_utf8(logon.begin_string()).ok()?.to_owned(),
            peer_comp_id: logon.text(tag::SENDER_COMP_ID)?.to_owned(),
            our_comp_id: logon.text(tag::TARGET_COMP_ID)?.to_owned(),
        })
    }
}

/// Routes connections to sessions. Every session has an entry, a driver and a store of its own.
#[derive(Debug, Clone, Default)]
pub struct Directory {
    sessions: Arc<Mutex<HashMap<SessionKey, Entry>>>,
    /// The sessions of other processes, and where these take forwarded connections.
    elsewhere: Arc<Mutex<HashMap<SessionKey, String>>>,
    /// The state of a directory that a task refreshes.
    refreshes: Option<Arc<Refreshes>>,
}

/// A session of this process: its gatekeeper, and the channel of its driver.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) gatekeeper: Arc<dyn Gatekeeper>,
    pub(crate) sender: mpsc::Sender<Attach>,
}

#[derive(Debug, Clone)]
pub(crate) enum Place {
    Here(Entry),
    /// The process that takes forwarded connections at this address.
    At(String),
}

#[derive(Debug, Default)]
struct Refreshes {
    /// All sessions of this process are registered.
    done: Notify,
    /// They have been registered once since the process began.
    has_begun: AtomicBool,
}

impl Directory {
    /// Registers a session without authentication; its connections come through the receiver.
    pub fn announce(&self, key: SessionKey) -> mpsc::Receiver<Attach> {
        self.announce_guarded(key, Arc::new(Anyone))
    }

    /// Registers a session; connections that its gatekeeper accepts come through the receiver.
    pub fn announce_guarded(
        &self,
        key: SessionKey,
        gatekeeper: Arc<dyn Gatekeeper>,
    ) -> mpsc::Receiver<Attach> {
        let (sender, receiver) = mpsc::channel(1);
        self.sessions.lock().insert(key, Entry { gatekeeper, sender });
        receiver
    }

    /// Removes a session: it gets no more connections.
    pub fn withdraw(&self, key: &SessionKey) {
        self.sessions.lock().remove(key);
    }

    /// A directory whose supervisor calls [`Directory::refreshed`] repeatedly.
    pub fn kept_up_to_date() -> Self {
        Self { refreshes: Some(Arc::default()), ..Self::default() }
    }

    /// Marks that all sessions of this process are registered.
    pub fn refreshed(&self) {
        if let Some(refreshes) = &self.refreshes {
            refreshes.has_begun.store(true, Ordering::Release);
            refreshes.done.notify_waiters();
        }
    }

    /// Replaces the sessions of other processes.
    pub(crate) fn set_elsewhere(&self, sessions: HashMap<SessionKey, String>) {
        *self.elsewhere.lock() = sessions;
    }

    /// A session of this process.
    pub(crate) fn find_here(&self, key: &SessionKey) -> Option<Entry> {
        self.sessions.lock().get(key).cloned()
    }

    fn find_now(&self, key: &SessionKey) -> Option<Place> {
        let at = || self.elsewhere.lock().get(key).cloned();
        self.find_here(key).map(Place::Here).or_else(|| at().map(Place::At))
    }

    /// The session, if it is registered, or is registered by a refresh before `until`: it may have been added a moment
    /// ago, or move to another process. An unknown name costs this wait and nothing else.
    pub(crate) async fn find(&self, key: &SessionKey, until: Instant) -> Option<Place> {
        let has_begun =
            self.refreshes.as_deref().is_none_or(|refreshes| refreshes.has_begun.load(Ordering::Acquire));
        let until = if has_begun { until } else { until.max(Instant::now() + BEGIN_WAIT) };
        loop {
            let refreshed = self.refreshes.as_deref().map(|refreshes| refreshes.done.notified());
            let (None, Some(refreshed)) = (self.find_now(key), refreshed) else { break };
            if tokio::time::timeout_at(until, refreshed).await.is_err() || !has_begun {
                break;
            }
        }
        self.find_now(key)
    }

    /// Waits for a refresh, until `until` at most.
    pub(crate) async fn wait_for_refresh(&self, until: Instant) {
        match self.refreshes.as_deref() {
            Some(refreshes) => drop(tokio::time::timeout_at(until, refreshes.done.notified()).await),
            None => tokio::time::sleep_until(until).await,
        }
    }
}

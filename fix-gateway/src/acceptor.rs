//! Who is at the door: reads one Logon and hands the connection to the session it names.
//!
//! A stranger costs a bounded buffer, one of a bounded number of places, and a few seconds; it learns nothing.

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use dvp_fix::{codec::Message, tag};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{Notify, Semaphore, mpsc},
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::connection::{Attach, Connection};

/// How long a connection may take to say who it is.
const LOGON_WAIT: Duration = Duration::from_secs(10);
/// How long a Logon waits for sessions to be looked up anew.
const REFRESH_WAIT: Duration = Duration::from_secs(2);
/// How many may be doing so at once.
const STRANGERS_MAX: usize = 512;

/// What a Logon names a session by.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SessionKey {
    pub begin_string: String,
    /// SenderCompID(49) of the Logon: the peer.
    pub peer_comp_id: String,
    /// TargetCompID(56) of the Logon: us.
    pub our_comp_id: String,
}

impl SessionKey {
    fn of(logon: &Message) -> Option<Self> {
        Some(Self {
            begin_string: std::str::from_utf8(logon.begin_string()).ok()?.to_owned(),
            peer_comp_id: logon.text(tag::SENDER_COMP_ID)?.to_owned(),
            our_comp_id: logon.text(tag::TARGET_COMP_ID)?.to_owned(),
        })
    }
}

/// The sessions whose drivers run in this process.
#[derive(Debug, Clone, Default)]
pub struct Directory {
    sessions: Arc<Mutex<HashMap<SessionKey, mpsc::Sender<Attach>>>>,
    /// For a directory that somebody keeps up to date: how to ask for that.
    refresh: Option<Arc<Refresh>>,
}

#[derive(Debug, Default)]
struct Refresh {
    asked: Notify,
    done: Notify,
}

impl Directory {
    /// Announces a session; connections for it come through the receiver.
    pub fn announce(&self, key: SessionKey) -> mpsc::Receiver<Attach> {
        let (sender, receiver) = mpsc::channel(1);
        self.lock().insert(key, sender);
        receiver
    }

    /// No connection is handed to this session any more.
    pub fn withdraw(&self, key: &SessionKey) {
        self.lock().remove(key);
    }

    /// A directory whose keeper calls [`Directory::refresh_asked`] and [`Directory::refreshed`].
    pub fn kept_up_to_date() -> Self {
        Self { refresh: Some(Arc::default()), ..Self::default() }
    }

    /// Waits until a connection came for a session that is not here.
    pub async fn refresh_asked(&self) {
        match &self.refresh {
            Some(refresh) => refresh.asked.notified().await,
            None => std::future::pending().await,
        }
    }

    /// Everything that can be here is here.
    pub fn refreshed(&self) {
        if let Some(refresh) = &self.refresh {
            refresh.done.notify_waiters();
        }
    }

    async fn find(&self, key: &SessionKey) -> Option<mpsc::Sender<Attach>> {
        let known = self.lock().get(key).cloned();
        let (None, Some(refresh)) = (&known, &self.refresh) else { return known };
        // A session may have been added a moment ago.
        let done = refresh.done.notified();
        refresh.asked.notify_one();
        // Not refreshed in time is as good as not there.
        let _ = tokio::time::timeout(REFRESH_WAIT, done).await;
        self.lock().get(key).cloned()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<SessionKey, mpsc::Sender<Attach>>> {
        // No code panics while it holds the map.
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Accepts until told to stop. A connection that cannot be accepted costs only itself.
pub async fn accept(listener: TcpListener, directory: Directory, shutdown: CancellationToken) {
    let places = Arc::new(Semaphore::new(STRANGERS_MAX));
    loop {
        let accepted = tokio::select! {
            () = shutdown.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of file descriptors, most likely: wait for some to come back.
                warn!(%error, "cannot accept");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
            warn!(%peer, "too many connections that have not said who they are");
            continue;
        };
        let directory = directory.clone();
        tokio::spawn(async move {
            welcome(stream, peer, &directory).await;
            drop(place);
        });
    }
}

async fn welcome(stream: TcpStream, peer: SocketAddr, directory: &Directory) {
    // A report should not wait for the next one. Without the option it merely does.
    let _ = stream.set_nodelay(true);
    let mut connection = Connection::new(Box::new(stream), peer);
    let Ok(Some(logon)) = tokio::time::timeout(LOGON_WAIT, first_message(&mut connection)).await else {
        debug!(%peer, "no logon");
        return;
    };
    let session = match SessionKey::of(&logon) {
        Some(key) => directory.find(&key).await,
        None => None,
    };
    let Some(session) = session else {
        debug!(%peer, "logon for no session here");
        return;
    };
    // A driver that is busy with another connection for the same session refuses this one anyway.
    if session.try_send(Attach { connection, logon }).is_err() {
        debug!(%peer, "session is busy");
    }
}

/// `None` when the first frame is garbled or no Logon.
async fn first_message(connection: &mut Connection) -> Option<Message> {
    loop {
        let frame_max = connection.frame_max;
        match connection.inbound.next(frame_max).ok()? {
            Some(Ok(message)) if message.msg_type() == b"A" => return Some(message.to_owned()),
            Some(_) => return None,
            None => connection.fill().await.ok()?,
        }
    }
}

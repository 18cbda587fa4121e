//! The clients of a drill whose orders never pause: callers over REST and sessions over FIX.

use std::time::Duration;

use anyhow::Context as _;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::Ready;
use super::fix::{FixClient, SessionTranscript};
use super::rest::{Placed, RestCaller};

/// Clients that place orders until they are closed.
pub(crate) struct Clients {
    closing: watch::Sender<bool>,
    callers: JoinSet<anyhow::Result<Vec<Placed>>>,
    sessions: JoinSet<anyhow::Result<SessionTranscript>>,
}

/// Orders and their answers, as the clients saw them.
pub(crate) struct Seen {
    pub(crate) placed: Vec<Placed>,
    pub(crate) transcripts: Vec<SessionTranscript>,
}

impl Clients {
    pub(crate) fn new() -> Self {
        Self { closing: watch::Sender::new(false), callers: JoinSet::new(), sessions: JoinSet::new() }
    }

    /// True once the clients place no more orders.
    pub(crate) fn closing(&self) -> watch::Receiver<bool> {
        self.closing.subscribe()
    }

    pub(crate) fn call(&mut self, caller: RestCaller) {
        self.callers.spawn(caller.run());
    }

    /// `place`: the process to connect to, which may change.
    pub(crate) fn connect(&mut self, client: FixClient, place: watch::Receiver<Ready>) {
        let closing = self.closing();
        self.sessions.spawn(client.run(place, closing));
    }

    /// Places no more orders, and waits until every request is answered and every order over FIX has ended.
    pub(crate) async fn end(mut self, within: Duration) -> anyhow::Result<Seen> {
        self.closing.send_replace(true);
        let ended = async {
            let mut seen = Seen { placed: Vec::new(), transcripts: Vec::new() };
            while let Some(orders) = self.callers.join_next().await {
                seen.placed.extend(orders??);
            }
            while let Some(one) = self.sessions.join_next().await {
                seen.transcripts.push(one??);
            }
            Ok(seen)
        };
        tokio::time::timeout(within, ended).await.context("clients wait in vain for their answers")?
    }
}

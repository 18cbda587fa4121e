//! Messages that the database refused because of their data. The peer sends them again after the disconnect; then it is
//! refused, so that one message cannot keep a session from going on.

use std::{collections::HashSet, sync::Arc};

use dvp_fix::SeqNum;
use parking_lot::Mutex;

use crate::application::Commit;

pub(super) const TEXT: &str = "the message cannot be stored";

/// The subject of a commit.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Subject {
    /// A message of the peer's, until the numbers restart.
    Message(SeqNum),
    /// A parked order with this ClOrdID.
    Parked(String),
}

/// The failed subjects of a session. A session has few: the first one ends its connection.
#[derive(Debug, Clone, Default)]
pub(super) struct Unwritable(Arc<Mutex<HashSet<Subject>>>);

impl Unwritable {
    /// The same commit; its subject is kept here if its data is why it fails.
    pub(super) fn watch(&self, subject: Subject, commit: Commit) -> Commit {
        let failed = self.clone();
        Box::pin(async move {
            let done = commit.await;
            if done.as_ref().is_err_and(super::Unavailable::is_data) {
                failed.with(|subjects| subjects.insert(subject));
            }
            done
        })
    }

    /// Whether the subject has failed; once.
    pub(super) fn take(&self, subject: &Subject) -> bool {
        self.with(|subjects| !subjects.is_empty() && subjects.remove(subject))
    }

    /// The peer's numbers stand for other messages from now on.
    pub(super) fn forget_messages(&self) {
        self.with(|subjects| subjects.retain(|subject| matches!(subject, Subject::Parked(_))));
    }

    fn with<T>(&self, work: impl FnOnce(&mut HashSet<Subject>) -> T) -> T {
        work(&mut self.0.lock())
    }
}

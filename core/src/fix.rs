//! A FIX session's part in a commit: the inbound MsgSeqNum, the order's effect and the outbound report are one
//! transaction.

use std::sync::Arc;

use crate::writer::Outcome;

/// An outbound message to store under its MsgSeqNum before it may be written to a socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FixOutbound {
    pub seq: u64,
    pub msg_type: String,
    /// The body's fields as they will be sent and resent.
    pub body: Vec<u8>,
    /// Unix nanoseconds of SendingTime(52).
    pub sending_time: i64,
}

/// An order as its session knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FixOrder {
    pub cl_ord_id: String,
    pub reference: Option<String>,
    pub intent_id: String,
    /// What later reports about the order repeat, as JSON.
    pub details: serde_json::Value,
}

/// What a session writes with a unit of work.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FixRows {
    pub outbound: Vec<FixOutbound>,
    pub orders: Vec<FixOrder>,
}

/// Turns the outcome into the rows that report it. Called inside the transaction, more than once if it is retried.
pub type RenderFix = Arc<dyn Fn(&Outcome) -> FixRows + Send + Sync>;

/// A session's numbers before and after the unit. The update is guarded by the numbers before: a second owner of
/// the session cannot write.
#[derive(Clone)]
pub struct FixPart {
    pub session_id: String,
    /// Next expected inbound MsgSeqNum, after.
    pub next_in: u64,
    /// Next outbound MsgSeqNum, before and after.
    pub next_out_before: u64,
    pub next_out: u64,
    /// The feed position up to which events have been reported, after. `None`: unchanged.
    pub feed_position: Option<i64>,
    /// The session's store is emptied first (sequence numbers start again).
    pub reset: bool,
    pub render: RenderFix,
}

impl std::fmt::Debug for FixPart {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FixPart")
            .field("session_id", &self.session_id)
            .field("next_in", &self.next_in)
            .field("next_out", &self.next_out)
            .finish_non_exhaustive()
    }
}

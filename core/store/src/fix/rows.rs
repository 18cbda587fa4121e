//! What a FIX session writes in a commit.

use chrono::{DateTime, Utc};

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
    /// Orders and requests under ClOrdIDs that the session has not used before.
    pub orders: Vec<FixOrder>,
    /// New details of orders that are known.
    pub updates: Vec<FixOrder>,
    /// Orders that begin to wait, and orders that waited and are decided.
    pub parking: Vec<Parking>,
}

/// What becomes of an order that waits for a look-up of its wallet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Parking {
    /// It was taken and is not decided yet.
    Park(ParkedOrder),
    /// It waits no longer: what came of it is in the same rows.
    Decide { cl_ord_id: String },
}

/// An order as it was taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParkedOrder {
    pub cl_ord_id: String,
    /// The whole message.
    pub message: Vec<u8>,
    pub received_at: DateTime<Utc>,
}

/// How numbers change other than by counting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Renumber {
    /// The inbound number is set; stored messages stay under their numbers.
    Inbound,
    /// Both begin anew, and stored messages are forgotten, but for those that the peer may not have seen and still wants.
    Reset(FixReset),
}

/// What a reset keeps of the messages stored before it. They get the numbers from `first_kept` on, in their order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FixReset {
    /// The peer has seen them up to this number.
    pub seen_out: u64,
    /// Up to this number it may have seen them: they go on with PossResend(97).
    pub written_out: u64,
    pub first_kept: u64,
    /// How many there are. Where there are others the reset is stale and nothing is written.
    pub kept: u64,
    /// Types that nobody wants to hear later.
    pub stale_types: Vec<String>,
}

impl FixReset {
    /// Forgets everything.
    pub const fn of_everything() -> Self {
        Self { seen_out: u64::MAX, written_out: 0, first_kept: 1, kept: 0, stale_types: Vec::new() }
    }
}

/// A session's numbers before and after the unit. The update is guarded by the numbers before: a second owner of
/// the session cannot write.
#[derive(Debug, Clone)]
pub struct FixNumbers {
    pub session_id: String,
    /// Next expected inbound MsgSeqNum, after.
    pub next_in: u64,
    /// Next outbound MsgSeqNum, before and after.
    pub next_out_before: u64,
    pub next_out: u64,
    /// The peer has seen our messages up to this number, after.
    pub seen_out: u64,
    /// Messages beyond this number have not been written to a socket, after.
    pub written_out: u64,
    /// The feed position up to which events have been reported, after. `None`: unchanged.
    pub feed_position: Option<i64>,
    /// Numbers do not only grow: they begin anew, or an operator has set them.
    pub renumber: Option<Renumber>,
}

//! The rows that a FIX session writes in a commit.

use chrono::{DateTime, Utc};
use dvp_domain::intent::Bounds;
use uuid::Uuid;

/// An outbound message to store under its MsgSeqNum before it may be written to a socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FixOutbound {
    pub seq: u64,
    pub msg_type: String,
    /// The body's fields, unchanged by resends.
    pub body: Vec<u8>,
    /// Unix nanoseconds of SendingTime(52).
    pub sending_time: i64,
    /// The digits of the second's fraction that it was sent with.
    pub fraction_digits: u8,
}

/// A ClOrdID as it is used: once for ever, or once a trading day.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ClOrdId {
    pub id: String,
    /// Days from 1970-01-01; 0: for ever.
    pub trading_day: i32,
}

#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct FixOrder {
    pub cl_ord_id: String,
    /// See [`ClOrdId`].
    pub trading_day: i32,
    pub reference: Option<String>,
    pub intent_id: String,
    /// The fields that later reports about the order repeat, as JSON.
    pub details: serde_json::Value,
}

/// The rows that a session writes with a unit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FixRows {
    pub outbound: Vec<FixOutbound>,
    /// Orders and requests under ClOrdIDs that the session has not used before.
    pub orders: Vec<FixOrder>,
    /// New details of existing orders.
    pub updates: Vec<FixOrder>,
    /// Orders to park, and parked orders that are decided.
    pub parking: Vec<Parking>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Parking {
    /// The order is parked.
    Park(ParkedOrder),
    /// The order is decided; its outcome is in the same rows.
    Decide { cl_ord_id: String },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParkedOrder {
    pub cl_ord_id: String,
    /// See [`ClOrdId`].
    pub trading_day: i32,
    pub message: Vec<u8>,
    pub received_at: DateTime<Utc>,
    pub bounds: Bounds,
}

/// A change of numbers other than counting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Renumber {
    /// The inbound number is set; stored messages keep their numbers.
    Inbound,
    /// Both restart, and stored messages are deleted, except those that the peer may not have received and that are not
    /// stale.
    Reset(FixReset),
}

/// The stored messages that a reset keeps. They are renumbered from `first_kept` on, in their order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FixReset {
    /// The peer has received messages up to this number.
    pub seen_out: u64,
    /// The peer may have received messages up to this number: they are resent with PossResend(97).
    pub written_out: u64,
    pub first_kept: u64,
    /// Their number. If it differs, the reset is stale and nothing is written.
    pub kept: u64,
    /// Types of messages that are not kept.
    pub stale_types: Vec<String>,
}

/// A session's numbers before and after the unit. The update is guarded by the numbers before and by the session's
/// lease: a former owner cannot write, not even after it has loaded the numbers again.
#[derive(Debug, Clone)]
pub struct FixNumbers {
    pub session_id: String,
    /// The process that has the session's lease. `None`: the session is shared by no processes.
    pub owner: Option<Uuid>,
    /// Next expected inbound MsgSeqNum, after.
    pub next_in: u64,
    /// Next outbound MsgSeqNum, before and after.
    pub next_out_before: u64,
    pub next_out: u64,
    /// The peer has received the service's messages up to this number, after.
    pub seen_out: u64,
    /// Messages beyond this number have not been written to a socket, after.
    pub written_out: u64,
    /// The feed position up to which events have been reported, after. `None`: unchanged.
    pub feed_position: Option<i64>,
    /// Numbers may decrease: after a reset, or set by an operator.
    pub renumber: Option<Renumber>,
}

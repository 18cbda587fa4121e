//! Why a connection ended, as a fixed set of names.

/// Each has one name, in logs and in metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CloseReason {
    /// The peer closed the connection, or the network did.
    PeerClosed,
    /// The session layer ends it: after a Logout, or for a violation without a Logout.
    SessionEnded,
    /// The peer took too few bytes for too long.
    SlowConsumer,
    /// A frame exceeded the limit: the stream can no longer be parsed.
    FrameTooLong,
    /// The message rate was exceeded while no Logout could be sent.
    RateExceeded,
    /// The received messages could not be made durable.
    StoreFailed,
    /// A received message, or one to be sent, cannot be stored because of its data.
    DataFailed,
    /// The peer did not answer, and a second connection of the same counterparty did.
    TakenOver,
    /// An operator ended it, and it was not logged on.
    Operator,
    /// This process stops, or releases the session.
    Draining,
}

impl CloseReason {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::PeerClosed => "peer_closed",
            Self::SessionEnded => "session_ended",
            Self::SlowConsumer => "slow_consumer",
            Self::FrameTooLong => "frame_too_long",
            Self::RateExceeded => "rate_exceeded",
            Self::StoreFailed => "store_failed",
            Self::DataFailed => "data_failed",
            Self::TakenOver => "taken_over",
            Self::Operator => "operator",
            Self::Draining => "draining",
        }
    }
}

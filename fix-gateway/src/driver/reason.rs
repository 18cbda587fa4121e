//! Why a connection ended, in words that can be counted and searched for.

/// Each has one name, in logs and in metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CloseReason {
    /// The peer closed the connection, or the network did.
    PeerClosed,
    /// The session's rules end it: after a Logout, or for a violation that needs no words.
    SessionEnded,
    /// The peer took too few bytes for too long.
    SlowConsumer,
    /// A frame went beyond the limit: the stream cannot be trusted any more.
    FrameTooLong,
    /// More messages a second than allowed, while no Logout could be sent.
    RateExceeded,
    /// What was received could not be made durable.
    StoreFailed,
    /// What was received, or is to be sent, cannot be stored because of its data.
    DataFailed,
    /// Its peer did not answer, and another connection of the same counterparty did.
    TakenOver,
    /// An operator ended it, and it was not logged on.
    Operator,
    /// This process stops, or gives the session up.
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

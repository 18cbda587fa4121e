//! Why a connection ended, as a fixed set of names.

use dvp_domain::names::names;

names! {
    /// Each has one name, in logs and in metrics.
    pub(super) enum CloseReason {
        /// The peer closed the connection, or the network did.
        PeerClosed = "peer_closed",
        /// The session layer ends it: after a Logout, or for a violation without a Logout.
        SessionEnded = "session_ended",
        /// The peer took too few bytes for too long.
        SlowConsumer = "slow_consumer",
        /// A frame exceeded the limit: the stream can no longer be parsed.
        FrameTooLong = "frame_too_long",
        /// The message rate was exceeded while no Logout could be sent.
        RateExceeded = "rate_exceeded",
        /// The received messages could not be made durable.
        StoreFailed = "store_failed",
        /// A received message, or one to be sent, cannot be stored because of its data.
        DataFailed = "data_failed",
        /// The peer did not answer, and a second connection of the same counterparty did.
        TakenOver = "taken_over",
        /// An operator ended it, and it was not logged on.
        Operator = "operator",
        /// This process stops, or releases the session.
        Draining = "draining",
    }
}

//! The parameters of a hostile peer.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::promises::Promises;
use super::target::Target;
use crate::wire::Login;

#[derive(Clone)]
pub(super) struct Peer {
    pub target: Target,
    /// Its session over FIX.
    pub login: Login,
    pub promises: Promises,
    pub seed: u64,
    /// Between two requests or batches.
    pub pause: Duration,
    pub stop: CancellationToken,
}

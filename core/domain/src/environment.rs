//! The environment of a deployment: test or live.

use crate::names::names;

names! {
    /// The environment of a deployment, fixed at its first start. Its keys, sessions, data and rails belong to that
    /// environment.
    pub enum Environment {
        Test = "test",
        Live = "live",
    }
}

impl Environment {
    /// `livemode` of everything in the deployment.
    pub const fn is_live(self) -> bool {
        matches!(self, Self::Live)
    }
}

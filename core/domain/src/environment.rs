//! The environment of a deployment: test or live.

use serde::{Deserialize, Serialize};

/// The environment of a deployment, fixed at its first start. Its keys, sessions, data and rails belong to that
/// environment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Environment {
    Test,
    Live,
}

impl Environment {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Test => "test",
            Self::Live => "live",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        [Self::Test, Self::Live].into_iter().find(|environment| environment.as_str() == text)
    }

    /// `livemode` of everything in the deployment.
    pub const fn is_live(self) -> bool {
        matches!(self, Self::Live)
    }
}

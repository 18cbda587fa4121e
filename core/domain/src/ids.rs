//! Identifiers that the service issues. Each kind has its own prefix and refuses the text of another kind.

use serde::{Deserialize, Serialize};

/// The text did not have this kind's prefix.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not an identifier of the form {expected}…")]
pub struct WrongKind {
    pub expected: &'static str,
}

macro_rules! ids {
    ($( $(#[$doc:meta])* $name:ident = $prefix:literal; )+) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            pub const PREFIX: &'static str = $prefix;

            /// From the unique part, which the caller draws.
            pub fn from_unique(unique: impl std::fmt::Display) -> Self {
                Self(format!(concat!($prefix, "{}"), unique))
            }

            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl std::str::FromStr for $name {
            type Err = WrongKind;

            fn from_str(text: &str) -> Result<Self, WrongKind> {
                let rest = text.strip_prefix($prefix).filter(|rest| !rest.is_empty());
                rest.map(|_| Self(text.to_owned())).ok_or(WrongKind { expected: $prefix })
            }
        }

        impl TryFrom<String> for $name {
            type Error = WrongKind;

            fn try_from(text: String) -> Result<Self, WrongKind> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> Self {
                id.0
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(&self.0)
            }
        }
    )+};
}

ids! {
    /// An execution: the `reference` of status, receipt and FIX OrderID(37).
    Reference = "exe_";
    /// A partner, stable across its keys.
    PartnerId = "ptn_";
    /// A firm quote.
    QuoteId = "qte_";
    /// An event of the feed.
    EventId = "evt_";
    /// A partner's webhook endpoint.
    EndpointId = "ep_";
    /// An API key's public handle.
    KeyId = "key_";
    /// An action that one operator requests and another one approves.
    ApprovalId = "apr_";
    /// A request to a bank to give a payment back.
    RecallId = "rcl_";
    /// A request of a bank to give money back that its customer has paid to us.
    ReceivedRecallId = "rcr_";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_refuses_the_text_of_another_kind() {
        assert!("exe_1".parse::<Reference>().is_ok());
        assert_eq!("qte_1".parse::<Reference>(), Err(WrongKind { expected: "exe_" }));
        assert!("exe_".parse::<Reference>().is_err());
    }
}

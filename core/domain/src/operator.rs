//! Operators of the console, and the roles that they can have.

use serde::{Deserialize, Serialize};

/// What an operator may see and do. An operator has one role or several; a role includes no other one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OperatorRole {
    /// Reads everything except personal data.
    Viewer,
    /// Reads personal data of orders, too.
    Support,
    /// Requests decisions about orders and commands FIX sessions, webhooks and the chain side.
    Operator,
    /// Requests changes of limits, bands and balances, and pauses.
    Treasury,
    /// Approves and denies requests of others.
    Approver,
    /// Manages operators, partners and keys.
    Admin,
    /// Reads everything, with the audit log.
    Auditor,
}

impl OperatorRole {
    pub const ALL: [Self; 7] = [
        Self::Viewer,
        Self::Support,
        Self::Operator,
        Self::Treasury,
        Self::Approver,
        Self::Admin,
        Self::Auditor,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Support => "support",
            Self::Operator => "operator",
            Self::Treasury => "treasury",
            Self::Approver => "approver",
            Self::Admin => "admin",
            Self::Auditor => "auditor",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.as_str() == text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_role_is_read_as_it_is_written() {
        for role in OperatorRole::ALL {
            assert_eq!(OperatorRole::parse(role.as_str()), Some(role));
        }
        assert_eq!(OperatorRole::parse("Admin"), None);
    }
}

//! Operators of the console, and the roles that they can have.

use crate::names::names;

names! {
    /// What an operator may see and do. An operator has one role or several; a role includes no other one.
    #[derive(PartialOrd, Ord)]
    pub enum OperatorRole {
        /// Reads everything except personal data.
        Viewer = "viewer",
        /// Reads personal data of orders, too.
        Support = "support",
        /// Requests decisions about orders and commands FIX sessions, webhooks and the chain side.
        Operator = "operator",
        /// Requests changes of limits, bands and balances, and pauses.
        Treasury = "treasury",
        /// Approves and denies requests of others.
        Approver = "approver",
        /// Manages operators, partners and keys.
        Admin = "admin",
        /// Reads everything, with the audit log.
        Auditor = "auditor",
    }
}

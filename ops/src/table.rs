//! The table of actions: who may carry each out, and what it takes.

use dvp_domain::operator::OperatorRole;
use dvp_domain::operator::OperatorRole::{Admin, Approver, Operator, Treasury};

/// Approves what others have requested.
pub const APPROVAL: &[OperatorRole] = &[Approver];
/// Approvers, and makers who withdraw their own requests.
pub const DENIAL: &[OperatorRole] = &[Approver, Operator, Treasury];
/// Decides about orders, and commands sessions, webhooks and chains.
pub const OPERATION: &[OperatorRole] = &[Operator];
/// Pauses, limits, bands, and the ledger.
pub const TREASURY: &[OperatorRole] = &[Treasury];
/// Partners, their credentials, and operators.
pub const ADMINISTRATION: &[OperatorRole] = &[Admin];

/// Whether a second operator is needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Second {
    No,
    /// In a live deployment; in a test deployment when evidence is given.
    IfLive,
    Always,
    /// Some of the decisions.
    ByDecision,
    /// It is the second signature itself, which no service operator gives.
    Signs,
}

/// A row of the table.
#[derive(Debug, Clone, Copy)]
pub struct Spec {
    /// The words of the command line.
    pub name: &'static str,
    /// An operator needs one of them.
    pub roles: &'static [OperatorRole],
    /// It needs an authentication of the last minutes.
    pub step_up: bool,
    pub second: Second,
    /// It waits for another process, so that its record is committed before it.
    pub waits: bool,
}

const fn row(name: &'static str, roles: &'static [OperatorRole], step_up: bool, second: Second) -> Spec {
    Spec { name, roles, step_up, second, waits: false }
}

const fn waiting(name: &'static str, roles: &'static [OperatorRole], step_up: bool, second: Second) -> Spec {
    Spec { name, roles, step_up, second, waits: true }
}

/// Every action.
pub const TABLE: &[Spec] = &[
    row("approval approve", APPROVAL, true, Second::Signs),
    row("approval deny", DENIAL, false, Second::No),
    row("execution resolve", OPERATION, true, Second::ByDecision),
    row("execution close-break", OPERATION, true, Second::Always),
    row("recall request", OPERATION, true, Second::Always),
    row("recall close", OPERATION, true, Second::Always),
    row("recall answer", OPERATION, true, Second::Always),
    row("bank clear-alarm", OPERATION, false, Second::No),
    row("bank apply-part", OPERATION, true, Second::Always),
    row("bank dismiss-part", OPERATION, true, Second::Always),
    row("bank import", OPERATION, true, Second::Always),
    row("chain resume", OPERATION, true, Second::No),
    row("chain command retry", OPERATION, true, Second::No),
    row("pause add", TREASURY, false, Second::No),
    row("pause remove", TREASURY, true, Second::No),
    row("limit set", TREASURY, true, Second::Always),
    row("limit remove", TREASURY, true, Second::Always),
    row("band set", TREASURY, true, Second::Always),
    row("band remove", TREASURY, true, Second::Always),
    row("ledger request withdrawal", TREASURY, true, Second::Always),
    row("ledger request return", TREASURY, true, Second::Always),
    row("ledger request adjustment", TREASURY, true, Second::Always),
    row("ledger request fee-sweep", TREASURY, true, Second::Always),
    row("ledger request charge", TREASURY, true, Second::Always),
    row("ledger request transfer", TREASURY, true, Second::Always),
    row("ledger request gift", TREASURY, true, Second::Always),
    row("ledger request claim-settlement", TREASURY, true, Second::Always),
    row("ledger approve", APPROVAL, true, Second::Signs),
    row("ledger reject", DENIAL, false, Second::No),
    row("partner deposit", TREASURY, true, Second::IfLive),
    row("provider deposit", TREASURY, true, Second::IfLive),
    row("maker set", ADMINISTRATION, true, Second::Always),
    row("maker end", ADMINISTRATION, true, Second::Always),
    row("maker place", TREASURY, true, Second::No),
    row("maker cancel", TREASURY, false, Second::No),
    row("partner create", ADMINISTRATION, true, Second::No),
    row("partner disable", ADMINISTRATION, false, Second::No),
    row("partner enable", ADMINISTRATION, true, Second::No),
    row("partner instruct", ADMINISTRATION, true, Second::IfLive),
    row("beneficiary create", OPERATION, true, Second::No),
    row("beneficiary add-destination", OPERATION, true, Second::No),
    row("beneficiary verify", APPROVAL, true, Second::Signs),
    row("beneficiary disable", OPERATION, false, Second::No),
    row("personal-data request", ADMINISTRATION, true, Second::Always),
    row("key issue", ADMINISTRATION, true, Second::IfLive),
    row("key rotate", ADMINISTRATION, true, Second::IfLive),
    row("key enable", ADMINISTRATION, true, Second::IfLive),
    row("key disable", ADMINISTRATION, false, Second::No),
    row("key revoke", ADMINISTRATION, false, Second::No),
    row("fix-session add", ADMINISTRATION, true, Second::IfLive),
    row("fix-session set", ADMINISTRATION, true, Second::IfLive),
    row("fix-session password", ADMINISTRATION, true, Second::Always),
    waiting("fix-session enable", ADMINISTRATION, true, Second::IfLive),
    waiting("fix-session disable", OPERATION, false, Second::No),
    waiting("fix-session logout", OPERATION, false, Second::No),
    waiting("fix-session disconnect", OPERATION, false, Second::No),
    waiting("fix-session test-request", OPERATION, false, Second::No),
    waiting("fix-session reset", OPERATION, false, Second::No),
    waiting("fix-session set-seq", OPERATION, false, Second::No),
    row("webhook resend", OPERATION, false, Second::No),
    row("webhook replay", OPERATION, false, Second::No),
    row("webhook disable", OPERATION, false, Second::No),
    row("webhook move", ADMINISTRATION, true, Second::No),
    row("operator add", ADMINISTRATION, true, Second::IfLive),
    row("operator link", ADMINISTRATION, true, Second::IfLive),
    row("operator make-link", APPROVAL, true, Second::Signs),
    row("operator roles", ADMINISTRATION, true, Second::IfLive),
    row("operator identity", ADMINISTRATION, true, Second::IfLive),
    row("operator enable", ADMINISTRATION, true, Second::IfLive),
    row("operator disable", ADMINISTRATION, false, Second::No),
    row("operator token", ADMINISTRATION, true, Second::IfLive),
    row("operator end-tokens", ADMINISTRATION, false, Second::No),
];

/// The row of an action.
pub fn find(name: &str) -> Option<&'static Spec> {
    TABLE.iter().find(|spec| spec.name == name)
}

/// Whether a command is an action, not a group of them.
pub fn is_leaf(command: &clap::Command) -> bool {
    !command.has_subcommands()
}

//! What routes need, the groups of roles, and the sections of the console.

use dvp_domain::operator::OperatorRole;
use dvp_domain::operator::OperatorRole::{Admin, Auditor, Operator as OperatorDuty, Support};

use crate::operator::Operator;

pub(crate) const EVERYONE: &[OperatorRole] = &OperatorRole::ALL;
/// Who reads personal data, which is recorded.
pub(crate) const PERSONAL: &[OperatorRole] = &[Support, OperatorDuty, Auditor];
pub(crate) const AUDIT: &[OperatorRole] = &[Auditor, Admin];

/// What a route needs besides a session with a role.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Needs {
    /// Nothing: also an operator who has no way to sign in again yet may request it.
    Session,
    /// An operator who can sign in again.
    Registration,
    /// An authentication of the last minutes: what moves money, changes limits, or gives somebody more than it has.
    StepUp,
}

/// An entry of the navigation.
#[derive(Debug)]
pub(crate) struct Section {
    pub name: &'static str,
    pub path: &'static str,
    pub roles: &'static [OperatorRole],
}

pub(crate) const SECTIONS: &[Section] = &[
    Section { name: "Home", path: "/", roles: EVERYONE },
    Section { name: "Orders", path: "/orders", roles: EVERYONE },
    Section { name: "Approvals", path: "/approvals", roles: EVERYONE },
    Section { name: "Reconciliation", path: "/reconciliation", roles: EVERYONE },
    Section { name: "Treasury", path: "/treasury", roles: EVERYONE },
    Section { name: "Chains", path: "/chains", roles: EVERYONE },
    Section { name: "FIX", path: "/fix", roles: EVERYONE },
    Section { name: "Webhooks", path: "/webhooks", roles: EVERYONE },
    Section { name: "Partners", path: "/partners", roles: EVERYONE },
    Section { name: "Operators", path: "/operators", roles: EVERYONE },
    Section { name: "Audit", path: "/audit", roles: AUDIT },
];

/// The sections that an operator may open.
pub(crate) fn sections_of(operator: &Operator) -> Vec<&'static Section> {
    SECTIONS.iter().filter(|section| operator.may(section.roles)).collect()
}

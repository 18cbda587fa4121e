//! The operator of a request, and how long its session lasts.

use std::time::Duration;

use dvp_domain::environment::Environment;
use dvp_domain::operator::OperatorRole;
use dvp_store::operators::accounts::sessions::{Session, SessionTimes, SignInMethod};
use dvp_store::operators::accounts::{self, ConsoleAction, ConsoleRecord, SignedIn};
use dvp_store::{PgConnection, StoreError};

/// How long sessions last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionPolicy {
    pub idle: Duration,
    pub absolute: Duration,
    /// How long an authentication is recent enough for what needs a step-up.
    pub step_up: Duration,
}

impl Default for SessionPolicy {
    fn default() -> Self {
        Self {
            idle: Duration::from_secs(30 * 60),
            absolute: Duration::from_secs(12 * 3600),
            step_up: Duration::from_secs(5 * 60),
        }
    }
}

impl From<SessionPolicy> for SessionTimes {
    fn from(policy: SessionPolicy) -> Self {
        Self { idle: policy.idle, absolute: policy.absolute, step_up: policy.step_up }
    }
}

/// The operator of a request.
#[derive(Debug, Clone)]
pub(crate) struct Operator {
    pub id: String,
    pub name: String,
    pub roles: Vec<OperatorRole>,
    pub session: [u8; 32],
    pub source: String,
    pub environment: Environment,
    /// How the session began.
    method: SignInMethod,
    is_recent: bool,
    is_new: bool,
    has_passkey: bool,
    has_password: bool,
}

impl Operator {
    pub(crate) fn of(found: Session, session: [u8; 32], source: String, environment: Environment) -> Self {
        let Session { operator, method, is_recent, is_new, has_passkey, has_password } = found;
        let SignedIn { operator_id: id, name, roles } = operator;
        Self {
            id,
            name,
            roles,
            session,
            source,
            environment,
            method,
            is_recent,
            is_new,
            has_passkey,
            has_password,
        }
    }

    /// Whether the operator may do what needs a step-up. A sandbox's link, which the database refuses in a live
    /// deployment, is good for it.
    pub(crate) fn is_authenticated(&self) -> bool {
        self.is_recent || self.method == SignInMethod::ReusableLink
    }

    /// Whether the operator can sign in again.
    pub(crate) fn is_registered(&self) -> bool {
        let can_repeat = matches!(self.method, SignInMethod::ReusableLink | SignInMethod::Oidc);
        self.has_passkey || self.has_password || can_repeat
    }

    pub(crate) const fn has_passkey(&self) -> bool {
        self.has_passkey
    }

    pub(crate) const fn has_password(&self) -> bool {
        self.has_password
    }

    /// Whether the operator may add a way to sign in: one that was authenticated, or that used a link just now.
    pub(crate) fn may_register(&self) -> bool {
        self.is_authenticated() || (self.method == SignInMethod::Link && self.is_new)
    }

    /// The operator after an authentication in its session, which has this token's hash now.
    pub(crate) fn authenticated(self, session: [u8; 32]) -> Self {
        Self { session, is_recent: true, ..self }
    }

    pub(crate) fn may(&self, roles: &[OperatorRole]) -> bool {
        self.roles.iter().any(|role| roles.contains(role))
    }

    /// Appends an entry about this operator to the audit log.
    pub(crate) async fn record(
        &self,
        conn: &mut PgConnection,
        action: ConsoleAction,
        route: &str,
        subject: &str,
    ) -> Result<(), StoreError> {
        let record = ConsoleRecord { operator: &self.name, action, route, subject, source: &self.source };
        accounts::record(conn, &record).await
    }
}

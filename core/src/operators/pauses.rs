//! Operators' pauses of parts of the service, over the command line and the console.

use chrono::{DateTime, Utc};
use dvp_domain::pause::Scope;
use dvp_domain::settlement::leg::LegKind;
use dvp_store::operators::pauses::{self, Decided};
use dvp_store::{Acquire as _, PgConnection, StoreError};

use crate::operators::targets::{TargetError, Targets};

/// The change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PauseSwitch {
    Pause,
    Resume,
    /// Ends the pause that began at this time, and no later one.
    ResumeSeen(DateTime<Utc>),
}

/// The result: the target's id, and whether anything changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Switched {
    pub target: String,
    pub is_changed: bool,
}

/// Why nothing was paused or resumed.
#[derive(Debug, thiserror::Error)]
pub enum PauseError {
    #[error("operator and reason are needed")]
    NoReason,
    #[error("{}", target_rule(*.0))]
    Target(Scope),
    #[error(transparent)]
    Unknown(TargetError),
    #[error("the pause ended or changed since you opened the page: look again")]
    Changed,
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What a target of this scope must be.
const fn target_rule(scope: Scope) -> &'static str {
    match scope {
        Scope::Everything => "a pause of everything has no target",
        Scope::Pair => "the target of a pair is INPUT/OUTPUT",
        Scope::Rail => "the target of a rail is offramp or payout",
        Scope::Partner => "a pause of a partner needs a target: the partner's name",
        Scope::Provider => "a pause of a provider needs a target: the provider's id",
        Scope::Chain => "a pause of a chain needs a target: the chain's name",
    }
}

impl From<TargetError> for PauseError {
    fn from(error: TargetError) -> Self {
        match error {
            TargetError::Store(error) => Self::Store(error),
            error => Self::Unknown(error),
        }
    }
}

impl From<sqlx::Error> for PauseError {
    fn from(error: sqlx::Error) -> Self {
        Self::Store(error.into())
    }
}

/// Pauses or resumes. A partner is given by its name, or by its id as lists of pauses show it. What is paused can be resumed
/// although it does not exist any more.
pub async fn switch(
    conn: &mut PgConnection,
    targets: &Targets,
    switch: PauseSwitch,
    scope: Scope,
    target: &str,
    operator: &str,
    reason: &str,
) -> Result<Switched, PauseError> {
    if operator.trim().is_empty() || reason.trim().is_empty() {
        return Err(PauseError::NoReason);
    }
    let is_valid = match scope {
        Scope::Everything => target.is_empty(),
        Scope::Pair => {
            target.split_once('/').is_some_and(|(input, output)| !input.is_empty() && !output.is_empty())
        }
        Scope::Rail => LegKind::ALL.iter().any(|leg| leg.as_str() == target),
        Scope::Partner | Scope::Provider | Scope::Chain => !target.is_empty(),
    };
    if !is_valid {
        return Err(PauseError::Target(scope));
    }
    let is_paused = async |conn: &mut PgConnection| -> Result<bool, StoreError> {
        let all = pauses::list(conn).await?;
        Ok(all.iter().any(|row| row.scope == scope.as_str() && row.target == target))
    };
    let target = if switch != PauseSwitch::Pause && is_paused(conn).await? {
        target.to_owned()
    } else {
        targets.find(conn, scope, target).await?
    };
    let by = Decided { operator, reason };
    let mut tx = conn.begin().await?;
    let is_changed = match switch {
        PauseSwitch::Pause => pauses::insert(&mut tx, scope, &target, by).await?,
        PauseSwitch::Resume => pauses::delete(&mut tx, scope, &target, by).await?,
        PauseSwitch::ResumeSeen(at) => {
            if !pauses::delete_seen(&mut tx, scope, &target, at, by).await? {
                tx.rollback().await?;
                return Err(PauseError::Changed);
            }
            true
        }
    };
    tx.commit().await?;
    Ok(Switched { target, is_changed })
}

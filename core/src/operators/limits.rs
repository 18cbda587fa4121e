//! Limits of orders, changed by two operators: a change is requested, and applies from its approval on
//! ([`crate::operators::approvals`]). Its version is the number of changes of the same limit.

use dvp_domain::limit::{LimitKey, LimitScope, Period};
use dvp_domain::money::Minor;
use dvp_domain::settlement::leg::LegKind;
use dvp_store::operators::approvals::Approval;
use dvp_store::{PgConnection, StoreError, operators::limits};
use serde::{Deserialize, Serialize};

use crate::operators::requests::{self, ChangeError, Maker, RequestedChange, SettingChange};
use crate::operators::targets::{TargetError, Targets};

/// The kind of requests about limits.
pub const LIMIT: &str = "limit";

/// The requested limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LimitChange {
    pub scope: LimitScope,
    pub target: String,
    pub asset: String,
    pub period: Period,
    /// `None`: the limit is removed.
    pub amount_minor: Option<Minor>,
}

impl LimitChange {
    fn subject(&self) -> String {
        let Self { scope, target, asset, period, .. } = self;
        let words = [scope.as_str(), target, asset, period.as_str()];
        words.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
    }

    const fn action(&self) -> &'static str {
        if self.amount_minor.is_some() { "set_limit" } else { "remove_limit" }
    }

    fn check(&self) -> Result<(), LimitError> {
        let Self { scope, target, asset, .. } = self;
        let is_valid = match scope {
            LimitScope::Everything => target.is_empty(),
            LimitScope::Partner | LimitScope::Provider | LimitScope::Chain => !target.trim().is_empty(),
            LimitScope::Rail => LegKind::ALL.into_iter().any(|leg| leg.as_str() == target),
            LimitScope::Pair => {
                target.split_once('/').is_some_and(|(input, output)| input == asset && !output.is_empty())
            }
        };
        if !is_valid {
            return Err(LimitError::Target(*scope));
        }
        if asset.trim().is_empty() { Err(LimitError::NoAsset) } else { Ok(()) }
    }
}

/// Why a change was not requested or made.
#[derive(Debug, thiserror::Error)]
pub enum LimitError {
    #[error(
        "the target of a limit of scope {} is wrong: nothing for everything, INPUT/OUTPUT with the input as the asset \
         for a pair, offramp or payout for a rail", .0.as_str()
    )]
    Target(LimitScope),
    #[error("a limit needs an asset")]
    NoAsset,
    #[error(transparent)]
    Unknown(TargetError),
    #[error(transparent)]
    Change(#[from] ChangeError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<TargetError> for LimitError {
    fn from(error: TargetError) -> Self {
        match error {
            TargetError::Store(error) => Self::Store(error),
            error => Self::Unknown(error),
        }
    }
}

/// Requests a change of a limit; a partner is given by its name or its id. A limit that is set can be removed although its
/// target does not exist any more.
pub async fn request(
    conn: &mut PgConnection,
    targets: &Targets,
    change: &LimitChange,
    maker: Maker<'_>,
) -> Result<RequestedChange, LimitError> {
    change.check()?;
    let LimitChange { scope, target, asset, .. } = change;
    let all = limits::list(conn).await?;
    let is_set =
        all.iter().any(|row| (&row.target, &row.asset) == (target, asset) && row.scope == scope.as_str());
    let mut change = change.clone();
    if change.amount_minor.is_some() || !is_set {
        change.target = targets.find(conn, *scope, target).await?;
        targets.check_asset(conn, asset).await?;
        if *scope == LimitScope::Chain {
            targets.check_on_chain(asset, target)?;
        }
    }
    let (subject, action) = (change.subject(), change.action());
    let wanted = SettingChange { kind: LIMIT, subject: &subject, action };
    Ok(requests::request_change(conn, wanted, &change, maker).await?)
}

/// Changes a limit when another operator approves it.
pub(crate) async fn carry_out_requested(
    conn: &mut PgConnection,
    request: &Approval,
) -> Result<(), LimitError> {
    let LimitChange { scope, target, asset, period, amount_minor } = requests::unmoved(conn, request).await?;
    let key = LimitKey { scope, target, asset };
    Ok(limits::set(conn, &key, period, amount_minor, &request.id).await?)
}

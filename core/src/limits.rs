//! Limits of orders, changed by two operators: a change is requested, and holds from its approval on
//! ([`crate::approvals`]). Its version is how many changes the same limit has had.

use dvp_domain::limit::{LimitKey, LimitScope, Period};
use dvp_domain::money::Minor;
use dvp_store::approvals::{self as approval_store, Approval};
use dvp_store::{Acquire as _, PgConnection, StoreError, limits};
use serde::{Deserialize, Serialize};

use crate::requests::{self, Maker, Wanted};

/// The kind of requests about limits.
pub const LIMIT: &str = "limit";

/// A limit as it shall be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LimitChange {
    pub scope: LimitScope,
    pub target: String,
    pub asset: String,
    pub period: Period,
    /// `None`: no limit any more.
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
            LimitScope::Partner | LimitScope::Provider => !target.trim().is_empty(),
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

/// What became of a request.
#[derive(Debug, Clone, PartialEq)]
pub struct RequestedLimit {
    pub approval: Approval,
    /// It was requested before.
    pub repeated: bool,
}

/// Nothing was requested or changed.
#[derive(Debug, thiserror::Error)]
pub enum LimitError {
    #[error("operator, reason and evidence are needed")]
    NoReason,
    #[error(
        "the target of a limit of scope {} is wrong: nothing for everything, INPUT/OUTPUT with the input as the asset \
         for a pair", .0.as_str()
    )]
    Target(LimitScope),
    #[error("a limit needs an asset")]
    NoAsset,
    #[error("another change of the same limit waits for approval: {0}")]
    OtherRequested(String),
    #[error("the limit was changed since: request it again")]
    Moved,
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<sqlx::Error> for LimitError {
    fn from(error: sqlx::Error) -> Self {
        Self::Store(error.into())
    }
}

/// Requests a change of a limit.
pub async fn request(
    conn: &mut PgConnection,
    change: &LimitChange,
    maker: Maker<'_>,
) -> Result<RequestedLimit, LimitError> {
    if [maker.operator, maker.reason, maker.evidence].iter().any(|text| text.trim().is_empty()) {
        return Err(LimitError::NoReason);
    }
    change.check()?;
    let mut tx = conn.begin().await?;
    let requested = request_in(&mut tx, change, maker).await;
    if requested.is_ok() {
        tx.commit().await?;
    } else {
        tx.rollback().await?;
    }
    requested
}

async fn request_in(
    conn: &mut PgConnection,
    change: &LimitChange,
    maker: Maker<'_>,
) -> Result<RequestedLimit, LimitError> {
    let details = serde_json::to_value(change).map_err(|error| StoreError::corrupt("approval", error))?;
    let subject = change.subject();
    let touches = touches(change);
    approval_store::lock(conn).await?;
    let version = approval_store::count_touching(conn, &touches).await?;
    let standing = requests::find_standing(conn, LIMIT, &subject, version).await?;
    if let Some(pending) = standing.filter(|standing| standing.state == "pending") {
        return if pending.details == details {
            Ok(RequestedLimit { approval: pending, repeated: true })
        } else {
            Err(LimitError::OtherRequested(pending.id))
        };
    }
    let action = change.action();
    let wanted =
        Wanted { kind: LIMIT, subject: &subject, action, details: &details, touches: &touches, version };
    let id = requests::request(conn, &wanted, maker).await?;
    let approval = approval_store::find(conn, &id).await?;
    let approval = approval.ok_or(StoreError::Stale { what: "the request" })?;
    Ok(RequestedLimit { approval, repeated: false })
}

fn touches(change: &LimitChange) -> [String; 1] {
    [format!("{LIMIT}:{}", change.subject())]
}

/// Changes a limit as another operator approves it.
pub(crate) async fn carry_out_requested(
    conn: &mut PgConnection,
    request: &Approval,
) -> Result<(), LimitError> {
    let change: LimitChange = serde_json::from_value(request.details.clone())
        .map_err(|error| StoreError::corrupt("approval", error))?;
    if approval_store::count_touching(conn, &touches(&change)).await? != request.version {
        return Err(LimitError::Moved);
    }
    let LimitChange { scope, target, asset, period, amount_minor } = change;
    let key = LimitKey { scope, target, asset };
    Ok(limits::set(conn, &key, period, amount_minor, &request.id).await?)
}

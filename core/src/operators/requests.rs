//! Requests of operators, each pending until another operator approves it ([`crate::operators::approvals`]).

use dvp_domain::ids::ApprovalId;
use dvp_store::operators::approvals::{self as store, Approval, Decision, NewApproval};
use dvp_store::{Acquire as _, PgConnection, StoreError, database::ids};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use sqlx::{Postgres, Transaction};

/// The operator of a request, with reason and evidence.
#[derive(Debug, Clone, Copy)]
pub struct Maker<'a> {
    pub operator: &'a str,
    pub reason: &'a str,
    pub evidence: &'a str,
}

/// A new request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted<'a> {
    pub kind: &'static str,
    pub subject: &'a str,
    pub action: &'a str,
    pub details: &'a Value,
    pub touches: &'a [String],
    pub version: i64,
}

/// The pending request about a subject, after requests that can no longer be approved have expired.
pub(crate) async fn find_standing(
    conn: &mut PgConnection,
    kind: &str,
    subject: &str,
    version: i64,
) -> Result<Option<Approval>, StoreError> {
    store::lock(conn).await?;
    let Some(found) = store::find_standing(conn, kind, subject).await? else { return Ok(None) };
    if found.state == "pending" && (found.is_expired || found.version != version) {
        store::decide(conn, &found.id, Decision::Lapsed).await?;
        return Ok(None);
    }
    Ok(Some(found))
}

/// Records a request and returns its id.
pub(crate) async fn request(
    conn: &mut PgConnection,
    wanted: &Wanted<'_>,
    maker: Maker<'_>,
) -> Result<String, StoreError> {
    let id = String::from(ApprovalId::from_unique(ids::draw_here(conn).await?.simple()));
    let Wanted { kind, subject, action, details, touches, version } = *wanted;
    let Maker { operator, reason, evidence } = maker;
    let maker = operator;
    let new =
        NewApproval { id: &id, kind, subject, action, details, touches, version, maker, reason, evidence };
    store::insert(conn, &new).await?;
    Ok(id)
}

/// Whether two names are one operator's: names that differ only in case and spaces are.
pub fn is_same_operator(one: &str, other: &str) -> bool {
    one.trim().to_lowercase() == other.trim().to_lowercase()
}

/// A change of a setting: all requests about one setting have one subject.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SettingChange<'a> {
    pub kind: &'static str,
    pub subject: &'a str,
    pub action: &'a str,
}

impl SettingChange<'_> {
    fn touches(&self) -> [String; 1] {
        touches(self.kind, self.subject)
    }
}

fn touches(kind: &str, subject: &str) -> [String; 1] {
    [format!("{kind}:{subject}")]
}

/// The result of a request.
#[derive(Debug, Clone, PartialEq)]
pub struct RequestedChange {
    pub approval: Approval,
    /// It was requested before.
    pub repeated: bool,
}

/// Why a change of a setting was not requested, or not carried out.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    #[error("operator, reason and evidence are needed")]
    NoReason,
    #[error("another change of the same setting waits for approval: {0}")]
    OtherRequested(String),
    #[error("the setting was changed since: request it again")]
    Moved,
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Requests a change of a setting at its present version, which is the number of its approved changes.
pub(crate) async fn request_change(
    conn: &mut PgConnection,
    change: SettingChange<'_>,
    details: &impl Serialize,
    maker: Maker<'_>,
) -> Result<RequestedChange, ChangeError> {
    if [maker.operator, maker.reason, maker.evidence].iter().any(|text| text.trim().is_empty()) {
        return Err(ChangeError::NoReason);
    }
    let details = written(details)?;
    let mut tx = begin(conn).await?;
    let requested = request_change_in(&mut tx, change, &details, maker).await;
    end(tx, requested).await
}

async fn request_change_in(
    conn: &mut PgConnection,
    change: SettingChange<'_>,
    details: &Value,
    maker: Maker<'_>,
) -> Result<RequestedChange, ChangeError> {
    let SettingChange { kind, subject, action } = change;
    store::lock(conn).await?;
    let touches = change.touches();
    let version = store::count_touching(conn, &touches).await?;
    let standing = find_standing(conn, kind, subject, version).await?;
    if let Some(pending) = standing.filter(|standing| standing.state == "pending") {
        return if pending.details == *details && pending.action == action {
            Ok(RequestedChange { approval: pending, repeated: true })
        } else {
            Err(ChangeError::OtherRequested(pending.id))
        };
    }
    let id =
        request(conn, &Wanted { kind, subject, action, details, touches: &touches, version }, maker).await?;
    let approval = store::find(conn, &id).await?.ok_or(StoreError::Stale { what: "the request" })?;
    Ok(RequestedChange { approval, repeated: false })
}

/// What a request is about, which must be the present version of its setting.
pub(crate) async fn unmoved<T: DeserializeOwned>(
    conn: &mut PgConnection,
    request: &Approval,
) -> Result<T, ChangeError> {
    let touches = touches(&request.kind, &request.subject);
    let version = store::count_touching(conn, &touches).await?;
    if version == request.version { Ok(read(request)?) } else { Err(ChangeError::Moved) }
}

/// A request's details as they are stored.
pub(crate) fn written(details: &impl Serialize) -> Result<Value, StoreError> {
    serde_json::to_value(details).map_err(|error| StoreError::corrupt("approval", error))
}

pub(crate) fn read<T: DeserializeOwned>(request: &Approval) -> Result<T, StoreError> {
    serde_json::from_value(request.details.clone()).map_err(|error| StoreError::corrupt("approval", error))
}

pub(crate) async fn begin(conn: &mut PgConnection) -> Result<Transaction<'_, Postgres>, StoreError> {
    Ok(conn.begin().await?)
}

/// Commits what succeeded, and rolls back what failed: immediately, as a transaction that is only dropped keeps its locks
/// until the connection is used again.
pub(crate) async fn end<T, E: From<StoreError>>(
    tx: Transaction<'_, Postgres>,
    result: Result<T, E>,
) -> Result<T, E> {
    let ended = if result.is_ok() { tx.commit().await } else { tx.rollback().await };
    ended.map_err(StoreError::from)?;
    result
}

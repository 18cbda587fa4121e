//! Requests of operators: what one wants done, until another one approves it ([`crate::approvals`]).

use dvp_domain::ids::ApprovalId;
use dvp_store::approvals::{self as store, Approval, Decision, NewApproval};
use dvp_store::{PgConnection, StoreError};
use serde_json::Value;
use uuid::Uuid;

/// Who requests something, why, and on which evidence.
#[derive(Debug, Clone, Copy)]
pub struct Maker<'a> {
    pub operator: &'a str,
    pub reason: &'a str,
    pub evidence: &'a str,
}

/// What is requested.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted<'a> {
    pub kind: &'static str,
    pub subject: &'a str,
    pub action: &'a str,
    pub details: &'a Value,
    pub touches: &'a [String],
    pub version: i64,
}

/// What stands about a subject, after requests that can no longer be approved have lapsed.
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

/// Writes a request down and gives its id.
pub(crate) async fn request(
    conn: &mut PgConnection,
    wanted: &Wanted<'_>,
    maker: Maker<'_>,
) -> Result<String, StoreError> {
    let id = String::from(ApprovalId::from_unique(Uuid::now_v7().simple()));
    let Wanted { kind, subject, action, details, touches, version } = *wanted;
    let Maker { operator, reason, evidence } = maker;
    let maker = operator;
    let new =
        NewApproval { id: &id, kind, subject, action, details, touches, version, maker, reason, evidence };
    store::insert(conn, &new).await?;
    Ok(id)
}

/// Names of operators that differ in case and spaces are one operator's.
pub fn is_same_operator(one: &str, other: &str) -> bool {
    one.trim().to_lowercase() == other.trim().to_lowercase()
}

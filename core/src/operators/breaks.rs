//! Breaks that nothing in the database can end, as of orders that a restored database has forgotten: two operators close
//! them once it is known what became of the money. The money itself is booked and returned by the other operations.

use dvp_domain::reconcile::BreakKind;
use dvp_store::operators::approvals::Approval;
use dvp_store::reconcile::closed;
use dvp_store::{PgConnection, StoreError};
use serde::{Deserialize, Serialize};

use crate::operators::requests::{self, ChangeError, Maker, RequestedChange, SettingChange};

/// The kind of requests to close breaks.
pub const BREAK: &str = "break";

/// A break as it was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Closing {
    pub kind: BreakKind,
    /// The execution, or else the id on the chain.
    pub about: String,
    pub detail: String,
}

/// Why a break was not closed, or that not requested.
#[derive(Debug, thiserror::Error)]
pub enum BreakError {
    #[error("the last comparison found no {kind} about {about}: dvp reconcile --open lists the breaks")]
    Unknown { kind: &'static str, about: String },
    #[error("{0} is put right by what ends it: it cannot be closed")]
    NotClosable(&'static str),
    #[error("the break is another one by now: look at it again")]
    Changed,
    #[error(transparent)]
    Change(#[from] ChangeError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Requests that a break of the last comparison is closed.
pub async fn request(
    conn: &mut PgConnection,
    kind: BreakKind,
    about: &str,
    maker: Maker<'_>,
) -> Result<RequestedChange, BreakError> {
    let detail = find(conn, kind, about).await?;
    let closing = Closing { kind, about: about.to_owned(), detail };
    let subject = format!("{}:{about}", kind.as_str());
    let change = SettingChange { kind: BREAK, subject: &subject, action: "close" };
    Ok(requests::request_change(conn, change, &closing, maker).await?)
}

/// What was found.
async fn find(conn: &mut PgConnection, kind: BreakKind, about: &str) -> Result<String, BreakError> {
    if !kind.is_closable() {
        return Err(BreakError::NotClosable(kind.as_str()));
    }
    let found = closed::find_open_break(conn, kind.as_str(), about).await?;
    let unknown = || BreakError::Unknown { kind: kind.as_str(), about: about.to_owned() };
    Ok(found.ok_or_else(unknown)?.detail)
}

/// Closes a break when another operator approves it, if it is still the one that was requested.
pub(crate) async fn carry_out_requested(
    conn: &mut PgConnection,
    request: &Approval,
) -> Result<(), BreakError> {
    let Closing { kind, about, detail } = requests::unmoved(conn, request).await?;
    if find(conn, kind, &about).await? != detail {
        return Err(BreakError::Changed);
    }
    Ok(closed::close(conn, (kind.as_str(), &about), &detail, &request.id).await?)
}

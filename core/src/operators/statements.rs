//! Statements of banks without ISO files: one operator uploads one, and another one approves it. It is then put into the
//! bank's folder as camt.053, and imported as every file of the bank is.

use dvp_rails::iso20022::by_hand::Converted;
use dvp_store::operators::approvals::Approval;
use dvp_store::orders::bank_uploads as store;
use dvp_store::{PgConnection, StoreError};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::operators::requests::{self, ChangeError, Maker, RequestedChange, SettingChange};

/// The kind of requests to import statements.
pub const STATEMENT: &str = "statement";

/// What the approver sees of an upload. Amounts are minor units.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Upload {
    /// Of its content, as hex.
    pub digest: String,
    pub statements: Vec<UploadedStatement>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UploadedStatement {
    pub account: String,
    pub currency: String,
    pub name: String,
    pub from: String,
    pub to: String,
    pub opening: String,
    pub closing: String,
    pub entries: usize,
}

/// Why a statement was not uploaded or approved.
#[derive(Debug, thiserror::Error)]
pub enum UploadError {
    #[error("it was imported before")]
    Imported,
    #[error("it was kept for two days and is gone: upload it again")]
    Gone,
    #[error(transparent)]
    Change(#[from] ChangeError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Requests the import of converted statements.
pub async fn request(
    conn: &mut PgConnection,
    converted: &Converted,
    maker: Maker<'_>,
) -> Result<RequestedChange, UploadError> {
    // What it says counts, and not when it was converted.
    let mut hash = Sha256::new();
    converted.statements.iter().for_each(|statement| hash.update(statement.digest()));
    let digest: [u8; 32] = hash.finalize().into();
    if store::is_taken(conn, &digest).await? {
        return Err(UploadError::Imported);
    }
    store::insert(conn, &digest, &converted.content).await?;
    let statements = converted.statements.iter().map(|one| UploadedStatement {
        account: one.account.clone(),
        currency: one.currency.clone(),
        name: one.id.clone(),
        from: one.begins_at.format("%F").to_string(),
        to: one.ends_at.format("%F").to_string(),
        opening: one.opening.to_string(),
        closing: one.closing.to_string(),
        entries: one.entries.len(),
    });
    let upload = Upload { digest: hex::encode(digest), statements: statements.collect() };
    let change = SettingChange { kind: STATEMENT, subject: &upload.digest, action: "import" };
    Ok(requests::request_change(conn, change, &upload, maker).await?)
}

/// Gives the statements to the import when another operator approves them.
pub(crate) async fn carry_out_requested(
    conn: &mut PgConnection,
    request: &Approval,
) -> Result<(), UploadError> {
    let upload: Upload = requests::unmoved(conn, request).await?;
    let digest = hex::decode(&upload.digest).map_err(|error| StoreError::corrupt("approval", error))?;
    if store::approve(conn, &digest).await? { Ok(()) } else { Err(UploadError::Gone) }
}

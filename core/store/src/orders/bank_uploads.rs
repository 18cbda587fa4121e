//! Statements that operators import by hand, on their way to the bank's folder.

use sqlx::PgConnection;

use crate::{StoreError, statement};

/// Keeps a converted statement until it is approved. A repetition keeps it once.
pub async fn insert(conn: &mut PgConnection, digest: &[u8; 32], content: &str) -> Result<(), StoreError> {
    let sql = "insert into bank_upload (digest, content) values ($1, $2) \
         on conflict on constraint bank_upload_pkey do update set content = excluded.content, uploaded_at = now() \
         where bank_upload.taken_at is null";
    statement::execute(conn, sql, (digest.as_slice(), content)).await
}

/// Whether a statement was put into the folder before.
pub async fn is_taken(conn: &mut PgConnection, digest: &[u8; 32]) -> Result<bool, StoreError> {
    let sql = "select exists (select from bank_upload where digest = $1 and taken_at is not null)";
    statement::load_value(conn, sql, (digest.as_slice(),)).await
}

/// Approves one that is still kept. `false`: it is not.
pub async fn approve(conn: &mut PgConnection, digest: &[u8]) -> Result<bool, StoreError> {
    let sql = "update bank_upload set approved_at = coalesce(approved_at, now()) where digest = $1 and content <> ''";
    Ok(statement::affected(conn, sql, (digest,)).await? > 0)
}

/// What is to be put into the folder, the oldest first: digests as hex, and contents.
pub async fn list_approved(conn: &mut PgConnection, limit: i64) -> Result<Vec<(String, String)>, StoreError> {
    let sql = "select encode(digest, 'hex'), content from bank_upload \
         where approved_at is not null and taken_at is null order by approved_at, digest limit $1";
    statement::list(conn, sql, (limit,)).await
}

/// Records that one is in the folder, and drops what is not needed any more.
pub async fn mark_taken(conn: &mut PgConnection, digest: &str) -> Result<(), StoreError> {
    let sql = "update bank_upload set content = '', taken_at = case when encode(digest, 'hex') = $1 then now() \
                                                               else taken_at end \
         where encode(digest, 'hex') = $1 \
            or approved_at is null and content <> '' and uploaded_at < now() - interval '2 days'";
    statement::execute(conn, sql, (digest,)).await
}

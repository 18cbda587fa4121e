//! Messages to and from the bank about an order's payment, with their documents, as operators read them.

use chrono::{DateTime, Utc};
use sqlx::PgConnection;

use crate::{StoreError, statement};

#[derive(Debug, Clone, Copy)]
pub struct NewBankMessage<'a> {
    pub execution: &'a str,
    /// What it says of the payment, in words for operators.
    pub said: &'a str,
    /// The message's name in ISO 20022.
    pub message: &'a str,
    pub file: &'a str,
}

/// Records a message to the bank and its document.
pub async fn insert_sent(
    conn: &mut PgConnection,
    sent: NewBankMessage<'_>,
    digest: &[u8; 32],
    content: &str,
) -> Result<(), StoreError> {
    insert_document(conn, digest, content).await?;
    insert(conn, sent, digest, "out").await
}

/// Records what a file of the bank says about a payment. Its document is inserted once a file.
pub async fn insert_received(
    conn: &mut PgConnection,
    received: NewBankMessage<'_>,
    digest: &[u8; 32],
) -> Result<(), StoreError> {
    insert(conn, received, digest, "in").await
}

async fn insert(
    conn: &mut PgConnection,
    new: NewBankMessage<'_>,
    digest: &[u8; 32],
    direction: &str,
) -> Result<(), StoreError> {
    let sql = "insert into bank_message (execution, digest, said, direction, message, file) \
         values ($1, $2, $3, $4, $5, $6) on conflict on constraint bank_message_pkey do nothing";
    let parameters = (new.execution, digest.as_slice(), new.said, direction, new.message, new.file);
    statement::execute(conn, sql, parameters).await
}

pub async fn insert_document(
    conn: &mut PgConnection,
    digest: &[u8; 32],
    content: &str,
) -> Result<(), StoreError> {
    let sql = "insert into bank_document (digest, content) values ($1, $2) \
         on conflict on constraint bank_document_pkey do nothing";
    statement::execute(conn, sql, (digest.as_slice(), content)).await
}

/// A message about an order's payment.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct BankMessage {
    /// Of its document, as hex.
    pub digest: String,
    pub said: String,
    pub is_sent: bool,
    pub message: String,
    pub file: String,
    pub at: DateTime<Utc>,
    /// Its document is still kept.
    pub is_kept: bool,
}

/// The messages about an order's payment, the oldest first.
pub async fn list(conn: &mut PgConnection, execution: &str) -> Result<Vec<BankMessage>, StoreError> {
    let sql = "select encode(m.digest, 'hex') as digest, m.said, m.direction = 'out' as is_sent, m.message, \
                m.file, m.at, exists (select from bank_document d where d.digest = m.digest) as is_kept \
         from bank_message m where m.execution = $1 order by m.at, m.digest, m.said";
    statement::list(conn, sql, (execution,)).await
}

/// The document of a message about this order.
pub async fn find_document(
    conn: &mut PgConnection,
    execution: &str,
    digest: &[u8],
) -> Result<Option<String>, StoreError> {
    let sql = "select content from bank_document d where digest = $2 \
           and exists (select from bank_message m where m.execution = $1 and m.digest = d.digest)";
    statement::find_value(conn, sql, (execution, digest)).await
}

/// Deletes the documents that name an order, and what is quoted of them where a part does not count. A file of the bank
/// names other orders, too: they lose it as well.
pub async fn erase_documents(conn: &mut PgConnection, execution: &str) -> Result<(), StoreError> {
    let sql = "with erased as (select distinct digest from bank_message where execution = $1), \
              documents as (delete from bank_document d using erased e where d.digest = e.digest), \
              parts as (update bank_file_part p set why = '[erased]' from erased e where p.file = e.digest) \
         update bank_file f set refusal = '[erased]' from erased e \
         where f.digest = e.digest and f.refusal is not null";
    statement::execute(conn, sql, (execution,)).await
}

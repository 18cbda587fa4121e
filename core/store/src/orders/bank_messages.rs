//! Messages to and from the bank about an order's payment, with their documents, as operators read them.

use std::time::Duration;

use chrono::{DateTime, Utc};
use sqlx::PgConnection;

use crate::StoreError;

/// A message about a payment.
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
    sqlx::query(
        "insert into bank_message (execution, digest, said, direction, message, file) \
         values ($1, $2, $3, $4, $5, $6) on conflict on constraint bank_message_pkey do nothing",
    )
    .bind(new.execution)
    .bind(digest.as_slice())
    .bind(new.said)
    .bind(direction)
    .bind(new.message)
    .bind(new.file)
    .execute(conn)
    .await?;
    Ok(())
}

pub async fn insert_document(
    conn: &mut PgConnection,
    digest: &[u8; 32],
    content: &str,
) -> Result<(), StoreError> {
    sqlx::query(
        "insert into bank_document (digest, content) values ($1, $2) \
         on conflict on constraint bank_document_pkey do nothing",
    )
    .bind(digest.as_slice())
    .bind(content)
    .execute(conn)
    .await?;
    Ok(())
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
    let rows = sqlx::query_as(
        "select encode(m.digest, 'hex') as digest, m.said, m.direction = 'out' as is_sent, m.message, m.file, m.at, \
                exists (select from bank_document d where d.digest = m.digest) as is_kept \
         from bank_message m where m.execution = $1 order by m.at, m.digest, m.said",
    );
    Ok(rows.bind(execution).fetch_all(conn).await?)
}

/// The document of a message about this order.
pub async fn find_document(
    conn: &mut PgConnection,
    execution: &str,
    digest: &[u8],
) -> Result<Option<String>, StoreError> {
    let found = sqlx::query_scalar(
        "select content from bank_document d where digest = $2 \
           and exists (select from bank_message m where m.execution = $1 and m.digest = d.digest)",
    );
    Ok(found.bind(execution).bind(digest).fetch_optional(conn).await?)
}

/// Deletes the documents that name an order. A file of the bank names other orders, too: they lose it as well.
pub async fn erase_documents(conn: &mut PgConnection, execution: &str) -> Result<(), StoreError> {
    sqlx::query(
        "delete from bank_document d using bank_message m where m.execution = $1 and m.digest = d.digest",
    )
    .bind(execution)
    .execute(conn)
    .await?;
    Ok(())
}

/// Deletes messages and documents of this age.
pub async fn delete_old(conn: &mut PgConnection, age: Duration, limit: i64) -> Result<u64, StoreError> {
    let mut rows = 0_u64;
    for statement in [
        "delete from bank_message where ctid = any(array( \
             select ctid from bank_message where at < now() - make_interval(secs => $1) order by at limit $2))",
        "delete from bank_document where ctid = any(array( \
             select ctid from bank_document where kept_at < now() - make_interval(secs => $1) \
             order by kept_at limit $2))",
    ] {
        let done = sqlx::query(statement).bind(age.as_secs_f64()).bind(limit).execute(&mut *conn).await?;
        rows = rows.saturating_add(done.rows_affected());
    }
    Ok(rows)
}

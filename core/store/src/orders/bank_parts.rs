//! Parts of the bank's files that do not count, and what operators have decided about each.

use std::ops::Range;

use chrono::{DateTime, Utc};
use sqlx::PgConnection;

use crate::{StoreError, statement};

/// A part that does not count: why, and where it stands in the text of its file, in bytes.
#[derive(Debug, Clone)]
pub struct NewPart {
    pub why: String,
    pub span: Option<(i32, i32)>,
}

#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct FilePart {
    pub number: i32,
    pub why: String,
    pub starts_at: Option<i32>,
    pub ends_at: Option<i32>,
    /// `applied` or `dismissed`, by two operators.
    pub decision: Option<String>,
    /// The order whose payment it was about.
    pub execution: Option<String>,
    pub decided_at: Option<DateTime<Utc>>,
}

impl FilePart {
    /// Its place in the text of its file, if it has one.
    pub fn span(&self) -> Option<Range<usize>> {
        let place = |at: Option<i32>| usize::try_from(at?).ok();
        Some(place(self.starts_at)?..place(self.ends_at)?)
    }

    /// Its text in the text of the file, as far as it is known.
    pub fn text_in<'a>(&self, content: &'a str) -> Option<&'a str> {
        content.get(self.span()?)
    }
}

/// A file of the bank, and its text while it is kept.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct StoredFile {
    pub name: String,
    pub message: Option<String>,
    pub refusal: Option<String>,
    pub unknown: i64,
    pub taken_at: DateTime<Utc>,
    pub cleared_at: Option<DateTime<Utc>>,
    pub content: Option<String>,
}

/// Records the parts of a file that are new, which raise its alarm again. Returns their number.
pub async fn insert(conn: &mut PgConnection, file: &[u8; 32], parts: &[NewPart]) -> Result<u64, StoreError> {
    let whys: Vec<&str> = parts.iter().map(|part| part.why.as_str()).collect();
    let (starts, ends): (Vec<_>, Vec<_>) = parts.iter().map(|part| part.span.unzip()).unzip();
    let sql = "insert into bank_file_part (file, number, why, starts_at, ends_at) \
         select $1, (select coalesce(max(number), 0) from bank_file_part where file = $1) \
                    + row_number() over (order by p.number), p.why, p.starts_at, p.ends_at \
         from unnest($2::text[], $3::int[], $4::int[]) with ordinality p (why, starts_at, ends_at, number) \
         where not exists (select from bank_file_part o where o.file = $1 and (o.why = p.why or o.why = '[erased]' and o.starts_at is not null) \
                             and o.starts_at is not distinct from p.starts_at)";
    let first = whys.first().copied().unwrap_or_default().to_owned();
    let added = statement::affected(conn, sql, (file.as_slice(), whys, starts, ends)).await?;
    if added > 0 {
        let sql = "update bank_file set refusal = coalesce(refusal, $2), cleared_at = null where digest = $1";
        statement::execute(conn, sql, (file.as_slice(), first)).await?;
    }
    Ok(added)
}

pub async fn find_file(conn: &mut PgConnection, file: &[u8]) -> Result<Option<StoredFile>, StoreError> {
    let sql = "select name, message, refusal, unknown, taken_at, cleared_at, content \
         from bank_file left join bank_document using (digest) where digest = $1";
    statement::find(conn, sql, (file,)).await
}

/// The parts of a file in their order.
pub async fn list(conn: &mut PgConnection, file: &[u8]) -> Result<Vec<FilePart>, StoreError> {
    let sql = "select number, why, starts_at, ends_at, decision, execution, decided_at \
         from bank_file_part where file = $1 order by number";
    statement::list(conn, sql, (file,)).await
}

/// Decides about a part of a file, or about all that are open: with an order it counts for its payment, or else it is
/// dismissed. A file with no open part and no unknown payment has no alarm any more. Returns how many were open.
pub async fn decide(
    conn: &mut PgConnection,
    file: &[u8],
    number: Option<i32>,
    execution: Option<&str>,
) -> Result<u64, StoreError> {
    let sql = "update bank_file_part set decided_at = now(), execution = $3, \
                decision = case when $3 is null then 'dismissed' else 'applied' end \
         where file = $1 and number = coalesce($2, number) and decided_at is null";
    let decided = statement::affected(conn, sql, (file, number, execution)).await?;
    let sql = "update bank_file set cleared_at = now() where digest = $1 and unknown = 0 and cleared_at is null \
           and not exists (select from bank_file_part where file = $1 and decided_at is null)";
    statement::execute(conn, sql, (file,)).await?;
    Ok(decided)
}

/// What a message says of a payment that only a part names which does not count.
pub const NOT_UNDERSTOOD: &str = "named where it is not understood";

/// The orders whose payments these ids name, and whether a file of the bank has said something of each.
pub async fn list_named(
    conn: &mut PgConnection,
    (ids, uetrs): (&[String], &[String]),
    file: &[u8],
) -> Result<Vec<(String, bool)>, StoreError> {
    let sql = "select execution, exists (select from bank_message m where m.execution = p.execution and m.digest = $3 \
                                      and m.said <> $4) \
         from bank_payment p where end_to_end_id = any($1) or uetr = any($2)";
    statement::list(conn, sql, (ids, uetrs, file, NOT_UNDERSTOOD)).await
}

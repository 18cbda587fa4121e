//! The results of screening orders: a row for each result that differs from the previous one, never changed.

use dvp_domain::screening::{ScreeningResult, Source};
use sqlx::PgConnection;

use crate::StoreError;

/// A new result.
#[derive(Debug, Clone, Copy)]
pub struct NewScreening<'a> {
    pub reference: &'a str,
    pub verdict: ScreeningResult,
    pub source: Source,
    /// The matched entry, or the case number of the screening service.
    pub detail: &'a str,
}

/// The latest result for an order.
pub async fn find_latest(
    conn: &mut PgConnection,
    reference: &str,
) -> Result<Option<ScreeningResult>, StoreError> {
    let row: Option<(String,)> =
        sqlx::query_as("select verdict from screening where reference = $1 order by id desc limit 1")
            .bind(reference)
            .fetch_optional(conn)
            .await?;
    let parse = |(text,): (String,)| {
        ScreeningResult::parse(&text)
            .ok_or_else(|| StoreError::corrupt("screening", format_args!("verdict {text}")))
    };
    row.map(parse).transpose()
}

/// Records a result, unless it equals the latest one.
pub async fn insert(conn: &mut PgConnection, new: &NewScreening<'_>) -> Result<(), StoreError> {
    sqlx::query(
        "insert into screening (reference, verdict, source, detail) \
         select $1, $2, $3, $4 \
         where ($2, $3, $4) is distinct from \
             (select (verdict, source, detail) from screening where reference = $1 order by id desc limit 1)",
    )
    .bind(new.reference)
    .bind(new.verdict.as_str())
    .bind(new.source.as_str())
    .bind(new.detail)
    .execute(conn)
    .await?;
    Ok(())
}

/// The number of accepted orders that are held.
pub async fn count_held(conn: &mut PgConnection) -> Result<i64, StoreError> {
    let count = sqlx::query_scalar(
        "select count(*) from effect where kind = 'lock' and last_result = 'held by screening'",
    );
    Ok(count.fetch_one(conn).await?)
}

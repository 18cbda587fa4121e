//! The results of screening orders: a row for each result that differs from the previous one, never changed.

use dvp_domain::screening::{ScreeningResult, Source};
use sqlx::PgConnection;

use crate::{StoreError, known, statement};

#[derive(Debug, Clone, Copy)]
pub struct NewScreening<'a> {
    pub reference: &'a str,
    pub verdict: ScreeningResult,
    pub source: Source,
    /// The matched entry, or the case number of the screening service.
    pub detail: &'a str,
}

pub async fn find_latest(
    conn: &mut PgConnection,
    reference: &str,
) -> Result<Option<ScreeningResult>, StoreError> {
    let sql = "select verdict from screening where reference = $1 order by id desc limit 1";
    let found: Option<String> = statement::find_value(conn, sql, (reference,)).await?;
    found.map(|verdict| known("screening", &verdict, ScreeningResult::parse)).transpose()
}

/// Records a result, unless it equals the latest one.
pub async fn insert(conn: &mut PgConnection, new: &NewScreening<'_>) -> Result<(), StoreError> {
    let sql = "insert into screening (reference, verdict, source, detail) \
         select $1, $2, $3, $4 \
         where ($2, $3, $4) is distinct from \
             (select (verdict, source, detail) from screening where reference = $1 order by id desc limit 1)";
    statement::execute(conn, sql, (new.reference, new.verdict.as_str(), new.source.as_str(), new.detail))
        .await
}

/// The number of accepted orders that are held.
pub async fn count_held(conn: &mut PgConnection) -> Result<i64, StoreError> {
    let sql = "select count(*) from effect where kind = 'lock' and last_result = 'held by screening'";
    statement::load_value(conn, sql, ()).await
}

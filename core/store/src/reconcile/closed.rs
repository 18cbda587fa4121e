//! Breaks that two operators have closed.

use std::collections::HashSet;

use dvp_domain::reconcile::Break;
use sqlx::PgConnection;

use crate::reconcile::KeptBreak;
use crate::{StoreError, statement};

/// The open break of a kind about an execution or an id, from the last run.
pub async fn find_open_break(
    conn: &mut PgConnection,
    kind: &str,
    about: &str,
) -> Result<Option<KeptBreak>, StoreError> {
    let sql = "select run_id, ordinal, kind, reference, entity, detail, action, account, asset, difference::text \
                as difference, first_seen_at \
         from reconciliation_break \
         where run_id in (select max(id) from reconciliation_run group by chain_id) \
           and kind = $1 and coalesce(reference, entity) = $2 \
         order by ordinal limit 1";
    statement::find(conn, sql, (kind, about)).await
}

/// Records that a break is closed, as it was found.
pub async fn close(
    conn: &mut PgConnection,
    (kind, about): (&str, &str),
    detail: &str,
    approval: &str,
) -> Result<(), StoreError> {
    let sql = "insert into closed_break (kind, about, detail, approval) values ($1, $2, $3, $4) \
         on conflict on constraint closed_break_pkey \
         do update set detail = $3, approval = $4, closed_at = clock_timestamp()";
    statement::execute(conn, sql, (kind, about, detail, approval)).await
}

/// The breaks that are not closed.
pub async fn without_closed(conn: &mut PgConnection, breaks: Vec<Break>) -> Result<Vec<Break>, StoreError> {
    if breaks.is_empty() {
        return Ok(breaks);
    }
    let sql = "select c.kind, c.about, c.detail from closed_break c \
         join unnest($1::text[], $2::text[]) as found (kind, about) on (c.kind, c.about) = (found.kind, found.about)";
    let parameters = (
        breaks.iter().map(|found| found.kind.as_str()).collect::<Vec<_>>(),
        breaks.iter().map(|found| found.about().map(str::to_owned)).collect::<Vec<_>>(),
    );
    let rows: Vec<(String, String, String)> = statement::list(conn, sql, parameters).await?;
    let closed: HashSet<_> = rows.into_iter().collect();
    let is_closed = |found: &Break| {
        found.about().is_some_and(|about| {
            closed.contains(&(found.kind.as_str().to_owned(), about.to_owned(), found.detail.clone()))
        })
    };
    Ok(breaks.into_iter().filter(|found| !is_closed(found)).collect())
}

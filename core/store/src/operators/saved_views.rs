//! Views of lists that operators have saved, each for itself.

use sqlx::PgConnection;

use crate::{StoreError, statement};

/// The most views of an operator.
pub const VIEWS_MAX: i64 = 50;

/// A saved view: a name, and a filter as it is in the address of the list's page.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct SavedView {
    pub name: String,
    pub query: String,
}

/// An operator's views of a list, by name.
pub async fn list(conn: &mut PgConnection, operator: &str, page: &str) -> Result<Vec<SavedView>, StoreError> {
    let sql = "select name, query from saved_view where operator = $1 and page = $2 order by name limit $3";
    statement::list(conn, sql, (operator, page, VIEWS_MAX)).await
}

/// Saves a view, in place of one of the same name. `false`: the operator has as many as one may have.
pub async fn save(
    conn: &mut PgConnection,
    operator: &str,
    page: &str,
    view: &SavedView,
) -> Result<bool, StoreError> {
    let sql = "insert into saved_view (operator, page, name, query) \
         select $1, $2, $3, $4 \
         where (select count(*) from saved_view where operator = $1 and (page, name) <> ($2, $3)) < $5 \
         on conflict on constraint saved_view_pkey do update set query = excluded.query, saved_at = excluded.saved_at";
    Ok(statement::affected(conn, sql, (operator, page, &view.name, &view.query, VIEWS_MAX)).await? == 1)
}

/// Deletes a view. `false`: the operator has none of this name.
pub async fn delete(
    conn: &mut PgConnection,
    operator: &str,
    page: &str,
    name: &str,
) -> Result<bool, StoreError> {
    let sql = "delete from saved_view where operator = $1 and page = $2 and name = $3";
    Ok(statement::affected(conn, sql, (operator, page, name)).await? == 1)
}

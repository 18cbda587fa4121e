//! Views of the list of orders that operators have saved, each for itself.

use sqlx::PgConnection;

use crate::{StoreError, statement};

/// The most views of an operator.
pub const VIEWS_MAX: i64 = 50;

/// A saved view: a name, and a filter as it is in the address of the page.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct SavedView {
    pub name: String,
    pub query: String,
}

/// An operator's views, by name.
pub async fn list(conn: &mut PgConnection, operator: &str) -> Result<Vec<SavedView>, StoreError> {
    let sql = "select name, query from order_view where operator = $1 order by name limit $2";
    statement::list(conn, sql, (operator, VIEWS_MAX)).await
}

/// Saves a view, in place of one of the same name. `false`: the operator has as many as one may have.
pub async fn save(conn: &mut PgConnection, operator: &str, view: &SavedView) -> Result<bool, StoreError> {
    let sql = "insert into order_view (operator, name, query) \
         select $1, $2, $3 where (select count(*) from order_view where operator = $1 and name <> $2) < $4 \
         on conflict on constraint order_view_pkey do update set query = excluded.query, saved_at = excluded.saved_at";
    Ok(statement::affected(conn, sql, (operator, &view.name, &view.query, VIEWS_MAX)).await? == 1)
}

/// Deletes a view. `false`: the operator has none of this name.
pub async fn delete(conn: &mut PgConnection, operator: &str, name: &str) -> Result<bool, StoreError> {
    let sql = "delete from order_view where operator = $1 and name = $2";
    Ok(statement::affected(conn, sql, (operator, name)).await? == 1)
}

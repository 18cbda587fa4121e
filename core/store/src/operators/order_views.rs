//! Views of the list of orders that operators have saved, each for itself.

use sqlx::PgConnection;

use crate::StoreError;

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
    let rows =
        sqlx::query_as("select name, query from order_view where operator = $1 order by name limit $2");
    Ok(rows.bind(operator).bind(VIEWS_MAX).fetch_all(conn).await?)
}

/// Saves a view, in place of one of the same name. `false`: the operator has as many as one may have.
pub async fn save(conn: &mut PgConnection, operator: &str, view: &SavedView) -> Result<bool, StoreError> {
    let done = sqlx::query(
        "insert into order_view (operator, name, query) \
         select $1, $2, $3 where (select count(*) from order_view where operator = $1 and name <> $2) < $4 \
         on conflict on constraint order_view_pkey do update set query = excluded.query, saved_at = excluded.saved_at",
    )
    .bind(operator)
    .bind(&view.name)
    .bind(&view.query)
    .bind(VIEWS_MAX)
    .execute(conn)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Deletes a view. `false`: the operator has none of this name.
pub async fn delete(conn: &mut PgConnection, operator: &str, name: &str) -> Result<bool, StoreError> {
    let done = sqlx::query("delete from order_view where operator = $1 and name = $2")
        .bind(operator)
        .bind(name)
        .execute(conn)
        .await?;
    Ok(done.rows_affected() == 1)
}

//! Runs a statement with its parameters: a tuple, in the order of their numbers.

use futures_util::TryFutureExt as _;
use sqlx::postgres::{PgArguments, PgRow};
use sqlx::{Arguments as _, Decode, Encode, FromRow, PgConnection, Postgres, SqlSafeStr, Type};

use crate::StoreError;

pub(crate) trait Parameters<'q> {
    fn arguments(self) -> sqlx::Result<PgArguments>;
}

impl Parameters<'_> for () {
    fn arguments(self) -> sqlx::Result<PgArguments> {
        Ok(PgArguments::default())
    }
}

macro_rules! tuples {
    () => {};
    ($first:ident $first_type:ident $(, $part:ident $type:ident)*) => {
        impl<'q, $first_type, $($type),*> Parameters<'q> for ($first_type, $($type,)*)
        where
            $first_type: Encode<'q, Postgres> + Type<Postgres>,
            $($type: Encode<'q, Postgres> + Type<Postgres>),*
        {
            fn arguments(self) -> sqlx::Result<PgArguments> {
                let mut all = PgArguments::default();
                let ($first, $($part,)*) = self;
                all.add($first).map_err(sqlx::Error::Encode)?;
                $( all.add($part).map_err(sqlx::Error::Encode)?; )*
                Ok(all)
            }
        }

        tuples!($($part $type),*);
    };
}

tuples!(a A, b B, c C, d D, e E, f F, g G, h H, i I, j J, k K, l L, m M, n N, o O, p P, r R, s S, t T, u U, v V, w W);

// The parameters are encoded before the first wait, so that the futures have none of their types.

/// Without a result.
pub(crate) fn execute<'q>(
    conn: &mut PgConnection,
    sql: impl SqlSafeStr,
    parameters: impl Parameters<'q>,
) -> impl Future<Output = Result<(), StoreError>> {
    affected(conn, sql, parameters).map_ok(drop)
}

/// The number of rows that the statement has written.
pub(crate) fn affected<'q>(
    conn: &mut PgConnection,
    sql: impl SqlSafeStr,
    parameters: impl Parameters<'q>,
) -> impl Future<Output = Result<u64, StoreError>> {
    let (sql, arguments) = (sql.into_sql_str(), parameters.arguments());
    async move { Ok(sqlx::query_with(sql, arguments?).execute(conn).await?.rows_affected()) }
}

/// The rows.
pub(crate) fn list<'q, T>(
    conn: &mut PgConnection,
    sql: impl SqlSafeStr,
    parameters: impl Parameters<'q>,
) -> impl Future<Output = Result<Vec<T>, StoreError>>
where
    T: for<'r> FromRow<'r, PgRow> + Send + Unpin,
{
    let (sql, arguments) = (sql.into_sql_str(), parameters.arguments());
    async move { Ok(sqlx::query_as_with(sql, arguments?).fetch_all(conn).await?) }
}

/// The row, if there is one.
pub(crate) fn find<'q, T>(
    conn: &mut PgConnection,
    sql: impl SqlSafeStr,
    parameters: impl Parameters<'q>,
) -> impl Future<Output = Result<Option<T>, StoreError>>
where
    T: for<'r> FromRow<'r, PgRow> + Send + Unpin,
{
    let (sql, arguments) = (sql.into_sql_str(), parameters.arguments());
    async move { Ok(sqlx::query_as_with(sql, arguments?).fetch_optional(conn).await?) }
}

/// The row.
pub(crate) fn load<'q, T>(
    conn: &mut PgConnection,
    sql: impl SqlSafeStr,
    parameters: impl Parameters<'q>,
) -> impl Future<Output = Result<T, StoreError>>
where
    T: for<'r> FromRow<'r, PgRow> + Send + Unpin,
{
    let (sql, arguments) = (sql.into_sql_str(), parameters.arguments());
    async move { Ok(sqlx::query_as_with(sql, arguments?).fetch_one(conn).await?) }
}

/// The rows of one column.
pub(crate) fn list_values<'q, T>(
    conn: &mut PgConnection,
    sql: impl SqlSafeStr,
    parameters: impl Parameters<'q>,
) -> impl Future<Output = Result<Vec<T>, StoreError>>
where
    T: for<'r> Decode<'r, Postgres> + Type<Postgres> + Send + Unpin,
{
    let (sql, arguments) = (sql.into_sql_str(), parameters.arguments());
    async move { Ok(sqlx::query_scalar_with(sql, arguments?).fetch_all(conn).await?) }
}

/// The row of one column, if there is one.
pub(crate) fn find_value<'q, T>(
    conn: &mut PgConnection,
    sql: impl SqlSafeStr,
    parameters: impl Parameters<'q>,
) -> impl Future<Output = Result<Option<T>, StoreError>>
where
    T: for<'r> Decode<'r, Postgres> + Type<Postgres> + Send + Unpin,
{
    let (sql, arguments) = (sql.into_sql_str(), parameters.arguments());
    async move { Ok(sqlx::query_scalar_with(sql, arguments?).fetch_optional(conn).await?) }
}

/// The row of one column.
pub(crate) fn load_value<'q, T>(
    conn: &mut PgConnection,
    sql: impl SqlSafeStr,
    parameters: impl Parameters<'q>,
) -> impl Future<Output = Result<T, StoreError>>
where
    T: for<'r> Decode<'r, Postgres> + Type<Postgres> + Send + Unpin,
{
    let (sql, arguments) = (sql.into_sql_str(), parameters.arguments());
    async move { Ok(sqlx::query_scalar_with(sql, arguments?).fetch_one(conn).await?) }
}

/// The rows, not decoded.
pub(crate) fn list_rows<'q>(
    conn: &mut PgConnection,
    sql: impl SqlSafeStr,
    parameters: impl Parameters<'q>,
) -> impl Future<Output = Result<Vec<PgRow>, StoreError>> {
    let (sql, arguments) = (sql.into_sql_str(), parameters.arguments());
    async move { Ok(sqlx::query_with(sql, arguments?).fetch_all(conn).await?) }
}

/// The row, not decoded, if there is one.
pub(crate) fn find_row<'q>(
    conn: &mut PgConnection,
    sql: impl SqlSafeStr,
    parameters: impl Parameters<'q>,
) -> impl Future<Output = Result<Option<PgRow>, StoreError>> {
    let (sql, arguments) = (sql.into_sql_str(), parameters.arguments());
    async move { Ok(sqlx::query_with(sql, arguments?).fetch_optional(conn).await?) }
}

//! Price bands that operators have set. Those in force are read with the other controls ([`crate::operators::controls`]).

use chrono::{DateTime, Utc};
use dvp_domain::liquidity::band::Band;
use sqlx::PgConnection;

use crate::{StoreError, statement};

/// A band as operators see it.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct BandRow {
    pub input: String,
    pub output: String,
    pub deviation_bps: i32,
    pub middle: Option<String>,
    pub approval: String,
    pub set_at: DateTime<Utc>,
}

/// Sets or removes a band, as two operators decided. The time is the database's.
pub async fn set(
    conn: &mut PgConnection,
    (input, output): (&str, &str),
    band: Option<Band>,
    approval: &str,
) -> Result<(), StoreError> {
    let sql = "insert into price_band (input, output, deviation_bps, middle, approval) \
         values ($1, $2, $3::bigint::integer, $4::numeric, $5) on conflict on constraint price_band_pkey do update \
         set deviation_bps = excluded.deviation_bps, middle = excluded.middle, approval = excluded.approval, \
             set_at = clock_timestamp()";
    let parameters = (
        input,
        output,
        band.map(|band| i64::from(band.deviation_bps)),
        band.and_then(|band| band.middle).map(|middle| middle.to_string()),
        approval,
    );
    statement::execute(conn, sql, parameters).await
}

/// The bands that operators have set.
pub async fn list(conn: &mut PgConnection) -> Result<Vec<BandRow>, StoreError> {
    let sql = "select input, output, deviation_bps, middle::text as middle, approval, set_at from price_band \
         where deviation_bps is not null order by input, output";
    statement::list(conn, sql, ()).await
}

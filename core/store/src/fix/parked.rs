//! Parked orders of FIX sessions, which wait until their wallet is looked up.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use sqlx::PgConnection;

use crate::fix::rows::{FixNumbers, FixRows, ParkedOrder, Parking};
use crate::{StoreError, statement};

type Row = (String, i32, Vec<u8>, DateTime<Utc>, serde_json::Value);

/// Writes the parked and resumed orders of a batch's parts, in the order given: the last change of a ClOrdID counts.
pub(super) async fn apply(
    conn: &mut PgConnection,
    parts: &[(&FixNumbers, FixRows)],
) -> Result<(), StoreError> {
    let changes = parts
        .iter()
        .flat_map(|(part, rows)| rows.parking.iter().map(move |parking| (part.session_id.as_str(), parking)));
    let mut last: HashMap<(&str, &str), &Parking> = HashMap::new();
    let mut taken = Vec::new();
    for (session_id, parking) in changes {
        let (Parking::Park(ParkedOrder { cl_ord_id, .. }) | Parking::Decide { cl_ord_id }) = parking;
        if matches!(parking, Parking::Park(_)) {
            taken.push((session_id, cl_ord_id.as_str()));
        }
        last.insert((session_id, cl_ord_id), parking);
    }
    let decided = last.iter().filter(|(_, parking)| matches!(parking, Parking::Decide { .. }));
    let decided: Vec<(&str, &str)> = decided.map(|(key, _)| *key).collect();
    if !decided.is_empty() {
        delete(conn, &decided).await?;
    }
    let parked =
        taken.iter().filter_map(|(session_id, cl_ord_id)| match last.remove(&(*session_id, *cl_ord_id)) {
            Some(Parking::Park(order)) => Some((*session_id, order)),
            Some(Parking::Decide { .. }) | None => None,
        });
    let parked: Vec<(&str, &ParkedOrder)> = parked.collect();
    if parked.is_empty() { Ok(()) } else { insert(conn, &parked).await }
}

async fn delete(conn: &mut PgConnection, decided: &[(&str, &str)]) -> Result<(), StoreError> {
    let (sessions, ids): (Vec<&str>, Vec<&str>) = decided.iter().copied().unzip();
    let sql = "delete from fix_parked p using unnest($1::text[], $2::text[]) as u (session_id, cl_ord_id) \
         where p.session_id = u.session_id and p.cl_ord_id = u.cl_ord_id";
    statement::execute(conn, sql, (sessions, ids)).await
}

/// A commit that was not acknowledged is written again: then the row exists and is equal.
async fn insert(conn: &mut PgConnection, parked: &[(&str, &ParkedOrder)]) -> Result<(), StoreError> {
    let bounds = |(_, order): &(&str, &ParkedOrder)| serde_json::to_value(order.bounds);
    let bounds: Result<Vec<serde_json::Value>, _> = parked.iter().map(bounds).collect();
    let sql = "insert into fix_parked (session_id, cl_ord_id, trading_day, message, received_at, bounds) \
         select s, c, d, m, r, b \
         from unnest($1::text[], $2::text[], $3::int4[], $4::bytea[], $5::timestamptz[], $6::jsonb[]) \
              with ordinality as u (s, c, d, m, r, b, n) order by n \
         on conflict on constraint fix_parked_pkey do nothing";
    let parameters = (
        parked.iter().map(|(session_id, _)| *session_id).collect::<Vec<_>>(),
        parked.iter().map(|(_, order)| order.cl_ord_id.as_str()).collect::<Vec<_>>(),
        parked.iter().map(|(_, order)| order.trading_day).collect::<Vec<_>>(),
        parked.iter().map(|(_, order)| order.message.as_slice()).collect::<Vec<_>>(),
        parked.iter().map(|(_, order)| order.received_at).collect::<Vec<_>>(),
        bounds.map_err(|error| StoreError::corrupt("fix_parked", error))?,
    );
    statement::execute(conn, sql, parameters).await
}

/// A session's parked orders, in the order of arrival.
///
/// A process that had lost the session without knowing may have parked an order that the new owner received again and
/// decided: such a row is left out. Its ClOrdID is used, so the row has no effect.
pub async fn list(conn: &mut PgConnection, session_id: &str) -> Result<Vec<ParkedOrder>, StoreError> {
    let sql = "select cl_ord_id, trading_day, message, received_at, bounds from fix_parked p \
         where session_id = $1 \
           and not exists (select from fix_order o where o.session_id = p.session_id and o.cl_ord_id = p.cl_ord_id \
                                                   and o.trading_day = p.trading_day) \
         order by position";
    let rows: Vec<Row> = statement::list(conn, sql, (session_id,)).await?;
    let order =
        |(cl_ord_id, trading_day, message, received_at, bounds): Row| -> Result<ParkedOrder, StoreError> {
            let bounds =
                serde_json::from_value(bounds).map_err(|error| StoreError::corrupt("fix_parked", error))?;
            Ok(ParkedOrder { cl_ord_id, trading_day, message, received_at, bounds })
        };
    rows.into_iter().map(order).collect()
}

//! The rows of a FIX session that moves: its own, and pages of its messages for resends and of its orders.

use sqlx::PgConnection;

use super::rows::insert_arrays;
use crate::StoreError;

/// A session's own row, as JSON.
pub async fn load_session(conn: &mut PgConnection, session_id: &str) -> Result<String, StoreError> {
    let row = sqlx::query_scalar(
        "select (to_jsonb(s) - '{moved_by,came_by,copied_at}'::text[])::text from fix_session s where session_id = $1",
    );
    Ok(row.bind(session_id).fetch_one(conn).await?)
}

/// Messages of a session after a number, as JSON, and the last one's number.
pub async fn list_messages(
    conn: &mut PgConnection,
    session_id: &str,
    after: i64,
    limit: i64,
) -> Result<(Vec<String>, Option<i64>), StoreError> {
    let rows: Vec<(i64, String)> = sqlx::query_as(
        "select seq, to_jsonb(m)::text from fix_outbound m where session_id = $1 and seq > $2 order by seq limit $3",
    )
    .bind(session_id)
    .bind(after)
    .bind(limit)
    .fetch_all(conn)
    .await?;
    let last = rows.last().map(|(seq, _)| *seq);
    Ok((rows.into_iter().map(|(_, row)| row).collect(), last))
}

/// Orders of a session and the last event of each, as JSON.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SessionOrders {
    pub orders: Vec<String>,
    pub events: Vec<String>,
}

/// Orders of a session after a ClOrdID, and the last one's ClOrdID. Their events are those that it has reported: later ones
/// are brought after it.
pub async fn list_orders(
    conn: &mut PgConnection,
    session_id: &str,
    after: &str,
    limit: i64,
) -> Result<(SessionOrders, Option<String>), StoreError> {
    let rows: Vec<(String, String, Option<String>)> = sqlx::query_as(
        "select o.cl_ord_id, to_jsonb(o)::text, case when v.reference is not null then to_jsonb(v)::text end \
         from (select * from fix_order where session_id = $1 and cl_ord_id > $2 order by cl_ord_id limit $3) o \
         left join lateral ( \
             select reference, type, sequence, object from event_record r \
             where r.reference = o.reference \
               and r.position <= (select s.feed_position from fix_session s where s.session_id = $1) \
             union all select reference, type, sequence, object from moved_event m where m.reference = o.reference \
             order by sequence desc limit 1) v on true \
         order by o.cl_ord_id",
    )
    .bind(session_id)
    .bind(after)
    .bind(limit)
    .fetch_all(conn)
    .await?;
    let last = rows.last().map(|(cl_ord_id, _, _)| cl_ord_id.clone());
    let mut page = SessionOrders::default();
    for (_, order, event) in rows {
        page.orders.push(order);
        page.events.extend(event);
    }
    Ok((page, last))
}

/// What a cell has under the id of a session that comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Known {
    Nothing,
    /// The session, as an earlier move took it from here.
    Left,
    /// The session, which this move has brought.
    Arrived,
    /// Another session.
    Another,
}

/// What this cell has under the id of a session. A row that it has is locked.
pub async fn find_known(conn: &mut PgConnection, session_id: &str, id: &str) -> Result<Known, StoreError> {
    let row: Option<(bool, bool)> = sqlx::query_as(
        "select moved_by is not null, came_by is not distinct from $2 from fix_session where session_id = $1 for update",
    )
    .bind(session_id)
    .bind(id)
    .fetch_optional(conn)
    .await?;
    Ok(match row {
        None => Known::Nothing,
        Some((_, true)) => Known::Arrived,
        Some((true, false)) => Known::Left,
        Some((false, false)) => Known::Another,
    })
}

/// Inserts a session, which reports this database's events from now on, or a drop copy those since the partner came; one that
/// an earlier move took from here is replaced, and reports those since it left: payments came back meanwhile. `false`: this cell has
/// another session under the id, or this move has brought it.
///
/// A new row is an entry of the audit log, so insert it after the messages and orders.
pub async fn insert_session(conn: &mut PgConnection, session: &str, id: &str) -> Result<bool, StoreError> {
    let columns: String = sqlx::query_scalar(
        "select string_agg(quote_ident(attname), ', ' order by attnum) from pg_attribute \
         where attrelid = 'fix_session'::regclass and attnum > 0 and not attisdropped",
    )
    .fetch_one(&mut *conn)
    .await?;
    let statement = format!(
        "insert into fix_session as t select * from jsonb_populate_record(null::fix_session, $1::jsonb || jsonb_build_object( \
             'enabled', true, 'came_by', $2::text, 'feed_position', \
             coalesce((select e.feed_position from fix_session e where e.session_id = $1::jsonb ->> 'session_id'), \
                      case when ($1::jsonb -> 'drop_copy')::boolean \
                           then (select m.feed_position from partner_move m where m.id = $2) \
                           else (select position from feed_counter) end))) \
         on conflict (session_id) do update set ({columns}) = (select excluded.*) \
             where t.moved_by is not null and t.came_by is distinct from $2"
    );
    let inserted = sqlx::query(sqlx::AssertSqlSafe(statement)).bind(session).bind(id);
    Ok(inserted.execute(conn).await?.rows_affected() == 1)
}

/// Deletes the messages of the time before.
pub async fn delete_messages(conn: &mut PgConnection, session_id: &str) -> Result<(), StoreError> {
    let deleted = sqlx::query("delete from fix_outbound where session_id = $1");
    deleted.bind(session_id).execute(conn).await?;
    Ok(())
}

/// Inserts messages that come with their session.
pub async fn insert_messages(conn: &mut PgConnection, rows: &[String]) -> Result<(), StoreError> {
    let statement =
        "insert into fix_outbound select * from jsonb_populate_recordset(null::fix_outbound, $1::jsonb)";
    insert_arrays(conn, statement, rows).await
}

/// Inserts orders that come with their session. One that this cell has from before has its session's new row already:
/// messages up to its number are read for accounts that were erased here.
pub async fn insert_orders(conn: &mut PgConnection, page: &SessionOrders) -> Result<(), StoreError> {
    insert_arrays(conn, INSERT_ORDERS, &page.orders).await?;
    insert_arrays(conn, ERASE_AGAIN, &page.orders).await?;
    // Of its own orders this database has the events.
    insert_arrays(conn, INSERT_EVENTS, &page.events).await
}

/// Inserts orders that come with their session, and enters those of another cell, whose copies are erased by their age.
const INSERT_ORDERS: &str = "with new as ( \
         insert into fix_order select * from jsonb_populate_recordset(null::fix_order, $1::jsonb) \
         on conflict (session_id, cl_ord_id) do nothing returning session_id, cl_ord_id, reference, created_at) \
     insert into fix_order_copy (session_id, cl_ord_id, reference, ordered_at) \
     select session_id, cl_ord_id, reference, created_at from new \
     where not exists (select from execution e where e.reference = new.reference)";

/// Enters, for erasure, the accounts that a session's orders bring and that were erased here before.
const ERASE_AGAIN: &str = "insert into fix_erasure (session_id, account, until_seq) \
     select distinct t.session_id, given.details ->> 'account', t.next_out \
     from jsonb_populate_recordset(null::fix_order, $1::jsonb) given \
     join fix_order o using (session_id, cl_ord_id) join fix_session s on s.session_id = o.session_id \
     join fix_session t on t.partner_id = s.partner_id and t.livemode = s.livemode \
     where o.details ->> 'account' is null and given.details ->> 'account' not like 'bene\\_%' \
       and not exists (select from fix_erasure e where e.session_id = t.session_id and e.after_seq = 0 \
                                                    and e.account = given.details ->> 'account' and e.until_seq >= t.next_out)";

/// Inserts the last events of other cells' orders, without the beneficiary where the order's copy was erased here before.
pub(super) const INSERT_EVENTS: &str = "insert into moved_event as t \
     select distinct on (v.reference) v.reference, v.type, v.sequence, \
            case when exists (select from fix_order_copy c where c.reference = v.reference) then v.object \
                 else jsonb_set(v.object::jsonb, '{beneficiary}', \
                      '{\"nameMasked\": null, \"accountLast4\": null, \"accountHash\": null}', false)::json end \
     from jsonb_populate_recordset(null::moved_event, $1::jsonb) v \
     where not exists (select from execution e where e.reference = v.reference) \
     order by v.reference, v.sequence desc \
     on conflict (reference) do update set type = excluded.type, sequence = excluded.sequence, object = excluded.object \
         where excluded.sequence > t.sequence";

//! Orders of another cell that came here with their FIX session: the account that reports repeat, and the last event.

use std::time::Duration;

use sqlx::PgConnection;

use crate::StoreError;

/// Erases the copies that a statement names by session and ClOrdID. Sent messages are searched for the accounts later.
macro_rules! erase {
    ($due:literal) => {
        concat!(
            "with due as ( \
                 delete from fix_order_copy where (session_id, cl_ord_id) in (",
            $due,
            ") returning session_id, cl_ord_id, reference), \
             repeated as ( \
                 select o.session_id, o.cl_ord_id, o.details ->> 'account' as account \
                 from due join fix_order o using (session_id, cl_ord_id) \
                 where o.details ->> 'account' is not null and o.details ->> 'account' not like 'bene\\_%'), \
             entered as ( \
                 insert into fix_erasure (session_id, account, until_seq) \
                 select distinct t.session_id, r.account, t.next_out \
                 from repeated r join fix_session s on s.session_id = r.session_id \
                 join fix_session t on t.partner_id = s.partner_id and t.livemode = s.livemode), \
             facts as ( \
                 update fix_order o set details = jsonb_set(o.details, '{account}', 'null', false) from repeated r \
                 where (o.session_id, o.cl_ord_id) = (r.session_id, r.cl_ord_id)), \
             events as ( \
                 update moved_event m set object = jsonb_set(m.object::jsonb, '{beneficiary}', \
                     '{\"nameMasked\": null, \"accountLast4\": null, \"accountHash\": null}', false)::json \
                 from due where m.reference = due.reference) \
             select count(*) from due"
        )
    };
}

/// Whether an order is here as a copy only, and whether its personal data was erased.
pub async fn find_erased(conn: &mut PgConnection, reference: &str) -> Result<Option<bool>, StoreError> {
    let row = sqlx::query_scalar(
        "select not exists (select from fix_order_copy c where c.reference = m.reference) from moved_event m \
         where m.reference = $1 and not exists (select from execution e where e.reference = m.reference)",
    );
    Ok(row.bind(reference).fetch_optional(conn).await?)
}

/// Erases the copies of an order.
pub async fn erase(conn: &mut PgConnection, reference: &str) -> Result<(), StoreError> {
    let statement =
        sqlx::query(erase!("select session_id, cl_ord_id from fix_order_copy where reference = $1"));
    statement.bind(reference).execute(conn).await?;
    Ok(())
}

/// Erases the copies of orders that are older than this, the oldest first. Returns their number.
pub async fn erase_aged(conn: &mut PgConnection, age: Duration, limit: i64) -> Result<u64, StoreError> {
    let erased: i64 = sqlx::query_scalar(erase!(
        "select session_id, cl_ord_id from fix_order_copy where ordered_at < now() - make_interval(secs => $1) \
         order by ordered_at limit $2"
    ))
    .bind(age.as_secs_f64())
    .bind(limit)
    .fetch_one(conn)
    .await?;
    Ok(u64::try_from(erased).unwrap_or(0))
}

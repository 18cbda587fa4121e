//! What came here of orders of another cell. With their partner: the client reference, and the account in the answer to
//! the order. With their FIX session: the account that reports repeat, and the last event.

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

/// An order of another cell, as far as it is known here.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct CopiedOrder {
    /// `None`: it came with its FIX session only.
    pub partner_id: Option<String>,
    pub is_erased: bool,
    pub has_client_reference: bool,
    /// Its FIX session is here.
    pub is_of_session: bool,
}

/// An order that is not of this cell.
pub async fn find(conn: &mut PgConnection, reference: &str) -> Result<Option<CopiedOrder>, StoreError> {
    let row = sqlx::query_as(
        "select i.partner_id, i.client_reference is not null as has_client_reference, \
                m.reference is not null as is_of_session, \
                case when m.reference is null then i.personal_erased_at is not null \
                     else not exists (select from fix_order_copy c where c.reference = $1) end as is_erased \
         from (select) o left join moved_event m on m.reference = $1 \
         left join intent i on i.reference = $1 and i.copied_at is not null \
         where (m.reference is not null or i.reference is not null) \
           and not exists (select from execution e where e.reference = $1)",
    );
    Ok(row.bind(reference).fetch_optional(conn).await?)
}

/// Erases the copies of an order; with `client_reference` also the caller's reference in them. Repeated requests get the
/// answer without the account.
pub async fn erase(
    conn: &mut PgConnection,
    reference: &str,
    client_reference: bool,
) -> Result<(), StoreError> {
    for statement in [
        erase!("select session_id, cl_ord_id from fix_order_copy where reference = $1"),
        r#"with copied as (
               update intent set personal_erased_at = coalesce(personal_erased_at, now())
               where reference = $1 and copied_at is not null returning partner_id, livemode, created_at)
           update idempotency i set body = regexp_replace(
               body, '"beneficiaryAccount":\s*"(?!bene_)([^"\\]|\\.)*"', '"beneficiaryAccount":"[erased]"', 'g')
           from copied c
           where i.accepted_at between c.created_at - interval '1 minute' and c.created_at + interval '1 minute'
             and i.partner_id = c.partner_id and i.livemode = c.livemode and position($1 in i.body) > 0"#,
    ] {
        sqlx::query(statement).bind(reference).execute(&mut *conn).await?;
    }
    if client_reference {
        // A statement of its own, because it makes all processes read their executions again.
        let intent =
            "update intent set client_reference = null where reference = $1 and copied_at is not null";
        sqlx::query(intent).bind(reference).execute(conn).await?;
    }
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

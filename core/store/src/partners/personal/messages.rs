//! Accounts of erased orders in what FIX sessions keep: the fields that reports repeat, and sent reports.

use dvp_domain::terms::Terms;
use sqlx::PgConnection;

use crate::{StoreError, statement};

/// Erases Account(1) from an order's repeated fields, and enters the sessions whose sent reports may have it.
pub async fn erase_facts(conn: &mut PgConnection, terms: &Terms) -> Result<(), StoreError> {
    let sql = "with repeated as ( \
             select o.session_id, o.cl_ord_id, o.details ->> 'account' as account \
             from fix_session s join fix_order o on o.session_id = s.session_id and o.intent_id = $3 \
             where s.partner_id = $1 and s.livemode = $2 and o.details ->> 'account' is not null \
               and o.details ->> 'account' not like 'bene\\_%'), \
         entered as ( \
             insert into fix_erasure (session_id, account, until_seq) \
             select s.session_id, r.account, s.next_out \
             from (select distinct account from repeated) r, fix_session s \
             where s.partner_id = $1 and s.livemode = $2) \
         update fix_order o set details = jsonb_set(o.details, '{account}', 'null', false) from repeated r \
         where (o.session_id, o.cl_ord_id) = (r.session_id, r.cl_ord_id)";
    statement::execute(conn, sql, (terms.partner_id.as_str(), terms.livemode, &terms.request.intent_id)).await
}

/// Whether an order came over FIX: its client's reference is then the ClOrdID, which its session uses once for ever.
pub async fn is_of_session(conn: &mut PgConnection, terms: &Terms) -> Result<bool, StoreError> {
    let found = sqlx::query_scalar(
        "select exists (select from fix_session s \
                        join fix_order o on o.session_id = s.session_id and o.intent_id = $3 \
                        where s.partner_id = $1 and s.livemode = $2)",
    );
    let found = found.bind(terms.partner_id.as_str()).bind(terms.livemode).bind(&terms.request.intent_id);
    Ok(found.fetch_one(conn).await?)
}

type Page = (i64, String, String, i64, i64);

/// Replaces an account by stars in a page of sent messages. Returns the number of messages read, 1 at least, or 0 when
/// none is left to read.
pub async fn erase_sent(conn: &mut PgConnection, limit: i64) -> Result<u64, StoreError> {
    let sql = "select id, session_id, account, after_seq, until_seq from fix_erasure order by id limit 1 \
         for update skip locked";
    let next: Option<Page> = statement::find(conn, sql, ()).await?;
    let Some((id, session, account, after, until)) = next else { return Ok(0) };
    let sql = "select seq, body from fix_outbound where session_id = $1 and seq > $2 and seq < $3 \
         order by seq limit $4";
    let rows: Vec<(i64, Vec<u8>)> = statement::list(conn, sql, (&session, after, until, limit)).await?;
    let Some((last, _)) = rows.last() else {
        statement::execute(conn, "delete from fix_erasure where id = $1", (id,)).await?;
        return Ok(1);
    };
    for (seq, body) in &rows {
        if let Some(starred) = star(body, account.as_bytes()) {
            let sql = "update fix_outbound set body = $3 where session_id = $1 and seq = $2";
            statement::execute(conn, sql, (&session, seq, starred)).await?;
        }
    }
    statement::execute(conn, "update fix_erasure set after_seq = $2 where id = $1", (id, last)).await?;
    Ok(u64::try_from(rows.len()).unwrap_or(1))
}

/// The body with Account(1) in as many stars as it had bytes, so that no length changes. `None`: it has another account.
fn star(body: &[u8], account: &[u8]) -> Option<Vec<u8>> {
    let field: Vec<u8> = [b"1=", account, b"\x01"].concat();
    let at = body.windows(field.len()).position(|window| window == field)?;
    let begins_field = at == 0 || body.get(at.checked_sub(1)?) == Some(&1);
    let mut starred = body.to_vec();
    let value = starred.get_mut(at.checked_add(2)?..)?.get_mut(..account.len())?;
    begins_field.then(|| value.fill(b'*'))?;
    Some(starred)
}

#[cfg(test)]
mod tests {
    use super::star;

    #[test]
    fn only_the_account_of_the_order_is_starred() {
        let starred =
            |body: &str| star(body.as_bytes(), b"000123").map(|one| String::from_utf8(one).unwrap());
        assert_eq!(starred("37=x\u{1}1=000123\u{1}55=y\u{1}").unwrap(), "37=x\u{1}1=******\u{1}55=y\u{1}");
        assert_eq!(starred("1=000123\u{1}").unwrap(), "1=******\u{1}");
        for other in ["1=0001234\u{1}", "11=000123\u{1}", "58=000123\u{1}", ""] {
            assert_eq!(starred(other), None, "{other}");
        }
    }
}

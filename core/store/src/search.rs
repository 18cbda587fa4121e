//! Finds what an identifier names, in any table that has identifiers, by their indexes.

use sqlx::PgConnection;

use crate::StoreError;

/// The most results of one kind.
const EACH: i64 = 20;

/// Something that an identifier names.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct Found {
    /// What it is: an order by one of its identifiers, a session, an approval, a partner.
    pub kind: String,
    /// Its id: of an order the reference.
    pub id: String,
    /// The identifier that matched, and what is known of it.
    pub detail: String,
}

/// Finds a text: an id, a reference, a name.
pub async fn find_text(conn: &mut PgConnection, text: &str) -> Result<Vec<Found>, StoreError> {
    let rows = sqlx::query_as(
        "select 'order' as kind, reference as id, 'reference, ' || state_name as detail \
         from execution where reference = $1 \
         union all \
         (select 'order', i.reference, 'intent id of ' || p.name from partner p cross join (values (true), (false)) m (live) \
          join intent i on i.partner_id = p.id and i.livemode = m.live and i.intent_id = $1 \
          where i.reference is not null limit $2) \
         union all \
         (select 'rejected', i.intent_id, 'intent of ' || p.name || ', rejected: ' || i.reason \
          from partner p cross join (values (true), (false)) m (live) \
          join intent i on i.partner_id = p.id and i.livemode = m.live and i.intent_id = $1 \
          where i.reference is null limit $2) \
         union all \
         (select 'order', i.reference, 'client reference of ' || p.name \
          from partner p cross join (values (true), (false)) m (live) \
          join intent i on i.partner_id = p.id and i.livemode = m.live and i.client_reference = $1 \
                           and i.reference is not null limit $2) \
         union all \
         (select 'order', o.reference, 'ClOrdID of ' || s.session_id from fix_session s \
          join fix_order o on o.session_id = s.session_id and o.cl_ord_id = $1 \
          where o.reference is not null limit $2) \
         union all \
         (select 'order', execution, 'end-to-end id, ' || status from bank_payment where end_to_end_id = $1) \
         union all \
         (select 'order', execution, 'rail reference, ' || status from bank_payment where reference = $1) \
         union all \
         (select 'order', execution, 'bank reference, ' || status from bank_payment where bank_reference = $1 limit $2) \
         union all \
         (select 'order', execution, 'file ' || message_id from bank_payment where message_id = $1) \
         union all \
         (select 'order', reference, 'event ' || type from event where event_id = $1) \
         union all \
         (select 'approval', id, state || ': ' || action || ' ' || subject from approval where id = $1) \
         union all \
         (select 'session', session_id, case when enabled then 'enabled' else 'disabled' end from fix_session \
          where session_id = $1 or client_comp_id = $1 limit $2) \
         union all \
         (select 'partner', name, id from partner where id = $1 or name = $1) \
         union all \
         (select 'key', a.id, 'API key of ' || p.name || ', ' || a.key_prefix from api_key a join partner p on p.id = a.partner_id \
          where a.id = $1) \
         union all \
         (select 'endpoint', id, url from webhook_endpoint where id = $1)",
    )
    .bind(text)
    .bind(EACH)
    .fetch_all(conn)
    .await?;
    Ok(rows)
}

/// The most orders whose failures are compared with the words.
const FAILURES: i64 = 500;

/// Finds orders by words of a failure, of a chain command's trouble or of an alarm: the newest of those found.
pub async fn find_words(conn: &mut PgConnection, words: &str) -> Result<Vec<Found>, StoreError> {
    let rows = sqlx::query_as(
        "(select 'order' as kind, reference as id, detail \
          from (select reference, accepted_at, 'failure: ' || execution_failure(state) as detail from execution \
                where failure_words is not null and failure_words @@ plainto_tsquery('simple', $1) \
                limit $3) found \
          order by accepted_at desc limit $2) \
         union all \
         (select 'order', reference, 'chain command ' || id || ': ' || trouble from chain_command \
          where state = 'pending' and trouble is not null \
            and to_tsvector('simple', trouble) @@ plainto_tsquery('simple', $1) limit $2) \
         union all \
         (select 'order', execution, 'alarm: ' || alarm from bank_payment \
          where alarm is not null and alarm_cleared_at is null \
            and to_tsvector('simple', alarm) @@ plainto_tsquery('simple', $1) limit $2)",
    )
    .bind(words)
    .bind(EACH)
    .bind(FAILURES)
    .fetch_all(conn)
    .await?;
    Ok(rows)
}

/// Finds 32 bytes: an order's id on the chain, a transaction's hash, a receipt's content hash.
pub async fn find_hash(conn: &mut PgConnection, hash: &[u8]) -> Result<Vec<Found>, StoreError> {
    let rows = sqlx::query_as(
        "select 'order' as kind, reference as id, 'id on the chain' as detail from chain_command \
         where entity = $1 and reference in (select reference from execution where reference = chain_command.reference) \
         group by reference \
         union all \
         (select 'order', c.reference, 'transaction, ' || c.kind || ' ' || c.state from tx_attempt a \
          join slot_command s on (s.chain_id, s.signer, s.nonce) = (a.chain_id, a.signer, a.nonce) \
          join chain_command c on c.id = s.command_id \
          where a.chain_id in (select chain_id from chain_cursor) and a.hash = $1 limit $2) \
         union all \
         (select 'order', reference, 'content hash of the receipt' from receipt where content_hash = $1)",
    )
    .bind(hash)
    .bind(EACH)
    .fetch_all(conn)
    .await?;
    Ok(rows)
}

/// Finds the latest orders of a wallet.
pub async fn find_wallet(conn: &mut PgConnection, address: &str) -> Result<Vec<Found>, StoreError> {
    let rows = sqlx::query_as(
        "select 'order' as kind, u.reference as id, 'paid by the wallet, permit nonce ' || u.nonce as detail \
         from permit_use u where u.chain_id in (select chain_id from chain_cursor) and u.owner = $1 \
         order by u.nonce desc limit $2",
    )
    .bind(address)
    .bind(EACH)
    .fetch_all(conn)
    .await?;
    Ok(rows)
}

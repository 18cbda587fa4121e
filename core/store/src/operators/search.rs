//! Finds what an identifier names, in any table that has identifiers, by their indexes.

use sqlx::PgConnection;

use crate::{StoreError, statement};

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
    /// The name of the partner that a key or a rejected intent belongs to.
    pub partner: Option<String>,
}

/// Finds a text: an id, a reference, a name.
pub async fn find_text(conn: &mut PgConnection, text: &str) -> Result<Vec<Found>, StoreError> {
    let sql = "select 'order' as kind, reference as id, 'reference, ' || state_name as detail, null as partner \
         from execution where reference = $1 \
         union all \
         (select 'order', i.reference, 'intent id of ' || p.name, p.name \
          from partner p cross join (values (true), (false)) m (live) \
          join intent i on i.partner_id = p.id and i.livemode = m.live and i.intent_id = $1 \
          where i.reference is not null limit $2) \
         union all \
         (select 'rejected', i.intent_id, 'intent of ' || p.name || ', rejected: ' || i.reason, p.name \
          from partner p cross join (values (true), (false)) m (live) \
          join intent i on i.partner_id = p.id and i.livemode = m.live and i.intent_id = $1 \
          where i.reference is null limit $2) \
         union all \
         (select 'order', i.reference, 'client reference of ' || p.name, p.name \
          from partner p cross join (values (true), (false)) m (live) \
          join intent i on i.partner_id = p.id and i.livemode = m.live and i.client_reference = $1 \
                           and i.reference is not null limit $2) \
         union all \
         (select 'order', o.reference, 'ClOrdID of ' || s.session_id, null from fix_session s \
          join fix_order o on o.session_id = s.session_id and o.cl_ord_id = $1 \
          where o.reference is not null limit $2) \
         union all \
         (select 'order', execution, 'end-to-end id, ' || status, null from bank_payment where end_to_end_id = $1) \
         union all \
         (select 'order', execution, 'rail reference, ' || status, null from bank_payment where reference = $1) \
         union all \
         (select 'order', execution, 'bank reference, ' || status, null from bank_payment where bank_reference = $1 limit $2) \
         union all \
         (select 'order', execution, 'message ' || message_id, null from bank_payment where message_id = $1) \
         union all \
         (select 'order', reference, 'event ' || type, null from event where event_id = $1) \
         union all \
         (select 'approval', id, state || ': ' || action || ' ' || subject, null from approval where id = $1) \
         union all \
         (select 'session', session_id, case when enabled then 'enabled' else 'disabled' end, null from fix_session \
          where session_id = $1 or client_comp_id = $1 limit $2) \
         union all \
         (select 'partner', name, id, name from partner where id = $1 or name = $1) \
         union all \
         (select 'operator', name, case when disabled_at is null then 'enabled' else 'disabled' end, null from operator \
          where lower(name) = lower($1)) \
         union all \
         (select 'key', a.id, 'API key of ' || p.name || ', ' || a.key_prefix, p.name \
          from api_key a join partner p on p.id = a.partner_id where a.id = $1) \
         union all \
         (select 'key', a.id, 'prefix of an API key of ' || p.name, p.name \
          from api_key a join partner p on p.id = a.partner_id where a.key_prefix = $1 limit $2) \
         union all \
         (select 'endpoint', id, url, null from webhook_endpoint where id = $1)";
    statement::list(conn, sql, (text, EACH)).await
}

/// Finds what is named at the bank beside payments: files, and recalls.
pub async fn find_at_bank(conn: &mut PgConnection, text: &str) -> Result<Vec<Found>, StoreError> {
    // A file that is sent is named by the payment or recall in it.
    let subject = text.split('.').next().unwrap_or_default();
    let sql = "select 'order' as kind, execution as id, 'recall of ' || end_to_end_id || ', ' || status as detail, \
                null as partner \
         from bank_recall where id = $1 \
         union all \
         (select 'order', execution, 'file of the payment ' || end_to_end_id, null from bank_payment \
          where end_to_end_id = $3 and staged_file = $1) \
         union all \
         (select 'order', execution, 'file of the recall ' || id, null from bank_recall \
          where id = $3 and staged_file = $1) \
         union all \
         (select 'file', encode(digest, 'hex'), name || ', ' || coalesce(message, 'file') || ' of the bank, ' \
                 || case when refusal is null then 'accepted' else 'refused: ' || refusal end, null \
          from bank_file where name = $1 order by taken_at desc limit $2)";
    statement::list(conn, sql, (text, EACH, subject)).await
}

/// The most failures, closed alarms or pieces of due work that are compared with the words.
const COMPARED: i64 = 200;

/// Finds orders by words of a failure. Words that many failures have are found among the latest failures; where these
/// are too few, an index of words finds others, whatever their age.
async fn find_failures(conn: &mut PgConnection, words: &str) -> Result<Vec<Found>, StoreError> {
    let sql = "select 'order' as kind, reference as id, 'failure: ' || execution_failure(state) as detail, null as \
         partner from (select reference, state, failure_words from execution where exception is not null \
               order by accepted_at desc, reference desc limit $3) latest \
         where failure_words @@ plainto_tsquery('simple', $1) limit $2";
    let mut found: Vec<Found> = statement::list(conn, sql, (words, EACH, COMPARED)).await?;
    let missing = EACH.saturating_sub(i64::try_from(found.len()).unwrap_or(EACH));
    if missing > 0 {
        let known: Vec<&str> = found.iter().map(|one| one.id.as_str()).collect();
        let others = sqlx::query_as(
            "select 'order' as kind, reference as id, detail, null as partner \
             from (select reference, accepted_at, 'failure: ' || execution_failure(state) as detail from execution \
                   where failure_words is not null and failure_words @@ plainto_tsquery('simple', $1) \
                     and reference <> all ($4) limit $3) found \
             order by accepted_at desc limit $2",
        );
        let others: Vec<Found> =
            others.bind(words).bind(missing).bind(COMPARED).bind(known).fetch_all(conn).await?;
        found.extend(others);
    }
    Ok(found)
}

/// Finds orders by words of a failure, of a chain command's trouble, of an alarm or of the last result of due work; due
/// work and closed alarms among the next and the latest.
pub async fn find_words(conn: &mut PgConnection, words: &str) -> Result<Vec<Found>, StoreError> {
    let mut found = find_failures(conn, words).await?;
    let sql = "(select 'order' as kind, reference as id, 'chain command ' || id || ': ' || trouble as detail, null \
          as partner from chain_command \
          where state = 'pending' and trouble is not null \
            and to_tsvector('simple', trouble) @@ plainto_tsquery('simple', $1) limit $2) \
         union all \
         (select 'order', execution, 'alarm: ' || alarm, null from bank_payment \
          where alarm is not null and alarm_cleared_at is null \
            and to_tsvector('simple', alarm) @@ plainto_tsquery('simple', $1) limit $2) \
         union all \
         (select 'order', execution, 'closed alarm: ' || alarm, null \
          from (select execution, alarm, alarm_cleared_at from bank_payment where alarm is not null \
                order by updated_at desc limit $3) latest \
          where alarm_cleared_at is not null \
            and to_tsvector('simple', alarm) @@ plainto_tsquery('simple', $1) limit $2) \
         union all \
         (select 'order', reference, 'last result of ' || k.kind || ': ' || last_result, null \
          from (values ('lock'), ('expire'), ('offramp'), ('payout'), ('reversal')) k (kind) cross join lateral ( \
                select reference, last_result from effect where kind = k.kind order by run_at limit $3) due \
          where last_result is not null \
            and to_tsvector('simple', last_result) @@ plainto_tsquery('simple', $1) limit $2)";
    let rows: Vec<Found> = statement::list(conn, sql, (words, EACH, COMPARED)).await?;
    found.extend(rows);
    Ok(found)
}

/// Finds 32 bytes: an order's id on the chain, a transaction's hash, a receipt's content hash, a block's hash.
pub async fn find_hash(conn: &mut PgConnection, hash: &[u8]) -> Result<Vec<Found>, StoreError> {
    let sql = "select 'order' as kind, reference as id, 'id on the chain' as detail, null as partner from \
         chain_command \
         where entity = $1 and reference in (select reference from execution where reference = chain_command.reference) \
         group by reference \
         union all \
         (select 'order', c.reference, 'transaction, ' || c.kind || ' ' || c.state, null from tx_attempt a \
          join slot_command s on (s.chain_id, s.signer, s.nonce) = (a.chain_id, a.signer, a.nonce) \
           and a.attempt < coalesce(s.dropped_at, a.attempt + 1) \
          join chain_command c on c.id = s.command_id \
          where a.chain_id in (select chain_id from chain_cursor) and a.hash = $1 limit $2) \
         union all \
         (select 'order', reference, 'content hash of the receipt', null from receipt where content_hash = $1) \
         union all \
         (select 'block', number::text, 'block of chain ' || chain_id \
                 || case when canonical then '' else ', reverted' end, null \
          from chain_block where chain_id in (select chain_id from chain_cursor) and hash = $1)";
    statement::list(conn, sql, (hash, EACH)).await
}

/// Finds 20 bytes: the latest orders of a wallet, an account of the relayer, a contract of the service.
pub async fn find_address(conn: &mut PgConnection, address: &[u8]) -> Result<Vec<Found>, StoreError> {
    let text = format!("0x{}", hex::encode(address));
    let sql = "(select 'order' as kind, u.reference as id, 'paid by the wallet, permit nonce ' || u.nonce as detail, \
                 null as partner \
          from permit_use u where u.chain_id in (select chain_id from chain_cursor) and u.owner = $1 \
          order by u.nonce desc limit $2) \
         union all \
         (select 'account', $1, 'relayer account of chain ' || chain_id, null from relayer_account where signer = $3) \
         union all \
         (select 'contract', $1, 'contract on chain ' || chain_id, null from reconciliation_count where contract = $3) \
         union all \
         (select 'contract', $1, 'token ' || asset || ' on chain ' || chain_id, null from chain_token where address = $1)";
    statement::list(conn, sql, (text, EACH, address)).await
}

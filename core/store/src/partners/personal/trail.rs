//! What was written about a subject: free text of the bank, of operators and of receivers of webhooks, and its copies in
//! the audit log.

use dvp_domain::settlement::leg::LegKind;
use dvp_domain::terms::Terms;
use sqlx::PgConnection;

use super::Words;
use crate::orders::bank_messages;
use crate::{StoreError, statement};

/// Erases words from everything that was written about an order. The order itself is erased before.
pub async fn erase_order(conn: &mut PgConnection, terms: &Terms, words: &Words) -> Result<(), StoreError> {
    let reference = terms.reference.as_str();
    for sql in [
        // An entry of a list of names is a name, however it is spelled.
        "update screening set detail = case source when 'list' then '[erased]' else erase_words(detail, $2) end \
         where reference = $1 and detail <> ''",
        "update bank_payment set reason_text = erase_words(reason_text, $2), alarm = erase_words(alarm, $2), \
                payee_name = case when payee_name is not null then '[erased]' end where execution = $1",
        "update bank_recall set information = erase_words(information, $2), \
                answer_text = erase_words(answer_text, $2) where execution = $1",
        "update bank_entry set refs = array(select erase_words(r, $2) from unnest(refs) r) where subject = $1",
        // The answer to its request, which a repeated request gets.
        "update idempotency i set body = erase_words(body, $2) from execution e \
         where e.reference = $1 and i.accepted_at between e.accepted_at - interval '1 minute' \
                                                      and e.accepted_at + interval '1 minute' \
           and i.partner_id = e.partner_id and i.livemode = e.livemode and position($1 in i.body) > 0",
        "update operator_action set reason = erase_words(reason, $2), \
                evidence = erase_strings(evidence, $2) where reference = $1",
        "update approval set reason = erase_words(reason, $2), evidence = erase_words(evidence, $2), \
                note = erase_words(note, $2), details = erase_strings(details, $2) \
         where kind = 'execution' and subject = $1 and state <> 'pending'",
    ] {
        statement::execute(conn, sql, (reference, words.json())).await?;
    }
    bank_messages::erase_documents(conn, reference).await?;
    // A simulated rail keeps its books here.
    for leg in LegKind::ALL {
        let sql =
            "update simulated_rail set account = erase_words(account, $3) where leg = $1 and reference = $2";
        let parameters = (leg.as_str(), hex::encode(leg.reference(&terms.reference)), words.json());
        statement::execute(conn, sql, parameters).await?;
    }
    for sql in [
        "update webhook_attempt_log a set body_prefix = null from event_record v join webhook_delivery_log d using (event_id) \
         where v.reference = $1 and a.delivery_id = d.id",
        "update webhook_delivery_log d set body_prefix = null from event_record v \
         where v.reference = $1 and d.event_id = v.event_id",
    ] {
        statement::execute(conn, sql, (reference,)).await?;
    }
    erase_audited(conn, reference, words).await
}

#[derive(sqlx::FromRow)]
struct Audited {
    seq: i64,
    entry: String,
    erased: String,
}

/// Erases words from the audit log's entries about a subject. Each erased entry is named by a new one.
pub async fn erase_audited(conn: &mut PgConnection, subject: &str, words: &Words) -> Result<(), StoreError> {
    let sql = "select seq, entry, erase_strings(entry::jsonb, $2)::text as erased from audit_entry \
         where source in ('operator_action', 'approval', 'beneficiary', 'destination') \
           and audit_subject(source, entry) = $1 order by seq";
    let rows: Vec<Audited> = statement::list(conn, sql, (subject, words.json())).await?;
    for row in rows.into_iter().filter(|row| row.entry != row.erased) {
        let sql = "insert into audit_erasure (seq, entry_hash, subject) \
                     values ($1, sha256(convert_to($2, 'UTF8')), $3)";
        statement::execute(conn, sql, (row.seq, &row.erased, subject)).await?;
        let sql = "update audit_entry set entry = $2, erased_at = now() where seq = $1";
        statement::execute(conn, sql, (row.seq, row.erased)).await?;
    }
    Ok(())
}

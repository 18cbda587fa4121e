//! Personal data of orders that have ended, and of rejected intents.

use std::time::Duration;

use chrono::{DateTime, Utc};
use dvp_domain::beneficiary::Beneficiary;
use dvp_domain::receipt;
use dvp_domain::terms::Terms;
use serde_json::Value;
use sqlx::PgConnection;

use crate::orders::receipts;
use crate::{StoreError, statement};

/// What keeps the order `e` from having ended, in words; null: nothing does.
pub(crate) const UNENDED: &str = "case \
     when e.terminal_at is null then 'the order has not ended' \
     when e.held_until is not null then 'its funds are still locked' \
     when e.unresolved then 'its returned payment or unused conversion is not resolved' \
     when exists (select from effect f where f.reference = e.reference) then 'work for it is due' \
     when (select bool_or(c.state in ('pending', 'sent')) from chain_command c where c.reference = e.reference) \
         then 'a chain command of it is not done' \
     when exists (select from chain_fact f where f.entity = e.entity and f.consumed_at is null \
                  and f.retracted_at is null) then 'an event of the chain is not applied' \
     when exists (select from bank_payment b where b.execution = e.reference \
                  and (b.status in ('staged', 'sent', 'pending') \
                       or b.contradicting is not null and b.closed_at is null)) \
         then 'the bank has not decided on its payment' \
     when exists (select from bank_recall r where r.execution = e.reference and r.closed_at is null \
                  and (r.contradicting is not null \
                       or r.status in ('approved', 'sent', 'pending', 'accepted', 'unrequested'))) \
         then 'its payment is being recalled' \
     when exists (select from approval a where a.kind = 'execution' and a.subject = e.reference \
                  and a.state = 'pending') then 'a decision about it waits for approval' \
     when exists (select from event_record v join webhook_queue q on q.event_id = v.event_id \
                  where v.reference = e.reference) then 'events of it are being delivered' \
     end";

/// An order whose personal data can be erased, locked by the caller's transaction.
#[derive(Debug, Clone)]
pub struct EndedOrder {
    pub terms: Terms,
    pub is_erased: bool,
    /// Why it cannot be erased.
    pub unended: Option<String>,
    /// Of the registered beneficiary that it names.
    pub registered: Registered,
}

#[derive(Debug, Clone, Default)]
pub struct Registered {
    pub names: Vec<String>,
    pub accounts: Vec<String>,
}

/// An order whose personal data is due to be erased.
#[derive(Debug, Clone, sqlx::FromRow)]
pub struct ErasableOrder {
    pub reference: String,
    ended_at: DateTime<Utc>,
}

/// Orders that ended so long ago that their personal data is erased, the oldest first, after `after`.
pub async fn list_due(
    conn: &mut PgConnection,
    age: Duration,
    after: Option<&ErasableOrder>,
    limit: i64,
) -> Result<Vec<ErasableOrder>, StoreError> {
    let sql = sqlx::AssertSqlSafe(format!(
        "select e.reference, e.terminal_at as ended_at from execution e \
         where e.terminal_at is not null and e.personal_erased_at is null \
           and e.terminal_at < now() - make_interval(secs => $1) and ({UNENDED}) is null \
           and (e.terminal_at, e.reference) > (coalesce($2, '-infinity'), $3) \
         order by e.terminal_at, e.reference limit $4"
    ));
    let parameters = (
        age.as_secs_f64(),
        after.map(|order| order.ended_at),
        after.map_or("", |order| order.reference.as_str()),
        limit,
    );
    statement::list(conn, sql, parameters).await
}

pub async fn lock(conn: &mut PgConnection, reference: &str) -> Result<Option<EndedOrder>, StoreError> {
    // Locked first: what is read of other tables is read after the last step.
    let sql = "select from execution where reference = $1 for update";
    if statement::find_row(conn, sql, (reference,)).await?.is_none() {
        return Ok(None);
    }
    let sql = sqlx::AssertSqlSafe(format!(
        "select e.terms, e.personal_erased_at is not null, {UNENDED}, \
                array(select b.name from beneficiary b \
                      where b.id = split_part(e.terms #>> '{{request,beneficiary,account}}', ':', 1) \
                        and b.erased_at is null), \
                array(select d.account from beneficiary b join destination d on d.beneficiary_id = b.id \
                      where b.id = split_part(e.terms #>> '{{request,beneficiary,account}}', ':', 1) \
                        and b.erased_at is null) \
         from execution e where e.reference = $1"
    ));
    let row: (Value, bool, Option<String>, Vec<String>, Vec<String>) =
        statement::load(conn, sql, (reference,)).await?;
    let (terms, is_erased, unended, names, accounts) = row;
    let registered = Registered { names, accounts };
    let terms = serde_json::from_value(terms).map_err(|error| StoreError::corrupt("execution", error))?;
    Ok(Some(EndedOrder { terms, is_erased, unended, registered }))
}

/// What is left of a beneficiary: where and how it was paid, and the id of a registered one.
pub fn remainder(beneficiary: &Beneficiary) -> Beneficiary {
    Beneficiary {
        account: beneficiary.account.clone().filter(|_| beneficiary.is_reference()),
        country: beneficiary.country.clone(),
        payout_method: beneficiary.payout_method,
        ..Beneficiary::default()
    }
}

/// The terms without personal data.
pub fn without_personal_data(terms: &Terms) -> Terms {
    let mut left = terms.clone();
    left.request.beneficiary = terms.request.beneficiary.as_ref().map(remainder);
    left.request.metadata = None;
    left.registered = None;
    if !terms.request.beneficiary.as_ref().is_some_and(Beneficiary::is_reference) {
        left.plan.forget_account();
    }
    left
}

/// Erases an order's own documents: its terms, its events and its receipt; with `client_reference` also the caller's
/// reference in them.
///
/// The version grows, so that a step that was decided on the earlier terms is decided again.
pub async fn erase(conn: &mut PgConnection, terms: &Terms, client_reference: bool) -> Result<(), StoreError> {
    let reference = terms.reference.as_str();
    let mut left = without_personal_data(terms);
    if client_reference {
        left.request.client_reference = None;
    }
    let text = serde_json::to_string(&left).map_err(|error| StoreError::corrupt("execution", error))?;
    let sql = "update execution set terms = $2::json, client_reference = case when $3 then null else \
                client_reference end, \
                personal_erased_at = coalesce(personal_erased_at, now()), version = version + 1 \
         where reference = $1";
    statement::execute(conn, sql, (reference, text, client_reference)).await?;
    let nobody = r#"{"nameMasked": null, "accountLast4": null, "accountHash": null}"#;
    for sql in [
        "update event set object = jsonb_set(object::jsonb, '{beneficiary}', $2::jsonb, false)::json, \
                client_reference = case when $3 then null else client_reference end where reference = $1",
        "update event_history set object = jsonb_set(object::jsonb, '{beneficiary}', $2::jsonb, false)::json, \
                client_reference = case when $3 then null else client_reference end where reference = $1",
    ] {
        statement::execute(conn, sql, (reference, nobody, client_reference)).await?;
    }
    if client_reference {
        let sql = "update intent set client_reference = null where partner_id = $1 and livemode = $2 \
             and intent_id = $3";
        statement::execute(conn, sql, (terms.partner_id.as_str(), terms.livemode, &terms.request.intent_id))
            .await?;
        erase_in_receipt(conn, reference).await?;
    }
    Ok(())
}

async fn erase_in_receipt(conn: &mut PgConnection, reference: &str) -> Result<(), StoreError> {
    let Some(text) = receipts::find_body(conn, reference).await? else { return Ok(()) };
    let body = serde_json::from_str(&text).map_err(|error| StoreError::corrupt("receipt", error))?;
    if receipt::erased(&body).is_some() {
        return Ok(());
    }
    let erased = receipt::without(&body, "clientReference");
    let sql = "update receipt set body = null, remainder = $2 where reference = $1";
    statement::execute(conn, sql, (reference, erased.to_string())).await
}

/// Erases personal data of intents that were rejected long ago, the oldest first. Returns their number.
pub async fn erase_rejected(conn: &mut PgConnection, age: Duration, limit: i64) -> Result<u64, StoreError> {
    let sql = "with due as ( \
             select partner_id, livemode, intent_id from intent \
             where reference is null and personal_erased_at is null \
               and created_at < now() - make_interval(secs => $1) \
             order by created_at limit $2), \
         facts as ( \
             update fix_order o set details = jsonb_set(o.details, '{account}', 'null', false) \
             from due join fix_session s on s.partner_id = due.partner_id and s.livemode = due.livemode \
             where o.session_id = s.session_id and o.intent_id = due.intent_id) \
         update intent i set personal_erased_at = now(), \
                request = i.request || '{\"beneficiary\": null, \"metadata\": null}' \
         from due where (i.partner_id, i.livemode, i.intent_id) = (due.partner_id, due.livemode, due.intent_id)";
    statement::affected(conn, sql, (age.as_secs_f64(), limit)).await
}

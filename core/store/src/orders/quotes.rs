//! Indicative quote contexts and firm quotes.

use std::collections::HashMap;

use dvp_domain::quote::FirmTerms;
use serde_json::Value;
use sqlx::PgConnection;

use crate::orders::intents::Tenant;
use crate::{StoreError, statement};

/// The context of an indicative quote; a later one with the same requestId replaces it.
#[derive(Debug, Clone)]
pub struct QuoteContext {
    pub tenant: Tenant,
    pub request_id: String,
    pub request: Value,
    pub response: Value,
}

#[derive(Debug, Clone)]
pub struct NewFirmQuote {
    pub tenant: Tenant,
    pub request_id: String,
    pub terms: FirmTerms,
}

#[derive(Debug, Clone)]
pub struct FirmQuote {
    pub tenant: Tenant,
    pub terms: FirmTerms,
    pub used_by: Option<String>,
}

pub async fn upsert_context(conn: &mut PgConnection, context: &QuoteContext) -> Result<(), StoreError> {
    let sql = "insert into quote_request (partner_id, livemode, request_id, request, response) \
         values ($1, $2, $3, $4, $5) \
         on conflict on constraint quote_request_pkey do update \
         set request = excluded.request, response = excluded.response, created_at = now()";
    let parameters = (
        &context.tenant.partner_id,
        context.tenant.livemode,
        &context.request_id,
        &context.request,
        &context.response,
    );
    statement::execute(conn, sql, parameters).await
}

pub async fn insert_firm(conn: &mut PgConnection, quote: &NewFirmQuote) -> Result<(), StoreError> {
    let terms =
        serde_json::to_value(&quote.terms).map_err(|error| StoreError::corrupt("firm_quote", error))?;
    let sql = "insert into firm_quote (quote_id, partner_id, livemode, request_id, terms, valid_until) \
         values ($1, $2, $3, $4, $5, $6)";
    let parameters = (
        quote.terms.quote_id.as_str(),
        &quote.tenant.partner_id,
        quote.tenant.livemode,
        &quote.request_id,
        terms,
        quote.terms.valid_until.to_utc(),
    );
    statement::execute(conn, sql, parameters).await
}

/// The terms of a tenant's firm quote.
pub async fn find_firm(
    conn: &mut PgConnection,
    tenant: &Tenant,
    quote_id: &str,
) -> Result<Option<FirmTerms>, StoreError> {
    let sql = "select terms from firm_quote where quote_id = $1 and partner_id = $2 and livemode = $3";
    let terms: Option<Value> =
        statement::find_value(conn, sql, (quote_id, &tenant.partner_id, tenant.livemode)).await?;
    terms.map(parse).transpose()
}

/// The terms of a firm quote of any tenant, for operators.
pub async fn find_firm_by_id(
    conn: &mut PgConnection,
    quote_id: &str,
) -> Result<Option<FirmTerms>, StoreError> {
    let sql = "select terms from firm_quote where quote_id = $1";
    let terms: Option<Value> = statement::find_value(conn, sql, (quote_id,)).await?;
    terms.map(parse).transpose()
}

fn parse(terms: Value) -> Result<FirmTerms, StoreError> {
    serde_json::from_value(terms).map_err(|error| StoreError::corrupt("firm_quote", error))
}

/// Locks firm quotes in id order.
pub async fn lock_firm(
    conn: &mut PgConnection,
    ids: &[&str],
) -> Result<HashMap<String, FirmQuote>, StoreError> {
    let sql = "select quote_id, partner_id, livemode, terms, used_by from firm_quote \
         where quote_id = any($1::text[]) order by quote_id for update";
    let rows: Vec<(String, String, bool, Value, Option<String>)> = statement::list(conn, sql, (ids,)).await?;
    let mut quotes = HashMap::with_capacity(rows.len());
    for (id, partner_id, livemode, terms, used_by) in rows {
        let tenant = Tenant { partner_id, livemode };
        quotes.insert(id, FirmQuote { tenant, terms: parse(terms)?, used_by });
    }
    Ok(quotes)
}

/// Marks quotes as used by executions: `(quote, reference)`.
pub async fn update_used(conn: &mut PgConnection, used: &[(&str, &str)]) -> Result<(), StoreError> {
    let (quotes, references): (Vec<&str>, Vec<&str>) = used.iter().copied().unzip();
    let sql = "update firm_quote q set used_by = u.reference \
         from unnest($1::text[], $2::text[]) as u (quote_id, reference) \
         where q.quote_id = u.quote_id and q.used_by is null";
    statement::execute(conn, sql, (quotes, references)).await
}

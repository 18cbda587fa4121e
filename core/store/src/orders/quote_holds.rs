//! The amounts of providers' balances that open firm quotes hold.

use chrono::{DateTime, Utc};
use dvp_domain::hold::{QuoteHolds, providers, share};
use dvp_domain::money::Minor;
use dvp_domain::time::Timestamp;
use sqlx::PgConnection;

use crate::orders::abandonments::seconds;
use crate::orders::quotes::NewFirmQuote;
use crate::{StoreError, statement};

/// Stores the holds of a quote, and counts them as unused until it is used.
pub async fn insert(conn: &mut PgConnection, quote: &NewFirmQuote, now: Timestamp) -> Result<(), StoreError> {
    let terms = &quote.terms;
    let ids: Vec<&str> = providers(&terms.slices).collect();
    let amounts: Vec<String> = ids.iter().map(|id| share(&terms.slices, id).to_string()).collect();
    let sql = "with held as ( \
             insert into quote_hold (quote_id, partner_id, livemode, provider_id, asset, amount, valid_until, held) \
             select $1, $2, $3, provider_id, $4, amount::numeric, $5, amount::numeric * $6::numeric \
             from unnest($7::text[], $8::text[]) as held (provider_id, amount) returning *) \
         insert into unused_hold as u (partner_id, provider_id, asset, lapsed_in, held) \
         select partner_id, provider_id, asset, date_trunc('minute', valid_until), held from held \
         on conflict on constraint unused_hold_pkey do update set held = u.held + excluded.held";
    let parameters = (
        terms.quote_id.as_str(),
        &quote.tenant.partner_id,
        quote.tenant.livemode,
        &terms.output_asset,
        terms.valid_until.to_utc(),
        seconds(terms, now),
        ids,
        amounts,
    );
    statement::execute(conn, sql, parameters).await
}

/// The open holds of some providers' assets, `(provider, asset)`, at a time. Their balances are locked, so that none is
/// added.
pub async fn load(
    conn: &mut PgConnection,
    places: &[(&str, &str)],
    at: DateTime<Utc>,
) -> Result<QuoteHolds, StoreError> {
    let (ids, assets): (Vec<&str>, Vec<&str>) = places.iter().copied().unzip();
    let sql = "select h.partner_id, h.livemode, h.provider_id, h.asset, sum(h.amount)::text \
         from unnest($1::text[], $2::text[]) as of (provider_id, asset) \
         join quote_hold h on h.provider_id = of.provider_id and h.asset = of.asset and h.valid_until > $3 \
         group by h.partner_id, h.livemode, h.provider_id, h.asset";
    let rows: Vec<(String, bool, String, String, String)> =
        statement::list(conn, sql, (ids, assets, at)).await?;
    let mut holds = QuoteHolds::default();
    for (partner_id, livemode, provider, asset, amount) in rows {
        holds.add(&(partner_id, livemode), &provider, &asset, minor(&amount)?);
    }
    Ok(holds)
}

pub async fn find_held(conn: &mut PgConnection, provider: &str, asset: &str) -> Result<Minor, StoreError> {
    let sql = "select coalesce(sum(amount), 0)::text from quote_hold \
         where provider_id = $1 and asset = $2 and valid_until > now()";
    let held: String = statement::load_value(conn, sql, (provider, asset)).await?;
    minor(&held)
}

/// The amounts held of each provider's assets now: `((provider, asset), amount)`.
pub async fn list_held(conn: &mut PgConnection) -> Result<Vec<((String, String), Minor)>, StoreError> {
    let sql = "select provider_id, asset, sum(amount)::text from quote_hold \
         where valid_until > now() group by provider_id, asset";
    let rows: Vec<(String, String, String)> = statement::list(conn, sql, ()).await?;
    rows.into_iter().map(|(provider, asset, amount)| Ok(((provider, asset), minor(&amount)?))).collect()
}

/// Ends the holds of used quotes, which count as unused no more.
pub async fn delete(conn: &mut PgConnection, quotes: &[&str]) -> Result<(), StoreError> {
    let sql = "with used as (delete from quote_hold where quote_id = any($1::text[]) returning *), \
         sums as (select partner_id, provider_id, asset, date_trunc('minute', valid_until) as lapsed_in, sum(held) as held \
                  from used group by 1, 2, 3, 4) \
         update unused_hold u set held = greatest(u.held - s.held, 0) from sums s \
         where (u.partner_id, u.provider_id, u.asset, u.lapsed_in) \
               = (s.partner_id, s.provider_id, s.asset, s.lapsed_in)";
    statement::execute(conn, sql, (quotes,)).await
}

fn minor(text: &str) -> Result<Minor, StoreError> {
    Minor::parse(text).map_err(|error| StoreError::corrupt("quote_hold", error))
}

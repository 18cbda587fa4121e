//! Orders and firm quotes that their takers let go, and who cools down for it (`dvp_domain::abandonment`).

use chrono::{DateTime, Utc};
use dvp_domain::abandonment::{Abandoned, CoolDownRules, CoolDownScope};
use dvp_domain::hold::share;
use dvp_domain::money::Minor;
use dvp_domain::quote::FirmTerms;
use dvp_domain::time::Timestamp;
use sqlx::PgConnection;

use crate::{StoreError, known, statement};

/// An accepted order that was let go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewAbandonment {
    pub reference: String,
    pub partner_id: String,
    /// In lower case. `None`: nothing is locked on a chain for it.
    pub wallet: Option<String>,
    pub how: Abandoned,
}

/// A wallet, a partner, or a partner's quotes on a provider's asset, that cool down.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct CoolDownRow {
    pub scope: String,
    /// A wallet, or a partner's id.
    pub subject: String,
    pub provider_id: String,
    pub asset: String,
    pub since: DateTime<Utc>,
    pub until: DateTime<Utc>,
    /// The orders of a wallet or partner that were let go, of those that are kept.
    pub orders: i64,
}

/// Records orders that were let go, and begins or prolongs the cool-downs that follow.
pub async fn insert(
    conn: &mut PgConnection,
    new: &[NewAbandonment],
    rules: &CoolDownRules,
    now: Timestamp,
) -> Result<(), StoreError> {
    let references: Vec<&str> = new.iter().map(|one| one.reference.as_str()).collect();
    let partners: Vec<&str> = new.iter().map(|one| one.partner_id.as_str()).collect();
    let wallets: Vec<Option<&str>> = new.iter().map(|one| one.wallet.as_deref()).collect();
    let kinds: Vec<&str> = new.iter().map(|one| one.how.as_str()).collect();
    let sql = "insert into abandonment (reference, partner_id, wallet, kind, at) \
         select r, p, w, k, $5 from unnest($1::text[], $2::text[], $3::text[], $4::text[]) as new (r, p, w, k) \
         on conflict on constraint abandonment_pkey do nothing";
    statement::execute(conn, sql, (references, &partners, &wallets, kinds, now.to_utc())).await?;
    cool_wallets(conn, &wallets, rules, now).await?;
    cool_partners(conn, &partners, rules, now).await
}

/// A wallet cools down until the order that was one too many leaves the sliding time.
async fn cool_wallets(
    conn: &mut PgConnection,
    wallets: &[Option<&str>],
    rules: &CoolDownRules,
    now: Timestamp,
) -> Result<(), StoreError> {
    let sql = "insert into cool_down (scope, subject, since, until) \
         select 'wallet', w, $2, many.at + make_interval(secs => $3) \
         from (select distinct w from unnest($1::text[]) as u (w) where w is not null) of \
         cross join lateral (select at from abandonment where wallet = of.w and at > $4 \
                             order by at desc offset $5 limit 1) many \
         order by w \
         on conflict on constraint cool_down_pkey do update \
         set until = greatest(cool_down.until, excluded.until), \
             since = case when cool_down.until > excluded.since then cool_down.since else excluded.since end";
    let parameters = (
        wallets,
        now.to_utc(),
        f64::from(rules.window_secs),
        rules.since(now).to_utc(),
        i64::from(rules.orders_of_wallet).saturating_sub(1),
    );
    statement::execute(conn, sql, parameters).await
}

/// A partner cools down when its orders that were let go are too many, and too large a part of those that were accepted.
/// What is accepted is counted only for a partner that has too many, and only as far as it matters.
async fn cool_partners(
    conn: &mut PgConnection,
    partners: &[&str],
    rules: &CoolDownRules,
    now: Timestamp,
) -> Result<(), StoreError> {
    let sql = "insert into cool_down (scope, subject, since, until) \
         select 'partner', p, $2, many.at + make_interval(secs => $3) \
         from (select distinct p from unnest($1::text[]) as u (p)) of \
         cross join lateral (select count(*) as n from (select from abandonment \
                             where partner_id = of.p and at > $4 limit 100000) a) gone \
         cross join lateral (select count(*) as n from (select from execution \
                             where gone.n >= $5 and partner_id = of.p and livemode = any('{f,t}') \
                               and accepted_at > $4 limit (gone.n + 1) * 10000 / $6) e) taken \
         cross join lateral (select at from abandonment where partner_id = of.p and at > $4 \
                             order by at desc offset greatest($5, taken.n * $6 / 10000 + 1) - 1 limit 1) many \
         order by p \
         on conflict on constraint cool_down_pkey do update \
         set until = greatest(cool_down.until, excluded.until), \
             since = case when cool_down.until > excluded.since then cool_down.since else excluded.since end";
    let parameters = (
        partners,
        now.to_utc(),
        f64::from(rules.window_secs),
        rules.since(now).to_utc(),
        i64::from(rules.orders_of_partner),
        i64::from(rules.orders_share_bps).max(1),
    );
    statement::execute(conn, sql, parameters).await
}

/// The time until which a partner may not hold more of a provider's asset by a firm quote, because its unused ones have held
/// too much of it. `balance` is what the provider has of it; it is locked. The refusal is recorded.
pub async fn refuse_quote(
    conn: &mut PgConnection,
    partner_id: &str,
    (provider, terms): (&str, &FirmTerms),
    balance: Minor,
    rules: &CoolDownRules,
    now: Timestamp,
) -> Result<Option<Timestamp>, StoreError> {
    let sql = "with later as ( \
             select lapsed_in, sum(held) over (order by lapsed_in desc) as held from unused_hold \
             where partner_id = $1 and provider_id = $2 and asset = $3 and lapsed_in > $4), \
         many as ( \
             select max(lapsed_in) + make_interval(secs => $5) as until from later \
             where held + $6::numeric * $7::numeric > $8::numeric * $9 * $5::numeric / 10000) \
         insert into cool_down (scope, subject, provider_id, asset, since, until) \
         select 'quotes', $1, $2, $3, $10, until from many where until is not null \
         on conflict on constraint cool_down_pkey do update \
         set until = excluded.until, \
             since = case when cool_down.until > excluded.since then cool_down.since else excluded.since end \
         returning until";
    let parameters = (
        partner_id,
        provider,
        &terms.output_asset,
        rules.since(now).to_utc(),
        f64::from(rules.window_secs),
        share(&terms.slices, provider).to_string(),
        seconds(terms, now),
        balance.to_string(),
        i64::from(rules.quotes_share_bps),
        now.to_utc(),
    );
    let until: Option<DateTime<Utc>> = statement::find_value(conn, sql, parameters).await?;
    Ok(until.map(Timestamp::from))
}

/// The seconds for which a quote holds its output, as a decimal number.
pub(super) fn seconds(terms: &FirmTerms, now: Timestamp) -> String {
    let millis = terms.valid_until.millis().saturating_sub(now.millis()).max(0);
    format!("{}.{:03}", millis.div_euclid(1000), millis.rem_euclid(1000))
}

/// Who cools down now, those that end last first, at most `limit`.
pub async fn list_cooling(conn: &mut PgConnection, limit: i64) -> Result<Vec<CoolDownRow>, StoreError> {
    let sql = "select c.scope, c.subject, c.provider_id, c.asset, c.since, c.until, a.orders from cool_down c \
         cross join lateral (select count(*) as orders from abandonment a \
                             where c.scope = 'wallet' and a.wallet = c.subject \
                                or c.scope = 'partner' and a.partner_id = c.subject) a \
         where c.until > now() order by c.until desc limit $1";
    statement::list(conn, sql, (limit,)).await
}

/// How many cool down now, by scope.
pub async fn count_cooling(conn: &mut PgConnection) -> Result<Vec<(CoolDownScope, i64)>, StoreError> {
    let sql = "select scope, count(*) from cool_down where until > now() group by scope";
    let rows: Vec<(String, i64)> = statement::list(conn, sql, ()).await?;
    rows.into_iter()
        .map(|(scope, count)| Ok((known("cool_down", &scope, CoolDownScope::parse)?, count)))
        .collect()
}

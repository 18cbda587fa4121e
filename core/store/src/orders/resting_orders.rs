//! The internal order book's resting orders.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use dvp_domain::money::Minor;
use rust_decimal::Decimal;
use sqlx::PgConnection;

use crate::{StoreError, statement};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewRestingOrder {
    pub provider_id: String,
    /// The provider's wallet for released funds.
    pub wallet: String,
    pub input_asset: String,
    pub output_asset: String,
    /// Output per one input, in whole units.
    pub rate: Decimal,
    /// Output in minor units.
    pub amount: Minor,
    /// `None`: the service's operators place it.
    pub placed_by: Option<PlacedBy>,
}

/// A maker whose orders are read or cancelled: the partner, and the provider that it places them for.
#[derive(Debug, Clone, Copy)]
pub struct Placer<'a> {
    pub provider_id: &'a str,
    pub partner_id: &'a str,
}

/// The maker that places an order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlacedBy {
    pub partner_id: String,
    /// The maker's own id of the order.
    pub client_order_id: String,
}

/// A resting order with a remaining amount.
#[derive(Debug, Clone)]
pub struct RestingOrder {
    pub id: i64,
    pub provider_id: String,
    pub wallet: String,
    pub input_asset: String,
    pub output_asset: String,
    pub rate: Decimal,
    pub remaining: Minor,
}

#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct RestingOrderRow {
    pub id: i64,
    pub client_order_id: Option<String>,
    pub input_asset: String,
    pub output_asset: String,
    pub rate: String,
    pub placed: String,
    pub remaining: String,
    /// The remaining amount when it was cancelled.
    pub cancelled: Option<String>,
    pub placed_at: DateTime<Utc>,
    pub cancelled_at: Option<DateTime<Utc>>,
}

/// The largest number of offered orders of one pair.
pub const LEVELS_MAX: i64 = 200;

const COLUMNS: &str = "id, client_order_id, input_asset, output_asset, rate::text as rate, placed::text as placed, \
                       remaining::text as remaining, cancelled::text as cancelled, placed_at, cancelled_at";

fn minor(text: &str) -> Result<Minor, StoreError> {
    Minor::parse(text).map_err(|error| StoreError::corrupt("resting_order", error))
}

/// Inserts a resting order and returns its id. `None`: its maker has another one with the same own id, or is not the
/// provider's maker for this wallet any more. The maker cannot change before the insertion is committed.
pub async fn insert(conn: &mut PgConnection, new: &NewRestingOrder) -> Result<Option<i64>, StoreError> {
    let sql = "insert into resting_order (provider_id, wallet, input_asset, output_asset, rate, placed, remaining, \
                                    client_order_id, partner_id) \
         select $1, $2, $3, $4, $5::text::numeric, $6::text::numeric, $6::text::numeric, $7, $8 \
         where $8::text is null \
            or exists (select from maker m where m.partner_id = $8 and m.provider_id = $1 \
                         and lower(m.wallet) = lower($2) and m.ended_at is null for share) \
         on conflict on constraint resting_order_client_key do nothing returning id";
    let parameters = (
        &new.provider_id,
        &new.wallet,
        &new.input_asset,
        &new.output_asset,
        new.rate.to_string(),
        new.amount.to_string(),
        new.placed_by.as_ref().map(|by| &by.client_order_id),
        new.placed_by.as_ref().map(|by| &by.partner_id),
    );
    statement::find_value(conn, sql, parameters).await
}

/// At most [`LEVELS_MAX`] orders of each pair with a remaining amount, taken from the providers in turn: the best of each,
/// then the second of each, so that no provider's orders hide another's, whatever their rates. Of makers those of the provider's
/// present one for its present terms only, if it is enabled and not paused: fills are released to the order's wallet, at
/// the order's rate.
pub async fn list_open(conn: &mut PgConnection) -> Result<Vec<RestingOrder>, StoreError> {
    let sql = "with recursive book as ( \
             (select input_asset, output_asset, provider_id from resting_order where remaining > 0 \
              order by input_asset, output_asset, provider_id limit 1) \
             union all \
             select next.* from book cross join lateral ( \
                 select o.input_asset, o.output_asset, o.provider_id from resting_order o \
                 where o.remaining > 0 and (o.input_asset, o.output_asset, o.provider_id) \
                       > (book.input_asset, book.output_asset, book.provider_id) \
                 order by o.input_asset, o.output_asset, o.provider_id limit 1) next), \
         best as ( \
             select p.*, row_number() over (partition by p.input_asset, p.output_asset, p.provider_id \
                                            order by p.rate desc, p.id) as turn \
             from book cross join lateral ( \
                 select o.* from resting_order o \
                 where o.remaining > 0 and (o.input_asset, o.output_asset, o.provider_id) \
                       = (book.input_asset, book.output_asset, book.provider_id) \
                   and (o.client_order_id is null or exists ( \
                       select from maker m join partner p on p.id = m.partner_id \
                       where m.provider_id = o.provider_id and lower(m.wallet) = lower(o.wallet) \
                         and m.orders_from <= o.id and m.ended_at is null and p.disabled_at is null \
                               and not exists (select from pause where scope = 'partner' and target = p.id))) \
                 order by o.rate desc, o.id limit $1) p), \
         offered as ( \
             select *, row_number() over (partition by input_asset, output_asset order by turn, rate desc, id) as place \
             from best) \
         select id, provider_id, wallet, input_asset, output_asset, rate::text, remaining::text from offered \
         where place <= $1 order by input_asset, output_asset, offered.rate desc, id";
    let rows: Vec<(i64, String, String, String, String, String, String)> =
        statement::list(conn, sql, (LEVELS_MAX,)).await?;
    rows.into_iter()
        .map(|(id, provider_id, wallet, input_asset, output_asset, rate, remaining)| {
            let rate = Decimal::from_str_exact(&rate);
            Ok(RestingOrder {
                id,
                provider_id,
                wallet,
                input_asset,
                output_asset,
                rate: rate.map_err(|error| StoreError::corrupt("resting_order", error))?,
                remaining: minor(&remaining)?,
            })
        })
        .collect()
}

/// Locks orders in id order and returns the remaining amount of each; zero for those of a maker that is disabled or paused,
/// has ended, or has other terms now.
pub async fn lock(conn: &mut PgConnection, ids: &[i64]) -> Result<HashMap<i64, Minor>, StoreError> {
    let sql = "select id, case when client_order_id is not null and not exists ( \
                             select from maker m join partner p on p.id = m.partner_id \
                             where m.provider_id = o.provider_id and lower(m.wallet) = lower(o.wallet) \
                               and m.orders_from <= o.id and m.ended_at is null and p.disabled_at is null \
                               and not exists (select from pause where scope = 'partner' and target = p.id)) \
                         then '0' else remaining::text end \
         from resting_order o where id = any($1::int8[]) order by id for update of o";
    let rows: Vec<(i64, String)> = statement::list(conn, sql, (ids,)).await?;
    rows.into_iter().map(|(id, remaining)| Ok((id, minor(&remaining)?))).collect()
}

/// Takes amounts from locked orders; each order at most once.
pub async fn take(conn: &mut PgConnection, taken: &HashMap<i64, Minor>) -> Result<(), StoreError> {
    let (ids, amounts): (Vec<i64>, Vec<String>) =
        taken.iter().map(|(id, amount)| (*id, amount.to_string())).unzip();
    let sql = "update resting_order o set remaining = o.remaining - t.amount::numeric \
         from unnest($1::int8[], $2::text[]) as t (id, amount) \
         where o.id = t.id";
    statement::execute(conn, sql, (ids, amounts)).await
}

/// Returns amounts to locked orders, unless they were cancelled. An order that was wholly taken when its maker ended, or
/// got other terms, is cancelled now. So is one whose maker is being changed: a batch never waits for that.
pub async fn restore(conn: &mut PgConnection, given_back: &HashMap<i64, Minor>) -> Result<(), StoreError> {
    let (ids, amounts): (Vec<i64>, Vec<String>) =
        given_back.iter().map(|(id, amount)| (*id, amount.to_string())).unzip();
    let sql = // Materialized: a row that is locked now may be free when it is asked for again.
        "with given as materialized ( \
             select r.id, t.amount::numeric as amount, r.client_order_id is null \
                 or exists (select from maker m where m.provider_id = r.provider_id \
                              and lower(m.wallet) = lower(r.wallet) and m.orders_from <= r.id and m.ended_at is null \
                            for key share skip locked) as has_maker \
             from unnest($1::int8[], $2::text[]) as t (id, amount) join resting_order r on r.id = t.id) \
         update resting_order o \
         set remaining = case when g.has_maker then o.remaining + g.amount else 0 end, \
             cancelled = case when g.has_maker then null else o.remaining end, \
             cancelled_at = case when g.has_maker then null else clock_timestamp() end \
         from given g where o.id = g.id and o.cancelled_at is null";
    statement::execute(conn, sql, (ids, amounts)).await
}

/// Cancels an order that a maker has placed: its remaining amount is no longer offered. `false`: there is no such order,
/// or it was cancelled before.
pub async fn cancel(conn: &mut PgConnection, placer: Placer<'_>, id: i64) -> Result<bool, StoreError> {
    let sql = "update resting_order set cancelled = remaining, remaining = 0, cancelled_at = clock_timestamp() \
         where id = $1 and provider_id = $2 and partner_id = $3 and cancelled_at is null";
    Ok(statement::affected(conn, sql, (id, placer.provider_id, placer.partner_id)).await? > 0)
}

/// Cancels the open orders of makers of providers. They are locked in id order, as by [`lock`]. A wholly taken one stays
/// filled until a taker returns an amount: [`restore`] cancels it then.
pub async fn cancel_open(conn: &mut PgConnection, provider_ids: &[&str]) -> Result<(), StoreError> {
    let sql = "update resting_order o set cancelled = o.remaining, remaining = 0, cancelled_at = clock_timestamp() \
         from (select id from resting_order \
               where provider_id = any($1::text[]) and client_order_id is not null and remaining > 0 \
               order by id for update) mine \
         where o.id = mine.id and o.remaining > 0";
    statement::execute(conn, sql, (provider_ids,)).await
}

/// An order that a maker has placed.
pub async fn find(
    conn: &mut PgConnection,
    placer: Placer<'_>,
    id: i64,
) -> Result<Option<RestingOrderRow>, StoreError> {
    let sql =
        format!("select {COLUMNS} from resting_order where id = $1 and provider_id = $2 and partner_id = $3");
    statement::find(conn, sqlx::AssertSqlSafe(sql), (id, placer.provider_id, placer.partner_id)).await
}

/// The order with the maker's own id.
pub async fn find_by_client_id(
    conn: &mut PgConnection,
    placer: Placer<'_>,
    client_order_id: &str,
) -> Result<Option<RestingOrderRow>, StoreError> {
    let sql = format!(
        "select {COLUMNS} from resting_order \
         where provider_id = $1 and partner_id = $2 and client_order_id = $3"
    );
    let sql = sqlx::AssertSqlSafe(sql);
    statement::find(conn, sql, (placer.provider_id, placer.partner_id, client_order_id)).await
}

/// The number of a provider's orders with a remaining amount in a pair.
pub async fn count_open(
    conn: &mut PgConnection,
    provider_id: &str,
    (input, output): (&str, &str),
) -> Result<i64, StoreError> {
    let sql = "select count(*) from resting_order \
         where input_asset = $2 and output_asset = $3 and remaining > 0 and provider_id = $1";
    statement::load_value(conn, sql, (provider_id, input, output)).await
}

/// The orders that a maker has placed, newest first: all, or those with a remaining amount, before an id.
pub async fn list_of(
    conn: &mut PgConnection,
    placer: Placer<'_>,
    is_open: bool,
    before: Option<i64>,
    limit: i64,
) -> Result<Vec<RestingOrderRow>, StoreError> {
    let sql = format!(
        "select {COLUMNS} from resting_order \
         where provider_id = $1 and partner_id = $2 and (remaining > 0 or not $3) and ($4::int8 is null or id < $4) \
         order by id desc limit $5"
    );
    let sql = sqlx::AssertSqlSafe(sql);
    statement::list(conn, sql, (placer.provider_id, placer.partner_id, is_open, before, limit)).await
}

//! Range orders that wait for the market.

use std::collections::{BTreeSet, HashMap, HashSet};

use chrono::{DateTime, Utc};
use dvp_domain::intent::ActorType;
use dvp_domain::money::Minor;
use dvp_domain::range::Range;
use dvp_domain::terms::Terms;
use dvp_domain::time::Timestamp;
use sqlx::postgres::PgRow;
use sqlx::{FromRow, PgConnection, Row as _};

use super::intents::{self, Tenant};
use crate::{StoreError, read, statement};

/// The orders of a tenant that may rest: nothing is reserved for them, and each is in memory.
pub const RESTING_MAX: i64 = 10_000;

/// The orders of a wallet that may rest: they are filled in the order of their permits' nonces, so that each is looked at
/// for those behind it.
pub const WALLET_RESTING_MAX: usize = 100;

/// What rests, without its number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewRestingRange {
    pub reference: String,
    pub input_asset: String,
    pub output_asset: String,
    pub actor: ActorType,
    pub range: Range,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestingRange {
    /// Of orders that the same price meets the lowest is filled first.
    pub number: i64,
    pub rested: NewRestingRange,
}

/// A transaction from which on a reader goes on: everything before was visible.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Horizon(String);

impl NewRestingRange {
    /// Of an order's terms. `None`: its bounds are fixed.
    pub fn of(terms: &Terms) -> Option<Self> {
        Some(Self {
            reference: terms.reference.to_string(),
            input_asset: terms.input.asset.clone(),
            output_asset: terms.output.asset.clone(),
            actor: terms.request.actor_type,
            range: Range::of(&terms.request)?,
        })
    }
}

const fn actor_text(actor: ActorType) -> &'static str {
    match actor {
        ActorType::Retail => "retail",
        ActorType::Institution => "institution",
    }
}

const COLUMNS: &str = "number, reference, input_asset, output_asset, actor, max_input::text, target_output::text, \
                       min_output::text, received_at, deadline";

impl FromRow<'_, PgRow> for RestingRange {
    fn from_row(row: &PgRow) -> sqlx::Result<Self> {
        let amount = |column| read(row, ("resting_range", column), Minor::parse);
        let time = |column| row.try_get::<DateTime<Utc>, _>(column).map(Timestamp::from);
        let is_retail = row.try_get::<&str, _>("actor")? == "retail";
        let rested = NewRestingRange {
            reference: row.try_get("reference")?,
            input_asset: row.try_get("input_asset")?,
            output_asset: row.try_get("output_asset")?,
            actor: if is_retail { ActorType::Retail } else { ActorType::Institution },
            range: Range {
                max_input: amount("max_input")?,
                target_output: amount("target_output")?,
                min_output: amount("min_output")?,
                received_at: time("received_at")?,
                deadline: time("deadline")?,
            },
        };
        Ok(Self { number: row.try_get("number")?, rested })
    }
}

/// A resting order whose row cannot be read.
#[derive(Debug)]
pub struct UnreadableRange {
    pub number: i64,
    pub reference: String,
    pub error: StoreError,
}

/// A row that cannot be read takes none of the others along.
fn each(rows: &[PgRow]) -> Result<Vec<Result<RestingRange, UnreadableRange>>, StoreError> {
    let read = |row| match RestingRange::from_row(row) {
        Ok(resting) => Ok(Ok(resting)),
        Err(error) => {
            let (number, reference) = (row.try_get("number")?, row.try_get("reference")?);
            Ok(Err(UnreadableRange { number, reference, error: error.into() }))
        }
    };
    rows.iter().map(read).collect()
}

/// How many orders of tenants rest, those that wait for a deposit among them, each kind counted up to [`RESTING_MAX`].
pub async fn count_of_tenants(
    conn: &mut PgConnection,
    tenants: &BTreeSet<&Tenant>,
) -> Result<HashMap<Tenant, i64>, StoreError> {
    let (partners, modes) = intents::tenants(tenants.iter().copied());
    let sql = "select t.p, t.m, c.resting from unnest($1::text[], $2::bool[]) as t (p, m) \
         cross join lateral (select count(*) as resting \
                             from ((select from resting_range where partner_id = t.p and livemode = t.m limit $3) \
                                   union all \
                                   (select from deposit_wait where partner_id = t.p and livemode = t.m limit $3)) r) c";
    let rows: Vec<(String, bool, i64)> = statement::list(conn, sql, (partners, modes, RESTING_MAX)).await?;
    let counted = |(partner_id, livemode, resting)| (Tenant { partner_id, livemode }, resting);
    Ok(rows.into_iter().map(counted).collect())
}

/// Adds orders of tenants, which get their numbers in this order.
pub async fn insert(conn: &mut PgConnection, rested: &[(Tenant, NewRestingRange)]) -> Result<(), StoreError> {
    let (partners, modes) = intents::tenants(rested.iter().map(|(tenant, _)| tenant));
    let text = |of: fn(&NewRestingRange) -> &str| rested.iter().map(|(_, one)| of(one)).collect::<Vec<_>>();
    let amount = |of: fn(&Range) -> Minor| {
        rested.iter().map(|(_, one)| of(&one.range).to_string()).collect::<Vec<_>>()
    };
    let sql = "insert into resting_range (reference, input_asset, output_asset, actor, max_input, target_output, \
                                    min_output, received_at, deadline, partner_id, livemode) \
         select r, i, o, a, m::numeric, t::numeric, l::numeric, b, d, p, e \
         from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], \
                     $8::timestamptz[], $9::timestamptz[], $10::text[], $11::bool[]) \
                  with ordinality as u (r, i, o, a, m, t, l, b, d, p, e, n) \
         order by n";
    let parameters = (
        text(|one| &one.reference),
        text(|one| &one.input_asset),
        text(|one| &one.output_asset),
        text(|one| actor_text(one.actor)),
        amount(|range| range.max_input),
        amount(|range| range.target_output),
        amount(|range| range.min_output),
        rested.iter().map(|(_, one)| one.range.received_at.to_utc()).collect::<Vec<_>>(),
        rested.iter().map(|(_, one)| one.range.deadline.to_utc()).collect::<Vec<_>>(),
        partners,
        modes,
    );
    statement::execute(conn, sql, parameters).await
}

/// Removes orders that were filled or have ended.
pub async fn delete(conn: &mut PgConnection, references: &[&str]) -> Result<(), StoreError> {
    let sql = "with waiting as (delete from deposit_wait where reference = any($1::text[])) \
         delete from resting_range where reference = any($1::text[])";
    statement::execute(conn, sql, (references,)).await
}

/// Locks the executions that still rest in the given versions, until the transaction ends.
pub async fn lock_resting(
    conn: &mut PgConnection,
    asked: &[(&str, i64)],
) -> Result<HashSet<String>, StoreError> {
    let (references, versions): (Vec<&str>, Vec<i64>) = asked.iter().copied().unzip();
    let sql = "select e.reference from execution e \
           join unnest($1::text[], $2::int8[]) as a (reference, version) using (reference) \
         where e.version = a.version and e.state_name = 'resting' order by e.reference for update of e";
    Ok(statement::list_values(conn, sql, (references, versions)).await?.into_iter().collect())
}

/// From where on [`list_added`] has to read after everything that is visible now was read.
pub async fn horizon(conn: &mut PgConnection) -> Result<Horizon, StoreError> {
    let sql = "select pg_snapshot_xmin(pg_current_snapshot())::text";
    Ok(Horizon(statement::load_value(conn, sql, ()).await?))
}

/// A page of all resting orders, by their numbers.
pub async fn list(
    conn: &mut PgConnection,
    after: i64,
    limit: i64,
) -> Result<Vec<Result<RestingRange, UnreadableRange>>, StoreError> {
    let sql = format!("select {COLUMNS} from resting_range where number > $1 order by number limit $2");
    each(&statement::list_rows(conn, sqlx::AssertSqlSafe(sql), (after, limit)).await?)
}

/// The orders that were added since, some of which may have been read before.
pub async fn list_added(
    conn: &mut PgConnection,
    since: &Horizon,
) -> Result<Vec<Result<RestingRange, UnreadableRange>>, StoreError> {
    let sql = format!("select {COLUMNS} from resting_range where added_by >= $1::text::xid8 order by number");
    each(&statement::list_rows(conn, sqlx::AssertSqlSafe(sql), (&since.0,)).await?)
}

/// Orders that rest here, for the market or for a deposit, and have begun on their chain.
pub async fn list_begun(conn: &mut PgConnection) -> Result<Vec<String>, StoreError> {
    let sql = "select e.reference from (select reference from resting_range union all select reference from \
         deposit_wait) r join execution e using (reference) \
         where e.state_name = 'resting' \
           and exists (select from chain_log log \
                       where log.entity = e.entity and log.canonical and log.fact is not null) \
         order by e.reference";
    statement::list_values(conn, sql, ()).await
}

/// Of these orders those that rest.
pub async fn list_resting(
    conn: &mut PgConnection,
    references: &[&str],
) -> Result<Vec<RestingRange>, StoreError> {
    let sql = format!("select {COLUMNS} from resting_range where reference = any($1::text[])");
    statement::list(conn, sqlx::AssertSqlSafe(sql), (references,)).await
}

//! Legacy orders, and the standing instructions by which they settle.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use dvp_domain::money::Minor;
use serde_json::Value;
use sqlx::postgres::PgRow;
use sqlx::{FromRow, PgConnection, Row as _};

use super::intents::{self, Tenant};
use crate::{StoreError, read, statement};

#[derive(Debug, Clone)]
pub struct NewLegacyIntent {
    pub tenant: Tenant,
    pub intent_id: String,
    /// The request, with its defaults.
    pub request: Value,
    pub source: String,
    pub target: String,
    pub strategy: &'static str,
    pub client_ref: Option<String>,
    /// The recipient of the output.
    pub account: String,
    /// `pending` or `queued`.
    pub stage: &'static str,
    pub created_at: DateTime<Utc>,
    pub expires_at: DateTime<Utc>,
    pub run_at: DateTime<Utc>,
}

/// A due order, claimed by its version for a time.
#[derive(Debug, Clone)]
pub struct ClaimedLegacyIntent {
    pub tenant: Tenant,
    pub intent_id: String,
    pub request: Value,
    pub source: String,
    pub target: String,
    pub strategy: String,
    pub account: String,
    pub submitting: bool,
    pub attempt: i32,
    pub best_output: Option<Minor>,
    pub created_at: DateTime<Utc>,
    pub expires_at: DateTime<Utc>,
    pub version: i64,
}

/// An execution attempt. It is valid until another process claims the order, or it is cancelled.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct HeldTurn {
    pub tenant: Tenant,
    pub intent_id: String,
    pub version: i64,
}

/// The result of a claimed order's evaluation.
#[derive(Debug, Clone)]
pub enum Turn {
    /// Evaluate again at a time, with the best output so far.
    Wait {
        stage: &'static str,
        run_at: DateTime<Utc>,
        best_output: Option<Minor>,
    },
    /// About to be submitted under this attempt.
    Submitting {
        attempt: i32,
    },
    /// Found executed: its attempt's intent has an execution.
    Submitted {
        reference: String,
    },
    Rejected {
        code: &'static str,
    },
    Expired,
}

/// An order as its owner sees it.
#[derive(Debug, Clone, sqlx::FromRow)]
pub struct LegacyIntentRow {
    pub intent_id: String,
    pub request: Value,
    pub status: String,
    pub client_ref: Option<String>,
    pub reference: Option<String>,
    pub code: Option<String>,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
}

#[derive(Debug, Clone, Default)]
pub struct LegacyFilter {
    pub status: Option<String>,
    pub strategy: Option<String>,
    pub from: Option<DateTime<Utc>>,
    pub until: Option<DateTime<Utc>>,
}

/// The open orders that a tenant may have: each is evaluated whenever its pair's market changes.
pub const OPEN_MAX: i64 = 1000;

/// Whether a tenant has as many open orders as it may have.
pub async fn is_full(conn: &mut PgConnection, tenant: &Tenant) -> Result<bool, StoreError> {
    let last = sqlx::query_scalar(
        "select exists (select from legacy_intent \
                        where partner_id = $1 and livemode = $2 \
                          and stage in ('pending', 'solving', 'queued', 'submitting') \
                        order by strategy, run_at offset $3 limit 1)",
    );
    let last = last.bind(&tenant.partner_id).bind(tenant.livemode).bind(OPEN_MAX - 1);
    Ok(last.fetch_one(conn).await?)
}

pub async fn insert(conn: &mut PgConnection, new: &NewLegacyIntent) -> Result<(), StoreError> {
    let sql = "insert into legacy_intent (partner_id, livemode, intent_id, request, source, target, strategy, \
                                    client_ref, account, stage, created_at, expires_at, run_at) \
         values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)";
    let parameters = (
        &new.tenant.partner_id,
        new.tenant.livemode,
        &new.intent_id,
        &new.request,
        &new.source,
        &new.target,
        new.strategy,
        &new.client_ref,
        &new.account,
        new.stage,
        new.created_at,
        new.expires_at,
        new.run_at,
    );
    statement::execute(conn, sql, parameters).await
}

impl FromRow<'_, PgRow> for ClaimedLegacyIntent {
    fn from_row(row: &PgRow) -> sqlx::Result<Self> {
        let best = |text: Option<&str>| text.map(Minor::parse).transpose();
        Ok(Self {
            tenant: Tenant { partner_id: row.try_get("partner_id")?, livemode: row.try_get("livemode")? },
            intent_id: row.try_get("intent_id")?,
            request: row.try_get("request")?,
            source: row.try_get("source")?,
            target: row.try_get("target")?,
            strategy: row.try_get("strategy")?,
            account: row.try_get("account")?,
            submitting: row.try_get::<&str, _>("stage")? == "submitting",
            attempt: row.try_get("attempt")?,
            best_output: read(row, ("legacy_intent", "best_output"), best)?,
            created_at: row.try_get("created_at")?,
            expires_at: row.try_get("expires_at")?,
            version: row.try_get("version")?,
        })
    }
}

/// Due orders of each tenant in turn, a tenant's instant ones first. The first of each tenant are read by an index of the
/// open ones, so that neither ended orders nor those of a tenant with many cost anything.
const CLAIM: &str = "with recursive tenant as ( \
         (select partner_id, livemode from legacy_intent \
          where stage in ('pending', 'solving', 'queued', 'submitting') \
          order by partner_id, livemode, strategy, run_at limit 1) \
         union all \
         select n.partner_id, n.livemode from tenant t cross join lateral ( \
             select partner_id, livemode from legacy_intent \
             where stage in ('pending', 'solving', 'queued', 'submitting') \
               and (partner_id, livemode) > (t.partner_id, t.livemode) \
             order by partner_id, livemode, strategy, run_at limit 1) n \
     ), due as ( \
         select d.*, row_number() over (partition by d.partner_id, d.livemode \
                                        order by d.strategy <> 'instant', d.run_at) as turn \
         from tenant t cross join unnest(array['instant', 'optimized', 'scheduled']) as s (strategy) \
              cross join lateral ( \
                  select partner_id, livemode, intent_id, strategy, run_at from legacy_intent \
                  where partner_id = t.partner_id and livemode = t.livemode and strategy = s.strategy \
                    and stage in ('pending', 'solving', 'queued', 'submitting') \
                    and run_at <= statement_timestamp() \
                    and (claimed_until is null or claimed_until < statement_timestamp()) \
                  order by run_at limit $2) d \
     ), chosen as ( \
         select partner_id, livemode, intent_id from due \
         order by turn, strategy <> 'instant', run_at limit $2 \
     ) \
     update legacy_intent l set version = l.version + 1, \
            claimed_until = clock_timestamp() + make_interval(secs => $1) \
     from (select o.partner_id, o.livemode, o.intent_id \
           from chosen c join legacy_intent o using (partner_id, livemode, intent_id) \
           where o.stage in ('pending', 'solving', 'queued', 'submitting') \
             and (o.claimed_until is null or o.claimed_until < statement_timestamp()) \
           for update of o skip locked) mine \
     where (l.partner_id, l.livemode, l.intent_id) = (mine.partner_id, mine.livemode, mine.intent_id) \
     returning l.partner_id, l.livemode, l.intent_id, l.request, l.source, l.target, l.strategy, l.account, \
               l.stage, l.attempt, l.best_output::text as best_output, l.created_at, l.expires_at, l.version";

/// Claims due orders, as many of each tenant as of any other that has so many; they are exclusive for the duration of the
/// claim.
pub async fn claim(
    conn: &mut PgConnection,
    claim_secs: f64,
    limit: i64,
) -> Result<Vec<ClaimedLegacyIntent>, StoreError> {
    statement::list(conn, CLAIM, (claim_secs, limit)).await
}

/// When the first open order is due, or the claim of its evaluation ends. `None`: no order is open.
pub async fn next_due(conn: &mut PgConnection) -> Result<Option<DateTime<Utc>>, StoreError> {
    let sql = "select least((select run_at from legacy_intent \
                       where stage in ('pending', 'solving', 'queued', 'submitting') and claimed_until is null \
                       order by run_at limit 1), \
                      (select min(claimed_until) from legacy_intent \
                       where stage in ('pending', 'solving', 'queued', 'submitting') and claimed_until is not null))";
    statement::load_value(conn, sql, ()).await
}

/// Makes the waiting orders of pairs due that were to be evaluated later: the scheduled ones at `epoch`, the others at
/// once, or `window_secs` after their last evaluation. Returns their number.
pub async fn wake(
    conn: &mut PgConnection,
    pairs: &[(String, String)],
    window_secs: f64,
    epoch: DateTime<Utc>,
) -> Result<u64, StoreError> {
    let (sources, targets): (Vec<&str>, Vec<&str>) =
        pairs.iter().map(|(source, target)| (source.as_str(), target.as_str())).unzip();
    let sql = "update legacy_intent l set run_at = due.at \
         from (select partner_id, livemode, intent_id, \
                      case when strategy = 'scheduled' then $4 \
                           else greatest(clock_timestamp(), updated_at + make_interval(secs => $3)) end as at \
               from legacy_intent \
               where stage in ('solving', 'queued') \
                 and (source, target) in (select * from unnest($1::text[], $2::text[]))) due \
         where (l.partner_id, l.livemode, l.intent_id) = (due.partner_id, due.livemode, due.intent_id) \
           and l.stage in ('solving', 'queued') and l.run_at > due.at";
    statement::affected(conn, sql, (sources, targets, window_secs, epoch)).await
}

/// Ends an evaluation. `false`: the order was cancelled, or claimed by another process.
pub async fn update(
    conn: &mut PgConnection,
    order: &ClaimedLegacyIntent,
    turn: &Turn,
) -> Result<bool, StoreError> {
    let (stage, attempt, run_at, best, reference, code) = match turn {
        Turn::Wait { stage, run_at, best_output } => {
            (*stage, order.attempt, Some(*run_at), best_output.map(|best| best.to_string()), None, None)
        }
        // The claim continues: after a crash the order is due when it expires.
        Turn::Submitting { attempt } => ("submitting", *attempt, None, None, None, None),
        Turn::Submitted { reference } => ("submitted", order.attempt, None, None, Some(reference), None),
        Turn::Rejected { code } => ("rejected", order.attempt, None, None, None, Some(*code)),
        Turn::Expired => ("expired", order.attempt, None, None, None, None),
    };
    let keeps_claim = matches!(turn, Turn::Submitting { .. });
    let sql = "update legacy_intent set stage = $5, attempt = $6, run_at = coalesce($7, run_at), \
                best_output = coalesce($8::text::numeric, best_output), reference = $9, code = $10, \
                claimed_until = case when $11 then claimed_until end, updated_at = now() \
         where partner_id = $1 and livemode = $2 and intent_id = $3 and version = $4";
    let parameters = (
        &order.tenant.partner_id,
        order.tenant.livemode,
        &order.intent_id,
        order.version,
        stage,
        attempt,
        run_at,
        best,
        reference,
        code,
        keeps_claim,
    );
    Ok(statement::affected(conn, sql, parameters).await? == 1)
}

/// The attempts that are still valid, each with whether no standing instruction names another account than its order's.
/// Until the transaction ends, their orders cannot be claimed and the instructions cannot be replaced.
pub async fn lock_turns(
    conn: &mut PgConnection,
    turns: &[&HeldTurn],
) -> Result<HashMap<HeldTurn, bool>, StoreError> {
    let (partners, modes) = intents::tenants(turns.iter().map(|turn| &turn.tenant));
    let ids: Vec<&str> = turns.iter().map(|turn| turn.intent_id.as_str()).collect();
    let versions: Vec<i64> = turns.iter().map(|turn| turn.version).collect();
    let sql = "select l.partner_id, l.livemode, l.intent_id, l.version, l.target, l.account from legacy_intent l \
         join unnest($1::text[], $2::bool[], $3::text[], $4::int8[]) as turn (p, m, i, v) \
              on (l.partner_id, l.livemode, l.intent_id, l.version) = (p, m, i, v) \
         where l.stage = 'submitting' order by 1, 2, 3 for update of l";
    let rows: Vec<(String, bool, String, i64, String, String)> =
        statement::list(conn, sql, (partners, modes, ids, versions)).await?;
    // A statement of its own: it sees what was committed while this transaction waited for the orders.
    let sql = "select partner_id, livemode, asset, account from settlement_instruction \
         where (partner_id, livemode, asset) in (select * from unnest($1::text[], $2::bool[], $3::text[])) \
         order by 1, 2, 3 for share";
    let parameters = (
        rows.iter().map(|row| row.0.as_str()).collect::<Vec<_>>(),
        rows.iter().map(|row| row.1).collect::<Vec<_>>(),
        rows.iter().map(|row| row.4.as_str()).collect::<Vec<_>>(),
    );
    let instructed: Vec<(String, bool, String, String)> = statement::list(conn, sql, parameters).await?;
    let instructed: HashMap<(String, bool, String), String> = instructed
        .into_iter()
        .map(|(partner_id, livemode, asset, account)| ((partner_id, livemode, asset), account))
        .collect();
    let held = |(partner_id, livemode, intent_id, version, target, account): (
        String,
        bool,
        String,
        _,
        _,
        String,
    )| {
        let named = instructed.get(&(partner_id.clone(), livemode, target));
        let is_instructed = named.is_none_or(|named| *named == account);
        let tenant = Tenant { partner_id, livemode };
        (HeldTurn { tenant, intent_id, version }, is_instructed)
    };
    Ok(rows.into_iter().map(held).collect())
}

/// Ends the orders that were executed. The caller has locked them.
pub async fn update_submitted(
    conn: &mut PgConnection,
    executed: &[(HeldTurn, String)],
) -> Result<(), StoreError> {
    let (partners, modes) = intents::tenants(executed.iter().map(|(turn, _)| &turn.tenant));
    let ids: Vec<&str> = executed.iter().map(|(turn, _)| turn.intent_id.as_str()).collect();
    let references: Vec<&str> = executed.iter().map(|(_, reference)| reference.as_str()).collect();
    let sql = "update legacy_intent set stage = 'submitted', reference = r, claimed_until = null, updated_at = now() \
         from unnest($1::text[], $2::bool[], $3::text[], $4::text[]) as executed (p, m, i, r) \
         where (partner_id, livemode, intent_id) = (p, m, i)";
    statement::execute(conn, sql, (partners, modes, ids, references)).await
}

/// Cancels an order that is not being executed. `false`: the order does not exist, or it is too late.
pub async fn cancel(conn: &mut PgConnection, tenant: &Tenant, intent_id: &str) -> Result<bool, StoreError> {
    let sql = "update legacy_intent set stage = 'cancelled', version = version + 1, updated_at = now() \
         where partner_id = $1 and livemode = $2 and intent_id = $3 and stage in ('pending', 'solving', 'queued')";
    Ok(statement::affected(conn, sql, (&tenant.partner_id, tenant.livemode, intent_id)).await? == 1)
}

/// The orders of a tenant with the status of their executions.
const SEEN: &str = "with seen as ( \
    select l.intent_id, l.request, l.strategy, l.client_ref, l.reference, l.code, l.created_at, \
           coalesce(e.terminal_at, l.updated_at) as updated_at, \
           case when l.stage = 'submitting' then 'executing' when l.stage <> 'submitted' then l.stage \
                when e.state_name = 'completed' then 'settled' \
                when e.state_name in ('cancelled', 'expired') then e.state_name \
                when e.terminal_at is not null then 'rejected' else 'executing' end as status \
    from legacy_intent l left join execution e on e.reference = l.reference \
    where l.partner_id = $1 and l.livemode = $2) ";

pub async fn find(
    conn: &mut PgConnection,
    tenant: &Tenant,
    intent_id: &str,
) -> Result<Option<LegacyIntentRow>, StoreError> {
    // The text is a constant of this module.
    let sql = sqlx::AssertSqlSafe(format!(
        "{SEEN} select intent_id, request, status, client_ref, reference, code, created_at, updated_at \
         from seen where intent_id = $3"
    ));
    statement::find(conn, sql, (&tenant.partner_id, tenant.livemode, intent_id)).await
}

const FILTERED: &str = "from seen where ($3::text is null or status = $3) and ($4::text is null or strategy = $4) \
    and ($5::timestamptz is null or created_at >= $5) and ($6::timestamptz is null or created_at < $6)";

/// A page of orders, newest first.
pub async fn list(
    conn: &mut PgConnection,
    tenant: &Tenant,
    filter: &LegacyFilter,
    offset: i64,
    limit: i64,
) -> Result<Vec<LegacyIntentRow>, StoreError> {
    // The texts are constants of this module.
    let sql = sqlx::AssertSqlSafe(format!(
        "{SEEN} select intent_id, request, status, client_ref, reference, code, created_at, updated_at \
         {FILTERED} order by created_at desc, intent_id desc offset $7 limit $8"
    ));
    let parameters = (
        &tenant.partner_id,
        tenant.livemode,
        filter.status.as_deref(),
        filter.strategy.as_deref(),
        filter.from,
        filter.until,
        offset,
        limit,
    );
    statement::list(conn, sql, parameters).await
}

/// The number of orders that match the filter.
pub async fn count(
    conn: &mut PgConnection,
    tenant: &Tenant,
    filter: &LegacyFilter,
) -> Result<i64, StoreError> {
    // The texts are constants of this module.
    let sql = sqlx::AssertSqlSafe(format!("{SEEN} select count(*) {FILTERED}"));
    let parameters = (
        &tenant.partner_id,
        tenant.livemode,
        filter.status.as_deref(),
        filter.strategy.as_deref(),
        filter.from,
        filter.until,
    );
    statement::load_value(conn, sql, parameters).await
}

/// The recipient of a partner's outputs of an asset.
pub async fn find_instruction(
    conn: &mut PgConnection,
    tenant: &Tenant,
    asset: &str,
) -> Result<Option<String>, StoreError> {
    let sql =
        "select account from settlement_instruction where partner_id = $1 and livemode = $2 and asset = $3";
    statement::find_value(conn, sql, (&tenant.partner_id, tenant.livemode, asset)).await
}

/// The operator who sets a standing instruction.
#[derive(Debug, Clone, Copy)]
pub struct InstructedBy<'a> {
    pub operator: &'a str,
    pub reason: &'a str,
    /// The request that another operator approved.
    pub approval: Option<&'a str>,
}

/// Sets the recipient of a partner's outputs of an asset. The database keeps the one before, and appends the change to the
/// audit log.
pub async fn upsert_instruction(
    conn: &mut PgConnection,
    tenant: &Tenant,
    asset: &str,
    account: &str,
    by: InstructedBy<'_>,
) -> Result<(), StoreError> {
    let sql = "insert into settlement_instruction (partner_id, livemode, asset, account, operator, reason, \
         approval, set_at) values ($1, $2, $3, $4, $5, $6, $7, clock_timestamp()) \
         on conflict on constraint settlement_instruction_pkey do update \
         set account = excluded.account, operator = excluded.operator, reason = excluded.reason, \
             approval = excluded.approval, set_at = excluded.set_at";
    let parameters =
        (&tenant.partner_id, tenant.livemode, asset, account, by.operator, by.reason, by.approval);
    statement::execute(conn, sql, parameters).await
}

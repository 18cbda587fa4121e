//! The state of the indexers, for operators: written by the owner of a chain's lease.
//!
//! Invariant: no decision depends on these rows. Whether a chain is halted is stored in the cursor.

use super::{bigint, unsigned};
use crate::{StoreError, known, statement};
use chrono::{DateTime, Utc};
use dvp_domain::chain::BlockNumber;
use dvp_domain::names::names;
use dvp_domain::text::{TEXT_MAX, clean};
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Row};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IndexerState {
    /// Reading old blocks in ranges.
    Backfilling(Backfill),
    /// At the head, or approaching it block by block.
    Following,
    /// Stalled because a block cannot be proven or an endpoint cannot be reached; it retries automatically.
    Holding { reason: String },
    /// Halted until an operator resumes it.
    Halted { reason: String },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Backfill {
    /// The block it began after.
    pub from: BlockNumber,
    /// The block it goes to, as far as is known.
    pub to: BlockNumber,
    /// Events read since it began.
    pub events: u64,
}

impl IndexerState {
    const fn name(&self) -> StateName {
        match self {
            Self::Backfilling(_) => StateName::Backfilling,
            Self::Following => StateName::Following,
            Self::Holding { .. } => StateName::Holding,
            Self::Halted { .. } => StateName::Halted,
        }
    }
}

names! {
    /// An [`IndexerState`] without its data.
    pub enum StateName {
        Backfilling = "backfilling",
        Following = "following",
        Holding = "holding",
        Halted = "halted",
    }
}

/// A chain's state, with the cursor's numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatusRow {
    pub chain_id: u64,
    pub name: String,
    pub state: StateName,
    pub reason: Option<String>,
    pub halted_at: Option<DateTime<Utc>>,
    /// Seconds in this state.
    pub state_seconds: u64,
    /// Seconds since the indexer's last report.
    pub silent_seconds: u64,
    /// As last reported, and never below the last block read.
    pub node_head: BlockNumber,
    pub node_final: BlockNumber,
    pub indexed_head: BlockNumber,
    pub indexed_final: BlockNumber,
    pub backfill: Option<Backfill>,
    pub backfill_seconds: Option<u64>,
    /// Facts that were consumed and whose block was reverted.
    pub retracted_facts: u64,
    /// Fills at the payout gate.
    pub fills_waiting: u64,
}

impl StatusRow {
    /// Events a second since the backfill began.
    #[must_use]
    pub fn events_per_second(&self) -> Option<u64> {
        let seconds = self.backfill_seconds?.max(1);
        Some(self.backfill.as_ref()?.events / seconds)
    }

    /// The remaining time of the backfill at its present rate; `None` before there is a rate.
    #[must_use]
    pub fn seconds_left(&self) -> Option<u64> {
        let backfill = self.backfill.as_ref()?;
        let done = self.indexed_head.blocks_above(backfill.from);
        let left = backfill.to.blocks_above(self.indexed_head);
        left.saturating_mul(self.backfill_seconds?).checked_div(done)
    }
}

/// Records a chain's state. A continuing backfill keeps its start time.
pub async fn report_status(
    conn: &mut PgConnection,
    chain_id: u64,
    name: &str,
    state: &IndexerState,
    node: (BlockNumber, BlockNumber),
) -> Result<(), StoreError> {
    let backfill = match state {
        IndexerState::Backfilling(backfill) => Some(backfill),
        IndexerState::Following | IndexerState::Holding { .. } | IndexerState::Halted { .. } => None,
    };
    let reason = match state {
        IndexerState::Holding { reason } | IndexerState::Halted { reason } => Some(clean(reason, TEXT_MAX)),
        IndexerState::Backfilling(_) | IndexerState::Following => None,
    };
    let sql =
        "insert into chain_status as old (chain_id, name, state, reason, node_head, node_final, backfill_from,
                                          backfill_to, backfill_events, backfill_started_at)
         values ($1, $2, $3, $4, $5, $6, $7, $8, $9, case when $7::bigint is not null then clock_timestamp() end)
         on conflict on constraint chain_status_pkey do update
         set name = excluded.name, state = excluded.state, reason = excluded.reason,
             node_head = excluded.node_head, node_final = excluded.node_final,
             since = case when old.state = excluded.state then old.since else clock_timestamp() end,
             backfill_from = excluded.backfill_from, backfill_to = excluded.backfill_to,
             backfill_events = excluded.backfill_events,
             backfill_started_at = case when old.backfill_from = excluded.backfill_from
                                        then old.backfill_started_at else excluded.backfill_started_at end,
             updated_at = clock_timestamp()";
    let parameters = (
        bigint(chain_id),
        name,
        state.name().as_str(),
        reason,
        bigint(node.0.0),
        bigint(node.1.0),
        backfill.map(|backfill| bigint(backfill.from.0)),
        backfill.map(|backfill| bigint(backfill.to.0)),
        backfill.map(|backfill| bigint(backfill.events)),
    );
    statement::execute(conn, sql, parameters).await
}

/// Every chain that was ever followed, by id.
pub async fn list_statuses(conn: &mut PgConnection) -> Result<Vec<StatusRow>, StoreError> {
    let sql = "select status.chain_id, status.name, status.node_head, status.node_final,
                case when cursor.halted is not null then 'halted' else status.state end as state,
                coalesce(cursor.halted || ': ' || cursor.halted_detail, status.reason) as reason,
                cursor.halted_at,
                extract(epoch from clock_timestamp() - status.since)::bigint as state_seconds,
                extract(epoch from clock_timestamp() - status.updated_at)::bigint as silent_seconds,
                extract(epoch from clock_timestamp() - status.backfill_started_at)::bigint as backfill_seconds,
                status.backfill_from, status.backfill_to, status.backfill_events,
                cursor.head_number, cursor.final_number,
                (select count(*) from chain_fact fact
                 where fact.chain_id = status.chain_id and fact.retracted_at is not null
                   and fact.consumed_at is not null) as retracted_facts,
                (select count(*) from chain_fact fact
                 where fact.chain_id = status.chain_id and fact.gate is not null and fact.retracted_at is null
                   and fact.consumed_at is null) as fills_waiting
         from chain_status status
         join chain_cursor cursor on cursor.chain_id = status.chain_id
         order by status.chain_id";
    let rows = statement::list_rows(conn, sql, ()).await?;
    rows.iter().map(status_row).collect()
}

fn status_row(row: &PgRow) -> Result<StatusRow, StoreError> {
    let table = "chain_status";
    let number = |column: &str| -> Result<u64, StoreError> { unsigned(table, row.try_get(column)?) };
    let block = |column: &str| number(column).map(BlockNumber);
    let maybe = |column: &str| -> Result<Option<u64>, StoreError> {
        row.try_get::<Option<i64>, _>(column)?.map(|number| unsigned(table, number)).transpose()
    };
    let backfill = match (maybe("backfill_from")?, maybe("backfill_to")?, maybe("backfill_events")?) {
        (Some(from), Some(to), Some(events)) => {
            Some(Backfill { from: BlockNumber(from), to: BlockNumber(to), events })
        }
        _ => None,
    };
    Ok(StatusRow {
        chain_id: number("chain_id")?,
        name: row.try_get("name")?,
        state: known(table, row.try_get("state")?, StateName::parse)?,
        reason: row.try_get("reason")?,
        halted_at: row.try_get("halted_at")?,
        state_seconds: number("state_seconds")?,
        silent_seconds: number("silent_seconds")?,
        node_head: block("node_head")?.max(block("head_number")?),
        node_final: block("node_final")?.max(block("final_number")?),
        indexed_head: block("head_number")?,
        indexed_final: block("final_number")?,
        backfill,
        backfill_seconds: maybe("backfill_seconds")?,
        retracted_facts: number("retracted_facts")?,
        fills_waiting: number("fills_waiting")?,
    })
}

//! `chain_fact`, the queue from the indexer to the engine: only this module and its children write the table. Facts
//! are inserted and retracted here, held back in `gates`, and consumed in `open`.
//!
//! Invariant: a fact exists for every canonical event at the confirmation depth of an entity with a command, and for no
//! other event; a consumed `created` fact that is reverted is followed by a `lock_lost`, a `filled` one by a
//! `fill_lost`, and the `transferred` of a payment for a lock on another chain by a `transfer_lost`, whichever of the
//! two commits first. A command is committed before its transaction reaches the chain, so
//! an event without a command is a foreign use of the contracts: it is stored, and reconciliation lists it. When a
//! command was inserted after its events, as from a backup, [`publish_late_events`] inserts its missing facts.
//!
//! An event under the id of another chain's order is foreign, too.
//!
//! Kept by `chain-indexer/tests/it/bulk.rs::an_event_without_a_command_becomes_a_fact_with_its_command` and
//! `core/tests/it/chains.rs::a_payment_or_a_lock_under_the_id_of_another_chains_order_is_foreign`.

mod gates;
pub mod open;

pub use gates::{
    Gate, GatedKind, Heights, NewFill, PassableFill, WaitingFill, WaitingFills, count_waiting_fills,
    lift_gates, list_new_fills, list_passable_fills, list_waiting_fills, reset_gates, set_gates,
};

use super::relay::{self, CommandRow};
use super::{bigint, block, hash, unsigned};
use crate::{StoreError, statement};
use alloy::primitives::B256;
use dvp_domain::chain::{BlockNumber, ChainFact};
use dvp_domain::text::{TEXT_MAX, clean};
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, PgTransaction, Row};

/// A new fact, with its order if that is known.
#[derive(Debug, Clone)]
pub struct Emitted {
    pub entity: B256,
    pub kind: String,
    pub block_number: BlockNumber,
    pub tx_hash: B256,
    pub intent_id: Option<String>,
    pub reference: Option<String>,
}

#[derive(Debug, Clone, Default)]
pub struct DerivedFacts {
    /// The inserted facts, in the order of their events.
    pub facts: Vec<Emitted>,
    /// Events of entities without a command.
    pub foreign: u64,
}

/// The inserted facts, in order, each with its order.
macro_rules! giving {
    ($insert:literal) => {
        concat!(
            "with emitted as (",
            $insert,
            " returning id, entity, kind, block_number, tx_hash
             )
             select emitted.entity, emitted.kind, emitted.block_number, emitted.tx_hash, command.intent_id,
                    command.reference
             from emitted
             left join lateral (
                 select intent_id, reference from chain_command where entity = emitted.entity order by id limit 1
             ) command on true
             order by emitted.id"
        )
    };
}

/// Publishes the events of canonical blocks above `after` up to `up_to`: inserts their facts for the engine, and
/// completes the commands that requested them, but for those of lock ends that wait at the gate.
pub async fn publish_events(
    tx: &mut PgTransaction<'_>,
    chain_id: u64,
    after: BlockNumber,
    up_to: BlockNumber,
) -> Result<DerivedFacts, StoreError> {
    let derived = emit_facts(tx, chain_id, after, up_to).await?;
    relay::complete_commands(tx, chain_id, after, up_to).await?;
    Ok(derived)
}

/// Publishes events for open commands that came into the database after their events were read.
pub async fn publish_late_events(
    tx: &mut PgTransaction<'_>,
    chain_id: u64,
) -> Result<Vec<Emitted>, StoreError> {
    let late = emit_late_facts(tx, chain_id, None).await?;
    relay::complete_late_commands(tx, chain_id, None).await?;
    Ok(late)
}

/// Completes an open command whose event was stored before the command was inserted, and inserts the facts of its entity
/// that are missing: the engine has forgotten them, as after a restore. `false`: no such event.
pub async fn complete_command(
    tx: &mut PgTransaction<'_>,
    chain_id: u64,
    id: i64,
) -> Result<bool, StoreError> {
    relay::hold_cursor(tx, chain_id).await?;
    let late = emit_late_facts(tx, chain_id, Some(id)).await?;
    for Emitted { reference, kind, tx_hash, .. } in &late {
        tracing::warn!(chain_id, reference, kind, %tx_hash, "chain fact inserted late: its command had been missing");
    }
    Ok(relay::complete_late_commands(tx, chain_id, Some(id)).await? > 0)
}

/// Inserts the facts of canonical blocks above `after` up to `up_to`, and notifies the engine. Existing facts (by block
/// hash and log index) are not inserted again. A fact that was retracted with its block becomes valid again; a lock or
/// a fill is then inserted again, because its loss was reported; any other only when another branch had reported the
/// same event of its entity. The fill of a command, the end of its lock and the payment for a lock on another
/// chain begin at the payout gate.
async fn emit_facts(
    tx: &mut PgTransaction<'_>,
    chain_id: u64,
    after: BlockNumber,
    up_to: BlockNumber,
) -> Result<DerivedFacts, StoreError> {
    let sql = "select count(*),
                count(*) filter (where expecting and exists (
                    select from chain_command where entity = log.entity and chain_id + 0 = log.chain_id))
         from chain_log log, (select exists (select from chain_command)) any_command (expecting)
         where chain_id = $1 and canonical and fact is not null and block_number > $2 and block_number <= $3";
    let (all, ours): (i64, i64) =
        statement::load(tx, sql, (bigint(chain_id), bigint(after.0), bigint(up_to.0))).await?;
    let foreign = unsigned("chain_log", all - ours)?;
    if ours == 0 {
        return Ok(DerivedFacts { facts: Vec::new(), foreign });
    }
    let sql = giving!(
        "insert into chain_fact (chain_id, entity, kind, payload, block_number, block_hash, block_time, tx_hash,
                                 log_index, gate)
         select chain_id, entity, fact ->> 'kind', fact, block_number, block_hash, block_time, tx_hash, log_index,
                case when fact ->> 'kind' in ('filled', 'transferred', 'settled', 'cancelled', 'refunded')
                          and chain_is_gated(log.chain_id, log.entity, fact ->> 'kind') then 'new' end
         from chain_log log
         where chain_id = $1 and canonical and fact is not null and block_number > $2 and block_number <= $3
           and exists (select from chain_command where entity = log.entity and chain_id + 0 = log.chain_id)
         order by block_number, log_index
         on conflict on constraint chain_fact_log_key do update
         set retracted_at = null, turn = nextval('chain_fact_turn'), gate = excluded.gate, gate_number = null,
             consumed_at = case when chain_fact.kind in ('created', 'filled') and chain_fact.differs is null
                                    or exists (
                 select from chain_fact other
                 where other.chain_id = $1 and other.entity = chain_fact.entity and other.kind = chain_fact.kind
                   and other.id > chain_fact.id and other.consumed_at is not null
             ) then null else chain_fact.consumed_at end
         where chain_fact.retracted_at is not null"
    );
    let rows = statement::list_rows(tx, sql, (bigint(chain_id), bigint(after.0), bigint(up_to.0))).await?;
    Ok(DerivedFacts { facts: given(tx, &rows).await?, foreign })
}

/// Inserts the facts of open commands that are missing because the commands did not exist when their events were read.
/// The facts of open commands, or of one, whose events were read before the command was inserted.
async fn emit_late_facts(
    tx: &mut PgTransaction<'_>,
    chain_id: u64,
    command: Option<i64>,
) -> Result<Vec<Emitted>, StoreError> {
    let sql = giving!(
        "insert into chain_fact (chain_id, entity, kind, payload, block_number, block_hash, block_time, tx_hash,
                                 log_index, gate)
         select log.chain_id, log.entity, fact ->> 'kind', fact, log.block_number, block_hash, block_time,
                tx_hash, log_index,
                case when fact ->> 'kind' in ('filled', 'transferred', 'settled', 'cancelled', 'refunded')
                          and chain_is_gated(log.chain_id, log.entity, fact ->> 'kind') then 'new' end
         from chain_log log
         join chain_cursor cursor on cursor.chain_id = log.chain_id and log.block_number <= cursor.facts_number
         where log.chain_id = $1 and log.canonical and log.fact is not null
           and log.entity in (
               select entity from chain_command
               where chain_id = $1 and state in ('pending', 'sent') and ($2::bigint is null or id = $2)
           )
         order by log.block_number, log_index
         on conflict on constraint chain_fact_log_key do nothing"
    );
    let rows = statement::list_rows(tx, sql, (bigint(chain_id), command)).await?;
    given(tx, &rows).await
}

/// Notifies the engine if there is a new fact.
async fn given(tx: &mut PgTransaction<'_>, rows: &[PgRow]) -> Result<Vec<Emitted>, StoreError> {
    if !rows.is_empty() {
        notify_facts(tx).await?;
    }
    let table = "chain_fact";
    rows.iter()
        .map(|row| {
            Ok(Emitted {
                entity: hash(table, row.try_get("entity")?)?,
                kind: row.try_get("kind")?,
                block_number: block(table, row.try_get("block_number")?)?,
                tx_hash: hash(table, row.try_get("tx_hash")?)?,
                intent_id: row.try_get("intent_id")?,
                reference: row.try_get("reference")?,
            })
        })
        .collect()
}

/// Retracts the facts of blocks above a number. For a consumed lock, fill or payment for a lock on another chain the loss
/// is inserted, and the engine notified.
pub(super) async fn retract_above(
    tx: &mut PgTransaction<'_>,
    chain_id: u64,
    number: BlockNumber,
) -> Result<(), StoreError> {
    let sql = "with retracted as (
             update chain_fact set retracted_at = clock_timestamp()
             where chain_id = $1 and block_number > $2 and retracted_at is null
             returning entity, kind, tx_hash, consumed_at, differs
         )
         insert into chain_fact (chain_id, entity, kind, payload, tx_hash)
         select $1, entity, lost.kind, jsonb_build_object('kind', lost.kind), tx_hash
         from retracted join (values ('filled', 'fill_lost'), ('created', 'lock_lost'),
                                     ('transferred', 'transfer_lost')) lost (reported, kind)
              on lost.reported = retracted.kind
         where consumed_at is not null and differs is null
           and (retracted.kind <> 'transferred' or chain_is_gated($1, entity, retracted.kind))
         order by lost.kind";
    let lost = statement::affected(tx, sql, (bigint(chain_id), bigint(number.0))).await?;
    if lost > 0 {
        notify_facts(tx).await?;
    }
    Ok(())
}

/// A refund that follows from a cancel is reported by the cancel. When the cancel was missing at first and was added
/// later, the refund's fact is retracted.
pub async fn retract_refunds_of_cancels(tx: &mut PgTransaction<'_>, chain_id: u64) -> Result<(), StoreError> {
    let sql = "with reported as (
             update chain_log refund set fact = null
             from chain_log cancel
             where refund.chain_id = $1 and refund.canonical and refund.event = 'Refunded' and refund.fact is not null
               and cancel.chain_id = $1 and cancel.canonical and cancel.event = 'Cancelled'
               and cancel.entity = refund.entity and cancel.tx_hash = refund.tx_hash
             returning refund.block_hash, refund.log_index
         )
         update chain_fact fact set retracted_at = clock_timestamp()
         from reported
         where fact.chain_id = $1 and fact.block_hash = reported.block_hash and fact.log_index = reported.log_index
           and fact.retracted_at is null";
    statement::execute(tx, sql, (bigint(chain_id),)).await
}

/// A fact without an event.
pub async fn insert_fact(
    tx: &mut PgTransaction<'_>,
    chain_id: u64,
    entity: B256,
    fact: &ChainFact,
) -> Result<(), StoreError> {
    let mut fact = fact.clone();
    // It may be a node's or a token's text.
    if let ChainFact::CommandFailed { message, .. } = &mut fact {
        *message = clean(message, TEXT_MAX);
    }
    let payload = serde_json::to_value(fact).map_err(|error| StoreError::corrupt("chain_fact", error))?;
    let sql = "insert into chain_fact (chain_id, entity, kind, payload) values ($1, $2, $3 ->> 'kind', $3)";
    statement::execute(tx, sql, (bigint(chain_id), entity.as_slice(), payload)).await?;
    notify_facts(tx).await
}

/// Marks a command as failed permanently and inserts the fact. `false`: it was not open any more, or it is a payment
/// that was signed since `command` was read, and what refused it does not prove that it is never included.
pub async fn fail_command(
    tx: &mut PgTransaction<'_>,
    chain_id: u64,
    command: &CommandRow,
    fact: &ChainFact,
) -> Result<bool, StoreError> {
    let sql = "update chain_command
         set state = 'failed', done_at = now()
         where id = $1 and state = 'pending'
           and ($2 or kind <> 'transfer' or not exists (select from slot_command where command_id = $1))";
    let failed = statement::affected(tx, sql, (command.id, command.was_signed)).await?;
    if failed == 0 {
        return Ok(false);
    }
    insert_fact(tx, chain_id, command.entity, fact).await?;
    Ok(true)
}

async fn notify_facts(conn: &mut PgConnection) -> Result<(), StoreError> {
    statement::execute(conn, "select pg_notify('dvp_facts', '')", ()).await
}

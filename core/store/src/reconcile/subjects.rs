//! Executions with their stored events, page by page, and events without an execution.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use dvp_domain::canonical::hex32;
use dvp_domain::money::Minor;
use dvp_domain::recall::RecallStatus;
use dvp_domain::receipt;
use dvp_domain::reconcile::{
    Anchored, BankWord, Booked, OnChain, OpenRecall, Receipted, StoredEvents, Subject,
};
use serde::Deserialize;
use serde_json::Value;
use sqlx::{AssertSqlSafe, PgConnection, PgPool, PgTransaction};

use crate::{StoreError, known, statement};
use dvp_domain::chain::ChainFact;

/// The scope of a run.
#[derive(Debug, Clone, Copy)]
pub struct Scope {
    pub chain_id: i64,
    /// Events up to here have been reported to executions.
    pub facts_number: i64,
    /// The final block at which the contracts are queried.
    pub block_number: i64,
    /// Events up to this block agreed before, and what they have left open is stored. `None`: the whole history is read.
    pub since: Option<i64>,
    /// Executions that ended before, and have nothing open on the chain, are skipped.
    pub ended_since: DateTime<Utc>,
}

/// A page of subjects, without those that cannot be read.
#[derive(Debug)]
pub struct SubjectPage<L> {
    pub subjects: Vec<Subject>,
    /// What cannot be read, and why.
    pub unread: Vec<(String, String)>,
    /// The last one read or not. `None`: there is none after the one before.
    pub last: Option<L>,
}

impl<L> SubjectPage<L> {
    fn of(read: impl Iterator<Item = (String, Result<Subject, StoreError>)>, last: Option<L>) -> Self {
        let (mut subjects, mut unread) = (Vec::new(), Vec::new());
        for (name, subject) in read {
            match subject {
                Ok(subject) => subjects.push(subject),
                Err(error) => unread.push((name, error.to_string())),
            }
        }
        Self { subjects, unread, last }
    }
}

/// A read-only transaction with one snapshot. It stays open while the chain is queried, which may take minutes; it
/// locks no row.
pub async fn snapshot(pool: &PgPool) -> Result<PgTransaction<'static>, StoreError> {
    let mut tx = pool.begin_with("begin isolation level repeatable read read only").await?;
    statement::execute(&mut tx, "set local idle_in_transaction_session_timeout = '5min'", ()).await?;
    Ok(tx)
}

#[derive(Deserialize)]
struct Event {
    event: String,
    number: i64,
    amount: Option<String>,
}

#[derive(sqlx::FromRow)]
struct Row {
    reference: String,
    entity: Vec<u8>,
    terms: Value,
    state: Value,
    changed_at: DateTime<Utc>,
    content_hash: Option<Vec<u8>>,
    body: Option<String>,
    anchor_tx: Option<Vec<u8>>,
    anchor_contract: Option<Vec<u8>>,
    failed_command: Option<String>,
    differing_fact: Option<String>,
    bank: Option<String>,
    with_bank_since: Option<DateTime<Utc>>,
    recall_status: Option<String>,
    recall_since: Option<DateTime<Utc>>,
    recall_contradicted: Option<bool>,
    is_locked_elsewhere: bool,
    events: Value,
}

/// Whether an execution `e` without commands, which it does not have yet or no longer, is one of the chain: its receipt
/// was anchored there, or one of its assets is a token of the chain. One that shows neither may be any chain's.
macro_rules! is_of_chain {
    () => {
        "((e.state #>> '{finality,chainId}')::int8 is not distinct from $1 \
          or coalesce((select bool_or(t.chain_id = $1) from chain_token t \
                       where t.asset in (e.terms #>> '{input,asset}', e.terms #>> '{output,asset}')), \
                      e.state #>> '{finality,chainId}' is null))"
    };
}

/// A page of executions after `after` by reference: those that have not ended or ended
/// lately, those with open funds in the escrow (`open`, ids), and those with a return, a contradiction or a recall
/// that is not resolved. Those of other chains are left out; one of two chains is read for each. The commands say
/// which: events may be foreign.
pub async fn list_booked(
    conn: &mut PgConnection,
    scope: &Scope,
    open: &[Vec<u8>],
    after: &str,
    limit: i64,
) -> Result<SubjectPage<String>, StoreError> {
    let sql = concat!(
        "with due as ( \
             select reference from execution where terminal_at is null and reference > $5 \
             union select reference from execution where terminal_at >= $4 and reference > $5 \
             union select reference from execution \
             where unresolved and reference > $5 \
             union select c.reference from chain_command c where c.entity = any($7) and c.reference > $5 \
             union select b.execution from bank_payment b \
             where b.contradicting is not null and b.closed_at is null and b.execution > $5 \
             union select c.execution from bank_recall c \
             where c.closed_at is null and c.execution > $5 \
               and (c.contradicting is not null \
                    or c.status in ('approved', 'sent', 'pending', 'accepted', 'unrequested'))), \
         page as ( \
             select reference from (select reference from due order by reference offset 0) due \
             where coalesce((select bool_or(c.chain_id = $1) from chain_command c \
                             where c.reference = due.reference), \
                            (select ",
        is_of_chain!(),
        "            from execution e where e.reference = due.reference)) \
             order by reference limit $6) \
         select e.reference, e.entity, e.terms, e.state, r.content_hash, r.body, \
                greatest(e.accepted_at, \
                    (select max(v.observed_at) from event_record v where v.reference = e.reference), \
                    (select max(greatest(c.created_at, c.done_at)) from chain_command c \
                     where c.reference = e.reference), \
                    (select max(f.consumed_at) from chain_fact f where f.entity = e.entity)) as changed_at, \
                a.tx_hash as anchor_tx, a.contract as anchor_contract, \
                (select c.kind from chain_command c where c.reference = e.reference and c.state = 'failed' \
                   and c.kind not in ('refund', 'return_filled') \
                 order by c.id limit 1) as failed_command, \
                (select f.differs from chain_fact f where f.entity = e.entity and f.differs is not null \
                   and f.retracted_at is null order by f.id limit 1) as differing_fact, \
                (select case when b.contradicting = 'paid' and b.debt_paid_at is not null then 'paid again' \
                             when b.contradicting = 'paid' and b.taken_back_at >= b.returned_at then 'taken back' \
                             else coalesce(b.contradicting, \
                                           case when b.status = 'paid' \
                                                  or b.status = 'refused' and b.debt_paid_at is null then b.status end) \
                        end \
                 from bank_payment b where b.execution = e.reference and b.closed_at is null limit 1) as bank, \
                (select b.ordered_at from bank_payment b where b.execution = e.reference \
                   and b.status in ('staged', 'sent', 'pending') limit 1) as with_bank_since, \
                recall.status as recall_status, recall.since as recall_since, \
                recall.is_contradicted as recall_contradicted, \
                coalesce((select bool_or(c.kind = 'create' and c.chain_id <> $1) from chain_command c \
                          where c.reference = e.reference), \
                         (select bool_and(t.chain_id <> $1) from chain_token t \
                          where t.asset = e.terms #>> '{input,asset}'), false) as is_locked_elsewhere, \
                (select coalesce(jsonb_agg(jsonb_build_object('event', l.event, 'number', l.block_number, \
                                                              'amount', l.fact ->> 'amount') \
                                           order by l.block_number, l.log_index), '[]') \
                 from chain_log l where l.chain_id = $1 and l.canonical and l.entity = e.entity \
                   and l.block_number <= greatest($2, $3)) as events \
         from page join execution e using (reference) \
         left join receipt r on r.reference = e.reference \
         left join lateral (select l.tx_hash, l.contract from chain_log l \
                            where l.chain_id = $1 and l.canonical and l.entity = r.content_hash \
                              and l.event = 'Anchored' and l.fact is not null and l.block_number <= $2 \
                            order by l.block_number, l.log_index limit 1) a on true \
         left join lateral (select c.status, c.contradicting is not null as is_contradicted, \
                                   case c.status when 'accepted' then c.answered_at \
                                                 else coalesce(c.sent_at, c.approved_at) end as since \
                            from bank_recall c \
                            where c.execution = e.reference and c.closed_at is null \
                              and (c.contradicting is not null \
                                   or c.status in ('approved', 'sent', 'pending', 'accepted', 'unrequested')) \
                            order by c.contradicting is null, c.approved_at limit 1) recall on true \
         order by e.reference",
    );
    let parameters =
        (scope.chain_id, scope.facts_number, scope.block_number, scope.ended_since, after, limit, open);
    let rows: Vec<Row> = statement::list(conn, sql, parameters).await?;
    let last = rows.last().map(|row| row.reference.clone());
    let read = rows.into_iter().map(|row| (row.reference.clone(), subject(row, scope)));
    Ok(SubjectPage::of(read, last))
}

fn subject(row: Row, scope: &Scope) -> Result<Subject, StoreError> {
    let corrupt = |error: serde_json::Error| StoreError::corrupt("execution", error);
    let hex = |bytes: &[u8]| format!("0x{}", hex::encode(bytes));
    let receipt = match (&row.content_hash, &row.body) {
        (Some(hash), Some(body)) => {
            let body = serde_json::from_str(body).map_err(|error| StoreError::corrupt("receipt", error))?;
            let anchor = row.anchor_tx.as_ref().zip(row.anchor_contract.as_ref());
            let anchor = anchor.map(|(tx, contract)| Anchored { tx_hash: hex(tx), contract: hex(contract) });
            Some(Receipted { content_hash: hex(hash), computed_hash: receipt::anchored_hash(&body), anchor })
        }
        _ => None,
    };
    let booked = Booked {
        terms: serde_json::from_value(row.terms).map_err(corrupt)?,
        state: serde_json::from_value(row.state).map_err(corrupt)?,
        is_locked_elsewhere: row.is_locked_elsewhere,
        changed_at: row.changed_at.into(),
        receipt,
        failed_command: row.failed_command,
        differing_fact: row.differing_fact,
        bank: row.bank.map(|word| match word.as_str() {
            "paid" => BankWord::Paid,
            "paid again" => BankWord::PaidAgain,
            "taken back" => BankWord::TakenBack,
            _ => BankWord::Refused,
        }),
        with_bank_since: row.with_bank_since.map(Into::into),
        recall: recall(row.recall_status.as_deref(), row.recall_since, row.recall_contradicted)?,
    };
    let kept = kept(row.events, scope)?;
    Ok(Subject { entity: entity(&row.entity)?, booked: Some(booked), kept, contracts: None })
}

fn recall(
    status: Option<&str>,
    since: Option<DateTime<Utc>>,
    is_contradicted: Option<bool>,
) -> Result<Option<OpenRecall>, StoreError> {
    let (Some(status), Some(since)) = (status, since) else { return Ok(None) };
    let status = known("bank_recall", status, RecallStatus::parse)?;
    Ok(Some(OpenRecall { status, since: since.into(), is_contradicted: is_contradicted.unwrap_or(false) }))
}

fn entity(bytes: &[u8]) -> Result<String, StoreError> {
    let bytes = <&[u8; 32]>::try_from(bytes).map_err(|error| StoreError::corrupt("chain_log", error))?;
    Ok(hex32(bytes))
}

fn kept(events: Value, scope: &Scope) -> Result<StoredEvents, StoreError> {
    let events: Vec<Event> =
        serde_json::from_value(events).map_err(|error| StoreError::corrupt("chain_log", error))?;
    let reported = |up_to: i64| {
        let reported = events.iter().filter(|event| event.number <= up_to);
        reported.fold(OnChain::default(), |state, event| state.after(&event.event))
    };
    let amount = |name: &str| -> Result<Option<Minor>, StoreError> {
        let reported = events.iter().find(|event| event.event == name && event.number <= scope.facts_number);
        let amount = reported.and_then(|event| event.amount.clone());
        amount
            .map(|amount| Minor::try_from(amount).map_err(|e| StoreError::corrupt("chain_log", e)))
            .transpose()
    };
    Ok(StoredEvents {
        now: reported(scope.facts_number),
        at_block: reported(scope.block_number),
        locked: amount("Created")?,
        paid: amount("Paid")?,
    })
}

/// Before every block.
const BEGINNING: i64 = -1;

/// Whether an id without commands on the chain is that of an execution of the chain whose commands are deleted.
const IS_PAST: &str = concat!(
    "exists (select from execution e where e.entity = seen.entity \
       and not exists (select from chain_command c where c.reference = e.reference) and ",
    is_of_chain!(),
    ")"
);

/// A statement that reads events after the scope's point. One that reads the whole history says so to the server's log.
fn since(scope: &Scope, statement: &'static str) -> AssertSqlSafe<String> {
    let (whole, is_past) = match scope.since {
        None => ("/* the whole history */ ", IS_PAST),
        // No index of executions has their ids on the chain; commands of late events are there.
        Some(_) => ("", "false"),
    };
    AssertSqlSafe(format!("{whole}{}", statement.replace("IS_PAST", is_past)))
}

/// Ids that are on the chain and that no execution has there, after `after`. Another chain's order has no events of its
/// id here: who has a relayer's key can make some.
pub async fn list_lone_entities(
    conn: &mut PgConnection,
    scope: &Scope,
    after: &[u8],
    limit: i64,
) -> Result<SubjectPage<Vec<u8>>, StoreError> {
    let sql = since(
        scope,
        "with seen as ( \
             select l.entity from chain_log l \
             where l.chain_id = $1 and l.canonical \
               and l.event in ('Created', 'Locked', 'Filled', 'Settled', 'Cancelled', 'Released', 'Refunded', 'Paid') \
               and l.block_number > $6 and l.block_number <= greatest($2, $3) and l.entity > $4 \
               and not exists (select from chain_command c where c.entity = l.entity and c.chain_id = $1) \
             union select o.entity from reconciliation_open o \
             where o.chain_id = $1 and o.kind = 'entity' and $6 >= 0 and o.entity > $4 \
               and not exists (select from chain_command c where c.entity = o.entity and c.chain_id = $1)), \
         lone as (select seen.entity from seen where not IS_PAST order by seen.entity limit $5) \
         select lone.entity, (select jsonb_agg(jsonb_build_object('event', l.event, 'number', l.block_number, \
                                                                  'amount', l.fact ->> 'amount') \
                                               order by l.block_number, l.log_index) \
                              from chain_log l where l.chain_id = $1 and l.canonical and l.entity = lone.entity \
                                and l.event in ('Created', 'Locked', 'Filled', 'Settled', 'Cancelled', 'Released', \
                                                'Refunded', 'Paid') \
                                and l.block_number <= greatest($2, $3)) as events \
         from lone order by lone.entity",
    );
    let parameters = (
        scope.chain_id,
        scope.facts_number,
        scope.block_number,
        after,
        limit,
        scope.since.unwrap_or(BEGINNING),
    );
    let rows: Vec<(Vec<u8>, Value)> = statement::list(conn, sql, parameters).await?;
    let last = rows.last().map(|(id, _)| id.clone());
    let read = rows.into_iter().map(|(id, events)| {
        let subject = || {
            let kept = kept(events, scope)?;
            Ok(Subject { entity: entity(&id)?, booked: None, kept, contracts: None })
        };
        (format!("0x{}", hex::encode(&id)), subject())
    });
    Ok(SubjectPage::of(read, last))
}

/// Hashes that one of the service's relayers anchored and no receipt has, after `after`, in order.
pub async fn list_lone_anchors(
    conn: &mut PgConnection,
    scope: &Scope,
    after: &[u8],
    limit: i64,
) -> Result<Vec<Vec<u8>>, StoreError> {
    let rows = sqlx::query_scalar(since(
        scope,
        "with seen as ( \
             select l.entity from chain_log l \
             where l.chain_id = $1 and l.canonical and l.event = 'Anchored' and l.fact is not null \
               and l.block_number > $5 and l.block_number <= $2 and l.entity > $3 \
             union select o.entity from reconciliation_open o \
             where o.chain_id = $1 and o.kind = 'anchor' and $5 >= 0 and o.entity > $3) \
         select entity from seen \
         where not exists (select from receipt r where r.content_hash = seen.entity) \
           and not exists (select from audit_anchor a where a.hash = seen.entity) \
         order by entity limit $4",
    ));
    let rows = rows.bind(scope.chain_id).bind(scope.facts_number).bind(after).bind(limit);
    Ok(rows.bind(scope.since.unwrap_or(BEGINNING)).fetch_all(conn).await?)
}

/// Ids with funds in the escrow at the final block, after `after`, in order.
pub async fn list_open_entities(
    conn: &mut PgConnection,
    scope: &Scope,
    after: &[u8],
    limit: i64,
) -> Result<Vec<Vec<u8>>, StoreError> {
    let sql = since(
        scope,
        "with locked as ( \
             select l.entity from chain_log l \
             where l.chain_id = $1 and l.canonical and l.event = 'Locked' \
               and l.block_number > $5 and l.block_number <= $2 and l.entity > $3 \
             union select o.entity from reconciliation_open o \
             where o.chain_id = $1 and o.kind = 'funds' and $5 >= 0 and o.entity > $3) \
         select l.entity from locked l \
         where not exists (select from chain_log o where o.chain_id = $1 and o.canonical and o.entity = l.entity \
                             and o.event in ('Released', 'Refunded') and o.block_number <= $2) \
         order by l.entity limit $4",
    );
    let parameters = (scope.chain_id, scope.block_number, after, limit, scope.since.unwrap_or(BEGINNING));
    statement::list_values(conn, sql, parameters).await
}

/// The data of `Created` for each of these ids up to the final block, by id. `None`: it cannot be read.
pub async fn list_lock_facts(
    conn: &mut PgConnection,
    scope: &Scope,
    entities: &[Vec<u8>],
) -> Result<HashMap<Vec<u8>, Option<ChainFact>>, StoreError> {
    let sql = "select l.entity, l.fact from chain_log l \
         where l.chain_id = $1 and l.canonical and l.event = 'Created' and l.fact is not null \
           and l.block_number <= $2 and l.entity = any($3)";
    let rows: Vec<(Vec<u8>, Value)> =
        statement::list(conn, sql, (scope.chain_id, scope.block_number, entities)).await?;
    Ok(rows.into_iter().map(|(id, fact)| (id, serde_json::from_value(fact).ok())).collect())
}

/// A contract's stored events up to the final block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContractCount {
    pub contract: Vec<u8>,
    pub last: u64,
    pub kept: u64,
}

pub async fn count_events(
    conn: &mut PgConnection,
    scope: &Scope,
    contracts: &[Vec<u8>],
) -> Result<Vec<ContractCount>, StoreError> {
    let sql = "select distinct requested.contract, coalesce(c.last_seq, 0), coalesce(c.kept, d.events, 0) \
         from unnest($2::bytea[]) as requested (contract) \
         left join reconciliation_count c on c.chain_id = $1 and c.contract = requested.contract and $3 >= 0 \
         left join chain_deleted d on d.chain_id = $1 and d.contract = requested.contract \
         order by requested.contract";
    let rows: Vec<(Vec<u8>, i64, i64)> =
        statement::list(conn, sql, (scope.chain_id, contracts, scope.since.unwrap_or(BEGINNING))).await?;
    let count = |number: i64| u64::try_from(number).map_err(|error| StoreError::corrupt("chain_log", error));
    let mut counts = Vec::with_capacity(rows.len());
    for (contract, last, kept) in rows {
        // Planned for each number (`persistent(false)`): for an unknown one the planner expects a third of the log to
        // follow it, and reads all of the log.
        let (last, added): (i64, i64) = sqlx::query_as(since(
            scope,
            "select coalesce(max(seq), $3), count(*) from chain_log \
             where chain_id = $1 and canonical and contract = $2 and seq > $3 and block_number <= $4",
        ))
        .bind(scope.chain_id)
        .bind(&contract)
        .bind(last)
        .bind(scope.block_number)
        .persistent(false)
        .fetch_one(&mut *conn)
        .await?;
        let kept = count(kept)?.checked_add(count(added)?);
        let kept = kept.ok_or_else(|| StoreError::corrupt("chain_log", "the count is out of range"))?;
        counts.push(ContractCount { contract, last: count(last)?, kept });
    }
    Ok(counts)
}

/// The newest canonical blocks up to the final one, newest first.
pub async fn list_final_blocks(
    conn: &mut PgConnection,
    scope: &Scope,
    limit: i64,
) -> Result<Vec<(i64, String)>, StoreError> {
    let sql = "select number, hash from chain_block where chain_id = $1 and canonical and number <= $2 \
         order by number desc limit $3";
    let rows: Vec<(i64, Vec<u8>)> =
        statement::list(conn, sql, (scope.chain_id, scope.block_number, limit)).await?;
    rows.into_iter().map(|(number, hash)| Ok((number, entity(&hash)?))).collect()
}

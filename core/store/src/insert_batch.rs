//! Inserts a batch's new rows in two statements: a statement costs as much as the rows of several orders.
//!
//! [`insert`] has the rows that no other batch waits for. [`append`] has those of which every batch changes the same:
//! balances, sums of the day, and the feed's counter, which is incremented last. From there to the commit no other
//! transaction can append, and positions become visible in order.
//!
//! So a reader of the feed never skips an event, and only the counter makes batches of other balances, in other
//! processes, wait.
//!
//! Kept by `core/tests/it/races.rs::no_interleaving_of_processes_reserves_more_than_the_balance`.

use std::sync::OnceLock;

use chrono::{DateTime, NaiveDate, Utc};
use dvp_domain::limit::LimitKey;
use dvp_domain::settlement::State;
use dvp_domain::terms::Terms;
use serde::Serialize;
use sqlx::postgres::PgArguments;
use sqlx::types::Json;
use sqlx::{Arguments as _, Encode, PgConnection, Postgres, Type};

use crate::StoreError;
use crate::chain::commands::{self, NewChainCommand};
use crate::ledger::{self, NewPosting};
use crate::operators::limits;
use crate::orders::effects::{Claimed, NewEffect};
use crate::orders::events::NewEvent;
use crate::orders::executions::{bytes20, bytes32};
use crate::orders::idempotency::{self, RETENTION_HOURS, Record};
use crate::orders::intents::{IntentRow, tenants};
use crate::orders::permits::PermitHold;
use crate::orders::receipts::NewReceipt;

/// The rows of orders. An accepted execution begins at version 1.
#[derive(Default)]
pub struct InsertBatch<'a> {
    pub intents: &'a [IntentRow<'a>],
    /// Terms, state, and the sequence of the last event.
    pub executions: &'a [(Terms, State, i64)],
    pub permits: &'a [PermitHold],
    pub effects: &'a [NewEffect],
    /// The claim's duration of those that are inserted as claimed.
    pub claim_secs: i32,
    /// Records of requests without an unexpired record; [`StoreError::Stale`] if there is one.
    pub records: &'a [Record],
    pub receipts: &'a [NewReceipt],
    /// Commands for the relayer, which is woken when the transaction commits. A second command of the same kind for
    /// an order is an error, unless the kind is repeatable.
    pub commands: &'a [NewChainCommand],
}

/// The rows of the ledger, of the limits' sums and of the feed.
#[derive(Default)]
pub struct AppendBatch<'a> {
    pub postings: &'a [NewPosting],
    /// The date (UTC) on which accepted orders count towards daily limits.
    pub day: NaiveDate,
    /// The amounts that they add to the sums of that day.
    pub counted: &'a [(LimitKey, String)],
    /// The signed amounts by which the sums of open orders change.
    pub opened: &'a [(LimitKey, String)],
    /// Events in the order of the feed. Their documents are JSON texts.
    pub events: &'a [NewEvent<String>],
}

impl InsertBatch<'_> {
    pub const fn is_empty(&self) -> bool {
        self.intents.is_empty()
            && self.executions.is_empty()
            && self.permits.is_empty()
            && self.effects.is_empty()
            && self.records.is_empty()
            && self.receipts.is_empty()
            && self.commands.is_empty()
    }
}

impl AppendBatch<'_> {
    pub const fn is_empty(&self) -> bool {
        self.postings.is_empty()
            && self.counted.is_empty()
            && self.opened.is_empty()
            && self.events.is_empty()
    }
}

/// Parameters have names here and get their numbers in the order in which they are bound.
const INSERT: &str = "\
with intents as ( \
    insert into intent (partner_id, livemode, intent_id, client_reference, reference, reason, request) \
    select * from unnest({intent.partner}::text[], {intent.livemode}::bool[], {intent.id}::text[], \
        {intent.client_reference}::text[], {intent.reference}::text[], {intent.reason}::text[], \
        {intent.request}::jsonb[]) \
    returning 1), \
executions as ( \
    insert into execution (reference, partner_id, livemode, intent_id, client_reference, entity, terms, state_name, \
                           state, last_sequence, accepted_at, version) \
    select r, p, l, i, c, e, t::json, n, s::jsonb, q, a, 1 \
    from unnest({execution.reference}::text[], {execution.partner}::text[], {execution.livemode}::bool[], \
        {execution.intent_id}::text[], {execution.client_reference}::text[], {execution.entity}::bytea[], \
        {execution.terms}::text[], {execution.state_name}::text[], {execution.state}::text[], \
        {execution.last_sequence}::int8[], {execution.accepted_at}::timestamptz[]) as u (r, p, l, i, c, e, t, n, s, q, a) \
    returning 1), \
permits as ( \
    insert into permit_use (chain_id, owner, nonce, token, amount, reference) \
    select c, o, n::numeric, t, a::numeric, r \
    from unnest({permit.chain_id}::int8[], {permit.owner}::text[], {permit.nonce}::text[], {permit.token}::text[], \
        {permit.amount}::text[], {permit.reference}::text[]) as u (c, o, n, t, a, r) returning 1), \
effects as ( \
    insert into effect (reference, kind, run_at, called, called_at, attempts, fence, claimed_until) \
    select r, k, a, c, case when c then now() end, c::int, c::int, \
           case when c then now() + make_interval(secs => {effect.claim_secs}) end \
    from unnest({effect.reference}::text[], {effect.kind}::text[], {effect.run_at}::timestamptz[], \
        {effect.claimed}::bool[]) as u (r, k, a, c) returning id, reference, kind, called), \
recorded as ( \
    insert into idempotency as i (partner_id, livemode, method, path, key, fingerprint, status, body) \
    select * from unnest({record.partner}::text[], {record.livemode}::bool[], {record.method}::text[], \
        {record.path}::text[], {record.key}::uuid[], {record.fingerprint}::bytea[], {record.status}::int[], \
        {record.body}::text[]) \
    on conflict on constraint idempotency_pkey do update \
    set fingerprint = excluded.fingerprint, status = excluded.status, body = excluded.body, accepted_at = now() \
    where i.accepted_at <= now() - make_interval(hours => {record.retention_hours}) returning 1), \
receipts as ( \
    insert into receipt (reference, body, content_hash, issued_at) \
    select * from unnest({receipt.reference}::text[], {receipt.body}::text[], {receipt.content_hash}::bytea[], \
        {receipt.issued_at}::timestamptz[]) returning 1), \
commanded as ( \
    insert into chain_command (chain_id, reference, intent_id, entity, escrow, kind, payload, trace, deposit_until) \
    select c, r, i, e, a, k, p, t, to_timestamp(d) \
    from unnest({command.chain_id}::int8[], {command.reference}::text[], {command.intent_id}::text[], \
        {command.entity}::bytea[], {command.escrow}::bytea[], {command.kind}::text[], {command.payload}::jsonb[], \
        {command.trace}::text[], {command.deposit_until}::int8[]) as new (c, r, i, e, a, k, p, t, d) returning 1) \
select (select count(*) from recorded), array(select id from effects where called), \
       array(select reference from effects where called), array(select kind from effects where called), now(), \
       case when exists (select from effects where not called) then pg_notify('dvp_work', '') end is null, \
       case when exists (select from commanded) then pg_notify('dvp_commands', '') end is null";

/// The last part reads the results of the others, so that it is executed last.
const APPEND: &str = "\
with posted as ( \
    insert into ledger_entry (reference, step, line, reason, owner_kind, owner, part, asset, amount) \
    select r, s, l, w, k, o, p, a, m::numeric \
    from unnest({posting.reference}::text[], {posting.step}::int8[], {posting.line}::int4[], \
        {posting.reason}::text[], {posting.kind}::text[], {posting.owner}::text[], {posting.part}::text[], \
        {posting.asset}::text[], {posting.amount}::text[]) as u (r, s, l, w, k, o, p, a, m) returning 1), \
counted as ( \
    insert into limit_usage as u (scope, target, asset, day, amount) \
    select s, t, a, {counted.day}, n::numeric \
    from unnest({counted.scope}::text[], {counted.target}::text[], {counted.asset}::text[], {counted.amount}::text[]) \
         as v (s, t, a, n) order by s, t, a \
    on conflict on constraint limit_usage_pkey do update set amount = u.amount + excluded.amount returning 1), \
opened as ( \
    insert into open_change (scope, target, asset, amount) \
    select s, t, a, n::numeric \
    from unnest({opened.scope}::text[], {opened.target}::text[], {opened.asset}::text[], {opened.amount}::text[]) \
         as v (s, t, a, n) returning 1), \
written as ( \
    select (select count(*) from posted) + (select count(*) from counted) + (select count(*) from opened) as others), \
bumped as ( \
    update feed_counter c set position = c.position + cardinality({event.id}::text[]) from written \
    where cardinality({event.id}::text[]) > 0 and written.others >= 0 \
    returning c.position - cardinality({event.id}::text[]) as base, pg_notify('dvp_feed', '')), \
appended as ( \
    insert into event (position, event_id, partner_id, livemode, reference, intent_id, client_reference, sequence, \
                       type, occurred_at, observed_at, object) \
    select bumped.base + u.n, u.id, u.partner, u.livemode, u.reference, u.intent, u.client, u.seq, u.type, \
           u.occurred, u.observed, u.object::json \
    from bumped, unnest({event.id}::text[], {event.partner}::text[], {event.livemode}::bool[], \
        {event.reference}::text[], {event.intent_id}::text[], {event.client_reference}::text[], \
        {event.sequence}::int8[], {event.type}::text[], {event.occurred_at}::timestamptz[], \
        {event.observed_at}::timestamptz[], {event.object}::text[]) with ordinality \
         as u (id, partner, livemode, reference, intent, client, seq, type, occurred, observed, object, n)) \
select from written";

/// The parameters of a statement, by name.
#[derive(Default)]
struct Parameters {
    names: Vec<&'static str>,
    values: PgArguments,
}

impl Parameters {
    fn bind<'q, T>(&mut self, name: &'static str, value: T) -> Result<(), StoreError>
    where
        T: Encode<'q, Postgres> + Type<Postgres>,
    {
        self.names.push(name);
        Ok(self.values.add(value).map_err(sqlx::Error::Encode)?)
    }

    /// The statement with `$1` in place of the name bound first, `$2` of the second, and so on.
    fn number(&self, statement: &str) -> String {
        self.names.iter().zip(1_u32..).fold(statement.to_owned(), |text, (name, at)| {
            text.replace(&format!("{{{name}}}"), &format!("${at}"))
        })
    }
}

/// Inserts the rows, and notifies the workers and the relayer at the commit. Returns the effects that were inserted as
/// claimed.
pub async fn insert(conn: &mut PgConnection, rows: &InsertBatch<'_>) -> Result<Vec<Claimed>, StoreError> {
    type Row = (i64, Vec<i64>, Vec<String>, Vec<String>, DateTime<Utc>, bool, bool);
    // The names and their order are the same in every call.
    static NUMBERED: OnceLock<String> = OnceLock::new();
    let (again, once): (Vec<_>, Vec<_>) = rows.commands.iter().partition(|new| new.command.is_repeatable());
    for command in again {
        commands::insert_again(conn, command).await?;
    }
    let parameters = parameters(rows, &once)?;
    let sql = NUMBERED.get_or_init(|| parameters.number(INSERT)).as_str();
    let (recorded, ids, references, kinds, now, ..): Row =
        sqlx::query_as_with(sql, parameters.values).fetch_one(conn).await?;
    if usize::try_from(recorded) != Ok(rows.records.len()) {
        return Err(StoreError::Stale { what: "idempotency record" });
    }
    let claimed = ids.into_iter().zip(references).zip(&kinds);
    claimed.map(|((id, reference), kind)| Claimed::at_insertion((id, reference, kind), now)).collect()
}

/// Inserts the rows and notifies the followers of the feed at the commit. Call it last in the transaction.
pub async fn append(conn: &mut PgConnection, rows: &AppendBatch<'_>) -> Result<(), StoreError> {
    static NUMBERED: OnceLock<String> = OnceLock::new();
    let parameters = appended(rows)?;
    let sql = NUMBERED.get_or_init(|| parameters.number(APPEND)).as_str();
    sqlx::query_with(sql, parameters.values).execute(conn).await?;
    Ok(())
}

fn appended(rows: &AppendBatch<'_>) -> Result<Parameters, StoreError> {
    let mut all = Parameters::default();
    bind_postings(&mut all, rows.postings)?;
    bind_sums(&mut all, rows)?;
    bind_events(&mut all, rows.events)?;
    Ok(all)
}

fn parameters(rows: &InsertBatch<'_>, once: &[&NewChainCommand]) -> Result<Parameters, StoreError> {
    let mut all = Parameters::default();
    bind_intents(&mut all, rows.intents)?;
    bind_executions(&mut all, rows.executions)?;
    bind_permits(&mut all, rows.permits)?;
    all.bind("effect.reference", column(rows.effects, |effect| effect.reference.as_str()))?;
    all.bind("effect.kind", column(rows.effects, |effect| effect.kind.as_str()))?;
    all.bind("effect.run_at", column(rows.effects, |effect| effect.run_at))?;
    all.bind("effect.claimed", column(rows.effects, |effect| effect.is_claimed))?;
    all.bind("effect.claim_secs", rows.claim_secs)?;
    bind_records(&mut all, rows.records)?;
    bind_receipts(&mut all, rows.receipts)?;
    bind_commands(&mut all, once)?;
    Ok(all)
}

fn column<'a, Row, Cell>(rows: &'a [Row], cell: impl FnMut(&'a Row) -> Cell) -> Vec<Cell> {
    rows.iter().map(cell).collect()
}

fn json(table: &'static str, document: &impl Serialize) -> Result<String, StoreError> {
    serde_json::to_string(document).map_err(|error| StoreError::corrupt(table, error))
}

fn bind_postings(all: &mut Parameters, postings: &[NewPosting]) -> Result<(), StoreError> {
    let columns = ledger::PostingColumns::of(postings);
    all.bind("posting.reference", columns.reference)?;
    all.bind("posting.step", columns.step)?;
    all.bind("posting.line", columns.line)?;
    all.bind("posting.reason", columns.reason)?;
    all.bind("posting.kind", columns.kind)?;
    all.bind("posting.owner", columns.owner)?;
    all.bind("posting.part", columns.part)?;
    all.bind("posting.asset", columns.asset)?;
    all.bind("posting.amount", columns.amount)?;
    Ok(())
}

fn bind_intents<'q>(all: &mut Parameters, rows: &'q [IntentRow<'q>]) -> Result<(), StoreError> {
    let (partners, modes) = tenants(rows.iter().map(|row| row.tenant));
    // An accepted intent's request is part of its execution's terms.
    let request = |row: &'q IntentRow<'q>| row.reference.is_none().then_some(Json(row.request));
    all.bind("intent.partner", partners)?;
    all.bind("intent.livemode", modes)?;
    all.bind("intent.id", column(rows, |row| row.request.intent_id.as_str()))?;
    all.bind("intent.client_reference", column(rows, |row| row.request.client_reference.as_deref()))?;
    all.bind("intent.reference", column(rows, |row| row.reference))?;
    all.bind("intent.reason", column(rows, |row| row.reason))?;
    all.bind("intent.request", column(rows, request))?;
    Ok(())
}

fn bind_executions(all: &mut Parameters, rows: &[(Terms, State, i64)]) -> Result<(), StoreError> {
    let mut documents = (Vec::new(), Vec::new(), Vec::new());
    for (terms, state, _) in rows {
        documents.0.push(bytes32(&terms.entity)?);
        documents.1.push(json("execution", terms)?);
        documents.2.push(json("execution", state)?);
    }
    all.bind("execution.reference", column(rows, |row| row.0.reference.as_str()))?;
    all.bind("execution.partner", column(rows, |row| row.0.partner_id.as_str()))?;
    all.bind("execution.livemode", column(rows, |row| row.0.livemode))?;
    all.bind("execution.intent_id", column(rows, |row| row.0.request.intent_id.as_str()))?;
    all.bind("execution.client_reference", column(rows, |row| row.0.request.client_reference.as_deref()))?;
    all.bind("execution.entity", documents.0)?;
    all.bind("execution.terms", documents.1)?;
    all.bind("execution.state_name", column(rows, |row| row.1.name()))?;
    all.bind("execution.state", documents.2)?;
    all.bind("execution.last_sequence", column(rows, |row| row.2))?;
    all.bind("execution.accepted_at", column(rows, |row| row.0.accepted_at.to_utc()))?;
    Ok(())
}

fn bind_permits(all: &mut Parameters, held: &[PermitHold]) -> Result<(), StoreError> {
    all.bind("permit.chain_id", column(held, |hold| hold.chain_id))?;
    all.bind("permit.owner", column(held, |hold| hold.owner.as_str()))?;
    all.bind("permit.nonce", column(held, |hold| hold.nonce.to_string()))?;
    all.bind("permit.token", column(held, |hold| hold.token.as_str()))?;
    all.bind("permit.amount", column(held, |hold| hold.amount.to_string()))?;
    all.bind("permit.reference", column(held, |hold| hold.reference.as_str()))?;
    Ok(())
}

fn bind_records(all: &mut Parameters, records: &[Record]) -> Result<(), StoreError> {
    let at = idempotency::columns(records.iter().map(|record| &record.id));
    all.bind("record.partner", at.partner)?;
    all.bind("record.livemode", at.livemode)?;
    all.bind("record.method", at.method)?;
    all.bind("record.path", at.path)?;
    all.bind("record.key", at.key)?;
    all.bind("record.fingerprint", column(records, |record| record.fingerprint.as_slice()))?;
    all.bind("record.status", column(records, |record| i32::from(record.response.status)))?;
    all.bind("record.body", column(records, |record| record.response.body.as_str()))?;
    all.bind("record.retention_hours", RETENTION_HOURS)?;
    Ok(())
}

fn bind_sums(all: &mut Parameters, rows: &AppendBatch<'_>) -> Result<(), StoreError> {
    let (scopes, targets, assets) = limits::columns(rows.counted.iter().map(|(key, _)| key));
    all.bind("counted.day", rows.day)?;
    all.bind("counted.scope", scopes)?;
    all.bind("counted.target", targets)?;
    all.bind("counted.asset", assets)?;
    all.bind("counted.amount", column(rows.counted, |(_, amount)| amount.as_str()))?;
    let (scopes, targets, assets) = limits::columns(rows.opened.iter().map(|(key, _)| key));
    all.bind("opened.scope", scopes)?;
    all.bind("opened.target", targets)?;
    all.bind("opened.asset", assets)?;
    all.bind("opened.amount", column(rows.opened, |(_, amount)| amount.as_str()))?;
    Ok(())
}

fn bind_receipts(all: &mut Parameters, receipts: &[NewReceipt]) -> Result<(), StoreError> {
    let hashes = receipts.iter().map(|(_, receipt, _)| bytes32(&receipt.content_hash));
    all.bind("receipt.reference", column(receipts, |(reference, ..)| reference.as_str()))?;
    all.bind("receipt.body", column(receipts, |(_, receipt, _)| receipt.body.to_string()))?;
    all.bind("receipt.content_hash", hashes.collect::<Result<Vec<_>, _>>()?)?;
    all.bind("receipt.issued_at", column(receipts, |(.., issued_at)| issued_at.to_utc()))?;
    Ok(())
}

fn bind_commands(all: &mut Parameters, new: &[&NewChainCommand]) -> Result<(), StoreError> {
    let mut documents = (Vec::new(), Vec::new(), Vec::new());
    for command in new {
        documents.0.push(bytes32(&command.entity)?);
        documents.1.push(commands::payload(command)?);
        documents.2.push(bytes20(&command.escrow)?);
    }
    all.bind("command.chain_id", column(new, |one| one.chain_id))?;
    all.bind("command.reference", column(new, |one| one.reference.as_str()))?;
    all.bind("command.intent_id", column(new, |one| one.intent_id.as_str()))?;
    all.bind("command.entity", documents.0)?;
    all.bind("command.escrow", documents.2)?;
    all.bind("command.kind", column(new, |one| one.command.kind().as_str()))?;
    all.bind("command.payload", documents.1)?;
    all.bind("command.trace", column(new, |one| one.trace.map(String::from)))?;
    all.bind("command.deposit_until", column(new, |one| one.command.deposit_by().map(u64::cast_signed)))?;
    Ok(())
}

fn bind_events(all: &mut Parameters, events: &[NewEvent<String>]) -> Result<(), StoreError> {
    all.bind("event.id", column(events, |event| event.event_id.as_str()))?;
    all.bind("event.partner", column(events, |event| event.tenant.partner_id.as_str()))?;
    all.bind("event.livemode", column(events, |event| event.tenant.livemode))?;
    all.bind("event.reference", column(events, |event| event.reference.as_str()))?;
    all.bind("event.intent_id", column(events, |event| event.intent_id.as_str()))?;
    all.bind("event.client_reference", column(events, |event| event.client_reference.as_deref()))?;
    all.bind("event.sequence", column(events, |event| event.sequence))?;
    all.bind("event.type", column(events, |event| event.kind.as_str()))?;
    all.bind("event.occurred_at", column(events, |event| event.occurred_at))?;
    all.bind("event.observed_at", column(events, |event| event.observed_at))?;
    all.bind("event.object", column(events, |event| event.object.as_str()))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(parameters: &Parameters, statement: &str) {
        for name in &parameters.names {
            assert!(statement.contains(&format!("{{{name}}}")), "{name}");
        }
        let numbered = parameters.number(statement);
        assert!(!numbered.contains('{'), "{numbered}");
    }

    #[test]
    fn the_parameters_of_each_statement_are_the_bound_ones() {
        check(&parameters(&InsertBatch::default(), &[]).unwrap(), INSERT);
        check(&appended(&AppendBatch::default()).unwrap(), APPEND);
    }
}

//! What a batch adds, in one statement: a statement costs as much as the rows of several orders, so a batch has one for
//! all its tables.
//!
//! The feed's counter is bumped after the rows of the other tables are in: from there to the commit nobody else can
//! append, and positions become visible in order.

use dvp_domain::settlement::State;
use dvp_domain::terms::Terms;
use serde::Serialize;
use sqlx::postgres::PgArguments;
use sqlx::query::QueryScalar;
use sqlx::types::Json;
use sqlx::{PgConnection, Postgres};

use crate::StoreError;
use crate::ledger::{self, NewPosting};
use crate::orders::effects::NewEffect;
use crate::orders::events::NewEvent;
use crate::orders::executions::bytes32;
use crate::orders::idempotency::{self, RETENTION_HOURS, Record};
use crate::orders::intents::{IntentRow, tenants};
use crate::orders::permits::PermitHold;

/// The rows to add. An accepted execution begins at version 1.
#[derive(Default)]
pub struct InsertBatch<'a> {
    pub postings: &'a [NewPosting],
    pub intents: &'a [IntentRow<'a>],
    /// Terms, state, and the sequence of the last event.
    pub executions: &'a [(Terms, State, i64)],
    pub chain_id: i64,
    pub permits: &'a [PermitHold],
    pub effects: &'a [NewEffect],
    /// Records of requests that have none that is live; [`StoreError::Stale`] when one has.
    pub records: &'a [Record],
    /// Events in the order of the feed. Their documents are JSON texts.
    pub events: &'a [NewEvent<String>],
}

impl InsertBatch<'_> {
    pub const fn is_empty(&self) -> bool {
        self.postings.is_empty()
            && self.intents.is_empty()
            && self.executions.is_empty()
            && self.permits.is_empty()
            && self.effects.is_empty()
            && self.records.is_empty()
            && self.events.is_empty()
    }
}

/// The statement's last part asks what the others have done, which carries them out before it.
const INSERT: &str = "\
with posted as ( \
    insert into ledger_entry (reference, step, line, reason, owner_kind, owner, part, asset, amount) \
    select r, s, l, w, k, o, p, a, m::numeric \
    from unnest($1::text[], $2::int8[], $3::int4[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], \
                $9::text[]) as u (r, s, l, w, k, o, p, a, m) returning 1), \
intents as ( \
    insert into intent (partner_id, livemode, intent_id, client_reference, reference, reason, request) \
    select * from unnest($10::text[], $11::bool[], $12::text[], $13::text[], $14::text[], $15::text[], $16::jsonb[]) \
    returning 1), \
executions as ( \
    insert into execution (reference, partner_id, livemode, intent_id, client_reference, entity, terms, state_name, \
                           state, last_sequence, accepted_at, version) \
    select r, p, l, i, c, e, t::json, n, s::jsonb, q, a, 1 \
    from unnest($17::text[], $18::text[], $19::bool[], $20::text[], $21::text[], $22::bytea[], $23::text[], \
                $24::text[], $25::text[], $26::int8[], $27::timestamptz[]) as u (r, p, l, i, c, e, t, n, s, q, a) \
    returning 1), \
permits as ( \
    insert into permit_use (chain_id, owner, nonce, token, amount, reference) \
    select $28, o, n::numeric, t, a::numeric, r \
    from unnest($29::text[], $30::text[], $31::text[], $32::text[], $33::text[]) as u (o, n, t, a, r) returning 1), \
effects as ( \
    insert into effect (reference, kind, run_at) \
    select * from unnest($34::text[], $35::text[], $36::timestamptz[]) returning 1), \
recorded as ( \
    insert into idempotency as i (partner_id, livemode, method, path, key, fingerprint, status, body) \
    select * from unnest($37::text[], $38::bool[], $39::text[], $40::text[], $41::uuid[], $42::bytea[], $43::int[], \
                         $44::text[]) \
    on conflict on constraint idempotency_pkey do update \
    set fingerprint = excluded.fingerprint, status = excluded.status, body = excluded.body, accepted_at = now() \
    where i.accepted_at <= now() - make_interval(hours => $45) returning 1), \
written as ( \
    select (select count(*) from posted) + (select count(*) from intents) + (select count(*) from executions) \
         + (select count(*) from permits) + (select count(*) from effects) as others, \
           (select count(*) from recorded) as records), \
bumped as ( \
    update feed_counter c set position = c.position + cardinality($46::text[]) from written \
    where cardinality($46::text[]) > 0 and written.others + written.records >= 0 \
    returning c.position - cardinality($46::text[]) as base, pg_notify('dvp_feed', '')), \
appended as ( \
    insert into event (position, event_id, partner_id, livemode, reference, intent_id, client_reference, sequence, \
                       type, occurred_at, observed_at, object) \
    select bumped.base + u.n, u.id, u.partner, u.livemode, u.reference, u.intent, u.client, u.seq, u.type, \
           u.occurred, u.observed, u.object::json \
    from bumped, unnest($46::text[], $47::text[], $48::bool[], $49::text[], $50::text[], $51::text[], $52::int8[], \
                        $53::text[], $54::timestamptz[], $55::timestamptz[], $56::text[]) with ordinality \
         as u (id, partner, livemode, reference, intent, client, seq, type, occurred, observed, object, n)) \
select written.records from written";

type Statement<'q> = QueryScalar<'q, Postgres, i64, PgArguments>;

/// Adds the rows and wakes those who follow the feed when the transaction commits. Call it last in the transaction.
pub async fn insert(conn: &mut PgConnection, rows: &InsertBatch<'_>) -> Result<(), StoreError> {
    let statement = bind_postings(sqlx::query_scalar(INSERT), rows.postings);
    let statement = bind_intents(statement, rows.intents);
    let statement = bind_executions(statement, rows.executions)?;
    let statement = bind_permits(statement.bind(rows.chain_id), rows.permits);
    let statement = statement
        .bind(column(rows.effects, |effect| effect.reference.as_str()))
        .bind(column(rows.effects, |effect| effect.kind.as_str()))
        .bind(column(rows.effects, |effect| effect.run_at));
    let statement = bind_records(statement, rows.records);
    let recorded = bind_events(statement, rows.events).fetch_one(conn).await?;
    if usize::try_from(recorded) == Ok(rows.records.len()) {
        Ok(())
    } else {
        Err(StoreError::Stale { what: "idempotency record" })
    }
}

fn column<'a, Row, Cell>(rows: &'a [Row], cell: impl FnMut(&'a Row) -> Cell) -> Vec<Cell> {
    rows.iter().map(cell).collect()
}

fn json(table: &'static str, document: &impl Serialize) -> Result<String, StoreError> {
    serde_json::to_string(document).map_err(|error| StoreError::corrupt(table, error))
}

fn bind_postings<'q>(statement: Statement<'q>, postings: &'q [NewPosting]) -> Statement<'q> {
    let all = ledger::PostingColumns::of(postings);
    statement
        .bind(all.reference)
        .bind(all.step)
        .bind(all.line)
        .bind(all.reason)
        .bind(all.kind)
        .bind(all.owner)
        .bind(all.part)
        .bind(all.asset)
        .bind(all.amount)
}

fn bind_intents<'q>(statement: Statement<'q>, rows: &'q [IntentRow<'q>]) -> Statement<'q> {
    let (partners, modes) = tenants(rows.iter().map(|row| row.tenant));
    // An accepted intent's request is in its execution's terms.
    let request = |row: &'q IntentRow<'q>| row.reference.is_none().then_some(Json(row.request));
    statement
        .bind(partners)
        .bind(modes)
        .bind(column(rows, |row| row.request.intent_id.as_str()))
        .bind(column(rows, |row| row.request.client_reference.as_deref()))
        .bind(column(rows, |row| row.reference))
        .bind(column(rows, |row| row.reason))
        .bind(column(rows, request))
}

fn bind_executions<'q>(
    statement: Statement<'q>,
    rows: &'q [(Terms, State, i64)],
) -> Result<Statement<'q>, StoreError> {
    let mut documents = (Vec::new(), Vec::new(), Vec::new());
    for (terms, state, _) in rows {
        documents.0.push(bytes32(&terms.entity)?);
        documents.1.push(json("execution", terms)?);
        documents.2.push(json("execution", state)?);
    }
    Ok(statement
        .bind(column(rows, |row| row.0.reference.as_str()))
        .bind(column(rows, |row| row.0.partner_id.as_str()))
        .bind(column(rows, |row| row.0.livemode))
        .bind(column(rows, |row| row.0.request.intent_id.as_str()))
        .bind(column(rows, |row| row.0.request.client_reference.as_deref()))
        .bind(documents.0)
        .bind(documents.1)
        .bind(column(rows, |row| row.1.name()))
        .bind(documents.2)
        .bind(column(rows, |row| row.2))
        .bind(column(rows, |row| row.0.accepted_at.to_utc())))
}

fn bind_permits<'q>(statement: Statement<'q>, held: &'q [PermitHold]) -> Statement<'q> {
    statement
        .bind(column(held, |hold| hold.owner.as_str()))
        .bind(column(held, |hold| hold.nonce.to_string()))
        .bind(column(held, |hold| hold.token.as_str()))
        .bind(column(held, |hold| hold.amount.to_string()))
        .bind(column(held, |hold| hold.reference.as_str()))
}

fn bind_records<'q>(statement: Statement<'q>, records: &'q [Record]) -> Statement<'q> {
    let at = idempotency::columns(records.iter().map(|record| &record.id));
    statement
        .bind(at.partner)
        .bind(at.livemode)
        .bind(at.method)
        .bind(at.path)
        .bind(at.key)
        .bind(column(records, |record| record.fingerprint.as_slice()))
        .bind(column(records, |record| i32::from(record.response.status)))
        .bind(column(records, |record| record.response.body.as_str()))
        .bind(RETENTION_HOURS)
}

fn bind_events<'q>(statement: Statement<'q>, events: &'q [NewEvent<String>]) -> Statement<'q> {
    statement
        .bind(column(events, |event| event.event_id.as_str()))
        .bind(column(events, |event| event.tenant.partner_id.as_str()))
        .bind(column(events, |event| event.tenant.livemode))
        .bind(column(events, |event| event.reference.as_str()))
        .bind(column(events, |event| event.intent_id.as_str()))
        .bind(column(events, |event| event.client_reference.as_deref()))
        .bind(column(events, |event| event.sequence))
        .bind(column(events, |event| event.kind.as_str()))
        .bind(column(events, |event| event.occurred_at))
        .bind(column(events, |event| event.observed_at))
        .bind(column(events, |event| event.object.as_str()))
}

//! Copies of orders: rows of the tables that an order writes, under new ids and times.
//!
//! Documents are stored once as patterns of `format`, so that a copy takes one pass over each: 1 the reference, 2 the
//! intent's id, 3 the id on the chain, 4 the wallet, 5 the receipt's hash.

use sqlx::{PgConnection, PgTransaction};

use super::templates::Template;
use super::{DAYS, Lot, run_all};

/// What the copies are made from, in temporary tables.
const PREPARE: &[&str] = &[
    "create function pg_temp.pattern(body text, reference text, intent text, entity text, wallet text, hash text) \
         returns text language sql immutable return \
         replace(replace(replace(replace(replace(replace(body, '%', '%%'), coalesce(reference, chr(1)), '%1$s'), \
                                         intent, '%2$s'), coalesce(entity, chr(1)), '%3$s'), wallet, '%4$s'), \
                 coalesce(hash, chr(1)), '%5$s')",
    "create temp table template as \
         select t.*, e.entity, encode(e.entity, 'hex') as entity_hex, encode(r.content_hash, 'hex') as hash_hex, \
                coalesce(e.accepted_at, i.created_at) as at, \
                (sum(t.share) over shares - t.share)::int as low, (sum(t.share) over shares)::int as high, \
                coalesce(e.state_name, 'rejected') as state_name, \
                coalesce(e.state_name in ('completed', 'reversed', 'payout_failed') \
                         and e.terms #>> '{output,asset}' in ('USD', 'EUR'), false) as pays_bank \
         from template_given t join intent i on i.partner_id = t.partner_id and i.intent_id = t.intent_id \
         left join execution e on e.reference = t.reference left join receipt r on r.reference = t.reference \
         window shares as (partition by t.is_open order by t.id)",
    "create temp table pattern_execution as \
         select t.id as template, e.livemode, e.state_name, e.version, e.last_sequence, e.last_occurred_at, \
                e.accepted_at, e.terminal_at, \
                pg_temp.pattern(e.terms::text, e.reference, e.intent_id, t.entity_hex, t.wallet, t.hash_hex) as terms, \
                pg_temp.pattern(e.state::text, e.reference, e.intent_id, t.entity_hex, t.wallet, t.hash_hex) as state \
         from template t join execution e using (reference)",
    "create temp table pattern_event as \
         select t.id as template, v.livemode, v.sequence, v.type, v.occurred_at, v.observed_at, \
                pg_temp.pattern(v.object::text, v.reference, v.intent_id, t.entity_hex, t.wallet, t.hash_hex) as object \
         from template t join event v using (reference)",
    "create temp table pattern_receipt as \
         select t.id as template, r.issued_at, \
                pg_temp.pattern(r.body, r.reference, t.intent_id, t.entity_hex, t.wallet, null) as body \
         from template t join receipt r using (reference)",
    "create temp table pattern_command as \
         select t.id as template, c.id as ordinal, c.chain_id, c.escrow, c.kind, c.entity = t.entity as has_entity, \
                case when t.is_open and not exists (select from chain_fact f where f.entity = c.entity \
                                                      and chain_goal_reached(c.kind, f.payload ->> 'kind')) \
                     then 'pending' else 'done' end as state, c.created_at, \
                pg_temp.pattern(c.payload::text, c.reference, t.intent_id, t.entity_hex, t.wallet, t.hash_hex) as payload \
         from template t join chain_command c using (reference)",
    "create temp table pattern_fact as \
         select t.id as template, f.chain_id, f.payload ->> 'kind' as kind, f.entity = t.entity as has_entity, \
                f.observed_at, f.id as ordinal, \
                pg_temp.pattern(f.payload::text, t.reference, t.intent_id, t.entity_hex, t.wallet, t.hash_hex) as payload \
         from template t join chain_fact f on f.entity = t.entity or f.entity = decode(t.hash_hex, 'hex')",
    "create temp table pattern_entry as \
         select t.id as template, l.step, l.line, l.reason, l.owner_kind, l.part, l.asset, l.amount, l.recorded_at, \
                pg_temp.pattern(l.owner, t.reference, t.intent_id, t.entity_hex, t.wallet, t.hash_hex) as owner \
         from template t join ledger_entry l using (reference)",
    "create temp table pattern_effect as \
         select t.id as template, f.kind, f.called, f.called_at, f.attempts, f.last_result \
         from template t join effect f using (reference) where t.is_open",
    // The copies of one transaction.
    "create temp table copy ( \
         n bigint primary key, template int, partner_id text, is_open boolean, state_name text, pays_bank boolean, \
         at timestamptz, shift interval, reference text, intent_id text, entity bytea, entity_hex text, wallet text, \
         receipt text, hash bytea, hash_hex text)",
    "analyze template, pattern_execution, pattern_event, pattern_receipt, pattern_command, pattern_fact, \
             pattern_entry, pattern_effect",
];

pub(super) async fn prepare(conn: &mut PgConnection, templates: &[Template]) -> anyhow::Result<()> {
    sqlx::query(
        "create temp table template_given (id int, partner_id text, reference text, intent_id text, wallet text, \
                                           share int, is_open boolean)",
    )
    .execute(&mut *conn)
    .await?;
    for (id, template) in (0_i32..).zip(templates) {
        sqlx::query("insert into template_given values ($1, $2, $3, $4, $5, $6, $7)")
            .bind(id)
            .bind(&template.partner_id)
            .bind(&template.reference)
            .bind(&template.intent_id)
            .bind(&template.wallet)
            .bind(template.share)
            .bind(template.is_open)
            .execute(&mut *conn)
            .await?;
    }
    run_all(conn, PREPARE).await
}

/// The copies `$1` to `$2`: of the templates that are open or not (`$3`), the first `$4` ago and the last `$5` ago, of
/// so many in all (`$6`, after `$7` others).
const COPY: &str = "insert into copy \
     with chosen as ( \
         select n, now() - make_interval(secs => $4 - ($4 - $5) * (n - $7)::float8 / $6) as at, \
                (n * 7919) % (select max(high) from template where is_open = $3) as place \
         from generate_series($1, $2) n), \
     named as ( \
         select c.n, t.id as template, t.partner_id, t.is_open, t.state_name, t.pays_bank, c.at, c.at - t.at as shift, \
                'exe_' || lpad(to_hex((extract(epoch from c.at) * 1000)::int8), 12, '0') || substr(md5(c.n::text), 1, 20) \
                    as reference, \
                md5('intent ' || c.n)::uuid::text as intent_id, '0x' || left(encode(sha256(c.n::text::bytea), 'hex'), 40) \
                    as wallet \
         from chosen c join template t on t.is_open = $3 and c.place >= t.low and c.place < t.high), \
     ids as ( \
         select named.*, sha256(reference::bytea) as entity, encode(sha256(reference::bytea), 'hex') as entity_hex \
         from named), \
     receipts as ( \
         select ids.*, format(p.body, ids.reference, ids.intent_id, ids.entity_hex, ids.wallet) as receipt \
         from ids left join pattern_receipt p using (template)) \
     select n, template, partner_id, is_open, state_name, pays_bank, at, shift, reference, intent_id, entity, entity_hex, \
            wallet, receipt, sha256(convert_to(receipt, 'UTF8')), encode(sha256(convert_to(receipt, 'UTF8')), 'hex') \
     from receipts";

/// The rows of the copies, in the order in which the engine writes them.
const WRITE: &[&str] = &[
    "analyze copy",
    "insert into intent (partner_id, livemode, intent_id, client_reference, reference, reason, request, created_at) \
     select i.partner_id, i.livemode, c.intent_id, 'ref-' || c.intent_id, case when i.reason is null then c.reference end, \
            i.reason, replace(i.request::text, t.intent_id, c.intent_id)::jsonb, c.at \
     from copy c join template t on t.id = c.template \
     join intent i on i.partner_id = t.partner_id and i.livemode = false and i.intent_id = t.intent_id order by c.n",
    "insert into execution (reference, partner_id, livemode, intent_id, client_reference, entity, terms, state_name, \
                            state, version, last_sequence, last_occurred_at, accepted_at, terminal_at) \
     select c.reference, c.partner_id, p.livemode, c.intent_id, 'ref-' || c.intent_id, c.entity, \
            format(p.terms, c.reference, c.intent_id, c.entity_hex, c.wallet, c.hash_hex)::json, p.state_name, \
            format(p.state, c.reference, c.intent_id, c.entity_hex, c.wallet, c.hash_hex)::jsonb, p.version, \
            p.last_sequence, p.last_occurred_at + c.shift, p.accepted_at + c.shift, p.terminal_at + c.shift \
     from copy c join pattern_execution p using (template) order by c.n",
    "with counted as (update feed_counter f set position = f.position + \
                         (select count(*) from copy join pattern_event using (template)) \
                      returning f.position), \
     numbered as ( \
         select counted.position - count(*) over () + row_number() over (order by c.n, p.sequence) as position, \
                'evt_' || md5(c.reference || p.sequence) as event_id, c.partner_id, p.livemode, c.reference, c.intent_id, \
                'ref-' || c.intent_id as client_reference, p.sequence, p.type, p.occurred_at + c.shift as occurred_at, \
                p.observed_at + c.shift as observed_at, \
                format(p.object, c.reference, c.intent_id, c.entity_hex, c.wallet, c.hash_hex)::json as object \
         from counted, copy c join pattern_event p using (template)), \
     moved as (insert into event_history select * from numbered where observed_at < now() - interval '15 days') \
     insert into event select * from numbered where observed_at >= now() - interval '15 days'",
    "insert into receipt (reference, body, content_hash, issued_at) \
     select c.reference, c.receipt, c.hash, p.issued_at + c.shift \
     from copy c join pattern_receipt p using (template) order by c.n",
    "insert into ledger_entry (reference, step, line, reason, owner_kind, owner, part, asset, amount, recorded_at) \
     select c.reference, p.step, p.line, p.reason, p.owner_kind, \
            format(p.owner, c.reference, c.intent_id, c.entity_hex, c.wallet, c.hash_hex), p.part, p.asset, p.amount, \
            p.recorded_at + c.shift \
     from copy c join pattern_entry p using (template) order by c.n, p.step, p.line",
    "insert into chain_command (chain_id, reference, intent_id, entity, escrow, kind, payload, not_before, state, \
                                created_at, done_at) \
     select p.chain_id, c.reference, c.intent_id, case when p.has_entity then c.entity else c.hash end, p.escrow, p.kind, \
            format(p.payload, c.reference, c.intent_id, c.entity_hex, c.wallet, c.hash_hex)::jsonb, \
            p.created_at + c.shift, p.state, p.created_at + c.shift, \
            case when p.state = 'done' then p.created_at + c.shift + interval '3 s' end \
     from copy c join pattern_command p using (template) order by c.n, p.ordinal",
    "insert into chain_fact (chain_id, entity, kind, payload, block_number, block_hash, block_time, tx_hash, log_index, \
                             observed_at, consumed_at) \
     select p.chain_id, case when p.has_entity then c.entity else c.hash end, p.kind, \
            format(p.payload, c.reference, c.intent_id, c.entity_hex, c.wallet, c.hash_hex)::jsonb, \
            1000 + c.n / 5, sha256(('block ' || 1000 + c.n / 5)::bytea), p.observed_at + c.shift, \
            sha256((c.reference || p.kind)::bytea), c.n % 5 * 10 + p.place, p.observed_at + c.shift, \
            p.observed_at + c.shift \
     from copy c \
     join (select *, row_number() over (partition by template order by ordinal) as place from pattern_fact) p \
          using (template) order by c.n, p.ordinal",
    "insert into effect (reference, kind, run_at, called, called_at, attempts, last_result) \
     select c.reference, p.kind, now() + interval '1 hour', p.called, p.called_at + c.shift, p.attempts, p.last_result \
     from copy c join pattern_effect p using (template) order by c.n",
];

pub(super) async fn write(tx: &mut PgTransaction<'_>, first: i64, last: i64, lot: Lot) -> anyhow::Result<()> {
    // Ended orders go back to an hour ago; open ones begin three days ago.
    let (oldest, newest) = if lot.is_open { (3 * 86_400, 60) } else { (DAYS * 86_400, 3_600) };
    sqlx::query("truncate copy").execute(&mut **tx).await?;
    sqlx::query(COPY)
        .bind(first)
        .bind(last)
        .bind(lot.is_open)
        .bind(seconds(oldest))
        .bind(seconds(newest))
        .bind(lot.of)
        .bind(lot.after)
        .execute(&mut **tx)
        .await?;
    run_all(tx, WRITE).await
}

fn seconds(seconds: i64) -> f64 {
    f64::from(i32::try_from(seconds).unwrap_or(i32::MAX))
}

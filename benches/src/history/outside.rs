//! The records around the copied orders: blocks, transactions, payments, messages, deliveries, and operators' actions.

use anyhow::Context as _;
use dvp_store::database::partitions::{self, DayTable};
use sqlx::{PgConnection, PgTransaction};

use super::{DAYS, run_all};

const ACCOUNTS: [(&str, &str); 2] = [("DE89370400440532013000", "USD"), ("DE02120300000000202051", "EUR")];
/// The FIX session that a fifth of the first partner's orders came by, and a webhook endpoint.
pub const SESSION: &str = "FIX.4.4:DVP->HISTORY";
pub const ENDPOINT: &str = "ep_history";

pub(super) async fn prepare(conn: &mut PgConnection) -> anyhow::Result<()> {
    let statements = [
        "insert into relayer_account (chain_id, signer, next_nonce) values (31337, decode(repeat('a1', 20), 'hex'), 0)",
        "insert into fix_session (session_id, partner_id, livemode, begin_string, client_comp_id, service_comp_id, \
                                  username, password_hash, password_key) \
         values ('FIX.4.4:DVP->HISTORY', 'ptn_acme', false, 'FIX.4.4', 'HISTORY', 'DVP', 'history', \
                 decode(repeat('00', 32), 'hex'), '1')",
        "insert into api_key (id, partner_id, env, key_hash, hash_key, key_prefix, sealed_secret, scopes) \
         values ('key_history', 'ptn_acme', 'test', '\\x01', '1', 'history', '\\x01', '{}')",
        // Inactive, so that nothing is delivered: its log is what is read.
        "insert into webhook_endpoint (id, key_id, partner_id, livemode, url, subscribed_types, api_version, is_active, \
                                       sealed_secret, from_position) \
         values ('ep_history', 'key_history', 'ptn_acme', false, 'https://partner.example/hooks', \
                 '{payout.completed}', '1', false, '\\x01', 0)",
        "insert into endpoint_lease (endpoint_id) values ('ep_history')",
        "insert into chain_cursor (chain_id, head_number, head_hash, final_number, facts_number) \
         values (31337, 1, sha256('block 1'), 1, 1)",
        "insert into chain_status (chain_id, name, state, node_head, node_final) \
         values (31337, 'anvil', 'following', 1, 1)",
    ];
    run_all(conn, &statements).await?;
    let today = chrono::Utc::now().date_naive();
    for table in [DayTable::FixMessages, DayTable::WebhookDeliveries, DayTable::WebhookAttempts] {
        partitions::create_day(conn, table, today + chrono::Days::new(1)).await?;
        for days in 0..=u64::try_from(DAYS)? {
            partitions::create_day(conn, table, today - chrono::Days::new(days)).await?;
        }
    }
    Ok(())
}

/// What one transaction's copies leave outside of their own tables.
const WRITE: &[&str] = &[
    // Five orders a block.
    "insert into chain_block (chain_id, hash, number, parent, block_time, verified_by) \
     select 31337, sha256(('block ' || b.number)::bytea), b.number, sha256(('block ' || b.number - 1)::bytea), b.at, 'count' \
     from (select 1000 + n / 5 as number, min(at) as at from copy group by 1) b on conflict do nothing",
    // Ten commands a transaction.
    "create temp table sent on commit drop as \
     select c.id, c.entity, c.kind, o.n, o.at, 1000 + o.n / 5 as block, \
            a.next_nonce + (row_number() over (order by c.id) - 1) / 10 as nonce \
     from copy o join chain_command c on c.reference = o.reference, relayer_account a where c.state = 'done'",
    "insert into nonce_slot (chain_id, signer, nonce, state, kind, gas, succeeded, block_number, block_hash, judged, \
                             created_at) \
     select 31337, a.signer, s.nonce, 'final', 'batch', 1000000, true, max(s.block), \
            sha256(('block ' || max(s.block))::bytea), true, min(s.at) \
     from sent s, relayer_account a group by a.signer, s.nonce",
    "insert into slot_command (chain_id, signer, nonce, command_id) \
     select 31337, a.signer, s.nonce, s.id from sent s, relayer_account a",
    "insert into tx_attempt (chain_id, signer, nonce, attempt, hash, sealed, max_fee, priority_fee, created_at, \
                             last_broadcast_at) \
     select 31337, a.signer, s.nonce, 1, sha256(('transaction ' || s.nonce)::bytea), \
            decode(repeat(md5(s.nonce::text), 20), 'hex'), 20000000000, 1000000000, min(s.at), min(s.at) \
     from sent s, relayer_account a group by a.signer, s.nonce",
    "update relayer_account a set next_nonce = coalesce((select max(nonce) + 1 from sent), a.next_nonce)",
    "insert into chain_log (chain_id, block_hash, log_index, block_number, block_time, tx_hash, contract, event, entity, \
                            seq, fact) \
     select 31337, sha256(('block ' || s.block)::bytea), s.n % 5 * 32 + row_number() over (partition by s.n order by s.id, e.n), \
            s.block, s.at, sha256(('transaction ' || s.nonce)::bytea), decode(repeat('ee', 20), 'hex'), e.name, s.entity, \
            (select coalesce(max(seq), 0) from (select seq from chain_log \
                 where chain_id = 31337 and canonical and contract = decode(repeat('ee', 20), 'hex') \
                 order by seq desc limit 1) m) + row_number() over (order by s.id, e.n), \
            case when e.n = 1 then (select f.payload from chain_fact f where f.entity = s.entity \
                                      and chain_goal_reached(s.kind, f.payload ->> 'kind') limit 1) end \
     from sent s cross join lateral (select * from unnest(case s.kind \
         when 'create' then array['Created', 'Locked'] when 'fill' then array['Filled'] \
         when 'settle' then array['Settled', 'Released'] when 'swap' then array['Settled', 'Paid'] \
         when 'transfer' then array['Paid'] when 'anchor' then array['Anchored'] \
         else array['Cancelled', 'Refunded'] end) with ordinality as e (name, n)) e",
    // The bank: a file for each payment, and one for each answer of ten payments.
    "insert into bank_payment (end_to_end_id, reference, execution, message_id, block_id, amount, currency, exponent, \
                               status, staged_file, ordered_at, bank_reference, paid_at, reason, alarm, alarm_cleared_at, \
                               updated_at, giving_at) \
     select 'E' || md5(c.reference), 'L' || md5(c.reference), c.reference, 'M' || md5(c.reference), \
            'B' || md5(c.reference), (e.terms #>> '{output,amount}')::numeric, e.terms #>> '{output,asset}', 2, \
            case c.state_name when 'completed' then 'paid' when 'reversed' then 'returned' else 'refused' end, \
            c.n || '.xml', c.at, 'BANK-' || c.n, case when c.state_name = 'payout_failed' then null else c.at end, \
            case c.state_name when 'payout_failed' then 'AC04' end, \
            case when c.n % 1000 = 0 then 'a report contradicts an earlier one' end, \
            case when c.n % 1000 = 0 then c.at + interval '1 hour' end, c.at, c.at \
     from copy c join execution e using (reference) where c.pays_bank",
    "insert into bank_file (digest, name, message, message_id, taken_at) \
     select sha256(('file ' || n)::bytea), n || '.xml', 'pain.002', 'A' || n, at from copy where n % 10 = 0",
    "insert into bank_file_part (file, number, why, starts_at, ends_at, decision, decided_at) \
     select sha256(('file ' || n)::bytea), 1, 'no date', 0, 10, 'dismissed', at from copy where n % 10 = 0",
    "insert into bank_message (execution, digest, said, direction, message, file, at) \
     select c.reference, sha256((way || c.n)::bytea), said, way, message, c.n || '.xml', c.at \
     from copy c cross join (values ('out', 'payment ordered', 'pain.001.001.09'), ('in', 'paid', 'camt.054.001.08')) \
          m (way, said, message) where c.pays_bank",
    // As long as a message with one payment.
    "insert into bank_document (digest, content, kept_at) \
     select m.digest, '<Document>' || repeat(md5(m.execution || m.said), 60), m.at \
     from copy c join bank_message m on m.execution = c.reference",
    "insert into rail_call (reference, leg, call, result, times, first_at, last_at, took_ms, detail) \
     select c.reference, leg, 'submit', 'done', 1, c.at, c.at, 12, 'P' || c.n \
     from copy c cross join (values ('offramp'), ('payout')) l (leg) where c.state_name <> 'rejected'",
    "insert into screening (reference, verdict, source, detail, at) \
     select reference, 'pass', 'list', '', at from copy where n % 2 = 0 and state_name <> 'rejected'",
    // Operators look at one order in ten.
    "insert into operator_action (reference, action, operator, reason, evidence, version, at) \
     select reference, 'ask', 'jo', 'the partner asks', '{}', 3, at from copy \
     where n % 10 = 0 and state_name <> 'rejected'",
    "insert into approval (id, kind, subject, action, details, version, maker, reason, evidence, requested_at, expires_at, \
                           state, checker, decided_at) \
     select 'apr_' || md5(reference), 'execution', reference, 'close contradiction', \
            '{\"action\": \"close_contradiction\"}', 3, 'jo', 'resolved with the bank', 'statement 18', at, \
            at + interval '1 day', 'approved', 'mika', at + interval '1 hour' \
     from copy where n % 10 = 0 and state_name <> 'rejected'",
    "insert into console_record (operator, action, route, subject, source, at) \
     select 'jo', 'read', 'GET /orders/{reference}/documents', reference, '192.0.2.1', at from copy where n % 10 = 0",
    // Interfaces. What is kept for a day or a month has rows of that time only.
    "insert into idempotency (partner_id, livemode, method, path, key, fingerprint, status, body, accepted_at) \
     select partner_id, false, 'POST', '/v1/intents', md5('key ' || n)::uuid, sha256(n::text::bytea), 202, \
            jsonb_build_object('reference', reference)::text, at from copy where at > now() - interval '24 hours'",
    "insert into request_nonce (key_id, nonce, partner_id, expires_at) \
     select 'key_history', md5('nonce ' || n), partner_id, at + interval '5 min' from copy \
     where at > now() - interval '65 min'",
    "insert into request_log (partner_id, livemode, id, at, key_id, request_id, method, path, status, millis) \
     select partner_id, false, md5('request ' || n)::uuid, at, 'key_history', 'r-' || n, 'POST', '/v1/intents', 202, 12 \
     from copy where at > now() - interval '7 days'",
    "insert into quote_request (partner_id, livemode, request_id, request, response, created_at) \
     select partner_id, false, 'quote-' || n, '{}', '{}', at from copy where n % 2 = 0",
    "insert into firm_quote (quote_id, partner_id, livemode, request_id, terms, valid_until, used_by, created_at) \
     select 'qte_' || md5(reference), partner_id, false, 'firm-' || n, '{}', at + interval '1 min', intent_id, at \
     from copy where n % 4 = 0",
    "insert into legacy_intent (partner_id, livemode, intent_id, request, source, target, strategy, account, stage, reference, \
                                created_at, expires_at, run_at) \
     select partner_id, false, 'older-' || n, '{}', 'USD', 'EUR', 'instant', 'bene_1:dest_1', 'submitted', reference, at, \
            at + interval '1 hour', at from copy where n % 20 = 0 and state_name <> 'rejected'",
    "insert into resting_order (provider_id, wallet, input_asset, output_asset, rate, placed, remaining, placed_at, \
                                client_order_id) \
     select 'south', '0x0000000000000000000000000000000000000002', 'USD', 'EUR', 0.9, 100000, 0, at, 'maker-' || n \
     from copy where n % 20 = 0",
    "insert into webhook_delivery_log (id, endpoint_id, partner_id, event_id, type, origin, state, created_at, ended_at, number, \
                                   at, status, latency_ms) \
     select nextval('webhook_delivery_number'), 'ep_history', c.partner_id, 'evt_' || md5(c.reference || p.sequence), p.type, \
            'feed', case when c.n % 100 = 0 then 'failed' else 'delivered' end, c.at, c.at + interval '1 s', 1, c.at, 200, 20 \
     from copy c join pattern_event p using (template) \
     where c.partner_id = 'ptn_acme' and c.at > now() - interval '15 days' order by c.n, p.sequence",
    "insert into webhook_attempt_log (delivery_id, number, at, status, latency_ms) \
     select d.id, 0, d.created_at, 503, 20 from copy c \
     join webhook_delivery_log d on d.event_id = 'evt_' || md5(c.reference || 1) where c.n % 2 = 0",
    "create temp table over_fix on commit drop as \
     select c.*, s.next_out + row_number() over (order by c.n) - 1 as seq from copy c, fix_session s \
     where s.session_id = 'FIX.4.4:DVP->HISTORY' and c.partner_id = 'ptn_acme' and c.n % 5 = 0",
    "insert into fix_order (session_id, cl_ord_id, reference, intent_id, details, created_at) \
     select 'FIX.4.4:DVP->HISTORY', 'order-' || n, case when state_name <> 'rejected' then reference end, intent_id, \
            '{\"kind\": \"order\", \"symbol\": \"USD/EUR\", \"side\": \"2\", \"order_qty\": \"100\", \"ord_type\": \"2\", \
              \"price\": \"0.5\", \"account\": \"bene_straight:dest_10000000\", \"fingerprint\": \"\", \"plan_id\": null, \
              \"rejection\": null, \"cancelled_by\": null}', at from over_fix",
    "insert into fix_outbound (session_id, seq, msg_type, body, sending_time) \
     select 'FIX.4.4:DVP->HISTORY', seq, '8', convert_to('37=' || reference || E'\\x01' || '11=order-' || n || E'\\x01', 'UTF8'), \
            (extract(epoch from at) * 1e9)::int8 from over_fix",
    "insert into fix_message (at, session_id, is_outbound, seq, msg_type, cl_ord_id, content) \
     select o.at + make_interval(secs => m.n), 'FIX.4.4:DVP->HISTORY', m.n > 0, o.seq, case m.n when 0 then 'D' else '8' end, \
            'order-' || o.n, '8=FIX.4.4|35=D|11=order-' || o.n || '|55=USD/EUR|38=100|' \
     from over_fix o, generate_series(0, 2) as m (n)",
    "update fix_session set next_out = next_out + (select count(*) from over_fix), \
                            seen_out = next_out + (select count(*) from over_fix) - 1, \
                            written_out = next_out + (select count(*) from over_fix) - 1, \
                            next_in = next_in + (select count(*) from over_fix) \
     where session_id = 'FIX.4.4:DVP->HISTORY'",
];

pub(super) async fn write(tx: &mut PgTransaction<'_>) -> anyhow::Result<()> {
    run_all(tx, WRITE).await
}

/// Followers are at the end of the feed, and the chain's cursor at its last block.
pub(super) async fn finish(conn: &mut PgConnection) -> anyhow::Result<()> {
    let statements = [
        "update webhook_dispatcher set position = (select position from feed_counter)",
        "update fix_session set feed_position = (select position from feed_counter)",
        "update chain_cursor set head_number = b.number, final_number = b.number, facts_number = b.number, head_hash = b.hash \
         from (select number, hash from chain_block where canonical order by number desc limit 1) b",
        "update chain_status set node_head = c.head_number, node_final = c.final_number from chain_cursor c",
        "insert into reconciliation_run (chain_id, block_number, block_hash, block_time, subjects, queries, started_at) \
         select 31337, c.final_number, c.head_hash, now(), 100, 10, now() from chain_cursor c, generate_series(1, 200)",
        "insert into reconciliation_run (subjects, queries, started_at) select 100, 0, now() from generate_series(1, 200)",
        // Takers who let their orders and quotes go, of the last hour.
        "insert into abandonment (reference, partner_id, wallet, kind, at) \
         select 'exe_' || md5(n::text), 'ptn_' || n % 50, '0x' || md5((n % 500)::text), 'unfunded', \
                now() - make_interval(secs => n % 3600) from generate_series(1, 2000) n",
        "insert into unused_hold (partner_id, provider_id, asset, lapsed_in, held) \
         select 'ptn_' || n, 'south', 'EUR', date_trunc('minute', now()) - make_interval(mins => m), 1000 \
         from generate_series(1, 50) n, generate_series(0, 29) m",
        // Twenty breaks in each run.
        "insert into reconciliation_break (run_id, ordinal, kind, reference, entity, detail, action, first_seen_at) \
         select r.id, row_number() over (partition by r.id), 'stuck', e.reference, '0x' || encode(e.entity, 'hex'), \
                'nothing for a day', 'page', now() \
         from reconciliation_run r cross join (select reference, entity from execution \
                                               where terminal_at is null order by reference limit 20) e",
    ];
    run_all(conn, &statements).await
}

/// Statements of every day that has ended, whose entries are the postings of the day.
pub(super) async fn statements(conn: &mut PgConnection) -> anyhow::Result<()> {
    for (account, currency) in ACCOUNTS {
        dvp_store::reconcile::bank::take_postings(conn, account, currency).await?;
        for statement in [
            "insert into bank_statement (account, currency, statement, page, begins_at, ends_at, opening, closing, content, \
                                         file, taken_at) \
             select $1, $2, 'STMT-' || day, 1, day::timestamp at time zone 'UTC', (day + 1)::timestamp at time zone 'UTC', \
                    sum(moved) over (order by day) - moved, sum(moved) over (order by day), sha256(($1 || day)::bytea), \
                    sha256(($1 || day)::bytea), (day + 1)::timestamp at time zone 'UTC' \
             from (select (posted_at at time zone 'UTC')::date as day, sum(amount) as moved from bank_posting \
                   where account = $1 and currency = $2 and posted_at < date_trunc('day', now(), 'UTC') group by 1) days",
            "insert into bank_entry (statement, line, account, currency, amount, booked_at, end_to_end_id, refs, subject, \
                                     paired_at) \
             select s.id, row_number() over (partition by s.id order by p.id), p.account, p.currency, p.amount, p.posted_at, \
                    'E' || md5(p.reference), array[p.reference], p.subject, s.taken_at \
             from bank_posting p join bank_statement s on s.account = p.account and s.currency = p.currency \
                  and p.posted_at >= s.begins_at and p.posted_at < s.ends_at \
             where p.account = $1 and p.currency = $2",
            "update bank_posting set paired_at = posted_at \
             where account = $1 and currency = $2 and posted_at < date_trunc('day', now(), 'UTC')",
        ] {
            sqlx::query(statement)
                .bind(account)
                .bind(currency)
                .execute(&mut *conn)
                .await
                .context(statement)?;
        }
    }
    Ok(())
}

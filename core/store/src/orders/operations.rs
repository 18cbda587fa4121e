//! Operators' view of executions, and the rows of their decisions.

use chrono::{DateTime, Utc};
use dvp_domain::settlement::State;
use serde_json::Value;
use sqlx::PgConnection;

use crate::orders::effects::notify_workers;
use crate::{StoreError, statement};

#[derive(Debug, Clone, sqlx::FromRow)]
pub struct Listed {
    pub reference: String,
    pub partner: String,
    pub intent_id: String,
    pub client_reference: Option<String>,
    pub state: String,
    pub accepted_at: DateTime<Utc>,
    pub terminal_at: Option<DateTime<Utc>>,
    /// The work that it waits for: due effects, effects in progress, or a command on the chain.
    pub waits_for: Option<String>,
    pub attempts: Option<i32>,
    pub last_result: Option<String>,
    /// The bank files' alarm, or that its payout is overdue.
    pub alarm: Option<String>,
}

/// Which executions to list, oldest first.
#[derive(Debug, Clone)]
pub struct ExecutionFilter<'a> {
    /// Only executions that have not ended and were accepted at least this long ago, or that have an alarm.
    pub stuck_for_secs: Option<i64>,
    pub state: Option<&'a str>,
    /// After this one.
    pub after: Option<(DateTime<Utc>, &'a str)>,
    pub limit: i64,
}

/// Executions that have not ended and are old, or whose payout may be late, or whose payment has an alarm.
const STUCK: &str = "(select reference from execution \
                      where terminal_at is null and (accepted_at < now() - make_interval(secs => $1::float8) \
                                                     or state_name in ('paying', 'owing')) \
                      union select execution from bank_payment \
                      where alarm is not null and alarm_cleared_at is null) stuck join execution e using (reference)";

/// The oldest executions of each partner, merged. `$source`: the rows of one that an index has in this order.
macro_rules! oldest {
    ($source:literal) => {
        concat!(
            "(partner owner cross join (values (true), (false)) mode (live)) cross join lateral ( \
                 select * from execution of_partner \
                 where of_partner.partner_id = owner.id and of_partner.livemode = mode.live ",
            $source,
            "  and ($3::timestamptz is null or (of_partner.accepted_at, of_partner.reference) > ($3, $4)) \
                 order by of_partner.accepted_at, of_partner.reference limit $5) e"
        )
    };
}

const ALL: &str = oldest!("and ($2::text is null or of_partner.state_name = $2)");
const OPEN: &str =
    oldest!("and of_partner.terminal_at is null and ($2::text is null or of_partner.state_name = $2)");
/// Of a state in which orders end without their output. It is named once: the planner takes two conditions for
/// independent, expects next to none of the orders, and then sorts all of them.
const ENDED: &str = oldest!("and of_partner.exception = $2");

pub async fn list(conn: &mut PgConnection, filter: &ExecutionFilter<'_>) -> Result<Vec<Listed>, StoreError> {
    let from = match filter.state {
        _ if filter.stuck_for_secs.is_some() => STUCK,
        Some(state) if State::OPEN_STAGES.contains(&state) => OPEN,
        Some(state) if state != "completed" => ENDED,
        Some(_) | None => ALL,
    };
    // The texts are constants of this module.
    let sql = sqlx::AssertSqlSafe(format!(
        "select e.reference, p.name as partner, e.intent_id, e.client_reference, e.state_name as state, \
                e.accepted_at, e.terminal_at, f.attempts, f.last_result, coalesce(b.alarm, late.alarm) as alarm, \
                coalesce(f.kind, (select string_agg(c.kind || ' on the chain', ', ' order by c.id) \
                                             filter (where c.state in ('pending', 'sent')) \
                                  from chain_command c where c.reference = e.reference)) as waits_for \
         from {from} join partner p on p.id = e.partner_id \
              left join lateral (select kind, attempts, last_result from effect \
                                 where reference = e.reference order by id desc limit 1) f on true \
              left join lateral (select min(alarm) filter (where alarm_cleared_at is null) as alarm \
                                 from bank_payment where execution = e.reference) b on true \
              left join lateral (select case \
                      when e.state_name = 'owing' then 'settled without a final answer of the payout: owed' \
                      when (e.state #>> '{{lock,deadlines,overdue_at}}')::int8 <= extract(epoch from now()) * 1000 \
                      then 'the payout has no final answer, and its timelock is near' end as alarm \
                  where e.terminal_at is null and e.state_name in ('paying', 'owing')) late on true \
         where ($1::int8 is null or b.alarm is not null or late.alarm is not null \
                or (e.terminal_at is null and e.accepted_at < now() - make_interval(secs => $1::float8))) \
           and ($2::text is null or e.state_name = $2) \
           and ($3::timestamptz is null or (e.accepted_at, e.reference) > ($3, $4)) \
         order by e.accepted_at, e.reference limit $5"
    ));
    let parameters = (
        filter.stuck_for_secs,
        filter.state,
        filter.after.map(|after| after.0),
        filter.after.map(|after| after.1),
        filter.limit,
    );
    statement::list(conn, sql, parameters).await
}

/// All records of an execution, as JSON: each part is a list of rows, oldest first.
pub async fn load_history(conn: &mut PgConnection, reference: &str) -> Result<Value, StoreError> {
    let sql = "select jsonb_build_object( \
           'events', (select coalesce(jsonb_agg(jsonb_build_object('sequence', sequence, 'type', type, \
                         'occurredAt', occurred_at, 'observedAt', observed_at) order by sequence), '[]') \
                      from event_record where reference = $1), \
           'work', (select coalesce(jsonb_agg(jsonb_build_object('kind', kind, 'runAt', run_at, 'called', called, \
                         'calledAt', called_at, 'attempts', attempts, 'lastResult', last_result, 'claimedUntil', claimed_until, \
                         'verdict', verdict) order by id), '[]') from effect where reference = $1), \
           'calls', (select coalesce(jsonb_agg(jsonb_build_object('leg', leg, 'call', call, 'result', result, \
                         'times', times, 'firstAt', first_at, 'lastAt', last_at, 'tookMs', took_ms, 'detail', detail) \
                         order by first_at, last_at), '[]') from rail_call where reference = $1), \
           'chain', (select coalesce(jsonb_agg(jsonb_build_object('kind', kind, 'state', state, \
                         'entity', '0x' || encode(entity, 'hex'), 'escrow', '0x' || encode(escrow, 'hex'), \
                         'createdAt', created_at, 'doneAt', done_at, \
                         'tries', tries, 'trouble', trouble, \
                         'txHash', (select '0x' || encode(a.hash, 'hex') from slot_command s join tx_attempt a \
                                      on (a.chain_id, a.signer, a.nonce) = (s.chain_id, s.signer, s.nonce) \
                                    where s.command_id = chain_command.id and s.live \
                                    order by a.attempt desc limit 1)) \
                         order by id), '[]') from chain_command where reference = $1), \
           'transactions', (select coalesce(jsonb_agg(jsonb_build_object('kind', c.kind, \
                         'txHash', '0x' || encode(a.hash, 'hex'), 'signer', '0x' || encode(a.signer, 'hex'), \
                         'nonce', a.nonce, 'attempt', a.attempt, 'maxFee', a.max_fee::text, \
                         'priorityFee', a.priority_fee::text, 'createdAt', a.created_at, \
                         'nonceState', n.state, 'lastBroadcastAt', a.last_broadcast_at, 'lastError', a.last_error) \
                         order by a.created_at, a.nonce, a.attempt), '[]') \
                    from chain_command c join slot_command s on s.command_id = c.id \
                         join nonce_slot n on (n.chain_id, n.signer, n.nonce) = (s.chain_id, s.signer, s.nonce) \
                         join tx_attempt a on (a.chain_id, a.signer, a.nonce) = (s.chain_id, s.signer, s.nonce) \
                          and a.attempt < coalesce(s.dropped_at, a.attempt + 1) \
                    where c.reference = $1), \
           'facts', (select coalesce(jsonb_agg(jsonb_build_object('kind', payload ->> 'kind', \
                         'block', block_number, 'txHash', '0x' || encode(tx_hash, 'hex'), \
                         'observedAt', observed_at, 'consumedAt', consumed_at, 'retractedAt', retracted_at, \
                         'differs', differs, 'waitsFor', gate || coalesce(' ' || gate_number, ''), \
                         'retryAt', retry_at, 'lastError', last_error) order by turn), '[]') from chain_fact \
                     where entity in (select entity from chain_command where reference = $1)), \
           'ledger', (select coalesce(jsonb_agg(jsonb_build_object('step', step, 'line', line, 'reason', reason, \
                         'account', owner_kind || ':' || owner || ':' || part, 'asset', asset, \
                         'amount', trim_scale(amount)::text, 'recordedAt', recorded_at) order by step, line), '[]') \
                      from ledger_entry where reference = $1), \
           'bank', (select coalesce(jsonb_agg(jsonb_build_object('endToEndId', end_to_end_id, \
                         'status', status, 'orderedAt', ordered_at, 'bankReference', bank_reference, \
                         'paidAt', paid_at, 'returnedAt', returned_at, 'takenBackAt', taken_back_at, 'reason', reason, 'alarm', alarm, \
                         'amount', amount::text, 'currency', currency, 'exponent', exponent, \
                         'file', staged_file, 'messageId', message_id)), '[]') \
                    from bank_payment where execution = $1), \
           'messages', (select coalesce(jsonb_agg(jsonb_build_object('digest', encode(m.digest, 'hex'), 'said', m.said, \
                         'direction', m.direction, 'message', m.message, 'file', m.file, 'at', m.at, \
                         'isKept', exists (select from bank_document d where d.digest = m.digest)) \
                         order by m.at, m.said), '[]') from bank_message m where m.execution = $1), \
           'fix', (select coalesce(jsonb_agg(jsonb_build_object('session', o.session_id, 'clOrdId', o.cl_ord_id, \
                         'at', o.created_at) order by o.created_at, o.cl_ord_id), '[]') \
                    from execution e join fix_session s on (s.partner_id, s.livemode) = (e.partner_id, e.livemode) \
                         join fix_order o on o.session_id = s.session_id and o.intent_id = e.intent_id \
                    where e.reference = $1), \
           'recalls', (select coalesce(jsonb_agg(jsonb_build_object('id', id, 'reason', reason, 'status', status, \
                         'approvedAt', approved_at, 'sentAt', sent_at, 'answeredAt', answered_at, \
                         'answerReason', answer_reason, 'contradicting', contradicting, 'closedAt', closed_at) \
                         order by approved_at, id), '[]') from bank_recall where execution = $1), \
           'screening', (select coalesce(jsonb_agg(jsonb_build_object('at', at, 'verdict', verdict, 'source', source, \
                         'detail', detail) order by id), '[]') from screening where reference = $1), \
           'operators', (select coalesce(jsonb_agg(jsonb_build_object('at', at, 'operator', operator, \
                         'action', action, 'reason', reason, 'evidence', evidence, 'version', version) order by id), '[]') \
                         from operator_action where reference = $1))";
    statement::load_value(conn, sql, (reference,)).await
}

/// The number of overdue payouts of locked tokens, and of debts.
pub async fn count_late_payouts(conn: &mut PgConnection) -> Result<(i64, i64), StoreError> {
    let sql = "select count(*) filter (where state_name = 'paying' and (state #>> \
                                                                 '{lock,deadlines,overdue_at}')::int8 \
                                                                 <= extract(epoch from now()) * 1000), \
                count(*) filter (where state_name = 'owing') \
         from execution where terminal_at is null and state_name in ('paying', 'owing')";
    statement::load(conn, sql, ()).await
}

/// An operator's decision, kept for ever.
#[derive(Debug, Clone)]
pub struct NewAction<'a> {
    pub reference: &'a str,
    pub action: &'a str,
    pub operator: &'a str,
    pub reason: &'a str,
    pub evidence: &'a Value,
    pub version: i64,
}

pub async fn insert_action(conn: &mut PgConnection, action: &NewAction<'_>) -> Result<(), StoreError> {
    let sql = "insert into operator_action (reference, action, operator, reason, evidence, version) \
         values ($1, $2, $3, $4, $5, $6)";
    let parameters =
        (action.reference, action.action, action.operator, action.reason, action.evidence, action.version);
    statement::execute(conn, sql, parameters).await
}

/// The action on an execution's due work of a kind.
#[derive(Debug, Clone)]
pub enum Nudge<'a> {
    /// It becomes due now.
    Now,
    /// It is recorded as never called, and becomes due now.
    Uncalled,
    /// It gets this answer, and becomes due now.
    ScreeningResult(&'a Value),
}

/// Changes due work unless a call may still be in flight, and notifies the workers. `false`: there is no such work, or
/// such a call.
pub async fn nudge(
    conn: &mut PgConnection,
    reference: &str,
    kind: Option<&str>,
    nudge: &Nudge<'_>,
    in_flight_secs: i32,
) -> Result<bool, StoreError> {
    let (uncalled, verdict) = match nudge {
        Nudge::Now => (false, None),
        Nudge::Uncalled => (true, None),
        Nudge::ScreeningResult(verdict) => (false, Some(*verdict)),
    };
    let gentle = matches!(nudge, Nudge::Now);
    let sql = "update effect set run_at = now(), woken = claimed_until is not null, called = called and not $4, \
                verdict = coalesce($5, verdict), \
                fence = fence + case when $5::jsonb is null then 0 else 1 end \
         where reference = $1 and ($2::text is null or kind = $2) \
           and ($6 or not called or (coalesce(called_at, '-infinity') < now() - make_interval(secs => $3) \
                                     and (claimed_until is null or claimed_until < now())))";
    let done =
        statement::affected(conn, sql, (reference, kind, in_flight_secs, uncalled, verdict, gentle)).await?;
    notify_workers(conn).await?;
    Ok(done > 0)
}

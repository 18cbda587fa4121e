//! Invariants of the database after any sequence of failures.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{bail, ensure};
use dvp_store::ledger::check::{Compared, compare};
use sqlx::PgConnection;

use super::fix::SessionTranscript;
use super::rest::Placed;
use crate::drill::{PATIENCE, Report, until};

/// Each query counts violations of an invariant.
const NEVER: [(&str, &str); 13] = [
    ("moved money twice", "select count(*) from simulated_rail where executed > 1"),
    (
        "completed without a payout",
        "select count(*) from execution where state_name = 'completed' and state -> 'payout' = 'null'::jsonb",
    ),
    (
        // A rail's reference is the hash of the execution's and the leg.
        "paid by the rail and not completed, or the other way round",
        "select count(*) from execution e join simulated_rail r on r.leg = 'payout' \
         and r.reference = encode(sha256(convert_to(e.reference || ':payout', 'UTF8')), 'hex') \
         where (r.executed > 0) <> (e.state_name in ('completed', 'reversed'))",
    ),
    (
        "paid by the rail for no order",
        "select count(*) from simulated_rail r where r.leg = 'payout' and not exists ( \
         select from execution e where r.reference = encode(sha256(convert_to(e.reference || ':payout', 'UTF8')), 'hex'))",
    ),
    (
        "with a gap in its events",
        "select count(*) from execution e where last_sequence <> \
         (select count(*) from event v where v.reference = e.reference) or last_sequence <> \
         (select max(sequence) from event v where v.reference = e.reference)",
    ),
    (
        "ended not once",
        "select count(*) from (select e.reference from execution e left join event v on v.reference = e.reference \
         and v.type in ('offramp.failed', 'payout.completed', \
         'payout.failed', 'intent.cancelled', 'intent.expired', 'intent.failed') \
         where e.terminal_at is not null group by e.reference having count(v.*) <> 1) t",
    ),
    (
        "positions of the feed missing",
        "select (select position from feed_counter) - (select count(*) from event)",
    ),
    ("left reserved", "select count(*) from account_balance where reserved <> 0"),
    (
        "left in clearing",
        "select count(*) from (select asset from ledger_entry where owner_kind = 'clearing' \
         group by asset having sum(amount) <> 0) c",
    ),
    (
        "completed without a receipt",
        "select count(*) from execution e where state_name = 'completed' and not exists \
         (select from receipt r where r.reference = e.reference)",
    ),
    (
        "accepted without its execution",
        "select count(*) from intent i where reference is not null and not exists \
         (select from execution e where e.reference = i.reference)",
    ),
    (
        "settled on the chain twice",
        "select count(*) from (select entity from chain_log where canonical \
         and event in ('Created', 'Locked', 'Filled', 'Settled', 'Cancelled', 'Released', 'Refunded', 'Paid', 'Anchored') \
         group by entity, case when event = 'Refunded' then 'Released' when event = 'Cancelled' then 'Settled' \
                               else event end having count(*) > 1) d",
    ),
    (
        "given numbers of FIX that were never used",
        "select count(*) from fix_outbound o join fix_session s using (session_id) where o.seq >= s.next_out",
    ),
];

/// Waits until every order has ended, and compares the database with the clients' transcripts.
pub(crate) async fn check(
    conn: &mut PgConnection,
    placed: &[Placed],
    transcripts: &[SessionTranscript],
    report: &mut Report,
) -> anyhow::Result<()> {
    settled(conn, Until::Anchored, PATIENCE).await?;
    check_rest(conn, placed).await?;
    let mut too_late = 0;
    for one in transcripts {
        check_fix(conn, one).await?;
        too_late += check_unread(conn, one).await?;
    }
    let orders = count(conn, "select count(*) from execution").await?;
    let completed = count(conn, "select count(*) from execution where state_name = 'completed'").await?;
    let by_fix: usize = transcripts.iter().map(|one| one.orders.len()).sum();
    let refused = count(conn, "select count(*) from intent where reference is null").await?;
    let (known, requested) = (usize::try_from(orders + refused)? + too_late, placed.len() + by_fix);
    ensure!(known == requested, "{requested} orders were placed and {known} are known");
    report.count("orders", orders);
    report.count("completed", completed);
    Ok(())
}

/// A stage that every order must reach.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Until {
    /// No event of the feed follows.
    Ended,
    /// The same, or it rests until its deadline.
    EndedOrResting,
    /// Its receipt is anchored, too, and nothing waits for the chain.
    Anchored,
}

impl Until {
    const fn open(self) -> &'static str {
        match self {
            Self::Ended => {
                "select (select count(*) from execution where terminal_at is null) + (select count(*) from effect)"
            }
            Self::EndedOrResting => {
                "select (select count(*) from execution where terminal_at is null and state_name <> 'resting') \
                 + (select count(*) from effect left join execution using (reference) \
                    where state_name is distinct from 'resting')"
            }
            Self::Anchored => {
                "select (select count(*) from execution where terminal_at is null) \
                 + (select count(*) from chain_fact where consumed_at is null and retracted_at is null) \
                 + (select count(*) from chain_command where state in ('pending', 'sent')) \
                 + (select count(*) from effect)"
            }
        }
    }
}

/// Waits until every order has reached the stage, then checks the books.
pub(crate) async fn settled(conn: &mut PgConnection, stage: Until, limit: Duration) -> anyhow::Result<()> {
    let ended =
        until(limit, "every order ends", async || Ok((count(conn, stage.open()).await? == 0).then_some(())));
    if let Err(error) = ended.await {
        return Err(error.context(left_open(conn).await?));
    }
    for (what, sql) in NEVER {
        let found = count(conn, sql).await?;
        ensure!(found == 0, "{found} {what}");
    }
    for compared in [Compared::SinceClosing, Compared::Whole] {
        let findings = compare(conn, compared).await?;
        ensure!(findings.count() == 0, "the books disagree: {findings:?}");
    }
    Ok(())
}

pub(crate) async fn count(conn: &mut PgConnection, sql: &'static str) -> anyhow::Result<i64> {
    Ok(sqlx::query_as::<_, (i64,)>(sql).fetch_one(conn).await?.0)
}

async fn left_open(conn: &mut PgConnection) -> anyhow::Result<String> {
    let rows: Vec<(String, String, Option<String>, Option<String>)> = sqlx::query_as(
        "select e.reference, e.state_name, f.kind || ' ' || coalesce(f.last_result, '') || ' ' || f.attempts, \
                (select string_agg(c.kind || ' ' || c.state, ', ') from chain_command c \
                 where c.reference = e.reference and c.state <> 'done') \
         from execution e left join effect f using (reference) \
         where e.terminal_at is null or f.id is not null or exists (select from chain_command c \
               where c.reference = e.reference and c.state in ('pending', 'sent')) limit 10",
    )
    .fetch_all(conn)
    .await?;
    Ok(format!("orders do not end: {rows:?}"))
}

/// Every answered order is stored exactly once, with the reference of its response.
pub(crate) async fn check_rest(conn: &mut PgConnection, placed: &[Placed]) -> anyhow::Result<()> {
    for Placed { intent_id, status, reference } in placed {
        let found: Vec<Option<String>> =
            sqlx::query_scalar("select reference from intent where intent_id = $1")
                .bind(intent_id)
                .fetch_all(&mut *conn)
                .await?;
        let times = found.len();
        ensure!(times == 1, "{intent_id} was answered with {status} and is known {times} times");
        let stored = found.into_iter().next().flatten();
        ensure!(stored == *reference, "{intent_id} got {reference:?} in its response, stored is {stored:?}");
    }
    Ok(())
}

/// The client received each stored message, and its orders ended in the states of the database.
pub(crate) async fn check_fix(conn: &mut PgConnection, transcript: &SessionTranscript) -> anyhow::Result<()> {
    let id = transcript.session_id.as_str();
    let kept: Vec<(i64, Vec<u8>)> =
        sqlx::query_as("select seq, body from fix_outbound where session_id = $1 order by seq")
            .bind(id)
            .fetch_all(&mut *conn)
            .await?;
    let (mut exec_ids, mut reported) = (BTreeSet::new(), BTreeSet::new());
    for (seq, body) in &kept {
        let received = transcript.received.get(&u64::try_from(*seq)?);
        let Some(received) = received else { bail!("{id} did not receive message {seq}") };
        let body = String::from_utf8_lossy(body);
        let fields: BTreeMap<&str, &str> =
            body.split('\u{1}').filter_map(|field| field.split_once('=')).collect();
        // FIX.4.2 has another ExecType for a fill, and reports progress as the status of a new order (ExecTransType 3).
        let is_status = fields.get("20") == Some(&"3");
        if let (Some(order), Some(kind @ (&"0" | &"2" | &"F")), false) =
            (fields.get("11"), fields.get("150"), is_status)
        {
            ensure!(reported.insert(format!("{order} {kind}")), "{id}: {order} was reported twice as {kind}");
        }
        for field in body.split('\u{1}').filter(|field| field.contains('=')) {
            let tag = field.split('=').next().unwrap_or_default();
            if ["11", "17", "37", "39", "150", "151", "14", "6"].contains(&tag) {
                ensure!(
                    received.contains(&format!("{field}|")),
                    "{id}, message {seq}: {field} is not in {received}"
                );
            }
            ensure!(tag != "17" || exec_ids.insert(field.to_owned()), "{id}: {field} was reported twice");
        }
    }
    let (stored, received, next_in) = (kept.len(), transcript.received.len(), transcript.next_in);
    ensure!(stored == received, "{id} received {received} of {stored} messages");
    let next_out: i64 = sqlx::query_scalar("select next_out from fix_session where session_id = $1")
        .bind(id)
        .fetch_one(&mut *conn)
        .await?;
    ensure!(u64::try_from(next_out)? >= next_in, "{id} is at {next_out} and its client at {next_in}");
    let rows: Vec<(String, Option<String>)> = sqlx::query_as(
        "select o.cl_ord_id, e.state_name from fix_order o left join execution e using (reference) \
         where o.session_id = $1",
    )
    .bind(id)
    .fetch_all(&mut *conn)
    .await?;
    let known: BTreeMap<String, Option<String>> = rows.into_iter().collect();
    ensure!(known.keys().eq(transcript.orders.iter()), "{id}: its stored orders differ from those it placed");
    for (order, state) in known {
        let wanted = match state.as_deref() {
            Some("completed") => "2",
            Some("expired") => "C",
            Some(_) => "4",
            None => "8",
        };
        let last = transcript.status.get(&order).map(String::as_str);
        ensure!(
            last == Some(wanted),
            "{id}: {order} is {state:?}, and the last status sent to its client is {last:?}"
        );
    }
    Ok(())
}

/// Orders over FIX that never became an intent: they can only have come again too late, as when a start took long.
async fn check_unread(conn: &mut PgConnection, transcript: &SessionTranscript) -> anyhow::Result<usize> {
    let id = transcript.session_id.as_str();
    let unread: Vec<String> = sqlx::query_scalar(
        "select cl_ord_id from fix_order o where session_id = $1 \
         and not exists (select from intent i where i.intent_id = o.intent_id)",
    )
    .bind(id)
    .fetch_all(conn)
    .await?;
    for order in &unread {
        let is_report = |text: &&String| text.contains(&format!("|11={order}|")) && text.contains("|39=8|");
        let report = transcript.received.values().find(is_report);
        let is_too_late = report.is_some_and(|text| text.contains("|103=4|"));
        ensure!(is_too_late, "{id}: {order} was refused before it was an intent: {report:?}");
    }
    Ok(unread.len())
}

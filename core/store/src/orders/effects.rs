//! Effects of committed steps: due work, claimed with a fence.

use std::time::Duration;

use chrono::{DateTime, Utc};
use dvp_domain::money::Minor;
use dvp_domain::names::names;
use dvp_domain::settlement::{LegDone, RailAnswer, Remedy};
use dvp_domain::text::{TEXT_MAX, clean};
use serde::{Deserialize, Serialize};
use sqlx::PgConnection;

use crate::orders::rail_calls::{Columns, RailCall, record};
use crate::{StoreError, known, statement};

names! {
    pub enum EffectKind {
        Lock = "lock",
        Offramp = "offramp",
        Payout = "payout",
        /// A returned payment, or its resolution, or that of an unused conversion: applied once the settlement has ended.
        Reversal = "reversal",
        /// The time at which a payout on another chain without a final answer is settled.
        Timelock = "timelock",
    }
}

#[derive(Debug, Clone)]
pub struct NewEffect {
    pub reference: String,
    pub kind: EffectKind,
    pub run_at: DateTime<Utc>,
    /// It is inserted as claimed by this process, which executes it after the commit.
    pub is_claimed: bool,
}

/// An operator's finding, stored with the due work until it is processed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verdict", rename_all = "snake_case")]
pub enum ManualResolution {
    Done {
        provider_reference: String,
        occurred_at: DateTime<Utc>,
    },
    Failed {
        code: String,
        message: String,
    },
    /// The rail returned a payment that it had carried out.
    PaymentReturned {
        provider_reference: String,
        occurred_at: DateTime<Utc>,
        /// Less than was paid, when the bank has deducted its charge.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        came: Option<Minor>,
        code: String,
        message: String,
    },
    /// The returned payment was paid another way, or the input returned.
    ReversalResolved {
        remedy: Remedy,
        provider_reference: String,
        occurred_at: DateTime<Utc>,
    },
    /// The trade that ends the position of an unused conversion is recorded.
    ConversionClosed,
    /// The input of a debt was returned.
    Returned {
        provider_reference: String,
        occurred_at: DateTime<Utc>,
    },
    Cancel,
    /// An order held by screening is settled.
    Released,
    /// An order held by screening fails.
    Refused {
        code: String,
    },
    /// A resting order of money was filled for these amounts before a restore.
    Filled {
        input: Minor,
        output: Minor,
    },
}

impl ManualResolution {
    /// The rail's answer that the resolution replaces, for a leg.
    pub fn answer(&self) -> Option<RailAnswer> {
        match self {
            Self::Done { provider_reference, occurred_at } => Some(RailAnswer::Done(LegDone {
                provider_reference: provider_reference.clone(),
                occurred_at: (*occurred_at).into(),
            })),
            Self::Failed { code, message } => {
                Some(RailAnswer::Failed { code: code.clone(), message: message.clone(), retryable: false })
            }
            Self::PaymentReturned { .. }
            | Self::ReversalResolved { .. }
            | Self::ConversionClosed
            | Self::Returned { .. }
            | Self::Cancel
            | Self::Released
            | Self::Refused { .. }
            | Self::Filled { .. } => None,
        }
    }
}

/// An effect claimed by this process. `called_before`: an earlier call may have reached the rail.
#[derive(Debug, Clone)]
pub struct Claimed {
    pub id: i64,
    pub reference: String,
    pub kind: EffectKind,
    pub called_before: bool,
    /// That call is so recent that it may still be in flight.
    pub in_flight: bool,
    pub attempts: i32,
    /// Consecutive failed attempts to write its step.
    pub unwritten: u32,
    pub fence: i64,
    /// When the rail was first called, or is about to be: by the database's clock.
    pub called_at: DateTime<Utc>,
    pub verdict: Option<ManualResolution>,
    /// Why the row is unreadable; such an effect must not be executed.
    pub unreadable: Option<String>,
}

impl Claimed {
    /// Work that was inserted as claimed.
    pub(crate) fn at_insertion(
        (id, reference, kind): (i64, String, &str),
        called_at: DateTime<Utc>,
    ) -> Result<Self, StoreError> {
        Ok(Self {
            id,
            reference,
            kind: known("effect", kind, EffectKind::parse)?,
            called_before: false,
            in_flight: false,
            attempts: 1,
            unwritten: 0,
            fence: 1,
            called_at,
            verdict: None,
            unreadable: None,
        })
    }
}

fn verdict(text: Option<&str>) -> Result<Option<ManualResolution>, StoreError> {
    let corrupt = |error| StoreError::corrupt("effect", format_args!("verdict: {error}"));
    text.map(serde_json::from_str).transpose().map_err(corrupt)
}

#[derive(Debug, Clone)]
pub enum EffectEnd {
    Done,
    /// Retry later. `called` stays set unless it is proven that no call reached the rail.
    Again {
        at: DateTime<Utc>,
        called: bool,
        /// The rail's last response, for display.
        last_result: &'static str,
    },
}

/// A claim and its end, written with the resulting step.
#[derive(Debug, Clone)]
pub struct EndedEffect {
    pub id: i64,
    pub fence: i64,
    pub end: EffectEnd,
    /// The calls of a rail that were made under the claim.
    pub calls: Vec<RailCall>,
}

/// The amount of work of each kind that may be claimed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rooms {
    /// Locks, reversals and timelocks, which call no rail.
    pub own: i64,
    pub offramp: i64,
    pub payout: i64,
}

impl Rooms {
    pub const fn of_each(places: i64) -> Self {
        Self { own: places, offramp: places, payout: places }
    }
}

/// Claims due work. The claim is committed before any call: it sets `called` for rail calls. A call made less than
/// `in_flight_secs` ago may still be in flight.
pub async fn claim(
    conn: &mut PgConnection,
    claim_secs: i32,
    in_flight_secs: i32,
    rooms: Rooms,
) -> Result<Vec<Claimed>, StoreError> {
    type Row = (i64, String, String, bool, bool, i32, i32, i64, DateTime<Utc>, Option<String>);
    let sql = "with own as (select id, called, coalesce(called_at > now() - make_interval(secs => $3), false) as \
                    fresh from effect \
                    where kind in ('lock', 'reversal', 'timelock') and run_at <= now() and (claimed_until is null or claimed_until < now()) \
                    order by run_at limit $1 for update skip locked), \
              offramp as (select id, called, coalesce(called_at > now() - make_interval(secs => $3), false) as fresh \
                    from effect \
                    where kind = 'offramp' and run_at <= now() and (claimed_until is null or claimed_until < now()) \
                    order by run_at limit $4 for update skip locked), \
              payout as (select id, called, coalesce(called_at > now() - make_interval(secs => $3), false) as fresh \
                    from effect \
                    where kind = 'payout' and run_at <= now() and (claimed_until is null or claimed_until < now()) \
                    order by run_at limit $5 for update skip locked), \
              due as (select * from own union all select * from offramp union all select * from payout) \
         update effect e set claimed_until = now() + make_interval(secs => $2), fence = e.fence + 1, \
                attempts = e.attempts + 1, called = true, woken = false, \
                called_at = case when due.called then e.called_at else now() end \
         from due where e.id = due.id \
         returning e.id, e.reference, e.kind, due.called, due.fresh, e.attempts, e.unwritten, e.fence, \
                   coalesce(e.called_at, now()), e.verdict::text";
    let rows: Vec<Row> =
        statement::list(conn, sql, (rooms.own, claim_secs, in_flight_secs, rooms.offramp, rooms.payout))
            .await?;
    rows.into_iter()
        .map(|(id, reference, kind, called_before, fresh, attempts, unwritten, fence, called_at, said)| {
            // An unreadable row must not prevent the execution of the others.
            let (verdict, unreadable) = match verdict(said.as_deref()) {
                Ok(verdict) => (verdict, None),
                Err(error) => (None, Some(error.to_string())),
            };
            Ok(Claimed {
                id,
                reference,
                kind: known("effect", &kind, EffectKind::parse)?,
                called_before,
                in_flight: called_before && fresh,
                attempts,
                unwritten: u32::try_from(unwritten).unwrap_or(0),
                fence,
                called_at,
                verdict,
                unreadable,
            })
        })
        .collect()
}

/// Marks a repeated call and returns its time, by the database's clock. `None`: another process has the claim by now.
pub async fn mark_called(
    conn: &mut PgConnection,
    id: i64,
    fence: i64,
) -> Result<Option<DateTime<Utc>>, StoreError> {
    let sql = "update effect set called_at = now() where id = $1 and fence = $2 returning called_at";
    statement::find_value(conn, sql, (id, fence)).await
}

/// Inserts a verdict as due work where none is due, and wakes the workers. `false`: work of the kind is due already.
pub async fn insert_verdict(
    conn: &mut PgConnection,
    reference: &str,
    kind: EffectKind,
    verdict: &serde_json::Value,
) -> Result<bool, StoreError> {
    let sql = "insert into effect (reference, kind, run_at, called, verdict) values ($1, $2, now(), true, $3) \
         on conflict on constraint effect_reference_kind_key do nothing";
    let done = statement::affected(conn, sql, (reference, kind.as_str(), verdict)).await?;
    notify_workers(conn).await?;
    Ok(done > 0)
}

/// Makes the timelock due of each failed order whose payment the bank has made, on which operators have not decided in
/// time, and whose funds can still be released. Returns their number.
pub async fn insert_timelocks(conn: &mut PgConnection) -> Result<u64, StoreError> {
    let sql = "insert into effect (reference, kind, run_at, called) \
         select e.reference, 'timelock', now(), false \
         from bank_payment b join execution e on e.reference = b.execution \
         where b.contradicting is not null and b.closed_at is null \
           and (b.returned_at is null or b.taken_back_at >= b.returned_at) \
           and e.state_name = 'payout_failed' and e.held_until > extract(epoch from now()) * 1000 \
           and e.state #>> '{lock,filled}' = 'true' \
           and (e.state #>> '{lock,deadlines,settle_at}')::int8 <= extract(epoch from now()) * 1000 \
         on conflict on constraint effect_reference_kind_key do nothing";
    let done = statement::affected(conn, sql, ()).await?;
    if done > 0 {
        notify_workers(conn).await?;
    }
    Ok(done)
}

/// Takes the claim of a decision about a payout, or its return, away, so that it is compared with what the caller's transaction writes. Waits
/// for a step of the decision that is being written.
pub async fn retract_decision(conn: &mut PgConnection, reference: &str) -> Result<(), StoreError> {
    let sql = "update effect set fence = fence + 1, claimed_until = null, run_at = least(run_at, now()) \
         where reference = $1 and kind in ('payout', 'reversal') \
           and verdict ->> 'verdict' is distinct from 'payment_returned' and verdict is not null";
    statement::execute(conn, sql, (reference,)).await
}

/// Whether a worker has found since a time, by the database's clock, that an order does not begin, for this reason.
pub async fn waits_since(
    conn: &mut PgConnection,
    reference: &str,
    why: &str,
    since: DateTime<Utc>,
) -> Result<bool, StoreError> {
    let sql = "select exists (select from effect where reference = $1 and kind = 'lock' \
                               and last_result = $2 and called_at > $3 and claimed_until is null)";
    statement::load_value(conn, sql, (reference, why, since)).await
}

/// Whether a claim still holds.
pub async fn is_claimed(conn: &mut PgConnection, id: i64, fence: i64) -> Result<bool, StoreError> {
    let sql = "select exists (select from effect where id = $1 and fence = $2)";
    let is_claimed: bool = statement::load_value(conn, sql, (id, fence)).await?;
    Ok(is_claimed)
}

/// The ids of claims that stand as they were inserted. A fail-over may lose the transaction of a claim and the ids that
/// its sequence had given out, and other work, or the same work of another step, gets the id and the same first fence.
pub async fn list_standing(conn: &mut PgConnection, claims: &[&Claimed]) -> Result<Vec<i64>, StoreError> {
    let sql = "select e.id from unnest($1::int8[], $2::int8[], $3::text[], $4::text[], $5::timestamptz[]) \
                          as c (id, fence, reference, kind, called_at) \
         join effect e on (e.id, e.fence, e.reference, e.kind, e.called_at) = (c.id, c.fence, c.reference, c.kind, c.called_at)";
    let parameters = (
        claims.iter().map(|claim| claim.id).collect::<Vec<_>>(),
        claims.iter().map(|claim| claim.fence).collect::<Vec<_>>(),
        claims.iter().map(|claim| claim.reference.as_str()).collect::<Vec<_>>(),
        claims.iter().map(|claim| claim.kind.as_str()).collect::<Vec<_>>(),
        claims.iter().map(|claim| claim.called_at).collect::<Vec<_>>(),
    );
    statement::list_values(conn, sql, parameters).await
}

/// Ends claims whose fence is unchanged, with one statement for those that are done and one for the others. The calls
/// that were made under them are recorded in any case. A decision about a conversion has had its effect, though the desk
/// is still asked.
pub async fn end(conn: &mut PgConnection, ended: &[EndedEffect]) -> Result<(), StoreError> {
    let (done, again): (Vec<&EndedEffect>, Vec<&EndedEffect>) =
        ended.iter().partition(|one| matches!(one.end, EffectEnd::Done));
    let ids = |ended: &[&EndedEffect]| ended.iter().map(|one| one.id).collect::<Vec<_>>();
    let fences = |ended: &[&EndedEffect]| ended.iter().map(|one| one.fence).collect::<Vec<_>>();
    if !done.is_empty() {
        let sql = concat!(
            "with ended as (delete from effect e using unnest($10::int8[], $11::int8[]) as u (id, fence) \
                            where e.id = u.id and e.fence = u.fence) ",
            record!()
        );
        let calls = Columns::of(done.iter().flat_map(|one| &one.calls));
        calls.bind(sqlx::query(sql)).bind(ids(&done)).bind(fences(&done)).execute(&mut *conn).await?;
    }
    if !again.is_empty() {
        let sql = concat!(
            "with ended as ( \
                 update effect e set run_at = case when e.woken then least(u.at, now()) else u.at end, woken = false, \
                        called = u.called, last_result = u.last_result, claimed_until = null, unwritten = 0, \
                        failing_since = null, \
                        verdict = case when e.kind = 'offramp' then null else e.verdict end \
                 from unnest($10::int8[], $11::int8[], $12::timestamptz[], $13::bool[], $14::text[]) \
                      as u (id, fence, at, called, last_result) \
                 where e.id = u.id and e.fence = u.fence) ",
            record!()
        );
        let (mut at, mut called, mut last_results) = (Vec::new(), Vec::new(), Vec::new());
        for one in &again {
            if let EffectEnd::Again { at: due, called: is_called, last_result } = one.end {
                at.push(due);
                called.push(is_called);
                last_results.push(last_result);
            }
        }
        let calls = Columns::of(again.iter().flat_map(|one| &one.calls));
        calls
            .bind(sqlx::query(sql))
            .bind(ids(&again))
            .bind(fences(&again))
            .bind(at)
            .bind(called)
            .bind(last_results)
            .execute(conn)
            .await?;
    }
    Ok(())
}

/// Releases a claim whose step could not be written, with the reason. `called` is unchanged.
pub async fn put_off(
    conn: &mut PgConnection,
    id: i64,
    fence: i64,
    wait: Duration,
    why: &str,
) -> Result<(), StoreError> {
    let sql = "update effect set run_at = now() + make_interval(secs => $3), claimed_until = null, \
                unwritten = unwritten + 1, failing_since = coalesce(failing_since, now()), last_result = $4 \
         where id = $1 and fence = $2";
    statement::execute(conn, sql, (id, fence, wait.as_secs_f64(), clean(why, TEXT_MAX))).await
}

/// Deletes the timers of settlements that left the accepted state.
pub async fn delete_timers(conn: &mut PgConnection, references: &[&str]) -> Result<(), StoreError> {
    let sql = "delete from effect where reference = any($1::text[]) and kind = 'lock'";
    statement::execute(conn, sql, (references,)).await
}

/// Wakes the workers of all processes at the commit.
pub async fn notify_workers(conn: &mut PgConnection) -> Result<(), StoreError> {
    statement::execute(conn, "select pg_notify('dvp_work', '')", ()).await
}

/// Moves the timers of resting orders that were filled.
pub async fn bring_forward(
    conn: &mut PgConnection,
    timers: &[(String, DateTime<Utc>)],
) -> Result<(), StoreError> {
    let (references, at): (Vec<&str>, Vec<DateTime<Utc>>) =
        timers.iter().map(|(reference, at)| (reference.as_str(), *at)).unzip();
    let sql = "update effect e set run_at = t.at from unnest($1::text[], $2::timestamptz[]) as t (reference, at) \
         where e.reference = t.reference and e.kind = 'lock'";
    statement::execute(conn, sql, (references, at)).await?;
    notify_workers(conn).await
}

pub async fn find_next_due(conn: &mut PgConnection) -> Result<Option<DateTime<Utc>>, StoreError> {
    let sql = "select next.run_at from unnest('{lock,offramp,payout,reversal}'::text[]) as k (kind) \
         cross join lateral (select e.run_at from effect e where e.kind = k.kind and e.run_at > now() \
                             order by e.run_at limit 1) next \
         order by next.run_at limit 1";
    statement::find_value(conn, sql, ()).await
}

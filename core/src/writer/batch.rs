//! One batch, one transaction. Locks are acquired in one order (legacy orders by key, quotes, balances by key); the
//! feed's counter is incremented last.
//!
//! Kept by `core/tests/it/races.rs::no_interleaving_of_processes_reserves_more_than_the_balance` and
//! `core/tests/it/races.rs::orders_of_other_balances_do_not_wait_for_a_batch_of_another_process`.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use dvp_domain::asset::AssetType;
use dvp_domain::hold::QuoteHolds;
use dvp_domain::intent::Bounds;
use dvp_domain::ledger::Owner;
use dvp_domain::limit;
use dvp_domain::settlement::Effect;
use dvp_domain::time::Timestamp;
use dvp_store::database::session;
use dvp_store::fix::rows::{FixNumbers, FixRows};
use dvp_store::ledger::balances::{self, BalanceKey};
use dvp_store::orders::effects::Claimed;
use dvp_store::orders::executions::StateChange;
use dvp_store::orders::idempotency::Record;
use dvp_store::orders::intents::Tenant;
use dvp_store::orders::{abandonments, executions, legacy, quotes};
use dvp_store::{Fault, StoreError, fix};
use sqlx::{Connection as _, PgConnection};

use super::idempotency::{self, Trust};
use super::rows::Rows;
use super::sessions::{Numbers, sessions};
use super::submit::{self, BatchSnapshot, DecidedSubmission};
use super::unit::{Change, Done, Outcome, Refusal, Submission, Unit, UsedKey, Work};
use super::{BatchContext, WriteError, figures, plan};
use crate::context::Context;
use crate::writer::handover::Committing;

/// Whether the batch has failed because an id was used before.
pub(super) fn is_repeat(error: &StoreError) -> bool {
    let keys = ["intent_pkey", "intent_client_reference_key", "permit_use_pkey", "fix_order_pkey"];
    matches!(error, StoreError::Stale { .. }) || error.constraint().is_some_and(|name| keys.contains(&name))
}

/// Whether the batch may have failed for this reason: a request that was answered before can violate any key.
pub(super) fn may_be_repeat(error: &StoreError) -> bool {
    is_repeat(error) || error.is_unique_violation()
}

/// The statement timeout of a transaction when it is shorter than the connection's.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    pub lock: Duration,
    pub statement: Duration,
}

pub(super) struct Attempt<'a> {
    pub trust: Trust,
    pub patience: Option<Patience>,
    /// Set before COMMIT is sent: from then on, after an error, the batch may have been written.
    pub commit_sent: &'a AtomicBool,
}

/// Writes the units and returns their outcomes. An error means that nothing was written, unless COMMIT was sent and the
/// connection lost. The second value says whether the connection can be reused. `committing` gets the work to be handed
/// over once the transaction is known to be committed.
pub(super) async fn commit(
    conn: &mut PgConnection,
    place: &BatchContext,
    units: &[&Unit],
    attempt: Attempt<'_>,
    committing: &mut Vec<Committing>,
) -> Result<Vec<Result<Done, WriteError>>, (StoreError, bool)> {
    let commit_sent = attempt.commit_sent;
    let mut tx = conn.begin().await.map_err(|error| (error.into(), false))?;
    match write(&mut tx, place, units, attempt).await {
        Ok(written) => {
            let Written { done, mut rows, claimed, moved, numbers, holds } = written;
            *committing = rows.committing(claimed);
            // A client that can see the change must not get the previous state afterwards, neither from the feed nor
            // from the cache.
            let changing = place.statuses.changing(moved);
            commit_sent.store(true, Ordering::Relaxed);
            let began = Instant::now();
            let committed = tx.commit().await;
            drop(changing);
            committed.map_err(|error| (error.into(), false))?;
            figures::committed(began.elapsed());
            figures::begun(&rows.begun);
            figures::abandoned(&rows.abandoned);
            numbers.remember(units);
            let after = rows.balances.iter().map(|(key, balance)| (key, balance.available));
            place.context.liquidity.balances().moved(after, &holds);
            Ok(done)
        }
        Err(error) => {
            let is_reusable = error.fault() != Fault::Unavailable && tx.rollback().await.is_ok();
            Err((error, is_reusable))
        }
    }
}

/// The state of a transaction before its commit.
struct Written<'u> {
    done: Vec<Result<Done, WriteError>>,
    rows: Rows,
    claimed: Vec<Claimed>,
    moved: HashSet<String>,
    numbers: Numbers<'u>,
    /// The holds of firm quotes on the locked balances.
    holds: QuoteHolds,
}

async fn write<'u>(
    conn: &mut PgConnection,
    place: &BatchContext,
    units: &[&'u Unit],
    attempt: Attempt<'_>,
) -> Result<Written<'u>, StoreError> {
    let Attempt { trust, patience, .. } = attempt;
    let (context, now) = (place.context.as_ref(), place.context.clock.now());
    if let Some(patience) = patience {
        bound(conn, patience).await?;
    }
    let mut numbers = numbers(conn, units, trust).await?;
    // A unit whose FIX part does not continue its session's numbers is skipped as a whole.
    let follow = numbers.clone().foresee(units);
    let taken = || units.iter().zip(&follow).filter(|(_, follows)| **follows).map(|(unit, _)| *unit);
    let mut outcomes = idempotency::decide(conn, units, trust).await?;
    let undecided = units.iter().zip(&follow).zip(&outcomes);
    let requested: Vec<&Submission> = undecided
        .filter_map(|((unit, follows), outcome)| match &unit.work {
            Work::Submit(submission) if *follows && outcome.is_none() => Some(submission.as_ref()),
            Work::Fill(fill) => Some(&fill.submission),
            _ => None,
        })
        .collect();
    let mut known = submit::load(conn, context, &requested, trust, now).await?;
    submit::count_resting(conn, &mut known, &ranging(units, &outcomes)).await?;
    let given_back = levels_given_back(taken());
    submit::lock_levels(conn, &mut known, &requested, given_back).await?;
    let handover = Arc::clone(&place.handover);
    let keys = balance_keys(&known, &requested, taken());
    let mut rows = Rows { handover, balances: balances::lock(conn, &keys).await?, ..Rows::default() };
    // After the balances are locked, so that no other transaction can add holds.
    if taken().any(|unit| matches!(unit.work, Work::Submit(_) | Work::FirmQuote(_) | Work::Fill(_))) {
        known.holds = submit::load_holds(conn, &keys, now).await?;
    }
    let mut moved = change_executions(conn, taken(), now).await?;
    let resting = submit::lock_resting(conn, taken()).await?;
    let mut decided = Vec::new();
    let mut work = Gathering {
        context,
        known: &mut known,
        rows: &mut rows,
        decided: &mut decided,
        stepped: HashSet::new(),
        resting,
        now,
    };
    for ((unit, was_to_follow), outcome) in units.iter().zip(&follow).zip(&mut outcomes) {
        if let Some(part) = &unit.fix
            && !numbers.follows(part)
        {
            if *was_to_follow {
                check_unmoved(unit, &moved)?;
            }
            *outcome = None;
            continue;
        }
        if outcome.is_none() {
            *outcome = work.gather(conn, unit, &moved).await?;
        }
        if let Some(part) = unit.fix.as_ref().filter(|_| outcome.is_some()) {
            numbers.advance(part);
        }
    }
    let Finished { done, records, parts } = finish(units, outcomes);
    submit::use_up(conn, &known).await?;
    rows.destinations = std::mem::take(&mut known.destinations);
    let claimed = rows.write(conn, &submit::intent_rows(&decided), &records).await?;
    if !rows.abandoned.is_empty() {
        abandonments::insert(conn, &rows.abandoned, &context.cool_down, now).await?;
    }
    if !parts.is_empty() {
        fix::apply_parts(conn, &parts).await?;
    }
    rows.append(conn, now).await?;
    moved.extend(rows.matched.iter().map(|one| one.terms.reference.to_string()));
    Ok(Written { done, rows, claimed, moved, numbers, holds: known.holds })
}

/// The tenants of undecided orders that may come to rest: ranges, and those that a deposit pays.
fn ranging<'u>(units: &[&'u Unit], outcomes: &[Option<Outcome>]) -> BTreeSet<&'u Tenant> {
    let undecided = units.iter().zip(outcomes).filter(|(_, outcome)| outcome.is_none());
    let tenants = undecided.filter_map(|(unit, _)| match &unit.work {
        Work::Submit(submission)
            if matches!(submission.request.bounds, Bounds::Range { .. })
                || submission.request.input_asset.kind == AssetType::Native =>
        {
            Some(&submission.tenant)
        }
        _ => None,
    });
    tenants.collect()
}

async fn bound(conn: &mut PgConnection, patience: Patience) -> Result<(), StoreError> {
    let Patience { lock, statement } = patience;
    Ok(session::limit_transaction(conn, lock, statement).await?)
}

/// The sequence numbers that the FIX parts must continue.
async fn numbers<'u>(
    conn: &mut PgConnection,
    units: &[&'u Unit],
    trust: Trust,
) -> Result<Numbers<'u>, StoreError> {
    match trust {
        Trust::New => Ok(Numbers::of_first_parts(units)),
        Trust::Nothing => {
            let sessions = sessions(units);
            let loaded = if sessions.is_empty() {
                HashMap::new()
            } else {
                fix::list_next_out(conn, &sessions).await?
            };
            Ok(Numbers::of_loaded(units, &loaded))
        }
    }
}

/// The resting orders that the steps return amounts to.
fn levels_given_back<'u>(units: impl Iterator<Item = &'u Unit>) -> BTreeSet<i64> {
    let changes = units.filter_map(|unit| match &unit.work {
        Work::Step(change) => Some(change),
        _ => None,
    });
    changes.flat_map(|change| change.given_back()).map(|(level, _)| level).collect()
}

/// The balances of the batch, in locking order.
fn balance_keys<'u>(
    known: &BatchSnapshot,
    requested: &[&Submission],
    units: impl Iterator<Item = &'u Unit>,
) -> BTreeSet<BalanceKey> {
    let mut keys = submit::balance_keys(known, requested);
    for unit in units {
        let step = match &unit.work {
            Work::Step(change) => &change.step,
            Work::FirmQuote(quote) => {
                keys.extend(submit::quote_keys(quote));
                continue;
            }
            Work::Fill(fill) => {
                let output = &fill.execution.terms.output.asset;
                let again = fill.filled_as.iter();
                keys.extend(again.map(|one| (Owner::Provider(one.provider_id.clone()), output.clone())));
                continue;
            }
            _ => continue,
        };
        for effect in step.iter().flat_map(|step| &step.effects) {
            if let Effect::Post(posting) = effect {
                keys.extend(posting.balances());
            }
        }
    }
    keys
}

/// Updates the executions whose version is unchanged and returns their references. Of two steps of one execution in a
/// batch only the first can succeed.
async fn change_executions<'u>(
    conn: &mut PgConnection,
    units: impl Iterator<Item = &'u Unit>,
    now: Timestamp,
) -> Result<HashSet<String>, StoreError> {
    let mut seen = HashSet::new();
    let changes: Vec<StateChange<'_>> = units
        .filter_map(|unit| match &unit.work {
            Work::Step(change) => Some(change),
            _ => None,
        })
        .filter(|change| change.step.is_some() && seen.insert(change.terms.reference.as_str()))
        .filter_map(|change| Some((change, change.step.as_ref()?)))
        .map(|(change, step)| {
            let last_at = change.last_occurred_at;
            let events = i64::try_from(step.events.len()).ok();
            let last_sequence = events.and_then(|events| change.last_sequence.checked_add(events));
            Ok(StateChange {
                reference: change.terms.reference.as_str(),
                version: change.version,
                state: &step.next,
                last_sequence: last_sequence.ok_or_else(plan::sequence_overflow)?,
                last_occurred_at: step.occurred(last_at, now).last().copied().unwrap_or(last_at),
                claim: change.consumed.guarded_claim(),
            })
        })
        .collect::<Result<_, StoreError>>()?;
    if changes.is_empty() {
        return Ok(HashSet::new());
    }
    Ok(executions::update(conn, &changes).await?.into_iter().collect())
}

/// A unit that is skipped because an earlier step of its session was stale must not have updated its own execution:
/// then the batch is split.
fn check_unmoved(unit: &Unit, moved: &HashSet<String>) -> Result<(), StoreError> {
    match &unit.work {
        Work::Step(change) if moved.contains(change.terms.reference.as_str()) => {
            Err(StoreError::Stale { what: "the FIX session" })
        }
        _ => Ok(()),
    }
}

struct Gathering<'b, 'u> {
    context: &'b Context,
    known: &'b mut BatchSnapshot,
    rows: &'b mut Rows,
    decided: &'b mut Vec<DecidedSubmission<'u>>,
    stepped: HashSet<&'u str>,
    resting: HashSet<String>,
    now: Timestamp,
}

impl<'u> Gathering<'_, 'u> {
    /// Gathers one unit's rows. `None`: its base was changed concurrently, and the unit writes nothing.
    async fn gather(
        &mut self,
        conn: &mut PgConnection,
        unit: &'u Unit,
        moved: &HashSet<String>,
    ) -> Result<Option<Outcome>, StoreError> {
        match &unit.work {
            Work::Submit(submission) if !self.known.is_due(submission) => return Ok(None),
            Work::Submit(submission) => {
                let (outcome, decided) =
                    submit::decide_one(self.context, self.known, self.rows, submission, self.now)?;
                self.decided.extend(decided);
                return Ok(Some(outcome));
            }
            Work::Quote(context) => quotes::upsert_context(conn, context).await?,
            Work::LegacyIntent(new) => {
                if legacy::is_full(conn, &new.tenant).await? {
                    return Ok(Some(Outcome::Refused(Refusal::TooManyWaiting)));
                }
                legacy::insert(conn, new).await?;
            }
            Work::FirmQuote(quote) => {
                let balances = &self.rows.balances;
                let held = submit::hold(conn, self.context, self.known, balances, quote, self.now).await;
                return held.map(Some);
            }
            Work::Step(change) => return self.gather_step(change, moved),
            Work::Fill(fill) if !self.resting.remove(fill.execution.terms.reference.as_str()) => {
                return Ok(None);
            }
            Work::Fill(fill) => {
                return submit::decide_fill(self.context, self.known, self.rows, fill, self.now).map(Some);
            }
            Work::Refuse(refusal) => return Ok(Some(Outcome::Refused(*refusal))),
            Work::AnswerOnly | Work::SessionOnly => {}
        }
        Ok(Some(Outcome::Written))
    }

    fn gather_step(
        &mut self,
        change: &'u Change,
        moved: &HashSet<String>,
    ) -> Result<Option<Outcome>, StoreError> {
        if let Some(step) = &change.step {
            let reference = change.terms.reference.as_str();
            if !moved.contains(reference) || !self.stepped.insert(reference) {
                return Ok(None);
            }
            let at = plan::At {
                version: change.version.checked_add(1).ok_or_else(plan::sequence_overflow)?,
                last_sequence: change.last_sequence,
                last_occurred_at: change.last_occurred_at,
                now: self.now,
            };
            plan::gather(self.context, self.rows, &change.terms, step, at)?;
            if change.consumed.ends_timer() {
                // It is deleted with the other consumed work.
                self.rows.timers_dropped.pop_if(|dropped| dropped.as_str() == reference);
            }
            if change.was_open && step.next.is_terminal() && change.terms.counts_as_open {
                self.rows.close(limit::amounts_of(&change.terms))?;
            }
            if change.reopens() && change.terms.counts_as_open {
                self.rows.reopen(limit::amounts_of(&change.terms))?;
            }
            self.known.give_back(change.given_back())?;
            self.rows.abandoned.extend(change.abandoned());
        }
        self.rows.facts.extend(change.consumed.fact);
        self.rows.ended.extend(change.consumed.effect.clone());
        Ok(Some(Outcome::Written))
    }
}

/// The outcomes and their stored rows.
struct Finished<'u> {
    done: Vec<Result<Done, WriteError>>,
    records: Vec<Record>,
    parts: Vec<(&'u FixNumbers, FixRows)>,
}

/// Renders the idempotency records and the FIX parts of the written units.
fn finish<'u>(units: &[&'u Unit], outcomes: Vec<Option<Outcome>>) -> Finished<'u> {
    let mut finished =
        Finished { done: Vec::with_capacity(units.len()), records: Vec::new(), parts: Vec::new() };
    for (unit, outcome) in units.iter().zip(outcomes) {
        let Some(outcome) = outcome else {
            let what = match &unit.work {
                Work::Step(_) | Work::Fill(_) => "the execution",
                Work::Submit(submission) if submission.turn.is_some() => "the legacy order",
                _ => "the FIX session",
            };
            finished.done.push(Err(WriteError::Stale { what }));
            continue;
        };
        let response = match (&outcome, &unit.idempotency) {
            (Outcome::KeyUsed(UsedKey::Replayed(response)), _) => Some(response.clone()),
            (
                Outcome::Refused(
                    Refusal::PartnerDisabled
                    | Refusal::TooManyWaiting
                    | Refusal::CoolingDown(_)
                    | Refusal::Unpayable(_),
                )
                | Outcome::KeyUsed(UsedKey::Conflict | UsedKey::Processing),
                _,
            )
            | (_, None) => None,
            (outcome, Some(part)) => {
                let response = (part.render)(outcome);
                let (id, fingerprint) = (part.id.clone(), part.fingerprint);
                finished.records.push(Record { id, fingerprint, response: response.clone() });
                Some(response)
            }
        };
        let mut outbound = Vec::new();
        if let Some(part) = &unit.fix {
            let rows = (part.render)(&outcome);
            outbound.clone_from(&rows.outbound);
            finished.parts.push((&part.numbers, rows));
        }
        finished.done.push(Ok(Done { outcome, response, outbound }));
    }
    finished
}

//! One batch, one transaction. Locks are taken in one order (quotes, then balances by key), the feed's counter is
//! bumped last.

use std::collections::{BTreeSet, HashSet};

use dvp_domain::settlement::Effect;
use dvp_domain::time::Timestamp;
use sqlx::{Connection as _, PgConnection};

use super::rows::Rows;
use super::submit::{self, Decided, Known};
use super::unit::{Change, Done, Outcome, Submission, Unit, Work};
use super::{Place, WriteError, claims, plan};
use crate::context::{Context, now};
use crate::fix::{FixPart, FixRows};
use crate::store::balances::{self, BalanceKey};
use crate::store::executions::StateChange;
use crate::store::idempotency::Record;
use crate::store::{StoreError, executions, fix, legacy, quotes};

/// What is taken for granted about the units of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trust {
    /// That their ids, references, nonces and idempotency keys are new. The database's own keys say when one is not;
    /// then nothing was written ([`is_repeat`]).
    New,
    /// Nothing: what was used before is looked up first.
    Nothing,
}

/// Whether the batch has run into something that was used before.
pub(super) fn is_repeat(error: &StoreError) -> bool {
    let keys = ["intent_pkey", "intent_client_reference_key", "permit_use_pkey"];
    matches!(error, StoreError::Stale { .. }) || error.constraint().is_some_and(|name| keys.contains(&name))
}

/// Writes the units and returns each one's outcome. An error means that nothing was written.
pub(super) async fn commit(
    conn: &mut PgConnection,
    place: &Place,
    units: &[&Unit],
    trust: Trust,
) -> Result<Vec<Result<Done, WriteError>>, StoreError> {
    let Place { context, statuses, .. } = place;
    let now = now();
    let mut tx = conn.begin().await?;
    let mut outcomes = claims::decide(&mut tx, units, trust).await?;
    let open = |outcomes: &[Option<Outcome>], n: usize| outcomes.get(n).is_some_and(Option::is_none);
    let submissions: Vec<(usize, &Submission)> = units
        .iter()
        .enumerate()
        .filter_map(|(n, unit)| match &unit.work {
            Work::Submit(submission) if open(&outcomes, n) => Some((n, submission.as_ref())),
            _ => None,
        })
        .collect();
    let asked: Vec<&Submission> = submissions.iter().map(|(_, submission)| *submission).collect();
    let mut known = submit::load(&mut tx, context, &asked, trust).await?;
    let mut rows = Rows { chain_id: context.chain.chain_id, ..Rows::default() };
    let keys = balance_keys(&known, &asked, units);
    if !keys.is_empty() {
        rows.balances = balances::lock(&mut tx, &keys).await?;
    }
    let moved = change_executions(&mut tx, units).await?;
    let mut decided = Vec::new();
    let mut work = Gathering {
        context,
        known: &mut known,
        rows: &mut rows,
        decided: &mut decided,
        stepped: HashSet::new(),
        now,
    };
    for (n, unit) in units.iter().enumerate() {
        if open(&outcomes, n)
            && let Some(slot) = outcomes.get_mut(n)
        {
            *slot = work.gather(&mut tx, unit, &moved).await?;
        }
    }
    let Finished { done, records, parts } = finish(units, outcomes);
    submit::use_up(&mut tx, &known).await?;
    if !parts.is_empty() {
        fix::apply_parts(&mut tx, &parts).await?;
    }
    rows.write(&mut tx, &submit::intent_rows(&decided), &records).await?;
    // Whoever can see the change must not be told the state before it: neither by the feed nor from memory.
    let changing = statuses.changing(moved);
    let committed = tx.commit().await;
    drop(changing);
    committed?;
    let after = rows.balances.iter().map(|(key, balance)| (key, balance.available));
    context.liquidity.balances().moved(after);
    Ok(done)
}

/// The balances the batch will touch, in the order they are locked.
fn balance_keys(known: &Known, asked: &[&Submission], units: &[&Unit]) -> BTreeSet<BalanceKey> {
    let mut keys = submit::balance_keys(known, asked);
    for unit in units {
        let Work::Step(change) = &unit.work else { continue };
        let Some(step) = &change.step else { continue };
        for effect in &step.effects {
            if let Effect::Post(posting) = effect {
                keys.extend(posting.balances());
            }
        }
    }
    keys
}

/// Moves the executions whose version still holds and returns their references. Of two steps of one execution in a
/// batch only the first can hold.
async fn change_executions(conn: &mut PgConnection, units: &[&Unit]) -> Result<HashSet<String>, StoreError> {
    let mut seen = HashSet::new();
    let changes: Vec<StateChange<'_>> = units
        .iter()
        .filter_map(|unit| match &unit.work {
            Work::Step(change) => Some(change),
            _ => None,
        })
        .filter(|change| change.step.is_some() && seen.insert(change.terms.reference.as_str()))
        .filter_map(|change| {
            let step = change.step.as_ref()?;
            let told = i64::try_from(step.events.len()).unwrap_or(i64::MAX);
            Some(StateChange {
                reference: change.terms.reference.as_str(),
                version: change.version,
                state: &step.next,
                last_sequence: change.last_sequence.saturating_add(told),
            })
        })
        .collect();
    if changes.is_empty() {
        return Ok(HashSet::new());
    }
    Ok(executions::update(conn, &changes).await?.into_iter().collect())
}

struct Gathering<'b, 'u> {
    context: &'b Context,
    known: &'b mut Known,
    rows: &'b mut Rows,
    decided: &'b mut Vec<Decided<'u>>,
    stepped: HashSet<&'u str>,
    now: Timestamp,
}

impl<'u> Gathering<'_, 'u> {
    /// Gathers one unit's rows. `None`: its base was changed by somebody else, and nothing of it is written.
    async fn gather(
        &mut self,
        conn: &mut PgConnection,
        unit: &'u Unit,
        moved: &HashSet<String>,
    ) -> Result<Option<Outcome>, StoreError> {
        match &unit.work {
            Work::Submit(submission) => {
                let (outcome, decided) =
                    submit::decide_one(self.context, self.known, self.rows, submission, self.now)?;
                self.decided.extend(decided);
                return Ok(Some(outcome));
            }
            Work::Quote(context) => quotes::upsert_context(conn, context).await?,
            Work::LegacyIntent(new) => legacy::insert(conn, new).await?,
            Work::FirmQuote(quote) => quotes::insert_firm(conn, quote).await?,
            Work::Step(change) => return self.gather_step(change, moved),
            Work::Refuse(outcome) => return Ok(Some(outcome.clone())),
            Work::SessionOnly => {}
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
            let at = (change.version.saturating_add(1), change.last_sequence);
            plan::gather(self.context, self.rows, &change.terms, step, at, self.now)?;
        }
        self.rows.facts.extend(change.consumed.fact);
        self.rows.ended.extend(change.consumed.effect.clone());
        Ok(Some(Outcome::Written))
    }
}

/// The outcomes, and what is kept of them.
struct Finished<'u> {
    done: Vec<Result<Done, WriteError>>,
    records: Vec<Record>,
    parts: Vec<(&'u FixPart, FixRows)>,
}

/// Renders the idempotency records and the FIX parts of the units that were carried out.
fn finish<'u>(units: &[&'u Unit], outcomes: Vec<Option<Outcome>>) -> Finished<'u> {
    let mut finished =
        Finished { done: Vec::with_capacity(units.len()), records: Vec::new(), parts: Vec::new() };
    for (unit, outcome) in units.iter().zip(outcomes) {
        let Some(outcome) = outcome else {
            finished.done.push(Err(WriteError::Stale { what: "the execution" }));
            continue;
        };
        let response = match (&outcome, &unit.idempotency) {
            (Outcome::Replayed(response), _) => Some(response.clone()),
            (Outcome::KeyConflict | Outcome::KeyProcessing, _) | (_, None) => None,
            (outcome, Some(part)) => {
                let response = (part.render)(outcome);
                let (id, fingerprint) = (part.id.clone(), part.fingerprint);
                finished.records.push(Record { id, fingerprint, response: response.clone() });
                Some(response)
            }
        };
        if let Some(part) = &unit.fix {
            finished.parts.push((part, (part.render)(&outcome)));
        }
        finished.done.push(Ok(Done { outcome, response }));
    }
    finished
}

//! The fill of a resting order: decided as a new submission is, in the transaction that locked the order as resting.

use std::collections::HashSet;

use dvp_domain::decision::{Decision, Reason};
use dvp_domain::intent::{Bounds, IntentRequest};
use dvp_domain::money::Minor;
use dvp_domain::permit::PermitDefect;
use dvp_domain::plan::Plan;
use dvp_domain::settlement::Happened;
use dvp_domain::terms::Terms;
use dvp_domain::time::Timestamp;
use dvp_store::StoreError;
use dvp_store::orders::executions::MatchedExecution;
use dvp_store::orders::permits::PermitHold;
use dvp_store::orders::ranges;
use sqlx::PgConnection;

use super::record::{end_hold, take_answers, take_levels, terms};
use super::snapshot::BatchSnapshot;
use super::{amounts, check_payout, decide_as_new, market_decision};
use crate::context::Context;
use crate::writer::plan;
use crate::writer::rows::Rows;
use crate::writer::unit::{FillAttempt, FilledAs, Outcome, Submission, Unfilled, Unit, Work};

/// Locks the orders that still rest as they were read.
pub(in crate::writer) async fn lock_resting<'u>(
    conn: &mut PgConnection,
    units: impl Iterator<Item = &'u Unit>,
) -> Result<HashSet<String>, StoreError> {
    let asked: Vec<(&str, i64)> = units
        .filter_map(|unit| match &unit.work {
            Work::Fill(fill) => Some((fill.execution.terms.reference.as_str(), fill.execution.version)),
            _ => None,
        })
        .collect();
    if asked.is_empty() { Ok(HashSet::new()) } else { ranges::lock_resting(conn, &asked).await }
}

/// Decides an order that is locked as resting.
pub(in crate::writer) fn decide_fill(
    context: &Context,
    known: &mut BatchSnapshot,
    rows: &mut Rows,
    fill: &FillAttempt,
    now: Timestamp,
) -> Result<Outcome, StoreError> {
    if let Some(filled_as) = &fill.filled_as {
        return fill_again(context, known, rows, (fill, filled_as), now);
    }
    let FillAttempt { submission, .. } = fill;
    let unfilled = |why| Ok(Outcome::Unfilled(why));
    if known.disabled.contains(&submission.tenant.partner_id) {
        return unfilled(Unfilled::PartnerDisabled);
    }
    if now >= submission.request.deadline {
        return unfilled(Unfilled::NotMet);
    }
    let decided = decide_as_new(context, known, rows, submission, now);
    let plan = match decided {
        Decision::Accepted(plan) => plan,
        Decision::Rests(_) => return unfilled(Unfilled::NotMet),
        Decision::Rejected(reason) => return unfilled(Unfilled::Rejected(reason)),
        Decision::PermitTooSmall => return unfilled(Unfilled::Permit(PermitDefect::Amount)),
    };
    if check_payout(context, known, submission, &plan).is_err() {
        return unfilled(Unfilled::Unpayable);
    }
    if fill.deposited.is_some_and(|deposited| deposited < plan.priced.input) {
        return unfilled(Unfilled::Deposit);
    }
    if let Err(defect) = known.check_held(submission, plan.priced.input) {
        return unfilled(Unfilled::Permit(defect));
    }
    if let Some(exceeded) = known.limits.exceeded(&amounts(context, submission, &plan)) {
        return unfilled(Unfilled::Rejected(Reason::Limit(exceeded)));
    }
    gather(context, known, rows, (fill, *plan), now)
}

/// A fill that its chain has already: the amounts and the solver are those, and no limit, pause or price keeps it back.
/// What the market would give today only says how the amounts are divided. An error is an order that waits.
fn fill_again(
    context: &Context,
    known: &mut BatchSnapshot,
    rows: &mut Rows,
    (fill, filled_as): (&FillAttempt, &FilledAs),
    now: Timestamp,
) -> Result<Outcome, StoreError> {
    let FillAttempt { submission, .. } = fill;
    let bounds = Bounds::ExactOutput { output: filled_as.output, max_input: Minor::new(u128::MAX) };
    let mut request = IntentRequest { bounds, quote_id: None, ..submission.request.clone() };
    if let Some(permit) = &mut request.permit {
        permit.amount_minor = Minor::new(u128::MAX);
    }
    let asked = Submission { request, ..submission.clone() };
    let plan = match market_decision(context, known, rows, &asked, (None, now)) {
        Decision::Accepted(plan) => *plan,
        Decision::Rejected(reason) => return Ok(Outcome::Unfilled(Unfilled::Rejected(reason))),
        Decision::Rests(_) | Decision::PermitTooSmall => return Ok(Outcome::Unfilled(Unfilled::NotMet)),
    };
    let FilledAs { input, provider_id, wallet, .. } = filled_as;
    let plan = plan.filled_as(*input, provider_id, wallet, submission.request.bounds.max_input());
    let too_little = || StoreError::corrupt("execution", "the lock is less than its fees");
    gather(context, known, rows, (fill, plan.ok_or_else(too_little)?), now)
}

fn gather(
    context: &Context,
    known: &mut BatchSnapshot,
    rows: &mut Rows,
    (fill, plan): (&FillAttempt, Plan),
    now: Timestamp,
) -> Result<Outcome, StoreError> {
    let submission = &fill.submission;
    let amounts = amounts(context, submission, &plan);
    plan.check().map_err(|fault| StoreError::corrupt("execution", fault))?;
    take_levels(known, &plan)?;
    take_answers(context, known, &submission.request, &plan, now);
    let rested = &fill.execution;
    let reference = rested.terms.reference.clone();
    end_hold(known, &plan, &reference);
    let accepted_at = rested.terms.accepted_at;
    // It is filled in the contracts that took it: its permit or its deposit is for these.
    let escrows = rested.terms.escrows.clone();
    let terms = Terms { accepted_at, escrows, ..terms(context, known, submission, (plan, reference), now)? };
    let illegal = |error| StoreError::corrupt("execution", error);
    let step = rested.state.clone().step(&terms, Happened::Matched).map_err(illegal)?;
    let at = plan::At {
        version: rested.version.checked_add(1).ok_or_else(plan::sequence_overflow)?,
        last_sequence: rested.last_sequence,
        last_occurred_at: rested.last_occurred_at,
        now,
    };
    plan::gather(context, rows, &terms, &step, at)?;
    let chain = context.chain_of(&terms)?;
    if let Some(hold) = PermitHold::of(&terms, chain.chain_id) {
        known.end_rest(&hold);
        rows.permits_settled.push(hold);
        chain.backlog.accepted();
    }
    known.limits.take(&amounts);
    rows.count(amounts)?;
    rows.matched.push(MatchedExecution { terms, version: rested.version, state: step.next });
    Ok(Outcome::Written)
}

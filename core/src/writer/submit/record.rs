//! The rows of an accepted or rejected intent.

use std::collections::BTreeMap;

use dvp_domain::asset::Asset;
use dvp_domain::beneficiary::MaskedBeneficiary;
use dvp_domain::canonical::hex32;
use dvp_domain::decision::Reason;
use dvp_domain::ids::{PartnerId, Reference};
use dvp_domain::intent::{Bounds, IntentRequest};
use dvp_domain::money::Minor;
use dvp_domain::plan::{InputFunding, Plan, SolvedPath};
use dvp_domain::screening::Beginning;
use dvp_domain::settlement::leg::LegKind;
use dvp_domain::settlement::{accept, accept_and_begin, rest};
use dvp_domain::terms::{AssetAmount, Terms};
use dvp_domain::time::Timestamp;
use dvp_store::StoreError;
use dvp_store::database::ids;
use dvp_store::orders::effects::EffectKind;
use dvp_store::orders::intents::IntentRow;
use dvp_store::orders::legacy;
use dvp_store::orders::permits::PermitHold;
use dvp_store::orders::quote_holds;
use dvp_store::orders::quotes::{self, FirmQuote};
use dvp_store::orders::ranges::NewRestingRange;
use dvp_store::orders::resting_orders;
use sqlx::PgConnection;

use super::DecidedSubmission;
use super::holds::holder;
use super::snapshot::BatchSnapshot;
use crate::context::Context;
use crate::writer::plan;
use crate::writer::rows::Rows;
use crate::writer::unit::{Accepted, DepositDue, Submission};

pub(super) fn gather_accepted(
    context: &Context,
    known: &mut BatchSnapshot,
    rows: &mut Rows,
    submission: &Submission,
    plan: Plan,
    now: Timestamp,
) -> Result<Accepted, StoreError> {
    plan.check().map_err(|fault| StoreError::corrupt("execution", fault))?;
    let request = &submission.request;
    let reference = Reference::from_unique(ids::draw(context.cell).simple());
    take_levels(known, &plan)?;
    take_answers(context, known, request, &plan, now);
    end_hold(known, &plan, &reference);
    if let Some(turn) = &submission.turn {
        known.executed.push((turn.clone(), reference.to_string()));
    }
    let lock_by = context.windows.lock_by(request, &plan, now);
    let accepted = accepted(context, request, &reference, &plan, (plan.priced.input, lock_by));
    let terms = terms(context, known, submission, (plan, reference), now)?;
    let chain = context.chain_of(&terms)?;
    if let Some(hold) = PermitHold::of(&terms, chain.chain_id) {
        known.pending.entry(hold.wallet()).or_default().hold(&hold);
        rows.permits.push(hold);
        chain.backlog.accepted();
    }
    let begins = is_due(context, known, rows, &terms, now);
    let illegal = |error| StoreError::corrupt("execution", error);
    let step = if begins { accept_and_begin(&terms).map_err(illegal)? } else { accept(&terms) };
    let at = plan::At { version: 1, last_sequence: 0, last_occurred_at: terms.accepted_at, now };
    let last = plan::gather(context, rows, &terms, &step, at)?;
    rows.begun.extend(begins.then(|| step.next.name()));
    rows.accepted.push((terms, step.next, last));
    Ok(accepted)
}

/// Whether an order begins in the commit of its acceptance: nothing is locked on the chain for it, its first leg is due
/// and not paused, nobody screens it, and a worker of this process is free for the leg. Any other order waits for its
/// timer.
fn is_due(context: &Context, known: &BatchSnapshot, rows: &Rows, terms: &Terms, now: Timestamp) -> bool {
    let (leg, kind) = match terms.converts() {
        true => (LegKind::Offramp, EffectKind::Offramp),
        false => (LegKind::Payout, EffectKind::Payout),
    };
    let is_screened = context.screening.is_on();
    !terms.locks()
        && terms.lock_at <= now
        && Beginning::first(None, now, terms.request.deadline, is_screened) == Beginning::Begin
        && !known.pauses.stops_leg(leg, terms.pays_on_chain())
        && rows.handover.has_place(kind)
}

/// The rows of an order that rests, for the market or for its deposit: nothing is reserved, and its permit's nonce is held
/// with its cap. A firm quote goes on holding its output until it lapses, and the order waits no longer.
pub(super) fn gather_resting(
    context: &Context,
    known: &mut BatchSnapshot,
    rows: &mut Rows,
    submission: &Submission,
    plan: Plan,
    now: Timestamp,
) -> Result<Accepted, StoreError> {
    let request = &submission.request;
    let reference = Reference::from_unique(ids::draw(context.cell).simple());
    let mut until = request.deadline;
    if let Some(id) = &plan.quote_id {
        until = known.quotes.get(id).map_or(until, |quote| until.min(quote.terms.valid_until));
        known.bound.push((id.clone(), reference.to_string()));
    }
    let plan = Plan { path: SolvedPath { expires_at: until, ..plan.path }, ..plan };
    let most = request.bounds.max_input();
    let accepted = accepted(context, request, &reference, &plan, (most, until.unix_secs()));
    let mut terms = terms(context, known, submission, (plan, reference), now)?;
    // The most that it takes and the least that it delivers; both are final when it is filled.
    (terms.input.amount, terms.output.amount) = (most, request.bounds.min_output());
    (terms.lock_at, terms.counts_as_open) = (until, false);
    if let Some(hold) = PermitHold::of(&terms, context.chain_of(&terms)?.chain_id) {
        let fault = || StoreError::corrupt("execution", "a resting order without a range");
        let rested = NewRestingRange::of(&terms).ok_or_else(fault)?;
        known.pending.entry(hold.wallet()).or_default().rest(&hold, rested);
        rows.permits.push(hold);
    }
    let step = rest(&terms);
    let at = plan::At { version: 1, last_sequence: 0, last_occurred_at: terms.accepted_at, now };
    let last = plan::gather(context, rows, &terms, &step, at)?;
    rows.accepted.push((terms, step.next, last));
    Ok(accepted)
}

/// `most`: what the order takes at most, and until when.
fn accepted(
    context: &Context,
    request: &IntentRequest,
    reference: &Reference,
    plan: &Plan,
    most: (Minor, u64),
) -> Accepted {
    Accepted {
        intent_id: request.intent_id.clone(),
        reference: reference.to_string(),
        plan: plan.clone(),
        exact_output: matches!(request.bounds, Bounds::ExactOutput { .. }),
        deposit: deposit(context, request, reference, plan, most),
    }
}

/// What the user has to deposit of a chain's coin, if that is the input.
fn deposit(
    context: &Context,
    request: &IntentRequest,
    reference: &Reference,
    plan: &Plan,
    (amount, by): (Minor, u64),
) -> Option<DepositDue> {
    let chain = context.chain_of_input(request);
    let contract = chain.taking.gate.clone().filter(|_| plan.funding == InputFunding::Deposit)?;
    let id = hex32(&Context::entity(reference));
    let by = Timestamp::from_millis(i64::try_from(by).ok()?.checked_mul(1000)?);
    Some(DepositDue { chain: chain.name.clone(), chain_id: chain.chain_id, contract, id, amount, by })
}

/// What the plan's quote held is the order's.
pub(super) fn end_hold(known: &mut BatchSnapshot, plan: &Plan, reference: &Reference) {
    let Some(quote) = &plan.quote_id else { return };
    if let Some(FirmQuote { tenant, terms, .. }) = known.quotes.get(quote) {
        known.holds.release(&holder(tenant), terms);
    }
    known.consumed.push((quote.clone(), reference.to_string()));
}

/// Takes what a plan fills from resting orders of the book.
pub(super) fn take_levels(known: &mut BatchSnapshot, plan: &Plan) -> Result<(), StoreError> {
    let slices = plan.slices.iter().filter_map(|slice| Some((slice.level_id?, slice.output)));
    for (level, output) in slices {
        known.take(level, output)?;
    }
    Ok(())
}

/// Takes what a plan fills from the sources' answers.
pub(super) fn take_answers(
    context: &Context,
    known: &BatchSnapshot,
    request: &IntentRequest,
    plan: &Plan,
    now: Timestamp,
) {
    let pair = (request.input_asset.symbol.as_str(), request.output_asset.symbol.as_str());
    context.liquidity.taken().take(&known.snapshot, pair, plan, now);
}

pub(super) fn terms(
    context: &Context,
    known: &BatchSnapshot,
    submission: &Submission,
    (plan, reference): (Plan, Reference),
    now: Timestamp,
) -> Result<Terms, StoreError> {
    let request = &submission.request;
    let amount = |asset: &Asset, amount| AssetAmount {
        asset: asset.symbol.clone(),
        amount,
        exponent: asset.exponent,
        chain: asset.chain().map(ToOwned::to_owned),
    };
    let asset = |symbol: &str| {
        let missing = || StoreError::corrupt("execution", format_args!("asset {symbol} left the registry"));
        context.registry.find(symbol).ok_or_else(missing)
    };
    let account = request.beneficiary.as_ref().and_then(|b| b.account()).unwrap_or_default();
    let partner = || submission.tenant.partner_id.parse::<PartnerId>();
    let mut terms = Terms {
        partner_id: partner().map_err(|error| StoreError::corrupt("partner", error))?,
        livemode: submission.tenant.livemode,
        input: amount(asset(&request.input_asset.symbol)?, plan.priced.input),
        output: amount(asset(&request.output_asset.symbol)?, plan.priced.output),
        entity: hex32(&Context::entity(&reference)),
        hashlock: hex32(&context.vault.hashlock(reference.as_str())),
        lock_at: now.plus_millis((context.rest_millis)(account)),
        counts_as_open: true,
        escrows: BTreeMap::new(),
        registered: known.registered(submission).map(|destination| {
            MaskedBeneficiary::of(&destination.details, |account| context.vault.account_hash(account))
        }),
        trace: submission.trace,
        accepted_at: now,
        request: request.clone(),
        plan,
        reference,
    };
    terms.escrows = context.escrows_for(&terms)?;
    Ok(terms)
}

pub(in crate::writer) fn intent_rows<'a>(decided: &'a [DecidedSubmission<'a>]) -> Vec<IntentRow<'a>> {
    decided
        .iter()
        .map(|one| IntentRow {
            tenant: &one.submission.tenant,
            request: &one.submission.request,
            reference: one.reference.as_deref(),
            reason: one.reason.map(Reason::as_str),
        })
        .collect()
}

/// Updates the resting orders, marks the quotes as used, and ends the executed legacy orders.
pub(in crate::writer) async fn use_up(
    conn: &mut PgConnection,
    known: &BatchSnapshot,
) -> Result<(), StoreError> {
    if !known.taken.is_empty() {
        resting_orders::take(conn, &known.taken).await?;
    }
    if !known.given_back.is_empty() {
        resting_orders::restore(conn, &known.given_back).await?;
    }
    let used = known.consumed.iter().chain(&known.bound);
    let used: Vec<(&str, &str)> =
        used.map(|(quote, reference)| (quote.as_str(), reference.as_str())).collect();
    if !used.is_empty() {
        quotes::update_used(conn, &used).await?;
    }
    if !known.consumed.is_empty() {
        let ended: Vec<&str> = known.consumed.iter().map(|(quote, _)| quote.as_str()).collect();
        quote_holds::delete(conn, &ended).await?;
    }
    if !known.executed.is_empty() {
        legacy::update_submitted(conn, &known.executed).await?;
    }
    Ok(())
}

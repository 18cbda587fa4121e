//! The submissions of a batch: the rows they need are locked once, then each is decided in order against the remainder.

mod fills;
mod holds;
mod record;
mod snapshot;

use std::collections::BTreeMap;
use std::time::Duration;

use dvp_domain::asset::{Asset, AssetKind};
use dvp_domain::beneficiary::destination::DestinationRefusal;
use dvp_domain::decision::{Decision, QuoteLookup, Reason, decide};
use dvp_domain::intent::Bounds;
use dvp_domain::limit::{self, Exceeded, LimitKey, LimitScope, Limits, OrderAsset, Period};
use dvp_domain::liquidity::Market;
use dvp_domain::money::Minor;
use dvp_domain::permit::PermitDefect;
use dvp_domain::plan::{InputFunding, Plan};
use dvp_domain::time::Timestamp;
use dvp_rails::{PayoutOrder, Unpayable};
use dvp_store::StoreError;

pub(super) use self::fills::{decide_fill, lock_resting};
pub(super) use self::holds::{hold, load_holds, quote_keys};
use self::record::{gather_accepted, gather_resting};
pub(super) use self::record::{intent_rows, use_up};
use self::snapshot::Locked;
pub(super) use self::snapshot::{BatchSnapshot, balance_keys, count_resting, load, lock_levels};
use super::rows::Rows;
use super::unit::{Outcome, Refusal, Submission};
use crate::chain::backlog;
use crate::context::Context;

pub(super) struct DecidedSubmission<'a> {
    submission: &'a Submission,
    reference: Option<String>,
    reason: Option<Reason>,
}

/// Decides one submission and gathers the rows of an accepted one.
pub(super) fn decide_one<'a>(
    context: &Context,
    known: &mut BatchSnapshot,
    rows: &mut Rows,
    submission: &'a Submission,
    now: Timestamp,
) -> Result<(Outcome, Option<DecidedSubmission<'a>>), StoreError> {
    let begun = submission.beginning(now);
    let asked = begun.as_ref().unwrap_or(submission);
    let Submission { tenant, request, .. } = asked;
    if known.disabled.contains(&tenant.partner_id) {
        return Ok((Outcome::Refused(Refusal::PartnerDisabled), None));
    }
    if known.used_ids.contains(&(tenant.clone(), request.intent_id.clone())) {
        return Ok((Outcome::Refused(Refusal::DuplicateIntent), None));
    }
    // After the repetition: an attempt that was executed stays executed.
    if known.is_redirected(asked) {
        return Ok((Outcome::Refused(Refusal::Redirected), None));
    }
    let client_key = request.client_reference.clone().map(|reference| (tenant.clone(), reference));
    if client_key.as_ref().is_some_and(|key| known.used_references.contains(key)) {
        return Ok((Outcome::Refused(Refusal::DuplicateClientReference), None));
    }
    if let Some(cool_down) = known.cool_down(asked, now) {
        return Ok((Outcome::Refused(Refusal::CoolingDown(cool_down)), None));
    }
    let fixed_input = match request.bounds {
        Bounds::ExactInput { input, .. } => Some(input),
        Bounds::ExactOutput { .. } | Bounds::Range { .. } => None,
    };
    if let Err(defect) = known.check_wallet(asked, fixed_input) {
        return Ok((Outcome::Refused(Refusal::InvalidPermit(defect)), None));
    }
    let decision = decide_as_new(context, known, rows, asked, now);
    if let Decision::Accepted(plan) | Decision::Rests(plan) = &decision
        && let Err(why) = check_payout(context, known, asked, plan)
    {
        return Ok((Outcome::Refused(Refusal::Unpayable(why)), None));
    }
    let refused = match &decision {
        Decision::PermitTooSmall => Err(PermitDefect::Amount),
        Decision::Accepted(plan) => known.check_wallet(asked, Some(plan.priced.input)),
        Decision::Rests(_) => known.check_wallet(asked, Some(request.bounds.max_input())),
        Decision::Rejected(_) => Ok(()),
    };
    if let Err(defect) = refused {
        return Ok((Outcome::Refused(Refusal::InvalidPermit(defect)), None));
    }
    known.used_ids.insert((tenant.clone(), request.intent_id.clone()));
    let rejected = |reason| {
        let outcome = Outcome::Rejected { intent_id: request.intent_id.clone(), reason };
        Ok((outcome, Some(DecidedSubmission { submission, reference: None, reason: Some(reason) })))
    };
    let (plan, rests) = match decision {
        // A deposit may not come: the order is decided again, and reserves its output, when it is there.
        Decision::Accepted(plan) => {
            let waits = plan.funding == InputFunding::Deposit;
            (plan, waits)
        }
        Decision::Rests(plan) => (plan, true),
        Decision::Rejected(reason) => return rejected(reason),
        Decision::PermitTooSmall => {
            return Ok((Outcome::Refused(Refusal::InvalidPermit(PermitDefect::Amount)), None));
        }
    };
    let amounts = amounts(context, asked, &plan);
    if let Some(exceeded) = known.limits.exceeded(&amounts) {
        return rejected(Reason::Limit(exceeded));
    }
    if rests && !known.may_rest(asked) {
        return rejected(Reason::Limit(Exceeded { scope: LimitScope::Partner, period: Period::Open }));
    }
    known.used_references.extend(client_key);
    let accepted = if rests {
        // It counts when it is filled.
        gather_resting(context, known, rows, asked, *plan, now)?
    } else {
        let accepted = gather_accepted(context, known, rows, asked, *plan, now)?;
        known.limits.take(&amounts);
        rows.count(amounts)?;
        accepted
    };
    let reference = Some(accepted.reference.clone());
    Ok((
        Outcome::Accepted(Box::new(accepted)),
        Some(DecidedSubmission { submission, reference, reason: None }),
    ))
}

/// Decides under every control. The permit and the limits of the order as a whole are checked by the caller.
fn decide_as_new(
    context: &Context,
    known: &mut BatchSnapshot,
    rows: &Rows,
    submission: &Submission,
    now: Timestamp,
) -> Decision {
    let decision = limited_decision(context, known, rows, submission, now);
    let decision = in_time(context, known, submission, decision, now);
    let decision = known.unless_paused(context, submission, decision);
    unless_halted(context, submission, decision)
}

/// A halted chain takes no order. A lock whose wallet was not read is one, too: only those of halted chains are not.
fn unless_halted(context: &Context, submission: &Submission, decision: Decision) -> Decision {
    let (Decision::Accepted(plan) | Decision::Rests(plan)) = &decision else { return decision };
    let Submission { request, wallet, .. } = submission;
    let find = |descriptor| context.registry.resolve(descriptor);
    let assets = find(&request.input_asset).zip(find(&request.output_asset));
    let is_halted = assets.is_none_or(|(input, output)| context.is_halted([input, output]));
    if is_halted || plan.funding == InputFunding::Permit && wallet.is_none() {
        return Decision::Rejected(Reason::ChainHalted);
    }
    decision
}

/// Checks with the payout rail, from the order and the registry of beneficiaries; a token is paid out by the chain.
fn check_payout(
    context: &Context,
    known: &BatchSnapshot,
    submission: &Submission,
    plan: &Plan,
) -> Result<(), Unpayable> {
    let Submission { request, .. } = submission;
    match context.registry.find(&request.output_asset.symbol) {
        Some(Asset { kind: AssetKind::Fiat { .. }, symbol, exponent, .. }) => {
            let registered = known.registered(submission);
            let registered =
                registered.map(|destination| destination.payee(symbol).map_err(unpayable)).transpose()?;
            context.check_payout.check(&PayoutOrder {
                beneficiary: registered.or(request.beneficiary.as_ref()),
                amount: plan.priced.output,
                currency: symbol,
                exponent: *exponent,
                reference: request.payer_reference(),
            })
        }
        Some(Asset { kind: AssetKind::Erc20 { .. } | AssetKind::Native { .. }, .. }) | None => Ok(()),
    }
}

const fn unpayable(why: DestinationRefusal) -> Unpayable {
    Unpayable { code: why.code(), field: "beneficiary", message: why.message() }
}

/// An order whose input cannot be locked before its lock-by is not accepted, nor one whose payment on another chain would
/// come too late.
fn in_time(
    context: &Context,
    known: &mut BatchSnapshot,
    submission: &Submission,
    decision: Decision,
    now: Timestamp,
) -> Decision {
    let Decision::Accepted(plan) = &decision else { return decision };
    let Submission { request, .. } = submission;
    if !plan.kind.locks_input() {
        return decision;
    }
    // The last second of the permit's deadline is still valid.
    let permitted = request.permit.as_ref().map_or(u64::MAX, |permit| permit.deadline);
    let lock_by = context.windows.lock_by(request, plan, now).min(permitted);
    let left = Duration::from_secs(lock_by.saturating_sub(now.unix_secs()));
    if !known.is_next_by(context, submission, lock_by, now) {
        // An order that rests has the nonce before it, and would be filled too late.
        return Decision::Rejected(Reason::NoLiquidity);
    }
    // The payment on another chain is requested after the commitment, which has until the fill deadline.
    let to_pay = Duration::from_secs(context.windows.fill_secs);
    let may_be_paid = context.other_chain_of_output(request).is_none_or(|chain| chain.backlog.admits(to_pay));
    if context.chain_of_input(request).backlog.admits(left) && may_be_paid {
        return decision;
    }
    backlog::count_refused();
    Decision::Rejected(Reason::NoLiquidity)
}

fn amounts(context: &Context, submission: &Submission, plan: &Plan) -> BTreeMap<LimitKey, Minor> {
    let Submission { tenant, request, .. } = submission;
    let [input, output] = [&request.input_asset.symbol, &request.output_asset.symbol]
        .map(|symbol| OrderAsset { symbol, chain: context.registry.find(symbol).and_then(Asset::chain) });
    limit::amounts(&tenant.partner_id, input, output, plan)
}

/// Decides with the providers' limits. An order that only these limits keep from being filled names the limit.
fn limited_decision(
    context: &Context,
    known: &BatchSnapshot,
    rows: &Rows,
    submission: &Submission,
    now: Timestamp,
) -> Decision {
    let limited = market_decision(context, known, rows, submission, (Some(&known.limits), now));
    if limited != Decision::Rejected(Reason::NoLiquidity) || known.limits.is_empty() {
        return limited;
    }
    let unlimited = market_decision(context, known, rows, submission, (None, now));
    let (Decision::Accepted(plan) | Decision::Rests(plan)) = unlimited else { return limited };
    let exceeded = known.limits.exceeded(&amounts(context, submission, &plan));
    exceeded.map_or(limited, |exceeded| Decision::Rejected(Reason::Limit(exceeded)))
}

fn market_decision(
    context: &Context,
    known: &BatchSnapshot,
    rows: &Rows,
    submission: &Submission,
    (limits, now): (Option<&Limits>, Timestamp),
) -> Decision {
    let request = &submission.request;
    let lookup = match &request.quote_id {
        None => QuoteLookup::NotRequested,
        Some(id) => match known.quotes.get(id).filter(|quote| quote.tenant == submission.tenant) {
            None => QuoteLookup::Unknown,
            Some(quote) => {
                let used_before = quote.used_by.is_some() && quote.used_by != submission.fills;
                let used =
                    used_before || known.consumed.iter().chain(&known.bound).any(|(used, _)| used == id);
                QuoteLookup::Found { terms: Box::new(quote.terms.clone()), used }
            }
        },
    };
    let own = match &lookup {
        QuoteLookup::Found { terms, used: false } if terms.valid_until > now => Some(terms.as_ref()),
        QuoteLookup::NotRequested | QuoteLookup::Unknown | QuoteLookup::Found { .. } => None,
    };
    let holdings = Locked {
        balances: &rows.balances,
        levels: &known.levels,
        tenant: &submission.tenant,
        holds: (&known.holds, own),
        limits,
        taken: context.liquidity.taken(),
    };
    let snapshot = known.snapshot.as_ref();
    let market = Market { registry: &context.registry, snapshot, holdings: &holdings, now };
    decide(request, &market, &lookup, &context.payout_provider)
}

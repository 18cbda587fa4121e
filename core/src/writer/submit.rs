//! The submissions of a batch: the rows they need are locked once, then each is decided in order against the remainder.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use dvp_domain::asset::{Asset, AssetKind, AssetType};
use dvp_domain::beneficiary::Beneficiary;
use dvp_domain::beneficiary::destination::{Destination, DestinationRefusal};
use dvp_domain::canonical::hex32;
use dvp_domain::decision::{Decision, QuoteLookup, Reason, decide};
use dvp_domain::ids::{PartnerId, Reference};
use dvp_domain::intent::Bounds;
use dvp_domain::ledger::Owner;
use dvp_domain::limit::{self, LimitKey, Limits, OrderAsset};
use dvp_domain::liquidity::{Holdings, Market, Snapshot};
use dvp_domain::money::Minor;
use dvp_domain::pause::Pauses;
use dvp_domain::permit::PermitDefect;
use dvp_domain::plan::Plan;
use dvp_domain::settlement::accept;
use dvp_domain::terms::{AssetAmount, Terms};
use dvp_domain::time::Timestamp;
use dvp_rails::{PayoutOrder, Unpayable};
use dvp_store::controls::{self, Controls};
use dvp_store::ledger::balances::{Balance, BalanceKey};
use dvp_store::orders::intents::{self, IntentRow, Tenant};
use dvp_store::orders::legacy::{self, HeldTurn};
use dvp_store::orders::permits::{self, PermitHold};
use dvp_store::orders::quotes::{self, FirmQuote};
use dvp_store::orders::resting_orders;
use dvp_store::{StoreError, beneficiaries, limits};
use sqlx::PgConnection;
use uuid::Uuid;

use super::batch::Trust;
use super::plan;
use super::rows::Rows;
use super::unit::{Accepted, KnownWallet, Outcome, Submission};
use crate::backlog;
use crate::context::Context;
use crate::wallets::pending::PendingPermits;

/// The state against which the submissions of a batch are checked, locked until the transaction ends.
#[derive(Default)]
pub(super) struct BatchSnapshot {
    used_ids: HashSet<(Tenant, String)>,
    used_references: HashSet<(Tenant, String)>,
    /// Partners that are disabled.
    disabled: HashSet<String>,
    pauses: Pauses,
    /// The limits in force and what is used of them.
    limits: Limits,
    /// What the registry has of the recipients that submissions name by reference, by partner and reference.
    destinations: HashMap<(String, String), Destination>,
    /// The holds of the paying wallets, by owner.
    pending: HashMap<String, PendingPermits>,
    quotes: HashMap<String, FirmQuote>,
    /// The remaining amounts of the resting orders, and the amounts that this batch takes.
    levels: HashMap<i64, Minor>,
    taken: HashMap<i64, Minor>,
    /// The sources' offers, the same for the whole batch.
    snapshot: Arc<Snapshot>,
    /// Quotes used by this batch, with their executions.
    consumed: Vec<(String, String)>,
    /// Legacy orders with a valid lease, and those that this batch executed, with their executions.
    turns: HashSet<HeldTurn>,
    executed: Vec<(HeldTurn, String)>,
}

impl BatchSnapshot {
    /// Whether a submission's permit has a nonce that its wallet has used, or that a live order holds.
    fn has_known_nonce(&self, submission: &Submission) -> bool {
        let nonce = submission.request.permit.as_ref().map(|permit| permit.nonce.get());
        nonce.zip(submission.wallet.as_ref()).is_some_and(|(nonce, wallet)| {
            nonce < wallet.facts.nonce
                || self.pending.get(&wallet.key.owner).is_some_and(|pending| pending.holds(nonce))
        })
    }

    /// Paused liquidity is not offered.
    fn unless_paused(&self, context: &Context, submission: &Submission, decision: Decision) -> Decision {
        let Decision::Accepted(plan) = &decision else { return decision };
        let Submission { tenant, request, .. } = submission;
        let find = |symbol: &str| context.registry.find(symbol);
        let assets = find(&request.input_asset.symbol).zip(find(&request.output_asset.symbol));
        let is_stopped = assets
            .is_none_or(|(input, output)| self.pauses.stops_order(&tenant.partner_id, input, output, plan));
        if is_stopped { Decision::Rejected(Reason::NoLiquidity) } else { decision }
    }

    /// Whether the permit has the wallet's next nonce, and the wallet's free balance covers `amount`.
    fn check_wallet(&mut self, submission: &Submission, amount: Option<Minor>) -> Result<(), PermitDefect> {
        let (Some(permit), Some(wallet)) = (&submission.request.permit, &submission.wallet) else {
            return Ok(());
        };
        let KnownWallet { key, facts } = wallet;
        let pending = self.pending.entry(key.owner.clone()).or_default();
        pending.check_nonce(facts, permit.nonce.get())?;
        amount.map_or(Ok(()), |amount| pending.check_funds(facts, &key.token, amount.get()))
    }

    /// Whether a submission is still to be decided: the lease of its legacy order, if any, must be valid.
    pub(super) fn is_due(&self, submission: &Submission) -> bool {
        submission.turn.as_ref().is_none_or(|turn| self.turns.contains(turn))
    }

    /// A decision takes at most the remaining amount of a resting order.
    fn take(&mut self, level: i64, amount: Minor) -> Result<(), StoreError> {
        let left = self.levels.get(&level).copied().unwrap_or_default();
        let taken = self.taken.get(&level).copied().unwrap_or_default();
        let (Some(rest), Some(taken)) = (left.checked_sub(amount), taken.checked_add(amount)) else {
            let reason = format_args!("{amount} taken of order {level}, of which {left} are left");
            return Err(StoreError::corrupt("resting_order", reason));
        };
        self.levels.insert(level, rest);
        self.taken.insert(level, taken);
        Ok(())
    }
}

/// A decided submission, to be written to `intent`.
pub(super) struct DecidedSubmission<'a> {
    submission: &'a Submission,
    reference: Option<String>,
    reason: Option<Reason>,
}

/// The balances that submissions can use: of providers with an offer, of providers that committed to a quote, and the
/// partners' own for inputs that are not locked on the chain.
pub(super) fn balance_keys(known: &BatchSnapshot, submissions: &[&Submission]) -> BTreeSet<BalanceKey> {
    let mut keys = BTreeSet::new();
    for Submission { tenant, request, .. } in submissions {
        let (input, output) = (&request.input_asset, &request.output_asset.symbol);
        let offering = known.snapshot.deliverers(&input.symbol, output).map(str::to_owned);
        keys.extend(offering.map(|provider| (Owner::Provider(provider), output.clone())));
        let quoted = request.quote_id.as_ref().and_then(|id| known.quotes.get(id));
        let committed = quoted.into_iter().flat_map(|quote| &quote.terms.slices);
        keys.extend(committed.map(|slice| (Owner::Provider(slice.provider_id.clone()), output.clone())));
        if input.kind == AssetType::Fiat {
            keys.insert((partner(tenant), input.symbol.clone()));
        }
    }
    keys
}

fn partner(tenant: &Tenant) -> Owner {
    Owner::Partner { id: tenant.partner_id.clone(), livemode: tenant.livemode }
}

/// The locked balances after the earlier submissions, for one partner.
struct Locked<'a> {
    balances: &'a BTreeMap<BalanceKey, Balance>,
    levels: &'a HashMap<i64, Minor>,
    tenant: &'a Tenant,
    /// A provider delivers no more than its limits leave.
    limits: Option<&'a Limits>,
}

impl Locked<'_> {
    fn of(&self, owner: Owner, asset: &str) -> Minor {
        self.balances.get(&(owner, asset.to_owned())).map(|balance| balance.available).unwrap_or_default()
    }
}

impl Holdings for Locked<'_> {
    fn available(&self, provider_id: &str, asset: &str) -> Minor {
        let held = self.of(Owner::Provider(provider_id.to_owned()), asset);
        self.limits.map_or(held, |limits| held.min(limits.room_of_provider(provider_id, asset)))
    }

    fn rest_of_level(&self, level_id: i64) -> Option<Minor> {
        Some(self.levels.get(&level_id).copied().unwrap_or_default())
    }

    fn prefunded(&self, asset: &str) -> Minor {
        self.of(partner(self.tenant), asset)
    }
}

/// Loads and locks what the submissions are checked against.
pub(super) async fn load(
    conn: &mut PgConnection,
    context: &Context,
    submissions: &[&Submission],
    trust: Trust,
    now: Timestamp,
) -> Result<BatchSnapshot, StoreError> {
    let mut known = BatchSnapshot::default();
    if submissions.is_empty() {
        return Ok(known);
    }
    let partners: BTreeSet<&str> = submissions.iter().map(|s| s.tenant.partner_id.as_str()).collect();
    let controls = controls::load(conn, &Vec::from_iter(partners)).await?;
    known.snapshot = context.liquidity.snapshot_under(&controls);
    let Controls { pauses, disabled, .. } = controls;
    known.disabled = disabled.into_iter().collect();
    known.destinations = load_destinations(conn, submissions).await?;
    known.pauses = pauses;
    known.limits = load_limits(conn, submissions, now).await?;
    let turns: Vec<&HeldTurn> = submissions.iter().filter_map(|s| s.turn.as_ref()).collect();
    if !turns.is_empty() {
        known.turns = legacy::lock_turns(conn, &turns).await?;
    }
    known.pending = load_pending(conn, context, submissions).await?;
    // The permit of a repeated submission is held or used by now: its answer is that it is a repetition.
    let may_be_repeat = |s: &&&Submission| trust == Trust::Nothing || known.has_known_nonce(s);
    let repeated: Vec<&Submission> = submissions.iter().filter(may_be_repeat).copied().collect();
    if !repeated.is_empty() {
        look_for_repeats(conn, &repeated, &mut known).await?;
    }
    let quotes: Vec<&str> = submissions.iter().filter_map(|s| s.request.quote_id.as_deref()).collect();
    if !quotes.is_empty() {
        known.quotes = quotes::lock_firm(conn, &quotes).await?;
    }
    let resting: BTreeSet<i64> = submissions
        .iter()
        .map(|s| (&s.request.input_asset.symbol, &s.request.output_asset.symbol))
        .flat_map(|(input, output)| known.snapshot.levels(input, output))
        .collect();
    if !resting.is_empty() {
        known.levels = resting_orders::lock(conn, &Vec::from_iter(resting)).await?;
    }
    Ok(known)
}

/// The limits that concern the submissions.
async fn load_limits(
    conn: &mut PgConnection,
    submissions: &[&Submission],
    now: Timestamp,
) -> Result<Limits, StoreError> {
    let pairs: BTreeSet<String> = submissions
        .iter()
        .map(|s| format!("{}/{}", s.request.input_asset.symbol, s.request.output_asset.symbol))
        .collect();
    let partners: BTreeSet<&str> = submissions.iter().map(|s| s.tenant.partner_id.as_str()).collect();
    let targets: Vec<&str> = partners.into_iter().chain(pairs.iter().map(String::as_str)).collect();
    limits::load_and_lock(conn, now.to_utc().date_naive(), &targets).await
}

/// What the registry has of the recipients that submissions name by reference.
async fn load_destinations(
    conn: &mut PgConnection,
    submissions: &[&Submission],
) -> Result<HashMap<(String, String), Destination>, StoreError> {
    let named: BTreeSet<(&str, &str, &str)> = submissions
        .iter()
        .filter_map(|s| {
            let (beneficiary, destination) = s.request.beneficiary.as_ref()?.reference()?;
            Some((s.tenant.partner_id.as_str(), beneficiary, destination))
        })
        .collect();
    if named.is_empty() {
        return Ok(HashMap::new());
    }
    beneficiaries::find_destinations(conn, &Vec::from_iter(named)).await
}

/// The holds of the submissions' paying wallets, from the lowest of their chain nonces on.
async fn load_pending(
    conn: &mut PgConnection,
    context: &Context,
    submissions: &[&Submission],
) -> Result<HashMap<String, PendingPermits>, StoreError> {
    let mut wallets: BTreeMap<&str, u128> = BTreeMap::new();
    for wallet in submissions.iter().filter_map(|s| s.wallet.as_ref()) {
        let from = wallets.entry(&wallet.key.owner).or_insert(wallet.facts.nonce);
        *from = wallet.facts.nonce.min(*from);
    }
    let mut pending: HashMap<String, PendingPermits> = HashMap::new();
    if !wallets.is_empty() {
        for hold in permits::list_held(conn, context.chain.chain_id, &Vec::from_iter(wallets)).await? {
            pending.entry(hold.owner.clone()).or_default().hold(&hold);
        }
    }
    Ok(pending)
}

/// The submissions' ids that were used before. Without this look-up a repetition violates a key, and is then looked up.
async fn look_for_repeats(
    conn: &mut PgConnection,
    submissions: &[&Submission],
    known: &mut BatchSnapshot,
) -> Result<(), StoreError> {
    let ids: Vec<_> = submissions.iter().map(|s| (&s.tenant, s.request.intent_id.as_str())).collect();
    known.used_ids.extend(intents::list_used_ids(conn, &ids).await?);
    let client: Vec<_> = submissions
        .iter()
        .filter_map(|s| s.request.client_reference.as_deref().map(|reference| (&s.tenant, reference)))
        .collect();
    if !client.is_empty() {
        known.used_references.extend(intents::list_used_client_references(conn, &client).await?);
    }
    Ok(())
}

/// Decides one submission and gathers the rows of an accepted one.
pub(super) fn decide_one<'a>(
    context: &Context,
    known: &mut BatchSnapshot,
    rows: &mut Rows,
    submission: &'a Submission,
    now: Timestamp,
) -> Result<(Outcome, Option<DecidedSubmission<'a>>), StoreError> {
    let Submission { tenant, request, .. } = submission;
    if known.disabled.contains(&tenant.partner_id) {
        return Ok((Outcome::PartnerDisabled, None));
    }
    if known.used_ids.contains(&(tenant.clone(), request.intent_id.clone())) {
        return Ok((Outcome::DuplicateIntent, None));
    }
    let client_key = request.client_reference.clone().map(|reference| (tenant.clone(), reference));
    if client_key.as_ref().is_some_and(|key| known.used_references.contains(key)) {
        return Ok((Outcome::DuplicateClientReference, None));
    }
    let fixed_input = match request.bounds {
        Bounds::ExactInput { input, .. } => Some(input),
        Bounds::ExactOutput { .. } | Bounds::Range { .. } => None,
    };
    if let Err(defect) = known.check_wallet(submission, fixed_input) {
        return Ok((Outcome::InvalidPermit(defect), None));
    }
    let decision = limited_decision(context, known, rows, submission, now);
    let decision = in_time(context, submission, decision, now);
    let decision = known.unless_paused(context, submission, decision);
    if let Decision::Accepted(plan) = &decision
        && let Err(why) = check_payout(context, known, submission, plan)
    {
        return Ok((Outcome::Unpayable(why), None));
    }
    let refused = match &decision {
        Decision::PermitTooSmall => Err(PermitDefect::Amount),
        Decision::Accepted(plan) => known.check_wallet(submission, Some(plan.priced.input)),
        Decision::Rejected(_) => Ok(()),
    };
    if let Err(defect) = refused {
        return Ok((Outcome::InvalidPermit(defect), None));
    }
    known.used_ids.insert((tenant.clone(), request.intent_id.clone()));
    let Decision::Accepted(plan) = decision else {
        let Decision::Rejected(reason) = decision else { unreachable!("a too small permit returned above") };
        let outcome = Outcome::Rejected { intent_id: request.intent_id.clone(), reason };
        return Ok((outcome, Some(DecidedSubmission { submission, reference: None, reason: Some(reason) })));
    };
    let amounts = amounts(context, submission, &plan);
    if let Some(exceeded) = known.limits.exceeded(&amounts) {
        let reason = Reason::Limit(exceeded);
        let outcome = Outcome::Rejected { intent_id: request.intent_id.clone(), reason };
        return Ok((outcome, Some(DecidedSubmission { submission, reference: None, reason: Some(reason) })));
    }
    known.used_references.extend(client_key);
    let accepted = gather_accepted(context, known, rows, submission, *plan, now)?;
    known.limits.take(&amounts);
    rows.count(amounts);
    let reference = Some(accepted.reference.clone());
    Ok((
        Outcome::Accepted(Box::new(accepted)),
        Some(DecidedSubmission { submission, reference, reason: None }),
    ))
}

/// Checks with the payout rail, from the order and the registry of beneficiaries; a token is paid out by the chain.
fn check_payout(
    context: &Context,
    known: &BatchSnapshot,
    submission: &Submission,
    plan: &Plan,
) -> Result<(), Unpayable> {
    let Submission { tenant, request, .. } = submission;
    match context.registry.find(&request.output_asset.symbol) {
        Some(Asset { kind: AssetKind::Fiat { .. }, symbol, exponent, .. }) => {
            let mut payee = request.beneficiary.as_ref();
            if let Some(account) = payee.filter(|payee| payee.is_reference()).and_then(Beneficiary::account)
                && let Some(registered) =
                    known.destinations.get(&(tenant.partner_id.clone(), account.to_owned()))
            {
                payee = Some(registered.payee(symbol).map_err(unpayable)?);
            }
            (context.check_payout)(&PayoutOrder {
                beneficiary: payee,
                amount: plan.priced.output,
                currency: symbol,
                exponent: *exponent,
            })
        }
        Some(Asset { kind: AssetKind::Erc20 { .. }, .. }) | None => Ok(()),
    }
}

const fn unpayable(why: DestinationRefusal) -> Unpayable {
    Unpayable { code: why.code(), message: why.message() }
}

/// An order whose input cannot be locked before its lock-by is not accepted.
fn in_time(context: &Context, submission: &Submission, decision: Decision, now: Timestamp) -> Decision {
    let Decision::Accepted(plan) = &decision else { return decision };
    let Submission { request, .. } = submission;
    let (true, Some(permit)) = (plan.kind.locks_input(), &request.permit) else { return decision };
    // The last second of the permit's deadline is still valid.
    let lock_by = context.windows.lock_by(request, plan, now).min(permit.deadline);
    let left = Duration::from_secs(lock_by.saturating_sub(now.unix_secs()));
    if context.chain.backlog.admits(left) {
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
    let Decision::Accepted(plan) = market_decision(context, known, rows, submission, (None, now)) else {
        return limited;
    };
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
        None => QuoteLookup::NotAsked,
        Some(id) => match known.quotes.get(id).filter(|quote| quote.tenant == submission.tenant) {
            None => QuoteLookup::Unknown,
            Some(quote) => {
                let used = quote.used || known.consumed.iter().any(|(consumed, _)| consumed == id);
                QuoteLookup::Found { terms: Box::new(quote.terms.clone()), used }
            }
        },
    };
    let holdings =
        Locked { balances: &rows.balances, levels: &known.levels, tenant: &submission.tenant, limits };
    let snapshot = known.snapshot.as_ref();
    let market = Market { registry: &context.registry, snapshot, holdings: &holdings, now };
    decide(request, &market, &lookup, &context.payout_provider)
}

fn gather_accepted(
    context: &Context,
    known: &mut BatchSnapshot,
    rows: &mut Rows,
    submission: &Submission,
    plan: Plan,
    now: Timestamp,
) -> Result<Accepted, StoreError> {
    plan.check().map_err(|fault| StoreError::corrupt("execution", fault))?;
    let request = &submission.request;
    let reference = Reference::from_unique(Uuid::now_v7().simple());
    for (slice, level) in plan.slices.iter().filter_map(|slice| Some((slice, slice.level_id?))) {
        known.take(level, slice.output)?;
    }
    if let Some(quote) = &plan.quote_id {
        known.consumed.push((quote.clone(), reference.to_string()));
    }
    if let Some(turn) = &submission.turn {
        known.executed.push((turn.clone(), reference.to_string()));
    }
    let accepted = Accepted {
        intent_id: request.intent_id.clone(),
        reference: reference.to_string(),
        plan: plan.clone(),
        exact_output: request.bounds.computes_input(),
    };
    let terms = terms(context, submission, plan, reference, now)?;
    if let Some(hold) = PermitHold::of(&terms) {
        known.pending.entry(hold.owner.clone()).or_default().hold(&hold);
        rows.permits.push(hold);
        context.chain.backlog.accepted();
    }
    let step = accept(&terms);
    let at = plan::At { version: 1, last_sequence: 0, last_occurred_at: terms.accepted_at, now };
    let last = plan::gather(context, rows, &terms, &step, at)?;
    rows.accepted.push((terms, step.next, last));
    Ok(accepted)
}

fn terms(
    context: &Context,
    submission: &Submission,
    plan: Plan,
    reference: Reference,
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
    Ok(Terms {
        partner_id: partner().map_err(|error| StoreError::corrupt("partner", error))?,
        livemode: submission.tenant.livemode,
        input: amount(asset(&request.input_asset.symbol)?, plan.priced.input),
        output: amount(asset(&request.output_asset.symbol)?, plan.priced.output),
        entity: hex32(&Context::entity(&reference)),
        hashlock: hex32(&context.vault.hashlock(reference.as_str())),
        lock_at: now.plus_millis((context.rest_millis)(account)),
        counts_as_open: true,
        accepted_at: now,
        request: request.clone(),
        plan,
        reference,
    })
}

/// The decided intents as rows.
pub(super) fn intent_rows<'a>(decided: &'a [DecidedSubmission<'a>]) -> Vec<IntentRow<'a>> {
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
pub(super) async fn use_up(conn: &mut PgConnection, known: &BatchSnapshot) -> Result<(), StoreError> {
    if !known.taken.is_empty() {
        resting_orders::take(conn, &known.taken).await?;
    }
    if !known.consumed.is_empty() {
        let used: Vec<(&str, &str)> =
            known.consumed.iter().map(|(quote, reference)| (quote.as_str(), reference.as_str())).collect();
        quotes::update_used(conn, &used).await?;
    }
    if !known.executed.is_empty() {
        legacy::update_submitted(conn, &known.executed).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_taken_of_a_resting_order_than_is_left() {
        let mut known =
            BatchSnapshot { levels: HashMap::from([(7, Minor::new(100))]), ..BatchSnapshot::default() };
        known.take(7, Minor::new(60)).unwrap();
        let refused = known.take(7, Minor::new(41)).unwrap_err().to_string();
        assert!(refused.contains("41 taken of order 7, of which 40 are left"), "{refused}");
        known.take(7, Minor::new(40)).unwrap();
        assert_eq!(known.taken, HashMap::from([(7, Minor::new(100))]));
        assert!(known.take(8, Minor::new(1)).is_err());
    }
}

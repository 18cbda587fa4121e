//! The inputs of the decision of a batch of submissions, read and locked once.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use dvp_domain::abandonment::{CoolDown, CoolDownScope};
use dvp_domain::asset::AssetType;
use dvp_domain::beneficiary::destination::Destination;
use dvp_domain::decision::{Decision, Reason};
use dvp_domain::hold::QuoteHolds;
use dvp_domain::ledger::Owner;
use dvp_domain::limit::Limits;
use dvp_domain::liquidity::{AnswerId, Ask, Holdings, Market, Snapshot, Unlimited};
use dvp_domain::money::Minor;
use dvp_domain::pause::Pauses;
use dvp_domain::permit::PermitDefect;
use dvp_domain::quote::FirmTerms;
use dvp_domain::range::Meeting;
use dvp_domain::terms::Terms;
use dvp_domain::time::Timestamp;
use dvp_store::ledger::balances::{Balance, BalanceKey};
use dvp_store::operators::controls::{self, Controls};
use dvp_store::orders::intents::{self, Tenant};
use dvp_store::orders::legacy::{self, HeldTurn};
use dvp_store::orders::permits::{self, PermitHold};
use dvp_store::orders::published_permits::{self, PermitId};
use dvp_store::orders::quotes::{self, FirmQuote};
use dvp_store::orders::ranges::{self, NewRestingRange, RESTING_MAX, WALLET_RESTING_MAX};
use dvp_store::orders::resting_orders;
use dvp_store::partners::beneficiaries::{self, Destinations};
use dvp_store::{StoreError, operators::limits};
use sqlx::PgConnection;

use crate::chain::wallets::pending::PendingPermits;
use crate::context::Context;
use crate::liquidity::Taken;
use crate::writer::idempotency::Trust;
use crate::writer::unit::{KnownWallet, Submission};

/// The state against which the submissions of a batch are checked, locked until the transaction ends.
#[derive(Default)]
pub(in crate::writer) struct BatchSnapshot {
    pub(super) used_ids: HashSet<(Tenant, String)>,
    pub(super) used_references: HashSet<(Tenant, String)>,
    pub(super) disabled: HashSet<String>,
    /// Partners, and wallets in lower case, whose orders are refused for now, and until when.
    pub(super) cooling: HashMap<(CoolDownScope, String), Timestamp>,
    pub(super) pauses: Pauses,
    /// The limits in force and their use.
    pub(super) limits: Limits,
    /// The destinations of recipients that submissions name by reference.
    pub(in crate::writer) destinations: Destinations,
    /// The holds of the paying wallets, by chain and owner.
    pub(super) pending: HashMap<(i64, String), PendingPermits>,
    /// The orders for which permits of submissions were published before.
    pub(super) published: HashMap<PermitId, Terms>,
    pub(super) quotes: HashMap<String, FirmQuote>,
    /// The holds of open firm quotes on the locked balances.
    pub(in crate::writer) holds: QuoteHolds,
    /// The remaining amounts of the resting orders, and the amounts that this batch takes.
    pub(super) levels: HashMap<i64, Minor>,
    pub(super) taken: HashMap<i64, Minor>,
    /// The amounts that settlements which ended unpaid return to resting orders.
    pub(super) given_back: HashMap<i64, Minor>,
    /// When orders that rest would be filled at the prices of this batch, of those that were looked at.
    pub(super) met: HashMap<String, Option<Timestamp>>,
    /// How many orders rest of each tenant with a new range order, those of this batch among them.
    pub(super) resting: HashMap<Tenant, i64>,
    /// The sources' offers, the same for the whole batch.
    pub(super) snapshot: Arc<Snapshot>,
    /// Quotes used by this batch, with their executions.
    pub(super) consumed: Vec<(String, String)>,
    /// Quotes that go on holding their output for orders that wait for a deposit.
    pub(super) bound: Vec<(String, String)>,
    /// Legacy orders with a valid claim, with whether each still has the account of its standing instruction, and those
    /// that this batch executed, with their executions.
    pub(super) turns: HashMap<HeldTurn, bool>,
    pub(super) executed: Vec<(HeldTurn, String)>,
}

impl BatchSnapshot {
    /// The cool-down of the wallet that would pay, or of the partner, if its orders are refused for now.
    pub(super) fn cool_down(&self, submission: &Submission, now: Timestamp) -> Option<CoolDown> {
        let wallet = submission.wallet.as_ref().map(|wallet| wallet.key.owner.clone());
        let partner = (CoolDownScope::Partner, submission.tenant.partner_id.clone());
        let subjects = wallet.map(|wallet| (CoolDownScope::Wallet, wallet)).into_iter().chain([partner]);
        let cooling = subjects.filter_map(|key| Some((key.0, *self.cooling.get(&key)?)));
        let (scope, until) = cooling.max_by_key(|(_, until)| *until)?;
        Some(CoolDown::new(scope, until, now))
    }

    /// Whether a submission's permit was published, or has a nonce that its wallet has used, or that a live order holds.
    pub(super) fn has_known_permit(&self, submission: &Submission) -> bool {
        let nonce = submission.request.permit.as_ref().map(|permit| permit.nonce.get());
        self.published_for(submission).is_some()
            || nonce.zip(submission.wallet.as_ref()).is_some_and(|(nonce, wallet)| {
                nonce < wallet.facts.nonce
                    || self.pending.get(&wallet.key.wallet()).is_some_and(|pending| pending.holds(nonce))
            })
    }

    /// The registered destination that a submission names.
    pub(super) fn registered(&self, submission: &Submission) -> Option<&Destination> {
        let payee = submission.request.beneficiary.as_ref().filter(|payee| payee.is_reference())?;
        let key = (submission.tenant.partner_id.clone(), payee.account()?.to_owned());
        self.destinations.get(&key)?.as_ref()
    }

    /// The order for which a submission's permit was published before.
    fn published_for(&self, submission: &Submission) -> Option<&Terms> {
        permit_id(submission).and_then(|id| self.published.get(&id))
    }

    /// Whether a submission's permit is public as another partner's, or for another payee.
    fn is_anothers_permit(&self, submission: &Submission) -> bool {
        let Submission { tenant, request, .. } = submission;
        self.published_for(submission).is_some_and(|terms| {
            let same_tenant =
                terms.partner_id.to_string() == tenant.partner_id && terms.livemode == tenant.livemode;
            let same_payee = terms.request.beneficiary == request.beneficiary
                && terms.request.delivery_wallet() == request.delivery_wallet();
            !(same_tenant && same_payee)
        })
    }

    pub(super) fn unless_paused(
        &self,
        context: &Context,
        submission: &Submission,
        decision: Decision,
    ) -> Decision {
        let (Decision::Accepted(plan) | Decision::Rests(plan)) = &decision else { return decision };
        let Submission { tenant, request, .. } = submission;
        let find = |symbol: &str| context.registry.find(symbol);
        let assets = find(&request.input_asset.symbol).zip(find(&request.output_asset.symbol));
        let is_stopped = assets
            .is_none_or(|(input, output)| self.pauses.stops_order(&tenant.partner_id, input, output, plan));
        if is_stopped { Decision::Rejected(Reason::NoLiquidity) } else { decision }
    }

    /// Whether the permit is the partner's to use and has the wallet's next nonce, and the wallet's free balance covers
    /// `amount`.
    pub(super) fn check_wallet(
        &mut self,
        submission: &Submission,
        amount: Option<Minor>,
    ) -> Result<(), PermitDefect> {
        let (Some(permit), Some(wallet)) = (&submission.request.permit, &submission.wallet) else {
            return Ok(());
        };
        if self.is_anothers_permit(submission) {
            return Err(PermitDefect::Published);
        }
        let KnownWallet { key, facts } = wallet;
        let pending = self.pending.entry(key.wallet()).or_default();
        pending.check_nonce(facts, permit.nonce.get())?;
        amount.map_or(Ok(()), |amount| pending.check_funds(facts, &key.token, amount.get()))
    }

    /// Whether a resting order's permit can be used: its nonce is free on the chain and all before it are held, and the
    /// wallet's balance covers `amount` in place of the order's cap.
    pub(super) fn check_held(&mut self, submission: &Submission, amount: Minor) -> Result<(), PermitDefect> {
        let (Some(permit), Some(wallet)) = (&submission.request.permit, &submission.wallet) else {
            return Ok(());
        };
        let KnownWallet { key, facts } = wallet;
        let pending = self.pending.entry(key.wallet()).or_default();
        pending.check_held(facts, &key.token, permit.nonce.get(), amount.get())
    }

    /// Counts one more resting order of a tenant, unless it or the wallet has as many as it may have.
    pub(super) fn may_rest(&mut self, submission: &Submission) -> bool {
        let of_wallet = submission.wallet.as_ref().map_or(0, |wallet| {
            let pending = self.pending.get(&wallet.key.wallet());
            pending.map_or(0, |pending| pending.resting_before(wallet.facts.nonce, u128::MAX).count())
        });
        let resting = self.resting.entry(submission.tenant.clone()).or_default();
        let may = *resting < RESTING_MAX && of_wallet < WALLET_RESTING_MAX;
        *resting = resting.saturating_add(i64::from(may));
        may
    }

    /// A resting order was filled: its hold is what it locks.
    pub(super) fn end_rest(&mut self, hold: &PermitHold) {
        self.pending.entry(hold.wallet()).or_default().end_rest(hold);
    }

    /// Whether the orders that rest with a nonce before the submission's would be filled by then, at present prices. Not
    /// behind more than a wallet may have.
    pub(super) fn is_next_by(
        &mut self,
        context: &Context,
        submission: &Submission,
        lock_by: u64,
        now: Timestamp,
    ) -> bool {
        let (Some(permit), Some(wallet)) = (&submission.request.permit, &submission.wallet) else {
            return true;
        };
        let Some(pending) = self.pending.get(&wallet.key.wallet()) else { return true };
        let before = || pending.resting_before(wallet.facts.nonce, permit.nonce.get());
        if before().nth(WALLET_RESTING_MAX).is_some() {
            return false;
        }
        let market =
            Market { registry: &context.registry, snapshot: &self.snapshot, holdings: &Unlimited, now };
        let met = &mut self.met;
        before().all(|rested| {
            let at = match met.get(&rested.reference) {
                Some(known) => *known,
                None => *met.entry(rested.reference.clone()).or_insert(met_at(&market, rested)),
            };
            at.is_some_and(|at| at < rested.range.deadline && at.unix_secs() < lock_by)
        })
    }

    /// Whether a submission is still to be decided: the claim of its legacy order, if any, must be valid.
    pub(in crate::writer) fn is_due(&self, submission: &Submission) -> bool {
        submission.turn.as_ref().is_none_or(|turn| self.turns.contains_key(turn))
    }

    /// Whether a submission is of a legacy order whose standing instruction names another account by now.
    pub(super) fn is_redirected(&self, submission: &Submission) -> bool {
        submission.turn.as_ref().is_some_and(|turn| self.turns.get(turn) == Some(&false))
    }

    /// A settlement has ended unpaid.
    pub(in crate::writer) fn give_back(
        &mut self,
        amounts: impl Iterator<Item = (i64, Minor)>,
    ) -> Result<(), StoreError> {
        for (level, amount) in amounts {
            let sum = self.given_back.entry(level).or_default();
            let beyond = || StoreError::corrupt("resting_order", "amounts out of range");
            *sum = sum.checked_add(amount).ok_or_else(beyond)?;
        }
        Ok(())
    }

    /// A decision takes at most the remaining amount of a resting order.
    pub(super) fn take(&mut self, level: i64, amount: Minor) -> Result<(), StoreError> {
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

/// The balances that submissions can use: of providers with an offer, of providers that committed to a quote, and the
/// partners' own for inputs that are not locked on the chain.
pub(in crate::writer) fn balance_keys(
    known: &BatchSnapshot,
    submissions: &[&Submission],
) -> BTreeSet<BalanceKey> {
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

pub(super) fn partner(tenant: &Tenant) -> Owner {
    Owner::Partner { id: tenant.partner_id.clone(), livemode: tenant.livemode }
}

/// The locked balances after the earlier submissions, for one partner.
pub(super) struct Locked<'a> {
    pub(super) balances: &'a BTreeMap<BalanceKey, Balance>,
    pub(super) levels: &'a HashMap<i64, Minor>,
    pub(super) tenant: &'a Tenant,
    /// The holds of firm quotes, and the order's own quote, whose hold it may use.
    pub(super) holds: (&'a QuoteHolds, Option<&'a FirmTerms>),
    /// A provider delivers at most what its limits permit.
    pub(super) limits: Option<&'a Limits>,
    pub(super) taken: &'a Taken,
}

impl Locked<'_> {
    fn of(&self, owner: Owner, asset: &str) -> Minor {
        self.balances.get(&(owner, asset.to_owned())).map(|balance| balance.available).unwrap_or_default()
    }
}

impl Holdings for Locked<'_> {
    fn available(&self, provider_id: &str, asset: &str) -> Minor {
        let (holds, own) = self.holds;
        let all = self.of(Owner::Provider(provider_id.to_owned()), asset);
        let free = all.checked_sub(holds.held(provider_id, asset, own)).unwrap_or_default();
        self.limits.map_or(free, |limits| free.min(limits.room_of_provider(provider_id, asset)))
    }

    fn rest_of_level(&self, level_id: i64) -> Option<Minor> {
        Some(self.levels.get(&level_id).copied().unwrap_or_default())
    }

    fn taken_of(&self, answer: AnswerId) -> Minor {
        self.taken.of(answer)
    }

    fn prefunded(&self, asset: &str) -> Minor {
        self.of(partner(self.tenant), asset)
    }
}

/// Loads and locks what the submissions are checked against.
pub(in crate::writer) async fn load(
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
    let wallets: BTreeSet<&str> = submissions
        .iter()
        .filter_map(|s| s.wallet.as_ref())
        .map(|wallet| wallet.key.owner.as_str())
        .collect();
    let (partners, wallets) = (Vec::from_iter(partners), Vec::from_iter(wallets));
    let controls = controls::load(conn, &partners, &wallets, now).await?;
    known.snapshot = context.liquidity.snapshot_under(&controls);
    let Controls { pauses, disabled, cooling, .. } = controls;
    known.disabled = disabled.into_iter().collect();
    known.cooling = cooling.into_iter().collect();
    known.destinations = load_destinations(conn, submissions).await?;
    known.pauses = pauses;
    known.limits = load_limits(conn, submissions, now).await?;
    let turns: Vec<&HeldTurn> = submissions.iter().filter_map(|s| s.turn.as_ref()).collect();
    if !turns.is_empty() {
        known.turns = legacy::lock_turns(conn, &turns).await?;
    }
    known.pending = load_pending(conn, submissions).await?;
    // After the holds: an order that ends meanwhile leaves its hold or its published permit.
    let permits: Vec<PermitId> = submissions.iter().filter_map(|s| permit_id(s)).collect();
    if !permits.is_empty() {
        known.published = published_permits::find(conn, &permits).await?;
    }
    // The permit of a repeated submission is held or used: the answer is that it is a repetition.
    let may_be_repeat = |s: &&&Submission| trust == Trust::Nothing || known.has_known_permit(s);
    let repeated: Vec<&Submission> = submissions.iter().filter(may_be_repeat).copied().collect();
    if !repeated.is_empty() {
        look_for_repeats(conn, &repeated, &mut known).await?;
    }
    let quotes: Vec<&str> = submissions.iter().filter_map(|s| s.request.quote_id.as_deref()).collect();
    if !quotes.is_empty() {
        known.quotes = quotes::lock_firm(conn, &quotes).await?;
    }
    Ok(known)
}

/// Counts the resting orders of tenants. An order of a batch that is written meanwhile is not counted.
pub(in crate::writer) async fn count_resting(
    conn: &mut PgConnection,
    known: &mut BatchSnapshot,
    tenants: &BTreeSet<&Tenant>,
) -> Result<(), StoreError> {
    if !tenants.is_empty() {
        known.resting = ranges::count_of_tenants(conn, tenants).await?;
    }
    Ok(())
}

/// Locks the resting orders that submissions may take from, and those that steps give back to, in one order.
pub(in crate::writer) async fn lock_levels(
    conn: &mut PgConnection,
    known: &mut BatchSnapshot,
    submissions: &[&Submission],
    given_back: BTreeSet<i64>,
) -> Result<(), StoreError> {
    let resting: BTreeSet<i64> = submissions
        .iter()
        .map(|s| (&s.request.input_asset.symbol, &s.request.output_asset.symbol))
        .flat_map(|(input, output)| known.snapshot.levels(input, output))
        .chain(given_back)
        .collect();
    if !resting.is_empty() {
        known.levels = resting_orders::lock(conn, &Vec::from_iter(resting)).await?;
    }
    Ok(())
}

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

/// The registered destinations of recipients that submissions name by reference.
async fn load_destinations(
    conn: &mut PgConnection,
    submissions: &[&Submission],
) -> Result<Destinations, StoreError> {
    let named: BTreeSet<(&str, &str, &str)> = submissions
        .iter()
        .filter_map(|s| {
            let (beneficiary, destination) = s.request.beneficiary.as_ref()?.reference()?;
            Some((s.tenant.partner_id.as_str(), beneficiary, destination))
        })
        .collect();
    if named.is_empty() {
        return Ok(Destinations::new());
    }
    beneficiaries::find_destinations(conn, &Vec::from_iter(named)).await
}

/// When a resting order would be filled at the market's prices. `None`: never.
fn met_at(market: &Market<'_>, rested: &NewRestingRange) -> Option<Timestamp> {
    let find = |symbol: &str| market.registry.find(symbol);
    let (input, output) = find(&rested.input_asset).zip(find(&rested.output_asset))?;
    match rested.range.meet(market, &Ask { input, output, actor: rested.actor, firm: false }) {
        Meeting::Now(_) => Some(market.now),
        Meeting::Later { at, .. } => Some(at),
        Meeting::Never | Meeting::NoLiquidity => None,
    }
}

/// The permit of a submission whose wallet was read.
fn permit_id(submission: &Submission) -> Option<PermitId> {
    let (permit, wallet) = (submission.request.permit.as_ref()?, submission.wallet.as_ref()?);
    Some(PermitId::of(permit, wallet.key.wallet()))
}

/// The holds of the submissions' paying wallets, from the lowest of their chain nonces on.
async fn load_pending(
    conn: &mut PgConnection,
    submissions: &[&Submission],
) -> Result<HashMap<(i64, String), PendingPermits>, StoreError> {
    let mut wallets: BTreeMap<(i64, &str), u128> = BTreeMap::new();
    for wallet in submissions.iter().filter_map(|s| s.wallet.as_ref()) {
        let from = wallets.entry((wallet.key.chain_id, &wallet.key.owner)).or_insert(wallet.facts.nonce);
        *from = wallet.facts.nonce.min(*from);
    }
    let mut pending: HashMap<(i64, String), PendingPermits> = HashMap::new();
    if !wallets.is_empty() {
        let held = permits::list_held(conn, &Vec::from_iter(wallets)).await?;
        for (hold, rests) in &held {
            if !rests {
                pending.entry(hold.wallet()).or_default().hold(hold);
            }
        }
        load_resting(conn, held, &mut pending).await?;
    }
    Ok(pending)
}

async fn load_resting(
    conn: &mut PgConnection,
    held: Vec<(PermitHold, bool)>,
    pending: &mut HashMap<(i64, String), PendingPermits>,
) -> Result<(), StoreError> {
    let resting: HashMap<String, PermitHold> = held
        .into_iter()
        .filter(|(_, rests)| *rests)
        .map(|(hold, _)| (hold.reference.clone(), hold))
        .collect();
    if resting.is_empty() {
        return Ok(());
    }
    let references: Vec<&str> = resting.keys().map(String::as_str).collect();
    let mut ranges: HashMap<String, NewRestingRange> = ranges::list_resting(conn, &references)
        .await?
        .into_iter()
        .map(|found| (found.rested.reference.clone(), found.rested))
        .collect();
    for (reference, hold) in &resting {
        let wallet = pending.entry(hold.wallet()).or_default();
        match ranges.remove(reference) {
            Some(range) => wallet.rest(hold, range),
            // It was filled or has ended since.
            None => wallet.hold(hold),
        }
    }
    Ok(())
}

/// The submissions' ids that were used before. Without this look-up a repetition violates a key, and is then looked up.
pub(super) async fn look_for_repeats(
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_most_the_remaining_amount_of_a_resting_order_is_taken() {
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

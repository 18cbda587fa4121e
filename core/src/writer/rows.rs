//! The rows a batch gathers before it writes them: new ones in two statements, the others by table.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use chrono::{DateTime, Utc};
use dvp_domain::ledger::{Account, Move, Part, Posting};
use dvp_domain::limit::LimitKey;
use dvp_domain::money::Minor;
use dvp_domain::settlement::State;
use dvp_domain::terms::Terms;
use dvp_domain::time::Timestamp;
use sqlx::PgConnection;

use dvp_domain::chain::ChainCommand;
use dvp_store::StoreError;
use dvp_store::chain::commands::{self, NewChainCommand};
use dvp_store::chain::open_facts;
use dvp_store::insert_batch::{self, AppendBatch, InsertBatch};
use dvp_store::ledger::NewPosting;
use dvp_store::ledger::balances::{Balance, BalanceKey};
use dvp_store::orders::abandonments::NewAbandonment;
use dvp_store::orders::deposits::{self, NewDepositWait};
use dvp_store::orders::effects::{self, Claimed, EffectKind, EndedEffect, NewEffect};
use dvp_store::orders::events::NewEvent;
use dvp_store::orders::executions::{self, Execution, MatchedExecution};
use dvp_store::orders::idempotency::Record;
use dvp_store::orders::intents::{IntentRow, Tenant};
use dvp_store::orders::permits::{self, PermitHold};
use dvp_store::orders::published_permits::{self, PublishedPermit};
use dvp_store::orders::ranges::{self, NewRestingRange};
use dvp_store::orders::receipts::NewReceipt;
use dvp_store::partners::beneficiaries::Destinations;

use crate::context::ChainConfig;
use crate::writer::handover::{CLAIM_SECS, Committing, Handover, Payee, Reserved};

/// All rows of a batch except the decided intents and the changed executions.
#[derive(Default)]
pub(super) struct Rows {
    pub accepted: Vec<(Terms, State, i64)>,
    pub permits: Vec<PermitHold>,
    pub events: Vec<NewEvent<String>>,
    pub effects: Vec<NewEffect>,
    /// The states in which accepted orders begin at once.
    pub begun: Vec<&'static str>,
    /// The effects that are inserted as claimed, for this process's workers.
    pub claimed: Vec<ToHandOver>,
    pub ended: Vec<EndedEffect>,
    pub facts: Vec<i64>,
    pub timers_dropped: Vec<String>,
    /// Permit holds released because the settlement ended without a lock.
    pub permits_dropped: Vec<PermitHold>,
    /// Permits that are public, and whose order has no lock.
    pub permits_published: Vec<PublishedPermit>,
    /// Permit holds whose tokens the chain has taken.
    pub permits_locked: Vec<PermitHold>,
    /// Permit holds of filled range orders, which held the order's cap.
    pub permits_settled: Vec<PermitHold>,
    /// Range orders that wait for the market, orders that wait for a deposit, those that wait no more, and those among
    /// them that were filled.
    pub rested: Vec<(Tenant, NewRestingRange)>,
    pub awaiting: Vec<NewDepositWait>,
    pub unrested: Vec<String>,
    pub matched: Vec<MatchedExecution>,
    /// When the first legs of filled resting orders begin.
    pub brought_forward: Vec<(String, DateTime<Utc>)>,
    /// Orders whose takers let them go.
    pub abandoned: Vec<NewAbandonment>,
    pub commands: Vec<NewChainCommand>,
    /// The orders whose commitment is withdrawn.
    pub fills_withdrawn: Vec<String>,
    /// Orders whose locks, in no transaction yet, are withdrawn.
    pub locks_withdrawn: Vec<String>,
    pub postings: Vec<NewPosting>,
    pub receipts: Vec<NewReceipt>,
    pub balances: BTreeMap<BalanceKey, Balance>,
    /// The amounts that accepted orders add to the sums of the day.
    pub counted: BTreeMap<LimitKey, Minor>,
    /// The amounts that ended orders subtract from the sums of open orders.
    pub closed: BTreeMap<LimitKey, Minor>,
    /// Orders that had ended and are open again.
    pub reopened: BTreeMap<LimitKey, Minor>,
    pub handover: Arc<Handover>,
    /// The destinations of recipients that the batch has looked up.
    pub destinations: Destinations,
}

/// An effect that is handed over after the commit: its place, and its execution as the step leaves it.
pub(super) struct ToHandOver {
    pub kind: EffectKind,
    pub place: Reserved,
    pub execution: Execution,
}

impl Rows {
    /// Gathers due work. What is due by now is claimed for this process's workers, if they have a free place.
    pub(super) fn due(
        &mut self,
        kind: EffectKind,
        reference: &str,
        [at, now]: [Timestamp; 2],
        execution: impl FnOnce() -> Execution,
    ) {
        let place = if at <= now { self.handover.reserve(kind) } else { None };
        let is_claimed = place.is_some();
        self.effects.push(NewEffect {
            reference: reference.to_owned(),
            kind,
            run_at: at.to_utc(),
            is_claimed,
        });
        self.claimed.extend(place.map(|place| ToHandOver { kind, place, execution: execution() }));
    }

    /// An order waits for the market, or for the deposit that pays it on this chain.
    pub(super) fn rest(&mut self, terms: &Terms, chain: &ChainConfig) -> Result<(), StoreError> {
        let gate = chain.contracts_of(terms)?.gate.as_deref();
        self.awaiting.extend(NewDepositWait::of(terms, chain.chain_id, gate)?);
        let tenant = || Tenant { partner_id: terms.partner_id.to_string(), livemode: terms.livemode };
        self.rested.extend(NewRestingRange::of(terms).map(|rested| (tenant(), rested)));
        Ok(())
    }

    /// The work that was inserted as claimed, by its rows.
    pub(super) fn committing(&mut self, claimed: Vec<Claimed>) -> Vec<Committing> {
        let destinations = std::mem::take(&mut self.destinations);
        let mut by_key: HashMap<(String, &str), Claimed> = claimed
            .into_iter()
            .map(|claim| ((claim.reference.clone(), claim.kind.as_str()), claim))
            .collect();
        let all = self.claimed.drain(..).filter_map(|ToHandOver { kind, place, execution }| {
            let claim = by_key.remove(&(execution.terms.reference.to_string(), kind.as_str()))?;
            let payee = match kind {
                EffectKind::Payout => Payee::among(&destinations, &execution.terms),
                EffectKind::Lock | EffectKind::Offramp | EffectKind::Reversal | EffectKind::Timelock => {
                    Payee::Unread
                }
            };
            Some(Committing { claim, execution, place, payee })
        });
        all.collect()
    }

    /// The settlement leaves the accepted state for `next`: no effect is due any more, and its permit was used, or
    /// never will be.
    pub(super) fn drop_timers(&mut self, terms: &Terms, chain_id: i64, next: &State) {
        self.timers_dropped.push(terms.reference.to_string());
        let Some(hold) = PermitHold::of(terms, chain_id) else { return };
        if matches!(next, State::Cancelled | State::Expired | State::Failed { .. }) {
            self.permits_dropped.push(hold);
        } else {
            self.permits_locked.push(hold);
        }
    }

    pub(super) fn command(
        &mut self,
        terms: &Terms,
        chain: &ChainConfig,
        entity: String,
        command: ChainCommand,
    ) {
        self.commands.push(NewChainCommand {
            chain_id: chain.chain_id,
            escrow: chain.escrow_of(terms).to_owned(),
            reference: terms.reference.to_string(),
            intent_id: terms.request.intent_id.clone(),
            entity,
            command,
            trace: terms.trace,
        });
    }

    /// Gathers a posting and applies it to the batch's locked balances, as the database will.
    pub(super) fn post(&mut self, reference: &str, step: i64, posting: &Posting) -> Result<(), StoreError> {
        for one in &posting.moves {
            self.shift(&one.from, &one.asset, |held| held.checked_sub(one.amount.minor))?;
            self.shift(&one.to, &one.asset, |held| held.checked_add(one.amount.minor))?;
        }
        let posting = NewPosting { reference: reference.to_owned(), step, posting: posting.clone() };
        self.postings.push(posting);
        Ok(())
    }

    fn shift(
        &mut self,
        account: &Account,
        asset: &str,
        change: impl FnOnce(Minor) -> Option<Minor>,
    ) -> Result<(), StoreError> {
        let Account::Balance(owner, part) = account else { return Ok(()) };
        let corrupt = || StoreError::corrupt("account_balance", format_args!("{owner:?} is not covered"));
        let held = self.balances.get_mut(&(owner.clone(), asset.to_owned())).ok_or_else(corrupt)?;
        let half = match part {
            Part::Available => &mut held.available,
            Part::Reserved => &mut held.reserved,
        };
        *half = change(*half).ok_or_else(corrupt)?;
        Ok(())
    }

    /// Adds an accepted order to the sums of the day and of open orders.
    pub(super) fn count(&mut self, amounts: BTreeMap<LimitKey, Minor>) -> Result<(), StoreError> {
        add(&mut self.counted, amounts)
    }

    /// Subtracts an ended order from the sums of open orders.
    pub(super) fn close(&mut self, amounts: BTreeMap<LimitKey, Minor>) -> Result<(), StoreError> {
        add(&mut self.closed, amounts)
    }

    /// Adds an order that had ended to the sums of open orders again.
    pub(super) fn reopen(&mut self, amounts: BTreeMap<LimitKey, Minor>) -> Result<(), StoreError> {
        add(&mut self.reopened, amounts)
    }

    /// Writes the rows that no other batch waits for.
    pub(super) async fn write(
        &self,
        conn: &mut PgConnection,
        intents: &[IntentRow<'_>],
        records: &[Record],
    ) -> Result<Vec<Claimed>, StoreError> {
        if !self.timers_dropped.is_empty() {
            let references: Vec<&str> = self.timers_dropped.iter().map(String::as_str).collect();
            effects::delete_timers(conn, &references).await?;
        }
        if !self.permits_dropped.is_empty() {
            permits::delete(conn, &self.permits_dropped).await?;
        }
        if !self.permits_published.is_empty() {
            published_permits::insert(conn, &self.permits_published).await?;
        }
        if !self.permits_locked.is_empty() {
            permits::mark_locked(conn, &self.permits_locked).await?;
        }
        self.write_ranges(conn).await?;
        effects::end(conn, &self.ended).await?;
        if !self.facts.is_empty() {
            open_facts::consume(conn, &self.facts).await?;
        }
        if !self.locks_withdrawn.is_empty() {
            let references: Vec<&str> = self.locks_withdrawn.iter().map(String::as_str).collect();
            commands::withdraw_locks(conn, &references).await?;
        }
        if !self.fills_withdrawn.is_empty() {
            let references: Vec<&str> = self.fills_withdrawn.iter().map(String::as_str).collect();
            commands::withdraw_fills(conn, &references).await?;
        }
        let added = InsertBatch {
            intents,
            executions: &self.accepted,
            permits: &self.permits,
            effects: &self.effects,
            claim_secs: CLAIM_SECS,
            records,
            receipts: &self.receipts,
            commands: &self.commands,
        };
        if added.is_empty() { Ok(Vec::new()) } else { insert_batch::insert(conn, &added).await }
    }

    /// Appends to the ledger, to the sums of limits and to the feed, in one statement at the end. `now`: when the orders
    /// are accepted.
    pub(super) async fn append(&self, conn: &mut PgConnection, now: Timestamp) -> Result<(), StoreError> {
        self.check()?;
        let text = |(key, amount): (&LimitKey, &Minor)| (key.clone(), amount.to_string());
        let counted: Vec<(LimitKey, String)> = self.counted.iter().map(text).collect();
        let closed = self.closed.iter().map(|(key, amount)| (key.clone(), format!("-{amount}")));
        let reopened = self.reopened.iter().map(text);
        let opened: Vec<(LimitKey, String)> = counted.iter().cloned().chain(closed).chain(reopened).collect();
        let added = AppendBatch {
            postings: &self.postings,
            day: now.to_utc().date_naive(),
            counted: &counted,
            opened: &opened,
            events: &self.events,
        };
        if added.is_empty() { Ok(()) } else { insert_batch::append(conn, &added).await }
    }

    /// What no other part may get past: every move changes two accounts by an amount, and the events of an order follow
    /// each other. A unit that breaks it is answered with an error, and nothing of it is written.
    fn check(&self) -> Result<(), StoreError> {
        for NewPosting { reference, posting, .. } in &self.postings {
            let is_whole = |one: &Move| !one.amount.is_zero() && one.from != one.to;
            if !posting.moves.iter().all(is_whole) {
                let reason =
                    format_args!("a posting of {reference} ({}) moves nothing", posting.reason.as_str());
                return Err(StoreError::corrupt("ledger_entry", reason));
            }
        }
        let mut last = HashMap::<&str, i64>::new();
        for event in &self.events {
            let before = last.insert(&event.reference, event.sequence);
            if event.sequence < 1
                || before.is_some_and(|before| before.checked_add(1) != Some(event.sequence))
            {
                let reason = format_args!("event {} of {} after {before:?}", event.sequence, event.reference);
                return Err(StoreError::corrupt("event", reason));
            }
        }
        Ok(())
    }

    async fn write_ranges(&self, conn: &mut PgConnection) -> Result<(), StoreError> {
        if !self.matched.is_empty() {
            executions::update_matched(conn, &self.matched).await?;
        }
        if !self.permits_settled.is_empty() {
            permits::set_amounts(conn, &self.permits_settled).await?;
        }
        if !self.brought_forward.is_empty() {
            effects::bring_forward(conn, &self.brought_forward).await?;
        }
        if !self.unrested.is_empty() {
            let references: Vec<&str> = self.unrested.iter().map(String::as_str).collect();
            ranges::delete(conn, &references).await?;
        }
        if !self.rested.is_empty() {
            ranges::insert(conn, &self.rested).await?;
        }
        if !self.awaiting.is_empty() {
            deposits::insert(conn, &self.awaiting).await?;
        }
        Ok(())
    }
}

/// A sum that no amount can have does not come from orders.
fn add(sums: &mut BTreeMap<LimitKey, Minor>, amounts: BTreeMap<LimitKey, Minor>) -> Result<(), StoreError> {
    for (key, amount) in amounts {
        let sum = sums.entry(key).or_default();
        let added = sum.checked_add(amount);
        *sum = added.ok_or_else(|| StoreError::corrupt("limit_usage", "a sum of amounts overflows"))?;
    }
    Ok(())
}

//! The rows a batch gathers before it writes them, one statement per table.

use std::collections::BTreeMap;

use dvp_domain::ledger::{Account, Part, Posting};
use dvp_domain::limit::LimitKey;
use dvp_domain::money::Minor;
use dvp_domain::receipt::Receipt;
use dvp_domain::settlement::State;
use dvp_domain::terms::Terms;
use dvp_domain::time::Timestamp;
use sqlx::PgConnection;

use dvp_domain::chain::ChainCommand;
use dvp_store::chain::commands::{self, NewChainCommand};
use dvp_store::chain::open_facts;
use dvp_store::ledger::NewPosting;
use dvp_store::ledger::balances::{Balance, BalanceKey};
use dvp_store::orders::effects::{self, EndedEffect, NewEffect};
use dvp_store::orders::events::NewEvent;
use dvp_store::orders::idempotency::Record;
use dvp_store::orders::insert_batch::{self, InsertBatch};
use dvp_store::orders::intents::IntentRow;
use dvp_store::orders::permits::{self, PermitHold};
use dvp_store::orders::receipts;
use dvp_store::{StoreError, limits};

/// All rows of a batch except the decided intents and the changed executions.
#[derive(Default)]
pub(super) struct Rows {
    pub accepted: Vec<(Terms, State, i64)>,
    pub permits: Vec<PermitHold>,
    pub events: Vec<NewEvent<String>>,
    pub effects: Vec<NewEffect>,
    pub ended: Vec<EndedEffect>,
    pub facts: Vec<i64>,
    pub timers_dropped: Vec<String>,
    /// Permit holds released because the settlement ended without a lock.
    pub permits_dropped: Vec<PermitHold>,
    /// Permit holds whose tokens the chain has taken.
    pub permits_locked: Vec<PermitHold>,
    pub commands: Vec<NewChainCommand>,
    pub postings: Vec<NewPosting>,
    pub receipts: Vec<(String, Receipt, Timestamp)>,
    pub balances: BTreeMap<BalanceKey, Balance>,
    /// What the accepted orders add to the sums of the day.
    pub counted: BTreeMap<LimitKey, Minor>,
    /// What the orders that end take off the sums of open orders.
    pub closed: BTreeMap<LimitKey, Minor>,
    pub chain_id: i64,
}

impl Rows {
    /// The settlement leaves the accepted state for `next`: no effect is due any more, and its permit was used, or
    /// never will be.
    pub(super) fn drop_timers(&mut self, terms: &Terms, next: &State) {
        self.timers_dropped.push(terms.reference.to_string());
        let Some(hold) = PermitHold::of(terms) else { return };
        if matches!(next, State::Cancelled | State::Expired | State::Failed { .. }) {
            self.permits_dropped.push(hold);
        } else {
            self.permits_locked.push(hold);
        }
    }

    pub(super) fn command(&mut self, terms: &Terms, entity: String, command: ChainCommand) {
        self.commands.push(NewChainCommand {
            chain_id: self.chain_id,
            reference: terms.reference.to_string(),
            intent_id: terms.request.intent_id.clone(),
            entity,
            command,
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
    pub(super) fn count(&mut self, amounts: BTreeMap<LimitKey, Minor>) {
        add(&mut self.counted, amounts);
    }

    /// An order has ended: it is open no more.
    pub(super) fn close(&mut self, amounts: BTreeMap<LimitKey, Minor>) {
        add(&mut self.closed, amounts);
    }

    /// Writes all rows, in one statement at the end. `now`: when the orders are accepted.
    pub(super) async fn write(
        &self,
        conn: &mut PgConnection,
        intents: &[IntentRow<'_>],
        records: &[Record],
        now: Timestamp,
    ) -> Result<(), StoreError> {
        if !self.timers_dropped.is_empty() {
            let references: Vec<&str> = self.timers_dropped.iter().map(String::as_str).collect();
            effects::delete_timers(conn, &references).await?;
        }
        if !self.permits_dropped.is_empty() {
            permits::delete(conn, self.chain_id, &self.permits_dropped).await?;
        }
        if !self.permits_locked.is_empty() {
            permits::mark_locked(conn, self.chain_id, &self.permits_locked).await?;
        }
        if !self.counted.is_empty() {
            limits::count(conn, now.to_utc().date_naive(), &self.counted).await?;
        }
        if !self.counted.is_empty() || !self.closed.is_empty() {
            limits::append_open(conn, &self.counted, &self.closed).await?;
        }
        effects::end(conn, &self.ended).await?;
        if !self.facts.is_empty() {
            open_facts::consume(conn, &self.facts).await?;
        }
        for (reference, receipt, issued_at) in &self.receipts {
            receipts::insert(conn, reference, receipt, issued_at.to_utc()).await?;
        }
        if !self.commands.is_empty() {
            commands::insert(conn, &self.commands).await?;
        }
        let added = InsertBatch {
            postings: &self.postings,
            intents,
            executions: &self.accepted,
            chain_id: self.chain_id,
            permits: &self.permits,
            effects: &self.effects,
            records,
            events: &self.events,
        };
        if added.is_empty() { Ok(()) } else { insert_batch::insert(conn, &added).await }
    }
}

/// Sums beyond all amounts stay there.
fn add(sums: &mut BTreeMap<LimitKey, Minor>, amounts: BTreeMap<LimitKey, Minor>) {
    for (key, amount) in amounts {
        let sum = sums.entry(key).or_default();
        *sum = sum.checked_add(amount).unwrap_or(Minor::new(u128::MAX));
    }
}

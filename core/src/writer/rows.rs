//! The rows a batch gathers before it writes them, one statement a table.

use std::collections::BTreeMap;

use dvp_domain::money::Minor;
use dvp_domain::receipt::Receipt;
use dvp_domain::settlement::{State, Terms};
use dvp_domain::time::Timestamp;
use sqlx::PgConnection;

use crate::chain::ChainCommand;
use crate::store::balances::{self, Balance, BalanceKey};
use crate::store::commands::{self, NewCommand};
use crate::store::effects::{self, EndedEffect, NewEffect};
use crate::store::events::NewEvent;
use crate::store::intents::{self, PermitKey};
use crate::store::ledger::{self, Posting};
use crate::store::{StoreError, executions, receipts};

/// Everything a batch writes beside the decided intents and the changed executions themselves.
#[derive(Default)]
pub(super) struct Rows {
    pub accepted: Vec<(Terms, State, i64)>,
    pub permits: Vec<(PermitKey, String)>,
    pub events: Vec<NewEvent>,
    pub effects: Vec<NewEffect>,
    pub ended: Vec<EndedEffect>,
    pub facts: Vec<i64>,
    pub timers_dropped: Vec<String>,
    pub commands: Vec<NewCommand>,
    pub postings: Vec<Posting>,
    pub receipts: Vec<(String, Receipt, Timestamp)>,
    pub balances: BTreeMap<BalanceKey, Balance>,
    pub chain_id: i64,
}

impl Rows {
    pub(super) fn command(&mut self, terms: &Terms, entity: String, command: ChainCommand) {
        self.commands.push(NewCommand {
            chain_id: self.chain_id,
            reference: terms.reference.to_string(),
            intent_id: terms.request.intent_id.clone(),
            entity,
            command,
        });
    }

    /// Moves `amount` between the free and the reserved part of a balance that the batch has locked.
    pub(super) fn shift(
        &mut self,
        key: &BalanceKey,
        change: impl FnOnce(Balance) -> Option<Balance>,
    ) -> Result<(), StoreError> {
        let held = self.balances.get(key).copied().unwrap_or_default();
        let after = change(held)
            .ok_or_else(|| StoreError::corrupt("provider_balance", "reservation is not covered"))?;
        self.balances.insert(key.clone(), after);
        Ok(())
    }

    /// Writes everything but the feed, which goes last.
    pub(super) async fn write(&self, conn: &mut PgConnection) -> Result<(), StoreError> {
        if !self.balances.is_empty() {
            balances::update(conn, &self.balances).await?;
        }
        if !self.accepted.is_empty() {
            let rows: Vec<_> =
                self.accepted.iter().map(|(terms, state, last)| (terms, state, *last)).collect();
            executions::insert(conn, &rows).await?;
        }
        if !self.permits.is_empty() {
            let chain = self.permits.iter().map(|(key, reference)| (key.clone(), reference.as_str()));
            intents::insert_permits(conn, self.chain_id, &chain.collect::<Vec<_>>()).await?;
        }
        if !self.timers_dropped.is_empty() {
            let references: Vec<&str> = self.timers_dropped.iter().map(String::as_str).collect();
            effects::delete_timers(conn, &references).await?;
            intents::delete_permits(conn, &references).await?;
        }
        effects::end(conn, &self.ended).await?;
        if !self.effects.is_empty() {
            effects::insert(conn, &self.effects).await?;
        }
        if !self.facts.is_empty() {
            commands::consume_facts(conn, &self.facts).await?;
        }
        if !self.postings.is_empty() {
            ledger::insert(conn, &self.postings).await?;
        }
        for (reference, receipt, issued_at) in &self.receipts {
            receipts::insert(conn, reference, receipt, issued_at.to_utc()).await?;
        }
        if !self.commands.is_empty() {
            commands::insert(conn, &self.commands).await?;
        }
        Ok(())
    }
}

/// `amount` becomes reserved.
pub(super) fn reserve(held: Balance, amount: Minor) -> Option<Balance> {
    Some(Balance {
        available: held.available.checked_sub(amount)?,
        reserved: held.reserved.checked_add(amount)?,
    })
}

/// `amount` is free again.
pub(super) fn release(held: Balance, amount: Minor) -> Option<Balance> {
    Some(Balance {
        available: held.available.checked_add(amount)?,
        reserved: held.reserved.checked_sub(amount)?,
    })
}

/// `amount` was delivered.
pub(super) fn spend(held: Balance, amount: Minor) -> Option<Balance> {
    Some(Balance { reserved: held.reserved.checked_sub(amount)?, ..held })
}

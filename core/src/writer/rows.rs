//! The rows a batch gathers before it writes them, one statement a table.

use std::collections::BTreeMap;

use dvp_domain::ledger::{Account, Part, Posting};
use dvp_domain::money::Minor;
use dvp_domain::receipt::Receipt;
use dvp_domain::settlement::{State, Terms};
use dvp_domain::time::Timestamp;
use sqlx::PgConnection;

use crate::chain::ChainCommand;
use crate::store::balances::{Balance, BalanceKey};
use crate::store::commands::{self, NewCommand};
use crate::store::effects::{self, EndedEffect, NewEffect};
use crate::store::events::NewEvent;
use crate::store::intents::{self, PermitKey};
use crate::store::ledger::{self, NewPosting};
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
    pub postings: Vec<NewPosting>,
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

    /// Gathers a posting and carries it out on the balances the batch has locked, as the database will.
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

    /// Writes everything but the feed, which goes last.
    pub(super) async fn write(&self, conn: &mut PgConnection) -> Result<(), StoreError> {
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

//! How a process uses its rails.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::ensure;
use dvp_core::ledger::reconciliation;
use dvp_core::workflow::RailUse;
use dvp_domain::currency::{AccountNumber, account_number, exponent, is_bic, is_country};
use dvp_domain::reconcile::Patience;
use dvp_rails::Rail;
use dvp_rails::iso20022::BankFiles;
use dvp_rails::iso20022::instruction::Debtor;
use dvp_rails::iso20022::pain001::DEBTOR_MAX;
use dvp_rails::iso20022::payee::{OnMismatch, Payees, Verification};
use dvp_rails::iso20022::text::plain_name;
use serde::Deserialize;

use super::Config;
use super::value::{Span, within};

/// The most calls of a rail at a time.
const CONCURRENCY_MAX: u16 = 1024;

/// How many calls of a rail a process makes at a time, how often it asks about a leg in progress, and what is too long.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RailCallsSection {
    pub concurrency: Option<u16>,
    /// The longest interval between two queries about a leg in progress.
    pub poll_max: Option<Span>,
    /// A leg without a final answer for so long is a break; of a payout after the rail's own time.
    pub stuck_after: Option<Span>,
}

impl RailCallsSection {
    pub(crate) fn check(&self, name: &str) -> anyhow::Result<()> {
        if let Some(concurrency) = self.concurrency {
            ensure!(
                (1..=CONCURRENCY_MAX).contains(&concurrency),
                "{name}.concurrency: {concurrency} is not between 1 and {CONCURRENCY_MAX}"
            );
        }
        within(&format!("{name}.poll_max"), self.poll_max, "500ms", "1h")?;
        within(&format!("{name}.stuck_after"), self.stuck_after, "1m", "30d")
    }

    /// The rail, used as it is said here.
    pub(crate) fn of(&self, rail: Arc<dyn Rail>) -> RailUse {
        let usual = RailUse::of(rail);
        RailUse {
            concurrency: self.concurrency.unwrap_or(usual.concurrency),
            poll_max: self.poll_max.map_or(usual.poll_max, |span| span.0),
            ..usual
        }
    }
}

/// The bank that pays out.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct BankSection {
    /// Shared with it; every process with the role worker must see the same.
    pub folder: PathBuf,
    /// The accounts that are paid from, one a currency.
    pub accounts: Vec<Debtor>,
    /// How often its files are looked for.
    pub poll_interval: Option<Span>,
    /// How long a file that cannot be read may stay unchanged before it goes to quarantine.
    pub settles_after: Option<Span>,
    /// What the names of payment orders' files say about the verification of payees.
    #[serde(default)]
    pub payee_verification: Verification,
    /// What happens to a payment whose payee does not match.
    #[serde(default)]
    pub payee_mismatch: OnMismatch,
    /// How long a posting may be in no statement, and an entry of a statement not in the ledger, before it is a break.
    pub statement_patience: Option<Span>,
    /// How long the bank may take to decide on a recall before it is a break.
    pub recall_answer_within: Option<Span>,
    /// How long a payment may take to come back after the bank accepted its recall before it is a break.
    pub recall_return_within: Option<Span>,
}

impl BankSection {
    /// The bank's files, looked at as it is said here.
    pub(crate) fn paced(&self, files: BankFiles) -> BankFiles {
        let (verification, on_mismatch) = (self.payee_verification, self.payee_mismatch);
        let files = files.verifying(Payees { verification, on_mismatch });
        let files =
            self.poll_interval.map_or_else(|| files.clone(), |span| files.clone().looking_every(span.0));
        self.settles_after.map_or_else(|| files.clone(), |span| files.clone().settling_after(span.0))
    }

    pub(crate) fn patience(&self) -> Duration {
        self.statement_patience.map_or(reconciliation::PATIENCE, |span| span.0)
    }

    pub(crate) fn check(&self) -> anyhow::Result<()> {
        within("bank.poll_interval", self.poll_interval, "50ms", "10m")?;
        within("bank.settles_after", self.settles_after, "1s", "1h")?;
        within("bank.recall_answer_within", self.recall_answer_within, "1m", "90d")?;
        within("bank.recall_return_within", self.recall_return_within, "1m", "90d")?;
        ensure!(!self.accounts.is_empty(), "bank.accounts names none");
        for (n, account) in self.accounts.iter().enumerate() {
            let at = format!("bank.accounts[{n}]");
            ensure!(
                exponent(&account.currency).is_some(),
                "{at}.currency: {} is no ISO 4217 code",
                account.currency
            );
            ensure!(is_country(&account.country), "{at}.country: {} is no ISO 3166 code", account.country);
            ensure!(is_bic(&account.bic), "{at}.bic: {} is no BIC", account.bic);
            ensure!(!account.name.is_empty() && !account.account.is_empty(), "{at} needs name and account");
            ensure!(
                plain_name(&account.name, DEBTOR_MAX).is_some(),
                "{at}.name: has a letter without a transcription for banks, or is longer than {DEBTOR_MAX} characters"
            );
            let is_code =
                |code: &String| code.len() == 4 && code.bytes().all(|byte| byte.is_ascii_uppercase());
            if let Some(purpose) = account.purpose.as_ref().filter(|purpose| !is_code(purpose)) {
                anyhow::bail!("{at}.purpose: {purpose} is no code of four capital letters");
            }
            ensure!(
                account_number(&account.account) != AccountNumber::WrongIban,
                "{at}.account: {} is no IBAN of its country's length and structure, with right check digits",
                account.account
            );
            let before = self.accounts.iter().take(n).any(|other| other.currency == account.currency);
            ensure!(!before, "{at}.currency: {} is there twice", account.currency);
        }
        Ok(())
    }
}

impl Config {
    /// What the comparison with the bank takes for too long.
    pub(crate) fn books_patience(&self) -> Duration {
        self.bank.as_ref().map_or(reconciliation::PATIENCE, BankSection::patience)
    }

    /// What the comparison of the books takes for too long.
    pub(crate) fn patience(&self) -> Patience {
        let usual = Patience::default();
        let millis = |span: &Option<Span>, usual: i64| {
            span.map_or(usual, |Span(span): Span| millis(span).unwrap_or(usual))
        };
        let mut patience = usual;
        if let Some(rails) = &self.rails {
            patience.convert_ms = millis(&rails.offramp_calls.stuck_after, usual.convert_ms);
            patience.pay_ms = millis(&rails.payout_calls.stuck_after, usual.pay_ms);
        }
        if let Some(bank) = &self.bank {
            patience.recall_answer_ms = millis(&bank.recall_answer_within, usual.recall_answer_ms);
            patience.recall_return_ms = millis(&bank.recall_return_within, usual.recall_return_ms);
        }
        patience
    }
}

fn millis(span: Duration) -> Option<i64> {
    i64::try_from(span.as_millis()).ok()
}

//! Statements of the ledger's accounts as banks send them: camt.053 and MT940. They have money in whole minor units; an
//! account of anything else is left out, and named.

use std::io::Result;

use dvp_domain::currency;
use dvp_rails::iso20022::camt053::{Line as Entry, StatementOf, file};
use sha2::{Digest as _, Sha256};

use super::csv::Decimals;
use super::{Heading, Line, Sink, TimeRange};

/// The longest number of an account in both formats.
const ACCOUNT_MAX: usize = 34;
/// The longest reference of an entry.
const REFERENCE_MAX: usize = 35;

pub struct BankStatements<'a> {
    decimals: &'a Decimals,
    range: TimeRange,
    /// With the account's name.
    statements: Vec<(StatementOf, String)>,
    /// The accounts that are left out, and why.
    pub left_out: Vec<String>,
    /// The one that is being read is left out.
    is_left_out: bool,
}

impl<'a> BankStatements<'a> {
    pub const fn new(decimals: &'a Decimals, range: TimeRange) -> Self {
        Self { decimals, range, statements: Vec::new(), left_out: Vec::new(), is_left_out: false }
    }

    pub fn camt053(&self) -> String {
        let id =
            format!("{}-{}", self.range.from.format("%Y%m%dT%H%M%S"), self.range.to.format("%Y%m%dT%H%M%S"));
        file(&id, self.range.to, self.statements.iter().map(|(one, name)| one.statement(Some(name))))
    }

    pub fn mt940(&self) -> String {
        self.statements.iter().map(|(one, name)| one.mt940(name)).collect()
    }

    pub const fn is_empty(&self) -> bool {
        self.statements.is_empty()
    }

    /// Amounts of banks have eighteen digits at most.
    fn minor(&mut self, heading: Heading<'_>, text: &str) -> i64 {
        let minor: Option<i64> =
            text.parse().ok().filter(|minor: &i64| minor.unsigned_abs() < 10_u64.pow(18));
        minor.unwrap_or_else(|| {
            self.leave_out(heading, "it has parts of a minor unit, or more than eighteen digits");
            0
        })
    }

    fn leave_out(&mut self, Heading { account, asset }: Heading<'_>, why: &str) {
        if !self.is_left_out {
            self.left_out.push(format!("{account} of {asset}: {why}"));
        }
        self.is_left_out = true;
    }
}

/// The account's name, or, of a longer one, a number derived from it.
fn number(account: &str) -> String {
    if account.chars().count() <= ACCOUNT_MAX {
        return account.to_owned();
    }
    let digest = hex::encode(Sha256::digest(account));
    digest.chars().take(ACCOUNT_MAX - 2).collect::<String>().to_uppercase()
}

impl Sink for BankStatements<'_> {
    fn line(&mut self, heading: Heading<'_>, line: Line<'_>) -> Result<()> {
        let Heading { account, asset } = heading;
        match line {
            Line::Opening { balance } => {
                self.is_left_out = false;
                if currency::exponent(asset).is_none_or(|places| self.decimals.get(asset) != Some(&places)) {
                    self.leave_out(heading, "it is no money of ISO 4217");
                }
                let opening = if self.is_left_out { 0 } else { self.minor(heading, balance) };
                let TimeRange { from, to } = self.range;
                let id = format!("{}-{}", from.format("%Y%m%dT%H%M%S"), to.format("%Y%m%dT%H%M%S"));
                let (currency, lines) = (asset.to_owned(), Vec::new());
                let statement =
                    StatementOf { account: number(account), currency, id, from, to, opening, lines };
                self.statements.push((statement, account.to_owned()));
            }
            Line::Entry(entry) if !self.is_left_out => {
                let amount = self.minor(heading, &entry.amount);
                let bank_reference = entry.reference.chars().take(REFERENCE_MAX).collect();
                let text = Some(format!("{} {} {}", entry.reason, entry.reference, entry.step));
                let (currency, at) = (asset.to_owned(), entry.recorded_at);
                if let Some((statement, _)) = self.statements.last_mut() {
                    let end_to_end_id = None;
                    statement.lines.push(Entry { currency, amount, end_to_end_id, bank_reference, text, at });
                }
            }
            Line::Entry(_) => {}
            Line::Closing { balance, .. } => {
                if !self.is_left_out {
                    self.minor(heading, balance);
                }
                if self.is_left_out {
                    self.statements.pop();
                }
            }
        }
        Ok(())
    }
}

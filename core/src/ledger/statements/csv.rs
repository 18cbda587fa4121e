//! Statements and reports as CSV (RFC 4180): amounts are numbers of minor units, with the asset and its decimals beside
//! them.

use std::collections::HashMap;
use std::io::{Result, Write};

use dvp_domain::time::Timestamp;

use super::{BalanceAt, FeeSum, Heading, JournalEntry, Line, Sink, account_name};

/// The number of decimals of each asset, where known.
pub type Decimals = HashMap<String, u8>;

/// A CSV field: quoted where needed, and never a formula.
pub fn field(text: &str) -> String {
    let is_formula = text.starts_with(['=', '+', '-', '@', '\t', '\r']);
    let text = if is_formula { format!("'{text}") } else { text.to_owned() };
    if text.contains([',', '"', '\n', '\r']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text }
}

fn decimals_of(decimals: &Decimals, asset: &str) -> String {
    decimals.get(asset).map(|count| count.to_string()).unwrap_or_default()
}

/// Writes statements as they are read.
pub struct StatementCsv<'a, W> {
    out: W,
    decimals: &'a Decimals,
}

impl<'a, W: Write> StatementCsv<'a, W> {
    pub fn begin(mut out: W, decimals: &'a Decimals) -> Result<Self> {
        out.write_all(
            b"line,account,asset,decimals,recorded_at,reference,step,reason,amount_minor,balance_minor\r\n",
        )?;
        Ok(Self { out, decimals })
    }

    pub fn finish(mut self) -> Result<W> {
        self.out.flush()?;
        Ok(self.out)
    }
}

impl<W: Write> Sink for StatementCsv<'_, W> {
    fn line(&mut self, heading: Heading<'_>, line: Line<'_>) -> Result<()> {
        let Heading { account, asset } = heading;
        let (account, decimals, asset) = (field(account), decimals_of(self.decimals, asset), field(asset));
        match line {
            Line::Opening { balance } => {
                write!(self.out, "opening,{account},{asset},{decimals},,,,,,{balance}\r\n")
            }
            Line::Entry(entry) => {
                let at = Timestamp::from(entry.recorded_at).iso8601();
                let (reference, reason) = (field(&entry.reference), field(&entry.reason));
                let (step, amount, balance) = (entry.step, &entry.amount, &entry.balance);
                write!(
                    self.out,
                    "entry,{account},{asset},{decimals},{at},{reference},{step},{reason},{amount},{balance}\r\n"
                )
            }
            Line::Closing { balance, .. } => {
                write!(self.out, "closing,{account},{asset},{decimals},,,,,,{balance}\r\n")
            }
        }
    }
}

pub(super) fn begin_journal(out: &mut impl Write) -> Result<()> {
    out.write_all(b"recorded_at,reference,step,reason,account,asset,decimals,debit_minor,credit_minor\r\n")
}

/// What an account gives is its debit, what it gets its credit: of each posting and asset both add up to the same.
pub(super) fn write_journal_entry(
    out: &mut impl Write,
    entry: &JournalEntry,
    decimals: &Decimals,
) -> Result<()> {
    let JournalEntry { recorded_at, reference, step, reason, owner_kind, owner, part, asset, amount } = entry;
    let at = Timestamp::from(*recorded_at).iso8601();
    let account = field(&account_name(owner_kind, owner, part));
    let (decimals, asset) = (decimals_of(decimals, asset), field(asset));
    let (reference, reason) = (field(reference), field(reason));
    let (debit, credit) = amount.strip_prefix('-').map_or(("", amount.as_str()), |debit| (debit, ""));
    write!(out, "{at},{reference},{step},{reason},{account},{asset},{decimals},{debit},{credit}\r\n")
}

pub fn write_fees(mut out: impl Write, fees: &[FeeSum], decimals: &Decimals) -> Result<()> {
    out.write_all(b"day,asset,decimals,reason,earned_minor,absorbed_minor,entries\r\n")?;
    for sum in fees {
        let FeeSum { day, asset, reason, earned, absorbed, entries } = sum;
        let (decimals, asset, reason) = (decimals_of(decimals, asset), field(asset), field(reason));
        write!(out, "{day},{asset},{decimals},{reason},{earned},{absorbed},{entries}\r\n")?;
    }
    out.flush()
}

pub fn write_balances(mut out: impl Write, balances: &[BalanceAt], decimals: &Decimals) -> Result<()> {
    out.write_all(b"account,asset,decimals,balance_minor,accounts\r\n")?;
    for balance in balances {
        let BalanceAt { owner_kind, owner, part, asset, amount, accounts } = balance;
        let account = field(&account_name(owner_kind, owner, part));
        let (decimals, asset) = (decimals_of(decimals, asset), field(asset));
        write!(out, "{account},{asset},{decimals},{amount},{accounts}\r\n")?;
    }
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::field;

    #[test]
    fn fields_are_quoted_and_never_formulas() {
        assert_eq!(field("exe_1"), "exe_1");
        assert_eq!(field("a,\"b\""), "\"a,\"\"b\"\"\"");
        assert_eq!(field("=1+1"), "'=1+1");
        assert_eq!(field("-1,2"), "\"'-1,2\"");
    }
}

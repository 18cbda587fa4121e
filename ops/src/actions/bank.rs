//! Alarms about the bank's payments and files, and statements that are imported by hand.

use std::collections::BTreeMap;

use anyhow::{Context as _, ensure};
use chrono::{DateTime, Utc};
use clap::{Args, Subcommand, ValueEnum};
use dvp_core::operators::bank_parts::{self, PartWord};
use dvp_core::operators::operations::bank_alarms::clear;
use dvp_core::operators::statements;
use dvp_rails::iso20022::by_hand::{CsvForm, convert_csv, convert_mt940};
use dvp_store::database::clock;
use serde_json::json;

use crate::actions::{Reason, Why};
use crate::desk::Desk;
use crate::outcome::Outcome;

#[derive(Debug, Subcommand)]
pub(crate) enum BankAction {
    /// Clear an alarm that was dealt with. A later alarm about the same opens it again.
    #[command(
        after_help = "Example:\n  dvp bank clear-alarm --subject exe_… --reason 'the bank corrected it' --config dvp.toml"
    )]
    ClearAlarm(ClearAlarm),
    /// Request to apply a part of a bank's file that could not be read: you say what it says of an order's payment.
    /// Another operator approves it.
    ///
    /// The payment is then paid, refused or returned, as if the file had said so.
    #[command(
        after_help = "Example:\n  dvp bank apply-part --file 9f86… --part 1 --id exe_… --says paid --at 2026-05-03T10:00:00Z --reason 'the date was wrong' --evidence 'mail of the bank' --config dvp.toml"
    )]
    ApplyPart(ApplyPart),
    /// Request to dismiss a part of a bank's file that could not be read, or all of them; another operator approves it.
    #[command(
        after_help = "Example:\n  dvp bank dismiss-part --file 9f86… --part 1 --reason 'the bank sent it anew' --evidence 'file of 3 May' --config dvp.toml"
    )]
    DismissPart(DismissPart),
    /// Request the import of a statement of an account, from a bank without ISO files; another operator approves it.
    ///
    /// It is converted to camt.053 and imported as every file of the bank is, once. One whose entries do not lead from its
    /// opening to its closing balance is refused.
    #[command(
        after_help = "Example:\n  dvp bank import --format mt940 --content \"$(<statement.sta)\" --reason 'January' --evidence 'mail of 3 February' --config dvp.toml"
    )]
    Import(Box<Import>),
}

#[derive(Debug, Args)]
pub(crate) struct ClearAlarm {
    /// As `dvp bank alarms` lists it: an execution, or a file's SHA-256.
    #[arg(long)]
    subject: String,
    #[command(flatten)]
    why: Reason,
}

#[derive(Debug, Args)]
pub(crate) struct ApplyPart {
    /// The file's SHA-256.
    #[arg(long, value_name = "SHA256")]
    file: String,
    /// The part's number, as `dvp bank parts` lists it.
    #[arg(long)]
    part: i32,
    /// The execution whose payment it is about.
    #[arg(long, value_name = "EXECUTION")]
    id: String,
    #[arg(long, value_enum)]
    says: Says,
    /// When the money moved (RFC 3339): with paid and returned.
    #[arg(long, value_name = "TIME", required_if_eq_any([("says", "paid"), ("says", "returned")]))]
    at: Option<DateTime<Utc>>,
    /// What moved in the currency's minor units, when the part has it: with paid and returned.
    #[arg(long, value_name = "MINOR")]
    amount_minor: Option<u128>,
    /// The bank's reason, of ISO's list: with refused and returned.
    #[arg(long, value_name = "CODE", required_if_eq_any([("says", "refused"), ("says", "returned")]))]
    code: Option<String>,
    #[command(flatten)]
    why: Why,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Says {
    /// The money left the account.
    Paid,
    /// It is not and will not be paid.
    Refused,
    /// It was paid and came back.
    Returned,
}

#[derive(Debug, Args)]
pub(crate) struct DismissPart {
    /// The file's SHA-256.
    #[arg(long, value_name = "SHA256")]
    file: String,
    /// The part's number; every part that waits when not given.
    #[arg(long)]
    part: Option<i32>,
    #[command(flatten)]
    why: Why,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Format {
    Mt940,
    Csv,
}

#[derive(Debug, Args)]
pub(crate) struct Import {
    #[arg(long, value_enum)]
    format: Format,
    /// The text of the file.
    #[arg(long, value_name = "DOCUMENT")]
    content: String,
    /// The account's number: with csv.
    #[arg(long, required_if_eq("format", "csv"))]
    account: Option<String>,
    /// Its currency: with csv.
    #[arg(long, required_if_eq("format", "csv"))]
    currency: Option<String>,
    /// What the statement is called, as no other of the account: with csv.
    #[arg(long, required_if_eq("format", "csv"))]
    name: Option<String>,
    /// The balances before and after, as the file writes amounts: with csv.
    #[arg(long, required_if_eq("format", "csv"), allow_hyphen_values = true)]
    opening: Option<String>,
    #[arg(long, required_if_eq("format", "csv"), allow_hyphen_values = true)]
    closing: Option<String>,
    /// Which column is what: date=HEADING, amount=HEADING or credit=HEADING and debit=HEADING, reference=HEADING,
    /// text=HEADING. With csv.
    #[arg(long, value_name = "WHAT=HEADING", required_if_eq("format", "csv"))]
    column: Vec<String>,
    /// What stands between columns: with csv.
    #[arg(long, default_value = ";")]
    delimiter: String,
    /// What stands before the fraction of an amount: with csv.
    #[arg(long, default_value = ",")]
    point: String,
    /// How dates are written, as of strftime: with csv.
    #[arg(long, default_value = "%Y-%m-%d")]
    date_format: String,
    #[command(flatten)]
    why: Why,
}

impl BankAction {
    pub(super) async fn perform(self, desk: &mut Desk<'_>) -> anyhow::Result<Outcome> {
        match self {
            Self::ClearAlarm(ClearAlarm { subject, why }) => {
                clear(desk.conn, &subject, &desk.by.name, &why.reason).await?;
                Ok(Outcome::done(json!({"cleared": subject}), format!("cleared {subject}")))
            }
            Self::ApplyPart(apply) => {
                let word = apply.word()?;
                let ApplyPart { file, part, id, why, .. } = apply;
                let maker = desk.maker(&why.reason, &why.evidence);
                let requested =
                    bank_parts::request_application(desk.conn, (&file, part), &id, word, maker).await?;
                Ok(Outcome::requested(&requested))
            }
            Self::DismissPart(DismissPart { file, part, why }) => {
                let maker = desk.maker(&why.reason, &why.evidence);
                Ok(Outcome::requested(&bank_parts::request_dismissal(desk.conn, &file, part, maker).await?))
            }
            Self::Import(import) => {
                let (text, now) = (&import.content, clock::now().to_utc());
                let converted = match import.format {
                    Format::Mt940 => convert_mt940(text, now)?,
                    Format::Csv => convert_csv(text, &import.form()?, now)?,
                };
                let maker = desk.maker(&import.why.reason, &import.why.evidence);
                Ok(Outcome::requested(&statements::request(desk.conn, &converted, maker).await?))
            }
        }
    }
}

impl ApplyPart {
    fn word(&self) -> anyhow::Result<PartWord> {
        let (at, code) = (self.at.context("--at is needed"), self.code.clone().context("--code is needed"));
        let amount = self.amount_minor.map(|amount| amount.to_string());
        Ok(match self.says {
            Says::Paid => {
                ensure!(self.code.is_none(), "--code is for --says refused and returned");
                PartWord::Paid { at: at?, amount }
            }
            Says::Refused => {
                ensure!(
                    self.at.is_none() && amount.is_none(),
                    "--at and --amount-minor are for money that moved"
                );
                PartWord::Refused { code: code? }
            }
            Says::Returned => PartWord::Returned { at: at?, amount, code: code? },
        })
    }
}

impl Import {
    fn form(&self) -> anyhow::Result<CsvForm> {
        let given =
            |text: &Option<String>, name: &str| text.clone().with_context(|| format!("--{name} is needed"));
        let delimiter =
            u8::try_from(single(&self.delimiter, "delimiter")?).context("--delimiter is no mark of ASCII")?;
        let mut columns = BTreeMap::new();
        for column in &self.column {
            let (what, heading) = column.split_once('=').context("--column is WHAT=HEADING")?;
            columns.insert(what.trim().to_owned(), heading.trim().to_owned());
        }
        ensure!(!columns.is_empty(), "--column is needed");
        // A format that does not exist fails when it is written, not when it is read.
        let items = chrono::format::StrftimeItems::new(&self.date_format);
        ensure!(
            !items.into_iter().any(|item| matches!(item, chrono::format::Item::Error)),
            "--date-format {} is none of strftime",
            self.date_format
        );
        Ok(CsvForm {
            account: given(&self.account, "account")?,
            currency: given(&self.currency, "currency")?,
            name: given(&self.name, "name")?,
            opening: given(&self.opening, "opening")?,
            closing: given(&self.closing, "closing")?,
            delimiter,
            point: single(&self.point, "point")?,
            date_format: self.date_format.clone(),
            columns,
        })
    }
}

fn single(text: &str, name: &str) -> anyhow::Result<char> {
    let mut letters = text.chars();
    let letter = letters.next().filter(|_| letters.next().is_none());
    letter.with_context(|| format!("--{name} is one character"))
}

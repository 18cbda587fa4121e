//! `dvp statement` and `dvp report …`: accounts as the ledger has them, for people, programs and spreadsheets.

use std::io::Write as _;

use anyhow::{Context as _, bail};
use chrono::{DateTime, Days, NaiveDate, NaiveTime, Utc};
use clap::{ArgGroup, Args, Subcommand, ValueEnum};
use dvp_core::ledger::statements::bank::BankStatements;
use dvp_core::ledger::statements::csv::{self, Decimals, StatementCsv};
use dvp_core::ledger::statements::{
    self, BalanceAt, FeeSum, Heading, Line, Sink, StatementAccount, TimeRange, account_name, accounts_of,
    parse_account, write_statements,
};
use dvp_domain::ledger::Owner;
use dvp_domain::time::Timestamp;
use serde_json::{Value, json};

use super::named_partner;
use crate::access::Access;
use crate::cli::{PlaceArgs, time};
use crate::output::print;

#[derive(Debug, Args)]
#[command(group(ArgGroup::new("whose").required(true).args(["account", "partner", "provider"])))]
#[command(group(ArgGroup::new("when").required(true).multiple(true).args(["day", "from", "to"])))]
pub(crate) struct StatementArgs {
    /// One account: `kind:owner:part`, as `dvp report balances` names it.
    #[arg(long)]
    pub account: Option<String>,
    /// Every account of a partner, by its name.
    #[arg(long)]
    pub partner: Option<String>,
    /// Every account of a provider, by its id.
    #[arg(long)]
    pub provider: Option<String>,
    /// One asset only.
    #[arg(long)]
    pub asset: Option<String>,
    #[command(flatten)]
    pub range: RangeArgs,
    /// Print a file for another program.
    #[arg(long, value_enum, conflicts_with = "json")]
    pub format: Option<FileFormat>,
    #[command(flatten)]
    pub place: PlaceArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum FileFormat {
    Csv,
    /// A statement of a bank (ISO 20022), of accounts of money.
    Camt053,
    /// A statement of a bank (SWIFT), of accounts of money.
    Mt940,
}

/// Which time: a day, or from a time on and before another one.
#[derive(Debug, Args)]
pub(crate) struct RangeArgs {
    /// One day (UTC).
    #[arg(long, value_name = "YYYY-MM-DD", conflicts_with_all = ["from", "to"])]
    pub day: Option<NaiveDate>,
    /// From this time on: RFC 3339, or a date for its beginning (UTC).
    #[arg(long, value_name = "TIME", value_parser = time, requires = "to")]
    pub from: Option<DateTime<Utc>>,
    /// Before this time: RFC 3339, or a date for its beginning (UTC).
    #[arg(long, value_name = "TIME", value_parser = time, requires = "from")]
    pub to: Option<DateTime<Utc>>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ReportCommand {
    /// Fees earned, and fees borne by the house, by day, asset and reason of the posting.
    #[command(
        after_help = "Example:\n  dvp report fees --from 2026-11-01 --to 2026-12-01 --csv --config dvp.toml"
    )]
    Fees(ReportFees),
    /// Amounts reserved, in transit or owed: reserved balances, claims, escrow, clearing, debts.
    #[command(after_help = "Example:\n  dvp report exposure --dir .dvp --json")]
    Exposure(ReportAt),
    /// Every posting as debits and credits, for an accounting system: CSV.
    #[command(after_help = "Example:\n  dvp report journal --day 2026-11-22 --config dvp.toml")]
    Journal(ReportJournal),
    /// Every account's balance.
    #[command(after_help = "Example:\n  dvp report balances --at 2026-12-01 --csv --config dvp.toml")]
    Balances(ReportAt),
}

#[derive(Debug, Args)]
#[command(group(ArgGroup::new("when").required(true).multiple(true).args(["day", "from", "to"])))]
pub(crate) struct ReportFees {
    #[command(flatten)]
    pub range: RangeArgs,
    /// Print CSV.
    #[arg(long, conflicts_with = "json")]
    pub csv: bool,
    #[command(flatten)]
    pub place: PlaceArgs,
}

#[derive(Debug, Args)]
#[command(group(ArgGroup::new("when").required(true).multiple(true).args(["day", "from", "to"])))]
pub(crate) struct ReportJournal {
    #[command(flatten)]
    pub range: RangeArgs,
    #[command(flatten)]
    pub place: PlaceArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ReportAt {
    /// As of this time: postings before it. RFC 3339, or a date for its beginning (UTC); now, if left out.
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub at: Option<DateTime<Utc>>,
    /// Print CSV.
    #[arg(long, conflicts_with = "json")]
    pub csv: bool,
    #[command(flatten)]
    pub place: PlaceArgs,
}

pub(crate) async fn run(args: StatementArgs) -> anyhow::Result<()> {
    let mut access = Access::open(&args.place).await?;
    let accounts = accounts(&mut access, &args).await?;
    let range = range(&args.range)?;
    let asset = args.asset.as_deref();
    let decimals = access.decimals();
    if args.format == Some(FileFormat::Csv) {
        let mut sink = StatementCsv::begin(std::io::stdout(), &decimals)?;
        write_statements(&mut access.conn, &accounts, asset, range, &mut sink).await?;
        sink.finish()?;
        return Ok(());
    }
    if let Some(format) = args.format {
        let mut sink = BankStatements::new(&decimals, range);
        write_statements(&mut access.conn, &accounts, asset, range, &mut sink).await?;
        for left_out in &sink.left_out {
            writeln!(std::io::stderr(), "left out: {left_out}; CSV and JSON have it")?;
        }
        if sink.is_empty() {
            bail!("there is no statement of money: name another account or asset, or another format");
        }
        let content = if format == FileFormat::Mt940 { sink.mt940() } else { sink.camt053() };
        std::io::stdout().write_all(content.as_bytes())?;
        return Ok(());
    }
    if args.place.json {
        let mut sink = JsonSink { decimals: &decimals, range, statements: Vec::new() };
        write_statements(&mut access.conn, &accounts, asset, range, &mut sink).await?;
        return print(true, &json!({"statements": sink.statements}), Vec::new);
    }
    let mut sink = TextSink { decimals: &decimals };
    if write_statements(&mut access.conn, &accounts, asset, range, &mut sink).await? == 0 {
        writeln!(std::io::stdout(), "nothing was ever posted to this")?;
    }
    Ok(())
}

pub(crate) async fn report(command: ReportCommand) -> anyhow::Result<()> {
    match command {
        ReportCommand::Fees(args) => fees(args).await,
        ReportCommand::Journal(args) => {
            let mut access = Access::open(&args.place).await?;
            let (range, decimals) = (range(&args.range)?, access.decimals());
            statements::write_journal(&mut access.conn, range, std::io::stdout(), &decimals).await?;
            Ok(())
        }
        ReportCommand::Exposure(args) => balances(args, true).await,
        ReportCommand::Balances(args) => balances(args, false).await,
    }
}

async fn accounts(access: &mut Access, args: &StatementArgs) -> anyhow::Result<Vec<StatementAccount>> {
    match (&args.account, &args.partner, &args.provider) {
        (Some(name), None, None) => {
            let account = parse_account(name).with_context(|| format!("no account is called {name}"))?;
            Ok(vec![account])
        }
        (None, Some(name), None) => {
            let id = named_partner(&mut access.conn, name).await?.id;
            let livemode = access.environment.is_live();
            Ok(accounts_of(&Owner::Partner { id, livemode }))
        }
        (None, None, Some(id)) => Ok(accounts_of(&Owner::Provider(id.clone()))),
        _ => bail!("--account, --partner or --provider is needed"),
    }
}

fn range(args: &RangeArgs) -> anyhow::Result<TimeRange> {
    match (args.day, args.from, args.to) {
        (Some(day), None, None) => {
            let next = day.checked_add_days(Days::new(1)).context("the day is too late")?;
            let begin = |day: chrono::NaiveDate| day.and_time(NaiveTime::MIN).and_utc();
            Ok(TimeRange { from: begin(day), to: begin(next) })
        }
        (None, Some(from), Some(to)) => Ok(TimeRange { from, to }),
        _ => bail!("--day, or --from and --to, is needed"),
    }
}

fn iso(at: DateTime<Utc>) -> String {
    Timestamp::from(at).iso8601()
}

/// Collects statements for a program.
struct JsonSink<'a> {
    decimals: &'a Decimals,
    range: TimeRange,
    statements: Vec<Value>,
}

impl Sink for JsonSink<'_> {
    fn line(&mut self, heading: Heading<'_>, line: Line<'_>) -> std::io::Result<()> {
        let Heading { account, asset } = heading;
        if let Line::Opening { balance } = line {
            self.statements.push(json!({
                "account": account, "asset": asset, "decimals": self.decimals.get(asset),
                "from": iso(self.range.from), "to": iso(self.range.to),
                "openingMinor": balance, "entries": [],
            }));
        }
        let Some(statement) = self.statements.last_mut().and_then(Value::as_object_mut) else {
            return Ok(());
        };
        match line {
            Line::Opening { .. } => {}
            Line::Entry(entry) => {
                if let Some(entries) = statement.get_mut("entries").and_then(Value::as_array_mut) {
                    entries.push(json!({
                        "recordedAt": iso(entry.recorded_at), "reference": entry.reference, "step": entry.step,
                        "reason": entry.reason, "amountMinor": entry.amount, "balanceMinor": entry.balance,
                    }));
                }
            }
            Line::Closing { balance, .. } => {
                statement.insert("closingMinor".into(), json!(balance));
            }
        }
        Ok(())
    }
}

/// Prints statements for a person, as they are read.
struct TextSink<'a> {
    decimals: &'a Decimals,
}

impl Sink for TextSink<'_> {
    fn line(&mut self, heading: Heading<'_>, line: Line<'_>) -> std::io::Result<()> {
        let Heading { account, asset } = heading;
        let mut out = std::io::stdout().lock();
        match line {
            Line::Opening { balance } => {
                let decimals = self.decimals.get(asset).map_or("?".to_owned(), u8::to_string);
                writeln!(out, "{account}  {asset}, minor units, {decimals} decimals")?;
                writeln!(out, "{:<24}  {:<14} {:<36} {:>22} {balance:>22}", "", "opening", "", "")
            }
            Line::Entry(entry) => {
                let (at, reason, reference) = (iso(entry.recorded_at), &entry.reason, &entry.reference);
                let (amount, balance) = (&entry.amount, &entry.balance);
                writeln!(out, "{at:<24}  {reason:<14} {reference:<36} {amount:>22} {balance:>22}")
            }
            Line::Closing { balance, entries } => {
                let count = if entries == 1 { "1 entry".to_owned() } else { format!("{entries} entries") };
                writeln!(out, "{:<24}  {:<14} {count:<36} {:>22} {balance:>22}", "", "closing", "")
            }
        }
    }
}

async fn fees(args: ReportFees) -> anyhow::Result<()> {
    let mut access = Access::open(&args.place).await?;
    let range = range(&args.range)?;
    let sums = statements::fees(&mut access.conn, range).await?;
    let decimals = access.decimals();
    if args.csv {
        csv::write_fees(std::io::stdout().lock(), &sums, &decimals)?;
        return Ok(());
    }
    let view = |sum: &FeeSum| {
        json!({"day": sum.day.to_string(), "asset": sum.asset, "decimals": decimals.get(&sum.asset),
               "reason": sum.reason, "earnedMinor": sum.earned, "absorbedMinor": sum.absorbed,
               "entries": sum.entries})
    };
    let views: Vec<Value> = sums.iter().map(view).collect();
    let value = json!({"from": iso(range.from), "to": iso(range.to), "fees": views});
    print(args.place.json, &value, || {
        let line = |sum: &FeeSum| {
            let FeeSum { day, asset, reason, earned, absorbed, .. } = sum;
            format!("{day}  {asset:<6} {reason:<14} earned {earned:>20}  absorbed {absorbed:>20}")
        };
        sums.iter().map(line).collect()
    })
}

async fn balances(args: ReportAt, is_exposure: bool) -> anyhow::Result<()> {
    let mut access = Access::open(&args.place).await?;
    let at = args.at.unwrap_or(DateTime::<Utc>::MAX_UTC);
    let found = if is_exposure {
        statements::exposure(&mut access.conn, at).await?
    } else {
        statements::balances(&mut access.conn, at).await?
    };
    let decimals = access.decimals();
    if args.csv {
        csv::write_balances(std::io::stdout().lock(), &found, &decimals)?;
        return Ok(());
    }
    let name = |one: &BalanceAt| account_name(&one.owner_kind, &one.owner, &one.part);
    let view = |one: &BalanceAt| {
        json!({"account": name(one), "asset": one.asset, "decimals": decimals.get(&one.asset),
               "balanceMinor": one.amount, "accounts": one.accounts})
    };
    let views: Vec<Value> = found.iter().map(view).collect();
    let value = json!({"at": args.at.map(iso), "balances": views});
    print(args.place.json, &value, || {
        found.iter().map(|one| format!("{:<6} {:<40} {:>28}", one.asset, name(one), one.amount)).collect()
    })
}

//! `dvp bank …`: alarms about a bank's payments and files.

use std::path::PathBuf;

use anyhow::Context as _;
use chrono::{DateTime, Utc};
use clap::{Args, Subcommand};
use dvp_domain::time::Timestamp;
use dvp_rails::iso20022::folder::Folder;
use dvp_rails::iso20022::outage::stamp;
use dvp_store::orders::bank::{self, BankAlarm};
use dvp_store::orders::bank_folder::{self, Outage};
use dvp_store::orders::bank_parts::{self, FilePart};
use serde_json::{Value, json};

use crate::access::{Access, ServiceLocation, account};
use crate::cli::PlaceArgs;
use crate::output::{print, print_list};

#[derive(Debug, Subcommand)]
pub(crate) enum BankCommand {
    /// List open alarms about the bank's payments and files, the oldest first.
    #[command(after_help = "Example:\n  dvp bank alarms --config dvp.toml --json")]
    Alarms(BankAlarms),
    /// Show a file of the bank, and its parts that do not count with what was decided about each.
    #[command(after_help = "Example:\n  dvp bank parts --file 9f86… --config dvp.toml")]
    Parts(BankParts),
    /// The folder that is shared with the bank.
    #[command(subcommand)]
    Folder(BankFolderCommand),
}

#[derive(Debug, Subcommand)]
pub(crate) enum BankFolderCommand {
    /// Make a folder the bank's: it gets an id, without which no payment is written into it. The folder must be there.
    #[command(after_help = "Example:\n  dvp bank folder stamp --config dvp.toml")]
    Stamp(BankFolderStamp),
    /// Show whether the folder carries its id, seen from here, and which processes cannot use it.
    #[command(after_help = "Example:\n  dvp bank folder show --config dvp.toml")]
    Show(PlaceArgs),
}

#[derive(Debug, Args)]
pub(crate) struct BankFolderStamp {
    /// Take it in place of the folder that was stamped before, or although it carries an id already.
    #[arg(long)]
    pub replace: bool,
    #[command(flatten)]
    pub place: PlaceArgs,
}

#[derive(Debug, Args)]
pub(crate) struct BankAlarms {
    /// So many at most.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub limit: u32,
    #[command(flatten)]
    pub place: PlaceArgs,
}

#[derive(Debug, Args)]
pub(crate) struct BankParts {
    /// Its SHA-256, as `dvp bank alarms` lists it.
    #[arg(long, value_name = "SHA256")]
    pub file: String,
    #[command(flatten)]
    pub place: PlaceArgs,
}

pub(crate) async fn run(command: BankCommand) -> anyhow::Result<()> {
    match command {
        BankCommand::Alarms(args) => alarms(args).await,
        BankCommand::Parts(args) => parts(args).await,
        BankCommand::Folder(BankFolderCommand::Stamp(args)) => stamp_folder(args).await,
        BankCommand::Folder(BankFolderCommand::Show(place)) => show_folder(&place).await,
    }
}

fn folder(place: &PlaceArgs) -> anyhow::Result<PathBuf> {
    Ok(match ServiceLocation::find(place.dir.as_deref(), place.config.as_deref())? {
        ServiceLocation::Sandbox { dir, .. } => dir.join("bank"),
        ServiceLocation::Configured(config) => {
            config.bank.as_ref().context("the configuration has no section [bank]")?.folder.clone()
        }
    })
}

async fn stamp_folder(args: BankFolderStamp) -> anyhow::Result<()> {
    let BankFolderStamp { replace, place } = args;
    let root = folder(&place)?;
    let mut access = Access::open(&place).await?;
    let id = stamp(&mut access.conn, &root, &account(), replace).await?;
    let path = root.display().to_string();
    print(place.json, &json!({"folder": path, "id": id.to_string()}), || {
        vec![format!("{path} is the bank's folder {id}")]
    })
}

async fn show_folder(place: &PlaceArgs) -> anyhow::Result<()> {
    let root = folder(place)?;
    let mut access = Access::open(place).await?;
    let expected = bank_folder::find_id(&mut access.conn).await?;
    let trouble = Folder::at(&root, expected).verify().await.err().map(|error| error.to_string());
    let outages = bank_folder::list_outages(&mut access.conn).await?;
    let since = |one: &Outage| Timestamp::from(one.since).iso8601();
    let views: Vec<Value> = outages
        .iter()
        .map(|one| json!({"process": one.process.to_string(), "cause": one.cause, "since": since(one)}))
        .collect();
    let path = root.display().to_string();
    let value = json!({"folder": path, "id": expected.map(|id| id.to_string()), "trouble": trouble, "outages": views});
    print(place.json, &value, || {
        let first = trouble.clone().unwrap_or_else(|| format!("{path} carries its id"));
        let line = |one: &Outage| format!("{}  process {}: {}", since(one), one.process, one.cause);
        [first].into_iter().chain(outages.iter().map(line)).collect()
    })
}

async fn alarms(args: BankAlarms) -> anyhow::Result<()> {
    let mut access = Access::open(&args.place).await?;
    let found = bank::list_alarms(&mut access.conn, i64::from(args.limit)).await?;
    let at = |one: &BankAlarm| Timestamp::from(one.raised_at).iso8601();
    let view = |one: &BankAlarm| {
        json!({"subject": one.subject, "about": one.about, "name": one.name, "alarm": one.alarm,
               "raisedAt": at(one)})
    };
    let line = |one: &BankAlarm| {
        format!("{}  {:<8} {}  {}: {}", at(one), one.about, one.subject, one.name, one.alarm)
    };
    print_list(args.place.json, "alarms", &found, view, line)
}

async fn parts(args: BankParts) -> anyhow::Result<()> {
    let mut access = Access::open(&args.place).await?;
    let digest = hex::decode(&args.file).context("--file is a SHA-256 in hexadecimal")?;
    let file = bank_parts::find_file(&mut access.conn, &digest).await?;
    let file = file.with_context(|| format!("there is no file of the bank {}", args.file))?;
    let parts = bank_parts::list(&mut access.conn, &digest).await?;
    let text = |part: &FilePart| file.content.as_deref().and_then(|content| part.text_in(content));
    let time = |at: DateTime<Utc>| Timestamp::from(at).iso8601();
    let views: Vec<Value> = parts
        .iter()
        .map(|part| {
            json!({"number": part.number, "why": part.why, "text": text(part), "decision": part.decision,
                   "execution": part.execution, "decidedAt": part.decided_at.map(time)})
        })
        .collect();
    let value = json!({"file": args.file, "name": file.name, "message": file.message, "takenAt": time(file.taken_at),
                       "unknownPayments": file.unknown, "parts": views});
    print(args.place.json, &value, || {
        let line = |part: &FilePart| {
            let decision = part.decision.as_deref().unwrap_or("open");
            let text = text(part).map(|text| format!("\n{text}")).unwrap_or_default();
            format!("{}  {decision}  {}{text}", part.number, part.why)
        };
        let first = format!("{}  {}", file.name, file.message.as_deref().unwrap_or("-"));
        [first].into_iter().chain(parts.iter().map(line)).collect()
    })
}

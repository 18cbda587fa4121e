//! `dvp audit …`: the log of operators' actions, in a chain of hashes.

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Args, Subcommand};
use dvp_core::workflow::audit::{AuditError, anchor, verify};
use dvp_store::operators::audit::{self, AuditEntry};
use dvp_store::reconcile::snapshot;
use serde_json::{Value, json};

use crate::access::{Access, ServiceLocation};
use crate::chains;
use crate::cli::PlaceArgs;
use crate::output::{print, print_list};

#[derive(Debug, Subcommand)]
pub(crate) enum AuditCommand {
    /// Check every entry of the log against the hash before it, and the heads that were anchored.
    ///
    /// Exit code 1 when an entry was changed, added or taken out.
    #[command(after_help = "Example:\n  dvp audit verify --dir .dvp --json")]
    Verify(PlaceArgs),
    /// List entries, oldest first.
    #[command(after_help = "Example:\n  dvp audit list --after 1200 --limit 50 --dir .dvp --json")]
    List(AuditList),
    /// Print every entry with its hashes, a JSON object a line, so that the log can be checked elsewhere.
    #[command(after_help = "Example:\n  dvp audit export --dir .dvp > audit.jsonl")]
    Export(PlaceArgs),
    /// Hand today's head to the relayer to be anchored now. The service does it once a day by itself.
    #[command(after_help = "Example:\n  dvp audit anchor --chain-id 31337 --dir .dvp")]
    Anchor(AuditAnchor),
}

#[derive(Debug, Args)]
pub(crate) struct AuditList {
    /// After this entry.
    #[arg(long, default_value_t = 0)]
    pub after: i64,
    /// How many at most.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(i64).range(1..=10_000))]
    pub limit: i64,
    #[command(flatten)]
    pub place: PlaceArgs,
}

#[derive(Debug, Args)]
pub(crate) struct AuditAnchor {
    /// The chain whose relayer anchors it.
    #[arg(long)]
    pub chain_id: i64,
    #[command(flatten)]
    pub place: PlaceArgs,
}

const PAGE: i64 = 1_000;

pub(crate) async fn run(command: AuditCommand) -> anyhow::Result<ExitCode> {
    match command {
        AuditCommand::Verify(place) => return check(place).await,
        AuditCommand::List(args) => list(args).await?,
        AuditCommand::Export(place) => export(place).await?,
        AuditCommand::Anchor(args) => anchor_now(args).await?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn check(place: PlaceArgs) -> anyhow::Result<ExitCode> {
    let pool = ServiceLocation::find(place.dir.as_deref(), place.config.as_deref())?.pool(1).await?;
    let mut tx = snapshot(&pool).await?;
    let verified = match verify(&mut tx).await {
        Ok(verified) => verified,
        Err(AuditError::Store(error)) => return Err(error.into()),
        Err(why) => {
            let value = json!({"ok": false, "why": why.to_string()});
            print(place.json, &value, || vec![format!("the audit log is not what was written: {why}")])?;
            return Ok(ExitCode::FAILURE);
        }
    };
    let head = format!("0x{}", hex::encode(verified.head));
    let last = verified.last_anchor.as_ref().map(|one| {
        json!({"entry": one.seq, "hash": format!("0x{}", hex::encode(&one.hash)), "chainId": one.chain_id,
               "txHash": one.tx_hash, "anchoredAt": one.anchored_at})
    });
    let value = json!({"ok": true, "entries": verified.entries, "erased": verified.erased, "head": head, "anchored": verified.anchored,
                       "lastAnchor": last});
    print(place.json, &value, || {
        let anchored = verified.last_anchor.as_ref().map(|one| {
            format!("anchored up to entry {} by {}", one.seq, one.tx_hash.as_deref().unwrap_or_default())
        });
        let entries = format!("{} entries hold together; the head is {head}", verified.entries);
        let erased = (verified.erased > 0).then(|| {
            format!("personal data was erased from {} of them, each named by a later entry", verified.erased)
        });
        [Some(entries), erased, anchored].into_iter().flatten().collect()
    })?;
    Ok(ExitCode::SUCCESS)
}

fn view(row: &AuditEntry) -> Value {
    let entry: Value = serde_json::from_str(&row.entry).unwrap_or_default();
    json!({"entry": row.seq, "at": row.at, "source": row.source, "row": entry, "hash": hex::encode(&row.hash)})
}

async fn list(args: AuditList) -> anyhow::Result<()> {
    let mut access = Access::open(&args.place).await?;
    let found = audit::list(&mut access.conn, args.after, args.limit).await?;
    let line =
        |row: &AuditEntry| format!("{}  {}  {}  {}", row.seq, row.at.to_rfc3339(), row.source, row.entry);
    print_list(args.place.json, "entries", &found, view, line)
}

async fn export(place: PlaceArgs) -> anyhow::Result<()> {
    let mut access = Access::open(&place).await?;
    let mut out = std::io::stdout().lock();
    let mut after = 0;
    loop {
        let page = audit::list(&mut access.conn, after, PAGE).await?;
        let Some(last) = page.last() else { return Ok(()) };
        after = last.seq;
        for row in &page {
            let line = json!({"entry": row.seq, "covered": row.covered, "previous": hex::encode(&row.previous),
                              "hash": hex::encode(&row.hash), "erased": row.is_erased});
            writeln!(out, "{line}")?;
        }
    }
}

async fn anchor_now(args: AuditAnchor) -> anyhow::Result<()> {
    let place = ServiceLocation::find(args.place.dir.as_deref(), args.place.config.as_deref())?;
    let chains = chains::all(&place)?;
    let chain = chains.iter().find(|chain| chain.chain_id.cast_signed() == args.chain_id);
    let chain = chain.with_context(|| format!("the service has no chain {}", args.chain_id))?;
    let escrow = chain.deployment.escrow.to_string();
    let anchored = anchor(&mut place.connect().await?, args.chain_id, &escrow).await?;
    let head = anchored
        .as_ref()
        .map(|one| json!({"entry": one.seq, "hash": format!("0x{}", hex::encode(&one.hash))}));
    print(args.place.json, &json!({"handedOver": head}), || {
        vec![anchored.as_ref().map_or_else(
            || "today's head was handed over already".to_owned(),
            |one| format!("entry {} is handed over to be anchored", one.seq),
        )]
    })
}

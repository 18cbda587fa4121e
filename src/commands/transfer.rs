//! `dvp transfer …`: funds that go to another cell, or come from one.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail};
use dvp_core::approvals::{ApprovalError, approve, deny};
use dvp_core::requests::Maker;
use dvp_core::transfers::keys::CellKeys;
use dvp_core::transfers::{self, Draft, RequestedTransfer, TRANSFER, TransferError};
use dvp_domain::ids::TransferId;
use dvp_domain::reconcile::transfers::KnownTransfer;
use dvp_domain::transfer::TransferState;
use dvp_domain::transfer::compare::{Compared, TransferDifference};
use dvp_store::approvals::{self, Approval};
use dvp_store::transfers::{KeptTransfer, TransferFilter, find, list as list_transfers};
use serde_json::{Value, json};

use super::{approval, ledger};
use crate::access::{Access, ServiceLocation};
use crate::cli::{
    PlaceArgs, TransferApprove, TransferCommand, TransferCompare, TransferConfirm, TransferDocument,
    TransferExport, TransferList, TransferReject, TransferRequest, TransferShow, TransferWhy,
};
use crate::output::print;

pub(crate) async fn run(command: TransferCommand) -> anyhow::Result<ExitCode> {
    match command {
        TransferCommand::Request(wanted) => make(wanted).await?,
        TransferCommand::Approve(args) => approve_one(args).await?,
        TransferCommand::Reject(args) => reject(args).await?,
        TransferCommand::Document(args) => document(args).await?,
        TransferCommand::Confirm(args) => confirm(args).await?,
        TransferCommand::List(args) => list(args).await?,
        TransferCommand::Show(args) => show(args).await?,
        TransferCommand::Export(args) => export(args).await?,
        TransferCommand::Compare(args) => return compare(args).await,
        TransferCommand::Key(place) => key(&place).await?,
    }
    Ok(ExitCode::SUCCESS)
}

/// This cell's database and keys.
struct Cell {
    access: Access,
    keys: CellKeys,
    /// How long a transfer may have no end.
    patience: Duration,
}

impl Cell {
    async fn open(place: &PlaceArgs) -> anyhow::Result<Self> {
        let access = Access::open(place).await?;
        let location = ServiceLocation::find(place.dir.as_deref(), place.config.as_deref())?;
        let ServiceLocation::Configured(config) = location else {
            bail!("a sandbox is no cell: give --config")
        };
        let section = config.cell.as_ref().context("the configuration has no section [cell]")?;
        let keys = section.keys(access.environment)?;
        Ok(Self { access, keys, patience: config.books_patience().transfer })
    }

    async fn load(&mut self, id: &TransferId) -> anyhow::Result<KeptTransfer> {
        let found = find(&mut self.access.conn, id).await?;
        found.ok_or_else(|| failed(TransferError::Unknown(id.clone())))
    }
}

/// An error with its code before it.
fn failed(error: TransferError) -> anyhow::Error {
    let code = error.code();
    anyhow::Error::new(error).context(code)
}

fn refused(error: ApprovalError) -> anyhow::Error {
    match error {
        ApprovalError::Transfer(error) => failed(error),
        other => other.into(),
    }
}

fn read(path: &Path) -> anyhow::Result<String> {
    fs::read_to_string(path).with_context(|| path.display().to_string())
}

/// Writes a document to a file, whole or not at all, or to standard output.
fn write(out: Option<&Path>, document: &str) -> anyhow::Result<()> {
    let Some(path) = out else {
        let mut out = std::io::stdout().lock();
        writeln!(out, "{document}")?;
        return Ok(out.flush()?);
    };
    let begun = path.with_extension("new");
    let written = || -> std::io::Result<()> {
        let mut file = fs::File::create(&begun)?;
        writeln!(file, "{document}")?;
        file.sync_all()?;
        fs::rename(&begun, path)
    };
    written().with_context(|| path.display().to_string())
}

async fn make(wanted: TransferRequest) -> anyhow::Result<()> {
    let why = match &wanted {
        TransferRequest::Send { why, .. }
        | TransferRequest::SendAgain { why, .. }
        | TransferRequest::Receive { why, .. }
        | TransferRequest::Refuse { why, .. }
        | TransferRequest::TakeBack { why, .. } => why,
    };
    let TransferWhy { operator, reason, evidence, place } = why;
    let maker = Maker { operator, reason, evidence };
    let mut cell = Cell::open(place).await?;
    let Cell { access, keys, .. } = &mut cell;
    let listed = access.listed();
    let requested = match &wanted {
        TransferRequest::Send { to, owner, asset, amount_minor, .. } => {
            let owner = ledger::owner(access, owner.provider.as_ref(), owner.partner.as_ref()).await?;
            let draft = Draft { to: *to, owner, asset: asset.clone(), amount: *amount_minor };
            transfers::request_send(&mut access.conn, keys, &draft, maker).await
        }
        TransferRequest::SendAgain { document, .. } => {
            transfers::request_send_again(&mut access.conn, keys, &read(document)?, maker).await
        }
        TransferRequest::Receive { document, .. } => {
            transfers::request_receive(&mut access.conn, keys, &listed, &read(document)?, maker).await
        }
        TransferRequest::Refuse { document, .. } => {
            transfers::request_refuse(&mut access.conn, keys, &read(document)?, maker).await
        }
        TransferRequest::TakeBack { refusal, .. } => {
            transfers::request_take_back(&mut access.conn, keys, &read(refusal)?, maker).await
        }
    };
    match requested.map_err(failed)? {
        RequestedTransfer::Pending { approval, repeated } => {
            let mut value = approval::view(&approval);
            if let Some(fields) = value.as_object_mut() {
                fields.insert("repeated".into(), json!(repeated));
            }
            print(place.json, &value, || {
                let next = format!(
                    "another operator carries it out: dvp transfer approve --id {}",
                    approval.subject
                );
                vec![approval::line(&approval), next]
            })
        }
        RequestedTransfer::Done(kept) => print(place.json, &view(&kept), || {
            vec![line(&kept), format!("done before: dvp transfer document --id {}", kept.known.id)]
        }),
    }
}

/// The newest request about a transfer.
async fn find_request(access: &mut Access, id: &TransferId) -> anyhow::Result<Approval> {
    let found = approvals::find_newest(&mut access.conn, TRANSFER, id.as_str()).await?;
    found.with_context(|| format!("there is no request about transfer {id}"))
}

async fn approve_one(args: TransferApprove) -> anyhow::Result<()> {
    let TransferApprove { id, operator, note, out, place } = args;
    let mut cell = Cell::open(&place).await?;
    let request = find_request(&mut cell.access, &id).await?;
    let approved = approve(&mut cell.access.conn, &request.id, &operator, &note).await.map_err(refused)?;
    // Committed: when what follows fails, `dvp transfer document` writes the same document.
    let kept = cell.load(&id).await?;
    let mut value = approval::view(&approved);
    let mut lines = vec![approval::line(&approved), line(&kept)];
    if kept.known.state != TransferState::TakenBack {
        let document =
            transfers::write_document(&mut cell.access.conn, &cell.keys, &id).await.map_err(failed)?;
        match &out {
            Some(path) => write(Some(path), &document)
                .with_context(|| format!("it is posted: dvp transfer document --id {id} writes it again"))?,
            None => {
                if let Some(fields) = value.as_object_mut() {
                    fields.insert("document".into(), serde_json::from_str(&document)?);
                }
                lines.push(document);
            }
        }
    }
    print(place.json, &value, || lines)
}

async fn reject(args: TransferReject) -> anyhow::Result<()> {
    let TransferReject { id, operator, reason, place } = args;
    let mut access = Access::open(&place).await?;
    let request = find_request(&mut access, &id).await?;
    let denied = deny(&mut access.conn, &request.id, &operator, &reason).await?;
    print(place.json, &approval::view(&denied), || vec![approval::line(&denied)])
}

async fn document(args: TransferDocument) -> anyhow::Result<()> {
    let mut cell = Cell::open(&args.place).await?;
    let document = transfers::write_document(&mut cell.access.conn, &cell.keys, &args.id).await;
    write(args.out.as_deref(), &document.map_err(failed)?)
}

async fn confirm(args: TransferConfirm) -> anyhow::Result<()> {
    let TransferConfirm { receipt, operator, place } = args;
    let mut cell = Cell::open(&place).await?;
    let confirmed = transfers::confirm(&mut cell.access.conn, &cell.keys, &read(&receipt)?, &operator).await;
    let kept = confirmed.map_err(failed)?;
    print(place.json, &view(&kept), || vec![line(&kept)])
}

async fn list(args: TransferList) -> anyhow::Result<()> {
    let TransferList { cell, open, after, limit, place } = args;
    let mut access = Access::open(&place).await?;
    let filter = TransferFilter { cell, is_open: open, after: after.as_ref(), limit };
    let found = list_transfers(&mut access.conn, &filter).await?;
    let all: Vec<Value> = found.iter().map(view).collect();
    print(place.json, &json!({"transfers": all}), || found.iter().map(line).collect())
}

async fn show(args: TransferShow) -> anyhow::Result<()> {
    let mut access = Access::open(&args.place).await?;
    let found = find(&mut access.conn, &args.id).await?;
    let kept = found.ok_or_else(|| failed(TransferError::Unknown(args.id.clone())))?;
    print(args.place.json, &view(&kept), || vec![line(&kept)])
}

async fn export(args: TransferExport) -> anyhow::Result<()> {
    let mut cell = Cell::open(&args.place).await?;
    let list = transfers::list_for(&mut cell.access.conn, &cell.keys, args.cell).await;
    write(args.out.as_deref(), &list.map_err(failed)?)
}

async fn compare(args: TransferCompare) -> anyhow::Result<ExitCode> {
    let mut cell = Cell::open(&args.place).await?;
    let patience_ms = i64::try_from(cell.patience.as_millis()).unwrap_or(i64::MAX);
    let list = read(&args.list)?;
    let compared = transfers::compare_with(&mut cell.access.conn, &cell.keys, &list, patience_ms).await;
    let (other, Compared { differences, agreed, in_transit }) = compared.map_err(failed)?;
    let value = json!({"cell": other, "differences": differences, "agreed": agreed, "inTransit": in_transit});
    print(args.place.json, &value, || {
        let mut lines: Vec<String> = differences.iter().map(difference).collect();
        lines.push(format!(
            "cell {other}: {} differences, {agreed} transfers agree, {in_transit} are in transit",
            differences.len()
        ));
        lines
    })?;
    Ok(if differences.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn difference(found: &TransferDifference) -> String {
    let side = |listed: &Option<dvp_domain::transfer::message::Listed>| {
        listed.as_ref().map_or_else(
            || "unknown".to_owned(),
            |one| format!("{} {} of {} for {}", one.state.as_str(), one.amount_minor, one.asset, one.owner),
        )
    };
    format!(
        "{:<16} {}  here: {}, there: {}",
        found.kind.as_str(),
        found.id,
        side(&found.here),
        side(&found.there)
    )
}

async fn key(place: &PlaceArgs) -> anyhow::Result<()> {
    let keys = Cell::open(place).await?.keys;
    let (cell, key) = (keys.cell, keys.public_key().to_string());
    print(place.json, &json!({"cell": cell, "publicKey": key}), || vec![key.clone()])
}

fn view(kept: &KeptTransfer) -> Value {
    let KeptTransfer { known, sent_at, .. } = kept;
    let KnownTransfer { id, cell, owner, asset, amount, state, since } = known;
    let mut value = json!({
        "id": id, "direction": state.direction(), "cell": cell, "asset": asset, "amountMinor": amount, "state": state,
        "sentAt": sent_at.to_rfc3339(), "since": since.iso8601(),
    });
    // As in the signed documents: `provider`, or `partner`.
    if let (Some(fields), Ok(Value::Object(owner))) = (value.as_object_mut(), serde_json::to_value(owner)) {
        fields.extend(owner);
    }
    value
}

fn line(kept: &KeptTransfer) -> String {
    let KnownTransfer { id, cell, owner, asset, amount, state, since } = &kept.known;
    let (direction, state, since) = (state.direction().as_str(), state.as_str(), since.iso8601());
    format!("{id}  {direction:<3} {cell}  {state:<10} {since}  {owner}  {asset} {amount}")
}

//! `dvp receipt verify`: the amounts are computed from each other, and the hash from the receipt and looked up on the
//! chain, not believed.

use std::io::Read;
use std::path::Path;
use std::process::ExitCode;

use alloy::primitives::{Address, B256};
use anyhow::{Context as _, bail};
use dvp_chain_indexer::anchors::find_anchor;
use dvp_domain::receipt;
use dvp_store::orders::receipts;
use serde_json::{Value, json};

use crate::access::ServiceLocation;
use crate::cli::{ReceiptCommand, ReceiptVerify};
use crate::output::print;
use crate::sandbox_dir::{self, text};

/// A receipt has a few hundred bytes.
const RECEIPT_BYTES_MAX: u64 = 1 << 20;

pub(crate) async fn run(command: ReceiptCommand) -> anyhow::Result<ExitCode> {
    match command {
        ReceiptCommand::Verify(args) => verify(args).await,
    }
}

async fn verify(args: ReceiptVerify) -> anyhow::Result<ExitCode> {
    let place = match (&args.dir, &args.config) {
        (None, None) => None,
        (dir, config) => Some(ServiceLocation::find(dir.as_deref(), config.as_deref())?),
    };
    let body = match (&args.file, &args.reference) {
        (Some(path), _) => from_file(path)?,
        (None, Some(reference)) => from_database(place.as_ref(), reference).await?,
        (None, None) => bail!("give --file or --reference"),
    };
    // Of an erased receipt the hash cannot be computed: what it states is looked up, and it is not called verified.
    let erased = receipt::erased(&body).map(|erased| erased.fields);
    let hash = receipt::anchored_hash(&body);
    let fault = receipt::check(&body).err().map(|fault| fault.to_string());
    let anchor = look_up(&args, place.as_ref(), &body, &hash).await?;
    let verified = anchor.is_some() && fault.is_none() && erased.is_none();
    let value = json!({
        "verified": verified, "contentHash": hash, "anchor": anchor, "arithmetic": fault.as_deref().unwrap_or("adds up"),
        "erased": erased,
    });
    print(args.json, &value, || {
        let mut lines = match &anchor {
            Some(_) if let Some(fields) = &erased => vec![format!(
                "NOT verified: {} was erased from this copy; the hash it states, {hash}, is anchored. A copy from before \
                 verifies, and so does this one with the field put back and \"erased\" removed",
                fields.join(", ")
            )],
            Some(anchor) if verified => vec![
                format!("verified: {hash}"),
                format!("anchored in transaction {}", anchor["txHash"].as_str().unwrap_or_default()),
            ],
            Some(_) => vec![format!("NOT verified: {hash} is anchored, but the receipt does not add up")],
            None => vec![format!("NOT verified: no anchor has the hash {hash}")],
        };
        lines.extend(fault);
        lines
    })?;
    Ok(if verified { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn from_file(path: &Path) -> anyhow::Result<Value> {
    let mut bytes = Vec::new();
    if path == Path::new("-") {
        std::io::stdin().lock().take(RECEIPT_BYTES_MAX).read_to_end(&mut bytes)?;
    } else {
        let file = std::fs::File::open(path).with_context(|| path.display().to_string())?;
        file.take(RECEIPT_BYTES_MAX).read_to_end(&mut bytes)?;
    }
    parse(&bytes)
}

async fn from_database(place: Option<&ServiceLocation>, reference: &str) -> anyhow::Result<Value> {
    let place = place.context("--reference needs --dir or --config")?;
    let mut conn = place.connect().await?;
    let body = receipts::find_body(&mut conn, reference).await?;
    parse(body.with_context(|| format!("there is no receipt of {reference}"))?.as_bytes())
}

fn parse(bytes: &[u8]) -> anyhow::Result<Value> {
    let body: Value = serde_json::from_slice(bytes).context("the receipt is not JSON")?;
    if body.is_object() { Ok(body) } else { bail!("the receipt is not a JSON object") }
}

/// Queries a node when one is configured, else the indexer's tables.
async fn look_up(
    args: &ReceiptVerify,
    place: Option<&ServiceLocation>,
    body: &Value,
    hash: &str,
) -> anyhow::Result<Option<Value>> {
    let hash: B256 = hash.parse()?;
    let nodes = match (&args.rpc_url, &args.anchor, place) {
        (Some(url), Some(anchor), _) => vec![(url.clone(), anchor.clone())],
        // A receipt before its finality does not say which chain it is anchored on.
        (_, _, Some(ServiceLocation::Sandbox { ready, .. })) => sandbox_dir::chains(ready)
            .iter()
            .map(|chain| Ok((text(chain, "/rpcUrl")?.into(), text(chain, "/contracts/anchor")?.into())))
            .collect::<anyhow::Result<_>>()?,
        (_, _, Some(place)) => return in_index(place, hash).await,
        (_, _, None) => bail!("give --rpc-url and --anchor, or --dir, or --config"),
    };
    for (url, anchor) in nodes {
        if let Some(seen) = on_chain(&url, &anchor, hash, body).await? {
            return Ok(Some(seen));
        }
    }
    Ok(None)
}

async fn on_chain(url: &str, anchor: &str, hash: B256, body: &Value) -> anyhow::Result<Option<Value>> {
    let contract: Address = anchor.parse().context("the anchor contract's address")?;
    let tx = body.get("txHash").and_then(Value::as_str);
    let tx: Option<B256> = tx.map(str::parse).transpose().context("the receipt's txHash")?;
    let seen = find_anchor(url, contract, hash, tx).await.context("the node does not answer")?;
    Ok(seen.map(|seen| {
        json!({
            "source": "node", "chainId": seen.chain_id, "contractAddress": seen.contract.to_string(),
            "submitter": seen.submitter.to_string(), "txHash": seen.tx_hash.to_string(),
            "blockNumber": seen.block_number,
        })
    }))
}

async fn in_index(place: &ServiceLocation, hash: B256) -> anyhow::Result<Option<Value>> {
    let mut conn = place.connect().await?;
    let seen = receipts::find_anchor(&mut conn, hash.as_slice()).await?;
    Ok(seen.map(|seen| {
        json!({
            "source": "indexer", "chainId": seen.chain_id,
            "contractAddress": format!("0x{}", hex::encode(seen.contract)),
            "txHash": format!("0x{}", hex::encode(seen.tx_hash)), "blockNumber": seen.block_number,
        })
    }))
}

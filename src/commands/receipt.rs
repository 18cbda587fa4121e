//! `dvp receipt verify`: the amounts are computed from each other, and the hash from the receipt and looked up on the
//! chain, not believed. An anchor counts when it is final and one of the service's accounts submitted it.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use alloy::primitives::{Address, B256};
use anyhow::{Context as _, bail};
use clap::{ArgGroup, Args, Subcommand};
use dvp_chain_indexer::anchors::find_anchors;
use dvp_domain::receipt;
use dvp_store::chain::list_signers;
use dvp_store::orders::receipts;
use serde_json::{Value, json};

use crate::access::ServiceLocation;
use crate::chains;
use crate::output::print;

#[derive(Debug, Subcommand)]
pub(crate) enum ReceiptCommand {
    /// Compute a receipt's content hash and compare it with the anchor on the chain.
    ///
    /// Asks the node of DIR or of --rpc-url; with --config the blocks the indexer has read. A receipt in a file
    /// needs nothing of ours but the addresses of the anchor contract and of the accounts that submit anchors, which
    /// GET /v1/chains lists. Exit code 1 when no final anchor of these accounts has this hash.
    #[command(
        after_help = "Example:\n  dvp receipt verify --file receipt.json --rpc-url http://127.0.0.1:8545 --anchor 0x… --submitter 0x…\n  dvp receipt verify --reference exe_… --dir .dvp --json"
    )]
    Verify(ReceiptVerify),
}

#[derive(Debug, Args)]
#[command(group(ArgGroup::new("what").required(true).args(["file", "reference"])))]
pub(crate) struct ReceiptVerify {
    /// The receipt as it was answered, `-` for standard input.
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// The execution's id; its receipt is read from the service's database.
    #[arg(long, value_name = "REFERENCE")]
    pub reference: Option<String>,
    /// A node of the chain.
    #[arg(long, value_name = "URL", requires_all = ["anchor", "submitter"])]
    pub rpc_url: Option<String>,
    /// The anchor contract you trust.
    #[arg(long, value_name = "ADDRESS", requires = "rpc_url")]
    pub anchor: Option<String>,
    /// An account whose anchors you trust. Repeat it for each: anybody can anchor a forged receipt.
    #[arg(long, value_name = "ADDRESS", requires = "rpc_url")]
    pub submitter: Vec<String>,
    /// Blocks this far below the newest one are final, on a chain whose nodes know no finalized block.
    #[arg(long, value_name = "BLOCKS", requires = "rpc_url")]
    pub finality_depth: Option<u64>,
    /// The directory of a running sandbox.
    #[arg(long, value_name = "DIR", conflicts_with = "config")]
    pub dir: Option<PathBuf>,
    /// The service's configuration.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

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
    let Anchors { ours: anchor, strangers } = anchor;
    let is_final = anchor.as_ref().is_some_and(|anchor| anchor["final"] == true);
    let verified = is_final && fault.is_none() && erased.is_none();
    let value = json!({
        "verified": verified, "contentHash": hash, "anchor": anchor, "arithmetic": fault.as_deref().unwrap_or("adds up"),
        "erased": erased, "strangers": strangers,
    });
    print(args.json, &value, || {
        let mut lines = match &anchor {
            Some(_) if let Some(fields) = &erased => vec![format!(
                "NOT verified: the receipt's body was erased on request ({}); the hash {hash} and its anchor stand. A \
                 copy from before verifies, and so does this one with the field and the version put back and \
                 \"erased\" removed",
                fields.join(", ")
            )],
            Some(anchor) if verified => vec![
                format!("verified: {hash}"),
                format!("anchored in transaction {}", anchor["txHash"].as_str().unwrap_or_default()),
            ],
            Some(_) if !is_final => {
                vec![format!(
                    "NOT verified: {hash} is anchored in a block that is not final yet; try again later"
                )]
            }
            Some(_) => vec![format!("NOT verified: {hash} is anchored, but the receipt does not add up")],
            None if !strangers.is_empty() => vec![format!(
                "NOT verified: {hash} is anchored by {} only, which is no account of the service",
                strangers.join(", ")
            )],
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

/// The anchors of a hash.
#[derive(Default)]
struct Anchors {
    /// The first one by an account of the service.
    ours: Option<Value>,
    /// The other accounts that have anchored it.
    strangers: Vec<String>,
}

/// A node with the anchor contract of its chain, and the accounts whose anchors count.
struct Node {
    url: String,
    anchor: String,
    submitters: Vec<Address>,
    depth: Option<u64>,
}

/// Queries a node when one is configured, else the indexer's tables.
async fn look_up(
    args: &ReceiptVerify,
    place: Option<&ServiceLocation>,
    body: &Value,
    hash: &str,
) -> anyhow::Result<Anchors> {
    let hash: B256 = hash.parse()?;
    let nodes = match (&args.rpc_url, &args.anchor, place) {
        (Some(url), Some(anchor), _) => {
            let submitters = args.submitter.iter().map(|text| text.parse().context("a submitter's address"));
            let submitters = submitters.collect::<anyhow::Result<_>>()?;
            vec![Node { url: url.clone(), anchor: anchor.clone(), submitters, depth: args.finality_depth }]
        }
        (_, _, Some(place @ ServiceLocation::Sandbox { .. })) => of_sandbox(place).await?,
        (_, _, Some(place)) => return in_index(place, hash).await,
        (_, _, None) => bail!("give --rpc-url, --anchor and --submitter, or --dir, or --config"),
    };
    // A receipt before its finality does not say which chain it is anchored on.
    let mut strangers = Vec::new();
    for node in nodes {
        let seen = on_chain(&node, hash, body).await?;
        if seen.ours.is_some() {
            return Ok(seen);
        }
        strangers.extend(seen.strangers);
    }
    Ok(Anchors { ours: None, strangers })
}

async fn of_sandbox(place: &ServiceLocation) -> anyhow::Result<Vec<Node>> {
    let mut conn = place.connect().await?;
    let mut nodes = Vec::new();
    for chain in chains::all(place)? {
        let submitters = list_signers(&mut conn, chain.chain_id).await?;
        nodes.extend(chain.deployment.sets().map(|set| Node {
            url: chain.rpc_url.clone(),
            anchor: set.anchor.to_string(),
            submitters: submitters.clone(),
            depth: None,
        }));
    }
    Ok(nodes)
}

async fn on_chain(node: &Node, hash: B256, body: &Value) -> anyhow::Result<Anchors> {
    let contract: Address = node.anchor.parse().context("the anchor contract's address")?;
    let tx = body.get("txHash").and_then(Value::as_str);
    let tx: Option<B256> = tx.map(str::parse).transpose().context("the receipt's txHash")?;
    let seen = find_anchors(&node.url, contract, hash, tx, node.depth).await;
    let seen = seen.context("the node does not answer")?;
    let ours = seen.iter().find(|seen| node.submitters.contains(&seen.submitter)).map(|seen| {
        json!({
            "source": "node", "chainId": seen.chain_id, "contractAddress": seen.contract.to_string(),
            "submitter": seen.submitter.to_string(), "txHash": seen.tx_hash.to_string(),
            "blockNumber": seen.block_number, "final": seen.is_final,
        })
    });
    let strangers = seen.iter().filter(|seen| !node.submitters.contains(&seen.submitter));
    Ok(Anchors { ours, strangers: strangers.map(|seen| seen.submitter.to_string()).collect() })
}

async fn in_index(place: &ServiceLocation, hash: B256) -> anyhow::Result<Anchors> {
    let mut conn = place.connect().await?;
    let seen = receipts::find_anchor(&mut conn, hash.as_slice()).await?;
    let ours = seen.map(|seen| {
        json!({
            "source": "indexer", "chainId": seen.chain_id,
            "contractAddress": format!("0x{}", hex::encode(seen.contract)),
            "txHash": format!("0x{}", hex::encode(seen.tx_hash)), "blockNumber": seen.block_number,
            "final": seen.is_final,
        })
    });
    Ok(Anchors { ours, ..Anchors::default() })
}

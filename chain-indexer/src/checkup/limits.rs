//! What each endpoint is, what it limits and what it leaves out, with the setting that follows from it.

use alloy::eips::BlockId;
use alloy::primitives::Address;
use alloy::providers::{DynProvider, Provider};
use alloy::rpc::types::Filter;
use alloy::transports::{RpcError, TransportError};
use dvp_domain::text::{TEXT_MAX, clean};
use futures_util::future::join_all;
use serde_json::{Value, json};

use super::{Defect, Finding};
use crate::ChainConfig;
use crate::gate::Wait;
use crate::reader::{Fault, classify};
use crate::rpc::{self, BlockHead};

/// As many as are ever sent together.
const CALLS: usize = 100;
/// As long as any range that is read.
const RANGE: u64 = 2_000;

/// A finding for each endpoint that answers.
pub async fn probe(config: &ChainConfig) -> Vec<Finding> {
    let urls: Vec<&str> = config.rpc_urls().collect();
    let probed = join_all(urls.iter().map(|url| probe_one(url, config))).await;
    let subject = |n: usize| format!("endpoint {} of {}", n + 1, urls.len());
    let found = probed.into_iter().enumerate();
    let found = found.map(|(n, found)| Finding { about: "endpoint limits", found }.of(&subject(n)));
    found.collect()
}

async fn probe_one(url: &str, config: &ChainConfig) -> Result<String, Defect> {
    let provider = &rpc::connect(url)?;
    let head = &rpc::head(provider).await?;
    let (client, calls, range, tags, form, fees, receipts) = tokio::join!(
        client(provider),
        rpc::calls_taken(url, CALLS),
        range(provider, config, head),
        tags(provider, config),
        form_of_hashes(provider, head),
        rpc::fee_history(provider, 1),
        provider.raw_request::<_, Value>("eth_getBlockReceipts".into(), (head.hash,)),
    );
    let said = [
        client,
        format!("chain {}", config.chain_id),
        format!("{} of {CALLS} calls as one request", calls?),
        format!("logs of {} blocks at once", range?),
        tags?,
        form?.to_owned(),
        match is_answered(&fees)? {
            true => "a history of fees".to_owned(),
            false => "no history of fees: the relayer's tip is tip_floor_wei".to_owned(),
        },
        match is_answered(&receipts)? {
            true => "receipts of blocks".to_owned(),
            false => "no receipts of blocks: events are proven by the contracts' counts alone".to_owned(),
        },
    ];
    Ok(said.join("; "))
}

/// Whether it was answered; an endpoint may say that it does not do that.
fn is_answered<T>(answer: &Result<T, TransportError>) -> Result<bool, Defect> {
    match answer {
        Ok(_) => Ok(true),
        Err(RpcError::ErrorResp(_)) => Ok(false),
        Err(error) => Err(Defect::Unanswered(rpc::told(error))),
    }
}

async fn client(provider: &DynProvider) -> String {
    match provider.get_client_version().await {
        Ok(version) => clean(&version, TEXT_MAX),
        Err(_) => "a client that does not name itself".to_owned(),
    }
}

/// The longest range of newest blocks whose logs it gives, as far as refusals and their hints tell.
async fn range(provider: &DynProvider, config: &ChainConfig, head: &BlockHead) -> Result<u64, Defect> {
    let contracts: Vec<Address> = config.deployment.numbered();
    let mut blocks = RANGE;
    loop {
        let from = head.number.saturating_sub(blocks - 1);
        let filter = Filter::new().address(contracts.clone()).from_block(from.0).to_block(head.number.0);
        let Err(error) = provider.get_logs(&filter).await else { return Ok(blocks) };
        match classify(&error) {
            Fault::Range { hint } if blocks > 1 => {
                blocks = hint.filter(|hint| *hint < blocks).unwrap_or(blocks / 2).max(1);
            }
            _ => {
                return Err(Defect::Lack(format!(
                    "it has no logs of the newest blocks: {}",
                    rpc::told(&error)
                )));
            }
        }
    }
}

/// Its `finalized` and `safe` blocks.
async fn tags(provider: &DynProvider, config: &ChainConfig) -> Result<String, Defect> {
    let has = async |id: BlockId| match rpc::block(provider, id).await {
        Ok(block) => Ok(block.is_some()),
        Err(RpcError::ErrorResp(_)) => Ok(false),
        Err(error) => Err(Defect::Unanswered(rpc::told(&error))),
    };
    let (has_final, has_safe) = tokio::join!(has(BlockId::finalized()), has(BlockId::safe()));
    let (has_final, has_safe) = (has_final?, has_safe?);
    if !has_safe && config.payout_gate.waits_for(Wait::Safe) {
        let said =
            "it has no `safe` block, for which payout_gate waits: use \"finalized\" or a number of blocks";
        return Err(Defect::Lack(said.to_owned()));
    }
    let finality = match (has_final, config.finality_depth) {
        (true, _) => "`finalized`".to_owned(),
        (false, Some(depth)) => format!("no `finalized` block: final {depth} blocks below the newest"),
        (false, None) => {
            let said = "it has no `finalized` block: set finality_depth to what the chain never takes back";
            return Err(Defect::Lack(said.to_owned()));
        }
    };
    Ok(format!("{finality}, {}", if has_safe { "`safe`" } else { "no `safe` block" }))
}

/// How a call names a block by its hash.
async fn form_of_hashes(provider: &DynProvider, head: &BlockHead) -> Result<&'static str, Defect> {
    let takes = async |block: Value| {
        let params = (Address::ZERO, block);
        is_answered(&provider.raw_request::<_, Value>("eth_getBalance".into(), params).await)
    };
    if takes(json!({"blockHash": head.hash})).await? {
        return Ok("blocks by EIP-1898");
    }
    if takes(json!(head.hash)).await? {
        return Ok("blocks by bare hashes, not EIP-1898");
    }
    Err(Defect::Lack("it takes no hash of a block in a call: use another endpoint".to_owned()))
}

//! The endpoints: the chain's id, the clock, whether they agree, and how far back they know.

use alloy::eips::BlockId;
use alloy::primitives::B256;
use alloy::providers::{DynProvider, Provider};
use alloy::rpc::types::Filter;
use dvp_domain::chain::BlockNumber;
use futures_util::future::join_all;

use super::{Defect, Finding};
use crate::ChainConfig;
use crate::contracts::anchor::ReceiptAnchor;
use crate::rpc::{self, BlockHead};

/// How far a block may be ahead of this machine's clock.
const AHEAD_SECS: u64 = 60;

/// An endpoint that answers, and its newest block.
struct Answering {
    provider: DynProvider,
    head: BlockHead,
}

/// The findings, and the first endpoint that answers.
pub(super) async fn check(config: &ChainConfig, now: u64) -> (Vec<Finding>, Option<DynProvider>) {
    let urls: Vec<&str> = config.rpc_urls().collect();
    let answers = join_all(urls.iter().map(|url| ask(url, config))).await;
    let (mut findings, mut answering) = (Vec::new(), Vec::new());
    for (n, answer) in answers.into_iter().enumerate() {
        let which = format!("endpoint {} of {}", n + 1, urls.len());
        let found = match answer {
            Ok((one, history)) => {
                let said = format!("{which} at block {}, {history}", one.head.number);
                answering.push(one);
                Ok(said)
            }
            Err(defect) => Err(defect.of(&which)),
        };
        findings.push(Finding { about: "endpoint", found });
    }
    if let Some(newest) = answering.iter().map(|one| one.head.timestamp).max() {
        findings.push(Finding { about: "clock", found: clock(newest, now, config) });
    }
    if answering.len() > 1 {
        findings
            .push(Finding { about: "agreement", found: agreement(&answering, config.confirmations).await });
    }
    (findings, answering.into_iter().next().map(|one| one.provider))
}

async fn ask(url: &str, config: &ChainConfig) -> Result<(Answering, String), Defect> {
    let provider = rpc::connect(url)?;
    let chain_id = provider.get_chain_id().await?;
    if chain_id != config.chain_id {
        let said = format!("its chain is {chain_id}, not {}", config.chain_id);
        return Err(Defect::Contradiction(said));
    }
    let head = rpc::head(&provider).await?;
    let history = history(&provider, config, &head).await?;
    Ok((Answering { provider, head }, history))
}

/// The logs since the contracts' first block, which a backfill reads, and the state at a final block, which the
/// reconciliation reads.
async fn history(provider: &DynProvider, config: &ChainConfig, head: &BlockHead) -> Result<String, Defect> {
    let deployment = &config.deployment;
    let first = deployment.deployed_block;
    let contracts = vec![deployment.settler, deployment.escrow, deployment.anchor, deployment.payouts];
    let filter = Filter::new().address(contracts).from_block(first.0).to_block(first.0);
    let lacks = |what: String| move |error| Defect::Lack(format!("{what}: {error}"));
    provider.get_logs(&filter).await.map_err(lacks(format!("it has no logs of block {first}")))?;
    let last = match config.finality_depth {
        Some(depth) => Some(BlockNumber(head.number.0.saturating_sub(depth))),
        None => rpc::block(provider, BlockId::finalized()).await?.map(|block| block.number),
    };
    let Some(last) = last else { return Ok(format!("logs since {first}, no final block yet")) };
    let last = last.max(first);
    let call = ReceiptAnchor::seqCall {};
    let state = rpc::view(provider, deployment.settler, &call, BlockId::number(last.0)).await;
    state.map_err(lacks(format!("it has no state of the final block {last}")))?;
    Ok(format!("logs since {first}, state of the final block {last}"))
}

fn clock(newest: u64, now: u64, config: &ChainConfig) -> Result<String, Defect> {
    if newest > now.saturating_add(AHEAD_SECS) {
        let said = format!("the newest block is {} s ahead of this machine's clock", newest - now);
        return Err(Defect::Lack(said));
    }
    let age = now.saturating_sub(newest);
    match config.stalled_after {
        Some(limit) if age > limit.as_secs() => {
            Err(Defect::Lack(format!("the newest block is {age} s old, more than {} s", limit.as_secs())))
        }
        _ => Ok(format!("the newest block is {age} s old")),
    }
}

/// The hash of a block that all have, as deep as events are reported.
async fn agreement(endpoints: &[Answering], confirmations: u64) -> Result<String, Defect> {
    let lowest = endpoints.iter().map(|one| one.head.number.0).min().unwrap_or_default();
    let number = lowest.saturating_sub(confirmations);
    let hashes = endpoints.iter().map(async |one| rpc::block(&one.provider, BlockId::number(number)).await);
    let mut hash: Option<B256> = None;
    for answer in join_all(hashes).await {
        let block = answer?.ok_or_else(|| Defect::Lack(format!("an endpoint lacks block {number}")))?;
        if *hash.get_or_insert(block.hash) != block.hash {
            return Err(Defect::Lack(format!("the endpoints have different blocks {number}")));
        }
    }
    Ok(format!("{} endpoints have the same block {number}", endpoints.len()))
}

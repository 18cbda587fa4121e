//! A second reading of a chain: what its events say, beside the stored ones.
//!
//! It needs no lease and may run beside the indexer: only blocks that the chain calls final, and that the indexer has
//! read as final, are compared. A difference is reported once a second endpoint has it too, if there is one. It changes
//! nothing, unless an operator has missing events restored (`restore`).

mod compare;
mod restore;

use alloy::eips::BlockId;
use alloy::primitives::Address;
use dvp_domain::chain::BlockNumber;
use dvp_store::PgPool;
use dvp_store::chain as store;
use dvp_store::chain::LogRow;

pub use self::compare::{Difference, DifferenceKind};
pub use self::restore::RestoredBy;

use self::compare::{Compared, compare};
use super::gather::Fetched;
use super::ranges::fetch;
use super::{IndexError, add_accounts};
use crate::config::ChainConfig;
use crate::pool::RangeLength;
use crate::reader::{ChainReader, Fault, HttpReader, classify};

/// Differences that are kept; further ones are counted.
const KEPT: usize = 1_000;
/// Consecutive failures of a range, over all endpoints, that end the reading.
const TRIES: u32 = 20;

/// What a reading has found.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Rescan {
    pub from: BlockNumber,
    /// Before `from` when no block was compared.
    pub to: BlockNumber,
    /// The last block that could be compared. `None`: nothing from the contracts' first block on is final yet.
    pub last_final: Option<BlockNumber>,
    /// Events that the chain has in these blocks.
    pub events: u64,
    /// Anchors of hashes that are none of ours and are no longer stored.
    pub strangers: u64,
    pub differences: Vec<Difference>,
    pub count: u64,
    /// The missing events that were restored, by block and index.
    pub restored: Vec<(BlockNumber, u64)>,
    /// Endpoints that have each difference.
    pub endpoints: usize,
}

/// Reads blocks `from` to `to` again; without them, from the contracts' first block to the last final one. `tell` gets
/// the last block read and the end. Missing events are restored if an operator asks for it.
pub async fn rescan(
    pool: &PgPool,
    config: &ChainConfig,
    range: (Option<BlockNumber>, Option<BlockNumber>),
    by: Option<RestoredBy<'_>>,
    tell: impl FnMut(BlockNumber, BlockNumber) + Send,
) -> Result<Rescan, IndexError> {
    let readers = config.rpc_urls().map(HttpReader::new).collect::<Result<Vec<_>, _>>()?;
    rescan_over(pool, config, readers, range, by, tell).await
}

/// As [`rescan`], over these endpoints.
pub async fn rescan_over<R: ChainReader>(
    pool: &PgPool,
    config: &ChainConfig,
    readers: Vec<R>,
    (from, to): (Option<BlockNumber>, Option<BlockNumber>),
    by: Option<RestoredBy<'_>>,
    mut tell: impl FnMut(BlockNumber, BlockNumber) + Send,
) -> Result<Rescan, IndexError> {
    let configured = readers.len();
    let (readers, last) = answering(readers, config).await?;
    let mut config = config.clone();
    add_accounts(pool, &mut config).await?;
    let config = &config;
    let cursor = store::find_cursor(&mut *pool.acquire().await?, config.chain_id).await?;
    if by.is_some() {
        if let Some(halted) = cursor.as_ref().and_then(|cursor| cursor.halted.clone()) {
            return Err(IndexError::Halted(halted));
        }
        if configured > 1 && readers.len() < 2 {
            return Err(IndexError::OneWitness { answering: readers.len(), configured });
        }
    }
    let first = config.deployment.first_block();
    let from = from.unwrap_or(first).max(first);
    let to_nothing = from.saturating_sub(1);
    let mut found = Rescan { from, to: to_nothing, endpoints: readers.len().min(2), ..Rescan::default() };
    let last = cursor.map(|cursor| last.min(cursor.final_number).min(cursor.facts_number));
    found.last_final = last.filter(|last| *last >= first);
    let Some(last) = found.last_final else { return Ok(found) };
    let end = to.unwrap_or(last).min(last);
    found.to = end.max(to_nothing);
    let (mut next, mut length, mut at, mut failures) = (from, RangeLength::unknown(), 0, 0);
    while next <= end {
        let blocks = length.blocks();
        let range = (next, end.min(BlockNumber(next.0.saturating_add(blocks - 1))));
        match one_range(pool, config, &readers, at, range).await {
            Ok((events, compared, missing)) => {
                failures = 0;
                length.worked(blocks, events);
                if let Some(by) = by {
                    found.restored.extend(restore::restore(pool, config, &missing, by).await?);
                }
                found.add(events, compared);
                tell(range.1, end);
                next = range.1 + 1;
            }
            Err(error) => {
                failures += 1;
                if failures >= TRIES || !error.is_of_the_endpoint() {
                    return Err(error);
                }
                let fault = match &error {
                    IndexError::Rpc(error) => classify(error),
                    _ => Fault::Refused,
                };
                length.failed(blocks, fault);
                // A range that must be shorter is no reason to ask another endpoint.
                if !matches!(fault, Fault::Range { .. }) {
                    at = (at + 1) % readers.len();
                    tokio::time::sleep(config.poll_interval).await;
                }
            }
        }
    }
    Ok(found)
}

impl Rescan {
    fn add(&mut self, events: u64, compared: Compared) {
        self.events += events;
        self.strangers += compared.strangers;
        self.count += u64::try_from(compared.differences.len()).unwrap_or(u64::MAX);
        let room = KEPT.saturating_sub(self.differences.len());
        self.differences.extend(compared.differences.into_iter().take(room));
    }
}

/// The endpoints that answer, and the first one's last final block. Each is of this chain.
async fn answering<R: ChainReader>(
    readers: Vec<R>,
    config: &ChainConfig,
) -> Result<(Vec<R>, BlockNumber), IndexError> {
    let (mut answering, mut last, mut failed) = (Vec::new(), None, IndexError::NoEndpoint);
    for reader in readers {
        match final_of(&reader, config).await {
            Ok(number) => {
                last = last.or(Some(number));
                answering.push(reader);
            }
            Err(error @ IndexError::WrongChain { .. }) => return Err(error),
            Err(error) => {
                tracing::warn!(chain = config.name, %error, "an endpoint does not answer, reading without it");
                failed = error;
            }
        }
    }
    last.map(|last| (answering, last)).ok_or(failed)
}

async fn final_of<R: ChainReader>(reader: &R, config: &ChainConfig) -> Result<BlockNumber, IndexError> {
    let (expected, found) = (config.chain_id, reader.chain_id().await?);
    if expected != found {
        return Err(IndexError::WrongChain { expected, found });
    }
    let newest = match config.finality_depth {
        Some(depth) => {
            let head = reader.block(BlockId::latest()).await?;
            head.map(|head| head.number.saturating_sub(depth))
        }
        None => reader.block(BlockId::finalized()).await?.map(|block| block.number),
    };
    Ok(newest.unwrap_or_default().saturating_sub(config.finality_margin))
}

/// The number of events in a range, what differs, and the missing events that every asked endpoint has alike.
async fn one_range<R: ChainReader>(
    pool: &PgPool,
    config: &ChainConfig,
    readers: &[R],
    at: usize,
    range: (BlockNumber, BlockNumber),
) -> Result<(u64, Compared, Vec<LogRow>), IndexError> {
    let deployment = &config.deployment;
    let contracts = deployment.numbered();
    let Fetched { mut rows, .. } = fetch(&readers[at], deployment, range.0, range.1).await?;
    let events = u64::try_from(rows.len()).unwrap_or(u64::MAX);
    let mut compared = compare(&rows, &stored(pool, config, &contracts, range).await?);
    if !compared.differences.is_empty() && readers.len() > 1 {
        let other = &readers[(at + 1) % readers.len()];
        let Fetched { rows: theirs, .. } = fetch(other, deployment, range.0, range.1).await?;
        let again = compare(&theirs, &stored(pool, config, &contracts, range).await?);
        compared.differences.retain(|difference| again.differences.contains(difference));
        // The same block, transaction and content.
        rows.retain(|row| theirs.contains(row));
    }
    rows.retain(|row| {
        let is_it = |one: &Difference| (one.block, one.log_index) == (row.block_number, row.log_index);
        compared.differences.iter().any(|one| one.kind == DifferenceKind::Missing && is_it(one))
    });
    Ok((events, compared, rows))
}

async fn stored(
    pool: &PgPool,
    config: &ChainConfig,
    contracts: &[Address],
    range: (BlockNumber, BlockNumber),
) -> Result<Vec<(BlockNumber, alloy::primitives::B256, store::KeptEvent)>, IndexError> {
    let contracts: Vec<Vec<u8>> = contracts.iter().map(|contract| contract.to_vec()).collect();
    let mut conn = pool.acquire().await?;
    Ok(store::list_range_events(&mut conn, config.chain_id, range, &contracts).await?)
}

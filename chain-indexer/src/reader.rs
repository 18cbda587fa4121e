//! The chain as the indexer queries it: six queries, answered by an HTTP endpoint or by the simulator.
//!
//! Invariant: a reader answers or fails. It does not retry, check, sort or complete; the caller judges the answer.

use crate::contracts::anchor::ReceiptAnchor;
use crate::rpc::{self, BlockHead};
use alloy::eips::{BlockId, BlockNumberOrTag};
use alloy::primitives::{Address, B256};
use alloy::providers::{DynProvider, Provider};
use alloy::rpc::client::BatchRequest;
use alloy::rpc::types::{Filter, Log, TransactionReceipt};
use alloy::transports::{TransportError, TransportErrorKind};
use dvp_domain::chain::BlockNumber;
use tokio_util::task::AbortOnDropHandle;

const BATCH: usize = 100;

/// One endpoint of a chain. `None` is the endpoint's own answer that it has no such block.
pub trait ChainReader: Send + Sync + 'static {
    fn chain_id(&self) -> impl Future<Output = Result<u64, TransportError>> + Send;
    /// One block by tag, number or hash.
    fn block(&self, id: BlockId) -> impl Future<Output = Result<Option<BlockHead>, TransportError>> + Send;
    /// Many blocks by number, in the order of the request.
    fn blocks(
        &self,
        numbers: &[BlockNumber],
    ) -> impl Future<Output = Result<Vec<Option<BlockHead>>, TransportError>> + Send;
    fn logs(&self, filter: &Filter) -> impl Future<Output = Result<Vec<Log>, TransportError>> + Send;
    /// The number of numbered events that a contract had emitted at the end of a block.
    fn seq(&self, contract: Address, at: B256) -> impl Future<Output = Result<u64, TransportError>> + Send;
    fn receipts(
        &self,
        block: B256,
    ) -> impl Future<Output = Result<Option<Vec<TransactionReceipt>>, TransportError>> + Send;
}

#[derive(Debug, Clone)]
pub struct HttpReader(DynProvider);

impl HttpReader {
    /// Does not connect yet.
    pub fn new(rpc_url: &str) -> Result<Self, TransportError> {
        Ok(Self(rpc::connect(rpc_url)?))
    }
}

impl ChainReader for HttpReader {
    async fn chain_id(&self) -> Result<u64, TransportError> {
        self.0.get_chain_id().await
    }

    async fn block(&self, id: BlockId) -> Result<Option<BlockHead>, TransportError> {
        rpc::block(&self.0, id).await
    }

    async fn blocks(&self, numbers: &[BlockNumber]) -> Result<Vec<Option<BlockHead>>, TransportError> {
        let mut heads = Vec::with_capacity(numbers.len());
        for part in numbers.chunks(BATCH) {
            heads.extend(aside(headers(self.0.clone(), part.to_vec())).await?);
        }
        Ok(heads)
    }

    async fn logs(&self, filter: &Filter) -> Result<Vec<Log>, TransportError> {
        let (provider, filter) = (self.0.clone(), filter.clone());
        aside(async move { provider.get_logs(&filter).await }).await
    }

    async fn seq(&self, contract: Address, at: B256) -> Result<u64, TransportError> {
        // Every numbered contract has the same `seq()`.
        rpc::view(&self.0, contract, &ReceiptAnchor::seqCall {}, BlockId::hash(at)).await
    }

    async fn receipts(&self, block: B256) -> Result<Option<Vec<TransactionReceipt>>, TransportError> {
        self.0.get_block_receipts(BlockId::hash(block)).await
    }
}

/// Decodes long answers in a separate task, so that the caller can write at the same time.
async fn aside<T: Send + 'static>(
    asking: impl Future<Output = Result<T, TransportError>> + Send + 'static,
) -> Result<T, TransportError> {
    let asking = AbortOnDropHandle::new(tokio::spawn(asking));
    asking.await.unwrap_or_else(|error| Err(TransportErrorKind::custom(error)))
}

async fn headers(
    provider: DynProvider,
    numbers: Vec<BlockNumber>,
) -> Result<Vec<Option<BlockHead>>, TransportError> {
    let mut batch = BatchRequest::new(provider.client());
    let mut answers = Vec::with_capacity(numbers.len());
    for number in numbers {
        let params = (BlockNumberOrTag::Number(number.0), false);
        answers.push(batch.add_call::<_, Option<BlockHead>>("eth_getBlockByNumber", &params)?);
    }
    batch.send().await?;
    let mut heads = Vec::with_capacity(answers.len());
    for answer in answers {
        heads.push(answer.await?);
    }
    Ok(heads)
}

/// The meaning of an endpoint's failure for a reader of ranges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The range is too long, or has too many events; `hint`: a number of blocks that would be accepted.
    Range { hint: Option<u64> },
    /// Too many requests: come back later.
    Limited,
    /// The endpoint answered that it cannot comply.
    Refused,
    /// No intelligible answer.
    Broken,
}

/// Classifies an error by the providers' wording.
#[must_use]
pub fn classify(error: &TransportError) -> Fault {
    use alloy::transports::RpcError as E;
    match error {
        E::ErrorResp(payload) => {
            let data = payload.data.as_ref().map(|data| data.get()).unwrap_or_default();
            wording(payload.code, &format!("{} {data}", payload.message))
        }
        E::Transport(TransportErrorKind::HttpError(http)) if http.status == 429 => Fault::Limited,
        E::Transport(TransportErrorKind::HttpError(http)) => match wording(0, &http.body) {
            fault @ (Fault::Range { .. } | Fault::Limited) => fault,
            Fault::Refused | Fault::Broken => Fault::Broken,
        },
        E::NullResp
        | E::UnsupportedFeature(_)
        | E::LocalUsageError(_)
        | E::SerError(_)
        | E::DeserError { .. }
        | E::Transport(_) => Fault::Broken,
    }
}

fn wording(code: i64, message: &str) -> Fault {
    let text = message.to_ascii_lowercase();
    let says = |words: &[&str]| words.iter().any(|word| text.contains(word));
    if says(&[
        "too many requests",
        "rate limit",
        "compute units per second",
        "request limit",
        "daily request",
    ]) {
        return Fault::Limited;
    }
    let about_range = says(&[
        "block range",
        "range is too",
        "range too",
        "max range",
        "limited to a",
        "limited to 0",
        "response size",
        "response too large",
        "query returned more than",
        "query exceeds max",
        "exceeds limit of",
        "requested too many blocks",
        "ranges over",
        "range allowed",
        "range limit",
        "maximum is set to",
        "query timeout",
        "too many logs",
        "number of requested blocks",
    ]);
    if about_range {
        return Fault::Range { hint: range_hint(&text) };
    }
    if code == 429 || code == -32029 { Fault::Limited } else { Fault::Refused }
}

/// The number of blocks that a refusal names: an acceptable range, or a limit on blocks. A limit on results is not a
/// hint.
fn range_hint(text: &str) -> Option<u64> {
    if let Some((_, rest)) = text.split_once('[')
        && let Some((pair, _)) = rest.split_once(']')
        && let Some((from, to)) = pair.split_once(',')
    {
        let from = hex_number(from)?;
        let to = hex_number(to)?;
        return to.checked_sub(from)?.checked_add(1);
    }
    // reth names the range itself.
    if let Some((_, range)) = text.split_once("retry with the range ")
        && let Some((from, to)) = range.split_once('-')
    {
        return decimal(to)?.checked_sub(decimal(from)?)?.checked_add(1);
    }
    if text.contains("results") || text.contains("logs matched") {
        return None;
    }
    let limits = [
        "max range: ",
        "limited to a ",
        "limited to 0 - ",
        "max block range ",
        "maximum block range: ",
        "maximum block range ",
        "requested blocks is ",
        "maximum is set to ",
        "ranges over ",
        "max: ",
        "max is ",
        "up to a ",
        "within ",
        "> ",
    ];
    limits.iter().find_map(|words| {
        let (_, rest) = text.split_once(words)?;
        decimal(rest)
    })
}

fn hex_number(text: &str) -> Option<u64> {
    let digits = text.trim().trim_matches('"').strip_prefix("0x")?;
    u64::from_str_radix(digits, 16).ok()
}

/// `10,000` or `10000` or `2k` at the beginning of a text.
fn decimal(text: &str) -> Option<u64> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != ',').unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    let number: u64 = digits.replace(',', "").parse().ok()?;
    let number = if rest.starts_with('k') { number.checked_mul(1_000)? } else { number };
    (number > 0).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_acceptable_range_is_read_from_providers_errors() {
        let hint = |code, message| match wording(code, message) {
            Fault::Range { hint } => hint,
            other => panic!("{message}: {other:?}"),
        };
        let alchemy = "Log response size exceeded. You can make eth_getLogs requests with up to a 2K block range and \
                       no limit on the response size, or you can request any block range with a cap of 10K logs in \
                       the response. Based on your parameters and the response size limit, this block range should \
                       work: [0x10, 0x1f]";
        assert_eq!(hint(-32602, alchemy), Some(16));
        let infura = "query returned more than 10000 results. Try with this block range [0x1, 0x2].";
        assert_eq!(hint(-32005, infura), Some(2));
        assert_eq!(hint(-32614, "eth_getLogs is limited to a 10,000 range"), Some(10_000));
        assert_eq!(hint(-32000, "Max range: 800"), Some(800));
        assert_eq!(hint(-32600, "block range is too wide"), None);
        assert_eq!(hint(-32000, "query returned more than 10000 results"), None);
        assert_eq!(hint(-32000, "exceed maximum block range: 5000"), Some(5_000));
        assert_eq!(hint(-32602, "exceed maximum block range 5000"), Some(5_000));
        assert_eq!(hint(-32005, "Maximum allowed number of requested blocks is 1000"), Some(1_000));
        let reth = "query exceeds max results 20000, retry with the range 40-59";
        assert_eq!(hint(-32602, reth), Some(20));
        assert_eq!(hint(-32602, "query exceeds max block range 100000"), Some(100_000));
        assert_eq!(
            hint(-32000, "requested too many blocks from 1 to 9000, maximum is set to 2048"),
            Some(2048)
        );
        assert_eq!(hint(35, "ranges over 10000 blocks are not supported on freetier"), Some(10_000));
        assert_eq!(hint(-32602, "eth_getLogs is limited to 0 - 50000 blocks range"), Some(50_000));
        assert_eq!(hint(-32000, "exceeds the range allowed for your plan (4000 > 1000)"), Some(1_000));
        assert_eq!(hint(-32005, "logs matched by query exceeds limit of 10000"), None);
        assert_eq!(hint(-32008, "backend response too large"), None);
    }

    #[test]
    fn a_limit_on_requests_is_not_a_limit_on_ranges() {
        assert_eq!(
            wording(429, "Your app has exceeded its compute units per second capacity"),
            Fault::Limited
        );
        assert_eq!(wording(-32005, "daily request count exceeded, request rate limited"), Fault::Limited);
        assert_eq!(wording(-32005, "Too Many Requests"), Fault::Limited);
        assert_eq!(wording(-32000, "unknown block"), Fault::Refused);
        let http = TransportErrorKind::http_error(429, String::new());
        assert_eq!(classify(&http), Fault::Limited);
        assert_eq!(classify(&TransportErrorKind::http_error(502, "Bad Gateway".into())), Fault::Broken);
    }
}

//! One endpoint of the chain, over HTTP, with a time limit on every call.
//!
//! Invariant: nothing here waits for ever or decides, and nothing is repeated but a request that the endpoint has limited,
//! and one for a block that the URL has announced and denies (`announced`). Everything but an answer is a [`TransportError`] for the caller to judge.

use alloy::eips::{BlockId, BlockNumberOrTag};
use alloy::network::TransactionBuilder;
use alloy::primitives::{Address, B256, Bloom, Bytes, U64, U256};
use alloy::providers::{DynProvider, Provider, ProviderBuilder};
use alloy::rpc::client::{BatchRequest, RpcClient, Waiter};
use alloy::rpc::json_rpc::{ErrorPayload, RpcRecv};
use alloy::rpc::types::{Header, Log, TransactionRequest};
use alloy::sol_types::SolCall;
use alloy::transports::{RpcError, TransportError, TransportErrorKind};
use dvp_domain::chain::BlockNumber;
use dvp_domain::text::{TEXT_MAX, clean};
use serde::{Deserialize, Deserializer, Serialize, de};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::iter::repeat;
use std::time::Duration;

mod announced;
mod refusal;
mod transport;

pub(crate) use refusal::{SendRejection, refusal};
pub(crate) use transport::without_secrets;

use transport::HttpTransport;

/// JSON-RPC's code of parameters that are not understood.
const INVALID_PARAMS: i64 = -32602;
/// The time limit of one HTTP exchange with the endpoint.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// Connects lazily: no traffic until the first call.
pub fn connect(rpc_url: &str) -> Result<DynProvider, TransportError> {
    let url = rpc_url.parse().map_err(TransportErrorKind::non_retryable)?;
    let rpc = RpcClient::new(HttpTransport::new(reqwest_client()?, url), false);
    Ok(ProviderBuilder::new().disable_recommended_fillers().connect_client(rpc).erased())
}

fn reqwest_client() -> Result<alloy::transports::http::reqwest::Client, TransportError> {
    alloy::transports::http::reqwest::Client::builder()
        .timeout(CALL_TIMEOUT)
        .build()
        .map_err(TransportErrorKind::non_retryable)
}

#[derive(Debug, Clone)]
pub struct BlockHead {
    pub number: BlockNumber,
    pub hash: B256,
    pub parent: B256,
    /// Unix seconds.
    pub timestamp: u64,
    pub base_fee: u64,
    pub gas_limit: u64,
    /// Present when the header hashes to its own hash: only then is it evidence.
    pub proven: Option<Commitments>,
}

/// The commitments of a header to its block's logs.
#[derive(Debug, Clone)]
pub struct Commitments {
    pub bloom: Bloom,
    pub receipts_root: B256,
}

impl From<Header> for BlockHead {
    fn from(header: Header) -> Self {
        let proven = header.inner.hash_slow() == header.hash;
        let inner = header.inner;
        let commitments = Commitments { bloom: inner.logs_bloom, receipts_root: inner.receipts_root };
        Self {
            number: BlockNumber(inner.number),
            hash: header.hash,
            parent: inner.parent_hash,
            timestamp: inner.timestamp,
            base_fee: inner.base_fee_per_gas.unwrap_or_default(),
            gas_limit: inner.gas_limit,
            proven: proven.then_some(commitments),
        }
    }
}

/// What a block must have. Its other fields only make its header evidence.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PlainHead {
    number: U64,
    hash: B256,
    parent_hash: B256,
    timestamp: U64,
    base_fee_per_gas: Option<U256>,
    gas_limit: Option<U256>,
}

impl From<PlainHead> for BlockHead {
    fn from(head: PlainHead) -> Self {
        Self {
            number: BlockNumber(head.number.to()),
            hash: head.hash,
            parent: head.parent_hash,
            timestamp: head.timestamp.to(),
            base_fee: head.base_fee_per_gas.map_or(0, |fee| fee.saturating_to()),
            // Without one the chain's configuration alone says how much is counted on.
            gas_limit: head.gas_limit.map_or(u64::MAX, |limit| limit.saturating_to()),
            proven: None,
        }
    }
}

impl<'de> Deserialize<'de> for BlockHead {
    /// A header without a field that its hash covers is a block all the same: its events are proven by the contracts' own
    /// counts.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Box::<RawValue>::deserialize(deserializer)?;
        match serde_json::from_str::<Header>(text.get()) {
            Ok(header) => Ok(header.into()),
            Err(_) => {
                serde_json::from_str::<PlainHead>(text.get()).map(Self::from).map_err(de::Error::custom)
            }
        }
    }
}

/// `latest`, `finalized`, a number or a hash; `None` when the node has no such block.
pub async fn block(provider: &DynProvider, id: BlockId) -> Result<Option<BlockHead>, TransportError> {
    match id.as_block_hash() {
        Some(hash) => provider.raw_request("eth_getBlockByHash".into(), (hash, false)).await,
        None => provider.raw_request("eth_getBlockByNumber".into(), (id, false)).await,
    }
}

pub async fn head(provider: &DynProvider) -> Result<BlockHead, TransportError> {
    block(provider, BlockId::latest()).await?.ok_or(RpcError::NullResp)
}

/// A request that is about a block, which is its last parameter: a hash as EIP-1898 names it, or as it is for endpoints
/// that do not know that.
async fn at_block<T: RpcRecv>(
    provider: &DynProvider,
    method: &'static str,
    about: &impl Serialize,
    at: BlockId,
) -> Result<T, TransportError> {
    let about = serde_json::to_value(about).map_err(TransportError::ser_err)?;
    let named = named(at)?;
    let ask = async |block: Value| provider.raw_request::<_, T>(method.into(), (about.clone(), block)).await;
    match (ask(named).await, at.as_block_hash()) {
        (Err(RpcError::ErrorResp(refused)), Some(hash)) if refused.code == INVALID_PARAMS => {
            // What is refused in either form was refused for the first reason.
            ask(json!(hash)).await.or(Err(RpcError::ErrorResp(refused)))
        }
        (answer, _) => answer,
    }
}

/// A block as EIP-1898 names it.
fn named(at: BlockId) -> Result<Value, TransportError> {
    match at.as_block_hash() {
        Some(hash) => Ok(json!({"blockHash": hash})),
        None => serde_json::to_value(at).map_err(TransportError::ser_err),
    }
}

/// Calls a view at a block; answers that do not decode are an error.
pub async fn view<C: SolCall>(
    provider: &DynProvider,
    to: Address,
    call: &C,
    at: BlockId,
) -> Result<C::Return, TransportError> {
    let request = TransactionRequest::default().with_to(to).with_input(call.abi_encode());
    let answer: Bytes = at_block(provider, "eth_call", &request, at).await?;
    C::abi_decode_returns(&answer).map_err(TransportErrorKind::custom)
}

/// Calls a view at the newest block.
pub async fn view_now<C: SolCall>(
    provider: &DynProvider,
    to: Address,
    call: &C,
) -> Result<C::Return, TransportError> {
    view(provider, to, call, BlockId::latest()).await
}

/// The call of a view at a block, in a batch.
pub(crate) struct BatchedView<C> {
    to: Address,
    call: C,
    at: BlockId,
    answer: Waiter<Bytes>,
}

impl<C: SolCall> BatchedView<C> {
    /// Adds the call to a batch that is not sent yet.
    pub(crate) fn add(
        batch: &mut BatchRequest<'_>,
        to: Address,
        call: C,
        at: BlockId,
    ) -> Result<Self, TransportError> {
        let request = TransactionRequest::default().with_to(to).with_input(call.abi_encode());
        let answer = batch.add_call("eth_call", &(request, named(at)?))?;
        Ok(Self { to, call, at, answer })
    }

    /// Its answer. An endpoint that does not take the block in this form is asked by itself.
    pub(crate) async fn answer(self, provider: &DynProvider) -> Result<C::Return, TransportError> {
        let Self { to, call, at, answer } = self;
        match answer.await {
            Err(RpcError::ErrorResp(refused))
                if refused.code == INVALID_PARAMS && at.as_block_hash().is_some() =>
            {
                view(provider, to, &call, at).await
            }
            answer => C::abi_decode_returns(&answer?).map_err(TransportErrorKind::custom),
        }
    }
}

/// How many of so many calls the endpoint takes as one request, as far as halving them tells.
pub(crate) async fn calls_taken(rpc_url: &str, calls: usize) -> Result<usize, TransportError> {
    let url = rpc_url.parse().map_err(TransportErrorKind::non_retryable)?;
    let transport = HttpTransport::new(reqwest_client()?, url);
    let client = RpcClient::new(transport.clone(), false);
    let mut batch = client.new_batch();
    let mut answers = Vec::with_capacity(calls);
    for _ in 0..calls {
        answers.push(batch.add_call::<_, U64>("eth_chainId", &())?);
    }
    batch.send().await?;
    Ok(transport.batch_max().min(calls))
}

/// The fees of the newest blocks, in wei per gas, as far as a node tells them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FeeHistory {
    /// Of the next block.
    pub(crate) base_fee: Option<u128>,
    /// The median, over blocks that were not empty, of the highest tip in the cheaper half of a block's gas.
    pub(crate) tip: u128,
}

impl FeeHistory {
    /// Nodes have `null`, numbers or nothing in places: only what is used is read.
    pub(crate) fn read(answer: &Value) -> Self {
        let list = |name: &str| answer[name].as_array().map(Vec::as_slice).unwrap_or_default();
        let rewards = list("reward").iter().map(|reward| wei(&reward[0]));
        let used = list("gasUsedRatio").iter().map(Value::as_f64).chain(repeat(None));
        let is_used = |(tip, used): &(u128, Option<f64>)| used.map_or(*tip > 0, |used| used > 0.0);
        let rewards = rewards.zip(used).filter_map(|(tip, used)| Some((tip?, used)));
        let mut tips: Vec<u128> = rewards.filter(is_used).map(|(tip, _)| tip).collect();
        tips.sort_unstable();
        let tip = tips.get(tips.len() / 2).copied().unwrap_or(0);
        Self { base_fee: list("baseFeePerGas").last().and_then(wei), tip }
    }
}

fn wei(amount: &Value) -> Option<u128> {
    let text = amount.as_str()?;
    u128::from_str_radix(text.strip_prefix("0x")?, 16).ok()
}

/// The fees of so many of the newest blocks.
pub(crate) async fn fee_history(provider: &DynProvider, blocks: u64) -> Result<FeeHistory, TransportError> {
    let params = (U64::from(blocks), BlockNumberOrTag::Latest, [50.0]);
    let answer: Value = provider.raw_request("eth_feeHistory".into(), params).await?;
    Ok(FeeHistory::read(&answer))
}

/// The tip that the node proposes, where it does: some take no lower one, whatever the blocks before had.
pub(crate) async fn proposed_tip(provider: &DynProvider) -> Option<u128> {
    let proposed: Value = provider.raw_request("eth_maxPriorityFeePerGas".into(), ()).await.ok()?;
    wei(&proposed)
}

/// What is used of a transaction's receipt.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Receipt {
    pub(crate) block_hash: Option<B256>,
    block_number: Option<U64>,
    status: Option<U64>,
    #[serde(default)]
    pub(crate) gas_used: U64,
    #[serde(default)]
    pub(crate) logs: Vec<Log>,
}

impl Receipt {
    pub(crate) fn block_number(&self) -> Option<BlockNumber> {
        self.block_number.map(|number| BlockNumber(number.to()))
    }

    /// A node that does not say it leaves it to the events.
    pub(crate) fn succeeded(&self) -> bool {
        self.status.is_none_or(|status| !status.is_zero())
    }
}

pub(crate) async fn receipt(provider: &DynProvider, tx: B256) -> Result<Option<Receipt>, TransportError> {
    provider.raw_request("eth_getTransactionReceipt".into(), (tx,)).await
}

#[derive(Debug, Clone)]
pub enum Simulated {
    Succeeds(Bytes),
    /// The revert data, empty when the contract gave none.
    Reverts {
        data: Bytes,
        message: String,
    },
}

/// `eth_call` of a transaction with at most this much gas.
pub async fn simulate(
    provider: &DynProvider,
    from: Address,
    to: Address,
    input: Bytes,
    gas: u64,
    at: BlockId,
) -> Result<Simulated, TransportError> {
    let request =
        TransactionRequest::default().with_from(from).with_to(to).with_input(input).with_gas_limit(gas);
    match at_block(provider, "eth_call", &request, at).await {
        Ok(answer) => Ok(Simulated::Succeeds(answer)),
        Err(error) => reverted(error).map(|(data, message)| Simulated::Reverts { data, message }),
    }
}

/// The gas that a transaction needs at the newest block, or how it reverts with at most this much.
pub async fn estimate(
    provider: &DynProvider,
    from: Address,
    to: Address,
    input: Bytes,
    gas: u64,
) -> Result<Result<u64, Bytes>, TransportError> {
    let request =
        TransactionRequest::default().with_from(from).with_to(to).with_input(input).with_gas_limit(gas);
    match provider.estimate_gas(request).block(BlockId::latest()).await {
        Ok(needed) => Ok(Ok(needed)),
        Err(error) => reverted(error).map(|(data, _)| Err(data)),
    }
}

/// What an error says, as it may be stored and shown: a node's text is foreign, and may be long.
pub(crate) fn told(error: &TransportError) -> String {
    match error {
        // Its data may be megabytes of a token's.
        RpcError::ErrorResp(payload) => {
            clean(&format!("error {}: {}", payload.code, payload.message), TEXT_MAX)
        }
        error => clean(&error.to_string(), TEXT_MAX),
    }
}

/// Whether an endpoint says that it does not have a method at all.
pub(crate) fn lacks_method(refused: &ErrorPayload) -> bool {
    let message = refused.message.to_ascii_lowercase();
    let says = ["not found", "not supported", "unsupported", "not available", "does not exist"];
    matches!(refused.code, -32601 | -32004)
        || message.contains("method") && says.iter().any(|words| message.contains(words))
}

/// The data and the message of a revert; any other error as it is.
fn reverted(error: TransportError) -> Result<(Bytes, String), TransportError> {
    match error {
        RpcError::ErrorResp(payload) if is_revert(payload.code, &payload.message) => {
            let data = payload.as_revert_data().or_else(|| worded_data(payload.data.as_ref()?.get()));
            Ok((data.unwrap_or_default(), payload.message.to_string()))
        }
        error => Err(error),
    }
}

/// A revert in the words of geth and those after it, and of Nethermind, which gives its data in words, too.
fn is_revert(code: i64, message: &str) -> bool {
    let message = message.to_ascii_lowercase();
    matches!(code, 3 | -32015) || message.contains("revert") || message.contains("vm execution error")
}

/// `"Reverted 0x08c3…"`.
fn worded_data(data: &str) -> Option<Bytes> {
    let hex = data.split_once("0x")?.1;
    let digits: String = hex.chars().take_while(char::is_ascii_hexdigit).collect();
    hex::decode(digits).ok().map(Bytes::from)
}

/// The number of transactions mined from an account: its next nonce.
pub async fn mined_nonce(provider: &DynProvider, of: Address, at: BlockId) -> Result<u64, TransportError> {
    let count: U64 = at_block(provider, "eth_getTransactionCount", &of, at).await?;
    Ok(count.to())
}

/// What an account has of the chain's coin.
pub(crate) async fn balance(
    provider: &DynProvider,
    of: Address,
    at: BlockId,
) -> Result<U256, TransportError> {
    at_block(provider, "eth_getBalance", &of, at).await
}

/// `value` as the chain writes amounts; `None` unless it is a plain decimal integer.
pub fn parse_amount(value: &str) -> Option<U256> {
    let plain = !value.is_empty() && value.bytes().all(|b| b.is_ascii_digit());
    if plain { U256::from_str_radix(value, 10).ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_method_that_is_not_there_is_told_from_one_that_fails() {
        let refused = |code, message: &'static str| {
            lacks_method(&ErrorPayload { code, message: message.into(), data: None })
        };
        assert!(refused(-32601, "the method eth_feeHistory does not exist/is not available"));
        assert!(refused(-32004, "method not supported"));
        assert!(refused(-32600, "Unsupported method: eth_feeHistory"));
        assert!(!refused(-32000, "header not found"));
        assert!(!refused(-32005, "limit exceeded"));
    }

    #[test]
    fn a_revert_is_read_in_every_nodes_words() {
        for (code, message, data, expected) in [
            (3, "execution reverted", Some("\"0x08c3\""), Some("0x08c3")),
            (-32000, "execution reverted", None, Some("0x")),
            (-32015, "VM execution error.", Some("\"Reverted 0x08c3\""), Some("0x08c3")),
            (-32015, "VM execution error.", Some("\"revert\""), Some("0x")),
            (-32603, "Internal error: revert: no funds", None, Some("0x")),
            (-32005, "limit exceeded", None, None),
        ] {
            let data = data.map(|data| serde_json::value::RawValue::from_string(data.to_owned()).unwrap());
            let payload = ErrorPayload { code, message: message.into(), data };
            let read = reverted(RpcError::ErrorResp(payload)).ok().map(|(data, _)| data.to_string());
            assert_eq!(read.as_deref(), expected, "{code} {message}");
        }
    }
}

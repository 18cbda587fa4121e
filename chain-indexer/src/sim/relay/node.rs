//! The node's JSON-RPC interface: answers of the simulated chain, some of which are lost.

use super::contracts::{State, gas_of};
use super::world::{BLOCK_GAS, Block, Tx, World};
use alloy::consensus::{self, Transaction as _, TxEnvelope, transaction::SignerRecoverable};
use alloy::eips::eip2718::Decodable2718;
use alloy::primitives::{Address, B64, B256, Bytes};
use alloy::providers::{DynProvider, Provider, ProviderBuilder};
use alloy::rpc::client::RpcClient;
use alloy::rpc::json_rpc::{
    ErrorPayload, RequestPacket, Response, ResponsePacket, ResponsePayload, SerializedRequest,
};
use alloy::rpc::types::{Block as RpcBlock, Header};
use alloy::transports::{TransportError, TransportErrorKind, TransportFut};
use parking_lot::{Mutex, MutexGuard};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::sync::Arc;
use std::task::{Context, Poll};

#[derive(Clone)]
pub(super) struct Node {
    pub(super) world: Arc<Mutex<World>>,
}

/// An answer, or the code, message and data of an error.
type Answer = Result<Value, (i64, String, Option<Bytes>)>;

impl Node {
    pub(super) fn provider(&self) -> DynProvider {
        let client = RpcClient::new(self.clone(), true);
        ProviderBuilder::new().disable_recommended_fillers().connect_client(client).erased()
    }

    pub(super) fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock()
    }

    async fn handle(self, packet: RequestPacket) -> Result<ResponsePacket, TransportError> {
        // A point at which the relayer can be killed.
        tokio::task::yield_now().await;
        match packet {
            RequestPacket::Single(request) => Ok(ResponsePacket::Single(self.answer(&request)?)),
            RequestPacket::Batch(requests) => {
                let answers = requests.iter().map(|request| self.answer(request));
                Ok(ResponsePacket::Batch(answers.collect::<Result<_, _>>()?))
            }
        }
    }

    fn answer(&self, request: &SerializedRequest) -> Result<Response, TransportError> {
        let mut world = self.world();
        world.calls += 1;
        let failing = world.failing;
        if world.rng.chance(failing) {
            return Err(TransportErrorKind::custom_str("the node was not reached"));
        }
        let params: Value = request
            .params()
            .map_or(Ok(Value::Null), |params| serde_json::from_str(params.get()))
            .map_err(TransportErrorKind::custom)?;
        let answer = world.ask(request.method(), &params);
        if world.rng.chance(failing) {
            return Err(TransportErrorKind::custom_str("the answer was lost"));
        }
        let payload = match answer {
            Ok(value) => ResponsePayload::Success(raw(&value)?),
            Err((code, message, data)) => ResponsePayload::Failure(ErrorPayload {
                code,
                message: message.into(),
                data: data.map(|data| raw(&json!(data))).transpose()?,
            }),
        };
        Ok(Response { id: request.id().clone(), payload })
    }
}

fn raw(value: &Value) -> Result<Box<RawValue>, TransportError> {
    serde_json::value::to_raw_value(value).map_err(TransportErrorKind::custom)
}

impl tower::Service<RequestPacket> for Node {
    type Response = ResponsePacket;
    type Error = TransportError;
    type Future = TransportFut<'static>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), TransportError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, packet: RequestPacket) -> Self::Future {
        Box::pin(self.clone().handle(packet))
    }
}

fn refused(message: &str) -> (i64, String, Option<Bytes>) {
    (-32_000, message.to_owned(), None)
}

fn reverted(data: Bytes) -> (i64, String, Option<Bytes>) {
    (3, "execution reverted".to_owned(), Some(data))
}

impl World {
    fn ask(&mut self, method: &str, params: &Value) -> Answer {
        let at = |index: usize| params.get(index).unwrap_or(&Value::Null);
        match method {
            "eth_chainId" => Ok(json!(format!("{:#x}", self.deployment.chain_id))),
            "eth_getBlockByNumber" | "eth_getBlockByHash" => {
                Ok(self.find(at(0)).map_or(Value::Null, |block| self.reported(block)))
            }
            "eth_getTransactionCount" => {
                let block = self.find(at(1)).ok_or_else(|| refused("header not found"))?;
                let nonce = address(at(0)).and_then(|of| block.state.nonces.get(&of).copied());
                Ok(json!(format!("{:#x}", nonce.unwrap_or(0))))
            }
            "eth_getBalance" => Ok(json!("0xde0b6b3a7640000")),
            "eth_feeHistory" => Ok(self.history()),
            "eth_call" => {
                let block = self.find(at(1)).ok_or_else(|| refused("header not found"))?;
                let (mut state, (to, input)) = (block.state.clone(), call(at(0))?);
                let deployment = self.deployment.clone();
                state.call(&deployment, to, &input).map(|(answer, _)| json!(answer)).map_err(reverted)
            }
            "eth_estimateGas" => {
                let (mut state, (to, input)): (State, _) = (self.head().state.clone(), call(at(0))?);
                let deployment = self.deployment.clone();
                state.call(&deployment, to, &input).map_err(reverted)?;
                let needed = if input.is_empty() { self.transfer_gas } else { gas_of(&input) };
                Ok(json!(format!("{needed:#x}")))
            }
            "eth_sendRawTransaction" => self.send(at(0)),
            "eth_getTransactionReceipt" => Ok(self.receipt(at(0))),
            other => Err((-32_601, format!("the method {other} does not exist"), None)),
        }
    }

    fn find(&self, id: &Value) -> Option<&Block> {
        let text =
            id.as_str().or_else(|| id.get("blockHash")?.as_str()).or_else(|| id.get("blockNumber")?.as_str());
        match text? {
            "latest" | "pending" => Some(self.head()),
            hash if hash.len() == 66 => self.by_hash(hash.parse().ok()?),
            number => self.by_number(u64::from_str_radix(number.strip_prefix("0x")?, 16).ok()?),
        }
    }

    fn reported(&self, block: &Block) -> Value {
        let inner = consensus::Header {
            number: block.number,
            parent_hash: block.parent,
            timestamp: block.number,
            gas_limit: BLOCK_GAS,
            base_fee_per_gas: u64::try_from(block.base_fee).ok(),
            nonce: B64::ZERO,
            ..consensus::Header::default()
        };
        let header = Header { hash: block.hash, inner, total_difficulty: None, size: None };
        serde_json::to_value(RpcBlock::<B256>::empty(header)).unwrap_or(Value::Null)
    }

    fn history(&self) -> Value {
        let blocks: Vec<&Block> = self.blocks.iter().rev().take(10).rev().collect();
        let hex = |fee: u128| format!("{fee:#x}");
        let mut fees: Vec<String> = blocks.iter().map(|block| hex(block.base_fee)).collect();
        fees.push(hex(self.base_fee));
        let used = |block: &&Block| if block.txs.is_empty() { 0.0 } else { 0.5 };
        let reward = |block: &&Block| {
            vec![hex(block
                .txs
                .first()
                .map_or(0, |mined| mined.tx.tip.min(mined.tx.max_fee - block.base_fee)))]
        };
        json!({
            "oldestBlock": format!("{:#x}", blocks.first().map_or(0, |block| block.number)),
            "baseFeePerGas": fees,
            "gasUsedRatio": blocks.iter().map(used).collect::<Vec<f64>>(),
            "reward": blocks.iter().map(reward).collect::<Vec<_>>(),
        })
    }

    fn send(&mut self, raw: &Value) -> Answer {
        let malformed = || refused("the transaction is malformed");
        let raw: Bytes = raw.as_str().and_then(|text| text.parse().ok()).ok_or_else(malformed)?;
        let envelope = TxEnvelope::decode_2718(&mut raw.as_ref()).map_err(|_| malformed())?;
        let sender = envelope.recover_signer().map_err(|_| malformed())?;
        let hash = *envelope.tx_hash();
        let tx = Tx {
            hash,
            sender,
            nonce: envelope.nonce(),
            to: envelope.to().ok_or_else(malformed)?,
            input: envelope.input().clone(),
            gas: envelope.gas_limit(),
            max_fee: envelope.max_fee_per_gas(),
            tip: envelope.max_priority_fee_per_gas().unwrap_or(0),
        };
        self.take(tx).map_err(refused)?;
        Ok(json!(hash))
    }

    fn receipt(&self, hash: &Value) -> Value {
        let hash: Option<B256> = hash.as_str().and_then(|text| text.parse().ok());
        let found = self.blocks.iter().rev().find_map(|block| {
            let mined = block.txs.iter().find(|mined| Some(mined.tx.hash) == hash)?;
            Some((block, mined))
        });
        let Some((block, mined)) = found else { return Value::Null };
        json!({
            "transactionHash": mined.tx.hash, "transactionIndex": "0x0", "blockHash": block.hash,
            "blockNumber": format!("{:#x}", block.number), "from": mined.tx.sender, "to": mined.tx.to,
            "cumulativeGasUsed": "0x5208", "gasUsed": "0x5208", "contractAddress": null, "logs": [],
            "logsBloom": Bytes::from(vec![0; 256]), "type": "0x2", "effectiveGasPrice": "0x1",
            "status": if mined.succeeded { "0x1" } else { "0x0" },
        })
    }
}

fn address(value: &Value) -> Option<Address> {
    value.as_str()?.parse().ok()
}

fn call(request: &Value) -> Result<(Address, Bytes), (i64, String, Option<Bytes>)> {
    let malformed = || refused("the call is malformed");
    let input = request.get("input").or_else(|| request.get("data")).and_then(Value::as_str);
    let input = input.and_then(|text| text.parse().ok()).ok_or_else(malformed)?;
    Ok((request.get("to").and_then(address).ok_or_else(malformed)?, input))
}

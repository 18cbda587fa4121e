//! One URL, several nodes: a block that one of them has announced, and that another one does not have yet.
//!
//! Balanced nodes are some hundred milliseconds apart. Requested from the one that is behind, an announced block is
//! `null`, or "header not found". Neither is a fault of the endpoint: the request is repeated for as long as nodes are
//! apart. Blocks that nobody has announced lately are not waited for, nor are transactions ever sent again from here.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use alloy::primitives::B256;
use alloy::rpc::json_rpc::{RequestPacket, Response, ResponsePacket, ResponsePayload, SerializedRequest};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::Value;

/// The pauses between repetitions: the last one is a second after the first request.
pub(super) const PAUSES: [Duration; 5] = [
    Duration::from_millis(50),
    Duration::from_millis(100),
    Duration::from_millis(150),
    Duration::from_millis(300),
    Duration::from_millis(400),
];
/// Blocks below the newest one that count as announced lately.
const RECENT: u64 = 64;
/// Nodes' words for a block that they do not have.
const WORDS: [&str; 6] = [
    "header not found",
    "block not found",
    "unknown block",
    "header for hash not found",
    "resource not found",
    "cannot query unfinalized data",
];

/// The blocks that a URL's answers have had lately.
#[derive(Clone, Default)]
pub(super) struct Announced(Arc<Mutex<VecDeque<Block>>>);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
struct Block {
    #[serde(deserialize_with = "quantity")]
    number: u64,
    hash: B256,
}

fn quantity<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    let text = String::deserialize(deserializer)?;
    number(&text).ok_or_else(|| serde::de::Error::custom("not a number"))
}

fn number(text: &str) -> Option<u64> {
    u64::from_str_radix(text.strip_prefix("0x")?, 16).ok()
}

impl Announced {
    /// Keeps the blocks of an answer.
    pub(super) fn learn(&self, request: &RequestPacket, answer: &ResponsePacket) {
        if !request.requests().iter().any(is_for_a_block) {
            return;
        }
        for response in answer.responses() {
            if let ResponsePayload::Success(result) = &response.payload
                && let Ok(block) = serde_json::from_str::<Block>(result.get())
            {
                self.insert(block);
            }
        }
    }

    fn insert(&self, block: Block) {
        let mut blocks = self.0.lock();
        let newest = blocks.iter().map(|known| known.number).max().unwrap_or_default().max(block.number);
        blocks.retain(|known| known.number.saturating_add(RECENT) > newest && *known != block);
        if block.number.saturating_add(RECENT) > newest {
            blocks.push_back(block);
        }
        // Branches of many reorganizations.
        while blocks.len() > 2 * usize::try_from(RECENT).unwrap_or(64) {
            blocks.pop_front();
        }
    }

    /// Whether some answer denies a block that was announced, so that another node may give it.
    pub(super) fn denied(&self, request: &RequestPacket, answer: &ResponsePacket) -> bool {
        let requests = request.requests();
        if requests.iter().any(|request| request.method() == "eth_sendRawTransaction") {
            return false;
        }
        let responses = answer.responses();
        requests.iter().any(|request| {
            // An error may be the answer to a batch as a whole.
            let of = |response: &&Response| response.id == *request.id() || responses.len() < requests.len();
            responses
                .iter()
                .find(of)
                .is_some_and(|response| lacks_block(request, &response.payload) && self.names(request))
        })
    }

    /// Whether a block that was announced lately is among the parameters.
    fn names(&self, request: &SerializedRequest) -> bool {
        let Some(Ok(params)) =
            request.params().map(|params| serde_json::from_str::<Vec<Value>>(params.get()))
        else {
            return false;
        };
        let blocks = self.0.lock();
        params.iter().any(|param| {
            let text = param.as_str().or_else(|| param.get("blockHash")?.as_str());
            let Some(text) = text else { return false };
            match text.parse::<B256>() {
                Ok(hash) => blocks.iter().any(|block| block.hash == hash),
                Err(_) => number(text).is_some_and(|asked| {
                    let newest = blocks.iter().map(|block| block.number).max();
                    newest.is_some_and(|newest| asked <= newest && asked.saturating_add(RECENT) > newest)
                }),
            }
        })
    }
}

fn is_for_a_block(request: &SerializedRequest) -> bool {
    matches!(request.method(), "eth_getBlockByNumber" | "eth_getBlockByHash")
}

fn lacks_block(request: &SerializedRequest, payload: &ResponsePayload) -> bool {
    match payload {
        ResponsePayload::Success(result) => {
            result.get() == "null" && (is_for_a_block(request) || request.method() == "eth_getBlockReceipts")
        }
        ResponsePayload::Failure(error) => {
            let said = error.message.to_ascii_lowercase();
            WORDS.iter().any(|words| said.contains(words))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloy::rpc::json_rpc::{Id, Request};
    use serde_json::json;

    fn request(method: &'static str, params: Value) -> RequestPacket {
        RequestPacket::Single(Request::new(method, Id::Number(7), params).serialize().unwrap())
    }

    fn answer(body: Value) -> ResponsePacket {
        let mut body = body;
        body["jsonrpc"] = "2.0".into();
        body["id"] = 7.into();
        serde_json::from_value(body).unwrap()
    }

    #[test]
    fn a_denied_block_is_waited_for_when_it_was_announced_lately() {
        let announced = Announced::default();
        let hash = |n: u8| B256::repeat_byte(n);
        for (n, byte) in [(0x10, 1), (0x100, 2)] {
            let head = answer(json!({"result": {"number": format!("{n:#x}"), "hash": hash(byte)}}));
            announced.learn(&request("eth_getBlockByNumber", json!(["latest", false])), &head);
        }
        let null = || answer(json!({"result": null}));
        let refused = |message: &str| answer(json!({"error": {"code": -32000, "message": message}}));
        let header = || refused("header not found");
        let waits = |method, params, answer| announced.denied(&request(method, params), &answer);
        assert!(waits("eth_getBlockByNumber", json!(["0x100", false]), null()));
        assert!(waits("eth_getBlockByNumber", json!(["0xff", false]), null()));
        assert!(waits("eth_getBlockReceipts", json!([hash(2)]), null()));
        assert!(waits("eth_call", json!([{"to": "0x00"}, {"blockHash": hash(2)}]), header()));
        assert!(waits("eth_getLogs", json!([{"blockHash": hash(2)}]), refused("Unknown block.")));
        // Nobody has announced it, or it is long ago.
        assert!(!waits("eth_getBlockByNumber", json!(["0x101", false]), null()));
        assert!(!waits("eth_getBlockByNumber", json!(["0x10", false]), null()));
        assert!(!waits("eth_call", json!([{}, {"blockHash": hash(1)}]), header()));
        assert!(!waits("eth_call", json!([{}, {"blockHash": hash(3)}]), header()));
        // Another answer, or no block is named.
        assert!(!waits("eth_call", json!([{}, {"blockHash": hash(2)}]), refused("execution reverted")));
        assert!(!waits("eth_getBlockByNumber", json!(["safe", false]), null()));
        assert!(!waits("eth_getTransactionReceipt", json!([hash(2)]), null()));
        assert!(!waits("eth_sendRawTransaction", json!(["0x100"]), header()));
    }
}

//! A profile before a node: it refuses, words, limits and forgets as the profile's node does.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use alloy::consensus::transaction::SignerRecoverable as _;
use alloy::consensus::{Transaction as _, TxEnvelope};
use alloy::eips::eip2718::Decodable2718 as _;
use alloy::primitives::{B256, Bytes};
use axum::http::StatusCode;
use serde_json::{Value, json};

use super::profile::{HashForm, Profile, RevertData, Words};
use crate::rpc::number;

/// Methods whose last parameter is a block.
const AT_A_BLOCK: [&str; 5] =
    ["eth_call", "eth_estimateGas", "eth_getBalance", "eth_getCode", "eth_getTransactionCount"];

/// Too many requests.
pub(crate) struct Limited {
    pub(crate) retry_after: u64,
}

pub(crate) struct Manners {
    profile: Profile,
    requests: AtomicU64,
    /// The numbers of the blocks that it has told.
    numbers: Mutex<HashMap<String, u64>>,
    /// What it has refused, by the reason.
    refused: Mutex<BTreeMap<&'static str, u64>>,
}

type Answered = Result<Value, StatusCode>;

/// The node behind.
pub(crate) trait Upstream: Sync {
    fn said(&self, call: Value) -> impl Future<Output = Answered> + Send;
}

impl Manners {
    pub(crate) fn of(profile: Profile) -> Self {
        Self { profile, requests: AtomicU64::new(0), numbers: Mutex::default(), refused: Mutex::default() }
    }

    pub(crate) fn refused(&self) -> BTreeMap<&'static str, u64> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn note(&self, reason: &'static str) {
        *self.refused.lock().unwrap_or_else(PoisonError::into_inner).entry(reason).or_default() += 1;
    }

    pub(crate) async fn exchange(&self, request: &Value, node: &impl Upstream) -> Result<Answered, Limited> {
        let turn = self.requests.fetch_add(1, Ordering::Relaxed) + 1;
        if self.profile.limited_one_in.is_some_and(|one_in| turn.is_multiple_of(one_in)) {
            self.note("limited");
            return Err(Limited { retry_after: self.profile.retry_after_secs });
        }
        // Every other machine behind the URL is late.
        let lag = if turn.is_multiple_of(2) { self.profile.lag } else { 0 };
        let Value::Array(calls) = request else { return Ok(self.one(request, lag, node).await) };
        if self.profile.batch_max.is_some_and(|most| calls.len() > most) {
            let refused = self.refusal("batch", self.profile.words.batch.as_ref(), self.profile.batch_max);
            return Ok(Ok(failure(&Value::Null, &refused)));
        }
        let mut answers = Vec::with_capacity(calls.len());
        for call in calls {
            match self.one(call, lag, node).await {
                Ok(answer) => answers.push(answer),
                Err(status) => return Ok(Err(status)),
            }
        }
        Ok(Ok(Value::Array(answers)))
    }

    async fn one(&self, call: &Value, lag: u64, node: &impl Upstream) -> Answered {
        let head = number(&asked(node, "eth_blockNumber", json!([])).await?).unwrap_or_default();
        let head = head.saturating_sub(lag);
        if let Some(refused) = self.refuses(call, head, node).await? {
            return Ok(failure(&call["id"], &refused));
        }
        let mut call = call.clone();
        let method = call["method"].as_str().unwrap_or_default().to_owned();
        if method == "eth_getBlockByNumber" {
            let wanted = match (call["params"][0].as_str(), self.profile.final_lag) {
                (Some("latest"), _) => Some(head),
                (Some("finalized" | "safe"), Some(below)) => Some(head.saturating_sub(below)),
                _ => None,
            };
            if let Some(wanted) = wanted {
                call["params"][0] = format!("{wanted:#x}").into();
            }
            if number(&call["params"][0]).is_ok_and(|wanted| wanted > head) {
                return Ok(json!({"jsonrpc": "2.0", "id": call["id"], "result": null}));
            }
        }
        let mut answer = node.said(call).await?;
        if answer["error"].is_object() {
            answer["error"] = self.reworded(&answer["error"]);
        }
        if let Some(result) = answer.get_mut("result") {
            self.edit(&method, result);
        }
        Ok(answer)
    }

    fn refusal(
        &self,
        reason: &'static str,
        words: Option<&Words>,
        limit: Option<impl std::fmt::Display>,
    ) -> Words {
        self.note(reason);
        let (code, text) = words.cloned().unwrap_or((-32000, reason.to_owned()));
        (code, limit.map_or_else(|| text.clone(), |limit| text.replace("{}", &limit.to_string())))
    }

    /// The refusal of a call that other nodes answer.
    async fn refuses(
        &self,
        call: &Value,
        head: u64,
        node: &impl Upstream,
    ) -> Result<Option<Words>, StatusCode> {
        let Profile { words, .. } = &self.profile;
        let method = call["method"].as_str().unwrap_or_default();
        let first = &call["params"][0];
        if self.profile.no_methods.iter().any(|absent| absent == method) {
            self.note("no method");
            return Ok(Some((-32601, format!("the method {method} does not exist/is not available"))));
        }
        if method == "eth_getBlockByNumber"
            && self.profile.final_lag.is_none()
            && matches!(first.as_str(), Some("finalized" | "safe"))
        {
            return Ok(Some(self.refusal("no final block", Some(&words.no_block), None::<u64>)));
        }
        if method == "eth_getLogs" {
            let named = first["blockHash"].as_str();
            if named.is_some_and(|hash| self.is_ahead(hash, head)) {
                return Ok(Some(self.refusal("no block", Some(&words.no_block), None::<u64>)));
            }
            let range = number(&first["fromBlock"]).ok().zip(number(&first["toBlock"]).ok());
            let most = range.zip(self.profile.log_range_max).filter(|((from, to), most)| to - from >= *most);
            if let Some((_, most)) = most {
                return Ok(Some(self.refusal("log range", words.log_range.as_ref(), Some(most))));
            }
        }
        if AT_A_BLOCK.contains(&method) {
            return Ok(self.refuses_block(call, head));
        }
        if method == "eth_sendRawTransaction" {
            return self.refuses_transaction(first, node).await;
        }
        Ok(None)
    }

    fn refuses_block(&self, call: &Value, head: u64) -> Option<Words> {
        let Profile { words, hash_form, pruned_below, .. } = &self.profile;
        let block = call["params"].as_array()?.last()?;
        let bare = block.as_str().filter(|text| text.len() == 66);
        let named = block["blockHash"].as_str();
        let is_refused = match hash_form {
            HashForm::Both => false,
            HashForm::Object => bare.is_some(),
            HashForm::Bare => named.is_some(),
        };
        if is_refused {
            let text = "invalid argument 1: a block is wanted in another form";
            return Some(self.refusal("form of a block", Some(&(-32602, text.to_owned())), None::<u64>));
        }
        let hash = bare.or(named)?;
        if self.is_ahead(hash, head) {
            return Some(self.refusal("no block", Some(&words.no_block), None::<u64>));
        }
        let (below, at) = (pruned_below.as_ref()?, self.number_of(hash)?);
        (at.saturating_add(*below) < head).then(|| self.refusal("pruned", words.pruned.as_ref(), None::<u64>))
    }

    fn number_of(&self, hash: &str) -> Option<u64> {
        self.numbers.lock().unwrap_or_else(PoisonError::into_inner).get(hash).copied()
    }

    /// Whether a late machine does not have the block yet.
    fn is_ahead(&self, hash: &str, head: u64) -> bool {
        self.number_of(hash).is_some_and(|number| number > head)
    }

    async fn refuses_transaction(
        &self,
        raw: &Value,
        node: &impl Upstream,
    ) -> Result<Option<Words>, StatusCode> {
        let Profile { words, tx_bytes_max, tx_gas_max, tip_min_wei, nonces_ahead, .. } = &self.profile;
        let raw = raw.as_str().and_then(|text| text.parse::<Bytes>().ok()).unwrap_or_default();
        let Ok(tx) = TxEnvelope::decode_2718(&mut &raw[..]) else { return Ok(None) };
        if tx_bytes_max.is_some_and(|most| raw.len() > most) {
            return Ok(Some(self.refusal("bytes", words.tx_bytes.as_ref(), *tx_bytes_max)));
        }
        if tx_gas_max.is_some_and(|most| tx.gas_limit() > most) {
            return Ok(Some(self.refusal("gas", words.tx_gas.as_ref(), *tx_gas_max)));
        }
        let cost = u128::from(tx.gas_limit()).saturating_mul(tx.max_fee_per_gas());
        let fee_max = self.profile.tx_fee_max_wei.as_ref().and_then(|most| most.parse::<u128>().ok());
        if fee_max.is_some_and(|most| cost > most) {
            return Ok(Some(self.refusal("fee", words.fee_max.as_ref(), fee_max)));
        }
        let tip = tx.max_priority_fee_per_gas().unwrap_or_default();
        if tip_min_wei.is_some_and(|least| tip < least) {
            return Ok(Some(self.refusal("tip", words.tip_min.as_ref(), *tip_min_wei)));
        }
        if let (Some(ahead), Ok(signer)) = (nonces_ahead, tx.recover_signer()) {
            let mined = asked(node, "eth_getTransactionCount", json!([signer, "latest"])).await?;
            if tx.nonce() > number(&mined).unwrap_or_default().saturating_add(*ahead) {
                return Ok(Some(self.refusal("nonce", words.nonce_high.as_ref(), Some(ahead))));
            }
        }
        Ok(None)
    }

    /// An error of the node in the profile's words.
    fn reworded(&self, error: &Value) -> Value {
        let Profile { words, revert, .. } = &self.profile;
        let said = error["message"].as_str().unwrap_or_default().to_ascii_lowercase();
        if error["code"] == 3 || said.contains("revert") {
            let (code, text, form) = revert;
            // EDR has it within an object.
            let data = error["data"].as_str().or(error["data"]["data"].as_str());
            return match (form, data) {
                (RevertData::Hex, Some(data)) => json!({"code": code, "message": text, "data": data}),
                (RevertData::Worded, Some(data)) => {
                    json!({"code": code, "message": text, "data": format!("Reverted {data}")})
                }
                _ => json!({"code": code, "message": text}),
            };
        }
        let meant = [
            ("already", &words.known),
            ("known transaction", &words.known),
            ("nonce too low", &words.nonce_low),
            ("underpriced", &words.replacement),
            ("insufficient funds", &words.funds),
            ("enough funds", &words.funds),
            ("not found", &words.no_block),
        ];
        let found = meant.into_iter().find(|(known, _)| said.contains(known));
        found.map_or_else(|| error.clone(), |(_, (code, text))| json!({"code": code, "message": text}))
    }

    fn edit(&self, method: &str, result: &mut Value) {
        let Profile { no_block_fields, no_receipt_fields, .. } = &self.profile;
        if let ("eth_maxPriorityFeePerGas", Some(least)) = (method, self.profile.tip_min_wei) {
            *result = json!(format!("{least:#x}"));
        }
        let Some(fields) = result.as_object_mut() else { return };
        match method {
            "eth_getBlockByNumber" | "eth_getBlockByHash" => {
                let number = fields.get("number").and_then(|at| number(at).ok());
                if let (Some(hash), Some(number)) = (fields["hash"].as_str(), number) {
                    let mut numbers = self.numbers.lock().unwrap_or_else(PoisonError::into_inner);
                    numbers.insert(hash.to_owned(), number);
                }
                fields.insert("gasLimit".to_owned(), json!(format!("{:#x}", self.profile.block_gas)));
                // What is covered by the hash and used by nobody.
                if self.profile.other_block_hash {
                    fields.insert("stateRoot".to_owned(), json!(B256::ZERO));
                }
                fields.retain(|name, _| !no_block_fields.contains(name));
            }
            "eth_getTransactionReceipt" => fields.retain(|name, _| !no_receipt_fields.contains(name)),
            "eth_feeHistory" if self.profile.no_gas_ratios => {
                let blocks = fields["gasUsedRatio"].as_array().map_or(0, Vec::len);
                fields.insert("gasUsedRatio".to_owned(), json!(vec![Value::Null; blocks]));
            }
            _ => {}
        }
    }
}

async fn asked(node: &impl Upstream, method: &str, params: Value) -> Answered {
    let answer = node.said(json!({"jsonrpc": "2.0", "id": 0, "method": method, "params": params})).await?;
    Ok(answer["result"].clone())
}

fn failure(id: &Value, (code, message): &Words) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}})
}

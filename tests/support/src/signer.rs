//! A remote signer over TLS with a policy, as `docs/keys.md` describes the protocol. It may lie.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use alloy::consensus::{SignableTransaction as _, TxEip1559};
use alloy::primitives::{Address, B256, Bytes, Signature, TxKind, U256, uint};
use alloy::signers::SignerSync as _;
use alloy::signers::local::PrivateKeySigner;
use bytes::Bytes as Body;
use hyper::{Method, Request};
use serde_json::{Value, json};
use tokio_rustls::rustls::RootCertStore;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::server::WebPkiClientVerifier;

use crate::listening::{Answer, Listening, answer};
use crate::receiver::Authority;

const ORDER: U256 = uint!(0xfffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141_U256);

/// What the signer signs; by default nothing.
#[derive(Debug, Clone, Default)]
pub struct Policy {
    pub chain_id: u64,
    /// Contracts and the selectors of their functions.
    pub functions: Vec<(Address, [u8; 4])>,
    /// The most that a transaction may offer, in wei per gas.
    pub fee_cap_wei: u128,
    pub per_minute: usize,
}

/// How the signer answers a transaction that it allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    Honest,
    /// With the signature of another key.
    OtherKey,
    /// With the right signature in the form that EIP-2 forbids.
    HighS,
    /// With the signature of another transaction.
    OtherTransaction,
    /// With bytes that are no signature.
    Garbage,
    /// With something that is no JSON.
    NoJson,
    /// With a body that is longer than any answer.
    Endless,
    /// Never.
    Hang,
    /// With the status 500.
    Broken,
}

impl Manner {
    pub const LIES: [Self; 6] =
        [Self::OtherKey, Self::HighS, Self::OtherTransaction, Self::Garbage, Self::NoJson, Self::Endless];
}

struct Shared {
    key: PrivateKeySigner,
    policy: Mutex<Policy>,
    manner: Mutex<Manner>,
    /// When the transactions of the last minute were signed.
    signed: Mutex<Vec<Instant>>,
}

/// A signer that listens until it is dropped.
pub struct RemoteSigner {
    listening: Listening,
    dir: tempfile::TempDir,
    shared: Arc<Shared>,
}

impl RemoteSigner {
    /// Its certificate is for `localhost`.
    pub async fn start(key: PrivateKeySigner, policy: Policy) -> Self {
        let (ours, foreign) = (Authority::new(), Authority::new());
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: String| {
            let path = dir.path().join(name);
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        };
        write("ca.pem", ours.pem());
        write("other-ca.pem", foreign.pem());
        for (name, by) in [("client", &ours), ("stranger", &foreign)] {
            let (certificate, key) = by.issue(&[name], false);
            write(&format!("{name}.pem"), certificate.pem());
            write(&format!("{name}.key"), key.serialize_pem());
        }
        let mut roots = RootCertStore::empty();
        roots.add(ours.certificate()).unwrap();
        let provider = Arc::new(ring::default_provider());
        let clients = WebPkiClientVerifier::builder_with_provider(roots.into(), provider).build().unwrap();
        let shared = Arc::new(Shared {
            key,
            policy: Mutex::new(policy),
            manner: Mutex::new(Manner::Honest),
            signed: Mutex::default(),
        });
        let of_all = Arc::clone(&shared);
        let respond = move |request| respond(request, Arc::clone(&of_all));
        let config = ours.server(&["localhost"], false, clients);
        let listening = Listening::over_http(Some(config), respond).await;
        Self { listening, dir, shared }
    }

    pub fn url(&self) -> String {
        format!("https://localhost:{}", self.listening.address.port())
    }

    /// One of `ca.pem`, `client.pem`, `client.key`, and `other-ca.pem`, `stranger.pem`, `stranger.key`, which the signer
    /// does not know.
    pub fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The section of a configuration by which a service reaches the signer for an account.
    pub fn section(&self, name: &str, address: Address) -> String {
        let file = |name: &str| self.file(name).display().to_string();
        format!(
            "[[{name}]]\nurl = \"{}\"\naddress = \"{address}\"\nca = \"{}\"\n\
             client_certificate = \"{}\"\nclient_key = \"{}\"\n",
            self.url(),
            file("ca.pem"),
            file("client.pem"),
            file("client.key"),
        )
    }

    pub fn answer(&self, manner: Manner) {
        *self.shared.manner.lock().unwrap() = manner;
    }

    pub fn change_policy(&self, change: impl FnOnce(&mut Policy)) {
        change(&mut self.shared.policy.lock().unwrap());
    }

    /// The number of signatures, good or bad, in the last minute.
    pub fn signed(&self) -> usize {
        self.shared.signed.lock().unwrap().len()
    }
}

/// A refusal: its status, its code and a text.
type Refusal = (u16, &'static str, String);

async fn respond(request: Request<Body>, shared: Arc<Shared>) -> Answer {
    match (request.method(), request.uri().path()) {
        (&Method::GET, "/v1/accounts") => {
            if *shared.manner.lock().unwrap() == Manner::Hang {
                std::future::pending::<()>().await;
            }
            answer(200, json!({"accounts": [shared.key.address()]}).to_string())
        }
        (&Method::POST, "/v1/sign-transaction") => {
            let fields: Value = serde_json::from_slice(request.body()).unwrap_or_default();
            match judged(&fields, &shared) {
                Ok(tx) => signature(tx, &shared).await,
                Err((status, code, message)) => {
                    answer(status, json!({"error": {"code": code, "message": message}}).to_string())
                }
            }
        }
        _ => answer(404, "{}"),
    }
}

/// The transaction, if the policy allows it.
fn judged(fields: &Value, shared: &Shared) -> Result<TxEip1559, Refusal> {
    let malformed = |name: &str| (400, "malformed", format!("{name} is missing or malformed"));
    let text = |name: &str| fields[name].as_str().ok_or_else(|| malformed(name));
    let number = |name: &str| text(name)?.parse::<u128>().map_err(|_| malformed(name));
    let small = |name: &str| u64::try_from(number(name)?).map_err(|_| malformed(name));
    let address: Address = text("address")?.parse().map_err(|_| malformed("address"))?;
    let tx = TxEip1559 {
        chain_id: small("chainId")?,
        nonce: small("nonce")?,
        gas_limit: small("gasLimit")?,
        max_fee_per_gas: number("maxFeePerGas")?,
        max_priority_fee_per_gas: number("maxPriorityFeePerGas")?,
        to: match &fields["to"] {
            Value::Null => TxKind::Create,
            _ => TxKind::Call(text("to")?.parse().map_err(|_| malformed("to"))?),
        },
        value: text("value")?.parse().map_err(|_| malformed("value"))?,
        access_list: Default::default(),
        input: text("data")?.parse::<Bytes>().map_err(|_| malformed("data"))?,
    };
    if address != shared.key.address() {
        return Err((404, "unknown_account", format!("{address} is not an account of this signer")));
    }
    let policy = shared.policy.lock().unwrap();
    let refused = |code, message: String| Err((403, code, message));
    if tx.chain_id != policy.chain_id {
        return refused("chain_not_allowed", format!("chain {}", tx.chain_id));
    }
    let TxKind::Call(to) = tx.to else {
        return refused("contract_not_allowed", "the creation of a contract".to_owned());
    };
    if !tx.value.is_zero() {
        return refused("value_not_allowed", format!("{} wei", tx.value));
    }
    if tx.max_fee_per_gas > policy.fee_cap_wei {
        return refused("fee_not_allowed", format!("{} wei per gas", tx.max_fee_per_gas));
    }
    // An empty transaction to the own account uses up a nonce.
    if to != address || !tx.input.is_empty() {
        if !policy.functions.iter().any(|(contract, _)| *contract == to) {
            return refused("contract_not_allowed", format!("the contract {to}"));
        }
        let selector = tx.input.get(..4).unwrap_or_default();
        if !policy.functions.iter().any(|(contract, of)| *contract == to && of == selector) {
            return refused("function_not_allowed", format!("0x{} of {to}", hex::encode(selector)));
        }
    }
    let mut signed = shared.signed.lock().unwrap();
    signed.retain(|at| at.elapsed() < Duration::from_secs(60));
    if signed.len() >= policy.per_minute {
        return Err((429, "rate_exceeded", format!("{} a minute", policy.per_minute)));
    }
    signed.push(Instant::now());
    Ok(tx)
}

async fn signature(tx: TxEip1559, shared: &Shared) -> Answer {
    let manner = *shared.manner.lock().unwrap();
    let digest = tx.signature_hash();
    let honest = shared.key.sign_hash_sync(&digest).unwrap();
    let said = |signature: Signature| {
        let bytes = Bytes::copy_from_slice(&signature.as_bytes());
        answer(200, json!({"signature": bytes}).to_string())
    };
    match manner {
        Manner::Honest => said(honest),
        Manner::OtherKey => {
            let other = PrivateKeySigner::from_bytes(&B256::repeat_byte(0x11)).unwrap();
            said(other.sign_hash_sync(&digest).unwrap())
        }
        Manner::HighS => said(Signature::new(honest.r(), ORDER - honest.s(), !honest.v())),
        Manner::OtherTransaction => {
            let other = TxEip1559 { nonce: tx.nonce + 1, ..tx };
            said(shared.key.sign_hash_sync(&other.signature_hash()).unwrap())
        }
        Manner::Garbage => answer(200, json!({"signature": "0x0102"}).to_string()),
        Manner::NoJson => answer(200, "signed, honestly"),
        Manner::Endless => answer(200, vec![b' '; 1 << 20]),
        Manner::Hang => std::future::pending().await,
        Manner::Broken => answer(500, "{}"),
    }
}

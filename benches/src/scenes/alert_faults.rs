//! Faults of a sandbox's parts, and what undoes them.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use axum::extract::State;
use axum::http::StatusCode;
use chrono::Datelike as _;
use dvp_sandbox::embedded::signals::{processes, signal};
use rcgen::{CertificateParams, KeyPair, date_time_ymd};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::sandbox::Sandbox;
use crate::rpc::Rpc;

/// Processes that are suspended until this is dropped.
pub struct Suspended(Vec<String>);

impl Suspended {
    fn new(pids: Vec<String>) -> Self {
        signal("-STOP", &pids).unwrap();
        Self(pids)
    }

    pub fn node_of(sandbox: &Sandbox) -> Self {
        let pid = fs::read_to_string(sandbox.dir().join("anvil/pid")).unwrap();
        Self::new(vec![pid.trim().to_owned()])
    }

    pub fn database_of(sandbox: &Sandbox) -> Self {
        let server = fs::read_to_string(sandbox.dir().join("postgres/data/postmaster.pid")).unwrap();
        Self::new(processes(server.lines().next().unwrap().trim().parse().unwrap()).unwrap())
    }
}

impl Drop for Suspended {
    fn drop(&mut self) {
        let _ = signal("-CONT", &self.0);
    }
}

/// Gives the FIX listener a certificate that expires tomorrow. Returns its files as they were.
pub fn expiring_certificate(sandbox: &Sandbox) -> Vec<(PathBuf, Vec<u8>)> {
    let files = ["key.pem", "cert.pem"].map(|name| sandbox.dir().join("fix-tls").join(name));
    let before = files.iter().map(|path| (path.clone(), fs::read(path).unwrap())).collect();
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let tomorrow = chrono::Utc::now().date_naive() + chrono::Days::new(1);
    let [month, day] = [tomorrow.month(), tomorrow.day()].map(|part| u8::try_from(part).unwrap());
    params.not_after = date_time_ymd(tomorrow.year(), month, day);
    let certificate = params.self_signed(&key).unwrap().pem();
    fs::write(&files[0], key.serialize_pem()).unwrap();
    fs::write(&files[1], certificate).unwrap();
    before
}

pub async fn call_node(sandbox: &Sandbox, method: &str, params: Value) -> Value {
    Rpc::new(&sandbox.text("/chain/rpcUrl")).one(method, params).await.unwrap()
}

/// Puts a contract in the anchor's place that refuses `anchor` and `anchorMany`, and carries out everything else as the
/// anchor does, from a copy of its code. Returns the address and its code.
pub async fn refuse_anchors(sandbox: &Sandbox) -> Value {
    let anchor = sandbox.text("/chain/contracts/anchor");
    let code = call_node(sandbox, "eth_getCode", json!([anchor, "latest"])).await;
    let copy = "00000000000000000000000000000000c0ffee00";
    call_node(sandbox, "anvil_setCode", json!([format!("0x{copy}"), code])).await;
    let selector = |signature: &str| hex::encode(&alloy::primitives::keccak256(signature)[..4]);
    let (one, many) = (selector("anchor(bytes32)"), selector("anchorMany(bytes32[])"));
    // The call's data to memory; its selector; to the end if it is one of both; else a delegated call of the copy.
    let refusing = format!(
        "0x363d3d373d3560e01c8063{one}1460415763{many}146041573d3d363d73{copy}5af43d600060003e3d6000f35b60006000fd"
    );
    call_node(sandbox, "anvil_setCode", json!([anchor, refusing])).await;
    json!([anchor, code])
}

/// What an endpoint says in place of the truth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lie {
    /// Blocks have no events.
    NoEvents,
    /// The newest block, and the final one, are far above.
    FarHead,
    /// Every block has another hash.
    OtherBlocks,
}

impl Lie {
    /// Its answer to a request; `None`: the node's.
    fn instead(self, request: &Value) -> Option<Value> {
        let of_block = request["method"] == "eth_getLogs" && !request["params"][0]["blockHash"].is_null();
        match self {
            Self::NoEvents => of_block.then(|| json!([])),
            Self::FarHead => (request["method"] == "eth_blockNumber").then(|| json!("0x7fffffff")),
            Self::OtherBlocks => None,
        }
    }

    fn spoil(self, request: &Value, answer: &mut Value) {
        let by_number = request["method"] == "eth_getBlockByNumber" && answer["result"].is_object();
        let is_named = request["params"][0].as_str().is_some_and(|block| !block.starts_with("0x"));
        match self {
            Self::FarHead if by_number && is_named => answer["result"]["number"] = "0x7fffffff".into(),
            Self::OtherBlocks if by_number => {
                let hash = answer["result"]["hash"].as_str().unwrap_or_default();
                answer["result"]["hash"] = format!("{}00", &hash[..hash.len().saturating_sub(2)]).into();
            }
            Self::NoEvents | Self::FarHead | Self::OtherBlocks => {}
        }
    }
}

/// A second endpoint of a sandbox's first chain: the node's own answers, or lies.
pub struct Endpoint {
    addr: SocketAddr,
    place: Arc<EndpointPlace>,
    serving: JoinHandle<()>,
}

struct EndpointPlace {
    client: reqwest::Client,
    node: OnceLock<String>,
    lie: Mutex<Option<Lie>>,
    told: AtomicU64,
}

impl Endpoint {
    pub async fn start() -> Self {
        let place = Arc::new(EndpointPlace {
            client: reqwest::Client::new(),
            node: OnceLock::new(),
            lie: Mutex::new(None),
            told: AtomicU64::new(0),
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let router = axum::Router::new().fallback(answer).with_state(Arc::clone(&place));
        let serving = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { addr, place, serving }
    }

    pub fn url(&self) -> String {
        format!("http://{}/", self.addr)
    }

    pub fn follow(&self, sandbox: &Sandbox) {
        self.place.node.get_or_init(|| sandbox.text("/chain/rpcUrl"));
    }

    pub fn told(&self) -> u64 {
        self.place.told.load(Ordering::SeqCst)
    }

    pub fn lie(&self, lie: Option<Lie>) {
        *self.place.lie.lock().unwrap() = lie;
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// Until the sandbox's node is known, nothing is answered well.
async fn answer(State(place): State<Arc<EndpointPlace>>, body: String) -> Result<String, StatusCode> {
    let node = place.node.get().ok_or(StatusCode::SERVICE_UNAVAILABLE)?;
    let request: Value = serde_json::from_str(&body).map_err(|_| StatusCode::BAD_REQUEST)?;
    let lie = *place.lie.lock().unwrap();
    if let Some(instead) = lie.and_then(|lie| lie.instead(&request)) {
        place.told.fetch_add(1, Ordering::SeqCst);
        return Ok(json!({"jsonrpc": "2.0", "id": request["id"], "result": instead}).to_string());
    }
    let passed = place.client.post(node).header("content-type", "application/json").body(body).send().await;
    let passed = passed.map_err(|_| StatusCode::BAD_GATEWAY)?.text().await;
    let passed = passed.map_err(|_| StatusCode::BAD_GATEWAY)?;
    let Some(lie) = lie else { return Ok(passed) };
    let mut answer: Value = serde_json::from_str(&passed).map_err(|_| StatusCode::BAD_GATEWAY)?;
    let truth = answer.clone();
    lie.spoil(&request, &mut answer);
    place.told.fetch_add(u64::from(answer != truth), Ordering::SeqCst);
    Ok(answer.to_string())
}

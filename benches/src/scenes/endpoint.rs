//! An endpoint before the node of a drill's chain: it passes calls on, lies, behaves as another node does, or stands
//! still.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::RETRY_AFTER;
use axum::response::{IntoResponse as _, Response};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::manners::{Limited, Manners, Upstream};
use super::sandbox::Sandbox;

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

pub struct Endpoint {
    addr: SocketAddr,
    place: Arc<EndpointPlace>,
    serving: JoinHandle<()>,
}

struct EndpointPlace {
    client: reqwest::Client,
    node: OnceLock<String>,
    manners: Option<Manners>,
    lie: Mutex<Option<Lie>>,
    told: AtomicU64,
    is_still: AtomicBool,
}

impl Endpoint {
    pub async fn start() -> Self {
        Self::with(None).await
    }

    /// One that behaves as the node of a profile.
    pub(crate) async fn like(manners: Manners) -> Self {
        Self::with(Some(manners)).await
    }

    async fn with(manners: Option<Manners>) -> Self {
        let place = Arc::new(EndpointPlace {
            client: reqwest::Client::new(),
            node: OnceLock::new(),
            manners,
            lie: Mutex::new(None),
            told: AtomicU64::new(0),
            is_still: AtomicBool::new(false),
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
        self.lead_to(&sandbox.text("/chain/rpcUrl"));
    }

    pub(crate) fn lead_to(&self, node: &str) {
        self.place.node.get_or_init(|| node.to_owned());
    }

    pub fn told(&self) -> u64 {
        self.place.told.load(Ordering::SeqCst)
    }

    pub fn lie(&self, lie: Option<Lie>) {
        *self.place.lie.lock().unwrap() = lie;
    }

    /// From now on it takes requests and does not answer, or answers again.
    pub(crate) fn stand_still(&self, is_still: bool) {
        self.place.is_still.store(is_still, Ordering::SeqCst);
    }

    pub(crate) fn manners(&self) -> Option<&Manners> {
        self.place.manners.as_ref()
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl EndpointPlace {
    async fn passed_on(&self, node: &str, request: &Value) -> Result<Value, StatusCode> {
        let passed = self.client.post(node).json(request).send().await;
        let passed = passed.map_err(|_| StatusCode::BAD_GATEWAY)?.json().await;
        passed.map_err(|_| StatusCode::BAD_GATEWAY)
    }
}

impl Upstream for EndpointPlace {
    /// The answer to a call, or the node's to all calls of a request.
    async fn said(&self, request: Value) -> Result<Value, StatusCode> {
        // Until the node is known, nothing is answered well.
        let node = self.node.get().ok_or(StatusCode::SERVICE_UNAVAILABLE)?;
        let lie = *self.lie.lock().unwrap();
        if let Some(instead) = lie.and_then(|lie| lie.instead(&request)) {
            self.told.fetch_add(1, Ordering::SeqCst);
            return Ok(json!({"jsonrpc": "2.0", "id": request["id"], "result": instead}));
        }
        let mut answer = self.passed_on(node, &request).await?;
        if let Some(lie) = lie {
            let truth = answer.clone();
            lie.spoil(&request, &mut answer);
            self.told.fetch_add(u64::from(answer != truth), Ordering::SeqCst);
        }
        Ok(answer)
    }
}

async fn answer(State(place): State<Arc<EndpointPlace>>, body: String) -> Response {
    while place.is_still.load(Ordering::SeqCst) {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let Ok(request) = serde_json::from_str::<Value>(&body) else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    let answered = match &place.manners {
        Some(manners) => match manners.exchange(&request, &*place).await {
            Ok(answered) => answered,
            Err(Limited { retry_after }) => {
                let words = "Too Many Requests";
                return (StatusCode::TOO_MANY_REQUESTS, [(RETRY_AFTER, retry_after.to_string())], words)
                    .into_response();
            }
        },
        None => place.said(request).await,
    };
    match answered {
        Ok(answer) => answer.to_string().into_response(),
        Err(status) => status.into_response(),
    }
}

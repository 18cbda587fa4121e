//! `POST /v1/intents` over loopback: signature, idempotency, decision and commit, beside submissions through the
//! engine on the same database; and reads of executions.
//!
//! The client is a few lines over a socket, and its requests are made and signed beforehand: what is measured is the
//! service, on a machine that also has to run the client.

use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use axum::{Router, routing};
use dvp_api::{Api, Limits};
use dvp_core::context::now;
use dvp_core::operators::keys::{Issued, SCOPES, issue};
use dvp_core::secrets::mac;
use dvp_domain::environment::Environment;
use dvp_domain::intent::{Bounds, IntentRequest};
use futures_util::future::try_join_all;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use crate::figure::{Figure, per_second};
use crate::harness::{DurableHarness, order};
use crate::progress;
use crate::submit::{ORDERS_A_SECOND, submissions};

pub async fn measure(seconds: u64, concurrency: usize) -> anyhow::Result<Figure> {
    progress::expect(2);
    let dir = tempfile::tempdir()?;
    let harness = DurableHarness::start(dir.path()).await?;
    let served = Served::start(&harness).await?;
    let count = usize::try_from(seconds)?.saturating_mul(ORDERS_A_SECOND);
    let make = move || (0..count).map(|_| order()).collect();
    let floor_orders = tokio::task::spawn_blocking(make).await?;
    let floor = submissions(&harness, floor_orders, seconds, concurrency).await?;
    let keys = served.keys.clone();
    let requests = tokio::task::spawn_blocking(move || {
        (0..count).map(|_| request(&order(), &keys)).collect::<anyhow::Result<Vec<_>>>()
    });
    let requests = Mutex::new(requests.await??);
    let next = || requests.lock().ok().and_then(|mut requests| requests.pop());
    let value = drive(served.address, seconds, concurrency, 202, next).await?;
    served.stop.cancel();
    harness.stop().await?;
    Ok(Figure::new("http", value, "orders/s", floor))
}

/// How many executions there are to be read.
const EXECUTIONS: usize = 1_000;

/// `GET /v1/executions/{reference}`, beside a bare route that returns the same bytes: what key, limits, lookup and rendering
/// cost.
pub async fn measure_reads(seconds: u64, concurrency: usize) -> anyhow::Result<Figure> {
    progress::expect(2);
    let dir = tempfile::tempdir()?;
    let harness = DurableHarness::start(dir.path()).await?;
    let served = Served::start(&harness).await?;
    let mut requests = Vec::with_capacity(EXECUTIONS);
    let mut body = String::new();
    for _ in 0..EXECUTIONS {
        let reference = harness.accept(order()).await.reference;
        let path = format!("/v1/executions/{reference}?refType=executionId");
        requests.push(get(&path, &served.keys));
        body = serde_json::to_string(&harness.view(&reference).await)?;
    }
    let bare = TcpListener::bind("127.0.0.1:0").await?;
    let address = bare.local_addr()?;
    let answer = move || async move { ([(header::CONTENT_TYPE, "application/json")], body.clone()) };
    let router = Router::new().route("/v1/executions/{reference}", routing::get(answer));
    tokio::spawn(async move { axum::serve(bare, router).await });

    let turn = AtomicUsize::new(0);
    let next = || {
        let n = turn.fetch_add(1, Ordering::Relaxed);
        requests.get(n % EXECUTIONS).cloned()
    };
    let floor = drive(address, seconds, concurrency, 200, next).await?;
    let value = drive(served.address, seconds, concurrency, 200, next).await?;
    served.stop.cancel();
    harness.stop().await?;
    Ok(Figure::new("reads", value, "requests/s", floor))
}

#[derive(Debug, Clone)]
pub struct Keys {
    pub api_key: String,
    pub signing_secret: String,
}

impl Keys {
    /// From the ready file of a sandbox, or what `dvp key issue` prints.
    pub(crate) fn of(issued: &Value) -> anyhow::Result<Self> {
        let found =
            |name: &str| issued[name].as_str().with_context(|| format!("no {name}")).map(str::to_owned);
        Ok(Self { api_key: found("apiKey")?, signing_secret: found("signingSecret")? })
    }

    /// A signed POST with a nonce of its own.
    pub(crate) fn post(
        &self,
        client: &reqwest::Client,
        (base, path): (&str, &str),
        idempotency_key: &str,
        body: impl Into<Vec<u8>>,
    ) -> anyhow::Result<reqwest::RequestBuilder> {
        let body = body.into();
        let signed = headers(self.signing_secret.as_bytes(), path, &body, now().unix_secs())?;
        Ok(client
            .post(format!("{base}{path}"))
            .header("X-API-Key", &self.api_key)
            .header("Content-Type", "application/json")
            .header("X-Idempotency-Key", idempotency_key)
            .headers(signed)
            .body(body))
    }
}

pub struct Served {
    pub address: SocketAddr,
    pub keys: Keys,
    pub stop: CancellationToken,
}

impl Served {
    /// Serves the harness's engine and issues a key whose partner has no limit to speak of.
    pub async fn start(harness: &DurableHarness) -> anyhow::Result<Self> {
        Self::start_with(harness, Limits::default()).await
    }

    pub(crate) async fn start_with(harness: &DurableHarness, limits: Limits) -> anyhow::Result<Self> {
        sqlx::query("update partner set limit_per_minute = 1000000000").execute(harness.pool()).await?;
        let mut conn = harness.pool().acquire().await?;
        let vault = &harness.engine.context().vault;
        let scopes = SCOPES.map(str::to_owned);
        let Issued { api_key, signing_secret, .. } =
            issue(&mut conn, vault, &harness.tenant.partner_id, Environment::Test, &scopes).await?;
        drop(conn);
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let stop = CancellationToken::new();
        tokio::spawn(dvp_api::serve(
            listener,
            Api::new(harness.engine.clone()).with_limits(limits),
            stop.clone(),
        ));
        Ok(Self { address, keys: Keys { api_key, signing_secret }, stop })
    }
}

/// Sends requests for `seconds` over `concurrency` connections and counts the answers, each of which must have
/// `status`.
pub async fn drive(
    address: SocketAddr,
    seconds: u64,
    concurrency: usize,
    status: u16,
    next: impl Fn() -> Option<Vec<u8>>,
) -> anyhow::Result<u64> {
    let started = Instant::now();
    let until = started + Duration::from_secs(seconds);
    let callers = (0..concurrency).map(|_| async {
        let mut client = Client::connect(address).await?;
        let mut done = 0_usize;
        while Instant::now() < until {
            let request = next().context("the requests made beforehand ran out")?;
            let answered = client.ask(&request).await?;
            anyhow::ensure!(answered == status, "{answered}: {}", client.text());
            done = done.saturating_add(1);
        }
        Ok(done)
    });
    let done: usize = try_join_all(callers).await?.into_iter().sum();
    progress::done(format!("{concurrency} connections"));
    Ok(per_second(done, started.elapsed()))
}

/// One connection that waits for each answer.
pub(crate) struct Client {
    socket: TcpStream,
    buffer: Vec<u8>,
}

impl Client {
    pub(crate) async fn connect(address: SocketAddr) -> anyhow::Result<Self> {
        let socket = TcpStream::connect(address).await?;
        socket.set_nodelay(true)?;
        Ok(Self { socket, buffer: Vec::with_capacity(8192) })
    }

    /// The status of the answer, once all of it is here.
    pub(crate) async fn ask(&mut self, request: &[u8]) -> anyhow::Result<u16> {
        self.socket.write_all(request).await?;
        self.buffer.clear();
        loop {
            if let Some(status) = answered(&self.buffer) {
                return Ok(status);
            }
            anyhow::ensure!(self.socket.read_buf(&mut self.buffer).await? > 0, "the connection was ended");
        }
    }

    /// The last answer, with its head.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.buffer).into_owned()
    }
}

/// The status of a whole answer, `None` while some of it is missing.
fn answered(bytes: &[u8]) -> Option<u16> {
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n")?;
    let head = std::str::from_utf8(bytes.get(..end)?).ok()?;
    let length =
        head.lines().find_map(|line| line.strip_prefix("content-length: "))?.parse::<usize>().ok()?;
    (bytes.len() >= end.saturating_add(4).saturating_add(length)).then_some(())?;
    head.split(' ').nth(1)?.parse().ok()
}

pub(crate) fn body(order: &IntentRequest) -> anyhow::Result<String> {
    let Bounds::ExactInput { input, min_output } = order.bounds else { anyhow::bail!("not an exact input") };
    Ok(json!({
        "intentId": order.intent_id, "clientReference": order.client_reference, "user": order.user,
        "inputAsset": order.input_asset, "outputAsset": order.output_asset, "inputAmountMinor": input,
        "minOutputAmountMinor": min_output, "deadline": order.deadline, "settlementType": "hybrid",
        "beneficiary": order.beneficiary, "permit": order.permit,
    })
    .to_string())
}

/// A signed submission, byte for byte.
pub(crate) fn request(order: &IntentRequest, keys: &Keys) -> anyhow::Result<Vec<u8>> {
    let body = body(order)?;
    let signed = headers(keys.signing_secret.as_bytes(), "/v1/intents", body.as_bytes(), now().unix_secs())?;
    let mut head = format!(
        "POST /v1/intents HTTP/1.1\r\nhost: dvp\r\ncontent-type: application/json\r\nx-api-key: {}\r\n\
         x-idempotency-key: {}\r\ncontent-length: {}\r\n",
        keys.api_key,
        uuid::Uuid::new_v4(),
        body.len()
    );
    for (name, value) in &signed {
        head.push_str(&format!("{name}: {}\r\n", value.to_str()?));
    }
    Ok(format!("{head}\r\n{body}").into_bytes())
}

/// A read, byte for byte.
pub(crate) fn get(path: &str, keys: &Keys) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nhost: dvp\r\nx-api-key: {}\r\n\r\n", keys.api_key).into_bytes()
}

/// The signature headers of a POST.
pub fn headers(secret: &[u8], path: &str, body: &[u8], at: u64) -> anyhow::Result<HeaderMap> {
    let nonce = uuid::Uuid::new_v4().simple().to_string();
    let signature = hex::encode(mac(secret, &[format!("POST{path}{at}{nonce}").as_bytes(), body].concat()));
    let mut headers = HeaderMap::new();
    for (name, value) in [("x-signature", signature), ("x-timestamp", at.to_string()), ("x-nonce", nonce)] {
        headers.insert(HeaderName::from_static(name), HeaderValue::try_from(value)?);
    }
    Ok(headers)
}

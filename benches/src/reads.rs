//! `GET /v1/executions/{reference}` over loopback, beside a bare route that returns the same bytes: what key, limits,
//! lookup and rendering cost.

use axum::Router;
use axum::http::header;
use axum::routing::get;
use tokio::net::TcpListener;

use crate::figure::Figure;
use crate::harness::{DurableHarness, order};
use crate::http::{Served, drive};
use crate::progress;

/// How many executions there are to be read.
const EXECUTIONS: usize = 1_000;

/// Measures for `seconds`, with `concurrency` connections each waiting for its answer.
pub async fn measure(seconds: u64, concurrency: usize) -> anyhow::Result<Figure> {
    progress::expect(2);
    let dir = tempfile::tempdir()?;
    let harness = DurableHarness::start(dir.path()).await?;
    let served = Served::start(&harness).await?;
    let mut requests = Vec::with_capacity(EXECUTIONS);
    let mut body = String::new();
    for _ in 0..EXECUTIONS {
        let reference = harness.accept(order()).await.reference;
        requests.push(request(&reference, &served.keys.api_key));
        body = serde_json::to_string(&harness.view(&reference).await)?;
    }
    let bare = TcpListener::bind("127.0.0.1:0").await?;
    let address = bare.local_addr()?;
    let answer = move || async move { ([(header::CONTENT_TYPE, "application/json")], body.clone()) };
    let router = Router::new().route("/v1/executions/{reference}", get(answer));
    tokio::spawn(async move { axum::serve(bare, router).await });

    let turn = std::sync::atomic::AtomicUsize::new(0);
    let next = || {
        let n = turn.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        requests.get(n % EXECUTIONS).cloned()
    };
    let floor = drive(address, seconds, concurrency, 200, next).await?;
    let value = drive(served.address, seconds, concurrency, 200, next).await?;
    served.stop.cancel();
    harness.stop().await?;
    Ok(Figure::new("reads", value, "requests/s", floor))
}

fn request(reference: &str, api_key: &str) -> Vec<u8> {
    format!(
        "GET /v1/executions/{reference}?refType=executionId HTTP/1.1\r\nhost: dvp\r\nx-api-key: {api_key}\r\n\r\n"
    )
    .into_bytes()
}

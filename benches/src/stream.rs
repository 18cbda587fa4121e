//! `GET /v1/events/stream`: how fast and how late a thousand readers have each event, beside a bare route that passes the
//! same bytes from a channel; and the memory that they take.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use axum::body::Body;
use axum::{Router, routing};
use dvp_api::Limits;
use futures_util::future::join_all;
use futures_util::stream::unfold;
use parking_lot::Mutex;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::broadcast;
use tokio::task::JoinSet;

use crate::figure::{Figure, Figures, per_second, within};
use crate::harness::{DurableHarness, order};
use crate::http::{Served, get};
use crate::proc::Vitals;
use crate::progress;

/// What each event of a reader begins with.
const EVENT: &[u8] = b"\nevent: ";
/// Events of the burst.
const BURST: usize = 200;
const PACE: Duration = Duration::from_millis(100);
const LATEST: Duration = Duration::from_secs(1);
/// How long the readers may take for all of a part.
const PATIENCE: Duration = Duration::from_secs(120);

/// When each reader had its events, in their order.
type Arrivals = Arc<Mutex<Vec<Vec<Instant>>>>;

pub async fn measure(seconds: u64, readers: usize) -> anyhow::Result<Figures> {
    progress::expect(3);
    let dir = tempfile::tempdir()?;
    let harness = DurableHarness::start(dir.path()).await?;
    let more = readers.saturating_add(64);
    let limits = Limits {
        connections_per_source: more,
        waiting_per_partner: more,
        in_flight: more.saturating_mul(2),
        ..Limits::default()
    };
    let served = Served::start_with(&harness, limits).await?;
    let arrivals = Arrivals::default();
    let mut open =
        follow(served.address, &get("/v1/events/stream", &served.keys), readers, &arrivals).await?;
    let before = Vitals::of(std::process::id())?.resident_bytes;
    let mut sent = Vec::new();
    let until = Instant::now() + Duration::from_secs(seconds);
    while Instant::now() < until {
        harness.accept(order()).await;
        sent.push(Instant::now());
        tokio::time::sleep(PACE).await;
    }
    wait_for(&arrivals, readers, sent.len()).await?;
    let mut late: Vec<Duration> = {
        let arrivals = arrivals.lock();
        let of_reader = |had: &Vec<Instant>| {
            let times = had.iter().zip(&sent).map(|(had, sent)| had.saturating_duration_since(*sent));
            times.collect::<Vec<_>>()
        };
        arrivals.iter().flat_map(of_reader).collect()
    };
    late.sort_unstable();
    progress::done("one event after the other");
    let took = burst(&arrivals, readers, sent.len(), async || {
        join_all((0..BURST).map(|_| harness.accept(order()))).await;
        Ok(())
    })
    .await?;
    let after = Vitals::of(std::process::id())?.resident_bytes;
    progress::done("a burst");
    open.shutdown().await;
    served.stop.cancel();
    let floor = bare(readers, &event(&harness).await?).await?;
    progress::done("the floor");
    harness.stop().await?;
    let delivered = readers.saturating_mul(BURST);
    let figure = Figure::new("stream", per_second(delivered, took), "events/s", per_second(delivered, floor));
    let [median, most, last] = [50, 99, 100].map(|share| within(&late, share));
    let latency = json!({
        "name": "stream-latency", "readers": readers, "events": sent.len(), "medianMs": millis(median),
        "p99Ms": millis(most), "maxMs": millis(last), "residentKiB": before / 1024, "residentKiBAfter": after / 1024,
    });
    let is_late = last > LATEST;
    let missed = if is_late {
        format!("an event came after {last:?}, and not within {LATEST:?}")
    } else {
        String::new()
    };
    Ok(Figures { lines: vec![figure.json(), latency], missed })
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Connects the readers, each once its stream has begun.
async fn follow(
    address: SocketAddr,
    request: &[u8],
    readers: usize,
    arrivals: &Arrivals,
) -> anyhow::Result<JoinSet<()>> {
    *arrivals.lock() = vec![Vec::new(); readers];
    let mut open = JoinSet::new();
    for reader in 0..readers {
        let mut socket = TcpStream::connect(address).await?;
        socket.write_all(request).await?;
        let mut bytes = Vec::new();
        while !bytes.windows(4).any(|four| four == b"\r\n\r\n") {
            ensure!(socket.read_buf(&mut bytes).await? > 0, "no answer");
        }
        ensure!(bytes.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&bytes));
        let arrivals = Arc::clone(arrivals);
        open.spawn(async move {
            // What may be the beginning of a mark stays for the next read.
            let mut bytes = Vec::with_capacity(16 * 1024);
            while socket.read_buf(&mut bytes).await.is_ok_and(|read| read > 0) {
                let count = bytes.windows(EVENT.len()).filter(|seen| *seen == EVENT).count();
                let keep = bytes.len().saturating_sub(EVENT.len().saturating_sub(1));
                bytes.drain(..keep);
                if let Some(had) = arrivals.lock().get_mut(reader) {
                    had.extend(std::iter::repeat_n(Instant::now(), count));
                }
            }
        });
    }
    Ok(open)
}

/// Waits until each reader has so many events.
async fn wait_for(arrivals: &Arrivals, readers: usize, events: usize) -> anyhow::Result<()> {
    let until = Instant::now() + PATIENCE;
    loop {
        let done = arrivals.lock().iter().filter(|had| had.len() >= events).count();
        if done == readers {
            return Ok(());
        }
        ensure!(Instant::now() < until, "{done} of {readers} readers have all of {events} events");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// From the first event of a burst to the last that a reader has.
async fn burst(
    arrivals: &Arrivals,
    readers: usize,
    had: usize,
    make: impl AsyncFnOnce() -> anyhow::Result<()>,
) -> anyhow::Result<Duration> {
    let began = Instant::now();
    make().await?;
    wait_for(arrivals, readers, had.saturating_add(BURST)).await?;
    let last = arrivals.lock().iter().filter_map(|had| had.last().copied()).max();
    Ok(last.context("an event")?.saturating_duration_since(began))
}

/// An event as a stream has it.
async fn event(harness: &DurableHarness) -> anyhow::Result<String> {
    let sql = "select object::text from event limit 1";
    let (object,): (String,) = sqlx::query_as(sql).fetch_one(harness.pool()).await?;
    Ok(format!("id: {:0>82}\nevent: intent.accepted\ndata: {object:<1100}\n\n", 1))
}

/// The same burst from a channel to as many readers.
async fn bare(readers: usize, event: &str) -> anyhow::Result<Duration> {
    let (say, _) = broadcast::channel::<String>(BURST.saturating_mul(2));
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let hear = say.clone();
    let stream = move || {
        let hear = hear.subscribe();
        async move {
            let next = |mut hear: broadcast::Receiver<String>| async move {
                let said = hear.recv().await.ok()?;
                Some((Ok::<_, std::convert::Infallible>(said), hear))
            };
            Body::from_stream(unfold(hear, next))
        }
    };
    let router = Router::new().route("/", routing::get(stream));
    tokio::spawn(async move { axum::serve(listener, router).await });
    let arrivals = Arrivals::default();
    let mut open = follow(address, b"GET / HTTP/1.1\r\nhost: dvp\r\n\r\n", readers, &arrivals).await?;
    let took = burst(&arrivals, readers, 0, async || {
        for _ in 0..BURST {
            say.send(event.to_owned())?;
        }
        Ok(())
    })
    .await?;
    open.shutdown().await;
    Ok(took)
}

//! Hostile receivers, each handled as the contract says, and a healthy one beside them that keeps its latency.

use std::io::Write;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use dvp_api::delivery::names::{LookUp, Names};
use dvp_benches::harness::DurableHarness;
use dvp_benches::hooks;
use dvp_benches::receiver::{Authority, Got, Manner, Receiver, Reply};
use dvp_core::webhooks::{Command, Owner};
use serde_json::{Value, json};

use crate::Seeds;

/// Pings to the healthy endpoint, alone and then beside the hostile ones.
const PINGS: usize = 100;
/// Deliveries queued for each hostile endpoint.
const QUEUED: usize = 40;
/// The limit on the latency that hostile endpoints may add to the healthy one's 95th percentile.
const ADDED_MAX: Duration = Duration::from_millis(500);
const PATIENCE: Duration = Duration::from_secs(90);

/// `rebinding.test` leads to this machine at the first look-up and to a private address from then on.
#[derive(Default)]
struct Rebinding(AtomicUsize);

impl Names for Rebinding {
    fn look_up<'a>(&'a self, name: &'a str) -> LookUp<'a> {
        let first = name != "rebinding.test" || self.0.fetch_add(1, Ordering::Relaxed) == 0;
        let address = if first { [127, 0, 0, 1] } else { [127, 0, 0, 2] };
        Box::pin(async move { Ok(vec![IpAddr::from(address)]) })
    }
}

pub(crate) async fn run(seeds: Seeds) -> anyhow::Result<bool> {
    let mut reports = Vec::new();
    let mut broken = Vec::new();
    for seed in seeds.seed..seeds.seed.saturating_add(seeds.count) {
        match one().await {
            Ok(report) => reports.push(report),
            Err(error) => broken.push(format!("seed {seed}: {error:#}")),
        }
    }
    let mut out = std::io::stdout().lock();
    if seeds.json {
        writeln!(out, "{}", json!({"drill": "webhooks", "runs": reports, "broken": broken}))?;
    } else {
        for report in &reports {
            writeln!(out, "{report}")?;
        }
        writeln!(out, "{} promises broken", broken.len())?;
        for line in &broken {
            writeln!(out, "{line}")?;
        }
    }
    Ok(broken.is_empty())
}

/// A hostile endpoint and the expected result of its first attempt: error kind, status, state of the delivery, and
/// whether the endpoint stays active.
struct Hostile {
    name: &'static str,
    owner: Owner,
    error: Option<&'static str>,
    state: &'static str,
    active: bool,
    _receiver: Receiver,
}

async fn receiver(
    authority: &Authority,
    manner: Manner,
    answer: impl Fn(usize, &Got) -> Reply + Send + Sync + 'static,
) -> anyhow::Result<Receiver> {
    Receiver::start(authority, manner, answer).await.map_err(|error| anyhow::anyhow!("{error}"))
}

async fn one() -> anyhow::Result<Value> {
    let authority = Authority::new().map_err(|error| anyhow::anyhow!("{error}"))?;
    let dir = tempfile::tempdir()?;
    let harness = DurableHarness::start(dir.path()).await?;
    let mut config = hooks::config(&authority);
    config.names = Arc::new(Rebinding::default());
    let stop = hooks::deliver(&harness, config)?;
    let healthy =
        receiver(&authority, Manner { keep: false, ..Manner::default() }, |_, _| Reply::Status(200)).await?;
    let well = hooks::endpoint(&harness, "healthy", &healthy.url("127.0.0.1")).await?;
    let alone = latency(&harness, &well, &healthy).await?;
    // A redirect was followed: no request may arrive here.
    let private =
        Manner { ip: IpAddr::from([127, 0, 0, 2]), names: vec!["rebinding.test"], ..Manner::default() };
    let trap = receiver(&authority, private, |_, _| Reply::Status(200)).await?;
    let hostile = hostile(&harness, &authority, &trap).await?;
    for one in &hostile {
        for _ in 0..QUEUED {
            // An endpoint that answered 410 gets no more deliveries once that is recorded.
            let accepted = hooks::ask(&harness, &one.owner, Command::Test { kind: None }).await;
            ensure!(accepted.is_ok() || !one.active, "{} is switched off", one.name);
        }
    }
    let beside = latency(&harness, &well, &healthy).await?;
    for one in &hostile {
        judge(&harness, one).await.with_context(|| one.name)?;
    }
    ensure!(trap.count() == 0, "a private address was reached {} times", trap.count());
    ensure!(
        beside <= alone.saturating_add(ADDED_MAX),
        "healthy: {alone:?} alone, {beside:?} beside the others"
    );
    stop.cancel();
    harness.stop().await?;
    Ok(json!({
        "hostile": hostile.iter().map(|one| one.name).collect::<Vec<_>>(),
        "healthyAloneMs": millis(alone), "healthyBesideMs": millis(beside),
    }))
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

async fn hostile(
    harness: &DurableHarness,
    authority: &Authority,
    trap: &Receiver,
) -> anyhow::Result<Vec<Hostile>> {
    let astray = trap.url("127.0.0.2");
    let always = |reply: Reply| move |_: usize, _: &Got| reply.clone();
    let mut all = Vec::new();
    for (name, reply, error, state, active) in [
        ("never", Reply::Never, Some("timeout"), "pending", true),
        ("drip-head", Reply::DripHead, Some("timeout"), "pending", true),
        ("drip-body", Reply::DripBody, None, "delivered", true),
        ("endless", Reply::EndlessBody, None, "delivered", true),
        ("redirect", Reply::Redirect(astray), Some("redirect"), "pending", true),
        ("hang-up", Reply::HangUp, Some("closed"), "pending", true),
        ("gone", Reply::Status(410), Some("status"), "pending", false),
        ("fails", Reply::Status(500), Some("status"), "pending", true),
    ] {
        let receiver =
            receiver(authority, Manner { keep: false, ..Manner::default() }, always(reply)).await?;
        let owner = hooks::endpoint(harness, name, &receiver.url("127.0.0.1")).await?;
        all.push(Hostile { name, owner, error, state, active, _receiver: receiver });
    }
    let expired = Manner { expired: true, ..Manner::default() };
    let receiver_expired = receiver(authority, expired, |_, _| Reply::Status(200)).await?;
    let owner = hooks::endpoint(harness, "expired", &receiver_expired.url("127.0.0.1")).await?;
    let (error, state) = (Some("tls"), "pending");
    all.push(Hostile { name: "expired", owner, error, state, active: true, _receiver: receiver_expired });
    // Hangs up after each answer, so that the next one needs another look-up.
    let named = Manner { names: vec!["rebinding.test"], ..Manner::default() };
    let first = receiver(authority, named, |_, _| Reply::HangUp).await?;
    let owner = hooks::endpoint(harness, "rebinding", &first.url("rebinding.test")).await?;
    let error = Some("address_refused");
    all.push(Hostile { name: "rebinding", owner, error, state: "pending", active: true, _receiver: first });
    Ok(all)
}

/// The slowest twentieth of the time from asking for a ping to its arrival.
async fn latency(harness: &DurableHarness, owner: &Owner, receiver: &Receiver) -> anyhow::Result<Duration> {
    let mut times = Vec::with_capacity(PINGS);
    for _ in 0..PINGS {
        let (before, started) = (receiver.count(), Instant::now());
        hooks::ask(harness, owner, Command::Test { kind: None }).await?;
        while receiver.count() == before {
            ensure!(started.elapsed() < PATIENCE, "a ping never came");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        times.push(started.elapsed());
    }
    times.sort_unstable();
    times.get(PINGS * 19 / 20).copied().context("times")
}

/// Whether some attempt ended as it must, and none otherwise.
async fn judge(harness: &DurableHarness, hostile: &Hostile) -> anyhow::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let attempts: Vec<(Option<String>, String)> = sqlx::query_as(
            "with own as (select id from webhook_endpoint where key_id = $1) \
             select a.error, 'pending' from own join webhook_queue q on q.endpoint_id = own.id \
                    join webhook_attempt_log a on a.delivery_id = q.id \
             union all \
             select d.error, d.state from own join webhook_delivery_log d on d.endpoint_id = own.id",
        )
        .bind(&hostile.owner.key_id)
        .fetch_all(harness.pool())
        .await?;
        let (active,): (bool,) = sqlx::query_as("select is_active from webhook_endpoint where key_id = $1")
            .bind(&hostile.owner.key_id)
            .fetch_one(harness.pool())
            .await?;
        let right = |attempt: &(Option<String>, String)| {
            attempt.0.as_deref() == hostile.error && attempt.1 == hostile.state
        };
        if attempts.iter().any(right) && active == hostile.active {
            // Before the name leads elsewhere, the connection is closed by the receiver of the drill.
            let closed = |attempt: &(Option<String>, String)| {
                hostile.name == "rebinding" && attempt.0.as_deref() == Some("closed")
            };
            let other = attempts.iter().find(|attempt| !right(attempt) && !closed(attempt));
            ensure!(other.is_none(), "came to {other:?}");
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "came to {attempts:?}, active: {active}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

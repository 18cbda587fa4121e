//! Deliveries a second to a TLS receiver on this machine, beside the same HTTP client in a bare loop to the same
//! receiver: the cost of durability, signing and the log.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use dvp_api::delivery::address::Reach;
use dvp_api::delivery::{Delivery, DeliveryConfig};
use dvp_core::engine::webhooks::{Command, CommandOutcome, Owner, carry_out};
use dvp_core::operators::keys::issue;
use dvp_core::secrets::Vault;
use dvp_domain::environment::Environment;
use dvp_domain::event::EventType;
use dvp_store::orders::idempotency::StoredResponse;
use dvp_store::webhooks;
use dvp_store::webhooks::deliveries::{self, NewDelivery, Origin};
use dvp_testing::receiver::{Authority, Receiver, ReceiverManner, Reply};
use futures_util::future::try_join_all;
use tokio_util::sync::CancellationToken;

use crate::figure::{Figure, per_second};
use crate::harness::DurableHarness;
use crate::progress;

/// Deliveries queued beforehand for each second: more than a machine of ours sends.
const QUEUED_A_SECOND: usize = 60_000;
const CHUNK: usize = 1000;

/// Measures for `seconds`, with `concurrency` requests under way at most.
pub async fn measure(seconds: u64, concurrency: usize) -> anyhow::Result<Figure> {
    let authority = Authority::new();
    let manner = ReceiverManner { keep: false, ..ReceiverManner::default() };
    let receiver = Receiver::start(&authority, manner, |_, _| Reply::Status(200)).await;
    let dir = tempfile::tempdir()?;
    let harness = DurableHarness::start(dir.path()).await?;
    let endpoint = endpoint(&harness, &receiver.url("127.0.0.1")).await?;
    // An event of the usual size.
    let body = format!(r#"{{"object":"event","data":"{}"}}"#, "x".repeat(1100));
    progress::expect(2);
    let floor = bare(&authority, &receiver, &body, seconds, concurrency).await?;
    progress::done("the floor");
    let count = usize::try_from(seconds)?.saturating_mul(QUEUED_A_SECOND);
    for chunk in (0..count).collect::<Vec<_>>().chunks(CHUNK) {
        let new: Vec<NewDelivery> = chunk
            .iter()
            .map(|n| NewDelivery {
                endpoint_id: endpoint.id.clone(),
                partner_id: endpoint.tenant.partner_id.clone(),
                event_id: format!("evt_{n}"),
                kind: EventType::IntentAccepted.as_str().to_owned(),
                origin: Origin::Feed,
                body: body.clone(),
                trace: None,
            })
            .collect();
        deliveries::insert(&mut *harness.pool().acquire().await?, &new).await?;
    }
    let mut config = DeliveryConfig {
        reach: Reach::PublicAnd(vec![IpAddr::from([127, 0, 0, 1])]),
        authorities: vec![authority.certificate()],
        ..DeliveryConfig::default()
    };
    config.limits.per_endpoint = concurrency;
    let (before, started, stop) = (receiver.count(), Instant::now(), CancellationToken::new());
    tokio::spawn(Delivery::new(harness.engine.clone(), config)?.run(stop.clone()));
    progress::phase("deliveries", Duration::from_secs(seconds), String::new).await;
    let (sent, took) = (receiver.count().saturating_sub(before), started.elapsed());
    ensure!(sent < count, "the deliveries queued beforehand ran out");
    stop.cancel();
    harness.stop().await?;
    Ok(Figure::new("webhooks", per_second(sent, took), "deliveries/s", floor))
}

async fn endpoint(harness: &DurableHarness, url: &str) -> anyhow::Result<webhooks::Endpoint> {
    let (mut conn, vault) = (harness.pool().acquire().await?, &harness.engine.context().vault);
    let tenant = harness.tenant.clone();
    let key = issue(&mut conn, vault, &tenant.partner_id, Environment::Test, &[]).await?;
    let owner = Owner { key_id: key.key_id.clone(), tenant };
    let subscribed_types = EventType::ALL.iter().map(|kind| kind.as_str().to_owned()).collect();
    let command = Command::Register { url: url.to_owned(), subscribed_types };
    let render = |_: &Vault, _: &CommandOutcome| StoredResponse { status: 200, body: String::new() };
    carry_out(&mut conn, vault, &owner, command, None, render).await?;
    webhooks::find_by_key(&mut conn, &key.key_id).await?.context("the endpoint")
}

async fn bare(
    authority: &Authority,
    receiver: &Receiver,
    body: &str,
    seconds: u64,
    concurrency: usize,
) -> anyhow::Result<u64> {
    let certificate = reqwest::Certificate::from_der(&authority.certificate())?;
    let client = reqwest::Client::builder()
        .tls_certs_only([certificate])
        .no_proxy()
        .pool_max_idle_per_host(concurrency)
        .tcp_nodelay(true)
        .build()?;
    let url = receiver.url("127.0.0.1");
    let started = Instant::now();
    let until = started + Duration::from_secs(seconds);
    let callers = (0..concurrency).map(|_| async {
        let mut done = 0_usize;
        while Instant::now() < until {
            let answer = client.post(&url).body(body.to_owned()).send().await?;
            ensure!(answer.status().is_success(), "refused");
            answer.bytes().await?;
            done = done.saturating_add(1);
        }
        Ok(done)
    });
    let done: usize = try_join_all(callers).await?.into_iter().sum();
    Ok(per_second(done, started.elapsed()))
}

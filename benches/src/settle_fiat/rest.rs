//! Callers of `POST /v1/intents`, and a follower of the partner's feed who sees their orders completed.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use serde_json::Value;
use tokio::sync::Semaphore;

use crate::fix_orders::{Measured, Worked};
use crate::harness::{DurableHarness, fiat_order};
use crate::http::{Client, Keys, Served, get, request};
use crate::proc;
use crate::progress;

/// Made beforehand for each second of measuring.
pub(super) const ORDERS_A_SECOND: usize = 4_000;

#[derive(Clone)]
pub(super) struct Follower {
    address: SocketAddr,
    keys: Keys,
    cursor: Option<String>,
}

impl Follower {
    pub(super) async fn connect(served: &Served) -> anyhow::Result<Self> {
        let mut follower = Self { address: served.address, keys: served.keys.clone(), cursor: None };
        let mut client = Client::connect(served.address).await?;
        ensure!(follower.page(&mut client, 0).await? == 0, "the feed is not empty");
        Ok(follower)
    }

    /// Reads the next completed orders, and waits for them, and returns their number.
    async fn page(&mut self, client: &mut Client, wait: u64) -> anyhow::Result<usize> {
        let since = self.cursor.as_ref().map_or_else(String::new, |cursor| format!("&since={cursor}"));
        let path = format!("/v1/events?type=payout.completed&limit=100&wait={wait}{since}");
        let answered = client.ask(&get(&path, &self.keys)).await?;
        let text = client.text();
        ensure!(answered == 200, "{answered}: {text}");
        let body = text.split_once("\r\n\r\n").context("an answer without a body")?.1;
        let page: Value = serde_json::from_str(body)?;
        self.cursor = Some(page["nextCursor"].as_str().context("no cursor")?.to_owned());
        Ok(page["data"].as_array().context("no events")?.len())
    }

    /// Sends orders with at most `window` of them unsettled, and then waits for the
    /// rest. Callers and follower have a thread of their own, whose processor time is counted apart.
    pub(super) async fn settle(
        &mut self,
        harness: &DurableHarness,
        window: usize,
        (orders, time): (usize, Duration),
    ) -> anyhow::Result<(usize, Measured)> {
        let keys = self.keys.clone();
        let requests = move || (0..orders).map(|_| request(&fiat_order(), &keys)).collect();
        let requests: anyhow::Result<_> = tokio::task::spawn_blocking(requests).await?;
        let before = Worked::by(harness.database.postgres.pid());
        let (mut follower, requests) = (self.clone(), requests?);
        let driven = tokio::task::spawn_blocking(move || {
            let worked = proc::worked_by_this_thread();
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            let (orders, elapsed) = runtime.block_on(follower.run(requests, window, time))?;
            let worked = proc::worked_by_this_thread().saturating_sub(worked);
            anyhow::Ok((follower, before.each(orders, elapsed, worked), orders))
        });
        let (follower, measured, orders) = driven.await??;
        *self = follower;
        progress::done(format!("{orders} orders over REST"));
        Ok((orders, measured))
    }

    async fn run(
        &mut self,
        requests: Vec<Vec<u8>>,
        window: usize,
        time: Duration,
    ) -> anyhow::Result<(usize, Duration)> {
        let (started, unsettled) = (Instant::now(), Arc::new(Semaphore::new(window)));
        let requests = Arc::new(std::sync::Mutex::new(requests));
        let mut callers = tokio::task::JoinSet::new();
        for _ in 0..window {
            let (address, unsettled, requests) =
                (self.address, Arc::clone(&unsettled), Arc::clone(&requests));
            callers.spawn(async move {
                let mut client = Client::connect(address).await?;
                let mut sent = 0_usize;
                loop {
                    unsettled.acquire().await?.forget();
                    let next = requests.lock().ok().and_then(|mut requests| requests.pop());
                    let Some(request) = next.filter(|_| started.elapsed() < time) else {
                        // The place of an order that is not sent is the next caller's, so that all of them end.
                        unsettled.add_permits(1);
                        return anyhow::Ok(sent);
                    };
                    let answered = client.ask(&request).await?;
                    ensure!(answered == 202, "{answered}: {}", client.text());
                    sent = sent.saturating_add(1);
                }
            });
        }
        let mut client = Client::connect(self.address).await?;
        let (mut sent, mut settled) = (0_usize, 0_usize);
        while !callers.is_empty() || settled < sent {
            let found = self.page(&mut client, 1).await?;
            settled = settled.saturating_add(found);
            unsettled.add_permits(found);
            while let Some(ended) = callers.try_join_next() {
                sent = sent.saturating_add(ended??);
            }
        }
        Ok((settled, started.elapsed()))
    }
}

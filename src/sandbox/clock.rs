//! The sandbox's one clock: the chains, the bank, the database and the service's timers go ahead together.
//!
//! Time does not jump over what is due on the way: it advances in steps, and after each of them what has become due is
//! done before the next, if it can be done soon.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use dvp_core::liquidity::Liquidity;
use dvp_domain::time::Timestamp;
use dvp_sandbox::anvil;
use dvp_store::database::clock;
use dvp_store::{PgPool, StoreError};
use tokio::sync::Mutex;
use tokio::time::sleep;

/// The steps of an advance, an hour long at least.
const STEPS: u32 = 12;
const STEP_MIN: Duration = Duration::from_secs(3_600);
/// In this time the simulated bank and the reader of its folder have both looked at it once.
const LOOKED: Duration = Duration::from_millis(400);
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How long a step waits for what is due, and all of them together: less than a request may take.
const STEP_WITHIN: Duration = Duration::from_secs(2);
const ALL_WITHIN: Duration = Duration::from_secs(6);
const FEES_WITHIN: Duration = Duration::from_secs(2);
/// How often a step is tried whose statement was the victim of a deadlock.
const DEADLOCKS: u32 = 3;

/// Has the chains at these URLs go on from the service's time.
pub(super) async fn follow(rpc_urls: impl Iterator<Item = &str>) -> anyhow::Result<()> {
    if clock::ahead() != 0 {
        for url in rpc_urls {
            anvil::go_on_from(url, clock::now().unix_secs()).await.context("the chain's time")?;
        }
    }
    Ok(())
}

pub(super) struct SandboxClock {
    pub pool: PgPool,
    /// The nodes' own endpoints.
    pub rpc_urls: Vec<String>,
    pub liquidity: Arc<Liquidity>,
    pub has_bank: bool,
    pub advancing: Mutex<()>,
}

impl SandboxClock {
    async fn go_ahead(&self, to: Timestamp) -> anyhow::Result<()> {
        let _one_at_a_time = self.advancing.lock().await;
        let since = Instant::now();
        // A step that was cut short, or a start, has left the chains behind.
        self.chains_follow().await?;
        let by = to.millis().saturating_sub(clock::now().millis());
        let by = Duration::from_millis(u64::try_from(by).unwrap_or_default());
        let step = (by / STEPS).max(STEP_MIN);
        let mut left = by;
        self.catch_up(since).await?;
        while !left.is_zero() {
            let now = left.min(step);
            left -= now;
            self.step(i64::try_from(now.as_millis())?).await?;
            self.catch_up(since).await?;
        }
        // There are prices again, and below the fees of the chains.
        self.liquidity.refresh().await;
        let known = super::wait_for_fees(&self.liquidity, &self.pool);
        tokio::time::timeout(FEES_WITHIN, known).await.unwrap_or(Ok(()))
    }

    async fn step(&self, millis: i64) -> anyhow::Result<()> {
        let mut conn = self.pool.acquire().await?;
        let ahead = clock::ahead().saturating_add(millis);
        // Workers lock rows in another order: one of the two has to begin anew.
        let mut tries = DEADLOCKS;
        while let Err(error) = clock::advance_held(&mut conn, ahead, millis).await {
            tries -= 1;
            if tries == 0 {
                return Err(error.into());
            }
        }
        clock::set_ahead(ahead);
        self.chains_follow().await
    }

    async fn chains_follow(&self) -> anyhow::Result<()> {
        follow(self.rpc_urls.iter().map(String::as_str)).await
    }

    /// Waits until what is due is done, if that can be soon.
    async fn catch_up(&self, since: Instant) -> anyhow::Result<()> {
        if self.has_bank && since.elapsed() < ALL_WITHIN {
            sleep(LOOKED).await;
        }
        let until = Instant::now() + STEP_WITHIN.min(ALL_WITHIN.saturating_sub(since.elapsed()));
        while self.is_behind().await? && Instant::now() < until {
            sleep(LOOK_EVERY).await;
        }
        Ok(())
    }

    async fn is_behind(&self) -> Result<bool, StoreError> {
        clock::has_due(&mut *self.pool.acquire().await?).await
    }
}

impl dvp_api::SandboxClock for SandboxClock {
    fn advance(self: Arc<Self>, to: Timestamp) -> dvp_api::Advancing {
        // It goes on when the caller does not wait.
        let advancing = tokio::spawn(async move { self.go_ahead(to).await });
        Box::pin(async move {
            advancing.await.map_err(|error| error.to_string())?.map_err(|error| format!("{error:#}"))
        })
    }
}

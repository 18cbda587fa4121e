//! Whether a loop of the service is late, by its own figures and by the work that is due in the database.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context as _;
use sqlx::{Connection as _, PgConnection};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::promises::Promises;
use crate::crash::process::text;
use crate::hostile::target::Target;

const LOOK_EVERY: Duration = Duration::from_secs(1);

pub(super) struct Samples(String);

impl Samples {
    pub(super) async fn read(url: &str) -> anyhow::Result<Self> {
        Ok(Self(reqwest::get(url).await?.error_for_status()?.text().await?))
    }

    /// The values, without what is behind the point, of a metric's series with these labels.
    fn values(&self, name: &str, labels: &[(&str, &str)]) -> Vec<i64> {
        let has = |series: &str| {
            labels.iter().all(|(label, value)| series.contains(&format!("{label}=\"{value}\"")))
        };
        let value = |line: &str| {
            let (series, value) = line.rsplit_once(' ')?;
            let of = series.split('{').next()?;
            (of == name && has(series)).then(|| value.split('.').next()?.parse().ok())?
        };
        self.0.lines().filter_map(value).collect()
    }

    pub(super) fn sum(&self, name: &str, labels: &[(&str, &str)]) -> i64 {
        self.values(name, labels).iter().sum()
    }

    fn max(&self, name: &str, labels: &[(&str, &str)]) -> i64 {
        self.values(name, labels).into_iter().max().unwrap_or(0)
    }
}

/// A figure that grows while a loop is late, and its limit.
type Lateness = (&'static str, i64);

/// Figures of `/metrics`. Blocks come every second; tables are counted every five.
const FIGURES: [Lateness; 7] = [
    ("dvp_chain_indexer_lag_blocks", 5),
    ("dvp_chain_indexer_silent_seconds", 15),
    ("dvp_chain_head_age_seconds", 15),
    ("dvp_relayer_transaction_oldest_seconds", 15),
    ("dvp_feed_lag_seconds", 10),
    ("dvp_writer_batch_age_seconds", 2),
    ("dvp_wallet_look_ups_waiting", 200),
];
/// Leases without an owner. That of `retention` is between two runs.
const LEASES: [&str; 4] = ["indexer", "relayer", "ranges", "fix"];
const LEASES_EXPIRED: Lateness = ("looks in a row with an expired lease", 15);
const FIX_BEHIND: Lateness = ("events that no FIX session was notified of", 1_000);
const FIGURES_OLD: Lateness = ("age of the figures in seconds", 30);

/// Due work that is not set aside: its age in seconds. A lock without a permit waits for its deposit.
const DUE: [(Lateness, &str); 3] = [
    (
        ("oldest due effect in seconds", 10),
        "select coalesce(max(extract(epoch from now() - run_at)), 0)::int8 from effect \
         where run_at < now() and unwritten = 0 and coalesce(claimed_until, '-infinity') < now()",
    ),
    (
        ("oldest due command of the chain in seconds", 20),
        "select coalesce(max(extract(epoch from now() - greatest(not_before, created_at))), 0)::int8 \
         from chain_command where state = 'pending' and not_before < now() and trouble is null and kind <> 'anchor' \
           and (kind <> 'create' or payload ? 'permit')",
    ),
    (
        ("oldest fact of the chain that was not offered in seconds", 20),
        "select coalesce(max(extract(epoch from now() - observed_at)), 0)::int8 from chain_fact \
         where consumed_at is null and retracted_at is null and gate is null and retry_at is null",
    ),
];

type LoopFigures = BTreeMap<&'static str, i64>;

pub(super) struct Watch {
    stop: CancellationToken,
    task: JoinHandle<anyhow::Result<LoopFigures>>,
}

impl Watch {
    /// `patience`: how many times its limit a figure may come to on a machine that other work shares.
    pub(super) fn start(target: &Target, promises: &Promises, patience: i64) -> Self {
        let stop = CancellationToken::new();
        let watched = watch(target.clone(), promises.clone(), patience, stop.clone());
        Self { stop, task: tokio::spawn(watched) }
    }

    pub(super) async fn end(self) -> anyhow::Result<LoopFigures> {
        self.stop.cancel();
        self.task.await?
    }
}

async fn watch(
    target: Target,
    promises: Promises,
    patience: i64,
    stop: CancellationToken,
) -> anyhow::Result<LoopFigures> {
    let mut conn = PgConnection::connect(text(&target.ready, "/databaseUrl")?).await?;
    let mut worst = LoopFigures::default();
    let mut unowned: i64 = 0;
    while !stop.is_cancelled() {
        let samples = Samples::read(&target.metrics).await.context("the metrics")?;
        let mut seen: Vec<(&Lateness, i64)> =
            FIGURES.iter().map(|figure| (figure, samples.max(figure.0, &[]))).collect();
        let expired = |kind| samples.sum("dvp_leases", &[("kind", kind), ("state", "expired")]);
        let is_owned = LEASES.into_iter().all(|kind| expired(kind) == 0);
        unowned = if is_owned { 0 } else { unowned.saturating_add(1) };
        seen.push((&LEASES_EXPIRED, unowned));
        let notified = samples.max("dvp_feed_follower_position", &[("follower", "fix")]);
        seen.push((&FIX_BEHIND, samples.max("dvp_feed_position", &[]).saturating_sub(notified)));
        let counted = samples.max("dvp_figures_last_success_timestamp_seconds", &[]);
        seen.push((&FIGURES_OLD, chrono::Utc::now().timestamp().saturating_sub(counted)));
        for (due, sql) in &DUE {
            let (age,): (i64,) = sqlx::query_as(*sql).fetch_one(&mut conn).await?;
            seen.push((due, age));
        }
        for ((name, max), value) in seen {
            let highest = worst.entry(name).or_default();
            *highest = value.max(*highest);
            let promise = format!("no loop is late ({name})");
            promises
                .check(value <= max.saturating_mul(patience), &promise, || format!("{value}, at most {max}"));
        }
        tokio::select! {
            () = tokio::time::sleep(LOOK_EVERY) => {}
            () = stop.cancelled() => {}
        }
    }
    Ok(worst)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_are_chosen_by_name_and_labels() {
        let samples = Samples(
            "# TYPE dvp_a gauge\ndvp_a{kind=\"x\",state=\"y\"} 3.75\ndvp_a{kind=\"z\"} 5\ndvp_ab 70\n"
                .to_owned(),
        );
        assert_eq!(samples.sum("dvp_a", &[]), 8);
        assert_eq!(samples.max("dvp_a", &[("kind", "x")]), 3);
        assert_eq!(samples.sum("dvp_a", &[("kind", "q")]), 0);
    }
}

//! What metrics cost an order: every handle made and every call during a run of orders is kept, then made again many
//! times on the recorder that is scraped, under a clock. Two runs with and without metrics differ by more than metrics cost.

mod tap;

use std::collections::BTreeMap;
use std::hint::black_box;
use std::io::Write as _;
use std::time::Instant;

use metrics::{Level, Metadata};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};

use self::tap::{Operation, Repeatable, Tap};
use crate::figure::Figure;
use crate::fix_orders::{Gateway, Goal, ONE_SESSION, Subject, rest_orders, settling};
use crate::harness::DurableHarness;
use crate::http::Served;

/// As many bounds as the service's histograms of requests have.
const BOUNDS: [f64; 16] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0];
/// How often the operations are made again, and the samples moved into their buckets after each time.
const ROUNDS: u32 = 20;
static METADATA: Metadata<'static> = Metadata::new(module_path!(), Level::INFO, None);

/// Measures for `seconds` each: acceptance over REST and over FIX, and orders over FIX to Filled. The floor of a figure
/// is the service's processor time for the same order without metrics.
pub async fn measure(seconds: u64) -> anyhow::Result<Vec<Figure>> {
    let tap = Tap::install()?;
    let dir = tempfile::tempdir()?;
    let harness = DurableHarness::start_for_fiat(dir.path()).await?;
    let served = Served::start(&harness).await?;
    let gateway = Gateway::start(&harness, Subject { archives: true, settles: false }).await?;
    let window = ONE_SESSION;
    let mut figures = Vec::new();

    // The caller of REST is this process, too: the floor is the same order over FIX, whose client is counted apart.
    let floor = gateway.drive(1, window, seconds, Goal::Accepted).await?.0.service;
    tap.start();
    let rate = rest_orders(&served, window, seconds).await?;
    figures.push(cost("metrics of an order over REST", &tap.stop(), rate.saturating_mul(seconds), floor)?);
    tap.start();
    let orders = gateway.drive(1, window, seconds, Goal::Accepted).await?.1.len();
    figures.push(cost("metrics of an order over FIX", &tap.stop(), u64::try_from(orders)?, floor)?);
    gateway.stop().await?;
    served.stop.cancel();
    harness.stop().await?;

    let dir = tempfile::tempdir()?;
    let harness = DurableHarness::start_for_fiat(dir.path()).await?;
    let (stop, settled) = settling(&harness);
    let gateway = Gateway::start(&harness, Subject { archives: true, settles: true }).await?;
    let floor = gateway.drive(1, window, seconds, Goal::Filled).await?.0.service;
    tap.start();
    let orders = gateway.drive(1, window, seconds, Goal::Filled).await?.1.len();
    figures.push(cost("metrics of an order to Filled", &tap.stop(), u64::try_from(orders)?, floor)?);
    gateway.stop().await?;
    stop.send_replace(true);
    settled.await?;
    harness.stop().await?;
    Ok(figures)
}

/// Makes the operations again, and says on standard error which there were.
fn cost(name: &'static str, operations: &[Operation], orders: u64, floor: u64) -> anyhow::Result<Figure> {
    anyhow::ensure!(orders > 0 && !operations.is_empty(), "{name}: nothing was recorded");
    let mut calls = BTreeMap::<&str, u64>::new();
    for operation in operations {
        let count = calls.entry(operation.name()).or_default();
        *count = count.saturating_add(1);
    }
    for (metric, count) in calls {
        let thousandths = count.saturating_mul(1000) / orders;
        writeln!(std::io::stderr(), "{name}: {metric}: {thousandths} calls per 1,000 orders")?;
    }
    let builder =
        PrometheusBuilder::new().set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), &BOUNDS)?;
    let recorder = builder.build_recorder();
    let handle = recorder.handle();
    let prepared: Vec<Repeatable<'_>> =
        operations.iter().map(|operation| operation.prepared(&recorder, &METADATA)).collect();
    let began = Instant::now();
    for _ in 0..ROUNDS {
        prepared.iter().for_each(|call| call.repeat(&recorder, &METADATA));
        handle.run_upkeep();
    }
    let all = began.elapsed().as_nanos() / u128::from(ROUNDS);
    black_box(handle.render());
    let value = u64::try_from(all / u128::from(orders))?;
    Ok(Figure { name, value, unit: "ns/order", floor })
}

//! The service's metrics in Prometheus format, with the process's health beside them.

mod catalog;
mod process;

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context as _;
use axum::routing::get;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use tokio::net::TcpListener;

pub(crate) use self::process::{follow, watch};
use crate::config::Role;
use crate::readiness::Readiness;

/// Histogram bounds in seconds. A commit takes between half a millisecond and four, a settlement minutes.
const COMMIT: [f64; 14] =
    [0.0005, 0.00075, 0.001, 0.0015, 0.002, 0.003, 0.004, 0.006, 0.01, 0.025, 0.1, 0.5, 1.0, 5.0];
/// Of OpenTelemetry's semantic conventions for requests, and two smaller ones.
const REQUEST: [f64; 16] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0];
const SETTLEMENT: [f64; 14] =
    [0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 900.0, 3600.0, 14_400.0, 86_400.0];
const UNITS: [f64; 10] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0];

/// How often recorded samples are moved into their buckets. Without it they pile up in memory until someone scrapes.
const UPKEEP: Duration = Duration::from_secs(5);

/// Collects from now on, for this process and its roles. Once.
pub(crate) fn collect(roles: &[Role]) -> anyhow::Result<PrometheusHandle> {
    let builder = buckets(PrometheusBuilder::new())?;
    let handle = builder.install_recorder().context("metrics")?;
    catalog::describe();
    process::preset(roles);
    Ok(handle)
}

fn buckets(builder: PrometheusBuilder) -> anyhow::Result<PrometheusBuilder> {
    let named = |name: &str| Matcher::Full(name.to_owned());
    let prefixed = |prefix: &str| Matcher::Prefix(prefix.to_owned());
    let builder = builder
        .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), &COMMIT)?
        .set_buckets_for_metric(named("dvp_writer_batch_units"), &UNITS)?
        .set_buckets_for_metric(prefixed("dvp_order_"), &SETTLEMENT)?;
    let requests = [
        "http_server_request_duration_seconds",
        "dvp_console_request_seconds",
        "dvp_fix_order_seconds",
        "dvp_rail_call_seconds",
        "dvp_webhook_attempt_seconds",
        "db_client_connection_wait_time_seconds",
    ];
    requests
        .iter()
        .try_fold(builder, |builder, name| Ok(builder.set_buckets_for_metric(named(name), &REQUEST)?))
}

/// Serves `/metrics`, `/livez` and `/readyz` until dropped. Port 0 takes any free one; the address taken is returned.
pub(crate) async fn serve(
    addr: SocketAddr,
    handle: PrometheusHandle,
    readiness: Readiness,
) -> anyhow::Result<(SocketAddr, impl Future<Output = ()> + use<>)> {
    let listener = TcpListener::bind(addr).await.with_context(|| format!("metrics on {addr}"))?;
    let local = listener.local_addr()?;
    let upkeep = handle.clone();
    let render = move || {
        process::sample();
        let text = handle.render();
        async move { ([("content-type", "text/plain; version=0.0.4")], text) }
    };
    let router = readiness.router().route("/metrics", get(render));
    let serving = async move {
        let upkeep = async {
            loop {
                tokio::time::sleep(UPKEEP).await;
                upkeep.run_upkeep();
            }
        };
        tokio::select! {
            served = axum::serve(listener, router) => {
                if let Err(error) = served {
                    tracing::error!(%error, "metrics listener failed");
                }
            }
            () = upkeep => {}
        }
    };
    Ok((local, serving))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_histogram_has_the_buckets_of_its_kind() {
        let recorder = buckets(PrometheusBuilder::new()).unwrap().build_recorder();
        let handle = recorder.handle();
        ::metrics::with_local_recorder(&recorder, || {
            ::metrics::histogram!("dvp_writer_commit_seconds").record(0.0012);
            ::metrics::histogram!("dvp_order_settlement_seconds").record(90.0);
            ::metrics::histogram!("http_server_request_duration_seconds").record(0.03);
            ::metrics::histogram!("dvp_fix_order_seconds").record(0.4);
            ::metrics::histogram!("dvp_writer_batch_units").record(3.0);
        });
        let text = handle.render();
        for line in [
            "dvp_writer_commit_seconds_bucket{le=\"0.001\"} 0",
            "dvp_writer_commit_seconds_bucket{le=\"0.0015\"} 1",
            "dvp_order_settlement_seconds_bucket{le=\"60\"} 0",
            "dvp_order_settlement_seconds_bucket{le=\"120\"} 1",
            "http_server_request_duration_seconds_bucket{le=\"0.05\"} 1",
            "dvp_fix_order_seconds_bucket{le=\"0.25\"} 0",
            "dvp_fix_order_seconds_bucket{le=\"0.5\"} 1",
            "dvp_writer_batch_units_bucket{le=\"4\"} 1",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    }
}

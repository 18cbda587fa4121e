//! Figures for whoever watches the service, as Prometheus reads them.

use std::net::SocketAddr;

use anyhow::Context as _;
use axum::routing::get;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use tokio::net::TcpListener;

use crate::readiness::Readiness;

/// Bounds of what is measured in seconds: a commit takes a millisecond, and many are a bad sign.
const SECONDS: [f64; 12] = [0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0];

/// Collects from now on, for this process. Once.
pub(crate) fn collect() -> anyhow::Result<PrometheusHandle> {
    let builder = PrometheusBuilder::new();
    let builder = builder.set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), &SECONDS)?;
    builder.install_recorder().context("metrics")
}

/// Serves `/metrics`, `/livez` and `/readyz` until dropped. Port 0 takes any free one; the address taken is returned.
pub(crate) async fn serve(
    addr: SocketAddr,
    handle: PrometheusHandle,
    readiness: Readiness,
) -> anyhow::Result<(SocketAddr, impl Future<Output = ()> + use<>)> {
    let listener = TcpListener::bind(addr).await.with_context(|| format!("metrics on {addr}"))?;
    let local = listener.local_addr()?;
    let render = move || {
        let text = handle.render();
        async move { ([("content-type", "text/plain; version=0.0.4")], text) }
    };
    let router = readiness.router().route("/metrics", get(render));
    let serving = async move {
        if let Err(error) = axum::serve(listener, router).await {
            tracing::error!(%error, "metrics listener failed");
        }
    };
    Ok((local, serving))
}

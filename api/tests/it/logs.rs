//! The log lines of requests.

use std::io::{self, Write};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use dvp_api::{Api, Limits, router};
use metrics_exporter_prometheus::PrometheusBuilder;
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::harness::{ApiHarness, Call};

/// Captures the log of this thread.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Log {
    /// Captures from now on, as long as the guard lives.
    fn capture() -> (Self, DefaultGuard) {
        let log = Self::default();
        let writer = log.clone();
        let subscriber =
            tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
        (log, subscriber.set_default())
    }

    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }

    fn line(&self, piece: &str) -> String {
        let text = self.text();
        let line = text.lines().find(|line| line.contains(piece));
        line.unwrap_or_else(|| panic!("no line with {piece}:\n{text}")).to_owned()
    }
}

#[tokio::test]
async fn a_request_is_logged_with_partner_key_route_status_and_code() {
    let harness = ApiHarness::new().await;
    let (log, _guard) = Log::capture();
    let ask = async || {
        harness.get(&harness.acme, "/v1/events").await.ok(200);
        harness.get(&harness.globex, "/v1/events?limit=0").await.refused(400, "INVALID_PARAMETER");
    };
    // Other tests log nothing, and lines that one of them reached first count as disabled until they are rebuilt.
    ask().await;
    tracing::callsite::rebuild_interest_cache();
    ask().await;
    for (piece, keys, partner, more) in [
        ("request answered", &harness.acme, "ptn_acme", "status=200"),
        ("request refused", &harness.globex, "ptn_globex", "code=\"INVALID_PARAMETER\""),
    ] {
        let line = log.line(piece);
        let partner = format!("partner=\"{partner}\"");
        for named in [&partner, &keys.id, more, "route=\"/v1/events\"", "request_id="] {
            assert!(line.contains(named), "{named} is missing in {line}");
        }
        assert!(!line.contains(&keys.api_key) && !line.contains(&keys.secret), "{line}");
    }
}

#[tokio::test]
async fn repeated_refusals_are_all_counted_and_rarely_logged() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let _recorder = metrics::set_default_local_recorder(&recorder);
    let harness = ApiHarness::new().await;
    let door = |limits| router(Api::new(harness.engine.clone()).with_limits(limits));
    let busy = door(Limits { in_flight: 0, ..Limits::default() });
    let timed_out = door(Limits { request: Duration::ZERO, ..Limits::default() });
    let (log, _guard) = Log::capture();
    tracing::callsite::rebuild_interest_cache();
    let started = Instant::now();
    for _ in 0..1_000 {
        for door in [&busy, &timed_out] {
            let answer = harness.send_to(door.clone(), &Call::get(&harness.acme, "/v1/events")).await;
            answer.refused(503, "SERVICE_UNAVAILABLE");
        }
    }
    harness.pool().close().await;
    for _ in 0..1_000 {
        harness.get(&harness.acme, "/v1/events").await.refused(503, "SERVICE_UNAVAILABLE");
    }
    let figures = recorder.handle().render();
    for kind in ["busy", "timed_out", "unavailable"] {
        assert!(figures.contains(&format!("dvp_rest_failed_total{{kind=\"{kind}\"}} 1000")), "{figures}");
    }
    let text = log.text();
    let is_failure = |line: &&str| line.contains("request failed") || line.contains("in flight");
    let lines = text.lines().filter(is_failure).count();
    assert!(u64::try_from(lines).unwrap() <= 3 * (2 + started.elapsed().as_secs()), "{text}");
}

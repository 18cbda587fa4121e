//! The log lines of requests.

use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use tracing::subscriber::DefaultGuard;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::harness::ApiHarness;

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

    fn line(&self, piece: &str) -> String {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
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

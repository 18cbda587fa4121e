//! The log lines of requests.

use std::fs;

use tempfile::NamedTempFile;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::harness::ApiHarness;

#[tokio::test]
async fn a_request_is_logged_with_partner_key_route_status_and_code() {
    let harness = ApiHarness::new().await;
    let log = NamedTempFile::new().unwrap();
    let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(log.reopen().unwrap()).finish();
    let _guard = subscriber.set_default();
    let ask = async || {
        harness.get(&harness.acme, "/v1/events").await.ok(200);
        harness.get(&harness.globex, "/v1/events?limit=0").await.refused(400, "INVALID_PARAMETER");
    };
    // Other tests log nothing, and lines that one of them reached first count as disabled until they are rebuilt.
    ask().await;
    tracing::callsite::rebuild_interest_cache();
    ask().await;
    let text = fs::read_to_string(log.path()).unwrap();
    for (piece, keys, partner, more) in [
        ("request answered", &harness.acme, "ptn_acme", "status=200"),
        ("request refused", &harness.globex, "ptn_globex", "code=\"INVALID_PARAMETER\""),
    ] {
        let line =
            text.lines().find(|line| line.contains(piece)).unwrap_or_else(|| panic!("no {piece}:\n{text}"));
        let partner = format!("partner=\"{partner}\"");
        for named in [&partner, &keys.id, more, "route=\"/v1/events\"", "request_id="] {
            assert!(line.contains(named), "{named} is missing in {line}");
        }
        assert!(!line.contains(&keys.api_key) && !line.contains(&keys.secret), "{line}");
    }
}

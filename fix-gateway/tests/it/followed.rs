//! The follower of the feed, whose connection is cut.

use std::collections::BTreeSet;

use super::harness::{LIMIT, logged_on, place};

/// Ends every connection that listens for notifications, as a restart of the database or of a proxy does.
const CUT: &str = "select count(pg_terminate_backend(pid)) from pg_stat_activity \
                   where datname = current_database() and query ilike 'listen %' and pid <> pg_backend_pid()";
const LISTENERS: &str = "select count(*) from pg_stat_activity \
                         where datname = current_database() and query ilike 'listen %' and pid <> pg_backend_pid()";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_reconnects_without_losing_events() {
    let (harness, gateway, mut client) = logged_on().await;
    harness.wait_for_count(LISTENERS, 1).await;
    for round in ["first", "second"] {
        place(&mut client, round, "12345678", LIMIT).await;
        assert!(harness.count(CUT).await >= 1, "the follower listens before the {round} cut");
        if round == "first" {
            harness.settle_everything();
        }
        let (mut states, mut ids) = (Vec::new(), BTreeSet::new());
        while states.last().is_none_or(|state| state != "2") {
            let report = client.expect("8").await;
            assert_eq!(report.text(11), Some(round), "{report:?}");
            assert!(ids.insert(report.text(17).unwrap().to_owned()), "twice: {report:?}");
            states.push(report.text(39).unwrap().to_owned());
        }
        assert_eq!(states, ["0", "0", "0", "2"], "{round}");
    }
    gateway.stop().await;
}

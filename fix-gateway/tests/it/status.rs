//! What operators see of a session while it runs.

use dvp_store::fix::status::{self, SessionStatus};
use dvp_testing::wait::wait_for;

use super::{
    client::Client,
    harness::{FixHarness, SESSION},
};

/// The session's status, once it is as wanted.
async fn shown(harness: &FixHarness, what: &str, wanted: impl Fn(&SessionStatus) -> bool) -> SessionStatus {
    wait_for(what, async || {
        let mut conn = harness.pool().acquire().await.unwrap();
        status::list(&mut conn, &[SESSION]).await.unwrap().into_iter().find(|status| wanted(status))
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connection_numbers_and_gap_of_a_session_are_shown_by_its_owner_only() {
    let harness = FixHarness::new().await;
    let gateway = harness.gateway().await;
    let idle = shown(&harness, "an idle session", |_| true).await;
    assert_eq!((idle.connection, idle.last_in_at, idle.gap), (None, None, None));

    let mut client = gateway.client().await;
    let up = shown(&harness, "the connection", |status| status.last_out_at.is_some()).await;
    let (peer, since) = up.connection.clone().unwrap();
    assert!(peer.starts_with("127.0.0.1:"), "{peer}");
    assert!(up.last_in_at >= Some(since) && up.last_out_at >= Some(since), "{up:?}");
    assert_eq!((up.next_in, up.next_out), (2, 2));

    // A Heartbeat counts, although no order makes its number durable.
    client.send("0", "").await;
    let beat = shown(&harness, "the heartbeat", |status| status.next_in == 3).await;
    assert!(beat.last_in_at > up.last_in_at && beat.connection == up.connection, "{beat:?}");

    // Two messages are missing, and then they are not.
    client.send_as(5, None, "1", "112=late").await;
    let resend = client.expect("2").await;
    assert_eq!((resend.text(7), resend.text(16)), (Some("3"), Some("0")));
    let broken = shown(&harness, "the gap", |status| status.gap.is_some()).await;
    assert_eq!((broken.gap, broken.next_in), (Some((3, 4)), 3));
    client.send_as(3, Some(Client::utc()), "4", "123=Y|36=5").await;
    let whole = shown(&harness, "the end of the gap", |status| status.gap.is_none()).await;
    assert_eq!(whole.next_in, 6);

    drop(client);
    let away = shown(&harness, "the disconnect", |status| status.connection.is_none()).await;
    assert!(away.last_in_at >= whole.last_in_at, "{away:?}");

    gateway.stop().await;
    let mut conn = harness.pool().acquire().await.unwrap();
    assert_eq!(status::list(&mut conn, &[SESSION]).await.unwrap(), [], "no process owns the session");

    // A process that has lost the session writes nothing more about it.
    let stale = SessionStatus { connection: up.connection, ..away.clone() };
    let other = uuid::Uuid::from_u128(7);
    status::write(&mut conn, other, &[stale]).await.unwrap();
    let peers: Vec<Option<String>> =
        sqlx::query_scalar("select peer from fix_session_status where session_id = $1")
            .bind(SESSION)
            .fetch_all(&mut *conn)
            .await
            .unwrap();
    assert_eq!(peers, [None]);
}

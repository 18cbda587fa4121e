//! What open pages are told of changes.

use std::time::Duration;

use dvp_console::SessionPolicy;
use dvp_domain::operator::OperatorRole;
use dvp_testing::market::pair;
use dvp_testing::orders::order;
use dvp_testing::{Harness, Market};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use crate::scene::{ORIGIN, Scene};

/// The subjects that a page is told, until one of them is `wanted`.
async fn told(events: &mut Lines<BufReader<TcpStream>>, wanted: &str) {
    let heard = async {
        while let Some(line) = events.next_line().await.unwrap() {
            let subjects = line.strip_prefix("data: ").unwrap_or_default();
            if subjects.split(' ').any(|subject| subject == wanted) {
                return;
            }
        }
        panic!("the stream ended before {wanted}");
    };
    let waited = tokio::time::timeout(Duration::from_secs(60), heard).await;
    assert!(waited.is_ok(), "{wanted} was not announced");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_is_told_of_every_kind_of_change() {
    let market = Market::new(vec![pair("USDC", "USD", "1")]).with_funds("north", "USD", 1_000_000_000);
    let scene = Scene::with(Harness::new(market).await, ORIGIN, SessionPolicy::default());
    let cookie = scene.sign_in("jo", &[OperatorRole::Viewer]).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let stop = CancellationToken::new();
    let serving = tokio::spawn(dvp_console::serve(listener, scene.console(), stop.clone()));
    let mut socket = TcpStream::connect(address).await.unwrap();
    let request = format!("GET /live HTTP/1.1\r\nHost: console\r\nCookie: {cookie}\r\n\r\n");
    socket.write_all(request.as_bytes()).await.unwrap();
    let mut events = BufReader::new(socket).lines();
    assert_eq!(events.next_line().await.unwrap().as_deref(), Some("HTTP/1.1 200 OK"));
    while events.next_line().await.unwrap().is_some_and(|line| !line.starts_with("retry:")) {}

    scene.harness.accept(order("000123456789")).await;
    told(&mut events, "feed").await;
    for (subject, change) in [
        (
            "approvals",
            "insert into approval (id, kind, subject, action, details, version, maker, reason, evidence, expires_at) \
             values ('apr_1', 'ledger', 'op_1', 'post', '{}', 0, 'jo', 'r', 'e', now() + interval '1 hour')",
        ),
        (
            "breaks",
            "insert into reconciliation_run (chain_id, block_number, block_hash, block_time, subjects, queries, started_at) \
             values (1, 1, decode(repeat('01', 32), 'hex'), now(), 1, 1, now())",
        ),
        (
            "chains",
            "insert into chain_status (chain_id, name, state, node_head, node_final) \
             values (1, 'home', 'following', 1, 1)",
        ),
        ("controls", "insert into pause (scope, target, operator, reason) values ('pair', 'A/B', 'jo', 'r')"),
        ("controls", "delete from pause"),
        ("partners", "update partner set name = name"),
        ("operators", "update operator_session set ended_at = null"),
        (
            "audit",
            "insert into console_record (operator, action, route, subject, source) \
             values ('jo', 'acted', 'r', 's', 'here')",
        ),
        ("fix", "select pg_notify('dvp_console', 'fix')"),
        ("webhooks", "select pg_notify('dvp_console', 'webhooks')"),
    ] {
        scene.run(change).await;
        told(&mut events, subject).await;
    }
    stop.cancel();
    serving.await.unwrap().unwrap();
}

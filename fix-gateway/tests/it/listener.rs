//! The checks before authentication: addresses, proxies, budgets.

use std::{net::SocketAddr, time::Duration};

use dvp_fix_gateway::{ListenerConfig, sources::Budget};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use super::{
    client::Client,
    harness::{FixHarness, LOGON},
};

const PATIENCE: Duration = Duration::from_secs(120);

/// All bytes that the other side sends until it closes the connection, which it must.
async fn read_to_end(mut stream: TcpStream) -> Vec<u8> {
    let mut said = Vec::new();
    // A reset is an end, too: unread bytes are thrown away with the connection.
    let _ = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut said)).await.expect("not closed");
    said
}

async fn after(addr: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(addr).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    read_to_end(stream).await
}

/// A client of `ACME` behind a proxy that sends this header.
pub(crate) async fn via_proxy(addr: SocketAddr, header: &str) -> Client {
    let mut stream = TcpStream::connect(addr).await.unwrap();
    stream.write_all(header.as_bytes()).await.unwrap();
    Client::over(stream, "FIX.4.4", "ACME")
}

fn budget(change: impl FnOnce(&mut Budget)) -> ListenerConfig {
    let mut budget = Budget::default();
    change(&mut budget);
    ListenerConfig { budget, ..ListenerConfig::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn behind_a_proxy_the_header_is_required_and_gives_the_source() {
    let harness = FixHarness::new().await;
    let listener = ListenerConfig {
        proxies: vec!["127.0.0.0/8".parse().unwrap()],
        allow: vec!["203.0.113.0/24".parse().unwrap()],
        ..ListenerConfig::default()
    };
    let elsewhere =
        ListenerConfig { proxies: vec!["192.0.2.0/24".parse().unwrap()], ..ListenerConfig::default() };
    let gateway = harness.gateway_with(vec![listener, elsewhere]).await;
    let [listener, elsewhere] = gateway.listener_addrs[..] else { panic!("two listeners") };

    let mut allowed = via_proxy(listener, "PROXY TCP4 203.0.113.7 192.0.2.1 4711 9880\r\n").await;
    allowed.log_on(LOGON).await;
    let mut denied = via_proxy(listener, "PROXY TCP4 198.51.100.7 192.0.2.1 4711 9880\r\n").await;
    assert!(denied.next().await.is_none(), "an address that is not allowed");
    let mut health_check = via_proxy(listener, "PROXY UNKNOWN\r\n").await;
    assert!(health_check.next().await.is_none(), "the proxy itself is nobody");
    let mut no_header = Client::connect(listener, "FIX.4.4", "ACME42").await;
    assert!(no_header.is_refused(LOGON).await, "no header");
    let mut malformed = via_proxy(listener, "PROXY TCP4 203.0.113.7\r\n").await;
    assert!(malformed.next().await.is_none(), "half a header");
    let mut untrusted = via_proxy(elsewhere, "PROXY TCP4 203.0.113.7 192.0.2.1 4711 9880\r\n").await;
    assert!(untrusted.next().await.is_none(), "no proxy of ours");
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unauthenticated_connections_are_closed_silently() {
    let harness = FixHarness::new().await;
    let listener = budget(|budget| {
        budget.logon = Duration::from_millis(300);
        budget.logon_bytes_max = 1024;
    });
    let gateway = harness.gateway_with(vec![listener]).await;
    let listener = gateway.listener_addrs[0];
    assert_eq!(after(listener, b"").await, b"", "nothing");
    assert_eq!(after(listener, b"8=FIX.4.4\x019=").await, b"", "the beginning of a Logon");
    let long = format!("8=FIX.4.4\u{1}9=5000\u{1}35=A\u{1}58={}", "x".repeat(4000));
    assert_eq!(after(listener, long.as_bytes()).await, b"", "an endless Logon");
    assert_eq!(after(listener, &vec![b'x'; 100_000]).await, b"", "noise");
    assert_eq!(after(listener, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await, b"", "another protocol");
    let mut early = Client::connect(listener, "FIX.4.4", "ACME").await;
    early.send("1", "112=x").await;
    assert!(early.next().await.is_none(), "a message before the Logon");
    // One byte at a time does not make the time longer.
    let mut drip = TcpStream::connect(listener).await.unwrap();
    let (mut read, mut write) = drip.split();
    let dripping = async {
        while write.write_all(b"x").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let mut byte = [0];
    let closed = async { !matches!(read.read(&mut byte).await, Ok(1)) };
    tokio::select! {
        () = dripping => {}
        closed = closed => assert!(closed),
        () = tokio::time::sleep(PATIENCE) => panic!("not closed"),
    }
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_limit_on_unauthenticated_connections_excludes_sessions() {
    let harness = FixHarness::new().await;
    let listener = budget(|budget| {
        budget.logon = Duration::from_secs(5);
        budget.unauthenticated_per_source_max = 2;
    });
    let gateway = harness.gateway_with(vec![listener]).await;
    let listener = gateway.listener_addrs[0];
    let mut first = Client::connect(listener, "FIX.4.4", "ACME").await;
    first.log_on(LOGON).await;
    let idle = [TcpStream::connect(listener).await.unwrap(), TcpStream::connect(listener).await.unwrap()];
    // A task accepts each connection: both have been accepted once the third is refused.
    let mut third = Client::connect(listener, "FIX.4.4", "ACME42").await;
    assert!(third.next().await.is_none());
    for stream in idle {
        assert_eq!(read_to_end(stream).await, b"");
    }
    let mut second = Client::connect(listener, "FIX.4.2", "ACME42").await;
    second.log_on("95=6|96=secret").await;
    first.send("1", "112=still").await;
    assert_eq!(first.expect("0").await.text(112), Some("still"));
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_of_a_source_are_limited_per_minute() {
    let harness = FixHarness::new().await;
    let gateway = harness.gateway_with(vec![budget(|budget| budget.connections_per_minute = 3)]).await;
    let listener = gateway.listener_addrs[0];
    for _ in 0..2 {
        drop(TcpStream::connect(listener).await.unwrap());
    }
    let mut third = Client::connect(listener, "FIX.4.4", "ACME").await;
    third.log_on(LOGON).await;
    let mut fourth = Client::connect(listener, "FIX.4.2", "ACME42").await;
    assert!(fourth.next().await.is_none());
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shutdown_closes_unauthenticated_connections() {
    let harness = FixHarness::new().await;
    let gateway = harness.gateway().await;
    let unauthenticated = TcpStream::connect(gateway.addr).await.unwrap();
    let mut client = gateway.client().await;
    gateway.stop().await;
    assert_eq!(read_to_end(unauthenticated).await, b"");
    client.expect("5").await;
}

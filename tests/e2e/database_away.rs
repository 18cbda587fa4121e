//! A database host that vanishes: its packets are dropped without notice.

use std::net::SocketAddr;
use std::time::Duration;

use dvp_sandbox::embedded::black_hole::BlackHole;
use serde_json::{Value, json};
use tokio::net::TcpStream;

use crate::fix::FixClient;
use crate::partner::Partner;
use crate::served::Ground;
use crate::wait::{answer, until};

/// A request that takes longer hangs.
const HANGS: Duration = Duration::from_secs(90);

async fn answered(work: impl Future<Output = (u16, Value)>) -> (u16, Value) {
    tokio::time::timeout(HANGS, work).await.expect("the request hangs")
}

/// Asks again and again until the answer has this status.
async fn until_answered<F: Future<Output = (u16, Value)>>(status: u16, ask: impl Fn() -> F) -> Value {
    answer(async || answered(ask()).await, |(found, _)| *found == status).await.1
}

async fn get(url: String) -> (u16, Value) {
    let response = reqwest::get(url).await.unwrap();
    (response.status().as_u16(), response.json().await.unwrap())
}

/// Logs on, as a peer does that tries again until it is let in.
async fn log_on(fix: SocketAddr) -> FixClient {
    let mut admitted = None;
    until("an admitted peer", async || {
        let socket = Box::new(TcpStream::connect(fix).await.unwrap());
        let ids = ["ACME".to_owned(), "DVP".to_owned()];
        let client = FixClient::try_log_on(socket, ids, "acme".into(), "secret".into());
        // It panics when it is refused.
        let client = tokio::time::timeout(HANGS, tokio::spawn(client)).await;
        admitted = client.ok().and_then(Result::ok).flatten();
        admitted.is_some()
    })
    .await;
    admitted.unwrap()
}

async fn is_alive(client: &mut FixClient) {
    client.send_raw("1", &[(112, "there?")]).await;
    assert_eq!(client.report(|message| message.get(35) == "0").await.get(112), "there?");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_service_recovers_from_an_unreachable_database() {
    let ground = Ground::prepare().await;
    let keys = ground.furnish();
    let session = ["fix-session", "add", "--begin-string", "FIX.4.4", "--sender-comp-id", "ACME"];
    ground.said(&[&session[..], &["--partner", "acme", "--password", "secret"]].concat());
    let (_, rest) = ground.database.url().split_once('@').unwrap();
    let (server, _) = rest.split_once('/').unwrap();
    let way = BlackHole::on_the_way_to(server.to_owned()).await.unwrap();
    let mut served = ground.serve_over("api,fix,indexer,worker", &way.url(ground.database.url()).unwrap());
    let http = served.ready().await.unwrap();
    let [metrics, fix] =
        ["metrics listening addr=", "fix=Some("].map(|before| served.address(before).unwrap());
    let service = Box::new(ground.seen_by_a_partner(http, &keys));
    let partner = Partner::of(&service);
    let ready = || get(format!("http://{metrics}/readyz"));
    let (status, said) = answered(ready()).await;
    assert_eq!((status, &said["ready"], &said["reasons"]), (200, &json!(true), &json!(null)));
    let first = partner.order(&service, 0, "000123456789").await;
    assert_eq!(answered(partner.submit(&first)).await.0, 202);
    let mut client = log_on(fix).await;
    is_alive(&mut client).await;

    way.swallow();
    let second = partner.order_from(&service, 0, "000123456789", 1).await;
    let (status, answer) = answered(partner.submit(&second)).await;
    assert_eq!(status, 503, "{answer}");
    let said = until_answered(503, ready).await;
    assert_eq!((&said["ready"], &said["reasons"]), (&json!(false), &json!(["database"])));
    assert_eq!(answered(get(format!("http://{metrics}/livez"))).await, (200, json!({"live": true})));
    for path in ["/healthz", "/v1/events", "/v1/executions/x"] {
        assert_eq!(answered(partner.get(path)).await.0, 503, "{path}");
    }
    // A peer whose TestRequest has no answer ends the connection.
    client.send_raw("1", &[(112, "anyone?")]).await;
    drop(client);

    way.forward();
    until_answered(200, ready).await;
    until_answered(202, || partner.submit(&second)).await;
    is_alive(&mut log_on(fix).await).await;
    // The indexer has read no block since.
    until_answered(200, || partner.get("/healthz")).await;
    for order in [&first, &second] {
        let reference = order["clientReference"].as_str().unwrap();
        let execution = partner.wait_until(reference, |e| !e["finality"].is_null()).await;
        assert_eq!(execution["status"], "completed");
    }
    served.terminate();
    served.ended_well().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_starts_while_there_is_no_primary_shows_the_outage() {
    let ground = Ground::prepare().await;
    ground.furnish();
    let (user, rest) = ground.database.url().split_once('@').unwrap();
    let (server, name) = rest.split_once('/').unwrap();
    let way = BlackHole::on_the_way_to(server.to_owned()).await.unwrap();
    way.swallow();
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    ground.write("second", &format!("{user}@{closed}/{name}"));
    let second = ground.path("second");
    let two =
        format!("urls = [\"env:SERVED_DATABASE\", \"file:{}\"]\nrequire_standby = false", second.display());
    ground.write("dvp.toml", &ground.configured(&[("url = \"env:SERVED_DATABASE\"", two)]));

    let mut served = ground.serve_over("api,worker", &way.url(ground.database.url()).unwrap());
    answer(async || served.log(), |log| log.contains("looking for the database's primary")).await;
    let metrics = format!("http://{}/metrics", served.address("metrics listening addr=").unwrap());
    let shown = async || reqwest::get(&metrics).await.unwrap().text().await.unwrap();
    let text = shown().await;
    let has = |text: &str, line: &str| text.lines().any(|shown| shown == line);
    for gauge in ["dvp_database_available", "dvp_writer_available"] {
        assert!(has(&text, &format!("{gauge} 0")), "{gauge}:\n{text}");
    }
    for what in ["figures", "ledger_check", "ledger_whole_check"] {
        let gauge = format!("dvp_{what}_last_success_timestamp_seconds ");
        assert!(text.lines().any(|line| line.starts_with(&gauge)), "{gauge}:\n{text}");
    }

    way.forward();
    served.ready().await.unwrap();
    let text = shown().await;
    for gauge in ["dvp_database_available", "dvp_writer_available"] {
        assert!(has(&text, &format!("{gauge} 1")), "{gauge}:\n{text}");
    }
    assert!(has(&text, "dvp_database_outages_total 0"), "{text}");
    served.terminate();
    served.ended_well().await;
}

//! Several processes on one database: who has a session, and how a connection reaches it.

use std::time::Duration;

use dvp_fix_gateway::{
    ListenerConfig,
    tls::{ClientCertificates, TlsVersion},
};
use dvp_testing::wait::wait_for;
use sha2::{Digest as _, Sha256};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};
use tokio_rustls::rustls::{
    pki_types::{CertificateDer, pem::PemObject as _},
    version::TLS13,
};

use super::{
    client::Client,
    harness::{FixHarness, Gateway, LIMIT, LOGON, SESSION, VERSIONS, order},
    listener::via_proxy,
    tls::{self, Files, Identity},
};

/// A process that is registered and takes no session.
const IDLE_PROCESS: &str = "insert into fix_process (id, forward_address, alive_until) \
                            values (gen_random_uuid(), '127.0.0.1:1', 'infinity')";

/// The processes that own sessions, by their address for forwarded connections, and the number of sessions of each.
async fn owners(harness: &FixHarness) -> Vec<(String, i64)> {
    sqlx::query_as(
        "select p.forward_address, count(*) from lease l join fix_process p on p.id = l.owner \
         where l.name like 'fix:%' and l.expires_at > clock_timestamp() group by 1 order by 2",
    )
    .fetch_all(harness.pool())
    .await
    .unwrap()
}

/// The address of the process that owns a session.
async fn owner(harness: &FixHarness, session: &str) -> Option<String> {
    sqlx::query_scalar(
        "select p.forward_address from lease l join fix_process p on p.id = l.owner \
         where l.name = 'fix:' || $1 and l.expires_at > clock_timestamp()",
    )
    .bind(session)
    .fetch_optional(harness.pool())
    .await
    .unwrap()
}

/// Waits until each of the processes owns a session, and all sessions have an owner.
async fn wait_until_shared(harness: &FixHarness) {
    wait_for("each process owns its share", async || {
        let owners = owners(harness).await;
        (owners.len() == 2 && owners.iter().map(|(_, count)| count).sum::<i64>() == 3).then_some(())
    })
    .await;
}

/// Waits until the process owns all sessions.
async fn wait_until_all_are_at(harness: &FixHarness, process: &Gateway) -> [(String, i64); 1] {
    let all = [(process.forward_address.clone().unwrap(), 3)];
    wait_for("all sessions", async || (owners(harness).await == all).then_some(())).await;
    all
}

/// Two processes that share the sessions: the owner of `FIX.4.4:DVP->ACME` first.
async fn two_processes(harness: &FixHarness) -> (Gateway, Gateway) {
    let first = harness.process(Vec::new(), |_| ()).await;
    let second = harness.process(Vec::new(), |_| ()).await;
    wait_until_shared(harness).await;
    if owner(harness, SESSION).await == first.forward_address { (first, second) } else { (second, first) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_session_is_reached_through_every_process() {
    let harness = FixHarness::new().await;
    let (first, second) = two_processes(&harness).await;
    for (n, (begin_string, comp_id, logon)) in VERSIONS.into_iter().enumerate() {
        let mut client = Client::connect(first.addr, begin_string, comp_id).await;
        client.log_on_when_let_in(first.addr, logon).await;
        for (m, gateway) in [&first, &second, &first].into_iter().enumerate() {
            let id = format!("{n}-{m}");
            client.send("D", &order(&id, "12345678", LIMIT)).await;
            assert_eq!(client.expect("8").await.text(11), Some(id.as_str()));
            client.log_out().await;
            while client.next().await.is_some() {}
            client.log_on_when_let_in(gateway.addr, logon).await;
        }
    }
    assert_eq!(harness.count("select count(*) from execution").await, 9);
    assert_eq!(owners(&harness).await.len(), 2);
    first.stop().await;
    second.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_logon_is_refused_at_the_wrong_process_alike() {
    let harness = FixHarness::new().await;
    let (owner, other) = two_processes(&harness).await;
    for wrong in ["553=acme|554=wrong|141=Y", "554=secret", ""] {
        let mut client = Client::connect(other.addr, "FIX.4.4", "ACME").await;
        assert!(client.is_refused(wrong).await, "{wrong}");
    }
    let numbers = "select next_in + next_out from fix_session where client_comp_id = 'ACME'";
    assert_eq!(harness.count(numbers).await, 2);
    // A second connection is refused whichever process it comes through.
    let mut client = Client::connect(other.addr, "FIX.4.4", "ACME").await;
    client.log_on_when_let_in(other.addr, LOGON).await;
    for gateway in [&owner, &other] {
        let mut second = Client::connect(gateway.addr, "FIX.4.4", "ACME").await;
        assert!(second.is_refused(LOGON).await);
    }
    client.send("1", "112=there").await;
    assert_eq!(client.expect("0").await.text(112), Some("there"));
    owner.stop().await;
    other.stop().await;
}

/// Whether the Logon that was sent is accepted; logs out again. The session may move to the other process meanwhile.
async fn is_let_in(mut client: Client) -> bool {
    let Some(answer) = client.next().await else { return false };
    assert_eq!(answer.text(35), Some("A"), "{answer:?}");
    client.try_send("5", "").await;
    while client.next().await.is_some() {}
    true
}

/// Whether a Logon that comes with a PROXY header for this address is accepted.
async fn is_let_in_from(gateway: &Gateway, address: &str) -> bool {
    let header = format!("PROXY TCP4 {address} 127.0.0.1 4000 9880\r\n");
    let mut client = via_proxy(gateway.listener_addrs[0], &header).await;
    client.send("A", &format!("98=0|108=30|141=Y|{LOGON}")).await;
    is_let_in(client).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_owner_decides_by_the_peers_own_address() {
    let harness = FixHarness::new().await;
    let allowed = || vec!["203.0.113.7/32".to_owned()];
    harness.change_settings(|settings| settings.allowed_sources = Some(allowed())).await;
    let behind_proxy = || {
        vec![ListenerConfig { proxies: vec!["127.0.0.1/32".parse().unwrap()], ..ListenerConfig::default() }]
    };
    let first = harness.process(behind_proxy(), |_| ()).await;
    let second = harness.process(behind_proxy(), |_| ()).await;
    wait_until_shared(&harness).await;
    harness.execute("update fix_session set reset_allowed = true").await;
    for gateway in [&first, &second] {
        wait_for("an allowed address", async || is_let_in_from(gateway, "203.0.113.7").await.then_some(()))
            .await;
        assert!(!is_let_in_from(gateway, "203.0.113.8").await);
        // Not the address of the process that forwards.
        assert!(!is_let_in_from(gateway, "127.0.0.1").await);
    }
    first.stop().await;
    second.stop().await;
}

/// Whether a Logon over TLS with this certificate is accepted.
async fn is_let_in_with(
    harness: &FixHarness,
    gateway: &Gateway,
    files: &Files,
    identity: Option<&Identity>,
) -> bool {
    let at = gateway.listener_addrs[0];
    let stream = tls::connect(at, &files.servers, &[&TLS13], identity).await.unwrap();
    let mut client = Client::over(stream, "FIX.4.4", "ACME");
    let next_in = "select next_in from fix_session where client_comp_id = 'ACME'";
    client.next_out = u64::try_from(harness.count(next_in).await).unwrap();
    client.send("A", &format!("98=0|108=30|{LOGON}")).await;
    is_let_in(client).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_owner_decides_by_the_peers_own_certificate() {
    let (harness, files) = (FixHarness::new().await, Files::new());
    let listeners = || {
        let clients = ClientCertificates::Optional(files.path("clients.pem"));
        vec![tls::listener(files.tls(clients, TlsVersion::Tls12))]
    };
    let own = tls::identity(&files.clients, "fix.acme.example");
    let other = tls::identity(&files.clients, "fix.other.example");
    let der = CertificateDer::from_pem_slice(own.certificate.as_bytes()).unwrap();
    let sha256 = Sha256::digest(&der).to_vec();
    harness
        .change_settings(|settings| {
            settings.client_cert_sha256 = Some(vec![sha256.clone()]);
            settings.client_cert_names = Some(vec!["fix.acme.example".to_owned()]);
        })
        .await;
    let first = harness.process(listeners(), |_| ()).await;
    let second = harness.process(listeners(), |_| ()).await;
    wait_until_shared(&harness).await;
    for gateway in [&first, &second] {
        wait_for("an allowed certificate", async || {
            is_let_in_with(&harness, gateway, &files, Some(&own)).await.then_some(())
        })
        .await;
        for identity in [Some(&other), None] {
            assert!(!is_let_in_with(&harness, gateway, &files, identity).await);
        }
    }
    first.stop().await;
    second.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_processes_of_the_service_forward_connections() {
    let harness = FixHarness::new().await;
    let (owner, other) = two_processes(&harness).await;
    let address = owner.forward_address.clone().unwrap();
    let header = br#"{"peer":"203.0.113.7:1","certificate":null}"#;
    let length = u16::try_from(header.len()).unwrap().to_be_bytes();
    for bytes in [&[&length[..], header].concat()[..], b"8=FIX.4.4\x019=5\x0135=A\x0110=000\x01", b"\x16\x03"]
    {
        let mut stream = TcpStream::connect(&address).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        stream.shutdown().await.unwrap();
        // At most an alert of TLS; never a verdict.
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        assert!(answer.is_empty() || answer[0] == 0x15, "{answer:?}");
    }
    // A server of another service at the address of the owner gets no Logon, and the peer no answer.
    let impostor = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = impostor.local_addr().unwrap().to_string();
    let seen = tokio::spawn(async move {
        let (mut stream, _) = impostor.accept().await.unwrap();
        let mut seen = vec![0; 4096];
        let length = stream.read(&mut seen).await.unwrap();
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
        seen.truncate(length);
        let _ = stream.read_to_end(&mut seen).await;
        seen
    });
    owner.kill().await;
    sqlx::query(
        "with p as (insert into fix_process (id, forward_address, alive_until) \
                    values (gen_random_uuid(), $1, 'infinity') returning id) \
         update lease set owner = p.id, expires_at = 'infinity' from p where name = 'fix:' || $2",
    )
    .bind(at)
    .bind(SESSION)
    .execute(harness.pool())
    .await
    .unwrap();
    wait_for("the impostor is contacted", async || {
        let mut client = Client::connect(other.addr, "FIX.4.4", "ACME").await;
        assert!(client.is_refused(LOGON).await);
        seen.is_finished().then_some(())
    })
    .await;
    let seen = seen.await.unwrap();
    assert!(!seen.windows(6).any(|part| part == b"secret"));
    other.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_process_hands_its_sessions_over_without_being_polled_for_it() {
    let harness = FixHarness::new().await;
    let first = harness.process(Vec::new(), |_| ()).await;
    wait_until_all_are_at(&harness, &first).await;
    let mut client = Client::connect(first.addr, "FIX.4.4", "ACME").await;
    client.log_on(LOGON).await;
    client.ask("D", &order("before", "12345678", LIMIT), "8").await;
    // It looks at the sessions when it starts, and then when it is notified only.
    let second = harness
        .process(Vec::new(), |config| {
            config.refresh = Duration::from_secs(3600);
            config.refusal_delay = Duration::from_secs(2);
        })
        .await;
    wait_until_shared(&harness).await;
    // The session with a peer is not released for another process's sake.
    assert_eq!(owner(&harness, SESSION).await, first.forward_address);
    let stopping = tokio::spawn(first.stop());
    let logout = client.expect("5").await;
    assert_eq!(logout.text(58), Some("server draining, please reconnect"));
    client.send("5", "").await;
    while client.next().await.is_some() {}
    stopping.await.unwrap();
    // The number goes on where the first owner left it.
    let answer = client.log_on_when_let_in(second.addr, LOGON).await;
    assert_eq!(answer.seq().unwrap().0, logout.seq().unwrap().0 + 1);
    client.ask("D", &order("after", "12345678", LIMIT), "8").await;
    wait_until_all_are_at(&harness, &second).await;
    second.stop().await;
    let left = "select count(*) from lease where name like 'fix:%' and expires_at > clock_timestamp()";
    assert_eq!(harness.count(left).await, 0);
    assert_eq!(harness.count("select count(*) from fix_process").await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_peer_of_a_stopping_process_is_logged_out_of_its_session_elsewhere() {
    let harness = FixHarness::new().await;
    let (owner, other) = two_processes(&harness).await;
    let mut client = Client::connect(other.addr, "FIX.4.4", "ACME").await;
    client.log_on_when_let_in(other.addr, LOGON).await;
    // What was sent before the stop is processed.
    let stopping = tokio::spawn(other.stop());
    client.send("D", &order("late", "12345678", LIMIT)).await;
    let mut texts = Vec::new();
    loop {
        let message = client.next().await.expect("a Logout");
        texts.push(message.text(35).unwrap().to_owned());
        if message.text(35) == Some("5") {
            assert_eq!(message.text(58), Some("server draining, please reconnect"));
            break;
        }
    }
    client.send("5", "").await;
    while client.next().await.is_some() {}
    stopping.await.unwrap();
    // The session stayed where it was.
    client.reconnect(owner.addr).await;
    client.resume(LOGON).await;
    client.send("1", "112=end").await;
    loop {
        let message = client.next().await.expect("the session goes on");
        if message.text(112) == Some("end") {
            break;
        }
    }
    assert_eq!(harness.count("select count(*) from execution").await, 1);
    owner.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_no_other_process_takes_is_taken_beyond_the_share_and_kept() {
    let harness = FixHarness::new().await;
    harness.execute(IDLE_PROCESS).await;
    let process = harness.process(Vec::new(), |_| ()).await;
    let all = wait_until_all_are_at(&harness, &process).await;
    let acquired = "select sum(fence)::int8 from lease where name like 'fix:%'";
    let before = harness.count(acquired).await;
    // Each look at the sessions extends the registration.
    let alive = "select (extract(epoch from max(alive_until)) * 1000)::int8 from fix_process \
                 where alive_until < 'infinity'";
    for _ in 0..10 {
        let last = harness.count(alive).await;
        wait_for("another look", async || (harness.count(alive).await > last).then_some(())).await;
    }
    assert_eq!((harness.count(acquired).await, owners(&harness).await), (before, all.into()));
    process.stop().await;
}

/// A process that looks at the sessions when it starts, and later only when it is told or expects something.
async fn patient(harness: &FixHarness) -> Gateway {
    harness.process(Vec::new(), |config| config.refresh = Duration::from_secs(3600)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_processs_share_is_taken_before_the_next_look() {
    let harness = FixHarness::new().await;
    harness.execute(IDLE_PROCESS).await;
    let process = patient(&harness).await;
    wait_until_all_are_at(&harness, &process).await;
    process.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_processs_session_is_taken_when_its_lease_ends() {
    let harness = FixHarness::new().await;
    let sql = "insert into lease (name, owner, fence, expires_at) \
         values ('fix:' || $1, gen_random_uuid(), 1, clock_timestamp() + interval '3 s')";
    harness.run_of(sql, SESSION).await;
    let process = patient(&harness).await;
    wait_until_all_are_at(&harness, &process).await;
    process.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_lost_a_session_commits_nothing_for_it() {
    let harness = FixHarness::new().await;
    // So long that the process does not notice by itself.
    let process = harness.process(Vec::new(), |config| config.lease_ttl = Duration::from_secs(3600)).await;
    let mut client = Client::connect(process.addr, "FIX.4.4", "ACME").await;
    client.log_on_when_let_in(process.addr, LOGON).await;
    // Another process has the session, as when this one was frozen, and has committed a report.
    let sql = "update lease set owner = gen_random_uuid(), fence = fence + 1 where name = 'fix:' || $1";
    harness.run_of(sql, SESSION).await;
    let sql = "update fix_session set next_out = next_out + 1, feed_position = 1000 where session_id = $1";
    harness.run_of(sql, SESSION).await;
    let numbers =
        "select format('%s %s %s', next_in, next_out, feed_position) from fix_session where session_id = $1";
    let read = async || -> String {
        sqlx::query_scalar(numbers).bind(SESSION).fetch_one(harness.pool()).await.unwrap()
    };
    let before = read().await;
    client.send("D", &order("late", "12345678", LIMIT)).await;
    assert!(client.next().await.is_none());
    // It has loaded the numbers again by now.
    client.reconnect(process.addr).await;
    assert!(client.is_refused(LOGON).await);
    process.stop().await;
    assert_eq!(harness.count("select count(*) from execution").await, 0);
    assert_eq!(read().await, before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_sessions_of_a_killed_process_are_taken_over() {
    let harness = FixHarness::new().await;
    let (owner, other) = two_processes(&harness).await;
    let mut client = Client::connect(other.addr, "FIX.4.4", "ACME").await;
    client.log_on_when_let_in(other.addr, LOGON).await;
    client.ask("D", &order("before", "12345678", LIMIT), "8").await;
    owner.kill().await;
    while client.next().await.is_some() {}
    client.log_on_when_let_in(other.addr, LOGON).await;
    client.ask("D", &order("after", "12345678", LIMIT), "8").await;
    wait_until_all_are_at(&harness, &other).await;
    other.stop().await;
}

//! Admission, and that a refused Logon changes nothing.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use dvp_fix_gateway::{
    ListenerConfig,
    acceptor::LogonRefusal,
    gate,
    tls::{ClientCertificates, TlsVersion},
};
use sha2::{Digest as _, Sha256};
use tokio_rustls::rustls::{
    pki_types::{CertificateDer, pem::PemObject as _},
    version::TLS13,
};

use super::{
    client::Client,
    harness::{FIX_42, FixHarness, LOGON, logged_on},
    tls::{self, Files},
};

const STATE: &str = "select next_in * 1000000 + next_out * 1000 + (select count(*) from fix_outbound) \
                     from fix_session where client_comp_id = 'ACME'";

async fn is_let_in(client: &mut Client, logon: &str) -> bool {
    client.try_send("A", &format!("98=0|108=30|{logon}")).await;
    client.next().await.is_some_and(|answer| answer.text(35) == Some("A"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unauthenticated_reset_changes_nothing() {
    let (harness, gateway, mut client) = logged_on().await;
    client.ask("D", "11=x", "3").await;
    client.ask("H", "11=unknown|55=USDC/USD|54=1", "8").await;
    client.log_out().await;
    while client.next().await.is_some() {}
    let before = harness.count(STATE).await;
    assert!(before > 2_002_001);
    for wrong in [
        "553=acme|554=wrong|141=Y",
        "553=other|554=secret|141=Y",
        "554=secret|141=Y",
        "141=Y",
        "95=6|96=secret|141=Y",
    ] {
        let mut unauthenticated = Client::connect(gateway.addr, "FIX.4.4", "ACME").await;
        assert!(!is_let_in(&mut unauthenticated, wrong).await, "{wrong}");
        assert_eq!(harness.count(STATE).await, before, "{wrong}");
    }
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reset_inside_a_session_needs_the_credentials_again() {
    let (_harness, gateway, mut client) = logged_on().await;
    client.send_as(1, None, "A", &format!("98=0|108=30|141=Y|{LOGON}")).await;
    let answer = client.expect("A").await;
    assert!(answer.is_yes(141), "{answer:?}");
    client.send_as(1, None, "A", "98=0|108=30|141=Y|553=acme|554=wrong").await;
    assert!(client.next().await.is_none());
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_signed_logon_is_accepted_once_and_replaces_the_password() {
    let harness = FixHarness::new().await;
    let secret = b"a secret of this session";
    let sealed = harness.sealed(secret);
    harness.change_settings(|settings| settings.logon_secret = Some(sealed)).await;
    let gateway = harness.gateway().await;
    let mut client = Client::connect(gateway.addr, "FIX.4.4", "ACME").await;
    assert!(!is_let_in(&mut client, LOGON).await, "by password");
    assert!(!is_let_in(&mut client, "95=4|96=AAAA").await, "by nonsense");

    let signed = client.signed_logon("98=0|108=30|553=acme", |prehash| gate::signature(secret, prehash));
    let mut client = Client::connect(gateway.addr, "FIX.4.4", "ACME").await;
    client.send_raw(&signed).await;
    client.expect("A").await;
    client.send_as(2, None, "5", "").await;
    client.expect("5").await;
    let mut captured = Client::connect(gateway.addr, "FIX.4.4", "ACME").await;
    captured.send_raw(&signed).await;
    assert!(captured.next().await.is_none(), "used before");

    let forged = client.signed_logon("98=0|108=30|553=acme", |prehash| gate::signature(b"guessed", prehash));
    let mut unauthenticated = Client::connect(gateway.addr, "FIX.4.4", "ACME").await;
    unauthenticated.send_raw(&forged).await;
    assert!(unauthenticated.next().await.is_none(), "another secret");
    assert!(STANDARD.decode(gate::signature(secret, b"")).unwrap().len() == 32);
    // Not even another gateway takes it again.
    gateway.stop().await;
    let gateway = harness.gateway().await;
    let mut captured = Client::connect(gateway.addr, "FIX.4.4", "ACME").await;
    captured.send_raw(&signed).await;
    assert!(captured.next().await.is_none(), "used before, elsewhere");
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_may_demand_a_certificate_of_its_own() {
    let (harness, files) = (FixHarness::new().await, Files::new());
    let tls = files.tls(ClientCertificates::Optional(files.path("clients.pem")), TlsVersion::Tls12);
    let gateway = harness.gateway_with(vec![tls::listener(tls)]).await;
    let addr = gateway.listener_addrs[0];
    let [ours, other] = ["acme.example", "globex.example"].map(|name| tls::identity(&files.clients, name));
    let der = CertificateDer::from_pem_slice(ours.certificate.as_bytes()).unwrap();
    let fingerprint = Sha256::digest(&der).to_vec();
    for by_name in [true, false] {
        let fingerprint = fingerprint.clone();
        harness
            .change_settings(|settings| {
                if by_name {
                    settings.client_cert_names = Some(vec!["acme.example".into()]);
                } else {
                    settings.client_cert_sha256 = Some(vec![vec![0; 32], fingerprint]);
                }
            })
            .await;
        for shown in [None, Some(&other)] {
            let stream = tls::connect(addr, &files.servers, &[&TLS13], shown).await.unwrap();
            assert!(!is_let_in(&mut Client::over(stream, "FIX.4.4", "ACME"), LOGON).await);
        }
        let mut plain = Client::connect(gateway.addr, "FIX.4.4", "ACME").await;
        assert!(!is_let_in(&mut plain, LOGON).await, "no TLS, no certificate");
        let stream = tls::connect(addr, &files.servers, &[&TLS13], Some(&ours)).await.unwrap();
        let mut client = Client::over(stream, "FIX.4.4", "ACME");
        assert!(is_let_in(&mut client, &format!("{LOGON}|141=Y")).await);
        client.log_out().await;
    }
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_may_be_restricted_to_addresses() {
    let harness = FixHarness::new().await;
    let gateway = harness.gateway().await;
    for (allowed, expected) in [
        (vec!["203.0.113.0/24", "2001:db8::/32"], false),
        (vec![], false),
        (vec!["10.0.0.0/8", "127.0.0.0/8"], true),
    ] {
        let networks = allowed.iter().map(|network| (*network).to_owned()).collect();
        harness.change_settings(|settings| settings.allowed_sources = Some(networks)).await;
        let mut client = Client::connect(gateway.addr, "FIX.4.4", "ACME").await;
        assert_eq!(is_let_in(&mut client, LOGON).await, expected, "{allowed:?}");
    }
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_guessing_source_is_locked_out_and_the_owner_is_not() {
    let harness = FixHarness::new().await;
    let listener =
        ListenerConfig { proxies: vec!["127.0.0.0/8".parse().unwrap()], ..ListenerConfig::default() };
    let gateway = harness.gateway_as(vec![listener], |config| config.refusal = LogonRefusal::Logout).await;
    let from = async |source: &str, comp_id: &'static str| {
        let mut stream = tokio::net::TcpStream::connect(gateway.listener_addrs[0]).await.unwrap();
        let header = format!("PROXY TCP4 {source} 192.0.2.1 1000 9880\r\n");
        tokio::io::AsyncWriteExt::write_all(&mut stream, header.as_bytes()).await.unwrap();
        Client::over(stream, "FIX.4.4", comp_id)
    };
    for n in 0..10 {
        let mut guess = from("203.0.113.66", "ACME").await;
        let refused = guess.ask("A", &format!("98=0|108=30|553=acme|554=guess{n}"), "5").await;
        assert_eq!((refused.text(58), refused.text(34)), (Some("logon refused"), Some("1")));
        assert!(guess.next().await.is_none());
    }
    // Now not even the right password helps there.
    assert!(!is_let_in(&mut from("203.0.113.66", "ACME").await, LOGON).await);
    assert!(is_let_in(&mut from("203.0.113.7", "ACME").await, LOGON).await);
    // The answer about a session that does not exist is the same.
    let mut nobody = from("203.0.113.8", "NOBODY").await;
    let refused = nobody.ask("A", &format!("98=0|108=30|{LOGON}"), "5").await;
    assert_eq!((refused.text(58), refused.text(34)), (Some("logon refused"), Some("1")));
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refusals_are_identical_and_delayed_on_every_listener() {
    let harness = FixHarness::new().await;
    harness.change_settings(|settings| settings.client_cert_names = Some(vec!["acme.example".into()])).await;
    harness.execute("update fix_session set enabled = false where client_comp_id = 'ACME42'").await;
    let delay = std::time::Duration::from_millis(300);
    // A listener's own values do not count.
    let second = ListenerConfig { refusal: LogonRefusal::Silent, ..ListenerConfig::default() };
    let gateway = harness
        .gateway_as(vec![second], |config| {
            (config.refusal, config.refusal_delay) = (LogonRefusal::Logout, delay);
        })
        .await;
    let cases = [
        ("FIX.4.4", "NOBODY", LOGON),
        ("FIX.4.4", "ACME", LOGON),
        ("FIX.4.2", "ACME42", "95=6|96=secret"),
        ("FIXT.1.1", "ACME50", "553=acme|554=wrong|1137=9"),
    ];
    for addr in [gateway.addr, gateway.listener_addrs[0]] {
        for (begin_string, comp_id, logon) in cases {
            let mut client = Client::connect(addr, begin_string, comp_id).await;
            let began = std::time::Instant::now();
            let refused = client.ask("A", &format!("98=0|108=30|{logon}"), "5").await;
            assert!(began.elapsed() >= delay, "{comp_id}: answered early");
            assert_eq!((refused.text(58), refused.text(34)), (Some("logon refused"), Some("1")), "{comp_id}");
            assert!(client.next().await.is_none());
        }
    }
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_logon_with_right_credentials_is_told_its_fault_and_others_are_not() {
    let harness = FixHarness::new().await;
    harness.change_settings(|settings| settings.max_latency_secs = 60).await;
    harness.execute("update fix_session set reset_allowed = false where client_comp_id = 'ACME'").await;
    let gateway = harness.gateway().await;
    let cases = [
        ("98=0|108=5000", "HeartBtInt(108) must be 0 to 3600"),
        ("98=2|108=30", "EncryptMethod(98) must be 0"),
        ("98=0|108=30|141=Y", "ResetSeqNumFlag(141)=Y is not agreed for this session"),
        ("98=0|108=x", "tag 108: Incorrect data format for value"),
        ("98=0", "tag 108: Required tag missing"),
    ];
    for (logon, text) in cases {
        let mut client = Client::connect(gateway.addr, "FIX.4.4", "ACME").await;
        let refused = client.ask("A", &format!("{logon}|{LOGON}"), "5").await;
        assert_eq!((refused.text(58), refused.text(34)), (Some(text), Some("1")), "{logon}");
        assert!(client.next().await.is_none());
        let mut wrong = Client::connect(gateway.addr, "FIX.4.4", "ACME").await;
        assert!(wrong.is_refused(&format!("{logon}|553=acme|554=wrong")).await, "{logon}");
    }
    // What means nothing to us is no fault.
    let mut client = Client::connect(gateway.addr, "FIX.4.4", "ACME").await;
    let more = "58=hello|1156=1|1407=3|1408=c 1.2|9001=Y|5000=x";
    assert_eq!(client.log_on(&format!("{LOGON}|{more}")).await.seq().unwrap().0, 1);
    let (begin_string, comp_id, logon) = FIX_42;
    let mut client = Client::connect(gateway.addr, begin_string, comp_id).await;
    client.log_on(&format!("{logon}|789=1|1407=3")).await;
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_new_password_is_explained_to_authenticated_peers_only() {
    let harness = FixHarness::new().await;
    let gateway = harness.gateway().await;
    let mut unauthenticated = Client::connect(gateway.addr, "FIXT.1.1", "ACME50").await;
    assert!(unauthenticated.is_refused("1137=9|553=acme|554=wrong|925=mine").await);
    let mut client = Client::connect(gateway.addr, "FIXT.1.1", "ACME50").await;
    let refused = client.ask("A", &format!("98=0|108=30|1137=9|{LOGON}|925=another"), "5").await;
    assert!(refused.text(58).unwrap().starts_with("NewPassword(925) is not supported"), "{refused:?}");
    assert!(client.next().await.is_none());
    // It changed nothing: the old one still holds, and no number was used up.
    let mut client = Client::connect(gateway.addr, "FIXT.1.1", "ACME50").await;
    assert_eq!(client.log_on(&format!("{LOGON}|1137=9")).await.seq().unwrap().0, 1);
    gateway.stop().await;
}

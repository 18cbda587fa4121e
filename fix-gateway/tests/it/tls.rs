//! FIX over TLS, with and without certificates of the client.

use std::{net::SocketAddr, path::Path, sync::Arc, time::Duration};

use dvp_fix_gateway::{
    ListenerConfig,
    sources::Budget,
    tls::{ClientCertificates, Tls, TlsFiles, TlsVersion},
};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tempfile::TempDir;
use tokio::{io::AsyncReadExt as _, net::TcpStream};
use tokio_rustls::{
    TlsConnector,
    client::TlsStream,
    rustls::{
        ClientConfig, RootCertStore, SupportedProtocolVersion,
        crypto::ring,
        pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject as _},
        version::{TLS12, TLS13},
    },
};

use super::{
    client::Client,
    harness::{FIXT, FixHarness, LOGON},
};

pub(crate) type Authority = CertifiedIssuer<'static, KeyPair>;

/// A certificate and its key, as PEM.
pub(crate) struct Identity {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

pub(crate) fn authority() -> Authority {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

pub(crate) fn identity(authority: &Authority, name: &str) -> Identity {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    let certificate = params.signed_by(&key, authority).unwrap();
    Identity { certificate: certificate.pem(), key: key.serialize_pem() }
}

/// Files of a server `localhost`, and of the authority of its clients.
pub(crate) struct Files {
    dir: TempDir,
    pub(crate) servers: Authority,
    pub(crate) clients: Authority,
}

impl Files {
    pub(crate) fn new() -> Self {
        let files = Self { dir: TempDir::new().unwrap(), servers: authority(), clients: authority() };
        files.write(&identity(&files.servers, "localhost"));
        std::fs::write(files.path("clients.pem"), files.clients.pem()).unwrap();
        files
    }

    fn write(&self, identity: &Identity) {
        std::fs::write(self.path("cert.pem"), &identity.certificate).unwrap();
        std::fs::write(self.path("key.pem"), &identity.key).unwrap();
    }

    pub(crate) fn path(&self, name: &str) -> std::path::PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn tls(&self, clients: ClientCertificates, oldest: TlsVersion) -> Arc<Tls> {
        let (certificate, key) = (self.path("cert.pem"), self.path("key.pem"));
        Arc::new(Tls::load(TlsFiles { certificate, key, clients, oldest }).unwrap())
    }
}

pub(crate) fn listener(tls: Arc<Tls>) -> ListenerConfig {
    ListenerConfig { tls: Some(tls), ..ListenerConfig::default() }
}

pub(crate) async fn connect(
    addr: SocketAddr,
    servers: &Authority,
    versions: &[&'static SupportedProtocolVersion],
    identity: Option<&Identity>,
) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    roots.add(servers.der().clone()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(versions)
        .unwrap()
        .with_root_certificates(roots);
    let config = match identity {
        None => config.with_no_client_auth(),
        Some(identity) => config
            .with_client_auth_cert(
                vec![CertificateDer::from_pem_slice(identity.certificate.as_bytes()).unwrap()],
                PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).unwrap(),
            )
            .unwrap(),
    };
    let stream = TcpStream::connect(addr).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, stream).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_use_tls_1_2_and_1_3_beside_plain_ones() {
    let (harness, files) = (FixHarness::new().await, Files::new());
    let tls = files.tls(ClientCertificates::Ignored, TlsVersion::Tls12);
    let newest = files.tls(ClientCertificates::Ignored, TlsVersion::Tls13);
    let gateway = harness.gateway_with(vec![listener(tls), listener(newest)]).await;
    let addr = gateway.listener_addrs[0];
    for (version, begin_string, comp_id, logon) in
        [(&TLS12, "FIX.4.2", "ACME42", "95=6|96=secret"), (&TLS13, "FIX.4.4", "ACME", LOGON)]
    {
        let stream = connect(addr, &files.servers, &[version], None).await.unwrap();
        let mut client = Client::over(stream, begin_string, comp_id);
        client.log_on(logon).await;
        client.send("1", "112=tls").await;
        assert_eq!(client.expect("0").await.text(112), Some("tls"));
    }
    let _plain = gateway.client_of(FIXT).await;
    let mut no_tls = Client::connect(addr, "FIX.4.4", "ACME").await;
    no_tls.send("A", &format!("98=0|108=30|{LOGON}")).await;
    let mut answer = Vec::new();
    // The server sends at most a TLS alert, and then closes.
    let _ = no_tls.into_stream().read_to_end(&mut answer).await;
    assert!(!answer.starts_with(b"8=FIX"));
    assert!(connect(gateway.listener_addrs[1], &files.servers, &[&TLS12], None).await.is_err());
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stalled_handshake_is_given_up_without_delaying_others() {
    let (harness, files) = (FixHarness::new().await, Files::new());
    let budget = Budget { handshake: Duration::from_millis(400), ..Budget::default() };
    let tls = files.tls(ClientCertificates::Ignored, TlsVersion::Tls12);
    let gateway = harness.gateway_with(vec![ListenerConfig { budget, ..listener(tls) }]).await;
    let addr = gateway.listener_addrs[0];
    let mut stalled: Vec<TcpStream> = Vec::new();
    for _ in 0..50 {
        stalled.push(TcpStream::connect(addr).await.unwrap());
    }
    let stream = connect(addr, &files.servers, &[&TLS13], None).await.unwrap();
    Client::over(stream, "FIX.4.4", "ACME").log_on(LOGON).await;
    for mut stream in stalled {
        let mut said = Vec::new();
        let closed = tokio::time::timeout(Duration::from_secs(20), stream.read_to_end(&mut said)).await;
        assert!(closed.is_ok(), "a handshake without end");
    }
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_can_be_replaced_while_sessions_are_up() {
    let (harness, files) = (FixHarness::new().await, Files::new());
    let tls = files.tls(ClientCertificates::Ignored, TlsVersion::Tls12);
    let gateway = harness.gateway_with(vec![listener(Arc::clone(&tls))]).await;
    let addr = gateway.listener_addrs[0];
    let stream = connect(addr, &files.servers, &[&TLS13], None).await.unwrap();
    let mut client = Client::over(stream, "FIX.4.4", "ACME");
    client.log_on(LOGON).await;

    std::fs::write(files.path("cert.pem"), "-----BEGIN CERTIFICATE-----\nhalf").unwrap();
    assert!(tls.reload().is_err());
    assert!(connect(addr, &files.servers, &[&TLS13], None).await.is_ok(), "the old one stays");
    let other = identity(&authority(), "localhost");
    std::fs::write(files.path("cert.pem"), &other.certificate).unwrap();
    assert!(tls.reload().is_err(), "a key that is not the certificate's");

    let successors = authority();
    files.write(&identity(&successors, "localhost"));
    tls.reload().unwrap();
    assert!(connect(addr, &files.servers, &[&TLS13], None).await.is_err());
    assert!(connect(addr, &successors, &[&TLS13], None).await.is_ok());
    client.send("1", "112=still").await;
    assert_eq!(client.expect("0").await.text(112), Some("still"));
    gateway.stop().await;
}

#[test]
fn invalid_certificate_files_are_refused() {
    let files = Files::new();
    let load = |certificate: &Path, key: &Path, clients: ClientCertificates| {
        let (certificate, key) = (certificate.to_owned(), key.to_owned());
        Tls::load(TlsFiles { certificate, key, clients, oldest: TlsVersion::Tls12 })
    };
    let (cert, key) = (files.path("cert.pem"), files.path("key.pem"));
    assert!(load(&files.path("none.pem"), &key, ClientCertificates::Ignored).is_err());
    assert!(load(&key, &key, ClientCertificates::Ignored).is_err());
    assert!(load(&cert, &cert, ClientCertificates::Ignored).is_err());
    assert!(load(&cert, &key, ClientCertificates::Required(files.path("none.pem"))).is_err());
    assert!(load(&cert, &key, ClientCertificates::Optional(key.clone())).is_err());
    load(&cert, &key, ClientCertificates::Required(files.path("clients.pem"))).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_of_another_authority_is_refused() {
    let (harness, files) = (FixHarness::new().await, Files::new());
    let required = ClientCertificates::Required(files.path("clients.pem"));
    let gateway = harness.gateway_with(vec![listener(files.tls(required, TlsVersion::Tls12))]).await;
    let addr = gateway.listener_addrs[0];
    let foreign = identity(&authority(), "acme.example");
    for identity in [None, Some(&foreign)] {
        // TLS 1.3 tells a client only after its own part of the handshake is done.
        if let Ok(stream) = connect(addr, &files.servers, &[&TLS13], identity).await {
            let mut client = Client::over(stream, "FIX.4.4", "ACME");
            client.try_send("A", &format!("98=0|108=30|{LOGON}")).await;
            assert!(client.next().await.is_none());
        }
    }
    let known = identity(&files.clients, "acme.example");
    let stream = connect(addr, &files.servers, &[&TLS13], Some(&known)).await.unwrap();
    Client::over(stream, "FIX.4.4", "ACME").log_on(LOGON).await;
    gateway.stop().await;
}

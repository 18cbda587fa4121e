//! TLS to PostgreSQL, against servers with TLS.

use std::fs;
use std::path::PathBuf;

use dvp_sandbox::embedded::{Options, Postgres, ServerTls, TestDatabase};
use dvp_store::PgConnection;
use dvp_store::database::pools::{PoolSizes, Pools};
use dvp_store::database::{Database, TlsFiles};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use sqlx::postgres::PgListener;
use sqlx::{Connection as _, Executor as _};

/// An authority, and the certificates that it has signed.
struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::new([]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// Certificate and key for a host or a user.
    fn sign(&self, name: &str) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new([name.to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        let certificate = params.signed_by(&key, &self.0).unwrap();
        (certificate.pem(), key.serialize_pem())
    }
}

struct Server {
    postgres: Postgres,
    dir: tempfile::TempDir,
}

impl Server {
    async fn start(host: &str, authority: &Authority, clients: Option<&Authority>) -> Self {
        let (certificate, key) = authority.sign(host);
        let tls = ServerTls { certificate, key, client_ca: clients.map(|clients| clients.0.pem()) };
        let dir = tempfile::tempdir().unwrap();
        let options = Options { durable: false, tls: Some(tls), ..Options::default() };
        let postgres = Postgres::start(&dir.path().join("cluster"), options).await.unwrap();
        let server = Self { postgres, dir };
        server.file("ca.pem", &authority.0.pem());
        server
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.dir.path().join(name);
        fs::write(&path, text).unwrap();
        path
    }

    /// The URL with a name of this machine; protection is requested, because a local host does not need it.
    fn url(&self) -> String {
        format!("{}?sslmode=verify-full", self.postgres.url().replace("127.0.0.1", "localhost"))
    }

    fn files(&self) -> TlsFiles {
        TlsFiles { ca: Some(self.dir.path().join("ca.pem")), ..TlsFiles::default() }
    }

    async fn refusal(&self, files: &TlsFiles) -> String {
        let database = Database::at(&self.url(), files).unwrap();
        database.connect().await.map(drop).unwrap_err().to_string()
    }
}

async fn version(conn: &mut PgConnection) -> Option<String> {
    let of_this = "select version from pg_stat_ssl where pid = pg_backend_pid()";
    sqlx::query_scalar(of_this).fetch_one(conn).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_connection_is_encrypted_once_the_server_is_verified() {
    let authority = Authority::new("servers");
    let server = Server::start("localhost", &authority, None).await;
    let database = Database::at(&server.url(), &server.files()).unwrap();
    let mut command = database.connect().await.unwrap();
    assert_eq!(version(&mut command).await.as_deref(), Some("TLSv1.3"));

    let pools = Pools::open(&database, PoolSizes::of(PoolSizes::LEAST)).await.unwrap();
    for pool in [&pools.orders, &pools.reads, &pools.lookups, &pools.background] {
        assert_eq!(version(&mut pool.acquire().await.unwrap()).await.as_deref(), Some("TLSv1.3"));
    }
    // As the writer connects.
    let mut own = PgConnection::connect_with(&pools.orders.connect_options()).await.unwrap();
    assert_eq!(version(&mut own).await.as_deref(), Some("TLSv1.3"));
    let mut listener = PgListener::connect_with(&pools.background).await.unwrap();
    listener.listen("news").await.unwrap();
    command.execute("notify news, 'heard'").await.unwrap();
    assert_eq!(listener.recv().await.unwrap().payload(), "heard");
    let text = "x".repeat(1_000_000);
    let back: String = sqlx::query_scalar("select $1").bind(&text).fetch_one(&mut own).await.unwrap();
    assert!(back == text);
    drop(listener);
    pools.close().await;
    server.postgres.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_fails_verification_is_refused_with_the_reason() {
    let (authority, untrusted) = (Authority::new("servers"), Authority::new("others"));
    let server = Server::start("localhost", &authority, None).await;
    let other = TlsFiles { ca: Some(server.file("other.pem", &untrusted.0.pem())), ..TlsFiles::default() };
    let said = server.refusal(&other).await;
    assert!(said.contains("signed by no trusted authority (database.ca)"), "{said}");
    server.postgres.stop().await.unwrap();

    let elsewhere = Server::start("db.example.com", &authority, None).await;
    let said = elsewhere.refusal(&elsewhere.files()).await;
    assert!(said.contains("for another host name") && said.contains("db.example.com"), "{said}");
    let files = elsewhere.files();
    elsewhere.postgres.stop().await.unwrap();

    let plain = TestDatabase::create().await;
    let url = format!("{}?sslmode=verify-full", plain.url());
    let said = Database::at(&url, &files).unwrap().connect().await.map(drop).unwrap_err();
    assert!(said.to_string().contains("does not offer TLS"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_requests_a_client_certificate_gets_the_configured_one() {
    let (authority, clients) = (Authority::new("servers"), Authority::new("clients"));
    let server = Server::start("localhost", &authority, Some(&clients)).await;
    let said = server.refusal(&server.files()).await;
    assert!(said.contains("requires a valid client certificate"), "{said}");
    let with = |n: u8, (certificate, key): (String, String)| TlsFiles {
        client_certificate: Some(server.file(&format!("client-{n}.pem"), &certificate)),
        client_key: Some(server.file(&format!("client-{n}.key"), &key)),
        ..server.files()
    };
    let said = server.refusal(&with(1, authority.sign("dvp"))).await;
    assert!(said.contains("refuses our certificate (database.client_certificate)"), "{said}");
    // PostgreSQL does not distinguish a certificate for another user from a wrong password.
    let said = server.refusal(&with(2, clients.sign("somebody"))).await;
    assert!(said.contains("authentication failed"), "{said}");
    let database = Database::at(&server.url(), &with(3, clients.sign("dvp"))).unwrap();
    assert_eq!(version(&mut database.connect().await.unwrap()).await.as_deref(), Some("TLSv1.3"));
    server.postgres.stop().await.unwrap();
}

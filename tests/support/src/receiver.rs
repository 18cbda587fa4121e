//! A webhook receiver over TLS with configurable, also faulty, responses.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rcgen::{
    BasicConstraints, Certificate, CertificateParams, CertifiedIssuer, IsCa, KeyPair, date_time_ymd,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::server::danger::ClientCertVerifier;

use crate::listening::{Listening, Stream};

/// An authority that the sender is configured to trust.
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Default for Authority {
    fn default() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }
}

impl Authority {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn certificate(&self) -> CertificateDer<'static> {
        self.0.der().clone()
    }

    pub fn pem(&self) -> String {
        self.0.pem()
    }

    /// A certificate for these names.
    pub(crate) fn issue(&self, names: &[&str], expired: bool) -> (Certificate, KeyPair) {
        let mut params =
            CertificateParams::new(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()).unwrap();
        if expired {
            params.not_before = date_time_ymd(2020, 1, 1);
            params.not_after = date_time_ymd(2021, 1, 1);
        }
        let key = KeyPair::generate().unwrap();
        (params.signed_by(&key, &self.0).unwrap(), key)
    }

    /// A server with a certificate for these names.
    pub(crate) fn server(
        &self,
        names: &[&str],
        expired: bool,
        clients: Arc<dyn ClientCertVerifier>,
    ) -> ServerConfig {
        let (certificate, key) = self.issue(names, expired);
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(clients)
            .with_single_cert(vec![certificate.der().clone()], key)
            .unwrap()
    }
}

/// A request as it came.
#[derive(Debug, Clone)]
pub struct Got {
    /// Request line and headers.
    pub head: String,
    pub body: String,
}

impl Got {
    /// The value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().skip(1).filter_map(|line| line.split_once(':'));
        lines.filter(|(at, _)| at.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim()).next()
    }

    /// The event's id, as Standard Webhooks' header says it.
    pub fn event_id(&self) -> &str {
        self.header("webhook-id").unwrap_or_default()
    }
}

/// How a request is answered.
#[derive(Debug, Clone)]
pub enum Reply {
    /// With a status and a small body.
    Status(u16),
    /// With a redirect to this URL.
    Redirect(String),
    /// With a 200 whose body never ends.
    EndlessBody,
    /// With a 200 whose head comes a byte a second.
    DripHead,
    /// With a 200 and a body that comes a byte a second.
    DripBody,
    /// Never.
    Never,
    /// With these bytes in place of an answer.
    Bytes(Vec<u8>),
    /// By closing the connection.
    HangUp,
}

type Answer = Box<dyn Fn(usize, &Got) -> Reply + Send + Sync>;

struct Shared {
    answer: Answer,
    got: Mutex<Vec<Got>>,
    keep: bool,
    count: std::sync::atomic::AtomicUsize,
}

/// A receiver that listens until it is dropped.
pub struct Receiver {
    pub address: SocketAddr,
    shared: Arc<Shared>,
    _listening: Listening,
}

/// The settings of a receiver.
pub struct ReceiverManner {
    pub ip: IpAddr,
    pub names: Vec<&'static str>,
    pub expired: bool,
    /// Whether requests are kept, or only counted.
    pub keep: bool,
}

impl Default for ReceiverManner {
    fn default() -> Self {
        Self { ip: IpAddr::from([127, 0, 0, 1]), names: vec!["127.0.0.1"], expired: false, keep: true }
    }
}

impl Receiver {
    /// Answers the n-th request, counted from zero, as `answer` says.
    pub async fn start(
        authority: &Authority,
        manner: ReceiverManner,
        answer: impl Fn(usize, &Got) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let anyone = WebPkiClientVerifier::no_client_auth();
        let config = authority.server(&manner.names, manner.expired, anyone);
        let shared = Arc::new(Shared {
            answer: Box::new(answer),
            got: Mutex::default(),
            keep: manner.keep,
            count: Default::default(),
        });
        let serving = Arc::clone(&shared);
        let serve = move |stream| connection(stream, Arc::clone(&serving));
        let listening = Listening::start(manner.ip, Some(config), serve).await;
        Self { address: listening.address, shared, _listening: listening }
    }

    /// The URL to register; `host` is one of the certificate's names.
    pub fn url(&self, host: &str) -> String {
        format!("https://{host}:{}/hook", self.address.port())
    }

    pub fn got(&self) -> Vec<Got> {
        self.shared.got.lock().clone()
    }

    pub fn count(&self) -> usize {
        self.shared.count.load(std::sync::atomic::Ordering::Relaxed)
    }
}

async fn connection(mut stream: Box<dyn Stream>, shared: Arc<Shared>) {
    let mut buffer = Vec::new();
    while let Some(got) = read(&mut stream, &mut buffer).await {
        let n = shared.count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let reply = (shared.answer)(n, &got);
        if shared.keep {
            shared.got.lock().push(got);
        }
        if !write(&mut stream, reply).await {
            return;
        }
    }
}

/// One request; later bytes stay in the buffer.
async fn read(stream: &mut impl Stream, buffer: &mut Vec<u8>) -> Option<Got> {
    loop {
        if let Some(end) = buffer.windows(4).position(|four| four == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(buffer.get(..end)?).into_owned();
            let got = Got { head, body: String::new() };
            let length: usize = got.header("content-length").and_then(|text| text.parse().ok()).unwrap_or(0);
            let whole = end.saturating_add(4).saturating_add(length);
            if buffer.len() >= whole {
                let body = String::from_utf8_lossy(buffer.get(end.saturating_add(4)..whole)?).into_owned();
                buffer.drain(..whole);
                return Some(Got { body, ..got });
            }
        }
        if stream.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
    }
}

/// Whether the connection may be used again.
async fn write(stream: &mut impl Stream, reply: Reply) -> bool {
    const SECOND: Duration = Duration::from_secs(1);
    match reply {
        Reply::Status(status) => {
            let text = format!("HTTP/1.1 {status} X\r\ncontent-length: 2\r\n\r\nok");
            stream.write_all(text.as_bytes()).await.is_ok() && stream.flush().await.is_ok()
        }
        Reply::Redirect(url) => {
            let text = format!("HTTP/1.1 302 X\r\nlocation: {url}\r\ncontent-length: 0\r\n\r\n");
            stream.write_all(text.as_bytes()).await.is_ok() && stream.flush().await.is_ok()
        }
        Reply::EndlessBody => {
            let head = b"HTTP/1.1 200 X\r\ntransfer-encoding: chunked\r\n\r\n";
            let mut sent = stream.write_all(head).await.is_ok();
            let chunk = [b"2000\r\n".as_slice(), &[b'x'; 0x2000], b"\r\n"].concat();
            while sent {
                sent = stream.write_all(&chunk).await.is_ok() && stream.flush().await.is_ok();
            }
            false
        }
        Reply::DripHead | Reply::DripBody => {
            let head = "HTTP/1.1 200 X\r\ncontent-length: 100000\r\n\r\n";
            let quick = if matches!(reply, Reply::DripBody) { head.len() } else { 0 };
            let (first, slow) = head.split_at(quick);
            let mut sent = stream.write_all(first.as_bytes()).await.is_ok() && stream.flush().await.is_ok();
            for byte in slow.bytes().chain(std::iter::repeat_n(b'x', 100_000)) {
                if !sent {
                    break;
                }
                tokio::time::sleep(SECOND).await;
                sent = stream.write_all(&[byte]).await.is_ok() && stream.flush().await.is_ok();
            }
            false
        }
        Reply::Never => {
            std::future::pending::<()>().await;
            false
        }
        Reply::Bytes(bytes) => {
            let _ = stream.write_all(&bytes).await;
            let _ = stream.flush().await;
            false
        }
        Reply::HangUp => false,
    }
}

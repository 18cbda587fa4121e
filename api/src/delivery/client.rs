//! One attempt: a POST that follows no redirect, uses no proxy, connects to no private address, and reads no more of an
//! answer than the log stores.

use std::error::Error;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dvp_domain::text::clean;
use dvp_domain::trace::TraceContext;
use dvp_store::workers::{Step, foreign};
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use tokio_rustls::rustls;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use tracing::warn;
use url::{Host, Url};

use super::DeliveryConfig;
use super::address::Reach;
use super::network::{Guarded, NoRoute, NonPublicAddress, Resolver, Unresolved, routed};
use super::url::check;

const USER_AGENT: &str = "svc-webhook/1.0";
const BODY_TYPE: &str = "application/json; charset=utf-8";
/// The stored length of an answer's body.
const PREFIX_BYTES: usize = 1024;
/// The time limit for reading the body of an answer whose status is known.
const BODY_LIMIT: Duration = Duration::from_secs(1);
const IDLE_PER_HOST: usize = 64;

#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    #[error("TLS: {0}")]
    Tls(#[from] rustls::Error),
    #[error("HTTP client: {0}")]
    Http(#[from] reqwest::Error),
}

/// Why an attempt got no 2xx, in the words of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    Timeout,
    AddressRefused,
    /// The URL no longer follows the rules.
    UrlRefused,
    /// The name does not resolve, though others do.
    Dns,
    /// There is no route to any of its addresses, though there is one to others.
    NoRoute,
    Tls,
    Connect,
    /// The connection ended, or the answer was no HTTP.
    Closed,
    /// 3xx: not followed.
    Redirect,
    /// Any other status but 2xx.
    Status,
    /// Our resolver or our network is faulty.
    Ours,
}

impl Fault {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::AddressRefused => "address_refused",
            Self::UrlRefused => "url_refused",
            Self::Dns => "dns",
            Self::NoRoute => "no_route",
            Self::Tls => "tls",
            Self::Connect => "connect",
            Self::Closed => "closed",
            Self::Redirect => "redirect",
            Self::Status => "status",
            Self::Ours => "ours",
        }
    }
}

/// How an attempt ended.
#[derive(Debug, Clone)]
pub(super) struct Sent {
    pub(super) status: Option<u16>,
    /// `None`: a 2xx.
    pub(super) fault: Option<Fault>,
    pub(super) latency: Duration,
    pub(super) body_prefix: Option<String>,
}

impl Sent {
    /// No answer arrived.
    pub(super) const fn failed(fault: Fault) -> Self {
        Self { status: None, fault: Some(fault), latency: Duration::ZERO, body_prefix: None }
    }
}

pub(super) struct Post {
    pub(super) endpoint: String,
    /// Checked by [`Client::check`].
    pub(super) url: Url,
    pub(super) event_id: String,
    /// Unix seconds.
    pub(super) t: String,
    pub(super) signature: String,
    /// `webhook-signature` of Standard Webhooks.
    pub(super) standard_signature: String,
    pub(super) body: String,
    pub(super) trace: Option<TraceContext>,
}

/// Shared by all attempts of a process, with its connections.
pub(super) struct Client {
    http: reqwest::Client,
    reach: Reach,
    timeout: Duration,
}

impl Client {
    pub(super) fn new(config: DeliveryConfig) -> Result<Self, SetupError> {
        let DeliveryConfig { reach, names, probe_name, authorities, limits } = config;
        let resolver = Arc::new(Resolver::new(names, probe_name));
        let http = reqwest::Client::builder()
            .tls_backend_preconfigured(tls(authorities)?)
            .https_only(true)
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .referer(false)
            .no_gzip()
            .no_brotli()
            .no_deflate()
            .no_zstd()
            .user_agent(USER_AGENT)
            .connect_timeout(limits.timeout)
            .pool_max_idle_per_host(IDLE_PER_HOST)
            .tcp_nodelay(true)
            .dns_resolver(Arc::new(Guarded { resolver, reach: reach.clone() }))
            .build()?;
        Ok(Self { http, reach, timeout: limits.timeout })
    }

    /// The normalized URL, if it still follows the rules.
    pub(super) fn check(&self, url: &str) -> Option<Url> {
        check(url, &self.reach).ok()
    }

    /// Longer than any attempt takes by its own limits.
    pub(super) fn attempt_max(&self) -> Duration {
        self.timeout.saturating_add(BODY_LIMIT).saturating_add(Duration::from_secs(1))
    }

    pub(super) async fn send(&self, post: Post) -> Sent {
        let started = Instant::now();
        let failed = |fault| Sent { latency: started.elapsed(), ..Sent::failed(fault) };
        let Post { endpoint, url, event_id, t, signature, standard_signature, body, trace } = post;
        let Some(mut headers) = headers([signature, event_id, t, standard_signature]) else {
            return failed(Fault::Ours);
        };
        if let Some(trace) = trace.and_then(|trace| HeaderValue::try_from(trace.to_string()).ok()) {
            headers.insert("traceparent", trace);
        }
        if let Some(no_route) = literal(&url).and_then(|address| routed(vec![address]).err()) {
            return failed(unrouted(no_route));
        }
        let request = self.http.post(url).headers(headers).body(body);
        let answer = match tokio::time::timeout(self.timeout, request.send()).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => return failed(classify(&error)),
            Err(_) => return failed(Fault::Timeout),
        };
        let (status, latency) = (answer.status(), started.elapsed());
        let fault = match status.as_u16() {
            200..=299 => None,
            300..=399 => Some(Fault::Redirect),
            _ => Some(Fault::Status),
        };
        let said = prefix(answer).await;
        let body_prefix = Some(clean(&foreign(Step::DeliveryAnswer, &endpoint, &said), PREFIX_BYTES));
        Sent { status: Some(status.as_u16()), fault, latency, body_prefix }
    }
}

/// TLS 1.2 and 1.3 with the system's authorities and the configured ones.
fn tls(authorities: Vec<CertificateDer<'static>>) -> Result<ClientConfig, SetupError> {
    let mut roots = RootCertStore::empty();
    let system = rustls_native_certs::load_native_certs();
    for error in &system.errors {
        warn!(%error, "some of the system's certificate authorities cannot be read");
    }
    roots.add_parsable_certificates(system.certs);
    for authority in authorities {
        roots.add(authority)?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let versions = [&rustls::version::TLS13, &rustls::version::TLS12];
    Ok(ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&versions)?
        .with_root_certificates(roots)
        .with_no_client_auth())
}

fn headers(values: [String; 4]) -> Option<HeaderMap> {
    const NAMES: [HeaderName; 4] = [
        HeaderName::from_static(super::signature::HEADER),
        HeaderName::from_static("webhook-id"),
        HeaderName::from_static("webhook-timestamp"),
        HeaderName::from_static("webhook-signature"),
    ];
    let mut headers = HeaderMap::with_capacity(2 * NAMES.len());
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(BODY_TYPE));
    for (name, value) in NAMES.into_iter().zip(values) {
        headers.insert(name, HeaderValue::try_from(value).ok()?);
    }
    Some(headers)
}

/// The beginning of the body. The rest of a longer or slow body is not read, and its connection is not reused.
async fn prefix(mut answer: reqwest::Response) -> String {
    let mut bytes = Vec::new();
    let _ = tokio::time::timeout(BODY_LIMIT, async {
        while bytes.len() < PREFIX_BYTES
            && let Ok(Some(chunk)) = answer.chunk().await
        {
            bytes.extend_from_slice(chunk.get(..PREFIX_BYTES - bytes.len()).unwrap_or(&chunk));
        }
    })
    .await;
    String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

/// The address of a URL without a name.
fn literal(url: &Url) -> Option<IpAddr> {
    match url.host()? {
        Host::Ipv4(address) => Some(address.into()),
        Host::Ipv6(address) => Some(address.into()),
        Host::Domain(_) => None,
    }
}

const fn unrouted(no_route: NoRoute) -> Fault {
    if no_route.is_ours { Fault::Ours } else { Fault::NoRoute }
}

/// The root cause of an error.
fn classify(error: &reqwest::Error) -> Fault {
    let mut cause: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(inner) = cause {
        if inner.is::<NonPublicAddress>() {
            return Fault::AddressRefused;
        }
        if let Some(unresolved) = inner.downcast_ref::<Unresolved>() {
            return if unresolved.is_ours { Fault::Ours } else { Fault::Dns };
        }
        if let Some(no_route) = inner.downcast_ref::<NoRoute>() {
            return unrouted(*no_route);
        }
        if inner.is::<rustls::Error>() {
            return Fault::Tls;
        }
        if let Some(fault) = inner.downcast_ref::<io::Error>().and_then(classify_io) {
            return fault;
        }
        cause = inner.source();
    }
    match (error.is_timeout(), error.is_connect()) {
        (true, _) => Fault::Timeout,
        (false, true) => Fault::Connect,
        (false, false) => Fault::Closed,
    }
}

fn classify_io(error: &io::Error) -> Option<Fault> {
    // Too many open files, in the process or on the machine.
    const EMFILE: i32 = 24;
    const ENFILE: i32 = 23;
    // An I/O error's inner error is not its source: look inside recursively.
    if let Some(inner) = error.get_ref() {
        if inner.is::<rustls::Error>() {
            return Some(Fault::Tls);
        }
        if let Some(inner) = inner.downcast_ref::<io::Error>() {
            return classify_io(inner);
        }
    }
    if matches!(error.raw_os_error(), Some(EMFILE | ENFILE)) {
        return Some(Fault::Ours);
    }
    match error.kind() {
        io::ErrorKind::NetworkDown | io::ErrorKind::AddrNotAvailable => Some(Fault::Ours),
        // There was a route: an ICMP message on the way reports that there is none.
        io::ErrorKind::ConnectionRefused
        | io::ErrorKind::HostUnreachable
        | io::ErrorKind::NetworkUnreachable => Some(Fault::Connect),
        io::ErrorKind::TimedOut => Some(Fault::Timeout),
        _ => None,
    }
}

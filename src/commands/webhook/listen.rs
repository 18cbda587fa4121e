//! `dvp webhook listen`: a receiver for the time of developing one.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use axum::serve::Listener;
use dvp_api::delivery::signature::{HEADER, TOLERANCE_SECS, verify};
use dvp_core::context::now;
use dvp_domain::envelope::BODY_BYTES_MAX;
use dvp_domain::event::EventType;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::server::TlsStream;

use crate::commands::webhook::WebhookListen;
use crate::output::print;
use crate::sandbox_dir::read_ready;
use crate::sandbox_dir::text;

/// Less than the sender's time limit.
const FORWARD_WITHIN: Duration = Duration::from_secs(10);
const HANDSHAKE_WITHIN: Duration = Duration::from_secs(5);
/// After a connection could not be accepted.
const BREATH: Duration = Duration::from_millis(100);

#[derive(Clone)]
struct Receiver {
    secret: Arc<str>,
    forward_to: Option<Arc<str>>,
    client: reqwest::Client,
    json: bool,
}

pub(super) async fn run(args: WebhookListen) -> anyhow::Result<()> {
    let listener = TcpListener::bind(args.listen).await.with_context(|| args.listen.to_string())?;
    let address = listener.local_addr()?;
    let (secret, tls, shown) = match (&args.dir, &args.secret) {
        (Some(dir), _) => {
            let (secret, tls) = register(dir, address, &args.types).await?;
            (secret, Some(tls), format!("https://{address}/"))
        }
        (None, Some(secret)) => (secret.read("--secret")?, None, format!("http://{address}/")),
        (None, None) => anyhow::bail!("give --dir or --secret"),
    };
    let forward_to = args.forward_to.map(Arc::from);
    let client = reqwest::Client::builder().no_proxy().timeout(FORWARD_WITHIN).build()?;
    let receiver = Receiver { secret: secret.as_str().into(), forward_to, client, json: args.json };
    let router = Router::new()
        .fallback(post(receive))
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .with_state(receiver);
    let value = json!({"listening": shown, "secret": secret});
    print(args.json, &value, || vec![format!("listening at {shown}"), format!("secret {secret}")])?;
    let stop = async {
        let _ = tokio::signal::ctrl_c().await;
    };
    match tls {
        Some(acceptor) => {
            axum::serve(TlsListener { listener, acceptor }, router).with_graceful_shutdown(stop).await?;
        }
        None => axum::serve(listener, router).with_graceful_shutdown(stop).await?,
    }
    Ok(())
}

/// Makes this listener the endpoint of the sandbox's partner: by registration, or else by update and rotation.
async fn register(
    dir: &Path,
    address: SocketAddr,
    types: &[String],
) -> anyhow::Result<(String, TlsAcceptor)> {
    let ready = read_ready(dir)?;
    let pem = text(&ready, "/webhooks/listener")
        .context("the sandbox sends to public addresses only; start it with --webhook-allow-private")?;
    let acceptor = acceptor(Path::new(pem))?;
    let (base, key) = (text(&ready, "/http")?, text(&ready, "/partner/apiKey")?);
    let types: Vec<String> = if types.is_empty() {
        EventType::ALL.iter().map(|kind| kind.as_str().to_owned()).collect()
    } else {
        types.to_vec()
    };
    let mut body = json!({"url": format!("https://{address}/"), "subscribedTypes": types});
    let client = reqwest::Client::new();
    let path = format!("{base}/v1/webhook_endpoints");
    let ask = async |request: reqwest::RequestBuilder| -> anyhow::Result<(u16, Value)> {
        let answer = request.header("X-API-Key", key).send().await?;
        Ok((answer.status().as_u16(), answer.json().await?))
    };
    let (status, registered) = ask(client.post(&path).json(&body)).await?;
    let answer = if status == 409 {
        body["isActive"] = json!(true);
        let (status, updated) = ask(client.patch(&path).json(&body)).await?;
        ensure!(status == 200, "{}", updated["error"]["message"]);
        ask(client.post(format!("{path}/rotate"))).await?.1
    } else {
        registered
    };
    let secret = answer["secret"].as_str().or_else(|| answer["nextSecret"].as_str());
    let secret = secret.with_context(|| answer["error"]["message"].to_string())?;
    Ok((secret.to_owned(), acceptor))
}

fn acceptor(pem: &Path) -> anyhow::Result<TlsAcceptor> {
    let name = || pem.display().to_string();
    let chain: Vec<_> = CertificateDer::pem_file_iter(pem)
        .with_context(name)?
        .collect::<Result<_, _>>()
        .with_context(name)?;
    let key = PrivateKeyDer::from_pem_file(pem).with_context(name)?;
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// One handshake at a time: there is one sender.
struct TlsListener {
    listener: TcpListener,
    acceptor: TlsAcceptor,
}

impl Listener for TlsListener {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            let Ok((socket, address)) = self.listener.accept().await else {
                tokio::time::sleep(BREATH).await;
                continue;
            };
            let shaken = tokio::time::timeout(HANDSHAKE_WITHIN, self.acceptor.accept(socket)).await;
            if let Ok(Ok(stream)) = shaken {
                return (stream, address);
            }
        }
    }

    fn local_addr(&self) -> std::io::Result<Self::Addr> {
        self.listener.local_addr()
    }
}

async fn receive(State(receiver): State<Receiver>, headers: HeaderMap, body: Bytes) -> StatusCode {
    let header = headers.get(HEADER).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let verdict = verify(&receiver.secret, header, &body, now().unix_secs(), TOLERANCE_SECS);
    let reason = verdict.err().map(|error| error.to_string());
    let forwarded = match (&reason, &receiver.forward_to) {
        (None, Some(url)) => Some(forward(&receiver.client, url, &headers, body.clone()).await),
        (Some(_), _) | (None, None) => None,
    };
    let event: Value = serde_json::from_slice(&body).unwrap_or_default();
    let status = match (&reason, forwarded) {
        (Some(_), _) => StatusCode::UNAUTHORIZED,
        (None, Some(status)) => status,
        (None, None) => StatusCode::OK,
    };
    let value = json!({
        "verified": reason.is_none(), "reason": reason, "answered": status.as_u16(), "event": event,
    });
    let printed = print(receiver.json, &value, || {
        let field = |name: &str| event[name].as_str().unwrap_or("-").to_owned();
        let word =
            reason.as_deref().map_or_else(|| "verified".to_owned(), |why| format!("NOT verified: {why}"));
        let (kind, id, intent) = (field("type"), field("id"), field("intentId"));
        vec![format!("{kind}  {id}  {intent}  {word}, answered {}", status.as_u16())]
    });
    if printed.is_err() { StatusCode::INTERNAL_SERVER_ERROR } else { status }
}

/// Forwards the delivery's body and headers; returns the response.
async fn forward(client: &reqwest::Client, url: &str, headers: &HeaderMap, body: Bytes) -> StatusCode {
    let mut request = client.post(url).body(body);
    for name in ["content-type", HEADER, "webhook-id", "webhook-timestamp", "webhook-signature"] {
        if let Some(value) = headers.get(name) {
            request = request.header(name, value.as_bytes());
        }
    }
    match request.send().await {
        Ok(answer) => answer.status(),
        Err(_) => StatusCode::BAD_GATEWAY,
    }
}

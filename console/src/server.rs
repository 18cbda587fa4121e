//! The router, the headers of every answer, and the listener.

use std::io;
use std::time::Duration;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Extension, Request};
use axum::http::{HeaderName, HeaderValue, header};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::Response;
use axum::routing::{get, post};
use dvp_core::listeners::server::{self, ServerLimits};
use dvp_core::listeners::source::Peer;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tower::Layer as _;
use tracing::{debug, info};

use crate::access::{self, Guard};
use crate::error::PageError;
use crate::routes::{self, Route};
use crate::state::{Console, ConsoleSettings};
use crate::{arrival, assets, figures, routes::sign_in};

/// The time limit for the arrival of a request's head.
const HEAD: Duration = Duration::from_secs(10);
/// The maximum size of a request's head.
const HEAD_BYTES_MAX: usize = 32 * 1024;
/// The time limit for requests in progress at a stop.
const DRAIN: Duration = Duration::from_secs(5);

/// Every page. Only the sign-in and the assets are served without a session.
pub fn router(console: Console) -> Router {
    let mut router = Router::new();
    for Route { method, path, roles, needs, handler } in routes::all() {
        let guard = Guard { console: console.clone(), method, path: path.clone(), roles, needs };
        router = router.route(&path, handler.route_layer(from_fn_with_state(guard, access::require)));
    }
    let is_secure = console.settings.is_secure();
    let limit = console.times.arrival;
    #[cfg(feature = "oidc")]
    let router = router
        .route("/login/provider", get(routes::oidc::begin))
        .route("/login/provider/callback", get(routes::oidc::callback));
    router
        .route("/api/actions", get(routes::actions::list).post(routes::actions::perform))
        .route("/login", get(sign_in::form).post(sign_in::submit))
        .route("/login/password", post(sign_in::with_password))
        .route("/login/passkey", post(sign_in::with_passkey))
        .route("/login/passkey/challenge", post(sign_in::challenge))
        .route("/assets/{name}", get(assets::serve))
        .fallback(|| async { PageError::NotFound("page of this address".to_owned()) })
        .layer(DefaultBodyLimit::max(ConsoleSettings::FORM_BYTES_MAX))
        .layer(from_fn(move |request: Request, next: Next| async move {
            let mut response = next.run(arrival::bound(request, limit)).await;
            protect(&mut response, is_secure);
            response
        }))
        .layer(from_fn(figures::measure))
        .with_state(console)
}

/// What a page may load and do: scripts, styles and connections of the console only, and nothing written inline.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                      img-src 'self' data:; form-action 'self'; frame-ancestors 'none'; base-uri 'none'";

/// The headers of every answer.
fn protect(response: &mut Response, is_secure: bool) {
    let fixed = [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        // Forms send the Origin that they are checked by only under a policy that is not `no-referrer`.
        (header::REFERRER_POLICY, "same-origin"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
        (HeaderName::from_static("permissions-policy"), "camera=(), microphone=(), geolocation=()"),
    ];
    let headers = response.headers_mut();
    for (name, value) in fixed {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    if is_secure {
        let year = HeaderValue::from_static("max-age=31536000");
        headers.insert(header::STRICT_TRANSPORT_SECURITY, year);
    }
}

/// Serves until `shutdown`, then completes the requests in progress.
///
/// # Errors
/// Fails when the listener cannot be used.
pub async fn serve(listener: TcpListener, console: Console, shutdown: CancellationToken) -> io::Result<()> {
    info!(address = %listener.local_addr()?, "console listening");
    let limits = ServerLimits {
        connections: console.settings.connections,
        connections_per_source: console.settings.connections_per_source(),
        proxies: console.settings.proxies.clone(),
        head: HEAD,
        head_bytes: HEAD_BYTES_MAX,
        answer: console.times.answer,
        drain: DRAIN,
    };
    let pulse = tokio::spawn(console.pulse.clone().run(console.pools.clone(), shutdown.clone()));
    let router = router(console);
    let service_of = |peer| TowerToHyperService::new(Extension(Peer(peer)).layer(router.clone()));
    if !server::serve(listener, &limits, service_of, shutdown).await {
        debug!("connections of the console were closed at the end of the grace period");
    }
    pulse.abort();
    Ok(())
}

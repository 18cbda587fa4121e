//! The router and the server.

use std::io;
use std::time::Duration;

use axum::Router;
use axum::extract::Extension;
use axum::middleware::from_fn_with_state;
use dvp_core::listeners::server::{self, ServerLimits};
use dvp_core::listeners::source::Peer;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tower::Layer as _;
use tower_http::compression::CompressionLayer;
use tower_http::compression::predicate::{DefaultPredicate, Predicate as _, SizeAbove};
use tracing::{info, warn};

use crate::access::scope::Access;
use crate::access::{auth, signature};
use crate::http::availability::require_database;
use crate::http::error::{ApiError, Code};
use crate::http::load::Limits;
use crate::http::request;
use crate::routes::docs::Rendered;
use crate::routes::event_stream::Closing;
use crate::routes::{self, Route};
use crate::state::Api;

/// The time limit for requests in progress at a stop.
const DRAIN: Duration = Duration::from_secs(15);
/// The maximum size of a request's head, and of the body that is read ahead.
const HEAD_BYTES_MAX: usize = 64 * 1024;

/// Shorter answers are not compressed: the header costs what it saves.
const COMPRESSED_FROM: u16 = 1024;

/// All routes. Unknown routes are answered with the envelope too. Streams end when `closing` is cancelled.
pub fn router(api: Api, closing: CancellationToken) -> Router {
    let mut router = Router::new();
    for Route { path, access, handler, .. } in routes::all() {
        // Of several layers the last one is the outermost.
        let database = || from_fn_with_state(api.engine.clone(), require_database);
        let guarded = match access {
            Access::Watched => handler,
            Access::Open => handler.route_layer(from_fn_with_state(api.clone(), auth::count_open)),
            Access::Key(scopes) => handler
                .route_layer(from_fn_with_state((api.clone(), scopes), auth::require))
                .route_layer(database()),
            Access::Signed(scopes) => handler
                .route_layer(from_fn_with_state(api.clone(), signature::require))
                .route_layer(from_fn_with_state((api.clone(), scopes), auth::require))
                .route_layer(database()),
        };
        router = router.route(path, guarded);
    }
    router
        .fallback(|| async { ApiError::Plain(Code::NotFound) })
        .method_not_allowed_fallback(|| async { ApiError::Plain(Code::MethodNotAllowed) })
        .layer(Extension(Rendered::new(api.sandbox.is_some())))
        .layer(Extension(Closing(closing)))
        .layer(
            CompressionLayer::new()
                .compress_when(DefaultPredicate::new().and(SizeAbove::new(COMPRESSED_FROM))),
        )
        .layer(from_fn_with_state(api.load.clone(), request::wrap))
        .with_state(api)
}

/// Serves until `shutdown`, then completes the requests in progress.
///
/// # Errors
/// Fails when the listener cannot be used.
pub async fn serve(listener: TcpListener, api: Api, shutdown: CancellationToken) -> io::Result<()> {
    info!(address = %listener.local_addr()?, "REST API listening");
    let Limits { connections, connections_per_source, proxies, head, answer, .. } = api.load.limits.clone();
    let limits = ServerLimits {
        connections,
        connections_per_source,
        proxies,
        head,
        head_bytes: HEAD_BYTES_MAX,
        answer,
        drain: DRAIN,
    };
    api.keys.follow(&api.engine);
    let router = router(api, shutdown.clone());
    let service_of = |peer| TowerToHyperService::new(Extension(Peer(peer)).layer(router.clone()));
    if !server::serve(listener, &limits, service_of, shutdown).await {
        warn!("connections were closed at the end of the shutdown grace period");
    }
    Ok(())
}

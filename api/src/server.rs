//! The router and the server.

use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Extension;
use axum::middleware::{AddExtension, from_fn_with_state};
use dvp_core::listeners::answering::Answering;
use dvp_core::listeners::connections::Connections;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::Layer as _;
use tracing::{debug, info, warn};

use crate::access::scope::Access;
use crate::access::{auth, signature};
use crate::http::availability::require_database;
use crate::http::error::ApiError;
use crate::http::request;
use crate::http::request::Peer;
use crate::http::source;
use crate::routes::docs::Rendered;
use crate::routes::{self, Route};
use crate::state::Api;

/// The time limit for requests in progress at a stop.
const DRAIN: Duration = Duration::from_secs(15);
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// The maximum size of a request's head, and of the body that is read ahead.
const HEAD_BYTES_MAX: usize = 64 * 1024;

/// All routes. Unknown routes are answered with the envelope too.
pub fn router(api: Api) -> Router {
    let mut router = Router::new();
    for Route { path, access, handler, .. } in routes::all() {
        // Of several layers the last one is the outermost.
        let database = || from_fn_with_state(api.engine.clone(), require_database);
        let guarded = match access {
            Access::Open => handler,
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
        .fallback(|| async { ApiError::NotFound })
        .method_not_allowed_fallback(|| async { ApiError::MethodNotAllowed })
        .layer(Extension(Rendered::new()))
        .layer(from_fn_with_state(api.load.clone(), request::wrap))
        .with_state(api)
}

/// Serves until `shutdown`, then completes the requests in progress.
///
/// # Errors
/// Fails when the listener cannot be used.
pub async fn serve(listener: TcpListener, api: Api, shutdown: CancellationToken) -> io::Result<()> {
    info!(address = %listener.local_addr()?, "REST API listening");
    let limits = api.load.limits.clone();
    let room = Arc::new(Semaphore::new(limits.connections));
    api.keys.follow(&api.engine);
    let router = router(api);
    let by_source = Connections::default();
    let connections = TaskTracker::new();
    loop {
        let accepted = tokio::select! {
            () = shutdown.cancelled() => break,
            accepted = accept(&listener, &room) => accepted,
        };
        match accepted {
            Ok((socket, peer, place)) => {
                let Some(connected) = source::enter(&by_source, peer, &limits) else {
                    debug!(%peer, "a connection was closed: its source has as many as it may");
                    continue;
                };
                let service = Extension(Peer(peer.ip())).layer(router.clone());
                let socket = Answering::new(socket, limits.answer);
                let serving = connection(socket, service, limits.head, shutdown.clone());
                connections.spawn(async move {
                    serving.await;
                    drop((connected, place));
                });
            }
            // For example too many open files: temporary, or an operator sees the warning.
            Err(error) => {
                warn!(%error, "accepting a connection failed");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    connections.close();
    tokio::select! {
        () = connections.wait() => {}
        () = tokio::time::sleep(DRAIN) => warn!("connections were closed at the end of the shutdown grace period"),
    }
    Ok(())
}

async fn accept(
    listener: &TcpListener,
    room: &Arc<Semaphore>,
) -> io::Result<(TcpStream, SocketAddr, OwnedSemaphorePermit)> {
    let place = Arc::clone(room).acquire_owned().await.map_err(io::Error::other)?;
    let (socket, peer) = listener.accept().await?;
    // Answers are small and complete: waiting for more data has no benefit.
    socket.set_nodelay(true)?;
    Ok((socket, peer, place))
}

/// One connection, request after request. It is closed without an answer when a head does not arrive in time, or when
/// the client does not read its answer.
async fn connection(
    socket: Answering<TcpStream>,
    service: AddExtension<Router, Peer>,
    head: Duration,
    shutdown: CancellationToken,
) {
    let service = TowerToHyperService::new(service);
    let mut serving = pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(head)
            .max_buf_size(HEAD_BYTES_MAX)
            .serve_connection(TokioIo::new(socket), service)
    );
    let ended = tokio::select! {
        ended = &mut serving => ended,
        () = shutdown.cancelled() => {
            serving.as_mut().graceful_shutdown();
            serving.await
        }
    };
    if let Err(error) = ended {
        debug!(%error, "a connection ended");
    }
}

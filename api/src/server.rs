//! The router, and the server that carries it.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::middleware::from_fn_with_state;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, info, warn};

use crate::app::Api;
use crate::error::ApiError;
use crate::load::{self, Limits};
use crate::routes::{self, Access, Route};
use crate::{auth, request, signature};

/// How long requests in hand may take after the stop.
const DRAIN: Duration = Duration::from_secs(15);
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// The longest head of a request, and how much of a body is read ahead.
const HEAD_BYTES_MAX: usize = 64 * 1024;

/// All routes. What is not among them is answered with the envelope too.
pub fn router(api: Api) -> Router {
    let mut router = Router::new();
    for Route { path, access, handler, .. } in routes::all() {
        // Of several layers the last one is the outermost.
        let guarded = match access {
            Access::Open => handler,
            Access::Key(scopes) => {
                handler.route_layer(from_fn_with_state((api.clone(), scopes), auth::require))
            }
            Access::Signed(scopes) => handler
                .route_layer(from_fn_with_state(api.clone(), signature::require))
                .route_layer(from_fn_with_state((api.clone(), scopes), auth::require)),
        };
        router = router.route(path, guarded);
    }
    router
        .fallback(|| async { ApiError::NotFound })
        .method_not_allowed_fallback(|| async { ApiError::MethodNotAllowed })
        .layer(from_fn_with_state(api.load.clone(), load::shed))
        .layer(from_fn_with_state(api.load.clone(), request::wrap))
        .with_state(api)
}

/// Serves until `shutdown`, then answers what is in hand.
///
/// # Errors
/// When the listener cannot be used.
pub async fn serve(listener: TcpListener, api: Api, shutdown: CancellationToken) -> io::Result<()> {
    info!(address = %listener.local_addr()?, "REST is served");
    let limits = api.load.limits;
    let room = Arc::new(Semaphore::new(limits.connections));
    let router = router(api);
    let connections = TaskTracker::new();
    loop {
        let accepted = tokio::select! {
            () = shutdown.cancelled() => break,
            accepted = accept(&listener, &room) => accepted,
        };
        match accepted {
            Ok((socket, place)) => {
                let serving = connection(socket, router.clone(), limits, shutdown.clone());
                connections.spawn(async move {
                    serving.await;
                    drop(place);
                });
            }
            // Such as too many open files: it passes, or an operator sees the warning.
            Err(error) => {
                warn!(%error, "a connection was not accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    connections.close();
    tokio::select! {
        () = connections.wait() => {}
        () = tokio::time::sleep(DRAIN) => warn!("connections were cut at the end of the drain"),
    }
    Ok(())
}

async fn accept(
    listener: &TcpListener,
    room: &Arc<Semaphore>,
) -> io::Result<(TcpStream, OwnedSemaphorePermit)> {
    let place = Arc::clone(room).acquire_owned().await.map_err(io::Error::other)?;
    let (socket, _) = listener.accept().await?;
    // Answers are small and complete: nothing is won by waiting for more.
    socket.set_nodelay(true)?;
    Ok((socket, place))
}

/// One connection, request after request. A head that does not arrive in time ends it without an answer.
async fn connection(socket: TcpStream, router: Router, limits: Limits, shutdown: CancellationToken) {
    let service = TowerToHyperService::new(router);
    let mut serving = pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(limits.head)
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

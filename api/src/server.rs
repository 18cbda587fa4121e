//! The router, and the server that carries it.

use std::io;
use std::time::Duration;

use axum::Router;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::serve::ListenerExt;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::app::Api;
use crate::error::ApiError;
use crate::routes::{self, Access, Route};
use crate::{auth, request, signature};

/// How long requests in hand may take after the stop.
const DRAIN: Duration = Duration::from_secs(15);

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
        .layer(from_fn(request::wrap))
        .with_state(api)
}

/// Serves until `shutdown`, then answers what is in hand.
///
/// # Errors
/// When the listener cannot be used.
pub async fn serve(listener: TcpListener, api: Api, shutdown: CancellationToken) -> io::Result<()> {
    info!(address = %listener.local_addr()?, "REST is served");
    // Answers are small and complete: nothing is won by waiting for more.
    let listener = listener.tap_io(|socket| {
        if let Err(error) = socket.set_nodelay(true) {
            warn!(%error, "a connection keeps Nagle's delay");
        }
    });
    let serving =
        axum::serve(listener, router(api)).with_graceful_shutdown(shutdown.clone().cancelled_owned());
    let overdue = async {
        shutdown.cancelled().await;
        tokio::time::sleep(DRAIN).await;
    };
    tokio::select! {
        served = serving => served,
        () = overdue => {
            warn!("connections were cut at the end of the drain");
            Ok(())
        }
    }
}

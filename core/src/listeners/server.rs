//! A server of HTTP/1.1: bounded connections, in all and of each source, and an end that completes the requests in progress.

use std::convert::Infallible;
use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::{Body, Incoming};
use hyper::server::conn::http1;
use hyper::service::Service;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use ipnet::IpNet;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, warn};

use super::answering::Answering;
use super::source::Connections;

const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

#[derive(Debug, Clone)]
pub struct ServerLimits {
    /// Connections served at once; more wait to be accepted.
    pub connections: usize,
    /// Connections of one source; more are closed.
    pub connections_per_source: usize,
    /// Networks of proxies, whose connections are not limited by source.
    pub proxies: Vec<IpNet>,
    /// For the arrival of a request's head.
    pub head: Duration,
    /// The maximum size of a request's head, and of the body that is read ahead.
    pub head_bytes: usize,
    /// From the moment a client stops reading an answer to the answer's last byte.
    pub answer: Duration,
    /// For the requests in progress at a stop.
    pub drain: Duration,
}

/// Serves until `shutdown`, then completes the requests in progress. Returns whether all were completed in time.
pub async fn serve<S, B>(
    listener: TcpListener,
    limits: &ServerLimits,
    service_of: impl Fn(SocketAddr) -> S,
    shutdown: CancellationToken,
) -> bool
where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Send + 'static,
    S::Future: Send,
    B: Body<Data: Send, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static,
{
    let room = Arc::new(Semaphore::new(limits.connections));
    let by_source = Connections::default();
    let connections = TaskTracker::new();
    loop {
        let accepted = tokio::select! {
            () = shutdown.cancelled() => break,
            accepted = accept(&listener, &room) => accepted,
        };
        match accepted {
            Ok((socket, peer, place)) => {
                let limit = limits.connections_per_source;
                let Some(connected) = by_source.enter(peer, &limits.proxies, limit) else {
                    debug!(%peer, "a connection was closed: its source has as many as it may");
                    continue;
                };
                let serving = connection(socket, service_of(peer), limits, shutdown.clone());
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
    tokio::time::timeout(limits.drain, connections.wait()).await.is_ok()
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
fn connection<S, B>(
    socket: TcpStream,
    service: S,
    limits: &ServerLimits,
    shutdown: CancellationToken,
) -> impl Future<Output = ()> + use<S, B>
where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible>,
    B: Body<Error: Into<Box<dyn Error + Send + Sync>>> + 'static,
{
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head)
        .max_buf_size(limits.head_bytes)
        .serve_connection(TokioIo::new(Answering::new(socket, limits.answer)), service);
    async move {
        let mut serving = pin!(serving);
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
}

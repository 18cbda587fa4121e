//! Servers that tests pretend to call: each listens on a port of its own until it is dropped.

use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;

/// A connection, over TLS or not.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

pub(crate) type Answer = Response<Full<Bytes>>;

pub(crate) fn answer(status: u16, body: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Full::new(body.into()));
    *answer.status_mut() = StatusCode::from_u16(status).unwrap();
    answer
}

pub(crate) struct Listening {
    pub(crate) address: SocketAddr,
    task: JoinHandle<()>,
}

impl Listening {
    pub(crate) async fn start<F: Future<Output = ()> + Send + 'static>(
        ip: IpAddr,
        tls: Option<ServerConfig>,
        serve: impl Fn(Box<dyn Stream>) -> F + Clone + Send + 'static,
    ) -> Self {
        let listener = TcpListener::bind((ip, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let acceptor = tls.map(|config| TlsAcceptor::from(Arc::new(config)));
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((socket, _)) = listener.accept().await {
                while connections.try_join_next().is_some() {}
                let _ = socket.set_nodelay(true);
                let (acceptor, serve) = (acceptor.clone(), serve.clone());
                connections.spawn(async move {
                    match acceptor {
                        None => serve(Box::new(socket)).await,
                        // A client whose certificate is not admitted is refused here.
                        Some(acceptor) => {
                            if let Ok(stream) = acceptor.accept(socket).await {
                                serve(Box::new(stream)).await;
                            }
                        }
                    }
                });
            }
        });
        Self { address, task }
    }

    /// Over HTTP: each request is answered as `respond` says.
    pub(crate) async fn over_http<F: Future<Output = Answer> + Send + 'static>(
        tls: Option<ServerConfig>,
        respond: impl Fn(Request<Bytes>) -> F + Clone + Send + Sync + 'static,
    ) -> Self {
        let serve = move |stream| {
            let respond = respond.clone();
            let service = service_fn(move |request: Request<Incoming>| {
                let respond = respond.clone();
                async move {
                    let (parts, body) = request.into_parts();
                    let body = body.collect().await.unwrap().to_bytes();
                    Ok::<_, Infallible>(respond(Request::from_parts(parts, body)).await)
                }
            });
            async move {
                let _ended = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
            }
        };
        Self::start(Ipv4Addr::LOCALHOST.into(), tls, serve).await
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.task.abort();
    }
}

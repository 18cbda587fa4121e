//! A way to a server that can drop everything, as a host does that loses its power or its network.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Forwards connections until it is switched to drop all packets. A connection that was open then, or is begun
/// meanwhile, is lost for good, and neither side is notified.
#[derive(Debug)]
pub struct BlackHole {
    addr: SocketAddr,
    state: watch::Sender<State>,
}

#[derive(Debug, Clone, Copy)]
struct State {
    /// How often everything was swallowed.
    times: u64,
    swallows: bool,
}

impl BlackHole {
    /// Listens on a free port of 127.0.0.1, on the way to a server.
    pub async fn on_the_way_to(server: String) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let addr = listener.local_addr()?;
        let (state, follow) = watch::channel(State { times: 0, swallows: false });
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(carry(client, server.clone(), follow.clone()));
            }
        });
        Ok(Self { addr, state })
    }

    pub const fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// A URL of the server, by this way.
    pub fn url(&self, url: &str) -> Option<String> {
        let (user, rest) = url.split_once('@')?;
        let (_, database) = rest.split_once('/')?;
        Some(format!("{user}@{}/{database}", self.addr))
    }

    /// From now on everything is dropped.
    pub fn swallow(&self) {
        self.state.send_modify(|state| *state = State { times: state.times + 1, swallows: true });
    }

    /// From now on new connections are forwarded.
    pub fn forward(&self) {
        self.state.send_modify(|state| state.swallows = false);
    }
}

async fn carry(client: TcpStream, server: String, state: watch::Receiver<State>) {
    let State { times, swallows } = *state.borrow();
    if swallows {
        let _open = client;
        return std::future::pending().await;
    }
    let Ok(server) = TcpStream::connect(server).await else { return };
    let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
    tokio::join!(
        pump(from_client, to_server, state.clone(), times),
        pump(from_server, to_client, state, times)
    );
}

async fn pump(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, state: watch::Receiver<State>, times: u64) {
    let is_open = || state.borrow().times == times;
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        let bytes = buffer.get(..read).unwrap_or_default();
        if is_open() && to.write_all(bytes).await.is_err() {
            return;
        }
    }
    if !is_open() {
        // The end of the connection is swallowed, too.
        let _open = (from, to);
        std::future::pending::<()>().await;
    }
}

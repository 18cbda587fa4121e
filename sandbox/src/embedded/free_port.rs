//! A port for a program that is told on which one to listen.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use tokio::net::TcpSocket;

use super::EmbeddedError;

/// A port of 127.0.0.1 that is kept for one program until this value is dropped.
///
/// On Linux a socket is bound to the port and does not listen. The kernel then assigns the port to no other socket, and
/// the program can listen on it if it sets `SO_REUSEADDR`, as servers do. Other systems would refuse the program, so
/// there the port is not kept: it was free when it was taken.
#[derive(Debug)]
pub struct FreePort {
    number: u16,
    #[cfg(target_os = "linux")]
    _held: TcpSocket,
}

impl FreePort {
    pub fn take() -> Result<Self, EmbeddedError> {
        Self::bind(0)
    }

    /// This one, or any other when something listens on it.
    pub(super) fn take_preferably(number: Option<u16>) -> Result<Self, EmbeddedError> {
        number.map_or_else(Self::take, |number| Self::bind(number).or_else(|_| Self::take()))
    }

    fn bind(number: u16) -> Result<Self, EmbeddedError> {
        let bound = || {
            let socket = TcpSocket::new_v4()?;
            socket.set_reuseaddr(true)?;
            socket.bind(SocketAddr::from((Ipv4Addr::LOCALHOST, number)))?;
            let number = socket.local_addr()?.port();
            #[cfg(not(target_os = "linux"))]
            drop(socket);
            Ok(Self {
                number,
                #[cfg(target_os = "linux")]
                _held: socket,
            })
        };
        bound().map_err(EmbeddedError::file("listen on", Path::new("127.0.0.1")))
    }

    pub const fn number(&self) -> u16 {
        self.number
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_port_is_given_to_nobody_else_and_can_be_listened_on() {
        let ports: Vec<FreePort> = (0..64).map(|_| FreePort::take().unwrap()).collect();
        let others: Vec<TcpListener> =
            (0..512).map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap()).collect();
        for port in &ports {
            assert!(others.iter().all(|other| other.local_addr().unwrap().port() != port.number()));
            drop(TcpListener::bind((Ipv4Addr::LOCALHOST, port.number())).unwrap());
        }
        let listened = others[0].local_addr().unwrap().port();
        assert_ne!(FreePort::take_preferably(Some(listened)).unwrap().number(), listened);
        let free = ports[0].number();
        assert_eq!(FreePort::take_preferably(Some(free)).unwrap().number(), free);
    }
}

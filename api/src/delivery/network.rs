//! Resolves the names of receivers, and determines why one is unreachable: the receiver, or our resolver or network.
//!
//! A failed name resolution alone is ambiguous: a faulty resolver fails for every name. After a failure, another name
//! that certainly has addresses is resolved (the probe). If it resolves, the failure is the receiver's. Similarly for
//! an address without a route: if this machine has any route, the failure is the receiver's, for example because it has
//! an IPv6 address only and this machine has no IPv6.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;

use super::address::Reach;
use super::names::Names;

/// A permanent name of the public DNS: a root server's.
pub(super) const PROBE_NAME: &str = "a.root-servers.net";
/// The addresses of that server. No packet is sent to them.
const PROBE_ADDRESSES: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(198, 41, 0, 4)),
    IpAddr::V6(Ipv6Addr::new(0x2001, 0x503, 0xba3e, 0, 0, 0, 2, 0x30)),
];
/// The time limit of a receiver's name resolution.
const LOOK_UP: Duration = Duration::from_secs(8);
const PROBE: Duration = Duration::from_secs(4);
/// How long the result of a probe is valid.
const DNS_TTL: Duration = Duration::from_secs(10);
/// Any port: no packet is sent.
const PORT: u16 = 443;

/// Why a name has no usable addresses.
#[derive(Debug, thiserror::Error)]
#[error("the name does not resolve: {source}")]
pub(super) struct Unresolved {
    /// Our resolver is faulty, which says nothing about the name.
    pub(super) is_ours: bool,
    #[source]
    source: io::Error,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("there is no route to the address")]
pub(super) struct NoRoute {
    /// There is no route to any address.
    pub(super) is_ours: bool,
}

/// The machine's resolver, and the last probe.
pub(super) struct Resolver {
    names: Arc<dyn Names>,
    probe: String,
    /// The time and the result of the last probe. Locked during a probe, so that concurrent callers share it.
    state: Mutex<Option<(Instant, bool)>>,
}

impl Resolver {
    pub(super) fn new(names: Arc<dyn Names>, probe: String) -> Self {
        Self { names, probe, state: Mutex::new(None) }
    }

    pub(super) async fn look_up(&self, name: &str) -> Result<Vec<IpAddr>, Unresolved> {
        match addresses(&*self.names, name, LOOK_UP).await {
            Ok(found) => Ok(found),
            Err(source) => Err(Unresolved { is_ours: !self.works().await, source }),
        }
    }

    async fn works(&self) -> bool {
        let mut state = self.state.lock().await;
        if let Some((at, works)) = *state
            && at.elapsed() < DNS_TTL
        {
            return works;
        }
        let works = addresses(&*self.names, &self.probe, PROBE).await.is_ok();
        *state = Some((Instant::now(), works));
        works
    }
}

async fn addresses(names: &dyn Names, name: &str, limit: Duration) -> io::Result<Vec<IpAddr>> {
    let found = tokio::time::timeout(limit, names.look_up(name)).await;
    let found = found.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
    if found.is_empty() { Err(io::Error::other("no addresses")) } else { Ok(found) }
}

/// The addresses that this machine has a route to.
pub(super) fn routed(addresses: Vec<IpAddr>) -> Result<Vec<IpAddr>, NoRoute> {
    let routed: Vec<IpAddr> = addresses.into_iter().filter(|address| has_route(*address)).collect();
    if routed.is_empty() {
        return Err(NoRoute { is_ours: !PROBE_ADDRESSES.into_iter().any(has_route) });
    }
    Ok(routed)
}

/// Connecting a datagram socket queries the routing table and sends nothing.
fn has_route(address: IpAddr) -> bool {
    let own: IpAddr = match address {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    match UdpSocket::bind((own, 0)).and_then(|socket| socket.connect(SocketAddr::new(address, PORT))) {
        Ok(()) => true,
        // Any other error, such as too many open files, says nothing about routes.
        Err(error) => {
            !matches!(
                error.kind(),
                io::ErrorKind::NetworkUnreachable
                    | io::ErrorKind::HostUnreachable
                    | io::ErrorKind::NetworkDown
                    | io::ErrorKind::AddrNotAvailable
                    | io::ErrorKind::Unsupported
            ) && error.raw_os_error() != Some(EAFNOSUPPORT)
        }
    }
}

/// The machine has no IPv6 at all.
const EAFNOSUPPORT: i32 = 97;

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the name leads to the address {0}, which is not public")]
pub(super) struct NonPublicAddress(IpAddr);

/// The resolver of the shared client. One refused address refuses the name: an attacker with one public and one private
/// address would only need to wait for their order to change.
pub(super) struct Guarded {
    pub(super) resolver: Arc<Resolver>,
    pub(super) reach: Reach,
}

impl reqwest::dns::Resolve for Guarded {
    fn resolve(&self, name: reqwest::dns::Name) -> reqwest::dns::Resolving {
        let (resolver, reach) = (Arc::clone(&self.resolver), self.reach.clone());
        Box::pin(async move {
            let found = resolver.look_up(name.as_str()).await?;
            if let Some(refused) = found.iter().find(|address| !reach.allows(**address)) {
                return Err(NonPublicAddress(*refused).into());
            }
            // Port 0 stands for the URL's port.
            let addresses = routed(found)?.into_iter().map(|address| SocketAddr::new(address, 0));
            Ok(Box::new(addresses) as reqwest::dns::Addrs)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_without_a_route_are_skipped_or_our_fault() {
        let local = IpAddr::from(Ipv4Addr::LOCALHOST);
        assert_eq!(routed(vec![local]), Ok(vec![local]));
        let has_any = PROBE_ADDRESSES.into_iter().any(has_route);
        for address in PROBE_ADDRESSES {
            let expected = if has_route(address) { vec![local, address] } else { vec![local] };
            assert_eq!(routed(vec![local, address]), Ok(expected));
            if !has_route(address) {
                assert_eq!(routed(vec![address]), Err(NoRoute { is_ours: !has_any }));
            }
        }
    }
}

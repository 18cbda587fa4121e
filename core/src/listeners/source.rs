//! Sources: the clients' addresses, and the open connections of each, so that one host cannot hold all that a server has.

use std::collections::HashMap;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use hyper::HeaderMap;
use ipnet::IpNet;
use parking_lot::Mutex;

/// The address of a connection's other end, as its requests have it.
#[derive(Debug, Clone, Copy)]
pub struct Peer(pub SocketAddr);

/// An IPv4 address or an IPv6 /64, which is the allocation of one client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Source(IpAddr);

impl From<IpAddr> for Source {
    fn from(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V6(address) => {
                Self(IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX))))
            }
            address @ IpAddr::V4(_) => Self(address),
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The client of a request that arrived from `peer`: behind a proxy the last address of `X-Forwarded-For` that is not a
/// proxy's, because a client can set all earlier ones.
pub fn client(peer: SocketAddr, proxies: &[IpNet], headers: &HeaderMap) -> IpAddr {
    let said: Vec<&str> = headers
        .get_all("x-forwarded-for")
        .iter()
        .flat_map(|value| value.to_str().unwrap_or_default().split(','))
        .map(str::trim)
        .collect();
    let mut client = peer.ip().to_canonical();
    for text in said.into_iter().rev() {
        if !is_in(proxies, client) {
            break;
        }
        let Some(address) = address(text) else { break };
        client = address;
    }
    client
}

/// Whether an address is in one of the networks. An IPv4 address that came over an IPv6 socket counts as IPv4.
pub fn is_in(networks: &[IpNet], address: IpAddr) -> bool {
    let address = address.to_canonical();
    networks.iter().any(|network| network.contains(&address))
}

/// An address, with or without brackets and a port.
fn address(text: &str) -> Option<IpAddr> {
    let plain = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    let parsed = plain.parse().ok().or_else(|| text.parse::<SocketAddr>().ok().map(|at| at.ip()));
    parsed.map(|address: IpAddr| address.to_canonical())
}

/// The open connections by source.
#[derive(Debug, Clone, Default)]
pub(super) struct Connections(Arc<Mutex<HashMap<Source, usize>>>);

/// One connection of a source.
#[derive(Debug)]
pub(super) struct Connected {
    connections: Connections,
    source: Source,
}

impl Connections {
    /// `None`: the source has `limit` connections already. A proxy's connections are not limited: they are of all its
    /// clients.
    pub(super) fn enter(&self, peer: SocketAddr, proxies: &[IpNet], limit: usize) -> Option<Connected> {
        let limit = if is_in(proxies, peer.ip()) { usize::MAX } else { limit };
        let source = Source::from(peer.ip());
        let mut counts = self.0.lock();
        let count = counts.get(&source).copied().unwrap_or_default();
        if count >= limit {
            return None;
        }
        counts.insert(source, count.saturating_add(1));
        drop(counts);
        Some(Connected { connections: self.clone(), source })
    }
}

impl Drop for Connected {
    fn drop(&mut self) {
        let mut counts = self.connections.0.lock();
        match counts.get_mut(&self.source) {
            Some(count) if *count > 1 => *count -= 1,
            Some(_) | None => drop(counts.remove(&self.source)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_nearest_trusted_proxy_determines_the_source() {
        let proxies: Vec<IpNet> = vec!["10.0.0.0/8".parse().unwrap(), "2001:db8:1::/48".parse().unwrap()];
        for (peer, forwarded, expected) in [
            ("192.0.2.1", &["198.51.100.7"][..], "192.0.2.1"),
            ("10.0.0.1", &[], "10.0.0.1"),
            ("10.0.0.1", &["198.51.100.7"], "198.51.100.7"),
            ("::ffff:10.0.0.1", &["198.51.100.7"], "198.51.100.7"),
            ("10.0.0.1", &["1.1.1.1, 198.51.100.7"], "198.51.100.7"),
            ("10.0.0.1", &["1.1.1.1", "198.51.100.7, 10.0.0.2"], "198.51.100.7"),
            ("10.0.0.1", &["198.51.100.7:4711"], "198.51.100.7"),
            ("10.0.0.1", &["[2001:db8:2::5]:443"], "2001:db8:2::5"),
            ("10.0.0.1", &["198.51.100.7, nonsense"], "10.0.0.1"),
            ("10.0.0.1", &["198.51.100.7, nonsense, 10.0.0.3"], "10.0.0.3"),
        ] {
            let mut headers = HeaderMap::new();
            for line in forwarded {
                headers.append("x-forwarded-for", line.parse().unwrap());
            }
            let peer = SocketAddr::new(peer.parse().unwrap(), 5);
            assert_eq!(client(peer, &proxies, &headers).to_string(), expected, "{peer} {forwarded:?}");
        }
    }

    #[test]
    fn a_source_is_bounded_until_its_connections_end_and_a_proxy_is_not() {
        let (connections, proxies) = (Connections::default(), ["10.0.0.0/8".parse().unwrap()]);
        let enter = |peer: &str| connections.enter(peer.parse().unwrap(), &proxies, 2);
        let held = [enter("[2001:db8:0:3::1]:5"), enter("[2001:db8:0:3:ffff::2]:5")];
        assert!(held.iter().all(Option::is_some));
        assert!(enter("[2001:db8:0:3::3]:5").is_none() && enter("[2001:db8:0:4::1]:5").is_some());
        let others = [enter("192.0.2.1:5"), enter("[::ffff:192.0.2.1]:5")];
        assert!(others.iter().all(Option::is_some));
        assert!(enter("192.0.2.1:6").is_none() && enter("192.0.2.2:5").is_some());
        let of_proxy: Vec<_> = (0..5).map(|_| enter("[::ffff:10.0.0.1]:5")).collect();
        assert!(of_proxy.iter().all(Option::is_some));
        drop((held, others, of_proxy));
        assert!(enter("192.0.2.1:6").is_some());
        assert!(connections.0.lock().is_empty());
    }
}

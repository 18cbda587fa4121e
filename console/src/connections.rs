//! The connections of each source, an IPv4 address or an IPv6 /64: one host cannot hold all that the console serves.

use std::net::{IpAddr, SocketAddr};

use dvp_core::listeners::connections::{Connected, Connections};
use ipnet::IpNet;

use crate::attempts::network;

/// A connection from `peer`. `None`: its source has `limit` already. A proxy's connections are not limited: they are of all
/// its clients.
pub(crate) fn enter(
    connections: &Connections<IpAddr>,
    peer: SocketAddr,
    proxies: &[IpNet],
    limit: usize,
) -> Option<Connected<IpAddr>> {
    let address = peer.ip().to_canonical();
    let is_proxy = proxies.iter().any(|network| network.contains(&address));
    connections.enter(network(address), if is_proxy { usize::MAX } else { limit })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_bounded_until_its_connections_end_and_a_proxy_is_not() {
        let (connections, proxies) = (Connections::default(), ["10.0.0.0/8".parse().unwrap()]);
        let enter = |peer: &str| super::enter(&connections, peer.parse().unwrap(), &proxies, 2);
        let held = [enter("[2001:db8::1]:5"), enter("[2001:db8::2]:5")];
        assert!(held.iter().all(Option::is_some));
        assert!(enter("[2001:db8::3]:5").is_none());
        let others = [enter("192.0.2.1:5"), enter("[::ffff:192.0.2.1]:5")];
        assert!(others.iter().all(Option::is_some) && enter("192.0.2.1:6").is_none());
        let of_proxy: Vec<_> = (0..5).map(|_| enter("[::ffff:10.0.0.1]:5")).collect();
        assert!(of_proxy.iter().all(Option::is_some));
        drop(held);
        assert!(enter("[2001:db8::3]:5").is_some());
        drop((others, of_proxy));
        assert!(enter("192.0.2.1:6").is_some());
    }
}

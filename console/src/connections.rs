//! The connections of each source, an IPv4 address or an IPv6 /64: one host cannot hold all that the console serves.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use ipnet::IpNet;

use crate::attempts::network;

/// The open connections by source.
#[derive(Debug, Clone, Default)]
pub(crate) struct Connections {
    counts: Arc<Mutex<HashMap<IpAddr, usize>>>,
}

/// One connection of a source.
#[derive(Debug)]
pub(crate) struct Connected {
    connections: Connections,
    source: IpAddr,
}

impl Connections {
    /// A connection from `peer`. `None`: its source has `limit` already. A proxy's connections are not limited: they are
    /// of all its clients.
    pub(crate) fn enter(&self, peer: SocketAddr, proxies: &[IpNet], limit: usize) -> Option<Connected> {
        let address = peer.ip().to_canonical();
        let is_proxy = proxies.iter().any(|network| network.contains(&address));
        let source = network(address);
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(source).or_default();
        if *count >= limit && !is_proxy {
            return None;
        }
        *count += 1;
        drop(counts);
        Some(Connected { connections: self.clone(), source })
    }
}

impl Drop for Connected {
    fn drop(&mut self) {
        let mut counts = self.connections.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let left = counts.get(&self.source).copied().unwrap_or_default().saturating_sub(1);
        if left == 0 {
            counts.remove(&self.source);
        } else {
            counts.insert(self.source, left);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_bounded_until_its_connections_end_and_a_proxy_is_not() {
        let (connections, proxies) = (Connections::default(), ["10.0.0.0/8".parse().unwrap()]);
        let enter = |peer: &str| connections.enter(peer.parse().unwrap(), &proxies, 2);
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
        assert!(connections.counts.lock().unwrap().is_empty());
    }
}

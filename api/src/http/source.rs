//! The source of a request: the client's address, and the limits of one source.
//!
//! A source is an IPv4 address or an IPv6 /64, which is the allocation of one client. Behind a proxy it is the last
//! address of `X-Forwarded-For` that is not a proxy's, because a client can set all earlier ones.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::http::{HeaderMap, HeaderName};
use dvp_core::listeners::connections::{Connected, Connections};
use ipnet::IpNet;

use crate::http::load::Limits;

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const WINDOW: Duration = Duration::from_secs(60);
/// The maximum number of counted sources.
const SOURCES_MAX: usize = 65_536;

/// The unit of counting for one client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Source(IpAddr);

impl Source {
    pub(crate) fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V6(address) => {
                Self(IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX))))
            }
            address @ IpAddr::V4(_) => Self(address),
        }
    }

    /// The client of a request that arrived from `peer`.
    pub(crate) fn of_request(peer: IpAddr, proxies: &[IpNet], headers: &HeaderMap) -> Self {
        let peer = peer.to_canonical();
        if !is_proxy(peer, proxies) {
            return Self::of(peer);
        }
        let said: Vec<&str> = headers
            .get_all(FORWARDED_FOR)
            .iter()
            .flat_map(|value| value.to_str().unwrap_or_default().split(','))
            .map(str::trim)
            .collect();
        let mut client = peer;
        for text in said.into_iter().rev() {
            let Some(address) = address(text) else { break };
            client = address;
            if !is_proxy(address, proxies) {
                break;
            }
        }
        Self::of(client)
    }
}

impl std::fmt::Display for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

fn is_proxy(address: IpAddr, proxies: &[IpNet]) -> bool {
    let address = address.to_canonical();
    proxies.iter().any(|network| network.contains(&address))
}

/// An address, with or without brackets and a port.
fn address(text: &str) -> Option<IpAddr> {
    let plain = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    let parsed = plain.parse().ok().or_else(|| text.parse::<SocketAddr>().ok().map(|at| at.ip()));
    parsed.map(|address: IpAddr| address.to_canonical())
}

/// Counts by source in windows of a minute, in bounded memory.
pub(crate) struct Windows<Key> {
    counts: Mutex<HashMap<Key, Window>>,
}

struct Window {
    opened: Instant,
    count: u32,
}

impl<Key> Default for Windows<Key> {
    fn default() -> Self {
        Self { counts: Mutex::default() }
    }
}

impl<Key: Hash + Eq> Windows<Key> {
    /// Counts one more.
    pub(crate) fn add(&self, key: Key, now: Instant) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let is_open = |window: &Window| now.saturating_duration_since(window.opened) < WINDOW;
        if counts.len() >= SOURCES_MAX && !counts.contains_key(&key) {
            counts.retain(|_, window| is_open(window));
            if counts.len() >= SOURCES_MAX {
                // All counts restart; the total is limited elsewhere.
                counts.clear();
            }
        }
        let window = counts.entry(key).or_insert(Window { opened: now, count: 0 });
        if !is_open(window) {
            *window = Window { opened: now, count: 0 };
        }
        window.count = window.count.saturating_add(1);
    }

    /// Seconds until the window closes, when it holds `limit` or more.
    pub(crate) fn exhausted(&self, key: &Key, limit: u32, now: Instant) -> Option<u64> {
        let counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let window = counts.get(key)?;
        let left = WINDOW.checked_sub(now.saturating_duration_since(window.opened))?;
        (window.count >= limit && !left.is_zero()).then(|| left.as_secs().saturating_add(1))
    }
}

/// A connection from `peer`. A proxy's connections are not limited. `None`: the source has as many as it may.
pub(crate) fn enter(
    connections: &Connections<Source>,
    peer: SocketAddr,
    limits: &Limits,
) -> Option<Connected<Source>> {
    let limit = if is_proxy(peer.ip(), &limits.proxies) { usize::MAX } else { limits.connections_per_source };
    connections.enter(Source::of(peer.ip()), limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(peer: &str, forwarded: &[&str], client: &str) {
        let proxies: Vec<IpNet> = vec!["10.0.0.0/8".parse().unwrap(), "2001:db8:1::/48".parse().unwrap()];
        let mut headers = HeaderMap::new();
        for line in forwarded {
            headers.append(FORWARDED_FOR, line.parse().unwrap());
        }
        let source = Source::of_request(peer.parse().unwrap(), &proxies, &headers);
        assert_eq!(source.to_string(), client, "{peer} {forwarded:?}");
    }

    #[test]
    fn only_the_nearest_trusted_proxy_determines_the_source() {
        check("192.0.2.1", &["198.51.100.7"], "192.0.2.1");
        check("10.0.0.1", &[], "10.0.0.1");
        check("10.0.0.1", &["198.51.100.7"], "198.51.100.7");
        check("::ffff:10.0.0.1", &["198.51.100.7"], "198.51.100.7");
        check("10.0.0.1", &["1.1.1.1, 198.51.100.7"], "198.51.100.7");
        check("10.0.0.1", &["1.1.1.1", "198.51.100.7, 10.0.0.2"], "198.51.100.7");
        check("10.0.0.1", &["198.51.100.7:4711"], "198.51.100.7");
        check("10.0.0.1", &["[2001:db8:2::5]:443"], "2001:db8:2::");
        check("10.0.0.1", &["198.51.100.7, nonsense"], "10.0.0.1");
        check("10.0.0.1", &["198.51.100.7, nonsense, 10.0.0.3"], "10.0.0.3");
    }

    #[test]
    fn an_ipv6_network_of_64_bits_is_one_source() {
        let source = |text: &str| Source::of(text.parse().unwrap());
        assert_eq!(source("2001:db8:2:3::1"), source("2001:db8:2:3:ffff::2"));
        assert_ne!(source("2001:db8:2:3::1"), source("2001:db8:2:4::1"));
        assert_eq!(source("::ffff:192.0.2.1"), source("192.0.2.1"));
        assert_ne!(source("192.0.2.1"), source("192.0.2.2"));
    }

    #[test]
    fn an_exhausted_window_recovers_and_the_table_is_bounded() {
        let (windows, start) = (Windows::default(), Instant::now());
        for _ in 0..3 {
            assert_eq!(windows.exhausted(&1, 3, start), None);
            windows.add(1, start);
        }
        assert_eq!(windows.exhausted(&1, 3, start + WINDOW / 2), Some(31));
        assert_eq!(windows.exhausted(&1, 3, start + WINDOW), None);
        windows.add(1, start + WINDOW);
        assert_eq!(windows.exhausted(&1, 3, start + WINDOW), None);
        for key in 0..2 * SOURCES_MAX {
            windows.add(key, start + WINDOW);
        }
        assert!(windows.counts.lock().unwrap().len() <= SOURCES_MAX);
    }
}

//! Which addresses a webhook may be sent to: those of the public internet, in any notation.
//!
//! The lists are IANA's special-purpose registries (RFC 6890 and its updates). Only 2000::/3 of IPv6 is allocated, so
//! everything outside it is refused without a list: loopback, mapped and compatible IPv4, NAT64, unique local,
//! link-local, site-local, multicast.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The allowed destinations.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Reach {
    /// The public internet, on the standard port.
    #[default]
    Public,
    /// The public internet and these addresses, on any port: for tests.
    PublicAnd(Vec<IpAddr>),
    /// Any address on any port: for tests.
    Everything,
}

impl Reach {
    pub fn allows(&self, address: IpAddr) -> bool {
        match self {
            Self::Public => is_public(address),
            Self::PublicAnd(more) => is_public(address) || more.contains(&address),
            Self::Everything => true,
        }
    }

    /// Whether ports other than 443 and names without a domain may be used.
    pub(crate) const fn is_for_tests(&self) -> bool {
        match self {
            Self::Public => false,
            Self::PublicAnd(_) | Self::Everything => true,
        }
    }
}

pub(crate) fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

/// First address and prefix length of every block that is not public.
const CLOSED_V4: [(Ipv4Addr, u32); 15] = [
    (Ipv4Addr::new(0, 0, 0, 0), 8),
    (Ipv4Addr::new(10, 0, 0, 0), 8),
    (Ipv4Addr::new(100, 64, 0, 0), 10),
    (Ipv4Addr::new(127, 0, 0, 0), 8),
    (Ipv4Addr::new(169, 254, 0, 0), 16),
    (Ipv4Addr::new(172, 16, 0, 0), 12),
    (Ipv4Addr::new(192, 0, 0, 0), 24),
    (Ipv4Addr::new(192, 0, 2, 0), 24),
    (Ipv4Addr::new(192, 88, 99, 0), 24),
    (Ipv4Addr::new(192, 168, 0, 0), 16),
    (Ipv4Addr::new(198, 18, 0, 0), 15),
    (Ipv4Addr::new(198, 51, 100, 0), 24),
    (Ipv4Addr::new(203, 0, 113, 0), 24),
    (Ipv4Addr::new(224, 0, 0, 0), 4),
    (Ipv4Addr::new(240, 0, 0, 0), 4),
];

fn is_public_v4(address: Ipv4Addr) -> bool {
    let bits = address.to_bits();
    !CLOSED_V4.iter().any(|(first, length)| (bits ^ first.to_bits()).leading_zeros() >= *length)
}

/// Blocks within 2000::/3 that are not public: protocol assignments with Teredo, documentation, 6to4.
const CLOSED_V6: [(Ipv6Addr, u32); 4] = [
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23),
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32),
    (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16),
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20),
];
const GIVEN_OUT: (Ipv6Addr, u32) = (Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3);

fn is_public_v6(address: Ipv6Addr) -> bool {
    let within =
        |(first, length): &(Ipv6Addr, u32)| (address.to_bits() ^ first.to_bits()).leading_zeros() >= *length;
    within(&GIVEN_OUT) && !CLOSED_V6.iter().any(within)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_non_public_block_is_refused_exactly() {
        for (inside, beyond) in [
            ("0.255.255.255", "1.0.0.0"),
            ("10.255.255.255", "11.0.0.0"),
            ("100.127.255.255", "100.128.0.0"),
            ("127.255.255.255", "128.0.0.0"),
            ("169.254.169.254", "169.255.0.0"),
            ("172.31.255.255", "172.32.0.0"),
            ("192.0.0.255", "192.0.1.0"),
            ("192.168.255.255", "192.169.0.0"),
            ("198.19.255.255", "198.20.0.0"),
            ("239.255.255.255", "223.255.255.255"),
            ("255.255.255.255", "8.8.8.8"),
            ("2001:1ff::1", "2001:200::1"),
            ("2001:db8:ffff::1", "2001:db9::1"),
            ("2002:7f00:1::", "2003::1"),
            ("3fff:fff::1", "3fff:1000::1"),
            ("1fff::1", "2606:4700::1111"),
        ] {
            assert!(!is_public(inside.parse().unwrap()), "{inside}");
            assert!(is_public(beyond.parse().unwrap()), "{beyond}");
        }
    }

    #[test]
    fn private_ipv4_addresses_embedded_in_ipv6_are_refused() {
        for address in [
            "::1",
            "::ffff:8.8.8.8",
            "64:ff9b::808:808",
            "2002:a00:1::",
            "2001:0:7f00:1::",
            "fc00::1",
            "fe80::1",
            "fec0::1",
            "ff02::1",
        ] {
            assert!(!is_public(address.parse().unwrap()), "{address}");
        }
    }
}

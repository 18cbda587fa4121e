//! Which URLs a webhook may have (contract section 4, rule 4): https, a public host, no credentials, the standard port.
//!
//! The check applies to the normalized URL, after the parser has resolved every notation of an address (`2130706433`,
//! `0x7f.1`, `[::ffff:7f00:1]`), at registration and again before each attempt. Names are checked by their addresses at
//! each new connection.

use std::net::IpAddr;

use url::{Host, Url};

use super::address::Reach;

const URL_BYTES_MAX: usize = 2048;

/// Why a URL is refused, for its registrant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum UrlFault {
    #[error("is not a URL")]
    Malformed,
    #[error("must have at most {URL_BYTES_MAX} bytes")]
    TooLong,
    #[error("must begin with https://")]
    NotHttps,
    #[error("must not hold a user name or password")]
    Credentials,
    #[error("must use the standard port")]
    Port,
    #[error("must name a public host")]
    NotPublic,
}

/// Names that are never public, regardless of their addresses (RFC 6761, 6762, 8375, and common private names).
const PRIVATE_SUFFIXES: [&str; 9] =
    ["localhost", "local", "internal", "intranet", "lan", "home", "corp", "home.arpa", "onion"];

/// The normalized URL.
pub fn check(text: &str, reach: &Reach) -> Result<Url, UrlFault> {
    if text.len() > URL_BYTES_MAX {
        return Err(UrlFault::TooLong);
    }
    // The parser would remove them silently.
    if text.chars().any(|c| c.is_control() || c.is_whitespace()) {
        return Err(UrlFault::Malformed);
    }
    let url = Url::parse(text).map_err(|_| UrlFault::Malformed)?;
    if url.scheme() != "https" {
        return Err(UrlFault::NotHttps);
    }
    if !url.username().is_empty() || url.password().is_some() || authority(text).contains('@') {
        return Err(UrlFault::Credentials);
    }
    if !reach.is_for_tests() && url.port().is_some() {
        return Err(UrlFault::Port);
    }
    let public = match url.host().ok_or(UrlFault::Malformed)? {
        Host::Ipv4(address) => reach.allows(IpAddr::V4(address)),
        Host::Ipv6(address) => reach.allows(IpAddr::V6(address)),
        Host::Domain(name) => reach.is_for_tests() || is_public_name(name),
    };
    if public { Ok(url) } else { Err(UrlFault::NotPublic) }
}

/// The authority part between the scheme and the path, including an empty `@`, which the parser drops.
fn authority(text: &str) -> &str {
    let rest = text.split_once(':').map_or(text, |parts| parts.1);
    let rest = rest.trim_start_matches(['/', '\\']);
    rest.split(['/', '\\', '?', '#']).next().unwrap_or_default()
}

fn is_public_name(name: &str) -> bool {
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    let private = |suffix: &&str| name == **suffix || name.ends_with(&format!(".{suffix}"));
    name.contains('.') && !PRIVATE_SUFFIXES.iter().any(private)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(text: &str) -> Option<UrlFault> {
        check(text, &Reach::Public).err()
    }

    #[test]
    fn public_https_hosts_are_accepted() {
        for url in [
            "https://example.com",
            "https://example.com/",
            "https://example.com:443/hooks?x=1",
            "https://hooks.example.co.uk/a/b",
            "https://8.8.8.8/hook",
            "https://[2606:4700:4700::1111]/",
            "HTTPS://EXAMPLE.COM/x",
            "https://bücher.example/x",
        ] {
            assert_eq!(fault(url), None, "{url}");
        }
    }

    #[test]
    fn every_spelling_of_a_private_address_is_refused() {
        for host in [
            "127.0.0.1",
            "127.1",
            "2130706433",
            "0x7f.1",
            "0x7f000001",
            "017700000001",
            "0177.0.0.1",
            "127.0.0.1.",
            "0",
            "[::1]",
            "[::ffff:127.0.0.1]",
            "[::ffff:7f00:1]",
            "[::127.0.0.1]",
            "１２７.０.０.１",
            "127。0。0。1",
            "%31%32%37.0.0.1",
            "localhost",
            "LOCALHOST",
            "localhost.",
            "a.localhost",
            "printer.local",
            "db.internal",
            "intranet",
            "metadata.google.internal",
            "router.home.arpa",
        ] {
            assert_eq!(fault(&format!("https://{host}/hook")), Some(UrlFault::NotPublic), "{host}");
        }
    }

    #[test]
    fn other_schemes_ports_credentials_and_malformed_urls_are_refused() {
        for (url, expected) in [
            ("http://example.com/", UrlFault::NotHttps),
            ("ftp://example.com/", UrlFault::NotHttps),
            ("javascript:alert(1)", UrlFault::NotHttps),
            ("https://example.com:8443/", UrlFault::Port),
            ("https://example.com:80/", UrlFault::Port),
            ("https://user@example.com/", UrlFault::Credentials),
            ("https://user:pass@example.com/", UrlFault::Credentials),
            ("https://:@example.com/", UrlFault::Credentials),
            ("https://@example.com/", UrlFault::Credentials),
            ("https://example.com@127.0.0.1/", UrlFault::Credentials),
            ("example.com", UrlFault::Malformed),
            ("", UrlFault::Malformed),
            ("https://", UrlFault::Malformed),
            ("https://exa mple.com/", UrlFault::Malformed),
            ("https://exam\nple.com/", UrlFault::Malformed),
            ("https://[::1/", UrlFault::Malformed),
            ("https://256.256.256.256/", UrlFault::Malformed),
        ] {
            assert_eq!(fault(url), Some(expected), "{url}");
        }
        assert_eq!(fault(&format!("https://example.com/{}", "a".repeat(2048))), Some(UrlFault::TooLong));
    }

    #[test]
    fn allowed_test_addresses_still_require_https() {
        let some = Reach::PublicAnd(vec!["127.0.0.1".parse().unwrap()]);
        assert!(check("https://127.0.0.1:9000/x", &some).is_ok());
        assert_eq!(check("https://127.0.0.2:9000/x", &some).err(), Some(UrlFault::NotPublic));
        assert!(check("https://10.0.0.1:1/x", &Reach::Everything).is_ok());
        assert_eq!(check("http://127.0.0.1/x", &Reach::Everything).err(), Some(UrlFault::NotHttps));
    }
}

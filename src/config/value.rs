//! Values that TOML has no type for: secrets, durations, protected URLs.

use std::fmt;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde::{Deserialize, Deserializer, de};
use url::{Host, Url};

/// Where a secret is; the secret itself is read when it is needed and never shown.
#[derive(Clone)]
pub(crate) enum Secret {
    /// `env:NAME`
    Env(String),
    /// `file:PATH`, a file that only its owner may write, and only its owner and its group may read. White space around the secret is no part of it.
    File(PathBuf),
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<secret>")
    }
}

impl Secret {
    pub(crate) fn read(&self) -> anyhow::Result<String> {
        match self {
            Self::Env(name) => {
                std::env::var(name).with_context(|| format!("the environment variable {name} cannot be read"))
            }
            Self::File(path) => {
                let text = fs::read_to_string(path)
                    .with_context(|| format!("the file {} cannot be read", path.display()))?;
                is_private(path)?;
                Ok(text.trim().to_owned())
            }
        }
    }
}

/// A file with a secret, which its owner and its group may read, and nobody else.
pub(crate) fn is_private(path: &Path) -> anyhow::Result<()> {
    let found = fs::metadata(path).with_context(|| format!("the file {} cannot be read", path.display()))?;
    let others = found.permissions().mode() & 0o037;
    ensure!(
        others == 0,
        "the file {} can be used by others: make it 0600, or 0640 for its group",
        path.display()
    );
    Ok(())
}

impl Secret {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        match text.split_once(':') {
            Some(("env", name)) if !name.is_empty() => Some(Self::Env(name.to_owned())),
            Some(("file", path)) if !path.is_empty() => Some(Self::File(path.into())),
            _ => None,
        }
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let refused = "a secret is given as \"env:NAME\" or \"file:PATH\", never in the configuration itself";
        Self::parse(&text).ok_or_else(|| de::Error::custom(refused))
    }
}

/// A URL or another address, or the place of one: URLs of many node providers hold a secret, and a process's own address
/// is in its environment.
#[derive(Debug, Clone)]
pub(crate) enum Endpoint {
    Url(String),
    Secret(Secret),
}

impl Endpoint {
    pub(crate) fn read(&self) -> anyhow::Result<String> {
        match self {
            Self::Url(url) => Ok(url.clone()),
            Self::Secret(secret) => secret.read(),
        }
    }
}

impl<'de> Deserialize<'de> for Endpoint {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Ok(Secret::parse(&text).map_or(Self::Url(text), Self::Secret))
    }
}

/// A whole number and its unit: `"250ms"`, `"5s"`, `"15m"`, `"6h"`, `"2d"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span(pub Duration);

impl Span {
    fn parse(text: &str) -> Option<Self> {
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = text.split_at(digits);
        let number: u64 = number.parse().ok()?;
        let millis = match unit {
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            _ => return None,
        };
        Some(Self(Duration::from_millis(number.checked_mul(millis)?)))
    }
}

/// The default of a key: a duration.
pub(super) const fn millis<const N: u64>() -> Span {
    Span(Duration::from_millis(N))
}

/// The default of a key: a number.
pub(super) const fn number<const N: u64>() -> u64 {
    N
}

/// The default of a key: a number as a decimal string.
pub(super) fn digits<const N: u64>() -> String {
    N.to_string()
}

/// A duration between two others, both included.
pub(crate) fn within(name: &str, given: Option<Span>, least: &str, most: &str) -> anyhow::Result<()> {
    let is_within = |span: Span| {
        Span::parse(least).is_none_or(|least| span.0 >= least.0)
            && Span::parse(most).is_none_or(|most| span.0 <= most.0)
    };
    ensure!(given.is_none_or(is_within), "{name} is not between {least} and {most}");
    Ok(())
}

/// A URL with TLS, or of this machine.
pub(crate) fn protected(name: &str, url: &Url) -> anyhow::Result<()> {
    let is_here = match url.host() {
        Some(Host::Domain(host)) => host == "localhost",
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    };
    let is_protected = url.scheme() == "https" || is_here && url.scheme() == "http";
    ensure!(is_protected, "{name}: {url} is not https");
    Ok(())
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text)
            .ok_or_else(|| de::Error::custom("a duration is a whole number and its unit, as \"5s\""))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_a_whole_number_and_its_unit() {
        let millis = |text| Span::parse(text).map(|span| span.0.as_millis());
        assert_eq!(millis("250ms"), Some(250));
        assert_eq!(millis("5s"), Some(5_000));
        assert_eq!(millis("15m"), Some(900_000));
        assert_eq!(millis("6h"), Some(21_600_000));
        assert_eq!(millis("2d"), Some(172_800_000));
        for wrong in ["", "5", "s", "1.5s", "-1s", "5 s", "5w", "18446744073709551615d"] {
            assert_eq!(Span::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_secret_file_must_be_private_and_is_trimmed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("master");
        fs::write(&path, "abc\n").unwrap();
        let secret = Secret::File(path.clone());
        for (mode, is_private) in
            [(0o644, false), (0o660, false), (0o604, false), (0o440, true), (0o600, true)]
        {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(secret.read().is_ok_and(|text| text == "abc"), is_private, "{mode:o}");
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(secret.read().unwrap_err().to_string().contains("0600"));
        assert_eq!(format!("{secret:?}"), "<secret>");
    }
}

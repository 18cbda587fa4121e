//! The service's configuration: one TOML file.
//!
//! Unknown keys are refused. A secret is never in the file: `env:NAME` says which environment variable holds it.

use std::path::Path;

use anyhow::Context as _;
use serde::{Deserialize, Deserializer};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Config {
    pub database: DatabaseConfig,
    pub secrets: SecretsConfig,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DatabaseConfig {
    /// `postgres://…`
    pub url: Secret,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SecretsConfig {
    /// 64 hex digits. Everything derived and sealed hangs on it.
    pub master_key: Secret,
}

/// The name of an environment variable whose value is never shown.
#[derive(Clone)]
pub(crate) struct Secret {
    name: String,
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("<secret>")
    }
}

impl Secret {
    /// The value, read when it is needed.
    pub(crate) fn read(&self) -> anyhow::Result<String> {
        std::env::var(&self.name)
            .with_context(|| format!("the environment variable {} cannot be read", self.name))
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use serde::de::Error as _;
        let text = String::deserialize(deserializer)?;
        text.strip_prefix("env:")
            .filter(|name| !name.is_empty())
            .map(|name| Self { name: name.to_owned() })
            .ok_or_else(|| D::Error::custom("a secret is given as \"env:NAME\", never in the file"))
    }
}

impl Config {
    pub(crate) fn read(path: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
        Self::parse(&text).with_context(|| path.display().to_string())
    }

    /// The last place that checks what a key alone cannot.
    pub(crate) fn parse(text: &str) -> anyhow::Result<Self> {
        Ok(toml::from_str(text)?)
    }

    pub(crate) fn master_key(&self) -> anyhow::Result<[u8; 32]> {
        let bytes = hex::decode(self.secrets.master_key.read()?).context("secrets.master_key")?;
        bytes.try_into().map_err(|_| anyhow::anyhow!("secrets.master_key is not 64 hex digits"))
    }
}

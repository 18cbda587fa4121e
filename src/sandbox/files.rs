//! The files of a sandbox's directory beside the database and the chain.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use dvp_sandbox::embedded::random_hex;
use dvp_store::durable::{self, Readers};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

pub(super) use crate::sandbox_dir::DEPLOYMENT;
use crate::sandbox_dir::{self, READY, SECRETS};

/// Paths of a sandbox's directory.
pub(super) struct Files {
    dir: PathBuf,
}

impl Files {
    pub(super) fn open(dir: &Path) -> anyhow::Result<Self> {
        fs::create_dir_all(dir).with_context(|| format!("directory {}", dir.display()))?;
        let dir = dir.canonicalize()?;
        Ok(Self { dir })
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(super) fn ready(&self) -> PathBuf {
        self.dir.join(READY)
    }

    pub(super) fn remove_ready(&self) -> anyhow::Result<()> {
        match fs::remove_file(self.ready()) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    pub(super) fn write_ready(&self, document: &serde_json::Value) -> anyhow::Result<()> {
        self.write(READY, document)
    }

    /// Reads a JSON file. `None` when it is not there.
    pub(super) fn read<T: DeserializeOwned>(&self, name: &str) -> anyhow::Result<Option<T>> {
        sandbox_dir::read(&self.dir, name)
    }

    /// Writes a JSON file whole: readers see the old one or the new one. Only its owner can read it.
    pub(super) fn write<T: Serialize>(&self, name: &str, value: &T) -> anyhow::Result<()> {
        let bytes = serde_json::to_vec_pretty(value)?;
        Ok(durable::write(&self.dir.join(name), &bytes, Readers::Owner)?)
    }
}

/// A partner's credentials.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct PartnerSecrets {
    pub name: String,
    pub api_key: String,
    pub signing_secret: String,
}

/// Generated at the first start and kept: a restart changes no keys.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Secrets {
    master_key: String,
    pub partner: PartnerSecrets,
    pub other_partner: PartnerSecrets,
    pub fix_password: String,
    /// Sign-in tokens of the operators, by name.
    pub operators: BTreeMap<String, String>,
}

impl Secrets {
    pub(super) fn open(files: &Files) -> anyhow::Result<Self> {
        let kept: Option<Self> = files.read(SECRETS)?;
        if let Some(kept) = kept {
            return Ok(kept);
        }
        let drawn = Self {
            master_key: random_hex(32),
            partner: PartnerSecrets::draw("acme"),
            other_partner: PartnerSecrets::draw("globex"),
            fix_password: random_hex(12),
            operators: operators(),
        };
        files.write(SECRETS, &drawn)?;
        Ok(drawn)
    }

    pub(super) fn master_key(&self) -> anyhow::Result<[u8; 32]> {
        sandbox_dir::master_key(&self.master_key)
    }
}

/// The operators of a sandbox: the first one's token is the `consoleToken`.
pub(super) const OPERATORS: [&str; 3] = ["console", "jo", "kim"];

fn operators() -> BTreeMap<String, String> {
    OPERATORS.into_iter().map(|name| (name.to_owned(), random_hex(32))).collect()
}

impl PartnerSecrets {
    fn draw(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            api_key: format!("svc_test_{}", random_hex(24)),
            signing_secret: random_hex(32),
        }
    }
}

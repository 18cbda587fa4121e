//! Where the relayer's key is while settlement is measured.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use alloy::signers::local::PrivateKeySigner;
use anyhow::{Context as _, bail};
use dvp_chain_indexer::deploy::Deployment;
use dvp_testing::signer::{Policy, RemoteSigner};
use dvp_testing::softhsm::{self, CONFIGURATION, PIN, Token};

use crate::scenes::served::policy_for;

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum SignerKind {
    Local,
    Pkcs11,
    Remote,
}

pub(super) struct Signer {
    file: Option<PathBuf>,
    remote: Option<RemoteSigner>,
}

pub fn needs_token() -> bool {
    std::env::var_os(CONFIGURATION).is_none()
}

/// Runs this program again with a new token: its library reads the environment.
pub fn again_with_token() -> anyhow::Result<()> {
    let token = Token::new();
    let mut again = Command::new(std::env::current_exe()?);
    again.args(std::env::args_os().skip(1)).env(CONFIGURATION, token.configuration());
    let status = again.status()?;
    if status.success() { Ok(()) } else { bail!("with a token it ended with {status}") }
}

impl Signer {
    pub(super) async fn start(kind: SignerKind, dir: &Path) -> anyhow::Result<Self> {
        let file = dir.join("signers.toml");
        let (text, remote) = match kind {
            SignerKind::Local => return Ok(Self { file: None, remote: None }),
            SignerKind::Pkcs11 => (in_token(dir)?, None),
            SignerKind::Remote => {
                let key = PrivateKeySigner::random();
                let address = key.address();
                let signer = RemoteSigner::start(key, Policy::default()).await;
                (signer.section("remote_signers", address), Some(signer))
            }
        };
        fs::write(&file, text)?;
        Ok(Self { file: Some(file), remote })
    }

    pub(super) fn args(&self) -> Vec<String> {
        self.file.iter().flat_map(|file| ["--signers".to_owned(), file.display().to_string()]).collect()
    }

    /// The policy that the documentation gives, for the contracts of this record.
    pub(super) fn allow(&self, record: &Path) -> anyhow::Result<()> {
        let Some(remote) = &self.remote else { return Ok(()) };
        let record = fs::read(record).with_context(|| record.display().to_string())?;
        let deployment: Deployment = serde_json::from_slice(&record)?;
        remote.change_policy(|policy| *policy = policy_for(&deployment));
        Ok(())
    }
}

/// A key of its own, named by the directory's name: the token keeps those of earlier sandboxes.
fn in_token(dir: &Path) -> anyhow::Result<String> {
    let key = dir.file_name().context("a directory")?.to_string_lossy();
    let address = softhsm::generate_key(&key);
    let pin = dir.join("pin");
    fs::write(&pin, PIN)?;
    let owner = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    fs::set_permissions(&pin, owner)?;
    Ok(softhsm::section("pkcs11_signers", &key, address, &pin))
}

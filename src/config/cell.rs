//! The cell of this deployment, and the other cells that it exchanges transfers with.

use std::collections::BTreeMap;

use anyhow::{Context as _, ensure};
use dvp_core::transfers::keys::{CellKeys, PublicKey};
use dvp_domain::cell::CellId;
use dvp_domain::environment::Environment;
use serde::Deserialize;

use super::read_key;
use super::value::{Secret, Span, within};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CellSection {
    /// Three lowercase hex digits. Stamped into the database by `dvp migrate`.
    pub id: CellId,
    /// 64 hex digits, the same in all cells. Partners can move between cells that have it.
    pub shared_key: Option<Secret>,
    /// 64 hex digits: signs what other cells are told.
    pub signing_key: Option<Secret>,
    /// Public keys of this cell's earlier signing keys.
    #[serde(default)]
    pub earlier_keys: Vec<String>,
    /// A transfer without an end for so long is a break.
    pub transfer_within: Option<Span>,
    #[serde(default)]
    pub peers: Vec<PeerSection>,
}

/// Another cell.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PeerSection {
    pub id: CellId,
    /// 64 hex digits each; several while its key is changed.
    pub public_keys: Vec<String>,
}

impl CellSection {
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        within("cell.transfer_within", self.transfer_within, "1m", "90d")?;
        public_keys("cell.earlier_keys", &self.earlier_keys)?;
        ensure!(self.peers.is_empty() || self.signing_key.is_some(), "cell.peers needs cell.signing_key");
        for (n, peer) in self.peers.iter().enumerate() {
            let at = format!("cell.peers[{n}]");
            ensure!(peer.id != self.id, "{at}.id: {} is this cell", peer.id);
            let is_repeated = self.peers.iter().take(n).any(|other| other.id == peer.id);
            ensure!(!is_repeated, "{at}.id: {} is there twice", peer.id);
            ensure!(!peer.public_keys.is_empty(), "{at}.public_keys names none");
            public_keys(&format!("{at}.public_keys"), &peer.public_keys)?;
        }
        Ok(())
    }

    /// The keys for transfers.
    pub(crate) fn keys(&self, environment: Environment) -> anyhow::Result<CellKeys> {
        let seed = self.signing_key.as_ref().context("transfers between cells need cell.signing_key")?;
        let seed = read_key(seed, "cell.signing_key")?;
        let mut peers = BTreeMap::new();
        for peer in &self.peers {
            peers.insert(peer.id, public_keys("cell.peers.public_keys", &peer.public_keys)?);
        }
        let earlier = public_keys("cell.earlier_keys", &self.earlier_keys)?;
        Ok(CellKeys::new(self.id, environment, &seed, earlier, peers)?)
    }
}

fn public_keys(name: &str, texts: &[String]) -> anyhow::Result<Vec<PublicKey>> {
    texts.iter().map(|text| text.parse().with_context(|| format!("{name}: {text}"))).collect()
}

//! Poisoned orders: another partner's orders that are in form and signed by their wallets, with one value that makes the
//! chain, a bank, a desk, a receiver or the service's own rows fail after the acceptance.
//!
//! Each is refused by name at the interface, or ends by itself, or is listed with its alarm; [`verdict`] checks that.

mod cases;
mod fix;
pub(super) mod ground;
mod rest;
mod texts;
pub(super) mod verdict;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use self::cases::Addresses;
use self::ground::Ground;
use super::target::Peer;
use crate::dice::Dice;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Surface {
    Rest,
    Legacy,
    Fix(String),
}

#[derive(Debug, Clone)]
pub(super) struct Accepted {
    pub surface: Surface,
    /// The intent's id, or the ClOrdID.
    pub id: String,
    pub case: String,
}

#[derive(Debug, Default)]
pub(super) struct Sent {
    pub count: u64,
    pub accepted: Vec<Accepted>,
}

impl From<u64> for Sent {
    fn from(count: u64) -> Self {
        Self { count, accepted: Vec::new() }
    }
}

#[derive(Clone)]
pub(super) struct Poisoning {
    /// Pauses between two orders, so that all are sent within the time below.
    pub peer: Peer,
    pub ground: Ground,
    pub within: Duration,
    /// At most.
    pub orders: usize,
    /// The orders that were sent so far, at both interfaces.
    pub count: Arc<watch::Sender<u64>>,
}

impl Poisoning {
    async fn addresses(&self) -> anyhow::Result<Addresses> {
        let Self { ground, .. } = self;
        Ok(Addresses { recipients: ground.recipients()?, payees: ground.install().await? })
    }

    /// As many of the cases as may be sent, and the pause between two.
    fn fit<T>(&mut self, mut cases: Vec<T>) -> anyhow::Result<Vec<T>> {
        cases.truncate(self.orders);
        self.peer.pause = self.within / u32::try_from(cases.len().max(1))?;
        Ok(cases)
    }

    pub(super) async fn rest(mut self) -> anyhow::Result<Sent> {
        let (addresses, mut dice) = (self.addresses().await?, Dice::new(self.peer.seed));
        let cases = self.fit(cases::over_rest(&addresses, self.peer.target.has_bank, &mut dice))?;
        rest::run(self, cases).await
    }

    pub(super) async fn fix(mut self) -> anyhow::Result<Sent> {
        let (addresses, mut dice) = (self.addresses().await?, Dice::new(self.peer.seed.wrapping_add(1)));
        let cases = self.fit(fix::all(&addresses, self.peer.target.has_bank, &mut dice))?;
        fix::run(self, cases).await
    }
}

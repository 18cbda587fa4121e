//! A batch begins while the one before it is written, and waits for its turn to change what both change.
//!
//! ```text
//! a batch    read, decide, rows of orders | balances, FIX, ledger, feed, COMMIT
//! the next                                | read, decide, rows of orders … turn | balances, FIX, ledger, feed, COMMIT
//! ```
//!
//! The next batch decides by the balances that the first one leaves. When its turn has come, it locks and compares them,
//! and is written only if a decision under the locks would be the same. Otherwise it is rolled back and decided again.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::time::Duration;

use dvp_domain::hold::QuoteHolds;
use dvp_store::StoreError;
use dvp_store::ledger::balances::{self, Balance, BalanceKey};
use dvp_store::orders::permits::PermitHold;
use sqlx::PgConnection;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::rows::Rows;
use super::unit::{Unit, Work};

/// What a batch leaves that the decisions of the next one depend on.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    balances: BTreeMap<BalanceKey, Balance>,
    /// The wallets whose permits it holds or releases, by chain and owner.
    wallets: HashSet<(i64, String)>,
}

impl Ahead {
    /// `None`: the next batch has to read what this one leaves after its commit.
    pub(super) fn of(units: &[&Unit], rows: &Rows) -> Option<Self> {
        if !units.iter().all(|unit| is_plain(unit)) {
            return None;
        }
        let permits = [&rows.permits, &rows.permits_dropped, &rows.permits_locked, &rows.permits_settled];
        let published = rows.permits_published.iter().map(|one| (one.id.chain_id, one.id.owner.clone()));
        let wallets = permits.into_iter().flatten().map(PermitHold::wallet).chain(published);
        Some(Self { balances: rows.balances.clone(), wallets: wallets.collect() })
    }

    /// Whether units can be decided before the batch is committed.
    pub(super) fn admits<'u>(&self, mut units: impl Iterator<Item = &'u Unit>) -> bool {
        units.all(|unit| is_plain(unit) && !self.shares_wallet(unit))
    }

    fn shares_wallet(&self, unit: &Unit) -> bool {
        let Work::Submit(submission) = &unit.work else { return false };
        submission.wallet.as_ref().is_some_and(|wallet| self.wallets.contains(&wallet.key.wallet()))
    }

    /// The balances of `keys` once the batch is committed, as far as this process knows.
    async fn predict(
        &self,
        conn: &mut PgConnection,
        keys: &BTreeSet<BalanceKey>,
    ) -> Result<BTreeMap<BalanceKey, Balance>, StoreError> {
        let unknown = keys.iter().filter(|key| !self.balances.contains_key(key)).cloned().collect();
        let mut all = balances::read(conn, &unknown).await?;
        all.extend(keys.iter().filter_map(|key| Some((key.clone(), *self.balances.get(key)?))));
        Ok(all)
    }
}

/// Firm quotes hold available money, and fills of resting orders and executions of quotes end holds: they are decided
/// under the locks.
fn is_plain(unit: &Unit) -> bool {
    match &unit.work {
        Work::FirmQuote(_) | Work::Fill(_) => false,
        Work::Submit(submission) => submission.request.quote_id.is_none() && submission.turn.is_none(),
        Work::Quote(_)
        | Work::LegacyIntent(_)
        | Work::Step(_)
        | Work::Refuse(_)
        | Work::AnswerOnly
        | Work::SessionOnly => true,
    }
}

/// Tells a batch that began early when the batch before it is committed.
pub(super) struct Turn {
    ahead: Ahead,
    comes: oneshot::Receiver<()>,
    longest_wait: Duration,
}

impl Turn {
    /// Also returns the sender that lets the batch go on. If it is dropped unused, the batch is rolled back.
    pub(super) fn after(ahead: Ahead, longest_wait: Duration) -> (Self, oneshot::Sender<()>) {
        let (come, comes) = oneshot::channel();
        (Self { ahead, comes, longest_wait }, come)
    }

    /// Waits until the batch before is committed.
    async fn wait(&mut self) -> Result<(), StoreError> {
        match timeout(self.longest_wait, &mut self.comes).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(mispredicted()),
        }
    }
}

/// The balances that a batch's decisions are based on: locked, or predicted if it began early.
pub(super) struct Basis {
    keys: BTreeSet<BalanceKey>,
    balances: BTreeMap<BalanceKey, Balance>,
    turn: Option<Turn>,
}

impl Basis {
    /// Locks the balances. Those of a batch that began early are predicted, and locked when they are confirmed.
    pub(super) async fn of(
        conn: &mut PgConnection,
        keys: BTreeSet<BalanceKey>,
        turn: Option<Turn>,
    ) -> Result<Self, StoreError> {
        let balances = match &turn {
            Some(turn) => turn.ahead.predict(conn, &keys).await?,
            None => balances::lock(conn, &keys).await?,
        };
        Ok(Self { keys, balances, turn })
    }

    pub(super) const fn is_early(&self) -> bool {
        self.turn.is_some()
    }

    pub(super) const fn keys(&self) -> &BTreeSet<BalanceKey> {
        &self.keys
    }

    pub(super) const fn balances(&self) -> &BTreeMap<BalanceKey, Balance> {
        &self.balances
    }

    /// When the batch before is committed, locks the predicted balances; an error if they differ from the prediction.
    /// `holds`: those that the batch was decided under, if any; they are read again and must be the same.
    pub(super) async fn confirm(
        mut self,
        conn: &mut PgConnection,
        holds: Option<&QuoteHolds>,
        read_again: impl AsyncFnOnce(&mut PgConnection, &BTreeSet<BalanceKey>) -> Result<QuoteHolds, StoreError>,
    ) -> Result<(), StoreError> {
        let Some(turn) = &mut self.turn else { return Ok(()) };
        turn.wait().await?;
        // Without a wait: who has them changes them, and may wait for a row that this batch has written.
        if balances::lock_at_once(conn, &self.keys).await? != self.balances {
            return Err(mispredicted());
        }
        match holds {
            Some(holds) if read_again(conn, &self.keys).await? != *holds => Err(mispredicted()),
            Some(_) | None => Ok(()),
        }
    }
}

const fn mispredicted() -> StoreError {
    StoreError::Stale { what: "the batch before" }
}

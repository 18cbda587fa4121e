//! The balances of wallets and of the escrow at the block, against the ledger's.

use super::contracts::ContractsAt;
use super::{Comparison, ITEM_WITHIN, ReconcileError};
use alloy::primitives::Address;
use alloy::transports::TransportErrorKind;
use dvp_core::ledger::reconciliation::wallets::{TokenBalances, compare_wallets};
use dvp_store::workers::{self, ItemError, Step, guarded};
use std::collections::BTreeSet;

struct AtBlock<'a> {
    chain_id: i64,
    contracts: &'a ContractsAt<'a>,
}

impl TokenBalances for AtBlock<'_> {
    type Error = ReconcileError;

    fn chain_id(&self) -> i64 {
        self.chain_id
    }

    fn escrows(&self) -> BTreeSet<String> {
        self.contracts.deployment.sets().map(|set| format!("{:#x}", set.escrow)).collect()
    }

    async fn balance(&self, token: &str, address: &str) -> Result<i128, ReconcileError> {
        let address: Address = address.parse().map_err(TransportErrorKind::custom)?;
        let read = async {
            workers::at(Step::ChainCompare, token).await?;
            let held = self.contracts.balance(token, address).await?;
            Ok(i128::try_from(held).map_err(TransportErrorKind::custom)?)
        };
        let failed = |error: ItemError<ReconcileError>| TransportErrorKind::custom_str(&error.to_string());
        Ok(guarded(ITEM_WITHIN, read).await.map_err(failed)?)
    }
}

impl Comparison<'_> {
    /// Compares every known token in every known wallet.
    pub(super) async fn wallets(&mut self) -> Result<(), ReconcileError> {
        let Some(contracts) = &self.at else { return Ok(()) };
        let at = AtBlock { chain_id: self.scope.chain_id, contracts };
        let report = compare_wallets(self.conn, &at, &self.in_flight, self.moment.now).await?;
        if let Some((_, why)) = report.unread.first()
            && !contracts.answers().await
        {
            return Err(TransportErrorKind::custom_str(why).into());
        }
        self.unread.extend(report.unread);
        self.breaks.extend(report.breaks);
        self.balances = report.balances;
        Ok(())
    }
}

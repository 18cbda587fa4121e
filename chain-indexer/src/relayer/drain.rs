//! The transactions of accounts that were removed from the configuration: they are broadcast again without their key,
//! judged once they are in a block, and finally abandoned, so that other accounts carry out their commands.

use super::apart::Part;
use super::{RelayError, Relayer};
use crate::rpc;
use alloy::primitives::Address;
use alloy::providers::Provider;
use dvp_store::chain::{self as store, SlotRow, SlotState};

/// The time limit for a retired account's transactions to be mined, from their first signature.
const GIVE_UP_AFTER_MS: i64 = 600_000;

impl Relayer {
    /// Broadcasts and judges transactions without an owner. Every account does so; a node that has the transaction
    /// already ignores it.
    pub(super) async fn drain_retired(&self) -> Result<(), RelayError> {
        let left = store::list_retired(&mut *self.pool.acquire().await?, self.config.chain_id).await?;
        for (signer, slots) in left {
            if signer != self.account.address() {
                self.with_part(Part::Account(signer), self.drain(signer, &slots)).await?;
            }
        }
        Ok(())
    }

    async fn drain(&self, signer: Address, slots: &[SlotRow]) -> Result<(), RelayError> {
        let chain_id = self.config.chain_id;
        let left_out = store::judge_slots(&mut *self.pool.acquire().await?, chain_id, signer).await?;
        if left_out > 0 {
            tracing::warn!(%signer, left_out, "transactions of a retired account left commands out: other accounts take them over");
        }
        let waiting =
            slots.iter().filter(|slot| matches!(slot.state, SlotState::Signed | SlotState::Broadcast));
        let stuck = waiting.filter_map(|slot| slot.attempts.first());
        if stuck.map(|attempt| attempt.age_ms).max().unwrap_or(0) > GIVE_UP_AFTER_MS {
            let opened = store::abandon_slots(&mut *self.pool.acquire().await?, chain_id, signer).await?;
            tracing::warn!(%signer, opened, "transactions of a retired account are abandoned; other accounts take over their commands");
            return Ok(());
        }
        for slot in slots {
            self.with_part(Part::Slot(signer, slot.nonce, &slot.reference), self.send_on(signer, slot))
                .await?;
        }
        Ok(())
    }

    async fn send_on(&self, signer: Address, slot: &SlotRow) -> Result<(), RelayError> {
        if self.find_receipt(signer, slot).await? {
            return Ok(());
        }
        // What was withdrawn may still be included, and is not sent on.
        let Some(newest) = slot.attempts.last().filter(|_| !slot.stale) else { return Ok(()) };
        if newest.last_broadcast_age_ms.is_some_and(|age| !self.is_due_again(age)) {
            return Ok(());
        }
        let sent = self.provider().send_raw_transaction(&self.open(newest)?).await.map(drop);
        let chain_id = self.config.chain_id;
        let mut conn = self.pool.acquire().await?;
        Ok(match sent {
            Ok(()) => store::mark_broadcast(&mut conn, chain_id, signer, newest).await,
            Err(error) => store::note_send_error(&mut conn, chain_id, newest.hash, &rpc::told(&error)).await,
        }?)
    }
}

//! Nonces in use: sent, found in blocks, sent again, paid more for.

use super::{RelayError, Relayer};
use crate::rpc::{self, BlockHead};
use crate::signing::{self, Fees, Unsigned};
use alloy::consensus::TxEnvelope;
use alloy::eips::BlockId;
use alloy::eips::eip2718::Decodable2718;
use alloy::primitives::{Bytes, TxKind};
use alloy::providers::Provider;
use alloy::transports::RpcError;
use dvp_core::store::chain::{self as store, AttemptRow, NewAttempt, SlotRow};
use dvp_core::store::lease::Lease;
use tracing::Instrument;

/// The same bytes are sent again after so long without a block.
const RESEND_AFTER_MS: i64 = 2_000;
/// What we pay at most, in wei per gas.
const MAX_FEE: u128 = 500_000_000_000;

/// Nonces filled in one turn.
const GAP_MAX: usize = 16;
/// What a transaction without a call costs.
const FILLER_GAS: u64 = 21_000;

/// What a node's answer to `eth_sendRawTransaction` means to us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Refusal {
    /// It has the transaction.
    Known,
    /// The nonce is used: by this transaction or another, which the receipts will show.
    NonceUsed,
    /// It wants higher fees.
    Underpriced,
    /// The account cannot pay for gas.
    Penniless,
    Other,
}

fn refusal(message: &str) -> Refusal {
    let message = message.to_ascii_lowercase();
    let says = |words: &[&str]| words.iter().any(|word| message.contains(word));
    if says(&["already known", "already imported", "known transaction", "already exists"]) {
        Refusal::Known
    } else if says(&["nonce too low", "nonce is too low", "old nonce"]) {
        Refusal::NonceUsed
    } else if says(&["underpriced", "less than block base fee", "fee too low"]) {
        Refusal::Underpriced
    } else if says(&["insufficient funds"]) {
        Refusal::Penniless
    } else {
        Refusal::Other
    }
}

impl Relayer {
    /// Sends what was not sent, finds what is in a block, and sends again what is not.
    pub async fn send_open(&self, lease: &Lease, head: &BlockHead) -> Result<(), RelayError> {
        let (chain_id, signer) = (self.config.chain_id, self.signer.address());
        let mined = rpc::mined_nonce(&self.provider, signer, BlockId::hash(head.hash)).await?;
        let mut conn = self.pool.acquire().await?;
        let slots = store::list_unsettled_slots(&mut conn, chain_id, signer, mined).await?;
        let cursor = store::find_cursor(&mut conn, chain_id).await?;
        drop(conn);
        if slots.is_empty() {
            return Ok(());
        }
        let final_number = cursor.map_or(0, |cursor| cursor.final_number);
        for slot in &slots {
            let span = tracing::info_span!("relay", intent_id = slot.intent_id, reference = slot.reference);
            async {
                if slot.nonce < mined {
                    self.find_mined(slot, final_number).await
                } else {
                    self.send_again(lease, slot, head, slot.nonce == mined).await
                }
            }
            .instrument(span)
            .await?;
        }
        Ok(())
    }

    /// A nonce below all that wait, which no transaction of ours has, holds them up for ever: it was somebody's whose
    /// transaction a reorg took away. A transaction to ourselves, of nothing, uses it.
    pub(super) async fn fill_gap(&self, lease: &Lease, head: &BlockHead) -> Result<(), RelayError> {
        let (chain_id, signer) = (self.config.chain_id, self.signer.address());
        let mut conn = self.pool.acquire().await?;
        let Some(lowest) = store::lowest_waiting(&mut conn, chain_id, signer).await? else { return Ok(()) };
        drop(conn);
        let mined = rpc::mined_nonce(&self.provider, signer, BlockId::hash(head.hash)).await?;
        let fees = Fees::for_base_fee(head.base_fee);
        for nonce in (mined..lowest).take(GAP_MAX) {
            let to = TxKind::Call(signer);
            let unsigned = Unsigned { chain_id, nonce, to, input: Bytes::new(), gas_limit: FILLER_GAS, fees };
            let signed = signing::sign_by(&self.signer, unsigned).await?;
            let (max_fee, priority_fee) = (fees.max_fee, fees.priority_fee);
            let attempt =
                NewAttempt { nonce, attempt: 0, hash: signed.hash, raw: signed.raw, max_fee, priority_fee };
            let mut tx = self.pool.begin().await?;
            lease.guard(&mut tx).await?;
            if !store::insert_filler_slot(&mut tx, chain_id, signer, nonce).await? {
                continue;
            }
            store::insert_attempt(&mut tx, chain_id, signer, &attempt).await?;
            tx.commit().await?;
            tracing::warn!(nonce, tx = %signed.hash, "a nonce that nobody uses any more is filled");
        }
        Ok(())
    }

    /// The chain has used the slot's nonce: by which of our attempts?
    async fn find_mined(&self, slot: &SlotRow, final_number: u64) -> Result<(), RelayError> {
        let (chain_id, signer) = (self.config.chain_id, self.signer.address());
        for attempt in &slot.attempts {
            let Some(receipt) = self.provider.get_transaction_receipt(attempt.hash).await? else { continue };
            let (Some(number), Some(hash)) = (receipt.block_number, receipt.block_hash) else { continue };
            if slot.block_hash != Some(hash) {
                let (nonce, succeeded) = (slot.nonce, receipt.status());
                tracing::info!(nonce, succeeded, block = number, tx = %attempt.hash, "mined");
            }
            let mut conn = self.pool.acquire().await?;
            let (place, done) = ((number, hash), number <= final_number);
            store::mark_mined(&mut conn, chain_id, signer, slot.nonce, place, receipt.status(), done).await?;
            return Ok(());
        }
        // No receipt is no proof: the node may be late. Only a nonce used below the final block is.
        let at_final = rpc::mined_nonce(&self.provider, signer, BlockId::number(final_number)).await;
        match at_final {
            Ok(count) if slot.nonce < count && slot.state != "mined" => {
                tracing::error!(nonce = slot.nonce, "a transaction that is not ours has used our nonce");
                let mut conn = self.pool.acquire().await?;
                store::mark_foreign(&mut conn, chain_id, signer, slot.nonce).await?;
            }
            Ok(_) | Err(RpcError::ErrorResp(_)) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// The slot's nonce is not used on the chain. `first`: all lower ones are, so that only its fees can hold it up.
    async fn send_again(
        &self,
        lease: &Lease,
        slot: &SlotRow,
        head: &BlockHead,
        first: bool,
    ) -> Result<(), RelayError> {
        let Some(newest) = slot.attempts.last() else { return Ok(()) };
        if slot.state == "mined" {
            tracing::warn!(nonce = slot.nonce, tx = %newest.hash, "its block is gone: sending it again");
            let mut conn = self.pool.acquire().await?;
            store::mark_unmined(&mut conn, self.config.chain_id, self.signer.address(), slot.nonce).await?;
            return self.send(lease, newest, head).await;
        }
        let bump_after = i64::try_from(self.config.bump_after.as_millis()).unwrap_or(i64::MAX);
        let waited = newest.last_broadcast_age_ms;
        if first && waited.is_some() && newest.age_ms >= bump_after {
            return self.pay_more(lease, newest, head).await;
        }
        if waited.is_none_or(|age| age >= RESEND_AFTER_MS) {
            self.send(lease, newest, head).await
        } else {
            Ok(())
        }
    }

    /// Sends committed bytes.
    async fn send(&self, lease: &Lease, attempt: &AttemptRow, head: &BlockHead) -> Result<(), RelayError> {
        let chain_id = self.config.chain_id;
        let (nonce, tx) = (attempt.nonce, attempt.hash);
        let refused = match self.provider.send_raw_transaction(&attempt.raw).await {
            Ok(_pending) => None,
            Err(RpcError::ErrorResp(payload)) => Some(payload.message.to_string()),
            Err(error) => {
                let mut conn = self.pool.acquire().await?;
                store::note_send_error(&mut conn, chain_id, tx, &error.to_string()).await?;
                return Err(error.into());
            }
        };
        let Some(message) = refused else { return self.mark_sent(attempt).await };
        match refusal(&message) {
            Refusal::Known => return self.mark_sent(attempt).await,
            Refusal::NonceUsed => tracing::debug!(nonce, %tx, message, "the nonce is used"),
            Refusal::Underpriced => return self.pay_more(lease, attempt, head).await,
            Refusal::Penniless => {
                tracing::error!(nonce, %tx, message, "the relayer's account needs funds for gas")
            }
            Refusal::Other => tracing::warn!(nonce, %tx, message, "the node refused a transaction"),
        }
        let mut conn = self.pool.acquire().await?;
        Ok(store::note_send_error(&mut conn, chain_id, tx, &message).await?)
    }

    async fn mark_sent(&self, attempt: &AttemptRow) -> Result<(), RelayError> {
        let mut conn = self.pool.acquire().await?;
        let (chain_id, signer) = (self.config.chain_id, self.signer.address());
        store::mark_broadcast(&mut conn, chain_id, signer, attempt).await?;
        tracing::debug!(nonce = attempt.nonce, tx = %attempt.hash, "sent");
        Ok(())
    }

    /// The same call on the same nonce for higher fees; kept now, sent in the next turn.
    async fn pay_more(&self, lease: &Lease, old: &AttemptRow, head: &BlockHead) -> Result<(), RelayError> {
        let (chain_id, signer) = (self.config.chain_id, self.signer.address());
        let paid = Fees { max_fee: old.max_fee, priority_fee: old.priority_fee };
        let fees = paid.bumped(Fees::for_base_fee(head.base_fee));
        if fees.max_fee > MAX_FEE {
            let (nonce, wanted) = (old.nonce, fees.max_fee);
            tracing::error!(nonce, wanted, limit = MAX_FEE, "gas is dearer than we pay");
            let mut conn = self.pool.acquire().await?;
            return Ok(store::note_send_error(&mut conn, chain_id, old.hash, "fee limit reached").await?);
        }
        let signed = signing::sign_by(&self.signer, repriced(old, chain_id, fees)?).await?;
        let attempt = NewAttempt {
            nonce: old.nonce,
            attempt: old.attempt + 1,
            hash: signed.hash,
            raw: signed.raw,
            max_fee: fees.max_fee,
            priority_fee: fees.priority_fee,
        };
        let mut tx = self.pool.begin().await?;
        lease.guard(&mut tx).await?;
        store::insert_attempt(&mut tx, chain_id, signer, &attempt).await?;
        tx.commit().await?;
        tracing::warn!(nonce = old.nonce, max_fee = fees.max_fee, tx = %signed.hash, "fees raised");
        Ok(())
    }
}

fn repriced(old: &AttemptRow, chain_id: u64, fees: Fees) -> Result<Unsigned, RelayError> {
    let undecodable = |reason: String| RelayError::Undecodable { nonce: old.nonce, reason };
    let envelope =
        TxEnvelope::decode_2718(&mut old.raw.as_ref()).map_err(|error| undecodable(error.to_string()))?;
    let signed =
        envelope.as_eip1559().ok_or_else(|| undecodable("not an EIP-1559 transaction".to_owned()))?;
    let tx = signed.tx();
    Ok(Unsigned {
        chain_id,
        nonce: tx.nonce,
        to: tx.to,
        input: tx.input.clone(),
        gas_limit: tx.gas_limit,
        fees,
    })
}

#[cfg(test)]
mod tests {
    use super::{Refusal, refusal};

    #[test]
    fn nodes_say_the_same_thing_in_many_words() {
        assert_eq!(refusal("transaction already imported"), Refusal::Known);
        assert_eq!(refusal("already known"), Refusal::Known);
        assert_eq!(refusal("nonce too low: next nonce 5"), Refusal::NonceUsed);
        assert_eq!(refusal("replacement transaction underpriced"), Refusal::Underpriced);
        assert_eq!(refusal("max fee per gas less than block base fee"), Refusal::Underpriced);
        assert_eq!(refusal("Insufficient funds for gas * price + value"), Refusal::Penniless);
        assert_eq!(refusal("the moon is full"), Refusal::Other);
    }
}

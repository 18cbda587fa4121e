//! Nonces in use: transactions are broadcast, found in blocks, broadcast again, replaced with higher fees.

use super::action::{self, ContractCall};
use super::apart::Part;
use super::batch::{self, ShortOfGas};
use super::fees::Market;
use super::plan;
use super::work::Item;
use super::{RelayError, Relayer, Turn};
use crate::rpc::{self, BlockHead, SendRejection, refusal};
use crate::signing::{Fees, Signed, Unsigned};
use alloy::consensus::TxEnvelope;
use alloy::eips::BlockId;
use alloy::eips::eip2718::Decodable2718;
use alloy::primitives::{Address, Bytes, TxKind};
use alloy::providers::Provider;
use alloy::transports::{RpcError, TransportError};
use dvp_domain::chain::BlockNumber;
use dvp_store::chain::{self as store, NewSlot, SlotRow, SlotState, TxAttempt};
use dvp_store::workers::{self, Step};
use futures_util::future::{join_all, try_join_all};
use futures_util::stream::{FuturesUnordered, StreamExt as _, TryStreamExt as _};
use metrics::counter;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::timeout;
use tracing::Instrument;

/// How long the transactions of later nonces wait for one.
const PATIENCE: Duration = Duration::from_millis(500);
/// The number of nonces filled in one turn.
const GAP_MAX: usize = 16;

impl Relayer {
    /// Broadcasts new transactions, finds those in a block, and broadcasts the others again.
    pub(super) async fn send_open(&self, turn: Turn<'_>) -> Result<(), RelayError> {
        let (chain_id, signer) = (self.config.chain_id, self.account.address());
        let Some(mined) = self.mined_count(turn.head).await? else { return Ok(()) };
        let mut conn = self.pool.acquire().await?;
        let slots = store::list_unsettled_slots(&mut conn, chain_id, signer, mined).await?;
        drop(conn);
        let mut open = FuturesUnordered::new();
        for slot in &slots {
            let span = tracing::info_span!("relay", intent_id = slot.intent_id, reference = slot.reference);
            let work = async {
                workers::at(Step::TransactionSend, &slot.reference).await?;
                if slot.nonce < mined {
                    self.find_mined(slot).await
                } else {
                    self.send_again(slot, turn, slot.nonce == mined).await
                }
            };
            let slow = open.len();
            open.push(self.with_part(Part::Slot(signer, slot.nonce, &slot.reference), work.instrument(span)));
            // In the order of their nonces, but those that take long go on beside the others.
            let all_but_slow = async {
                while open.len() > slow
                    && let Some(done) = open.next().await
                {
                    done?;
                }
                Ok::<_, RelayError>(())
            };
            timeout(PATIENCE, all_but_slow).await.unwrap_or(Ok(()))?;
        }
        open.try_collect::<Vec<_>>().await.map(drop)
    }

    /// A nonce below all waiting ones that no stored transaction has blocks them for ever: a reorganization removed the
    /// foreign transaction that had used it. An empty transaction to the own account uses it.
    pub(super) async fn fill_gap(&self, turn: Turn<'_>) -> Result<(), RelayError> {
        let Turn { lease, head, market } = turn;
        let (chain_id, signer) = (self.config.chain_id, self.account.address());
        let lowest = store::lowest_waiting(&mut *self.pool.acquire().await?, chain_id, signer).await?;
        let Some(lowest) = lowest else { return Ok(()) };
        let Some(mined) = self.mined_count(head).await? else { return Ok(()) };
        if mined >= lowest {
            return Ok(());
        }
        let Some(gas) = self.filler_gas(head).await? else { return Ok(()) };
        let fees = market.first(&self.config.fees);
        for nonce in (mined..lowest).take(GAP_MAX) {
            let Ok(signed) = self.signed(filler(chain_id, signer, nonce, gas, fees)).await else {
                return Ok(());
            };
            let mut tx = self.pool.begin().await?;
            lease.guard(&mut tx).await?;
            let slot = NewSlot { nonce, kind: None, gas, commands: &[] };
            if !store::insert_slot(&mut tx, chain_id, signer, slot).await? {
                continue;
            }
            let attempt = self.kept(nonce, 0, &signed, fees, head)?;
            store::insert_attempt(&mut tx, chain_id, signer, &attempt).await?;
            tx.commit().await?;
            tracing::warn!(nonce, tx = %attempt.hash, "filling an unused nonce with an empty transaction");
        }
        Ok(())
    }

    /// The gas limit of an empty transaction; `None` when the node does not return an estimate. On some chains it is
    /// more than 21,000.
    async fn filler_gas(&self, head: &BlockHead) -> Result<Option<u64>, RelayError> {
        let (signer, ceiling) = (self.account.address(), plan::ceiling(head.gas_limit));
        match rpc::estimate(self.provider(), signer, signer, Bytes::new(), ceiling).await {
            Ok(Ok(needed)) => Ok(Some(self.with_margin(needed, ceiling))),
            Ok(Err(_)) | Err(RpcError::ErrorResp(_)) => {
                tracing::warn!(%signer, "gas estimate for an empty transaction failed, will retry");
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The chain has used the slot's nonce: finds which of the attempts did.
    async fn find_mined(&self, slot: &SlotRow) -> Result<(), RelayError> {
        let (chain_id, signer) = (self.config.chain_id, self.account.address());
        if self.find_receipt(signer, slot).await? {
            return Ok(());
        }
        // A missing receipt proves nothing: the node may lag. Only a nonce used below the final block is proof.
        let final_number = self.final_number().await?;
        let at_final = rpc::mined_nonce(self.provider(), signer, BlockId::number(final_number.0)).await;
        match at_final {
            Ok(count) if slot.nonce < count && slot.state != SlotState::Mined => {
                tracing::error!(nonce = slot.nonce, "nonce was used by a foreign transaction");
                let mut conn = self.pool.acquire().await?;
                store::mark_foreign(&mut conn, chain_id, signer, slot.nonce).await?;
            }
            Ok(_) | Err(RpcError::ErrorResp(_)) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    async fn final_number(&self) -> Result<BlockNumber, RelayError> {
        Ok(self.cursor().await?.map_or(BlockNumber::FIRST, |cursor| cursor.final_number))
    }

    /// Whether one of the slot's attempts is in a block, which is then recorded.
    pub(super) async fn find_receipt(&self, signer: Address, slot: &SlotRow) -> Result<bool, RelayError> {
        let receipts = slot.attempts.iter().map(|attempt| rpc::receipt(self.provider(), attempt.hash));
        let receipts = try_join_all(receipts).await?;
        for (attempt, receipt) in slot.attempts.iter().zip(receipts).rev() {
            let Some(receipt) = receipt else { continue };
            let (Some(number), Some(hash)) = (receipt.block_number(), receipt.block_hash) else { continue };
            let succeeded = receipt.succeeded();
            if slot.block_hash != Some(hash) {
                let (nonce, commands, gas) = (slot.nonce, slot.commands, receipt.gas_used.to::<u64>());
                let tx = attempt.hash;
                tracing::info!(nonce, commands, gas, succeeded, block = %number, %tx, "transaction mined");
            }
            let done = number <= self.final_number().await?;
            let mut conn = self.pool.acquire().await?;
            let place = (number, hash);
            store::mark_mined(&mut conn, self.config.chain_id, signer, slot.nonce, place, succeeded, done)
                .await?;
            return Ok(true);
        }
        Ok(false)
    }

    /// The slot's nonce is not used on the chain. `first`: all lower ones are, so that only its fees can delay it.
    async fn send_again(&self, slot: &SlotRow, turn: Turn<'_>, first: bool) -> Result<(), RelayError> {
        let Some(newest) = slot.attempts.last() else { return Ok(()) };
        if slot.state == SlotState::Mined {
            tracing::warn!(nonce = slot.nonce, tx = %newest.hash, "the transaction's block was reverted: broadcasting it again");
            let mut conn = self.pool.acquire().await?;
            store::mark_unmined(&mut conn, self.config.chain_id, self.account.address(), slot.nonce).await?;
        }
        let given_up = matches!(slot.state, SlotState::Foreign | SlotState::Abandoned);
        // Bytes that do not open cannot be sent again: the same call is signed anew.
        if slot.stale || given_up || self.open(newest).is_err() {
            return self.make_anew(slot, newest, turn).await;
        }
        if slot.state == SlotState::Mined {
            return self.send(newest, turn).await;
        }
        let waited = turn.head.number.blocks_above(newest.head_number);
        let offer = Fees { max_fee: newest.max_fee, priority_fee: newest.priority_fee };
        let sent = newest.last_broadcast_age_ms;
        if first && sent.is_some() && turn.market.is_due(offer, waited, &self.config.fees) {
            self.pay_more(newest, turn).await?;
        }
        if sent.is_none_or(|age| self.is_due_again(age)) { self.send(newest, turn).await } else { Ok(()) }
    }

    /// Whether a transaction that was last broadcast this many milliseconds ago is broadcast again.
    pub(super) fn is_due_again(&self, age_ms: i64) -> bool {
        u128::try_from(age_ms).is_ok_and(|age| age >= self.config.resend_after.as_millis())
    }

    pub(super) async fn send(&self, attempt: &TxAttempt, turn: Turn<'_>) -> Result<(), RelayError> {
        let chain_id = self.config.chain_id;
        let (nonce, tx) = (attempt.nonce, attempt.hash);
        let raw = self.open(attempt)?;
        let again =
            async { attempt.last_broadcast_age_ms.is_some() && self.send_elsewhere(nonce, &raw).await };
        let (sent, mut is_taken) = tokio::join!(self.provider().send_raw_transaction(&raw), again);
        let refused = match sent {
            Ok(_pending) => None,
            Err(RpcError::ErrorResp(payload)) => Some(payload.message.to_string()),
            Err(error) => {
                let mut conn = self.pool.acquire().await?;
                store::note_send_error(&mut conn, chain_id, tx, &rpc::told(&error)).await?;
                return Err(error.into());
            }
        };
        let Some(message) = refused else { return self.mark_sent(attempt).await };
        let rejection = refusal(&message);
        let is_nodes_own = matches!(rejection, SendRejection::TooMuch | SendRejection::Other);
        if is_nodes_own && attempt.last_broadcast_age_ms.is_none() {
            is_taken = self.send_elsewhere(nonce, &raw).await;
        }
        if is_nodes_own && is_taken {
            return self.mark_sent(attempt).await;
        }
        let waited = turn.head.number.blocks_above(attempt.head_number);
        match rejection {
            SendRejection::Known => return self.mark_sent(attempt).await,
            SendRejection::NonceUsed => tracing::debug!(nonce, %tx, message, "the nonce is used"),
            // Once for each block: the node may refuse a transaction because it has a replacement with higher fees.
            SendRejection::Underpriced if turn.head.number > attempt.head_number || attempt.attempt == 0 => {
                self.pay_more(attempt, turn).await?;
            }
            SendRejection::Underpriced => tracing::debug!(nonce, %tx, message, "the node wants more for it"),
            SendRejection::InsufficientFunds => {
                self.is_out_of_funds.store(true, Ordering::Relaxed);
                tracing::error!(nonce, %tx, message, "relayer account has insufficient funds for gas")
            }
            SendRejection::TooMuch => {
                if !self.halve(attempt, turn).await? {
                    tracing::error!(nonce, %tx, message, "nodes take no transaction of this cost or size");
                }
            }
            SendRejection::Early => tracing::debug!(nonce, %tx, message, "the node wants earlier ones first"),
            // It may be over in a moment: the node's pool is full.
            SendRejection::Other if waited >= self.config.fees.bump_blocks => {
                tracing::warn!(nonce, %tx, message, "nodes go on rejecting a transaction: it is made anew");
                if !self.halve(attempt, turn).await? {
                    self.pay_more(attempt, turn).await?;
                }
            }
            SendRejection::Other => tracing::warn!(nonce, %tx, message, "node rejected a transaction"),
        }
        let mut conn = self.pool.acquire().await?;
        Ok(store::note_send_error(&mut conn, chain_id, tx, &message).await?)
    }

    /// Broadcasts to the other endpoints as well, in case one does not propagate transactions, or refuses what others take.
    /// `true`: one of them has it.
    async fn send_elsewhere(&self, nonce: u64, raw: &[u8]) -> bool {
        let others = self.endpoints.iter().enumerate().filter(|(at, _)| *at != self.at);
        let sent = others.map(|(_, endpoint)| endpoint.provider.send_raw_transaction(raw));
        let is_there = |error: &TransportError| match error {
            RpcError::ErrorResp(payload) => refusal(&payload.message) == SendRejection::Known,
            _ => false,
        };
        join_all(sent).await.into_iter().fold(false, |has_it, sent| match sent {
            Ok(_pending) => true,
            Err(error) => {
                tracing::debug!(nonce, %error, "another endpoint did not take a transaction");
                has_it || is_there(&error)
            }
        })
    }

    /// Takes the later half of the commands out of a transaction that is in no block: the next turn makes it anew with the
    /// others, under the same nonce, so that one of the two counts at most. `false`: it cannot be smaller.
    async fn halve(&self, attempt: &TxAttempt, turn: Turn<'_>) -> Result<bool, RelayError> {
        let (chain_id, signer) = (self.config.chain_id, self.account.address());
        let mut tx = self.pool.begin().await?;
        turn.lease.guard(&mut tx).await?;
        let open_again = store::halve_slot(&mut tx, chain_id, signer, attempt.nonce).await?;
        tx.commit().await?;
        if open_again > 0 {
            tracing::warn!(nonce = attempt.nonce, open_again, "a transaction that nodes refuse is halved");
        }
        Ok(open_again > 0)
    }

    async fn mark_sent(&self, attempt: &TxAttempt) -> Result<(), RelayError> {
        let mut conn = self.pool.acquire().await?;
        let (chain_id, signer) = (self.config.chain_id, self.account.address());
        store::mark_broadcast(&mut conn, chain_id, signer, attempt).await?;
        tracing::debug!(nonce = attempt.nonce, tx = %attempt.hash, "sent");
        Ok(())
    }

    /// The same call and nonce with higher fees; stored now, broadcast in the next turn. At the cap the old one stays.
    async fn pay_more(&self, old: &TxAttempt, turn: Turn<'_>) -> Result<(), RelayError> {
        let Turn { lease, head, market } = turn;
        let (chain_id, signer) = (self.config.chain_id, self.account.address());
        let offer = Fees { max_fee: old.max_fee, priority_fee: old.priority_fee };
        let unsigned = repriced(old, &self.open(old)?, chain_id, offer)?;
        let policy = self.config.fees.within(unsigned.gas_limit, self.data_fee(&unsigned.input));
        let Some(fees) = market.raised(offer, &policy) else {
            // Half of it may pay twice as much for its gas.
            if policy.cap_wei == self.config.fees.cap_wei || !self.halve(old, turn).await? {
                self.tell_capped(old, market);
            }
            return Ok(());
        };
        // Without a signature the old one stays, and is broadcast again.
        let Ok(signed) = self.signed(Unsigned { fees, ..unsigned }).await else { return Ok(()) };
        let attempt = self.kept(old.nonce, old.attempt + 1, &signed, fees, head)?;
        let mut tx = self.pool.begin().await?;
        lease.guard(&mut tx).await?;
        store::insert_attempt(&mut tx, chain_id, signer, &attempt).await?;
        tx.commit().await?;
        tracing::warn!(nonce = old.nonce, max_fee = fees.max_fee, tx = %attempt.hash, "transaction replaced with higher fees");
        Ok(())
    }

    fn tell_capped(&self, old: &TxAttempt, market: Market) {
        let (nonce, limit) = (old.nonce, self.config.fees.cap_wei);
        let Market { base_fee, tip } = market;
        tracing::error!(
            nonce,
            base_fee,
            tip,
            limit,
            "gas price exceeds the configured limit: the transaction waits"
        );
        counter!("dvp_relayer_fee_capped_total", "chain" => self.config.name.clone()).increment(1);
    }

    /// Rebuilds the slot's transaction with only the commands that it still must carry out, or with none: a command
    /// that was abandoned, or is in another transaction meanwhile, must not be carried out by this one. Within the cap
    /// it offers more than the old one, which may have been broadcast.
    async fn make_anew(&self, slot: &SlotRow, old: &TxAttempt, turn: Turn<'_>) -> Result<(), RelayError> {
        let Turn { lease, head, market } = turn;
        let (chain_id, signer, nonce) = (self.config.chain_id, self.account.address(), slot.nonce);
        let offer = Fees { max_fee: old.max_fee, priority_fee: old.priority_fee };
        let gas_limit = slot.gas.min(plan::ceiling(head.gas_limit));
        let fees = if slot.state == SlotState::Signed {
            // No node has taken the old one: it need not be outbid.
            let first = market.first(&self.config.fees);
            Fees {
                max_fee: first.max_fee.max(offer.max_fee),
                priority_fee: first.priority_fee.max(offer.priority_fee),
            }
        } else {
            // At the cap the same fees must suffice: the node accepts the transaction unless it still has the old one.
            market.raised(offer, &self.config.fees).unwrap_or(offer)
        };
        let mut conn = self.pool.acquire().await?;
        let rows = store::list_live_commands(&mut conn, chain_id, signer, nonce).await?;
        drop(conn);
        let commands: Vec<i64> = rows.iter().map(|row| row.id).collect();
        let unsigned = match self.call_for(slot, rows) {
            Some(ContractCall { to, input }) => {
                Unsigned { chain_id, nonce, to: TxKind::Call(to), input, gas_limit, fees }
            }
            // The limit of a call suffices for an empty transaction.
            None => filler(chain_id, signer, nonce, gas_limit, fees),
        };
        // Until there is a signature nothing of the slot is broadcast.
        let Ok(signed) = self.signed(unsigned).await else { return Ok(()) };
        let attempt = self.kept(nonce, old.attempt + 1, &signed, fees, head)?;
        let mut tx = self.pool.begin().await?;
        lease.guard(&mut tx).await?;
        let now = store::list_live_commands(&mut tx, chain_id, signer, nonce).await?;
        if !now.iter().map(|row| row.id).eq(commands.iter().copied()) {
            tracing::info!(
                nonce,
                "the transaction's commands changed while it was signed, will sign it again"
            );
            return Ok(());
        }
        store::remake_slot(&mut tx, chain_id, signer, nonce, attempt.attempt, gas_limit).await?;
        store::insert_attempt(&mut tx, chain_id, signer, &attempt).await?;
        tx.commit().await?;
        tracing::warn!(nonce, commands = commands.len(), tx = %attempt.hash, "transaction rebuilt without commands it must not carry");
        self.send(&attempt, turn).await
    }

    pub(super) fn kept(
        &self,
        nonce: u64,
        attempt: u64,
        signed: &Signed,
        fees: Fees,
        head: &BlockHead,
    ) -> Result<TxAttempt, RelayError> {
        Ok(TxAttempt {
            nonce,
            attempt,
            hash: signed.hash,
            sealed: self.seal(signed)?,
            max_fee: fees.max_fee,
            priority_fee: fees.priority_fee,
            head_number: head.number,
            age_ms: 0,
            last_broadcast_age_ms: None,
        })
    }

    /// One call for the commands of a slot; `None` without commands.
    fn call_for(&self, slot: &SlotRow, rows: Vec<store::CommandRow>) -> Option<ContractCall> {
        let kind = slot.kind?;
        let items: Vec<Item> = rows.into_iter().filter_map(|row| Item::read(row, &self.vault).ok()).collect();
        let contracts = self.contracts_of(&items.first()?.row).ok()?;
        match items.as_slice() {
            [] => None,
            [one] => {
                let (command, lock) = one.terms();
                action::action(contracts, command, lock).ok()
            }
            several => {
                let terms: Vec<_> = several.iter().map(Item::terms).collect();
                batch::call(contracts, kind, &terms, ShortOfGas::Stops).ok()
            }
        }
    }
}

/// An empty transaction to the own account.
const fn filler(chain_id: u64, signer: Address, nonce: u64, gas_limit: u64, fees: Fees) -> Unsigned {
    Unsigned { chain_id, nonce, to: TxKind::Call(signer), input: Bytes::new(), gas_limit, fees }
}

fn repriced(old: &TxAttempt, raw: &[u8], chain_id: u64, fees: Fees) -> Result<Unsigned, RelayError> {
    let undecodable = |reason: String| RelayError::Undecodable { nonce: old.nonce, reason };
    let envelope = TxEnvelope::decode_2718(&mut &*raw).map_err(|error| undecodable(error.to_string()))?;
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

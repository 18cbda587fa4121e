//! Several transactions at once: an account sends them with consecutive nonces, and they are awaited together.

use super::DeployError;
use crate::rpc::{self, SendRejection, refusal};
use crate::signing::{self, Fees, Unsigned};
use alloy::eips::BlockId;
use alloy::network::TransactionBuilder as _;
use alloy::primitives::{Address, B256, Bytes, TxKind};
use alloy::providers::{DynProvider, Provider};
use alloy::rpc::types::TransactionRequest;
use alloy::signers::local::PrivateKeySigner;
use alloy::transports::RpcError;
use std::time::{Duration, Instant};

/// Enough for the largest contract, where a node cannot tell.
const CREATE_GAS: u64 = 6_000_000;
/// Enough for a grant, a mint or an approval.
const CALL_GAS: u64 = 200_000;
/// The blocks whose fees are looked at.
const HISTORY_BLOCKS: u64 = 20;
const MINED_WITHIN: Duration = Duration::from_secs(120);
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Sent transactions that need not be mined yet.
#[must_use = "a transaction counts when it is mined"]
#[derive(Debug)]
pub struct Sent {
    provider: DynProvider,
    transactions: Vec<(String, B256)>,
}

impl Sent {
    /// Together with others of the same chain.
    pub(super) fn and(mut self, other: Self) -> Self {
        self.transactions.extend(other.transactions);
        self
    }

    /// Waits for all of them; returns the block of the last one, zero when there are none.
    pub async fn mined(self) -> Result<u64, DeployError> {
        let mut last = None;
        let deadline = Instant::now() + MINED_WITHIN;
        for (what, hash) in self.transactions {
            let receipt = loop {
                if let Some(receipt) = rpc::receipt(&self.provider, hash).await? {
                    break receipt;
                }
                if Instant::now() >= deadline {
                    return Err(DeployError::NotMined { what, seconds: MINED_WITHIN.as_secs() });
                }
                tokio::time::sleep(LOOK_EVERY).await;
            };
            if !receipt.succeeded() {
                return Err(DeployError::Reverted { what, hash });
            }
            last = receipt.block_number();
        }
        Ok(last.map_or(0, |block| block.0))
    }
}

pub(super) struct DeployBatch<'a> {
    provider: &'a DynProvider,
    signer: &'a PrivateKeySigner,
    chain_id: u64,
    nonce: u64,
    fees: Fees,
    sent: Vec<(String, B256)>,
}

impl<'a> DeployBatch<'a> {
    pub(super) async fn start(
        provider: &'a DynProvider,
        signer: &'a PrivateKeySigner,
    ) -> Result<Self, DeployError> {
        let chain_id = provider.get_chain_id().await?;
        let nonce = rpc::mined_nonce(provider, signer.address(), BlockId::pending()).await?;
        let head = rpc::head(provider).await?;
        let history = rpc::fee_history(provider, HISTORY_BLOCKS).await.unwrap_or_default();
        let tip = history.tip.max(rpc::proposed_tip(provider).await.unwrap_or_default());
        let fees = Fees::of(history.base_fee.unwrap_or_else(|| head.base_fee.into()), tip);
        Ok(Self { provider, signer, chain_id, nonce, fees, sent: Vec::new() })
    }

    /// Sends a contract creation; the address is known before it is mined.
    pub(super) async fn create(&mut self, what: &str, code: Bytes) -> Result<Address, DeployError> {
        let address = self.signer.address().create(self.nonce);
        let request =
            TransactionRequest::default().with_from(self.signer.address()).with_deploy_code(code.clone());
        let needed = self.provider.estimate_gas(request).await;
        let gas = needed.map_or(CREATE_GAS, |needed| needed.saturating_add(needed / 5));
        self.send(what, TxKind::Create, code, gas).await?;
        Ok(address)
    }

    /// The address of a later creation, `after` creations from now.
    pub(super) fn upcoming(&self, after: u64) -> Address {
        self.signer.address().create(self.nonce + after)
    }

    pub(super) async fn call(&mut self, what: &str, to: Address, input: Vec<u8>) -> Result<(), DeployError> {
        self.send(what, TxKind::Call(to), input.into(), CALL_GAS).await
    }

    async fn send(
        &mut self,
        what: &str,
        to: TxKind,
        input: Bytes,
        gas_limit: u64,
    ) -> Result<(), DeployError> {
        let tx =
            Unsigned { chain_id: self.chain_id, nonce: self.nonce, to, input, gas_limit, fees: self.fees };
        let signed = signing::sign(self.signer, tx)?;
        let deadline = Instant::now() + MINED_WITHIN;
        // Some nodes take a few nonces at a time.
        while let Err(error) = self.provider.send_raw_transaction(&signed.raw).await {
            let is_early = matches!(&error, RpcError::ErrorResp(refused) if refusal(&refused.message) == SendRejection::Early);
            if !is_early || Instant::now() >= deadline {
                return Err(error.into());
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        self.nonce += 1;
        self.sent.push((what.to_owned(), signed.hash));
        Ok(())
    }

    pub(super) fn into_sent(self) -> Sent {
        Sent { provider: self.provider.clone(), transactions: self.sent }
    }

    /// Waits for all of them; returns the block of the last one, zero for an empty batch.
    pub(super) async fn finish(self) -> Result<u64, DeployError> {
        self.into_sent().mined().await
    }
}

//! Transactions to sign, and a chain on which an account relays.

use super::{Chain, Scene, set_balance};
use alloy::consensus::TxEnvelope;
use alloy::consensus::transaction::SignerRecoverable;
use alloy::eips::eip2718::Decodable2718;
use alloy::primitives::{Address, B256, TxKind};
use alloy::sol_types::SolCall;
use dvp_chain_indexer::contracts::anchor::ReceiptAnchor;
use dvp_chain_indexer::deploy::{self, DeployPlan, Deployment};
use dvp_chain_indexer::signing::{Fees, Unsigned};
use std::time::Duration;

/// For one signature, on a busy machine.
pub(crate) const LIMIT: Duration = Duration::from_secs(10);

/// Contracts that exist nowhere: what is signed for them is sent nowhere.
pub(crate) fn deployment() -> Deployment {
    let [permit, escrow, settler, anchor, payouts] = [1, 2, 3, 4, 5].map(Address::repeat_byte);
    Deployment { chain_id: 31337, permit, escrow, settler, anchor, payouts, ..Deployment::default() }
}

pub(crate) fn anchor_call(deployment: &Deployment, nonce: u64) -> Unsigned {
    let call = ReceiptAnchor::anchorCall { contentHash: B256::repeat_byte(7) };
    Unsigned {
        chain_id: deployment.chain_id,
        nonce,
        to: TxKind::Call(deployment.anchor),
        input: call.abi_encode().into(),
        gas_limit: 100_000,
        fees: Fees::of(1_000_000_000, 0),
    }
}

pub(crate) fn sender(raw: &[u8]) -> Address {
    TxEnvelope::decode_2718(&mut &*raw).unwrap().recover_signer().unwrap()
}

/// A chain on which the account is a relayer with funds for gas.
pub(crate) async fn chain_of(account: Address) -> Chain {
    let mut scene = Scene::new().await;
    set_balance(&scene.provider, account).await;
    let plan = DeployPlan { relayers: vec![account], ..DeployPlan::default() };
    let (rpc, record) = (scene.node.rpc_url(), scene.deployment.clone());
    scene.deployment = deploy::deploy(&rpc, &scene.admin, &plan, Some(record)).await.unwrap();
    Chain::of(scene).await
}

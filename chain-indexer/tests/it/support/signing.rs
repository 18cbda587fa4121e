//! Transactions to sign, and a chain on which an account relays.

#![expect(clippy::unwrap_used, reason = "a test that cannot set its scene fails there")]

use super::{Chain, Scene, raw, vault};
use alloy::consensus::TxEnvelope;
use alloy::consensus::transaction::SignerRecoverable;
use alloy::eips::eip2718::Decodable2718;
use alloy::primitives::{Address, B256, TxKind, U256};
use alloy::sol_types::SolCall;
use dvp_chain_indexer::contracts::anchor::ReceiptAnchor;
use dvp_chain_indexer::deploy::{self, DeployPlan, Deployment};
use dvp_chain_indexer::signing::{Account, Fees, Unsigned};
use dvp_chain_indexer::{run_indexer, run_relayers};
use dvp_domain::chain::{BlockNumber, ChainCommand};
use serde_json::json;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// For one signature, on a busy machine.
pub(crate) const LIMIT: Duration = Duration::from_secs(10);

/// Contracts that exist nowhere: what is signed for them is sent nowhere.
pub(crate) fn deployment() -> Deployment {
    Deployment {
        chain_id: 31337,
        permit: Address::repeat_byte(1),
        escrow: Address::repeat_byte(2),
        settler: Address::repeat_byte(3),
        anchor: Address::repeat_byte(4),
        payouts: Address::repeat_byte(5),
        coin: None,
        relayers: vec![],
        tokens: vec![],
        deployed_block: BlockNumber::FIRST,
    }
}

pub(crate) fn anchor_call(deployment: &Deployment, nonce: u64) -> Unsigned {
    let call = ReceiptAnchor::anchorCall { contentHash: B256::repeat_byte(7) };
    Unsigned {
        chain_id: deployment.chain_id,
        nonce,
        to: TxKind::Call(deployment.anchor),
        input: call.abi_encode().into(),
        gas_limit: 100_000,
        fees: Fees::for_base_fee(1_000_000_000),
    }
}

pub(crate) fn sender(raw: &[u8]) -> Address {
    TxEnvelope::decode_2718(&mut &*raw).unwrap().recover_signer().unwrap()
}

pub(crate) fn anchor(byte: u8) -> ChainCommand {
    ChainCommand::Anchor { content_hash: B256::repeat_byte(byte).to_string() }
}

/// A chain on which the account is a relayer with funds for gas.
pub(crate) async fn chain_of(account: Address) -> Chain {
    let mut scene = Scene::new().await;
    let funds = U256::from(10).pow(U256::from(18));
    let _: () = raw(&scene.provider, "anvil_setBalance", json!([account, funds])).await;
    let plan = DeployPlan { relayers: vec![account], ..DeployPlan::default() };
    let (rpc, record) = (scene.node.rpc_url(), scene.deployment.clone());
    scene.deployment = deploy::deploy(&rpc, &scene.admin, &plan, Some(record)).await.unwrap();
    Chain::new(scene).await
}

pub(crate) struct Tasks {
    shutdown: CancellationToken,
    tasks: [JoinHandle<()>; 2],
}

impl Tasks {
    pub(crate) fn start(chain: &Chain, accounts: Vec<Account>) -> Self {
        let shutdown = CancellationToken::new();
        let indexing = run_indexer(chain.pool(), chain.config.clone(), shutdown.clone());
        let relaying = run_relayers(chain.pool(), chain.config.clone(), accounts, vault(), shutdown.clone());
        let tasks = [
            tokio::spawn(async { indexing.await.unwrap() }),
            tokio::spawn(async { relaying.await.unwrap() }),
        ];
        Self { shutdown, tasks }
    }

    pub(crate) async fn stop(self) {
        self.shutdown.cancel();
        for task in self.tasks {
            task.await.unwrap();
        }
    }
}

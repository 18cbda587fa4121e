//! A node with the contracts on it, wallets, and permits signed as a partner would sign them.

#![expect(clippy::unwrap_used, reason = "a test that cannot set its scene fails there")]

use alloy::eips::BlockId;
use alloy::primitives::{Address, B256, Bytes, TxKind, U256};
use alloy::providers::{DynProvider, Provider};
use alloy::rpc::types::TransactionReceipt;
use alloy::signers::SignerSync;
use alloy::signers::local::PrivateKeySigner;
use alloy::sol_types::{SolCall, SolStruct, eip712_domain};
use dvp_chain_indexer::anvil::{Anvil, AnvilOptions};
use dvp_chain_indexer::contracts::{permit, settler, token};
use dvp_chain_indexer::deploy::{self, DeployPlan, Deployment, TokenGrant, TokenSpec};
use dvp_chain_indexer::rpc;
use dvp_chain_indexer::signing::{self, Fees, Unsigned};
use dvp_core::chain::{ChainCommand, CreateCommand, PermitArgs};
use serde_json::json;
use sha2::{Digest, Sha256};
use std::time::{Duration, Instant};

mod chain;

pub(crate) use chain::{Chain, Running};

alloy::sol! {
    /// What a wallet signs.
    struct PermitSingle {
        address token;
        uint256 amount;
        address spender;
        uint256 nonce;
        uint256 deadline;
    }
}

/// What the maker of a scene holds of the token at first.
pub(crate) const FUNDS: u64 = 1_000_000_000;
const GAS: u64 = 1_000_000;

pub(crate) fn key(byte: u8) -> PrivateKeySigner {
    PrivateKeySigner::from_bytes(&B256::repeat_byte(byte)).unwrap()
}

/// A fresh chain with everything deployed and a funded maker. Blocks are mined as transactions come, unless the
/// test says otherwise.
pub(crate) struct Scene {
    pub(crate) node: Anvil,
    pub(crate) provider: DynProvider,
    pub(crate) deployment: Deployment,
    pub(crate) admin: PrivateKeySigner,
    pub(crate) relayer: PrivateKeySigner,
    /// May call the settler too.
    pub(crate) other_relayer: PrivateKeySigner,
    pub(crate) maker: PrivateKeySigner,
    pub(crate) solver: PrivateKeySigner,
    pub(crate) token: Address,
}

impl Scene {
    pub(crate) async fn new() -> Self {
        Self::with_block_time(None).await
    }

    /// A chain of another number than the usual one.
    pub(crate) async fn on_chain(chain_id: u64) -> Self {
        Self::with(AnvilOptions::default(), Some(chain_id)).await
    }

    pub(crate) async fn with_block_time(block_time: Option<Duration>) -> Self {
        Self::with(AnvilOptions { block_time, ..AnvilOptions::default() }, None).await
    }

    async fn with(options: AnvilOptions, chain_id: Option<u64>) -> Self {
        let options = AnvilOptions { slots_in_an_epoch: 1, ..options };
        let node = Anvil::start(options).await.unwrap();
        let url = node.rpc_url();
        let provider = rpc::connect(&url).unwrap();
        if let Some(chain_id) = chain_id {
            let _: serde_json::Value = raw(&provider, "anvil_setChainId", json!([chain_id])).await;
        }
        let (admin, relayer, maker, solver) = (key(0xa1), key(0xa2), key(0xa3), key(0xa4));
        let other_relayer = key(0xa5);
        for signer in [&admin, &relayer, &other_relayer, &maker, &solver] {
            let balance = U256::from(10).pow(U256::from(20));
            let _: () = raw(&provider, "anvil_setBalance", json!([signer.address(), balance])).await;
        }
        let plan = DeployPlan {
            tokens: vec![TokenSpec { symbol: "USDC".into(), name: "USD Coin".into(), decimals: 6 }],
            solvers: vec![solver.address()],
            relayers: vec![relayer.address(), other_relayer.address()],
        };
        let deployment = deploy::deploy(&url, &admin, &plan, None).await.unwrap();
        let token = deployment.tokens[0].address;
        let grants = [TokenGrant { token, amount: U256::from(FUNDS) }];
        let wallets = [maker.clone()];
        deploy::fund_wallets(&url, &admin, &deployment, &wallets, &grants).await.unwrap();
        let approval = [TokenGrant { token, amount: U256::ZERO }];
        let solvers = [solver.clone()];
        deploy::fund_solvers(&url, &admin, &deployment, &solvers, &approval).await.unwrap();
        Self { node, provider, deployment, admin, relayer, other_relayer, maker, solver, token }
    }

    pub(crate) async fn now(&self) -> u64 {
        rpc::head(&self.provider).await.unwrap().timestamp
    }

    pub(crate) async fn view<C: SolCall>(&self, to: Address, call: C) -> C::Return {
        rpc::view(&self.provider, to, &call, BlockId::latest()).await.unwrap()
    }

    pub(crate) async fn balance(&self, account: Address) -> u64 {
        self.view(self.token, token::TestToken::balanceOfCall { account }).await.to()
    }

    pub(crate) async fn permit_nonce(&self) -> U256 {
        self.view(self.deployment.permit, permit::Permit::noncesCall { owner: self.maker.address() }).await
    }

    /// Sends and waits; the receipt says whether it reverted.
    pub(crate) async fn send(
        &self,
        from: &PrivateKeySigner,
        to: TxKind,
        input: impl Into<Bytes>,
    ) -> TransactionReceipt {
        let nonce = rpc::mined_nonce(&self.provider, from.address(), BlockId::latest()).await.unwrap();
        let chain_id = self.deployment.chain_id;
        let fees = Fees::for_base_fee(rpc::head(&self.provider).await.unwrap().base_fee);
        let tx = Unsigned { chain_id, nonce, to, input: input.into(), gas_limit: GAS, fees };
        let signed = signing::sign(from, tx).unwrap();
        let _pending = self.provider.send_raw_transaction(&signed.raw).await.unwrap();
        let provider = &self.provider;
        eventually("the transaction is mined", async || {
            provider.get_transaction_receipt(signed.hash).await.unwrap()
        })
        .await
    }

    /// Whether the call was mined and did what it says.
    pub(crate) async fn succeeds<C: SolCall>(&self, from: &PrivateKeySigner, to: Address, call: &C) -> bool {
        self.send(from, TxKind::Call(to), call.abi_encode()).await.status()
    }

    /// The revert data of a call at the latest block, `None` if it would succeed.
    pub(crate) async fn revert_of<C: SolCall>(&self, from: Address, to: Address, call: &C) -> Option<Bytes> {
        let input = call.abi_encode().into();
        match rpc::simulate(&self.provider, from, to, input, GAS, BlockId::latest()).await.unwrap() {
            rpc::Simulated::Succeeds => None,
            rpc::Simulated::Reverts { data, .. } => Some(data),
        }
    }

    pub(crate) async fn next_block_at(&self, timestamp: u64) {
        let _: serde_json::Value = raw(&self.provider, "evm_setNextBlockTimestamp", json!([timestamp])).await;
    }

    /// An order of the maker's that the contracts would take now.
    pub(crate) async fn order(&self, id: u8) -> Order {
        let now = self.now().await;
        Order {
            id: B256::repeat_byte(id),
            token: self.token,
            amount: U256::from(100),
            permitted: U256::from(100),
            nonce: self.permit_nonce().await,
            permit_deadline: now + 3600,
            fill_deadline: now + 600,
            timelock: now + 1200,
            preimage: B256::repeat_byte(id ^ 0xff),
        }
    }

    pub(crate) fn sign(&self, by: &PrivateKeySigner, order: &Order, spender: Address) -> Vec<u8> {
        let domain = eip712_domain! {
            name: "Permit",
            version: "1",
            chain_id: self.deployment.chain_id,
            verifying_contract: self.deployment.permit,
        };
        let message = PermitSingle {
            token: order.token,
            amount: order.permitted,
            spender,
            nonce: order.nonce,
            deadline: U256::from(order.permit_deadline),
        };
        by.sign_hash_sync(&message.eip712_signing_hash(&domain)).unwrap().as_bytes().to_vec()
    }

    /// The maker's own signature for the escrow.
    pub(crate) fn signed(&self, order: &Order) -> Vec<u8> {
        self.sign(&self.maker, order, self.deployment.escrow)
    }

    pub(crate) fn create_call(
        &self,
        order: &Order,
        signature: Vec<u8>,
    ) -> settler::IntentSettler::createCall {
        settler::IntentSettler::createCall {
            params: settler::IntentSettler::CreateParams {
                intentId: order.id,
                maker: self.maker.address(),
                solver: self.solver.address(),
                token: order.token,
                amountIn: order.amount,
                fillDeadline: order.fill_deadline,
                timelock: order.timelock,
                hashlock: order.hashlock(),
                terms: B256::repeat_byte(0x7e),
                permit: settler::Escrow::PermitInput {
                    amount: order.permitted,
                    nonce: order.nonce,
                    deadline: U256::from(order.permit_deadline),
                    signature: signature.into(),
                },
            },
        }
    }
}

impl Scene {
    /// The order as the engine hands it over. A permit signed for less than the amount is a forgery: it claims more.
    pub(crate) fn create_command(&self, order: &Order) -> ChainCommand {
        ChainCommand::Create(Box::new(CreateCommand {
            entity: order.id.to_string(),
            maker: self.maker.address().to_string(),
            solver: self.solver.address().to_string(),
            token: order.token.to_string(),
            amount: order.amount.to_string(),
            fill_deadline: order.fill_deadline,
            timelock: order.timelock,
            hashlock: order.hashlock().to_string(),
            terms: B256::repeat_byte(0x7e).to_string(),
            permit: PermitArgs {
                amount: order.amount.max(order.permitted).to_string(),
                nonce: order.nonce.to_string(),
                deadline: order.permit_deadline,
                signature: Bytes::from(self.signed(order)).to_string(),
            },
        }))
    }
}

/// The terms of one test order.
#[derive(Clone)]
pub(crate) struct Order {
    pub(crate) id: B256,
    pub(crate) token: Address,
    pub(crate) amount: U256,
    pub(crate) permitted: U256,
    pub(crate) nonce: U256,
    pub(crate) permit_deadline: u64,
    pub(crate) fill_deadline: u64,
    pub(crate) timelock: u64,
    pub(crate) preimage: B256,
}

impl Order {
    pub(crate) fn hashlock(&self) -> B256 {
        B256::from_slice(&Sha256::digest(self.preimage))
    }
}

pub(crate) async fn raw<R: serde::de::DeserializeOwned + std::fmt::Debug + Send + Sync + Unpin + 'static>(
    provider: &DynProvider,
    method: &'static str,
    params: serde_json::Value,
) -> R {
    provider.raw_request(method.into(), params).await.unwrap()
}

/// Asks again until there is an answer, and fails when there is none in time.
pub(crate) async fn eventually<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(Instant::now() < deadline, "not in 30 s: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

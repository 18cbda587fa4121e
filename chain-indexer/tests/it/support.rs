//! A node with the contracts, wallets, and permits signed as by a partner.

#![expect(clippy::unwrap_used, reason = "a test that cannot set its scene fails there")]

use alloy::eips::BlockId;
use alloy::primitives::aliases::U112;
use alloy::primitives::{Address, B256, Bytes, TxKind, U256};
use alloy::providers::{DynProvider, Provider};
use alloy::rpc::types::TransactionReceipt;
use alloy::signers::SignerSync;
use alloy::signers::local::PrivateKeySigner;
use alloy::sol_types::{SolCall, SolConstructor, SolInterface, SolStruct, eip712_domain};
use dvp_chain_indexer::contracts::coin::CoinGate;
use dvp_chain_indexer::contracts::escrow::{self, Escrow};
use dvp_chain_indexer::contracts::payouts::Payouts;
use dvp_chain_indexer::contracts::settler::{IntentSettler, Orders};
use dvp_chain_indexer::contracts::test_coin::TestCoin;
use dvp_chain_indexer::contracts::{permit, settler, token};
use dvp_chain_indexer::deploy::{
    self, CapSpec, CoinContracts, DeployPlan, Deployment, TokenGrant, TokenSpec, WrappedCoin,
};
use dvp_chain_indexer::rpc;
use dvp_chain_indexer::signing::{Fees, Unsigned, sign};
use dvp_core::context::now;
use dvp_domain::chain::{ChainCommand, ChainFact, CreateCommand, LockTerms, PermitArgs};
use dvp_sandbox::anvil::{Anvil, AnvilOptions};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::time::{Duration, Instant};

pub(crate) mod answers;
mod chain;
pub(crate) mod signing;

pub(crate) use chain::{Chain, Running, swap_command, vault};

alloy::sol! {
    /// The structure that a wallet signs.
    struct PermitSingle {
        address token;
        uint256 amount;
        address spender;
        uint256 nonce;
        uint256 deadline;
    }

    /// The structure that two operators sign.
    struct ReturnFunds {
        bytes32 intentId;
        uint256 deadline;
    }
}

/// The maker's initial balance of the token.
pub(crate) const FUNDS: u64 = 1_000_000_000;
/// Enough for a batch; unused gas is not paid.
const GAS: u64 = 25_000_000;
/// Keys of accounts with a role in the contracts.
pub(crate) const OPERATORS: [u8; 2] = [0xb1, 0xb2];
pub(crate) const PAUSER: u8 = 0xb3;

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

    /// A scene on a chain with another id.
    pub(crate) async fn on_chain(chain_id: u64) -> Self {
        Self::with(AnvilOptions::default(), Some(chain_id)).await
    }

    pub(crate) async fn with_block_time(block_time: Option<Duration>) -> Self {
        Self::with(AnvilOptions { block_time, ..AnvilOptions::default() }, None).await
    }

    /// A scene whose first block is a day old: its time can pass without coming into the future.
    pub(crate) async fn of_yesterday() -> Self {
        let yesterday = now().unix_secs() - 86_400;
        let args = vec!["--timestamp".to_owned(), yesterday.to_string()];
        Self::with(AnvilOptions { args, ..AnvilOptions::default() }, None).await
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
            coin: Some(WrappedCoin::Test),
            relayers: vec![relayer.address(), other_relayer.address()],
            operators: OPERATORS.map(|byte| key(byte).address()).into(),
            pausers: vec![key(PAUSER).address()],
            caps: vec![CapSpec { payer: solver.address(), token: "USDC".into(), per_day: U112::from(FUNDS) }],
            ..DeployPlan::default()
        };
        let deployment = deploy::deploy(&url, &admin, &plan, None).await.unwrap();
        let token = deployment.tokens[0].address;
        let grants = [TokenGrant { token, amount: U256::from(FUNDS) }];
        let wallets = [maker.clone()];
        let funded = deploy::fund_wallets(&url, &admin, &deployment, &wallets, &grants).await.unwrap();
        funded.mined().await.unwrap();
        let approval = [TokenGrant { token, amount: U256::ZERO }];
        let solvers = [solver.clone()];
        let funded = deploy::fund_solvers(&url, &admin, &deployment, &solvers, &approval).await.unwrap();
        funded.mined().await.unwrap();
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
        self.permit_nonce_of(self.maker.address()).await
    }

    pub(crate) async fn permit_nonce_of(&self, owner: Address) -> U256 {
        self.view(self.deployment.permit, permit::Permit::noncesCall { owner }).await
    }

    /// Sends and waits; the receipt says whether it reverted.
    pub(crate) async fn send(
        &self,
        from: &PrivateKeySigner,
        to: TxKind,
        input: impl Into<Bytes>,
    ) -> TransactionReceipt {
        self.send_limited(from, to, input.into(), GAS).await
    }

    pub(crate) async fn send_with_gas<C: SolCall>(
        &self,
        from: &PrivateKeySigner,
        to: Address,
        call: &C,
        gas: u64,
    ) -> TransactionReceipt {
        self.send_limited(from, TxKind::Call(to), call.abi_encode().into(), gas).await
    }

    async fn send_limited(
        &self,
        from: &PrivateKeySigner,
        to: TxKind,
        input: Bytes,
        gas_limit: u64,
    ) -> TransactionReceipt {
        let nonce = rpc::mined_nonce(&self.provider, from.address(), BlockId::latest()).await.unwrap();
        let chain_id = self.deployment.chain_id;
        let fees = Fees::for_base_fee(rpc::head(&self.provider).await.unwrap().base_fee);
        let tx = Unsigned { chain_id, nonce, to, input, gas_limit, fees };
        let signed = sign(from, tx).unwrap();
        let _pending = self.provider.send_raw_transaction(&signed.raw).await.unwrap();
        let provider = &self.provider;
        eventually("the transaction is mined", async || {
            provider.get_transaction_receipt(signed.hash).await.unwrap()
        })
        .await
    }

    /// Sends coin with a call; the node signs for the account.
    pub(crate) async fn send_coin(
        &self,
        from: Address,
        to: Address,
        input: Vec<u8>,
        wei: u64,
    ) -> TransactionReceipt {
        let _: Value = raw(&self.provider, "anvil_impersonateAccount", json!([from])).await;
        let tx = json!({
            "from": from, "to": to, "data": Bytes::from(input), "value": U256::from(wei), "gas": U256::from(GAS),
        });
        let hash: B256 = raw(&self.provider, "eth_sendTransaction", json!([tx])).await;
        let _: Value = raw(&self.provider, "anvil_stopImpersonatingAccount", json!([from])).await;
        let provider = &self.provider;
        eventually("the transaction is mined", async || provider.get_transaction_receipt(hash).await.unwrap())
            .await
    }

    /// Whether the account could deposit coin under an id.
    pub(crate) async fn deposits(&self, from: Address, id: B256, wei: u64) -> bool {
        let call = CoinGate::depositCall { id };
        self.send_coin(from, self.coin().gate, call.abi_encode(), wei).await.status()
    }

    pub(crate) fn coin(&self) -> CoinContracts {
        self.deployment.coin.unwrap()
    }

    pub(crate) async fn coin_of(&self, account: Address) -> U256 {
        self.provider.get_balance(account).await.unwrap()
    }

    /// Gives the solver wrapped coin with coin behind it, which the payouts contract may pay up to a cap.
    pub(crate) async fn fund_solver_in_coin(&self, wei: u64) {
        let CoinContracts { wrapped, .. } = self.coin();
        assert!(
            self.send_coin(self.solver.address(), wrapped, TestCoin::depositCall {}.abi_encode(), wei)
                .await
                .status()
        );
        let approve = token::TestToken::approveCall { spender: self.deployment.payouts, value: U256::MAX };
        assert!(self.succeeds(&self.solver, wrapped, &approve).await);
        self.set_cap(wrapped, wei).await;
    }

    /// Whether the call was mined and succeeded.
    pub(crate) async fn succeeds<C: SolCall>(&self, from: &PrivateKeySigner, to: Address, call: &C) -> bool {
        self.send(from, TxKind::Call(to), call.abi_encode()).await.status()
    }

    /// The revert data of a call at the latest block, `None` if it would succeed.
    pub(crate) async fn revert_of<C: SolCall>(&self, from: Address, to: Address, call: &C) -> Option<Bytes> {
        self.revert_with_gas(from, to, call, GAS).await
    }

    pub(crate) async fn revert_with_gas<C: SolCall>(
        &self,
        from: Address,
        to: Address,
        call: &C,
        gas: u64,
    ) -> Option<Bytes> {
        let input = call.abi_encode().into();
        match rpc::simulate(&self.provider, from, to, input, gas, BlockId::latest()).await {
            Ok(rpc::Simulated::Succeeds(_)) => None,
            Ok(rpc::Simulated::Reverts { data, .. }) => Some(data),
            // Anvil's message for a call that used all its gas.
            Err(error) if error.to_string().contains("out of gas") => Some(Bytes::new()),
            Err(error) => panic!("{error}"),
        }
    }

    pub(crate) async fn set_cap(&self, token: Address, per_day: u64) {
        let cap = Payouts::setCapCall { payer: self.solver.address(), token, perDay: U112::from(per_day) };
        assert!(self.succeeds(&self.admin, self.deployment.payouts, &cap).await);
    }

    pub(crate) async fn mine(&self) {
        let _: serde_json::Value = raw(&self.provider, "evm_mine", json!([])).await;
    }

    pub(crate) async fn next_block_at(&self, timestamp: u64) {
        let _: serde_json::Value = raw(&self.provider, "evm_setNextBlockTimestamp", json!([timestamp])).await;
    }

    /// An order of the maker that the contracts would accept now.
    pub(crate) async fn order(&self, id: u8) -> Order {
        let now = self.now().await;
        Order {
            id: B256::repeat_byte(id),
            maker: self.maker.clone(),
            token: self.token,
            amount: U256::from(100),
            permitted: U256::from(100),
            nonce: self.permit_nonce().await,
            permit_deadline: now + 3600,
            lock_by: now + 300,
            fill_deadline: now + 600,
            timelock: now + 1200,
            preimage: B256::repeat_byte(id ^ 0xff),
        }
    }

    /// This amount of the scene's token for a receiver.
    pub(crate) fn output(&self, receiver: Address, amount: u64) -> Orders::Output {
        Orders::Output { token: self.token, receiver, amount: U256::from(amount), agreed: TERMS }
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
        self.sign(&order.maker, order, self.deployment.escrow)
    }

    pub(crate) fn create_call(&self, order: &Order, signature: Vec<u8>) -> IntentSettler::createCall {
        IntentSettler::createCall { params: self.create_params(order, signature) }
    }

    pub(crate) fn create_params(&self, order: &Order, signature: Vec<u8>) -> IntentSettler::CreateParams {
        IntentSettler::CreateParams {
            intentId: order.id,
            order: self.terms(order),
            lockBy: order.lock_by,
            permit: permit_input(order, signature),
        }
    }

    /// The output of swapping the maker's input: the same amount of the same token, to the receiver.
    pub(crate) fn swap_params(&self, order: &Order, output: Orders::Output) -> IntentSettler::SwapParams {
        IntentSettler::SwapParams {
            intentId: order.id,
            maker: order.maker.address(),
            solver: self.solver.address(),
            token: order.token,
            amount: order.amount,
            lockBy: order.lock_by,
            output,
            permit: permit_input(order, self.signed(order)),
        }
    }

    /// The terms of every call about the order.
    pub(crate) fn terms(&self, order: &Order) -> Orders::Order {
        Orders::Order {
            maker: order.maker.address(),
            solver: self.solver.address(),
            token: order.token,
            amount: order.amount,
            fillDeadline: order.fill_deadline,
            timelock: order.timelock,
            hashlock: order.hashlock(),
            terms: TERMS,
        }
    }

    /// The same for the escrow's own calls.
    pub(crate) fn escrow_terms(&self, order: &Order) -> escrow::Orders::Order {
        let Orders::Order { maker, solver, token, amount, fillDeadline, timelock, hashlock, terms } =
            self.terms(order);
        escrow::Orders::Order { maker, solver, token, amount, fillDeadline, timelock, hashlock, terms }
    }

    pub(crate) fn fill_call(&self, order: &Order) -> IntentSettler::fillCall {
        IntentSettler::fillCall { intentId: order.id, order: self.terms(order), payoutRef: order.id }
    }

    pub(crate) fn settle_call(&self, order: &Order) -> IntentSettler::settleCall {
        IntentSettler::settleCall { intentId: order.id, order: self.terms(order), preimage: order.preimage }
    }

    pub(crate) fn cancel_call(&self, order: &Order) -> IntentSettler::cancelCall {
        IntentSettler::cancelCall { intentId: order.id, order: self.terms(order) }
    }

    pub(crate) fn release_call(&self, order: &Order) -> Escrow::releaseCall {
        Escrow::releaseCall { id: order.id, order: self.escrow_terms(order), preimage: order.preimage }
    }

    pub(crate) fn refund_call(&self, order: &Order) -> Escrow::refundCall {
        Escrow::refundCall { id: order.id, order: self.escrow_terms(order) }
    }

    /// A payment to the maker by the solver.
    pub(crate) fn payment(&self, id: u8, amount: u64) -> Payouts::Payment {
        Payouts::Payment {
            id: B256::repeat_byte(id),
            payer: self.solver.address(),
            receiver: self.maker.address(),
            token: self.token,
            amount: U256::from(amount),
            notAfter: u64::MAX,
        }
    }

    /// Signed by these two, in the order of their addresses.
    pub(crate) fn return_call(
        &self,
        order: &Order,
        by: [u8; 2],
        deadline: u64,
    ) -> IntentSettler::returnFilledCall {
        let domain = eip712_domain! {
            name: "IntentSettler",
            version: "1",
            chain_id: self.deployment.chain_id,
            verifying_contract: self.deployment.settler,
        };
        let message = ReturnFunds { intentId: order.id, deadline: U256::from(deadline) };
        let hash = message.eip712_signing_hash(&domain);
        let mut signers = by.map(key);
        signers.sort_by_key(PrivateKeySigner::address);
        let [first, second] = signers.map(|signer| signer.sign_hash_sync(&hash).unwrap().as_bytes().to_vec());
        IntentSettler::returnFilledCall {
            intentId: order.id,
            order: self.terms(order),
            deadline: U256::from(deadline),
            first: first.into(),
            second: second.into(),
        }
    }

    pub(crate) async fn mint(&self, token: Address, to: Address, amount: u64) {
        let mint = token::TestToken::mintCall { to, amount: U256::from(amount) };
        assert!(self.succeeds(&self.admin, token, &mint).await);
    }

    /// Gives the solver tokens to pay with.
    pub(crate) async fn fund_solver(&self, amount: u64) {
        self.mint(self.token, self.solver.address(), amount).await;
    }

    /// Another token, which the solver holds and may pay with.
    pub(crate) async fn second_token(&self, amount: u64) -> Address {
        let args = token::TestToken::constructorCall {
            name_: "Wrapped Ether".into(),
            symbol_: "WETH".into(),
            decimals_: 18,
        };
        let code = [token::TestToken::BYTECODE.as_ref(), &args.abi_encode()].concat();
        let at = self.send(&self.admin, TxKind::Create, code).await.contract_address.unwrap();
        self.mint(at, self.solver.address(), amount).await;
        let approve = token::TestToken::approveCall { spender: self.deployment.payouts, value: U256::MAX };
        assert!(self.succeeds(&self.solver, at, &approve).await);
        self.set_cap(at, amount).await;
        at
    }

    /// A wallet with funds, which has approved the permit contract.
    pub(crate) async fn wallet(&self, seed: B256, amount: u64) -> PrivateKeySigner {
        let wallet = PrivateKeySigner::from_bytes(&seed).unwrap();
        let balance = U256::from(10).pow(U256::from(20));
        let _: () = raw(&self.provider, "anvil_setBalance", json!([wallet.address(), balance])).await;
        self.mint(self.token, wallet.address(), amount).await;
        let approve = token::TestToken::approveCall { spender: self.deployment.permit, value: U256::MAX };
        assert!(self.succeeds(&wallet, self.token, &approve).await);
        wallet
    }
}

/// The digest of the agreed terms of every test order.
pub(crate) const TERMS: B256 = B256::repeat_byte(0x7e);

fn permit_input(order: &Order, signature: Vec<u8>) -> settler::Escrow::PermitInput {
    settler::Escrow::PermitInput {
        amount: order.permitted,
        nonce: order.nonce,
        deadline: U256::from(order.permit_deadline),
        signature: signature.into(),
    }
}

impl Scene {
    /// The order as the engine inserts it. A permit signed for less than the amount is a forgery: it claims more.
    pub(crate) fn create_command(&self, order: &Order) -> ChainCommand {
        ChainCommand::Create(Box::new(CreateCommand {
            entity: order.id.to_string(),
            maker: order.maker.address().to_string(),
            solver: self.solver.address().to_string(),
            token: order.token.to_string(),
            amount: order.amount.to_string(),
            lock_by: order.lock_by,
            fill_deadline: order.fill_deadline,
            timelock: order.timelock,
            hashlock: order.hashlock().to_string(),
            terms: TERMS.to_string(),
            permit: Some(PermitArgs {
                amount: order.amount.max(order.permitted).to_string(),
                nonce: order.nonce.to_string(),
                deadline: order.permit_deadline,
                signature: Bytes::from(self.signed(order)).to_string(),
            }),
        }))
    }
}

impl Scene {
    /// The fact of the order's lock.
    pub(crate) fn created(&self, order: &Order) -> ChainFact {
        let Orders::Order { maker, solver, token, amount, fillDeadline, timelock, hashlock, terms } =
            self.terms(order);
        let lock = LockTerms {
            maker: maker.to_string(),
            solver: solver.to_string(),
            token: token.to_string(),
            fill_deadline: fillDeadline,
            hashlock: hashlock.to_string(),
            terms: terms.to_string(),
        };
        ChainFact::Created { timelock, amount: amount.to_string(), lock: Box::new(lock) }
    }
}

/// The terms of one test order.
#[derive(Clone)]
pub(crate) struct Order {
    pub(crate) id: B256,
    pub(crate) maker: PrivateKeySigner,
    pub(crate) token: Address,
    pub(crate) amount: U256,
    pub(crate) permitted: U256,
    pub(crate) nonce: U256,
    pub(crate) permit_deadline: u64,
    pub(crate) lock_by: u64,
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

/// Repeats until there is an answer, and fails when there is none in time.
pub(crate) async fn eventually<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(120);
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(Instant::now() < deadline, "not in 30 s: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The name of a revert; `ok` without one.
pub(crate) fn name(revert: Option<Bytes>) -> String {
    let Some(data) = revert else { return "ok".to_owned() };
    let debug = IntentSettler::IntentSettlerErrors::abi_decode(&data)
        .map(|error| format!("{error:?}"))
        .or_else(|_| Escrow::EscrowErrors::abi_decode(&data).map(|error| format!("{error:?}")))
        .or_else(|_| Payouts::PayoutsErrors::abi_decode(&data).map(|error| format!("{error:?}")))
        .or_else(|_| CoinGate::CoinGateErrors::abi_decode(&data).map(|error| format!("{error:?}")))
        .or_else(|_| permit::Permit::PermitErrors::abi_decode(&data).map(|error| format!("{error:?}")));
    debug.map_or_else(
        |_| format!("revert {data}"),
        |text| text.split('(').next().unwrap_or_default().trim().to_owned(),
    )
}

/// A moment after which all times of a test are the same in every run.
pub(crate) const EPOCH: u64 = 4_000_000_000;

pub(crate) async fn at_epoch() -> Scene {
    let scene = Scene::new().await;
    scene.next_block_at(EPOCH).await;
    scene.mine().await;
    scene
}

/// Compares with a committed file, or writes it when `UPDATE_EXPECT` is set.
pub(crate) fn expect(path: &str, actual: &str) {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(&path, actual).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(committed, actual, "{} differs; UPDATE_EXPECT=1 rewrites it", path.display());
}

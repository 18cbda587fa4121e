//! A node with the contracts, wallets, and permits signed as by a partner.

use alloy::eips::BlockId;
use alloy::primitives::aliases::U112;
use alloy::primitives::{Address, B256, Bytes, TxKind, U256};
use alloy::providers::{DynProvider, Provider};
use alloy::rpc::types::TransactionReceipt;
use alloy::signers::local::PrivateKeySigner;
use alloy::sol_types::{SolCall, SolInterface};
use dvp_chain_indexer::contracts::{
    anchor::ReceiptAnchor, coin::CoinGate, escrow::Escrow, payouts::Payouts, settler::IntentSettler,
    test_coin::TestCoin,
};
use dvp_chain_indexer::contracts::{permit, token};
use dvp_chain_indexer::deploy::{
    self, CapSpec, CoinContracts, DeployPlan, Deployment, TokenGrant, TokenSpec, WrappedCoin,
};
use dvp_chain_indexer::rpc;
use dvp_chain_indexer::signing::{Fees, Unsigned, sign};
use dvp_core::context::now;
use dvp_sandbox::anvil::{Anvil, AnvilOptions};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

pub(crate) mod answers;
mod chain;
pub(crate) mod node;
pub(crate) mod odd;
mod orders;
pub(crate) mod signing;

pub(crate) use chain::{Chain, Running, anchor, swap_command, vault};
pub(crate) use orders::Order;

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
        Self::with(AnvilOptions::default(), None).await
    }

    pub(crate) async fn on_chain(chain_id: u64) -> Self {
        Self::with(AnvilOptions::default(), Some(chain_id)).await
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
            let _: Value = raw(&provider, "anvil_setChainId", json!([chain_id])).await;
        }
        let (admin, relayer, maker, solver) = (key(0xa1), key(0xa2), key(0xa3), key(0xa4));
        let other_relayer = key(0xa5);
        for signer in [&admin, &relayer, &other_relayer, &maker, &solver] {
            set_balance(&provider, signer.address()).await;
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
        rpc::view_now(&self.provider, to, &call).await.unwrap()
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
        let fees = Fees::of(rpc::head(&self.provider).await.unwrap().base_fee.into(), 0);
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
        let deposit = TestCoin::depositCall {}.abi_encode();
        assert!(self.send_coin(self.solver.address(), wrapped, deposit, wei).await.status());
        self.allow_payouts(wrapped, wei).await;
    }

    /// The payouts contract may pay the solver's tokens, so many a day.
    pub(crate) async fn allow_payouts(&self, token: Address, per_day: u64) {
        let approve = token::TestToken::approveCall { spender: self.deployment.payouts, value: U256::MAX };
        assert!(self.succeeds(&self.solver, token, &approve).await);
        self.set_cap(token, per_day).await;
    }

    /// From now on the account may call this contract as a relayer.
    pub(crate) async fn make_relayer(&self, at: Address, account: Address) {
        let role = self.view(at, IntentSettler::RELAYER_ROLECall {}).await;
        let grant = IntentSettler::grantRoleCall { role, account };
        assert!(self.succeeds(&self.admin, at, &grant).await);
    }

    pub(crate) async fn lock(&self, order: &Order) {
        let create = self.create_call(order, self.signed(order));
        assert!(self.succeeds(&self.relayer, self.deployment.settler, &create).await);
    }

    pub(crate) async fn fill(&self, order: &Order) {
        assert!(self.succeeds(&self.relayer, self.deployment.settler, &self.fill_call(order)).await);
    }

    pub(crate) async fn settle(&self, order: &Order) {
        assert!(self.succeeds(&self.relayer, self.deployment.settler, &self.settle_call(order)).await);
    }

    pub(crate) async fn cancel(&self, order: &Order) {
        assert!(self.succeeds(&self.relayer, self.deployment.settler, &self.cancel_call(order)).await);
    }

    pub(crate) async fn anchor(&self, by: &PrivateKeySigner, byte: u8) {
        let call = ReceiptAnchor::anchorCall { contentHash: B256::repeat_byte(byte) };
        assert!(self.succeeds(by, self.deployment.anchor, &call).await);
    }

    /// `IntentSettler.State` of an order.
    pub(crate) async fn state(&self, id: B256) -> u8 {
        self.view(self.deployment.settler, IntentSettler::stateOfCall { intentId: id }).await
    }

    pub(crate) async fn succeeds<C: SolCall>(&self, from: &PrivateKeySigner, to: Address, call: &C) -> bool {
        self.send(from, TxKind::Call(to), call.abi_encode()).await.status()
    }

    /// The revert data of a call at the latest block, `None` if it would succeed.
    pub(crate) async fn revert_of<C: SolCall>(&self, from: Address, to: Address, call: &C) -> Option<Bytes> {
        self.revert_with_gas(from, to, call, GAS).await
    }

    /// The name of the revert of a call at the latest block; `ok` without one.
    pub(crate) async fn outcome_of<C: SolCall>(&self, from: Address, to: Address, call: &C) -> String {
        name(self.revert_of(from, to, call).await)
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
        let _: Value = raw(&self.provider, "evm_mine", json!([])).await;
    }

    /// Lets so many seconds pass until the next block, which is made now.
    pub(crate) async fn pass(&self, seconds: u64) {
        let _: Value = raw(&self.provider, "evm_increaseTime", json!([seconds])).await;
        self.mine().await;
    }

    /// From here on the node's time goes on by one second with each block.
    pub(crate) async fn second_a_block(&self) {
        let _: Value = raw(&self.provider, "anvil_setBlockTimestampInterval", json!([1])).await;
    }

    pub(crate) async fn next_block_at(&self, timestamp: u64) {
        let _: Value = raw(&self.provider, "evm_setNextBlockTimestamp", json!([timestamp])).await;
    }

    pub(crate) async fn mine_at(&self, timestamp: u64) {
        self.next_block_at(timestamp).await;
        self.mine().await;
    }

    /// Runs something and takes back what it did to the chain.
    pub(crate) async fn undone<T>(&self, run: impl AsyncFnOnce() -> T) -> T {
        let snapshot: String = raw(&self.provider, "evm_snapshot", json!([])).await;
        let result = run().await;
        assert!(raw::<bool>(&self.provider, "evm_revert", json!([snapshot])).await);
        result
    }

    pub(crate) async fn mint(&self, token: Address, to: Address, amount: u64) {
        let mint = token::TestToken::mintCall { to, amount: U256::from(amount) };
        assert!(self.succeeds(&self.admin, token, &mint).await);
    }

    pub(crate) async fn fund_solver(&self, amount: u64) {
        self.mint(self.token, self.solver.address(), amount).await;
    }

    pub(crate) async fn deploy_weth(&self) -> Address {
        let weth = TokenSpec { symbol: "WETH".into(), name: "Wrapped Ether".into(), decimals: 18 };
        let plan = DeployPlan { tokens: vec![weth], ..DeployPlan::default() };
        let (url, record) = (self.node.rpc_url(), Some(self.deployment.clone()));
        let deployed = deploy::deploy(&url, &self.admin, &plan, record).await.unwrap();
        deployed.tokens.iter().find(|token| token.symbol == "WETH").unwrap().address
    }

    /// Another token, which the solver holds and may pay with.
    pub(crate) async fn second_token(&self, amount: u64) -> Address {
        let at = self.deploy_weth().await;
        self.mint(at, self.solver.address(), amount).await;
        self.allow_payouts(at, amount).await;
        at
    }

    /// A wallet with funds, which has approved the permit contract.
    pub(crate) async fn wallet(&self, seed: B256, amount: u64) -> PrivateKeySigner {
        let wallet = PrivateKeySigner::from_bytes(&seed).unwrap();
        set_balance(&self.provider, wallet.address()).await;
        self.mint(self.token, wallet.address(), amount).await;
        let approve = token::TestToken::approveCall { spender: self.deployment.permit, value: U256::MAX };
        assert!(self.succeeds(&wallet, self.token, &approve).await);
        wallet
    }
}

pub(crate) async fn set_balance(provider: &DynProvider, account: Address) {
    let balance = U256::from(10).pow(U256::from(20));
    let _: () = raw(provider, "anvil_setBalance", json!([account, balance])).await;
}

pub(crate) async fn raw<R: serde::de::DeserializeOwned + std::fmt::Debug + Send + Sync + Unpin + 'static>(
    provider: &DynProvider,
    method: &'static str,
    params: Value,
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
        assert!(Instant::now() < deadline, "not in two minutes: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Repeats until it is so, and fails when it is not in time.
pub(crate) async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    eventually(what, async || is_so().await.then_some(())).await;
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
    scene.mine_at(EPOCH).await;
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

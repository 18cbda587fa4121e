//! The sandbox's chains: private nodes with the contracts, tokens and wallets on them.

use std::path::Path;
use std::time::Duration;

use alloy::primitives::aliases::U112;
use alloy::primitives::{Address, I256, U256};
use alloy::signers::local::PrivateKeySigner;
use anyhow::{Context as _, ensure};
use dvp_chain_indexer::deploy::{
    CapSpec, DeployError, DeployPlan, Deployment, MarketContracts, MarketPlan, Sent, TokenGrant, TokenSpec,
    WRAPPED_COIN, WrappedCoin, deploy, deploy_market, deploy_wallet, fund_gas, fund_solvers, fund_wallets,
};
use dvp_chain_indexer::signing::Account;
use dvp_chain_indexer::{ChainConfig, FeePolicy};
use dvp_core::liquidity::GasConfig;
use dvp_domain::liquidity::network_fee::ChainGas;
use dvp_sandbox::anvil::{Anvil, AnvilOptions, CHAIN_ID};
use futures_util::future::try_join_all;

use super::files::{DEPLOYMENT, Files};
use super::inventory;
use crate::service::ChainParts;

/// The chains that a sandbox can have.
const PLANS: [Plan; 2] = [
    Plan {
        name: "anvil",
        chain_id: CHAIN_ID,
        block_time: Duration::from_secs(1),
        slots_in_an_epoch: 1,
        confirmations: 1,
        tip_floor_wei: TIP_WEI,
    },
    // Fast blocks, more of them to a confirmation and to finality, and a hundredth of the fee.
    Plan {
        name: "anvil2",
        chain_id: CHAIN_ID + 1,
        block_time: Duration::from_millis(250),
        slots_in_an_epoch: 4,
        confirmations: 4,
        tip_floor_wei: TIP_WEI / 100,
    },
];
/// One gwei.
const TIP_WEI: u128 = 1_000_000_000;
/// Accounts 0 to 2 are the service's own: administrator, relayer, liquidity provider.
const SERVICE_ACCOUNTS: usize = 3;
const ACCOUNTS: u32 = 10;
/// The minimum balance of each wallet: a billion of six decimals, a thousand of eighteen.
const USDC_GRANT: u128 = 1_000_000_000_000_000;
const WETH_GRANT: u128 = 1_000_000_000_000_000_000_000;
/// The relayer's accounts, at each start.
const GAS_GRANT: u128 = 10_000_000_000_000_000_000_000;
/// The liquidity provider's daily cap: ten thousand times its initial balance.
const CAP_USDC: u128 = 10_000 * USDC_GRANT;
const CAP_WETH: u128 = 10_000 * WETH_GRANT;
const MARKET_RECORD: &str = "market.json";
const WALLET_RECORD: &str = "contract-wallet.json";
/// The pool's reserves: three million USDC and a thousand WETH.
const POOL_USDC: u128 = 3_000_000_000_000;
const POOL_WETH: u128 = 1_000_000_000_000_000_000_000;
/// The feed's price of a WETH in USDC, and its decimals.
const WETH_PRICE: i64 = 300_000_000_000;
const FEED_DECIMALS: u8 = 8;

/// How a chain of the sandbox is run.
struct Plan {
    /// The name that assets and the ready file call it by.
    name: &'static str,
    chain_id: u64,
    block_time: Duration,
    slots_in_an_epoch: u64,
    confirmations: u64,
    /// The relayer's smallest tip. Blocks are nearly empty, so that the base fee falls to nothing and this is the fee.
    tip_floor_wei: u128,
}

impl Plan {
    const fn is_home(&self) -> bool {
        self.chain_id == CHAIN_ID
    }
}

/// A running node, with its directory: the home chain's is the sandbox's, a further chain's is named after it.
pub(super) struct Node {
    plan: &'static Plan,
    files: Files,
    pub anvil: Anvil,
}

/// Starts the nodes of this many chains.
pub(super) async fn start_nodes(dir: &Path, count: usize) -> anyhow::Result<Vec<Node>> {
    let further = PLANS.iter().skip(count).find(|plan| dir.join(plan.name).join(DEPLOYMENT).exists());
    if let Some(plan) = further {
        anyhow::bail!("{} has orders of the chain {}: give --chains as before", dir.display(), plan.name);
    }
    try_join_all(PLANS.iter().take(count).map(|plan| start_node(dir, plan))).await
}

async fn start_node(dir: &Path, plan: &'static Plan) -> anyhow::Result<Node> {
    let files = if plan.is_home() { Files::open(dir)? } else { Files::open(&dir.join(plan.name))? };
    let options = AnvilOptions {
        dir: Some(files.dir().to_owned()),
        chain_id: plan.chain_id,
        block_time: Some(plan.block_time),
        slots_in_an_epoch: plan.slots_in_an_epoch,
        accounts: ACCOUNTS,
        ..AnvilOptions::default()
    };
    let anvil = Anvil::start(options).await.with_context(|| format!("anvil of {}", plan.name))?;
    Ok(Node { plan, files, anvil })
}

/// The deployed contracts and accounts.
pub(super) struct SandboxChain {
    plan: &'static Plan,
    /// The node's endpoints.
    pub rpc_url: String,
    pub ws_url: String,
    pub deployment: Deployment,
    pub market: MarketContracts,
    /// The accounts that send the service's transactions.
    accounts: Vec<Account>,
    /// The wallet that released funds go to.
    pub solver: PrivateKeySigner,
    pub wallets: Vec<PrivateKeySigner>,
    /// A contract, whose owners are the first two wallets.
    pub contract_wallet: Address,
}

impl SandboxChain {
    /// Deploys missing contracts and funds the wallets. The same record at each start: the contracts stay where they
    /// are.
    pub(super) async fn prepare(node: &Node, signers: Vec<Account>) -> anyhow::Result<Self> {
        let Node { plan: chain, files, anvil } = node;
        let keys: Vec<PrivateKeySigner> = anvil
            .accounts()
            .iter()
            .map(|account| PrivateKeySigner::from_bytes(&account.private_key))
            .collect::<Result<_, _>>()?;
        ensure!(keys.len() > SERVICE_ACCOUNTS, "the chain has too few accounts");
        let (service, wallets) = keys.split_at(SERVICE_ACCOUNTS);
        let [admin, relayer, solver] = service else { anyhow::bail!("the chain has too few accounts") };
        let accounts = if signers.is_empty() { vec![relayer.clone().into()] } else { signers };
        let plan = DeployPlan {
            tokens: vec![token("USDC", "USD Coin", 6), token("WETH", "Wrapped Ether", 18)],
            coin: Some(WrappedCoin::Test),
            solvers: vec![solver.address()],
            relayers: accounts.iter().map(Account::address).collect(),
            // Test tokens have no value: the cap can be inspected and tested, and is high enough not to interfere.
            caps: [("USDC", CAP_USDC), ("WETH", CAP_WETH), (WRAPPED_COIN, CAP_WETH)]
                .map(|(token, per_day)| CapSpec {
                    payer: solver.address(),
                    token: token.into(),
                    per_day: U112::from(per_day),
                })
                .into(),
            ..DeployPlan::default()
        };
        let rpc = anvil.rpc_url();
        fund_gas(&rpc, &plan.relayers, U256::from(GAS_GRANT)).await.context("the relayer's accounts")?;
        let known: Option<Deployment> = files.read(DEPLOYMENT)?;
        let mut plan = plan;
        if known.as_ref().is_some_and(|known| known.coin.is_none()) {
            // Contracts of an earlier build, which do not deal in the coin.
            plan.caps.retain(|cap| cap.token != WRAPPED_COIN);
        }
        let deployment = deploy(&rpc, admin, &plan, known.clone()).await.map_err(|error| match error {
            DeployError::NotThere(_) => {
                anyhow::anyhow!("the chain in this directory lost its contracts; start in a new directory")
            }
            error => anyhow::Error::from(error).context("contracts"),
        })?;
        let grants: Vec<TokenGrant> = deployment
            .tokens
            .iter()
            .map(|token| {
                let amount = if token.decimals == 6 { USDC_GRANT } else { WETH_GRANT };
                TokenGrant { token: token.address, amount: U256::from(amount) }
            })
            .collect();
        // The records are written last: a start cut short before does the rest again.
        let mut sent = Vec::new();
        if known.is_none() {
            sent.push(fund_wallets(&rpc, admin, &deployment, wallets, &grants).await.context("wallets")?);
            let solvers = std::slice::from_ref(solver);
            let grants = deployment.tokens.iter().map(|token| TokenGrant {
                token: token.address,
                amount: U256::from(inventory::opening_inventory(&token.symbol)),
            });
            let mut grants: Vec<TokenGrant> = grants.collect();
            if let Some(coin) = deployment.coin {
                let amount = U256::from(inventory::opening_inventory(inventory::COIN));
                // The coin behind what is minted.
                fund_gas(&rpc, &[coin.wrapped], amount).await.context("the wrapped coin")?;
                grants.push(TokenGrant { token: coin.wrapped, amount });
            }
            let funded = fund_solvers(&rpc, admin, &deployment, solvers, &grants).await;
            sent.push(funded.context("the solver's wallet")?);
        }
        let (market, said) =
            send_market(files, &rpc, admin, &deployment).await.context("the market's contracts")?;
        sent.push(said);
        for transactions in sent {
            transactions.mined().await.context("the sandbox's wallets and market")?;
        }
        let recorded = if known.is_some() { files.read(WALLET_RECORD)? } else { None };
        let contract_wallet = match recorded {
            Some(recorded) => recorded,
            None => {
                let [one, other, ..] = wallets else { anyhow::bail!("the chain has too few accounts") };
                let owners = [one.clone(), other.clone()];
                let made = deploy_wallet(&rpc, admin, &deployment, &owners, &grants).await;
                let wallet = made.context("the contract wallet")?;
                files.write(WALLET_RECORD, &wallet)?;
                wallet
            }
        };
        if known.is_none() {
            files.write(DEPLOYMENT, &deployment)?;
        }
        files.write(MARKET_RECORD, &market)?;
        Ok(Self {
            plan: *chain,
            rpc_url: rpc,
            ws_url: anvil.ws_url(),
            deployment,
            market,
            accounts,
            solver: solver.clone(),
            wallets: wallets.to_vec(),
            contract_wallet,
        })
    }

    pub(super) const fn name(&self) -> &'static str {
        self.plan.name
    }

    /// The symbol of this chain's token: the ticker on the home chain.
    pub(super) fn symbol(&self, ticker: &str) -> String {
        if self.plan.is_home() { ticker.to_owned() } else { format!("{ticker}.{}", self.plan.name) }
    }

    /// For the network fees of quotes.
    pub(super) fn gas(&self) -> GasConfig {
        let gas = ChainGas::measured(self.plan.name, inventory::COIN);
        GasConfig { chain_id: self.plan.chain_id, gas, tip_floor_wei: self.plan.tip_floor_wei }
    }

    /// As the service uses it, over this endpoint.
    pub(super) fn parts(&self, rpc_url: &str) -> ChainParts {
        let config = ChainConfig {
            name: self.plan.name.into(),
            confirmations: self.plan.confirmations,
            fees: FeePolicy { tip_floor_wei: self.plan.tip_floor_wei, ..FeePolicy::default() },
            ..ChainConfig::development(rpc_url, self.deployment.clone())
        };
        ChainParts { config, accounts: self.accounts.clone() }
    }
}

/// A pool and a feed of WETH and USDC.
async fn send_market(
    files: &Files,
    rpc: &str,
    admin: &PrivateKeySigner,
    deployment: &Deployment,
) -> anyhow::Result<(MarketContracts, Sent)> {
    let address = |symbol: &str| {
        let token = deployment.tokens.iter().find(|token| token.symbol == symbol);
        token.map(|token| token.address).with_context(|| format!("no {symbol} was deployed"))
    };
    let plan = MarketPlan {
        reserves: [(address("WETH")?, U256::from(POOL_WETH)), (address("USDC")?, U256::from(POOL_USDC))],
        feed_description: "WETH / USDC".into(),
        feed_decimals: FEED_DECIMALS,
        price: I256::try_from(WETH_PRICE)?,
    };
    let known: Option<MarketContracts> = files.read(MARKET_RECORD)?;
    Ok(deploy_market(rpc, admin, &plan, known).await?)
}

fn token(symbol: &str, name: &str, decimals: u8) -> TokenSpec {
    TokenSpec { symbol: symbol.into(), name: name.into(), decimals }
}

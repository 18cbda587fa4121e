//! Deploys the contracts to a chain and connects them.
//!
//! The caller stores the returned [`Deployment`] and passes it the next time: contracts that exist are left alone,
//! missing grants are added. A new set is deployed where there is no record, or beside the recorded ones on request:
//! it takes new orders, and keeps the permit contract and the wrapped coin, so that wallets' approvals and nonces hold.

mod batch;
mod grant;
mod market;
mod sandbox;

use crate::contracts::{anchor, coin, escrow, payouts, permit, settler, test_coin, token};
use crate::rpc;
use crate::signing::SignError;
use alloy::primitives::aliases::{U48, U112};
use alloy::primitives::{Address, Bytes};
use alloy::providers::{DynProvider, Provider};
use alloy::signers::local::PrivateKeySigner;
use alloy::sol_types::SolConstructor;
use alloy::transports::TransportError;
use batch::DeployBatch;
use dvp_domain::chain::BlockNumber;
use serde::{Deserialize, Serialize};
use std::time::Duration;

pub use batch::Sent;
pub use market::{MarketContracts, MarketPlan, deploy_market};
pub use sandbox::{TokenGrant, deploy_wallet, fund_gas, fund_solvers, fund_wallets};

/// A set of contracts, which takes new orders, and those that it has replaced.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deployment {
    pub chain_id: u64,
    pub permit: Address,
    pub escrow: Address,
    pub settler: Address,
    pub anchor: Address,
    /// Pays in tokens.
    pub payouts: Address,
    /// How the chain's coin is dealt in. `None`: it is not, and native assets are refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub coin: Option<CoinContracts>,
    /// Accounts that may call the settler; only their anchors count.
    pub relayers: Vec<Address>,
    pub tokens: Vec<DeployedToken>,
    /// A block in which all contracts exist; none of their numbered events is in an earlier one.
    pub deployed_block: BlockNumber,
    /// The sets before this one, newest first, in which their orders end. None of them names others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earlier: Vec<Self>,
}

/// The addresses behind the chain's coin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CoinContracts {
    /// Takes deposits of the coin.
    pub gate: Address,
    /// The wrapped coin, which the gate keeps deposits in and payouts are made from.
    pub wrapped: Address,
}

impl Deployment {
    /// This set, and the ones before it.
    pub fn sets(&self) -> impl Iterator<Item = &Self> {
        std::iter::once(self).chain(&self.earlier)
    }

    /// The set with this escrow.
    pub fn of_escrow(&self, escrow: Address) -> Option<&Self> {
        self.sets().find(|set| set.escrow == escrow)
    }

    /// The first block of the first set.
    pub fn first_block(&self) -> BlockNumber {
        self.sets().map(|set| set.deployed_block).min().unwrap_or(self.deployed_block)
    }

    /// Why it is no record of sets that may stand beside each other.
    pub fn fault(&self) -> Option<String> {
        let wrapped = |set: &Self| set.coin.map(|coin| coin.wrapped);
        self.earlier.iter().find_map(|set| {
            let escrow = set.escrow;
            if set.chain_id != self.chain_id {
                return Some(format!("the set of the escrow {escrow} is of chain {}", set.chain_id));
            }
            if set.permit != self.permit {
                return Some(format!("the set of the escrow {escrow} has another permit contract"));
            }
            if wrapped(set).is_some_and(|coin| wrapped(self) != Some(coin)) {
                return Some(format!("the set of the escrow {escrow} has another wrapped coin"));
            }
            let is_twice = self.sets().filter(|other| other.escrow == escrow).count() > 1;
            (is_twice || !set.earlier.is_empty()).then(|| format!("the escrow {escrow} is there twice"))
        })
    }

    /// The contracts of all sets, by their names.
    pub fn contracts(&self) -> Vec<(String, Address)> {
        let earlier = self.earlier.iter().flat_map(Self::own_contracts);
        let earlier = earlier.map(|(name, address)| (format!("earlier {name}"), address));
        let mut all: Vec<(String, Address)> = Vec::new();
        for (name, address) in self.own_contracts().into_iter().chain(earlier) {
            if !all.iter().any(|(_, known)| *known == address) {
                all.push((name, address));
            }
        }
        all
    }

    fn own_contracts(&self) -> Vec<(String, Address)> {
        let own = [
            ("permit contract", self.permit),
            ("escrow", self.escrow),
            ("settler", self.settler),
            ("anchor", self.anchor),
            ("payout contract", self.payouts),
        ];
        let coin = self.coin.map(|coin| [("deposit gate", coin.gate), ("wrapped coin", coin.wrapped)]);
        let named = own.into_iter().chain(coin.into_iter().flatten());
        let tokens = self.tokens.iter().map(|token| (format!("token {}", token.symbol), token.address));
        let all = named.map(|(name, address)| (name.to_owned(), address)).chain(tokens);
        all.filter(|(_, address)| !address.is_zero()).collect()
    }

    /// The contracts of all sets whose events are numbered.
    pub fn numbered(&self) -> Vec<Address> {
        self.sets().flat_map(Self::own_numbered).collect()
    }

    pub(crate) fn own_numbered(&self) -> impl Iterator<Item = Address> + use<> {
        let gate = self.coin.map(|coin| coin.gate);
        [self.settler, self.escrow, self.anchor, self.payouts].into_iter().chain(gate)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeployedToken {
    pub symbol: String,
    pub address: Address,
    pub decimals: u8,
}

#[derive(Debug, Clone, Default)]
pub struct DeployPlan {
    pub tokens: Vec<TokenSpec>,
    /// The chain's wrapped coin. Used when the contracts are created: without one they never deal in the coin.
    pub coin: Option<WrappedCoin>,
    /// Solver wallets for the settler's allow-list of receivers.
    pub solvers: Vec<Address>,
    pub relayers: Vec<Address>,
    /// Accounts of which two decide to return the funds of a filled order. None may be a relayer.
    pub operators: Vec<Address>,
    /// Accounts that may pause, in addition to the administrator.
    pub pausers: Vec<Address>,
    /// The daily caps of solvers. A solver without a cap pays nothing.
    pub caps: Vec<CapSpec>,
    /// The minimum duration of a handover of the administration. Used when the contracts are created.
    pub admin_delay: Duration,
    /// Deploy a set beside the recorded ones.
    pub new_set: bool,
}

/// The wrapped coin, where a cap names its token.
pub const WRAPPED_COIN: &str = "wrapped-coin";

/// The most that a solver's allowance may pay of a token in a day.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CapSpec {
    pub payer: Address,
    /// An address, the symbol of a test token, or [`WRAPPED_COIN`].
    pub token: String,
    pub per_day: U112,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WrappedCoin {
    /// WETH9, or a contract that behaves like it.
    At(Address),
    /// A new one, for a private chain.
    Test,
}

#[derive(Debug, Clone)]
pub struct TokenSpec {
    pub symbol: String,
    pub name: String,
    pub decimals: u8,
}

#[derive(Debug, thiserror::Error)]
pub enum DeployError {
    #[error("chain call failed")]
    Rpc(#[from] TransportError),
    #[error("transaction could not be signed")]
    Sign(#[from] SignError),
    #[error("{what} reverted (transaction {hash})")]
    Reverted { what: String, hash: alloy::primitives::B256 },
    #[error("{what} was not mined in {seconds} s")]
    NotMined { what: String, seconds: u64 },
    #[error("a cap names the token {0}, which is neither an address nor a test token of this deployment")]
    UnknownToken(String),
    #[error("{0} is both operator and relayer: an operator must not be a relayer")]
    OperatorIsRelayer(Address),
    #[error("the record is of chain {recorded}, and the node is of chain {node}")]
    OtherChain { recorded: u64, node: u64 },
    #[error(
        "the node has no code at {0}, which the record names: ask another node; to deploy anew name another record"
    )]
    NotThere(Address),
    #[error("{0} is the administrator: relayers, operators and pausers are other accounts")]
    AdminHasRole(Address),
    #[error("the record contradicts itself: {0}")]
    Record(String),
    #[error("there is no record of contracts beside which a new set could be deployed")]
    NothingBeside,
}

/// Deploys what is missing. What a record names is never deployed again: a node that does not have it is refused. `admin` pays, and becomes the contracts' admin; it should not be a relayer's key, whose
/// nonces the relayer alone may use.
pub async fn deploy(
    rpc_url: &str,
    admin: &PrivateKeySigner,
    plan: &DeployPlan,
    record: Option<Deployment>,
) -> Result<Deployment, DeployError> {
    if let Some(both) = plan.operators.iter().find(|operator| plan.relayers.contains(operator)) {
        return Err(DeployError::OperatorIsRelayer(*both));
    }
    let mut with_role = plan.relayers.iter().chain(&plan.operators).chain(&plan.pausers);
    if with_role.any(|account| *account == admin.address()) {
        return Err(DeployError::AdminHasRole(admin.address()));
    }
    let provider = rpc::connect(rpc_url)?;
    let chain_id = provider.get_chain_id().await?;
    if let Some(record) = &record {
        if let Some(fault) = record.fault() {
            return Err(DeployError::Record(fault));
        }
        if record.chain_id != chain_id {
            return Err(DeployError::OtherChain { recorded: record.chain_id, node: chain_id });
        }
        if let Some(missing) = find_missing(&provider, record).await? {
            return Err(DeployError::NotThere(missing));
        }
    }
    if plan.new_set && record.is_none() {
        return Err(DeployError::NothingBeside);
    }
    let is_new = record.is_none() || plan.new_set;
    let mut batch = DeployBatch::start(&provider, admin).await?;
    let mut deployment = match record {
        Some(record) if !plan.new_set => record,
        before => create_core(&mut batch, admin, plan, (chain_id, before)).await?,
    };
    create_tokens(&mut batch, plan, &mut deployment).await?;
    let block = batch.finish().await?;
    if is_new {
        deployment.deployed_block = BlockNumber(block);
        tracing::info!(?deployment, "contracts deployed");
    }
    grant::grant(&provider, admin, plan, &mut deployment).await?;
    Ok(deployment)
}

/// A contract of the record without code on this chain.
async fn find_missing(
    provider: &DynProvider,
    record: &Deployment,
) -> Result<Option<Address>, TransportError> {
    for (_, address) in record.contracts() {
        if provider.get_code_at(address).await?.is_empty() {
            return Ok(Some(address));
        }
    }
    Ok(None)
}

/// Its block is known when the batch is mined.
async fn create_core(
    batch: &mut DeployBatch<'_>,
    admin: &PrivateKeySigner,
    plan: &DeployPlan,
    (chain_id, before): (u64, Option<Deployment>),
) -> Result<Deployment, DeployError> {
    let by = admin.address();
    let delay = U48::saturating_from(plan.admin_delay.as_secs());
    let known = before.as_ref().and_then(|before| before.coin);
    let wrapped = match (known, plan.coin) {
        (Some(coin), _) => Some(coin.wrapped),
        (None, Some(WrappedCoin::At(address))) => Some(address),
        (None, Some(WrappedCoin::Test)) => {
            Some(batch.create("TestCoin", test_coin::TestCoin::BYTECODE.clone()).await?)
        }
        (None, None) => None,
    };
    let permit = match &before {
        Some(before) => before.permit,
        None => batch.create("Permit", permit::Permit::BYTECODE.clone()).await?,
    };
    // Escrow, gate, settler and payouts store each other's addresses permanently, so each is created with the next
    // ones' future addresses. A contract at another address than its predecessor expects refuses to be created.
    let gates = u64::from(wrapped.is_some());
    let coin = wrapped.map(|wrapped| CoinContracts { gate: batch.upcoming(1), wrapped });
    let (settler, payouts) = (batch.upcoming(1 + gates), batch.upcoming(2 + gates));
    let gate_ = coin.map_or(Address::ZERO, |coin| coin.gate);
    let args = escrow::Escrow::constructorCall { permit_: permit, settler_: settler, gate_ }.abi_encode();
    let escrow = batch.create("Escrow", with_args(&escrow::Escrow::BYTECODE, &args)).await?;
    if let Some(CoinContracts { wrapped, .. }) = coin {
        let args = coin::CoinGate::constructorCall { wrapped_: wrapped, escrow_: escrow }.abi_encode();
        batch.create("CoinGate", with_args(&coin::CoinGate::BYTECODE, &args)).await?;
    }
    let args = settler::IntentSettler::constructorCall {
        escrow_: escrow,
        payouts_: payouts,
        admin: by,
        adminDelay: delay,
    };
    let code = with_args(&settler::IntentSettler::BYTECODE, &args.abi_encode());
    batch.create("IntentSettler", code).await?;
    let args = payouts::Payouts::constructorCall { settler_: settler, admin: by, adminDelay: delay };
    batch.create("Payouts", with_args(&payouts::Payouts::BYTECODE, &args.abi_encode())).await?;
    let anchor = batch.create("ReceiptAnchor", anchor::ReceiptAnchor::BYTECODE.clone()).await?;
    let created =
        Deployment { chain_id, permit, escrow, settler, anchor, payouts, coin, ..Deployment::default() };
    let Some(mut before) = before else { return Ok(created) };
    let mut earlier = std::mem::take(&mut before.earlier);
    let tokens = before.tokens.clone();
    earlier.insert(0, before);
    Ok(Deployment { tokens, earlier, ..created })
}

async fn create_tokens(
    batch: &mut DeployBatch<'_>,
    plan: &DeployPlan,
    deployment: &mut Deployment,
) -> Result<(), DeployError> {
    for spec in &plan.tokens {
        if deployment.tokens.iter().any(|token| token.symbol == spec.symbol) {
            continue;
        }
        let args = token::TestToken::constructorCall {
            name_: spec.name.clone(),
            symbol_: spec.symbol.clone(),
            decimals_: spec.decimals,
        };
        let code = with_args(&token::TestToken::BYTECODE, &args.abi_encode());
        let address = batch.create(&spec.symbol, code).await?;
        let symbol = spec.symbol.clone();
        deployment.tokens.push(DeployedToken { symbol, address, decimals: spec.decimals });
    }
    Ok(())
}

fn with_args(bytecode: &Bytes, args: &[u8]) -> Bytes {
    [bytecode.as_ref(), args].concat().into()
}

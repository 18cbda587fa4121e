//! Puts the contracts on a chain and wires them together.
//!
//! The caller keeps the [`Deployment`] it gets and brings it back the next time: what is on the chain already is
//! left alone, missing grants are made up for, and only a chain without our code gets a new set.

mod batch;
mod grant;
mod market;
mod sandbox;

use crate::contracts::{anchor, escrow, payouts, permit, settler, token};
use crate::rpc;
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

pub use market::{MarketContracts, MarketPlan, deploy_market};
pub use sandbox::{TokenGrant, fund_solvers, fund_wallets};

/// Where the contracts are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deployment {
    pub chain_id: u64,
    pub permit: Address,
    pub escrow: Address,
    pub settler: Address,
    pub anchor: Address,
    /// Pays in tokens. Zero in a record from before there was one, which is then not live.
    #[serde(default)]
    pub payouts: Address,
    /// Accounts that may call the settler; the anchors that count are theirs.
    pub relayers: Vec<Address>,
    pub tokens: Vec<DeployedToken>,
    /// The first block in which all of them are there; none of their numbered events is in an earlier one.
    pub deployed_block: BlockNumber,
}

/// A test token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeployedToken {
    pub symbol: String,
    pub address: Address,
    pub decimals: u8,
}

/// What shall be there.
#[derive(Debug, Clone, Default)]
pub struct DeployPlan {
    pub tokens: Vec<TokenSpec>,
    /// Solver wallets for the settler's list of receivers.
    pub solvers: Vec<Address>,
    pub relayers: Vec<Address>,
    /// Accounts of which two decide to return the funds of a filled order. None of them may be a relayer.
    pub operators: Vec<Address>,
    /// Accounts that may pause beside the administrator.
    pub pausers: Vec<Address>,
    /// What solvers may pay a day. Without a cap a solver pays nothing.
    pub caps: Vec<CapSpec>,
    /// How long a handover of the administration takes at least. Used when the contracts are created.
    pub admin_delay: Duration,
}

/// What a solver's allowance may pay of a token in a day.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CapSpec {
    pub payer: Address,
    /// An address, or the symbol of a test token.
    pub token: String,
    pub per_day: U112,
}

/// A test token to deploy.
#[derive(Debug, Clone)]
pub struct TokenSpec {
    pub symbol: String,
    pub name: String,
    pub decimals: u8,
}

/// Why a deployment did not come about.
#[derive(Debug, thiserror::Error)]
pub enum DeployError {
    #[error("chain call failed")]
    Rpc(#[from] TransportError),
    #[error("transaction could not be signed")]
    Sign(#[from] alloy::signers::Error),
    #[error("{what} reverted (transaction {hash})")]
    Reverted { what: String, hash: alloy::primitives::B256 },
    #[error("{what} was not mined in {seconds} s")]
    NotMined { what: String, seconds: u64 },
    #[error("a cap names the token {0}, which is neither an address nor a test token of this deployment")]
    UnknownToken(String),
    #[error("{0} is to be operator and relayer: an operator decides beside the relayer")]
    OperatorIsRelayer(Address),
}

/// Deploys what is missing. `admin` pays, and becomes the contracts' admin; it should not be a relayer's key,
/// whose nonces belong to the relayer alone.
pub async fn deploy(
    rpc_url: &str,
    admin: &PrivateKeySigner,
    plan: &DeployPlan,
    record: Option<Deployment>,
) -> Result<Deployment, DeployError> {
    if let Some(both) = plan.operators.iter().find(|operator| plan.relayers.contains(operator)) {
        return Err(DeployError::OperatorIsRelayer(*both));
    }
    let provider = rpc::connect(rpc_url)?;
    let chain_id = provider.get_chain_id().await?;
    let mut deployment = match record {
        Some(record) if record.chain_id == chain_id && is_live(&provider, &record).await? => record,
        Some(_) | None => deploy_core(&provider, admin, plan.admin_delay, chain_id).await?,
    };
    deploy_tokens(&provider, admin, plan, &mut deployment).await?;
    grant::grant(&provider, admin, plan, &mut deployment).await?;
    Ok(deployment)
}

/// Whether every contract of the record has code on this chain.
async fn is_live(provider: &DynProvider, record: &Deployment) -> Result<bool, TransportError> {
    let tokens = record.tokens.iter().map(|token| token.address);
    let core = [record.permit, record.escrow, record.settler, record.anchor, record.payouts];
    for address in core.into_iter().chain(tokens) {
        if provider.get_code_at(address).await?.is_empty() {
            return Ok(false);
        }
    }
    Ok(true)
}

async fn deploy_core(
    provider: &DynProvider,
    admin: &PrivateKeySigner,
    admin_delay: Duration,
    chain_id: u64,
) -> Result<Deployment, DeployError> {
    let mut batch = DeployBatch::start(provider, admin).await?;
    let by = admin.address();
    let delay = U48::saturating_from(admin_delay.as_secs());
    let permit = batch.create("Permit", permit::Permit::BYTECODE.clone()).await?;
    // Escrow, settler and payouts name each other for ever, so each is told where the next ones will be. A settler or
    // payouts that is not where its predecessor expects it refuses to be created.
    let (settler, payouts) = (batch.upcoming(1), batch.upcoming(2));
    let args = escrow::Escrow::constructorCall { permit_: permit, settler_: settler }.abi_encode();
    let escrow = batch.create("Escrow", with_args(&escrow::Escrow::BYTECODE, &args)).await?;
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
    let deployed_block = batch.finish().await?;
    tracing::info!(%permit, %escrow, %settler, %anchor, %payouts, deployed_block, "contracts deployed");
    Ok(Deployment {
        chain_id,
        permit,
        escrow,
        settler,
        anchor,
        payouts,
        relayers: Vec::new(),
        tokens: Vec::new(),
        deployed_block: BlockNumber(deployed_block),
    })
}

async fn deploy_tokens(
    provider: &DynProvider,
    admin: &PrivateKeySigner,
    plan: &DeployPlan,
    deployment: &mut Deployment,
) -> Result<(), DeployError> {
    let mut batch = DeployBatch::start(provider, admin).await?;
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
    batch.finish().await?;
    Ok(())
}

fn with_args(bytecode: &Bytes, args: &[u8]) -> Bytes {
    [bytecode.as_ref(), args].concat().into()
}

//! Puts the contracts on a chain and wires them together.
//!
//! The caller keeps the [`Deployment`] it gets and brings it back the next time: what is on the chain already is
//! left alone, missing grants are made up for, and only a chain without our code gets a new set.

mod batch;
mod market;
mod sandbox;

use crate::contracts::{anchor, escrow, payouts, permit, settler, token};
use crate::rpc;
use alloy::eips::BlockId;
use alloy::primitives::{Address, Bytes};
use alloy::providers::{DynProvider, Provider};
use alloy::signers::local::PrivateKeySigner;
use alloy::sol_types::{SolCall, SolConstructor};
use alloy::transports::TransportError;
use batch::Batch;
use serde::{Deserialize, Serialize};

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
    pub deployed_block: u64,
}

/// A test token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeployedToken {
    pub symbol: String,
    pub address: Address,
    pub decimals: u8,
}

/// What shall be there.
#[derive(Debug, Clone)]
pub struct DeployPlan {
    pub tokens: Vec<TokenSpec>,
    /// Solver wallets for the escrow's allow-list.
    pub solvers: Vec<Address>,
    pub relayers: Vec<Address>,
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
}

/// Deploys what is missing. `admin` pays, and becomes the contracts' admin; it should not be a relayer's key,
/// whose nonces belong to the relayer alone.
pub async fn deploy(
    rpc_url: &str,
    admin: &PrivateKeySigner,
    plan: &DeployPlan,
    record: Option<Deployment>,
) -> Result<Deployment, DeployError> {
    let provider = rpc::connect(rpc_url)?;
    let chain_id = provider.get_chain_id().await?;
    let mut deployment = match record {
        Some(record) if record.chain_id == chain_id && is_live(&provider, &record).await? => record,
        Some(_) | None => deploy_core(&provider, admin, chain_id).await?,
    };
    deploy_tokens(&provider, admin, plan, &mut deployment).await?;
    grant(&provider, admin, plan, &mut deployment).await?;
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
    chain_id: u64,
) -> Result<Deployment, DeployError> {
    let mut batch = Batch::start(provider, admin).await?;
    let by = admin.address();
    let permit = batch.create("Permit", permit::Permit::BYTECODE.clone()).await?;
    let args = escrow::Escrow::constructorCall { permit_: permit, admin: by }.abi_encode();
    let escrow = batch.create("Escrow", with_args(&escrow::Escrow::BYTECODE, &args)).await?;
    let args = settler::IntentSettler::constructorCall { escrow_: escrow, admin: by }.abi_encode();
    let settler = batch.create("IntentSettler", with_args(&settler::IntentSettler::BYTECODE, &args)).await?;
    let anchor = batch.create("ReceiptAnchor", anchor::ReceiptAnchor::BYTECODE.clone()).await?;
    let args = payouts::Payouts::constructorCall { admin: by }.abi_encode();
    let payouts = batch.create("Payouts", with_args(&payouts::Payouts::BYTECODE, &args)).await?;
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
        deployed_block,
    })
}

async fn deploy_tokens(
    provider: &DynProvider,
    admin: &PrivateKeySigner,
    plan: &DeployPlan,
    deployment: &mut Deployment,
) -> Result<(), DeployError> {
    let mut batch = Batch::start(provider, admin).await?;
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

/// The settler may lock, the relayers may call the settler and pay, the solvers may receive.
async fn grant(
    provider: &DynProvider,
    admin: &PrivateKeySigner,
    plan: &DeployPlan,
    deployment: &mut Deployment,
) -> Result<(), DeployError> {
    let mut batch = Batch::start(provider, admin).await?;
    let at = BlockId::latest();
    let (escrow, settler) = (deployment.escrow, deployment.settler);

    let role = rpc::view(provider, escrow, &escrow::Escrow::SETTLER_ROLECall {}, at).await?;
    let has = escrow::Escrow::hasRoleCall { role, account: settler };
    if !rpc::view(provider, escrow, &has, at).await? {
        let call = escrow::Escrow::grantRoleCall { role, account: settler };
        batch.call("grant SETTLER_ROLE", escrow, call.abi_encode()).await?;
    }
    let role = rpc::view(provider, settler, &settler::IntentSettler::RELAYER_ROLECall {}, at).await?;
    for account in plan.relayers.iter().copied() {
        let has = settler::IntentSettler::hasRoleCall { role, account };
        if !rpc::view(provider, settler, &has, at).await? {
            let call = settler::IntentSettler::grantRoleCall { role, account };
            batch.call("grant RELAYER_ROLE", settler, call.abi_encode()).await?;
        }
        let call = payouts::Payouts::hasRoleCall { role, account };
        if !rpc::view(provider, deployment.payouts, &call, at).await? {
            let call = payouts::Payouts::grantRoleCall { role, account };
            batch.call("grant RELAYER_ROLE on Payouts", deployment.payouts, call.abi_encode()).await?;
        }
        if !deployment.relayers.contains(&account) {
            deployment.relayers.push(account);
        }
    }
    for receiver in plan.solvers.iter().copied() {
        if !rpc::view(provider, escrow, &escrow::Escrow::allowedReceiversCall { receiver }, at).await? {
            let call = escrow::Escrow::setReceiverCall { receiver, allowed: true };
            batch.call("allow a receiver", escrow, call.abi_encode()).await?;
        }
    }
    batch.finish().await?;
    Ok(())
}

fn with_args(bytecode: &Bytes, args: &[u8]) -> Bytes {
    [bytecode.as_ref(), args].concat().into()
}

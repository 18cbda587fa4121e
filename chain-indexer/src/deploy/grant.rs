//! Roles, receivers and caps: adds those of the plan that the contracts lack.

use super::batch::DeployBatch;
use super::{DeployError, DeployPlan, Deployment, WRAPPED_COIN};
use crate::contracts::payouts::Payouts;
use crate::contracts::settler::IntentSettler;
use crate::rpc::view_now;
use alloy::primitives::{Address, B256};
use alloy::providers::DynProvider;
use alloy::signers::local::PrivateKeySigner;
use alloy::sol_types::SolCall;

/// In the set that takes new orders, and in those before it that this account still administers.
pub(super) async fn grant(
    provider: &DynProvider,
    admin: &PrivateKeySigner,
    plan: &DeployPlan,
    deployment: &mut Deployment,
) -> Result<(), DeployError> {
    grant_in(provider, admin, plan, deployment).await?;
    if plan.new_set {
        return Ok(());
    }
    for set in &mut deployment.earlier {
        let administers = IntentSettler::hasRoleCall { role: B256::ZERO, account: admin.address() };
        if view_now(provider, set.settler, &administers).await?
            && view_now(provider, set.payouts, &administers).await?
        {
            grant_in(provider, admin, plan, set).await?;
        } else {
            tracing::warn!(escrow = %set.escrow, "another account administers the earlier contracts: nothing is granted there");
        }
    }
    Ok(())
}

async fn grant_in(
    provider: &DynProvider,
    admin: &PrivateKeySigner,
    plan: &DeployPlan,
    deployment: &mut Deployment,
) -> Result<(), DeployError> {
    let mut batch = DeployBatch::start(provider, admin).await?;
    let (settler, payouts) = (deployment.settler, deployment.payouts);

    let relayer = view_now(provider, settler, &IntentSettler::RELAYER_ROLECall {}).await?;
    for account in plan.relayers.iter().copied() {
        for contract in [settler, payouts] {
            give(provider, &mut batch, contract, ("RELAYER_ROLE", relayer), account).await?;
        }
        if !deployment.relayers.contains(&account) {
            deployment.relayers.push(account);
        }
    }
    let operator = view_now(provider, settler, &IntentSettler::OPERATOR_ROLECall {}).await?;
    for account in plan.operators.iter().copied() {
        give(provider, &mut batch, settler, ("OPERATOR_ROLE", operator), account).await?;
    }
    let pauser = view_now(provider, settler, &IntentSettler::PAUSER_ROLECall {}).await?;
    for account in plan.pausers.iter().copied() {
        for contract in [settler, payouts] {
            give(provider, &mut batch, contract, ("PAUSER_ROLE", pauser), account).await?;
        }
    }
    for receiver in plan.solvers.iter().copied() {
        let allowed = IntentSettler::allowedReceiversCall { receiver };
        if !view_now(provider, settler, &allowed).await? {
            let call = IntentSettler::setReceiverCall { receiver, allowed: true };
            batch.call("allow a receiver", settler, call.abi_encode()).await?;
        }
    }
    set_caps(provider, &mut batch, plan, deployment).await?;
    batch.finish().await?;
    Ok(())
}

/// `role` with its name. The call is the same in both contracts.
async fn give(
    provider: &DynProvider,
    batch: &mut DeployBatch<'_>,
    contract: Address,
    (name, role): (&str, B256),
    account: Address,
) -> Result<(), DeployError> {
    let has = IntentSettler::hasRoleCall { role, account };
    if !view_now(provider, contract, &has).await? {
        let call = IntentSettler::grantRoleCall { role, account };
        batch.call(&format!("grant {name} to {account}"), contract, call.abi_encode()).await?;
    }
    Ok(())
}

async fn set_caps(
    provider: &DynProvider,
    batch: &mut DeployBatch<'_>,
    plan: &DeployPlan,
    deployment: &Deployment,
) -> Result<(), DeployError> {
    for cap in &plan.caps {
        let known = deployment.tokens.iter().find(|token| token.symbol == cap.token);
        let coin = deployment.coin.filter(|_| cap.token == WRAPPED_COIN).map(|coin| coin.wrapped);
        let token: Address = match known.map(|token| token.address).or(coin) {
            Some(address) => address,
            None => cap.token.parse().map_err(|_| DeployError::UnknownToken(cap.token.clone()))?,
        };
        let (payer, per_day) = (cap.payer, cap.per_day);
        let call = Payouts::capsCall { payer, token };
        if view_now(provider, deployment.payouts, &call).await?.perDay != per_day {
            let call = Payouts::setCapCall { payer, token, perDay: per_day };
            batch.call("set a cap", deployment.payouts, call.abi_encode()).await?;
        }
    }
    Ok(())
}

//! Test wallets with test tokens, approved for the permit contract.

use super::batch::{DeployBatch, Sent};
use super::{DeployError, Deployment};
use crate::contracts::test_wallet::TestWallet;
use crate::contracts::token::TestToken;
use crate::rpc::{self, view_now};
use alloy::primitives::{Address, U256};
use alloy::providers::Provider as _;
use alloy::signers::local::PrivateKeySigner;
use alloy::sol_types::{SolCall, SolConstructor};

/// The minimum balance of a token in each wallet, in token units.
#[derive(Debug, Clone, Copy)]
pub struct TokenGrant {
    pub token: Address,
    pub amount: U256,
}

/// Gives each account of a private node this much native coin, in wei.
pub async fn fund_gas(rpc_url: &str, accounts: &[Address], wei: U256) -> Result<(), DeployError> {
    let provider = rpc::connect(rpc_url)?;
    for account in accounts {
        let () = provider.raw_request("anvil_setBalance".into(), (account, wei)).await?;
    }
    Ok(())
}

/// Mints what each wallet lacks and has each approve the permit contract without limit. A repetition changes nothing.
/// The wallets need native coin for their approvals. Not awaited.
pub async fn fund_wallets(
    rpc_url: &str,
    admin: &PrivateKeySigner,
    deployment: &Deployment,
    wallets: &[PrivateKeySigner],
    grants: &[TokenGrant],
) -> Result<Sent, DeployError> {
    fund(rpc_url, admin, deployment.permit, wallets, grants).await
}

/// The same for solvers' wallets, which approve the payout contract.
pub async fn fund_solvers(
    rpc_url: &str,
    admin: &PrivateKeySigner,
    deployment: &Deployment,
    solvers: &[PrivateKeySigner],
    grants: &[TokenGrant],
) -> Result<Sent, DeployError> {
    fund(rpc_url, admin, deployment.payouts, solvers, grants).await
}

/// A wallet that is a contract, with tokens, whose two owners sign together; it has approved the permit contract.
pub async fn deploy_wallet(
    rpc_url: &str,
    admin: &PrivateKeySigner,
    deployment: &Deployment,
    owners: &[PrivateKeySigner; 2],
    grants: &[TokenGrant],
) -> Result<Address, DeployError> {
    let provider = rpc::connect(rpc_url)?;
    let mut mints = DeployBatch::start(&provider, admin).await?;
    let addresses = owners.iter().map(PrivateKeySigner::address).collect();
    let constructor = TestWallet::constructorCall { owners: addresses, threshold_: U256::from(owners.len()) };
    let code = [TestWallet::BYTECODE.to_vec(), constructor.abi_encode()].concat();
    let wallet = mints.create("the contract wallet", code.into()).await?;
    for TokenGrant { token, amount } in grants {
        let mint = TestToken::mintCall { to: wallet, amount: *amount };
        mints.call("mint", *token, mint.abi_encode()).await?;
    }
    mints.into_sent().mined().await?;
    let [owner, _] = owners;
    let mut approve = DeployBatch::start(&provider, owner).await?;
    for TokenGrant { token, .. } in grants {
        let call = TestToken::approveCall { spender: deployment.permit, value: U256::MAX };
        let act = TestWallet::actCall { target: *token, value: U256::ZERO, call_: call.abi_encode().into() };
        approve.call("approve", wallet, act.abi_encode()).await?;
    }
    approve.into_sent().mined().await?;
    Ok(wallet)
}

async fn fund(
    rpc_url: &str,
    admin: &PrivateKeySigner,
    spender: Address,
    wallets: &[PrivateKeySigner],
    grants: &[TokenGrant],
) -> Result<Sent, DeployError> {
    let provider = rpc::connect(rpc_url)?;
    let mut mints = DeployBatch::start(&provider, admin).await?;
    let mut approvals = Vec::new();
    for wallet in wallets {
        let account = wallet.address();
        let mut approve = DeployBatch::start(&provider, wallet).await?;
        for grant in grants {
            let held = view_now(&provider, grant.token, &TestToken::balanceOfCall { account }).await?;
            if held < grant.amount {
                let call = TestToken::mintCall { to: account, amount: grant.amount - held };
                mints.call("mint", grant.token, call.abi_encode()).await?;
            }
            let allowance = TestToken::allowanceCall { owner: account, spender };
            if view_now(&provider, grant.token, &allowance).await? < U256::MAX >> 1 {
                let call = TestToken::approveCall { spender, value: U256::MAX };
                approve.call("approve", grant.token, call.abi_encode()).await?;
            }
        }
        approvals.push(approve);
    }
    let approvals = approvals.into_iter().map(DeployBatch::into_sent);
    Ok(approvals.fold(mints.into_sent(), Sent::and))
}

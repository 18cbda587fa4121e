//! What processes of the service need around them: a node with the contracts, and a market.

use std::time::Duration;

use alloy::primitives::U256;
use alloy::signers::local::PrivateKeySigner;
use dvp_chain_indexer::deploy::{DeployPlan, Deployment, TokenGrant, TokenSpec, deploy, fund_wallets};
use dvp_sandbox::anvil::{Anvil, AnvilOptions, DevAccount};
use serde_json::{Value, json};

/// A node with a block a second, and the keys of its accounts.
pub async fn node() -> (Anvil, Vec<PrivateKeySigner>) {
    let options = AnvilOptions {
        block_time: Some(Duration::from_secs(1)),
        slots_in_an_epoch: 1,
        ..AnvilOptions::default()
    };
    let anvil = Anvil::start(options).await.unwrap();
    let key = |account: &DevAccount| PrivateKeySigner::from_bytes(&account.private_key).unwrap();
    let keys = anvil.accounts().iter().map(key).collect();
    (anvil, keys)
}

/// Who has a part in the contracts.
pub struct Parts<'a> {
    pub admin: &'a PrivateKeySigner,
    pub solver: &'a PrivateKeySigner,
    pub relayers: &'a [&'a PrivateKeySigner],
    /// Two of them return a filled order's funds.
    pub operators: [&'a PrivateKeySigner; 2],
}

impl Parts<'_> {
    /// Deploys the contracts with one token.
    pub async fn deploy(&self, rpc: &str) -> Deployment {
        let plan = DeployPlan {
            tokens: vec![TokenSpec { symbol: "USDC".into(), name: "USD Coin".into(), decimals: 6 }],
            solvers: vec![self.solver.address()],
            relayers: self.relayers.iter().map(|relayer| relayer.address()).collect(),
            operators: self.operators.iter().map(|operator| operator.address()).collect(),
            ..DeployPlan::default()
        };
        deploy(rpc, self.admin, &plan, None).await.unwrap()
    }

    /// Gives the wallets units of the token, with an approval.
    pub async fn fund(&self, rpc: &str, deployment: &Deployment, wallets: &[PrivateKeySigner], units: u64) {
        let grant = TokenGrant { token: deployment.tokens[0].address, amount: U256::from(units) };
        let funded = fund_wallets(rpc, self.admin, deployment, wallets, &[grant]).await.unwrap();
        funded.mined().await.unwrap();
    }
}

/// The sections of a configuration about the assets, their pair and the provider.
pub fn market(deployment: &Deployment, solver: &PrivateKeySigner) -> String {
    let (token, solver) = (deployment.tokens[0].address, solver.address());
    format!(
        r#"
[[assets]]
symbol = "USDC"
exponent = 6
chain = "anvil"
address = "{token}"
[[assets]]
symbol = "USD"
exponent = 2
currency = "USD"
[[pairs]]
base = "USDC"
quote = "USD"
reference_price = "1"
protocol_fee_bps = 5
payout_fee_minor = "50"
[[liquidity.providers]]
id = "north"
wallet = "{solver}"
spread_bps = 10
"#
    )
}

/// The fields of a sandbox's ready file.
pub fn seen(
    http: &str,
    keys: &Value,
    rpc: &str,
    deployment: &Deployment,
    wallets: &[PrivateKeySigner],
) -> Value {
    let wallet = |key: &PrivateKeySigner| json!({"privateKey": format!("0x{}", hex::encode(key.to_bytes()))});
    json!({
        "http": http,
        "partner": {"apiKey": keys["apiKey"], "signingSecret": keys["signingSecret"]},
        "chain": {
            "rpcUrl": rpc, "chainId": deployment.chain_id, "name": "anvil",
            "contracts": {"permit": deployment.permit, "escrow": deployment.escrow},
            "tokens": [{"address": deployment.tokens[0].address}],
            "wallets": wallets.iter().map(wallet).collect::<Vec<_>>(),
        },
    })
}

//! What a partner's own key may know: its balances, its limits, and the wallets that pay for its orders.

use std::collections::BTreeMap;

use dvp_domain::asset::AssetKind;
use dvp_domain::ledger::Owner;
use dvp_domain::limit::{LimitScope, Period};
use dvp_store::ledger::balances::{self, BalanceRow};
use dvp_store::operators::limits::{self, LimitRow};
use dvp_store::orders::executions;
use dvp_store::orders::intents::Tenant;
use dvp_store::orders::permits;
use dvp_store::partners::requests::{self, LoggedRequest};
use futures_util::future::try_join_all;
use uuid::Uuid;

use crate::chain::wallets::LookedUp;
use crate::chain::wallets::pending::PendingPermits;
use crate::chain::{ChainUnavailable, WalletFacts, WalletKey};
use crate::context::ChainConfig;
use crate::engine::{Engine, EngineError};

/// A wallet as the service knows it.
#[derive(Debug, Clone)]
pub struct Wallet {
    /// The nonce of the next permit that an order can have.
    pub next_nonce: u128,
    pub tokens: Vec<WalletToken>,
}

#[derive(Debug, Clone)]
pub struct WalletToken {
    pub asset: String,
    /// The token's contract.
    pub address: String,
    pub balance: u128,
    /// What the permit contract may take.
    pub allowance: u128,
    /// What the partner's own orders, not locked yet, will take.
    pub held: u128,
}

impl Engine {
    /// A partner's balances that are not zero.
    pub async fn balances(&self, tenant: &Tenant) -> Result<Vec<BalanceRow>, EngineError> {
        let owner = Owner::Partner { id: tenant.partner_id.clone(), livemode: tenant.livemode };
        let mut conn = self.reads().acquire().await?;
        Ok(balances::list_of(&mut conn, &owner).await?)
    }

    /// A partner's requests that changed something or were refused, the latest first, before one of them.
    pub async fn requests(
        &self,
        tenant: &Tenant,
        before: Option<Uuid>,
        limit: i64,
    ) -> Result<Vec<LoggedRequest>, EngineError> {
        let mut conn = self.reads().acquire().await?;
        Ok(requests::list(&mut conn, tenant, before, limit).await?)
    }

    /// The limits that an order of a partner meets: the partner's own, and those on a single order. Sums over all partners
    /// are not shown.
    pub async fn limits(&self, partner_id: &str) -> Result<Vec<LimitRow>, EngineError> {
        let mut conn = self.reads().acquire().await?;
        let own = |row: &LimitRow| row.scope == LimitScope::Partner.as_str();
        let mut rows = limits::list(&mut conn).await?;
        rows.retain(|row| match own(row) {
            true => row.target == partner_id,
            false => row.period == Period::Order.as_str(),
        });
        Ok(rows)
    }

    /// A wallet on a chain: the nonce of its next permit, and its tokens that orders may pay with.
    pub async fn wallet(
        &self,
        tenant: &Tenant,
        chain: &ChainConfig,
        owner: &str,
    ) -> Result<Wallet, EngineError> {
        let owner = owner.to_lowercase();
        let registry = &self.context.registry;
        let tokens: Vec<(&str, WalletKey)> = registry
            .assets
            .iter()
            .filter_map(|asset| match &asset.kind {
                AssetKind::Erc20 { chain: on, address } if *on == chain.name => {
                    let (owner, token) = (owner.clone(), address.clone());
                    Some((asset.symbol.as_str(), WalletKey { chain_id: chain.chain_id, owner, token }))
                }
                AssetKind::Erc20 { .. } | AssetKind::Native { .. } | AssetKind::Fiat { .. } => None,
            })
            .collect();
        let read = async |key: &WalletKey| match self.wallets.find(&tenant.partner_id, key) {
            Some(facts) => Ok(facts),
            None => match self.wallets.look_up(&tenant.partner_id, &key.into()).await? {
                LookedUp::Facts(facts) => Ok(facts),
                LookedUp::Unconfirmed { .. } => Err(ChainUnavailable("no data of the wallet".to_owned())),
            },
        };
        let facts = try_join_all(tokens.iter().map(|(_, key)| read(key))).await?;
        let nonce = facts.iter().map(|facts| facts.nonce).max().unwrap_or_default();
        let mut conn = self.reads().acquire().await?;
        let held = permits::list_held(&mut conn, &[((chain.chain_id, owner.as_str()), nonce)]).await?;
        let references: Vec<&str> = held.iter().map(|(hold, _)| hold.reference.as_str()).collect();
        let own = executions::list_owned(&mut conn, tenant, &references).await?;
        let mut pending = PendingPermits::default();
        let mut held_of: BTreeMap<String, u128> = BTreeMap::new();
        for (hold, _) in &held {
            pending.hold(hold);
            if own.contains(&hold.reference) {
                let sum = held_of.entry(hold.token.clone()).or_default();
                *sum = sum.saturating_add(hold.amount);
            }
        }
        let token = |((asset, key), facts): ((&str, WalletKey), WalletFacts)| WalletToken {
            asset: asset.to_owned(),
            held: held_of.get(&key.token).copied().unwrap_or_default(),
            address: key.token,
            balance: facts.balance,
            allowance: facts.allowance,
        };
        let tokens = tokens.into_iter().zip(facts).map(token).collect();
        Ok(Wallet { next_nonce: pending.next(nonce), tokens })
    }
}

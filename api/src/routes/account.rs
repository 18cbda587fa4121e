//! What a partner's own key shows of its account: assets, wallets, balances, limits, registered recipients.

use axum::extract::State;
use axum::http::StatusCode;
use dvp_domain::address::AddressFault;
use dvp_domain::asset::AssetKind;
use dvp_domain::limit::Period;
use dvp_store::ledger::balances::BalanceRow;
use dvp_store::operators::limits::LimitRow;
use serde::Serialize;

use crate::access::auth::Caller;
use crate::http::error::{Reply, json, text};
use crate::http::fields::fault;
use crate::http::path::PathId;
use crate::http::query::Params;
use crate::state::Api;

/// A whole list.
#[derive(Serialize)]
struct List<T> {
    data: Vec<T>,
}

pub(super) fn list<T: Serialize>(data: Vec<T>) -> Reply {
    Ok(json(StatusCode::OK, text(&List { data })))
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct AssetView<'a> {
    symbol: &'a str,
    #[serde(rename = "type")]
    kind: &'static str,
    exponent: u8,
    chain: Option<&'a str>,
    address: Option<&'a str>,
    currency: Option<&'a str>,
    pairs: Vec<PairView<'a>>,
}

/// What the asset is exchanged for.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PairView<'a> {
    output_asset: &'a str,
    min_amount_minor: String,
    max_amount_minor: Option<String>,
}

pub(crate) async fn assets(State(api): State<Api>) -> Reply {
    let registry = &api.engine.context().registry;
    let views = registry.assets.iter().map(|asset| {
        let (kind, address, currency) = match &asset.kind {
            AssetKind::Erc20 { address, .. } => ("erc20", Some(address.as_str()), None),
            AssetKind::Native { .. } => ("native", None, None),
            AssetKind::Fiat { currency } => ("fiat", None, Some(currency.as_str())),
        };
        let pairs = registry.pairs.iter().filter(|pair| pair.base == asset.symbol);
        AssetView {
            symbol: &asset.symbol,
            kind,
            exponent: asset.exponent,
            chain: asset.chain(),
            address,
            currency,
            pairs: pairs
                .map(|pair| PairView {
                    output_asset: &pair.quote,
                    min_amount_minor: pair.sizes().min.to_string(),
                    max_amount_minor: pair.sizes().max.map(|max| max.to_string()),
                })
                .collect(),
        }
    });
    list(views.collect())
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct WalletView<'a> {
    address: &'a str,
    chain: &'a str,
    chain_id: i64,
    next_nonce: String,
    tokens: Vec<TokenView>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct TokenView {
    asset: String,
    address: String,
    balance_minor: String,
    allowance_minor: String,
    held_minor: String,
}

/// `chain` names the chain; without it, the first.
pub(crate) async fn wallet(State(api): State<Api>, caller: Caller, address: PathId, params: Params) -> Reply {
    let chains = &api.engine.context().chains;
    let address = address.or(fault("address", AddressFault::Form))?;
    chains.contracts().check_wallet(&address).map_err(|refused| fault("address", refused))?;
    let chain = match params.get("chain")? {
        None => chains.home(),
        Some(name) => {
            let found = chains.iter().find(|chain| chain.name == name);
            found.ok_or_else(|| fault("chain", "must be one of GET /v1/chains"))?
        }
    };
    let wallet = api.engine.wallet(&caller.tenant, chain, &address).await?;
    let tokens = wallet.tokens.into_iter().map(|token| TokenView {
        asset: token.asset,
        address: token.address,
        balance_minor: token.balance.to_string(),
        allowance_minor: token.allowance.to_string(),
        held_minor: token.held.to_string(),
    });
    let view = WalletView {
        address: &address,
        chain: &chain.name,
        chain_id: chain.chain_id,
        next_nonce: wallet.next_nonce.to_string(),
        tokens: tokens.collect(),
    };
    Ok(json(StatusCode::OK, text(&view)))
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct BalanceView {
    asset: String,
    /// `None`: the asset is not dealt in any more.
    exponent: Option<u8>,
    available_minor: String,
    reserved_minor: String,
}

pub(crate) async fn balances(State(api): State<Api>, caller: Caller) -> Reply {
    let registry = &api.engine.context().registry;
    let rows = api.engine.balances(&caller.tenant).await?;
    let view = |row: BalanceRow| BalanceView {
        exponent: registry.find(&row.asset).map(|asset| asset.exponent),
        asset: row.asset,
        available_minor: row.available,
        reserved_minor: row.reserved,
    };
    list(rows.into_iter().map(view).collect())
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct LimitView {
    scope: String,
    target: Option<String>,
    asset: String,
    period: String,
    limit_minor: String,
    used_minor: Option<String>,
}

impl From<LimitRow> for LimitView {
    fn from(row: LimitRow) -> Self {
        let used_minor = match Period::parse(&row.period) {
            Some(Period::Day) => Some(row.used),
            Some(Period::Open) => Some(row.open),
            Some(Period::Order) | None => None,
        };
        Self {
            scope: row.scope,
            target: Some(row.target).filter(|target| !target.is_empty()),
            asset: row.asset,
            period: row.period,
            limit_minor: row.amount,
            used_minor,
        }
    }
}

pub(crate) async fn limits(State(api): State<Api>, caller: Caller) -> Reply {
    let rows = api.engine.limits(&caller.tenant.partner_id).await?;
    list(rows.into_iter().map(LimitView::from).collect())
}

//! `GET /v1/chains`: the contracts and the permit's domain of each chain, and the accounts whose anchors count.

use axum::extract::State;
use axum::http::StatusCode;
use dvp_core::chain::permit::PermitDomain;
use dvp_core::context::ContractSet;
use dvp_store::StoreError;
use dvp_store::chain::list_signers;
use serde::Serialize;

use crate::http::error::{Reply, json, text};
use crate::state::Api;

#[derive(Serialize)]
struct View {
    chains: Vec<ChainView>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ChainView {
    name: String,
    chain_id: i64,
    contracts: Contracts,
    permit_domain: DomainView,
    /// The contracts before these, in which their orders end. No new order names them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    earlier_contracts: Vec<Contracts>,
    /// In service or not any more: a receipt is anchored by the account that was in service then.
    anchor_submitters: Vec<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Contracts {
    anchor: String,
    escrow: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    coin_gate: Option<String>,
}

/// The EIP-712 domain that permits are signed for.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct DomainView {
    name: String,
    version: &'static str,
    chain_id: u64,
    verifying_contract: String,
}

fn domain(permit: &PermitDomain) -> DomainView {
    DomainView {
        name: permit.name.clone(),
        version: PermitDomain::VERSION,
        chain_id: permit.chain_id,
        verifying_contract: permit.verifying_contract.to_string(),
    }
}

fn contracts(set: &ContractSet) -> Contracts {
    Contracts { anchor: set.anchor.clone(), escrow: set.escrow.clone(), coin_gate: set.gate.clone() }
}

pub(crate) async fn list(State(api): State<Api>) -> Reply {
    let mut conn = api.engine.reads().acquire().await.map_err(StoreError::from)?;
    let mut chains = Vec::new();
    for chain in api.engine.context().chains.iter() {
        let submitters = list_signers(&mut conn, chain.chain_id.cast_unsigned()).await?;
        chains.push(ChainView {
            name: chain.name.clone(),
            chain_id: chain.chain_id,
            contracts: contracts(&chain.taking),
            permit_domain: domain(&chain.permit),
            earlier_contracts: chain.ending.iter().map(contracts).collect(),
            anchor_submitters: submitters.iter().map(ToString::to_string).collect(),
        });
    }
    Ok(json(StatusCode::OK, text(&View { chains })))
}

//! `GET /v1/chains`: the contracts of each chain, and the accounts whose anchors count.

use axum::extract::State;
use axum::http::StatusCode;
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

pub(crate) async fn list(State(api): State<Api>) -> Reply {
    let mut conn = api.engine.reads().acquire().await.map_err(StoreError::from)?;
    let mut chains = Vec::new();
    for chain in api.engine.context().chains.iter() {
        let submitters = list_signers(&mut conn, chain.chain_id.cast_unsigned()).await?;
        chains.push(ChainView {
            name: chain.name.clone(),
            chain_id: chain.chain_id,
            contracts: Contracts {
                anchor: chain.anchor.clone(),
                escrow: chain.escrow.clone(),
                coin_gate: chain.gate.clone(),
            },
            anchor_submitters: submitters.iter().map(ToString::to_string).collect(),
        });
    }
    Ok(json(StatusCode::OK, text(&View { chains })))
}

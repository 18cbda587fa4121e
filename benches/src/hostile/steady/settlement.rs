//! Orders of each kind over REST, one after the other on each lane, from their submission until they are settled.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use dvp_core::context::now;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::rest::{Order, submit, wait_for_end};
use super::{PATIENCE, Terms};
use crate::crash::process::text;
use crate::crash::rest::{Placed, Wallet, bound, deliver_token, fiat_order, pay_with_token};
use crate::hostile::latency::Action;
use crate::hostile::poison::ground::{FreshWallet, Ground};

const KINDS: [Action; 4] = [Action::TokenToFiat, Action::TokenToToken, Action::FiatToFiat, Action::Range];
const TOKENS: u64 = 100_000_000;
/// A range's output falls from the target to the limit in this time, in cents. What the market gives for the tokens is a
/// little below the target.
const RANGE_SECS: u64 = 60;
const RANGE: [&str; 2] = ["9990", "9000"];
const PAUSE: Duration = Duration::from_millis(300);

pub(super) async fn run(terms: Terms) -> anyhow::Result<Vec<Placed>> {
    let ground = Ground::of(&terms.target.ready)?;
    let client = reqwest::Client::builder().timeout(PATIENCE).build()?;
    let mut lanes = JoinSet::new();
    for kind in KINDS {
        for FreshWallet { wallet, .. } in ground.wallets(&format!("{kind:?}"), terms.settling).await? {
            lanes.spawn(lane(terms.clone(), client.clone(), kind, wallet));
        }
    }
    let mut placed = Vec::new();
    while let Some(ended) = lanes.join_next().await {
        placed.extend(ended??);
    }
    Ok(placed)
}

async fn lane(
    terms: Terms,
    client: reqwest::Client,
    kind: Action,
    wallet: Wallet,
) -> anyhow::Result<Vec<Placed>> {
    let rpc = text(&terms.target.ready, "/chain/rpcUrl")?.to_owned();
    let mut placed = Vec::new();
    while !terms.stop.is_cancelled() {
        let order = Order::of(order(&terms, kind, &wallet, (&client, &rpc)).await?);
        let request = order.signed(&terms, &client)?;
        // The time of the answer is a part of it; it is an action of its own of orders with permits.
        let due = terms.recorder.due(kind, Instant::now());
        let answer = match kind {
            Action::FiatToFiat => terms.recorder.untimed(),
            _ => terms.recorder.due(Action::RestToken, Instant::now()),
        };
        if let Some(one) = submit(terms.clone(), client.clone(), order, request, answer).await {
            let reference = one.reference.clone().unwrap_or_default();
            placed.push(one);
            let ended = wait_for_end(&terms, &client, &reference).await;
            let promise = "an order of the well-behaved partner is settled";
            let is_settled = ended.as_deref() == Some("completed");
            terms.promises.check(is_settled, promise, || format!("{kind:?}: {reference} {ended:?}"));
            if is_settled {
                due.answered();
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
    Ok(placed)
}

async fn order(
    terms: &Terms,
    kind: Action,
    wallet: &Wallet,
    (client, rpc): (&reqwest::Client, &str),
) -> anyhow::Result<Value> {
    if kind == Action::FiatToFiat {
        return fiat_order(terms.euros());
    }
    let mut order = fiat_order(terms.dollars())?;
    let permit = wallet.permit(client, rpc, TOKENS).await.context("a permit")?;
    pay_with_token(&mut order, wallet, &permit)?;
    match kind {
        Action::TokenToToken => {
            deliver_token(&mut order, text(&terms.target.ready, "/chain/tokens/1/address")?)?
        }
        Action::Range => {
            bound(&mut order, TOKENS, RANGE)?;
            order["deadline"] = json!((now().unix_secs() + RANGE_SECS) * 1000);
        }
        _ => {}
    }
    Ok(order)
}

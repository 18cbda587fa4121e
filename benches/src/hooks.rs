//! Webhook endpoints of the harness, and deliveries to receivers on this machine.

use std::net::IpAddr;

use anyhow::{Context as _, bail};
use dvp_api::delivery::address::Reach;
use dvp_api::delivery::{Delivery, DeliveryConfig};
use dvp_core::engine::webhooks::{Command, CommandOutcome, Owner, carry_out};
use dvp_domain::event::EventType;
use dvp_store::orders::idempotency::StoredResponse;
use dvp_store::orders::intents::Tenant;
use dvp_store::partners::registry::{self, NewKey};
use dvp_testing::receiver::Authority;
use tokio_util::sync::CancellationToken;

use crate::harness::DurableHarness;

/// The addresses that deliveries of a measurement may reach: this machine, and the public internet.
pub fn config(authority: &Authority) -> DeliveryConfig {
    DeliveryConfig {
        reach: Reach::PublicAnd(vec![IpAddr::from([127, 0, 0, 1])]),
        authorities: vec![authority.certificate()],
        ..DeliveryConfig::default()
    }
}

/// Delivers until the token is cancelled.
pub fn deliver(harness: &DurableHarness, config: DeliveryConfig) -> anyhow::Result<CancellationToken> {
    let stop = CancellationToken::new();
    tokio::spawn(Delivery::new(harness.engine.clone(), config)?.run(stop.clone()));
    Ok(stop)
}

/// A partner of its own with an endpoint; returns whose it is.
pub async fn endpoint(harness: &DurableHarness, name: &str, url: &str) -> anyhow::Result<Owner> {
    let mut conn = harness.pool().acquire().await?;
    let id = format!("ptn_{name}");
    let partner_id = registry::ensure_partner(&mut conn, &id, name, "enterprise", 1_000_000).await?;
    let key_id = format!("key_{name}");
    let vault = &harness.engine.context().vault;
    let key = NewKey {
        key_id: key_id.clone(),
        partner_id: partner_id.clone(),
        env: "test",
        key_hash: vault.api_key_hash(&key_id),
        hash_key: vault.current_id().to_owned(),
        key_prefix: name.chars().take(8).collect(),
        sealed_secret: vault.seal(&key_id, b"secret").context("seal")?,
        scopes: vec![],
    };
    registry::ensure_key(&mut conn, &key).await?;
    let owner = Owner { key_id, tenant: Tenant { partner_id, livemode: false } };
    let subscribed_types = EventType::ALL.iter().map(|kind| kind.as_str().to_owned()).collect();
    ask(harness, &owner, Command::Register { url: url.to_owned(), subscribed_types }).await?;
    Ok(owner)
}

/// Asks something of an endpoint. Returns the event's id, where one is queued.
pub async fn ask(harness: &DurableHarness, owner: &Owner, command: Command) -> anyhow::Result<String> {
    fn render(outcome: &CommandOutcome) -> StoredResponse {
        let body = match outcome {
            CommandOutcome::Queued { event_id } => event_id.clone(),
            CommandOutcome::Registered { .. }
            | CommandOutcome::Updated(_)
            | CommandOutcome::Rotated { .. }
            | CommandOutcome::Replaying { .. } => String::new(),
        };
        StoredResponse { status: 200, body }
    }
    let mut conn = harness.pool().acquire().await?;
    let vault = &harness.engine.context().vault;
    match carry_out(&mut conn, vault, owner, command, None, render).await {
        Ok(answer) => Ok(answer.response.body),
        Err(error) => bail!("{error}"),
    }
}

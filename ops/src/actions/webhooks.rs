//! Endpoints of webhooks: deliveries sent again, endpoints stopped or given to another key.

use anyhow::{Context as _, bail, ensure};
use chrono::{DateTime, Utc};
use clap::{Args, Subcommand};
use dvp_core::engine::webhooks::{Command, CommandOutcome, Owner, WebhookError, WebhookRejection, carry_out};
use dvp_core::secrets::Vault;
use dvp_store::orders::idempotency::StoredResponse;
use dvp_store::webhooks;
use serde_json::json;

use crate::actions::Reason;
use crate::desk::Desk;
use crate::outcome::Outcome;

#[derive(Debug, Subcommand)]
pub(crate) enum WebhookAction {
    /// Send an event to an endpoint once more.
    #[command(
        after_help = "Example:\n  dvp webhook resend --endpoint-id ep_… --event-id evt_… --reason 'asked by mail' --config dvp.toml"
    )]
    Resend(Resend),
    /// Send all events of a range to an endpoint once more, in their order.
    #[command(
        after_help = "Example:\n  dvp webhook replay --endpoint-id ep_… --from 2026-01-31T09:00:00Z --to 2026-01-31T10:00:00Z --reason 'their database was lost' --config dvp.toml"
    )]
    Replay(Replay),
    /// Stop deliveries to an endpoint. Its partner can activate it again; revoke the key of one that it does not trust.
    #[command(
        after_help = "Example:\n  dvp webhook disable --endpoint-id ep_… --reason 'unknown host' --config dvp.toml"
    )]
    Disable(Disable),
    /// Give an endpoint to another key of the same partner and environment, such as the one that follows it.
    #[command(
        after_help = "Example:\n  dvp webhook move --from key_… --to key_… --reason 'the key is replaced' --config dvp.toml"
    )]
    Move(Move),
}

#[derive(Debug, Args)]
pub(crate) struct Resend {
    #[arg(long)]
    endpoint_id: String,
    #[arg(long)]
    event_id: String,
    #[command(flatten)]
    why: Reason,
}

#[derive(Debug, Args)]
pub(crate) struct Replay {
    #[arg(long)]
    endpoint_id: String,
    /// When the first event occurred (RFC 3339).
    #[arg(long, value_name = "TIME")]
    from: DateTime<Utc>,
    /// The end of the range, which is not in it.
    #[arg(long, value_name = "TIME")]
    to: DateTime<Utc>,
    #[command(flatten)]
    why: Reason,
}

#[derive(Debug, Args)]
pub(crate) struct Disable {
    #[arg(long)]
    endpoint_id: String,
    #[command(flatten)]
    why: Reason,
}

#[derive(Debug, Args)]
pub(crate) struct Move {
    /// The key that has the endpoint.
    #[arg(long, value_name = "KEY_ID")]
    from: String,
    /// The key that is to have it.
    #[arg(long, value_name = "KEY_ID")]
    to: String,
    #[command(flatten)]
    why: Reason,
}

impl WebhookAction {
    pub(super) async fn perform(self, desk: &mut Desk<'_>) -> anyhow::Result<Outcome> {
        match self {
            Self::Resend(Resend { endpoint_id, event_id, why }) => {
                why.given()?;
                send(desk, &endpoint_id, Command::Resend { event_id: event_id.trim().to_owned() }).await
            }
            Self::Replay(Replay { endpoint_id, from, to, why }) => {
                why.given()?;
                ensure!(from < to, "the replay ends before it begins");
                send(desk, &endpoint_id, Command::Replay { from, to, types: None }).await
            }
            Self::Disable(Disable { endpoint_id: id, why }) => {
                why.given()?;
                let changed = webhooks::stop(desk.conn, &id).await?;
                let changed = changed.with_context(|| format!("there is no endpoint {id}"))?;
                let value = json!({"endpointId": id, "isActive": false, "changed": changed});
                Ok(Outcome::done(value, format!("{id} is inactive{}", if changed { "" } else { " already" })))
            }
            Self::Move(Move { from, to, why }) => {
                why.given()?;
                if !webhooks::move_to_key(desk.conn, &from, &to).await? {
                    bail!("{from} has no endpoint, or {to} is not a key of the same partner and environment");
                }
                Ok(Outcome::done(json!({"from": from, "to": to}), format!("the endpoint belongs to {to}")))
            }
        }
    }
}

async fn send(desk: &mut Desk<'_>, id: &str, command: Command) -> anyhow::Result<Outcome> {
    let endpoint = webhooks::find_many(desk.conn, &[id]).await?.pop();
    let endpoint = endpoint.with_context(|| format!("there is no endpoint {id}"))?;
    let owner = Owner { key_id: endpoint.key_id, tenant: endpoint.tenant };
    let render = |_: &Vault, _: &CommandOutcome| StoredResponse { status: 200, body: String::new() };
    match carry_out(desk.conn, &desk.house.vault, &owner, command, None, render).await {
        Ok(_) => Ok(Outcome::done(json!({"endpointId": id, "queued": true}), format!("queued for {id}"))),
        Err(WebhookError::Store(error)) => Err(error.into()),
        Err(WebhookError::Refused(WebhookRejection::NoEvent)) => {
            bail!("the event does not exist, or has left the feed")
        }
        Err(WebhookError::Refused(WebhookRejection::Inactive)) => bail!("the endpoint is inactive"),
        Err(WebhookError::Refused(WebhookRejection::ReplayInProgress)) => {
            bail!("a replay of another range is in progress")
        }
        Err(_) => bail!("the endpoint does not accept this"),
    }
}

//! API keys and their signing secrets, which are answered by the action that draws them, once.

use anyhow::{Context as _, bail, ensure};
use clap::{Args, Subcommand};
use dvp_core::operators::credentials;
use dvp_core::operators::keys::{self, Issued, SCOPES};
use dvp_store::partners::registry::{self, ListedKey};
use serde_json::{Value, json};

use crate::actions::{EnvArg, IfLive, Reason};
use crate::desk::Desk;
use crate::outcome::Outcome;

#[derive(Debug, Subcommand)]
pub(crate) enum KeyAction {
    /// Issue an API key and its signing secret. Both are shown once and kept nowhere.
    ///
    /// With --evidence, and always in a live deployment, the key is issued disabled until another operator approves it.
    #[command(
        after_help = "Example:\n  dvp key issue --partner acme --env test --scopes quotes:write,intents:write --config dvp.toml"
    )]
    Issue(Issue),
    /// Issue a key in place of another one: same partner, environment and scopes.
    ///
    /// Both work until the old one is disabled or revoked.
    #[command(after_help = "Example:\n  dvp key rotate --key-id key_… --config dvp.toml")]
    Rotate(Request),
    /// Let a disabled key work again.
    #[command(after_help = "Example:\n  dvp key enable --key-id key_… --config dvp.toml")]
    Enable(Request),
    /// Refuse a key from now on (403 API_KEY_DISABLED) until it is enabled again.
    #[command(
        after_help = "Example:\n  dvp key disable --key-id key_… --reason 'seen in a log' --config dvp.toml"
    )]
    Disable(Stop),
    /// End a key for good (401 INVALID_API_KEY) and erase its signing secret.
    #[command(after_help = "Example:\n  dvp key revoke --key-id key_… --reason leaked --config dvp.toml")]
    Revoke(Stop),
}

#[derive(Debug, Args)]
pub(crate) struct Issue {
    /// The partner's name.
    #[arg(long)]
    partner: String,
    /// The deployment's own when not given; the other one is refused.
    #[arg(long, value_enum)]
    env: Option<EnvArg>,
    /// The key's scopes; all when not given.
    #[arg(long, value_name = "A,B", value_delimiter = ',', value_parser = SCOPES)]
    scopes: Vec<String>,
    #[command(flatten)]
    why: IfLive,
}

#[derive(Debug, Args)]
pub(crate) struct Request {
    /// As `dvp key list` prints it.
    #[arg(long)]
    key_id: String,
    #[command(flatten)]
    why: IfLive,
}

#[derive(Debug, Args)]
pub(crate) struct Stop {
    /// As `dvp key list` prints it.
    #[arg(long)]
    key_id: String,
    #[command(flatten)]
    why: Reason,
}

impl KeyAction {
    pub(super) async fn perform(self, desk: &mut Desk<'_>) -> anyhow::Result<Outcome> {
        match self {
            Self::Issue(Issue { partner, env, scopes, why }) => {
                desk.environment(env)?;
                let mut scopes = if scopes.is_empty() { SCOPES.map(str::to_owned).to_vec() } else { scopes };
                scopes.sort_unstable();
                scopes.dedup();
                let partner = desk.partner(&partner).await?;
                issue(desk, (&partner.name, &partner.id), &scopes, &why, None).await
            }
            Self::Rotate(Request { key_id, why }) => {
                let old = find(desk, &key_id).await?;
                ensure!(old.revoked_at.is_none(), "{key_id} is revoked; issue a new key");
                issue(desk, (&old.partner, &old.partner_id), &old.scopes, &why, Some(&key_id)).await
            }
            Self::Enable(Request { key_id, why }) => match desk.second(&why)? {
                Some(maker) => {
                    let requested = credentials::request_enabling(desk.conn, &key_id, maker).await?;
                    Ok(Outcome::requested(&requested))
                }
                None => {
                    let done = registry::enable_key(desk.conn, &key_id).await?;
                    changed(desk, &key_id, "enabled", done).await
                }
            },
            Self::Disable(Stop { key_id, why }) => {
                why.given()?;
                let done = registry::disable_key(desk.conn, &key_id).await?;
                changed(desk, &key_id, "disabled", done).await
            }
            Self::Revoke(Stop { key_id, why }) => {
                why.given()?;
                let done = registry::revoke_key(desk.conn, &key_id).await?;
                changed(desk, &key_id, "revoked", done).await
            }
        }
    }
}

/// Issues a key; where two operators are needed disabled, until another one has approved it.
async fn issue(
    desk: &mut Desk<'_>,
    (partner, partner_id): (&str, &str),
    scopes: &[String],
    why: &IfLive,
    replaces: Option<&str>,
) -> anyhow::Result<Outcome> {
    let (vault, environment) = (&desk.house.vault, desk.house.environment);
    let (issued, requested) = match desk.second(why)? {
        Some(maker) => {
            let (issued, requested) =
                credentials::issue_key(desk.conn, vault, partner, environment, scopes, maker).await?;
            (issued, Some(requested))
        }
        None => (keys::issue(desk.conn, vault, partner_id, environment, scopes).await?, None),
    };
    let Issued { key_id, api_key, signing_secret } = issued;
    let mut value = json!({"keyId": key_id, "apiKey": api_key, "signingSecret": signing_secret});
    let mut lines = vec!["Keep both now: they are shown this once.".to_owned()];
    let approval = requested.map(|requested| requested.approval.id);
    if let Some(id) = &approval {
        value["approval"] = id.as_str().into();
        lines.push(format!("It works when another operator has approved it: dvp approval approve --id {id}"));
    }
    if let Some(old) = replaces {
        value["replaces"] = old.into();
        lines.push(format!("{old} still works; disable or revoke it once it is no longer used."));
    }
    let outcome = Outcome { approval, ..Outcome::lines(value, lines) };
    Ok(outcome.once("key id", key_id).once("API key", api_key).once("signing secret", signing_secret))
}

/// A repetition has no further effect; a revoked key stays revoked.
async fn changed(desk: &mut Desk<'_>, id: &str, word: &str, done: bool) -> anyhow::Result<Outcome> {
    let key = find(desk, id).await?;
    if !done && state(&key) != word {
        bail!("{id} is {}", state(&key));
    }
    Ok(Outcome::done(view(&key), format!("{id} is {word}")))
}

async fn find(desk: &mut Desk<'_>, key_id: &str) -> anyhow::Result<ListedKey> {
    let found = registry::find_listed_key(desk.conn, key_id).await?;
    found.with_context(|| format!("there is no key {key_id}"))
}

pub const fn state(key: &ListedKey) -> &'static str {
    match (&key.revoked_at, &key.disabled_at) {
        (Some(_), _) => "revoked",
        (None, Some(_)) => "disabled",
        (None, None) => "enabled",
    }
}

/// A key, without anything that could be used.
pub fn view(key: &ListedKey) -> Value {
    json!({
        "keyId": key.key_id, "partner": key.partner, "env": key.env, "prefix": key.key_prefix,
        "scopes": key.scopes, "status": state(key), "createdAt": key.created_at.to_rfc3339(),
    })
}

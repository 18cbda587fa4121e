//! `dvp key …`. Secrets are printed by the command that draws them, once.

use anyhow::{Context as _, bail, ensure};
use dvp_core::keys::{self, Issued, SCOPES};
use dvp_store::partners::{self, ListedKey};
use serde_json::{Value, json};

use super::named_partner;
use crate::access::Access;
use crate::cli::{KeyCommand, KeyId, KeyIssue, KeyList};
use crate::output::print;

const PAGE: i64 = 500;

pub(crate) async fn run(command: KeyCommand) -> anyhow::Result<()> {
    match command {
        KeyCommand::Issue(args) => issue(args).await,
        KeyCommand::Rotate(args) => rotate(args).await,
        KeyCommand::Disable(args) => change(args, Change::Disable).await,
        KeyCommand::Enable(args) => change(args, Change::Enable).await,
        KeyCommand::Revoke(args) => change(args, Change::Revoke).await,
        KeyCommand::List(args) => list(args).await,
    }
}

async fn issue(args: KeyIssue) -> anyhow::Result<()> {
    let mut access = Access::open(&args.place).await?;
    let environment = access.environment(args.env)?;
    let partner = named_partner(&mut access.conn, &args.partner).await?;
    let mut scopes = if args.scopes.is_empty() { SCOPES.map(str::to_owned).to_vec() } else { args.scopes };
    scopes.sort_unstable();
    scopes.dedup();
    let issued = keys::issue(&mut access.conn, &access.vault, &partner.id, environment, &scopes).await?;
    tell(args.place.json, &issued, None)
}

async fn rotate(args: KeyId) -> anyhow::Result<()> {
    let mut access = Access::open(&args.place).await?;
    let old = find(&mut access, &args.key_id).await?;
    ensure!(old.revoked_at.is_none(), "{} is revoked; issue a new key", old.key_id);
    let issued =
        keys::issue(&mut access.conn, &access.vault, &old.partner_id, access.environment, &old.scopes)
            .await?;
    tell(args.place.json, &issued, Some(&old.key_id))
}

fn tell(json: bool, issued: &Issued, replaces: Option<&str>) -> anyhow::Result<()> {
    let mut value = json!({
        "keyId": issued.key_id, "apiKey": issued.api_key, "signingSecret": issued.signing_secret,
    });
    if let (Some(old), Some(fields)) = (replaces, value.as_object_mut()) {
        fields.insert("replaces".into(), old.into());
    }
    print(json, &value, || {
        let mut lines = vec![
            format!("key id          {}", issued.key_id),
            format!("API key         {}", issued.api_key),
            format!("signing secret  {}", issued.signing_secret),
            "Keep both now: they are shown this once.".to_owned(),
        ];
        if let Some(old) = replaces {
            lines.push(format!("{old} still works; disable or revoke it when nobody uses it any more."));
        }
        lines
    })
}

enum Change {
    Disable,
    Enable,
    Revoke,
}

async fn change(args: KeyId, change: Change) -> anyhow::Result<()> {
    let mut access = Access::open(&args.place).await?;
    let (id, conn) = (&args.key_id, &mut access.conn);
    let (done, word) = match change {
        Change::Disable => (partners::disable_key(conn, id).await?, "disabled"),
        Change::Enable => (partners::enable_key(conn, id).await?, "enabled"),
        Change::Revoke => (partners::revoke_key(conn, id).await?, "revoked"),
    };
    let key = find(&mut access, id).await?;
    // Asked for twice is as good as once; a revoked key stays revoked.
    if !done && state(&key) != word {
        bail!("{id} is {}", state(&key));
    }
    print(args.place.json, &view(&key), || vec![format!("{id} is {word}")])
}

async fn find(access: &mut Access, key_id: &str) -> anyhow::Result<ListedKey> {
    let found = partners::find_listed_key(&mut access.conn, key_id).await?;
    found.with_context(|| format!("there is no key {key_id}"))
}

async fn list(args: KeyList) -> anyhow::Result<()> {
    let mut access = Access::open(&args.place).await?;
    let partner = match &args.partner {
        Some(name) => Some(named_partner(&mut access.conn, name).await?.id),
        None => None,
    };
    let mut all: Vec<ListedKey> = Vec::new();
    loop {
        let after = all.last().map(|row| row.key_id.clone()).unwrap_or_default();
        let page = partners::list_keys(&mut access.conn, partner.as_deref(), &after, PAGE).await?;
        if page.is_empty() {
            break;
        }
        all.extend(page);
    }
    let keys: Vec<Value> = all.iter().map(view).collect();
    print(args.place.json, &json!({"keys": keys}), || {
        let line = |key: &ListedKey| {
            let scopes = key.scopes.join(",");
            format!(
                "{}  {}  {}  {}…  {}  {scopes}",
                key.key_id,
                key.partner,
                key.env,
                key.key_prefix,
                state(key)
            )
        };
        all.iter().map(line).collect()
    })
}

const fn state(key: &ListedKey) -> &'static str {
    match (&key.revoked_at, &key.disabled_at) {
        (Some(_), _) => "revoked",
        (None, Some(_)) => "disabled",
        (None, None) => "enabled",
    }
}

fn view(key: &ListedKey) -> Value {
    json!({
        "keyId": key.key_id, "partner": key.partner, "env": key.env, "prefix": key.key_prefix,
        "scopes": key.scopes, "status": state(key), "createdAt": key.created_at.to_rfc3339(),
    })
}

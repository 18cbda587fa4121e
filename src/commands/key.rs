//! `dvp key …`. Secrets are printed by the command that draws them, once.

use anyhow::{Context as _, bail, ensure};
use clap::{Args, Subcommand};
use dvp_core::operators::credentials;
use dvp_core::operators::keys::{self, Issued, SCOPES};
use dvp_core::operators::requests::{Maker, RequestedChange};
use dvp_store::operators::accounts::{self, ConsoleAction, ConsoleRecord};
use dvp_store::partners::registry::{self, ListedKey};
use serde_json::{Value, json};
use sqlx::{Connection as _, PgConnection};

use super::approval::print_requested;
use super::named_partner;
use crate::access::Access;
use crate::cli::{EnvArg, MakerArgs, PlaceArgs};
use crate::output::{all_pages, print, print_list};

#[derive(Debug, Subcommand)]
pub(crate) enum KeyCommand {
    /// Issue an API key and its signing secret. Both are printed once and kept nowhere.
    ///
    /// With --operator, and always in a live deployment, the key is issued disabled until another operator approves it
    /// (`dvp approval approve`).
    #[command(
        after_help = "Example:\n  dvp key issue --partner acme --env test --scopes quotes:write,intents:write --dir .dvp --json"
    )]
    Issue(KeyIssue),
    /// Issue a key in place of another one: same partner, environment and scopes.
    ///
    /// Both work until the old one is disabled or revoked.
    #[command(after_help = "Example:\n  dvp key rotate --key-id key_… --dir .dvp --json")]
    Rotate(KeyRequest),
    /// Refuse a key from now on (403 API_KEY_DISABLED) until it is enabled again.
    ///
    /// A live deployment needs --operator and --reason, which the audit log keeps; one operator is enough.
    #[command(
        after_help = "Example:\n  dvp key disable --key-id key_… --operator jo --reason 'seen in a log' --dir .dvp"
    )]
    Disable(KeyStop),
    /// Let a disabled key work again.
    #[command(after_help = "Example:\n  dvp key enable --key-id key_… --dir .dvp")]
    Enable(KeyRequest),
    /// End a key for good (401 INVALID_API_KEY) and erase its signing secret.
    ///
    /// A live deployment needs --operator and --reason, which the audit log keeps; one operator is enough.
    #[command(
        after_help = "Example:\n  dvp key revoke --key-id key_… --operator jo --reason leaked --dir .dvp"
    )]
    Revoke(KeyStop),
    /// List keys, without anything that could be used.
    #[command(after_help = "Example:\n  dvp key list --partner acme --dir .dvp --json")]
    List(KeyList),
}

#[derive(Debug, Args)]
pub(crate) struct KeyIssue {
    /// The partner's name.
    #[arg(long)]
    pub partner: String,
    /// The deployment's own when not given; the other one is refused.
    #[arg(long, value_enum)]
    pub env: Option<EnvArg>,
    /// The key's scopes; all when not given.
    #[arg(long, value_name = "A,B", value_delimiter = ',', value_parser = scope)]
    pub scopes: Vec<String>,
    #[command(flatten)]
    pub maker: MakerArgs,
    #[command(flatten)]
    pub place: PlaceArgs,
}

/// What one operator stops.
#[derive(Debug, Args)]
pub(crate) struct KeyStop {
    /// The operator.
    #[arg(long, visible_alias = "as", requires = "reason")]
    pub operator: Option<String>,
    /// Why.
    #[arg(long, requires = "operator")]
    pub reason: Option<String>,
    #[command(flatten)]
    pub key: KeyId,
}

/// A request of two operators.
#[derive(Debug, Args)]
pub(crate) struct KeyRequest {
    #[command(flatten)]
    pub maker: MakerArgs,
    #[command(flatten)]
    pub key: KeyId,
}

#[derive(Debug, Args)]
pub(crate) struct KeyId {
    /// As `dvp key issue` and `dvp key list` print it.
    #[arg(long)]
    pub key_id: String,
    #[command(flatten)]
    pub place: PlaceArgs,
}

#[derive(Debug, Args)]
pub(crate) struct KeyList {
    /// Only this partner's.
    #[arg(long)]
    pub partner: Option<String>,
    #[command(flatten)]
    pub place: PlaceArgs,
}

fn scope(text: &str) -> Result<String, String> {
    if SCOPES.contains(&text) {
        Ok(text.to_owned())
    } else {
        Err(format!("the scopes are {}", SCOPES.join(", ")))
    }
}

const PAGE: i64 = 500;

pub(crate) async fn run(command: KeyCommand) -> anyhow::Result<()> {
    match command {
        KeyCommand::Issue(args) => issue(args).await,
        KeyCommand::Rotate(args) => rotate(args).await,
        KeyCommand::Disable(args) => stop(args, Change::Disable).await,
        KeyCommand::Enable(args) => enable(args).await,
        KeyCommand::Revoke(args) => stop(args, Change::Revoke).await,
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
    let maker = args.maker.maker(environment)?;
    let (issued, requested) = draw(&mut access, &partner.name, &partner.id, &scopes, maker).await?;
    tell(args.place.json, &issued, None, requested.as_ref())
}

/// Issues a key; with a maker disabled, until another operator has approved it.
async fn draw(
    access: &mut Access,
    partner: &str,
    partner_id: &str,
    scopes: &[String],
    maker: Option<Maker<'_>>,
) -> anyhow::Result<(Issued, Option<RequestedChange>)> {
    let (conn, vault, environment) = (&mut access.conn, &access.vault, access.environment);
    Ok(match maker {
        Some(maker) => {
            let (issued, requested) =
                credentials::issue_key(conn, vault, partner, environment, scopes, maker).await?;
            (issued, Some(requested))
        }
        None => (keys::issue(conn, vault, partner_id, environment, scopes).await?, None),
    })
}

async fn rotate(KeyRequest { key: args, maker }: KeyRequest) -> anyhow::Result<()> {
    let mut access = Access::open(&args.place).await?;
    let old = find(&mut access.conn, &args.key_id).await?;
    ensure!(old.revoked_at.is_none(), "{} is revoked; issue a new key", old.key_id);
    let maker = maker.maker(access.environment)?;
    let (issued, requested) = draw(&mut access, &old.partner, &old.partner_id, &old.scopes, maker).await?;
    tell(args.place.json, &issued, Some(&old.key_id), requested.as_ref())
}

/// Lets a disabled key work again, or requests it.
async fn enable(KeyRequest { key: args, maker }: KeyRequest) -> anyhow::Result<()> {
    let mut access = Access::open(&args.place).await?;
    match maker.maker(access.environment)? {
        Some(maker) => {
            let requested = credentials::request_enabling(&mut access.conn, &args.key_id, maker).await?;
            print_requested(args.place.json, &requested)
        }
        None => {
            let key = change(&mut access.conn, &args.key_id, Change::Enable).await?;
            print(args.place.json, &view(&key), || vec![format!("{} is enabled", key.key_id)])
        }
    }
}

fn tell(
    json: bool,
    issued: &Issued,
    replaces: Option<&str>,
    requested: Option<&RequestedChange>,
) -> anyhow::Result<()> {
    let mut value = json!({
        "keyId": issued.key_id, "apiKey": issued.api_key, "signingSecret": issued.signing_secret,
    });
    let approval = requested.map(|requested| requested.approval.id.as_str());
    for (name, text) in [("replaces", replaces), ("approval", approval)] {
        if let Some(text) = text {
            value[name] = text.into();
        }
    }
    print(json, &value, || {
        let mut lines = vec![
            format!("key id          {}", issued.key_id),
            format!("API key         {}", issued.api_key),
            format!("signing secret  {}", issued.signing_secret),
            "Keep both now: they are shown this once.".to_owned(),
        ];
        if let Some(id) = approval {
            lines.push(format!(
                "It works when another operator has approved it: dvp approval approve --id {id}"
            ));
        }
        if let Some(old) = replaces {
            lines.push(format!("{old} still works; disable or revoke it once it is no longer used."));
        }
        lines
    })
}

#[derive(Clone, Copy)]
enum Change {
    Disable,
    Enable,
    Revoke,
}

impl Change {
    /// The state of the key afterwards.
    const fn word(self) -> &'static str {
        match self {
            Self::Disable => "disabled",
            Self::Enable => "enabled",
            Self::Revoke => "revoked",
        }
    }
}

/// Stops a key. The operator and the reason are an entry of the audit log.
async fn stop(KeyStop { operator, reason, key: args }: KeyStop, wanted: Change) -> anyhow::Result<()> {
    let mut access = Access::open(&args.place).await?;
    let who = operator.zip(reason).filter(|(who, why)| !who.trim().is_empty() && !why.trim().is_empty());
    ensure!(
        who.is_some() || !access.environment.is_live(),
        "give --operator and --reason: the audit log keeps them"
    );
    let mut tx = access.conn.begin().await?;
    if let Some((operator, reason)) = who {
        let record = ConsoleRecord {
            operator: operator.trim(),
            action: ConsoleAction::Acted,
            route: "dvp key",
            subject: &format!("{} {}: {}", args.key_id, wanted.word(), reason.trim()),
            source: "command line",
        };
        accounts::record(&mut tx, &record).await?;
    }
    let key = change(&mut tx, &args.key_id, wanted).await?;
    tx.commit().await?;
    print(args.place.json, &view(&key), || vec![format!("{} is {}", key.key_id, wanted.word())])
}

async fn change(conn: &mut PgConnection, id: &str, change: Change) -> anyhow::Result<ListedKey> {
    let done = match change {
        Change::Disable => registry::disable_key(conn, id).await?,
        Change::Enable => registry::enable_key(conn, id).await?,
        Change::Revoke => registry::revoke_key(conn, id).await?,
    };
    let key = find(conn, id).await?;
    // A repetition has no further effect; a revoked key stays revoked.
    if !done && state(&key) != change.word() {
        bail!("{id} is {}", state(&key));
    }
    Ok(key)
}

async fn find(conn: &mut PgConnection, key_id: &str) -> anyhow::Result<ListedKey> {
    let found = registry::find_listed_key(conn, key_id).await?;
    found.with_context(|| format!("there is no key {key_id}"))
}

async fn list(args: KeyList) -> anyhow::Result<()> {
    let mut access = Access::open(&args.place).await?;
    let partner = match &args.partner {
        Some(name) => Some(named_partner(&mut access.conn, name).await?.id),
        None => None,
    };
    let page =
        async |after: &str| registry::list_keys(&mut access.conn, partner.as_deref(), after, PAGE).await;
    let all = all_pages(|row: &ListedKey| &row.key_id, page).await?;
    let line = |key: &ListedKey| {
        let (scopes, state) = (key.scopes.join(","), state(key));
        format!("{}  {}  {}  {}…  {state}  {scopes}", key.key_id, key.partner, key.env, key.key_prefix)
    };
    print_list(args.place.json, "keys", &all, view, line)
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

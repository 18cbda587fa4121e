//! Operators themselves: invitations, links, roles, identities, and tokens of service operators.
//!
//! In a live deployment an invitation takes three steps: one operator requests it and gets a code, another one approves it
//! and makes the link; the invited one needs both.

use anyhow::ensure;
use chrono::{DateTime, Duration, Utc};
use clap::{Args, Subcommand};
use dvp_core::operators::accounts::{self, new_token, token_hash};
use dvp_core::operators::invitations::{self, RequestedInvitation, ServiceToken};
use dvp_core::operators::requests::is_same_operator;
use dvp_domain::operator::OperatorRole;
use dvp_store::database::clock;
use dvp_store::operators::accounts::{self as store, OperatorRow, tokens};
use serde_json::{Value, json};

use crate::actions::{IfLive, Reason, one_of};
use crate::desk::Desk;
use crate::outcome::Outcome;
use crate::table;

#[derive(Debug, Subcommand)]
pub(crate) enum OperatorAction {
    /// Add an operator. In a live deployment the answer is a code for the new operator, and the request that another
    /// operator approves; in a test deployment it is a sign-in link, which can be used once, within a day.
    #[command(
        after_help = "Example:\n  dvp operator add --name kim --roles operator,approver --reason 'new colleague' --evidence 'ticket 3' --config dvp.toml"
    )]
    Add(Roles),
    /// A new sign-in link for an operator who cannot sign in any more.
    #[command(
        after_help = "Example:\n  dvp operator link --name kim --reason 'lost the passkey' --evidence 'call of 3 May' --config dvp.toml"
    )]
    Link(Name),
    /// Make the link of an invitation that you have approved, once.
    #[command(after_help = "Example:\n  dvp operator make-link --approval apr_… --config dvp.toml")]
    MakeLink(MakeLink),
    /// Replace an operator's roles, from its next request on.
    #[command(
        after_help = "Example:\n  dvp operator roles --name kim --roles viewer --reason 'another team' --evidence 'ticket 4' --config dvp.toml"
    )]
    Roles(Roles),
    /// Set the address by which an operator signs in at the identity provider ([console.oidc]).
    ///
    /// The first sign-in binds the operator to the account with this verified address; this releases it.
    #[command(
        after_help = "Example:\n  dvp operator identity --name kim --email kim@example.com --reason 'single sign-on' --evidence 'ticket 5' --config dvp.toml"
    )]
    Identity(Identity),
    /// Let a disabled operator sign in again.
    #[command(
        after_help = "Example:\n  dvp operator enable --name kim --reason 'back from leave' --evidence 'ticket 6' --config dvp.toml"
    )]
    Enable(Name),
    /// End an operator's sessions, links and tokens, and refuse new ones.
    #[command(
        after_help = "Example:\n  dvp operator disable --name kim --reason 'has left' --config dvp.toml"
    )]
    Disable(Disable),
    /// A token for automation: of a named operator, for chosen actions, until a day. It signs nothing as a second
    /// operator.
    #[command(
        after_help = "Example:\n  dvp operator token --name robot --actions 'webhook resend,pause add' --until 2027-01-31T00:00:00Z --reason 'on-call automation' --evidence 'ticket 7' --config dvp.toml"
    )]
    Token(Token),
    /// End all tokens of an operator, of logins and of automation. Its sessions at the console stay.
    #[command(
        after_help = "Example:\n  dvp operator end-tokens --name robot --reason 'seen in a log' --config dvp.toml"
    )]
    EndTokens(Disable),
}

#[derive(Debug, Args)]
pub(crate) struct Roles {
    /// The name that requests, approvals and the audit log have.
    #[arg(long)]
    name: String,
    /// All that it has from then on.
    #[arg(long, value_name = "A,B", value_delimiter = ',', value_parser = one_of(OperatorRole::ALL.map(OperatorRole::as_str), OperatorRole::parse), required = true)]
    roles: Vec<OperatorRole>,
    #[command(flatten)]
    why: IfLive,
}

#[derive(Debug, Args)]
pub(crate) struct Name {
    #[arg(long)]
    name: String,
    #[command(flatten)]
    why: IfLive,
}

#[derive(Debug, Args)]
pub(crate) struct MakeLink {
    /// The approved request.
    #[arg(long)]
    approval: String,
}

#[derive(Debug, Args)]
pub(crate) struct Identity {
    #[arg(long)]
    name: String,
    /// The address; without it the operator does not sign in at the provider any more.
    #[arg(long)]
    email: Option<String>,
    #[command(flatten)]
    why: IfLive,
}

#[derive(Debug, Args)]
pub(crate) struct Disable {
    #[arg(long)]
    name: String,
    #[command(flatten)]
    why: Reason,
}

#[derive(Debug, Args)]
pub(crate) struct Token {
    #[arg(long)]
    name: String,
    /// What it may do, as the command line calls it.
    #[arg(long, value_name = "ACTION,ACTION", value_delimiter = ',', value_parser = one_of(good_for_tokens(), action), required = true)]
    actions: Vec<String>,
    /// When it ends (RFC 3339), within a year.
    #[arg(long, value_name = "TIME")]
    until: DateTime<Utc>,
    #[command(flatten)]
    why: IfLive,
}

/// The longest life of a service operator's token, in days.
const TOKEN_DAYS: i64 = 366;

/// The actions that are no second signature, which no token gives.
fn good_for_tokens() -> impl Iterator<Item = &'static str> {
    let all = table::TABLE.iter().filter(|spec| spec.second != table::Second::Signs);
    all.map(|spec| spec.name)
}

/// Each role once, in their order.
fn sorted(mut roles: Vec<OperatorRole>) -> Vec<OperatorRole> {
    roles.sort_unstable();
    roles.dedup();
    roles
}

fn action(name: &str) -> Option<String> {
    table::find(name).map(|spec| spec.name.to_owned())
}

impl OperatorAction {
    pub(super) async fn perform(self, desk: &mut Desk<'_>) -> anyhow::Result<Outcome> {
        match self {
            Self::Add(Roles { name, roles, why }) => match desk.second(&why)? {
                Some(maker) => Ok(invited(
                    invitations::request_invitation(desk.conn, &name, &sorted(roles), maker).await?,
                )),
                None => {
                    let id = accounts::add(desk.conn, &name, &roles, &desk.by.name).await?;
                    link(desk, &name, &id).await
                }
            },
            Self::Link(Name { name, why }) => match desk.second(&why)? {
                Some(maker) => Ok(invited(invitations::request_link(desk.conn, &name, maker).await?)),
                None => {
                    let operator = accounts::named(desk.conn, &name).await?;
                    ensure!(operator.disabled_at.is_none(), "{} is disabled", operator.name);
                    link(desk, &operator.name, &operator.id).await
                }
            },
            Self::MakeLink(MakeLink { approval }) => {
                let (name, token) = invitations::make_link(desk.conn, &approval, &desk.by.name).await?;
                Ok(shown_link(desk, json!({"name": name}), &name, &token))
            }
            Self::Roles(Roles { name, roles, why }) => match desk.second(&why)? {
                Some(maker) => {
                    let requested =
                        invitations::request_roles(desk.conn, &name, &sorted(roles), maker).await?;
                    Ok(Outcome::requested(&requested))
                }
                None => {
                    let operator = accounts::named(desk.conn, &name).await?;
                    store::update_roles(desk.conn, &operator.id, &roles).await?;
                    show(desk, &name).await
                }
            },
            Self::Identity(Identity { name, email, why }) => match desk.second(&why)? {
                Some(maker) => {
                    let email = email.as_deref();
                    let requested = invitations::request_identity(desk.conn, &name, email, maker).await?;
                    Ok(Outcome::requested(&requested))
                }
                None => {
                    accounts::identify(desk.conn, &name, email.as_deref()).await?;
                    show(desk, &name).await
                }
            },
            Self::Enable(Name { name, why }) => match desk.second(&why)? {
                Some(maker) => {
                    let requested = invitations::request_enabling(desk.conn, &name, maker).await?;
                    Ok(Outcome::requested(&requested))
                }
                None => {
                    let operator = accounts::named(desk.conn, &name).await?;
                    store::set_disabled(desk.conn, &operator.id, false).await?;
                    show(desk, &name).await
                }
            },
            Self::Disable(Disable { name, why }) => {
                why.given()?;
                let operator = accounts::named(desk.conn, &name).await?;
                let is_own = is_same_operator(&operator.name, &desk.by.name);
                ensure!(!is_own, "another administrator disables you");
                store::set_disabled(desk.conn, &operator.id, true).await?;
                show(desk, &name).await
            }
            Self::Token(args) => token(desk, args).await,
            Self::EndTokens(Disable { name, why }) => {
                why.given()?;
                let operator = accounts::named(desk.conn, &name).await?;
                let ended = tokens::end_all(desk.conn, &operator.id).await?;
                let line = format!("{}: {ended} tokens ended", operator.name);
                Ok(Outcome::done(json!({"name": operator.name, "ended": ended}), line))
            }
        }
    }
}

/// What the requester of an invitation keeps for the invited operator.
fn invited(invitation: RequestedInvitation) -> Outcome {
    let RequestedInvitation { requested, code } = invitation;
    let line = "Give the code to the operator; the approver gives the link.".to_owned();
    Outcome::requested(&requested).with(json!({"code": code}), vec![line]).once("code", code)
}

async fn link(desk: &mut Desk<'_>, name: &str, id: &str) -> anyhow::Result<Outcome> {
    let token = accounts::invite(desk.conn, name).await?;
    Ok(shown_link(desk, json!({"id": id, "name": name, "token": token}), name, &token))
}

fn shown_link(desk: &Desk<'_>, mut value: Value, name: &str, token: &str) -> Outcome {
    let link = format!("{}/login?token={token}", desk.house.console.trim_end_matches('/'));
    value["link"] = link.as_str().into();
    let lines = vec![format!("Give it to {name}. It can be used once, within a day.")];
    Outcome::lines(value, lines).once("link", link)
}

async fn token(desk: &mut Desk<'_>, args: Token) -> anyhow::Result<Outcome> {
    let Token { name, actions, until, why } = args;
    let now = clock::now().to_utc();
    ensure!(
        (now..now + Duration::days(TOKEN_DAYS)).contains(&until),
        "--until: a token ends in the future, within {TOKEN_DAYS} days"
    );
    let drawn = new_token()?;
    let token = ServiceToken { sha256: hex::encode(token_hash(&drawn)), actions, until };
    let lines = vec!["Keep it now: it is shown this once.".to_owned()];
    let value = json!({"token": drawn, "name": name, "until": until.to_rfc3339()});
    if let Some(maker) = desk.second(&why)? {
        let requested = invitations::request_token(desk.conn, &name, token, maker).await?;
        return Ok(Outcome::requested(&requested).with(value, lines).once("token", drawn));
    }
    invitations::insert_token(desk.conn, &name, &token).await?;
    Ok(Outcome::lines(value, lines).once("token", drawn))
}

async fn show(desk: &mut Desk<'_>, name: &str) -> anyhow::Result<Outcome> {
    let operator = accounts::named(desk.conn, name).await?;
    Ok(Outcome::done(view(&operator), line(&operator)))
}

/// An operator.
pub fn view(row: &OperatorRow) -> Value {
    json!({
        "id": row.id, "name": row.name, "roles": row.roles, "createdBy": row.created_by,
        "createdAt": row.created_at.to_rfc3339(), "disabledAt": row.disabled_at.map(|at| at.to_rfc3339()),
        "lastSeenAt": row.last_seen_at.map(|at| at.to_rfc3339()),
    })
}

/// An operator as a line.
pub fn line(row: &OperatorRow) -> String {
    let roles: Vec<&str> = row.roles.iter().copied().map(OperatorRole::as_str).collect();
    let disabled = row.disabled_at.map(|at| format!("  disabled {}", at.to_rfc3339())).unwrap_or_default();
    let seen = row.last_seen_at.map_or("never".to_owned(), |at| at.to_rfc3339());
    format!("{}  {}  seen {seen}{disabled}", row.name, roles.join(","))
}

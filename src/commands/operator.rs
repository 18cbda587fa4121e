//! `dvp operator …`: operators of the console.

use clap::{Args, Subcommand};
use dvp_core::operators::accounts::{add, identify, invite, named};
use dvp_domain::operator::OperatorRole;
use dvp_store::operators::accounts::{self, OperatorRow};
use serde_json::{Value, json};

use crate::access::{Access, ServiceLocation};
use crate::cli::PlaceArgs;
use crate::output::{print, print_list};
use crate::sandbox_dir::text;

#[derive(Debug, Subcommand)]
pub(crate) enum OperatorCommand {
    /// Add an operator of the console and print a sign-in link.
    ///
    /// The link is printed once, can be used once, and expires after a day.
    #[command(
        after_help = "Example:\n  dvp operator add --name kim --roles operator,approver --operator jo --config dvp.toml"
    )]
    Add(OperatorAdd),
    /// Print a new sign-in link of an operator.
    #[command(after_help = "Example:\n  dvp operator link --name kim --config dvp.toml")]
    Link(OperatorName),
    /// Replace an operator's roles, from its next request on.
    #[command(after_help = "Example:\n  dvp operator roles --name kim --roles viewer --config dvp.toml")]
    Roles(OperatorRoles),
    /// Set the address by which an operator signs in at the identity provider ([console.oidc]).
    ///
    /// The first sign-in binds the operator to the account with this verified address; this command releases it.
    #[command(
        after_help = "Example:\n  dvp operator identity --name kim --email kim@example.com --config dvp.toml"
    )]
    Identity(OperatorIdentity),
    /// End an operator's sessions and links, and refuse new ones.
    #[command(after_help = "Example:\n  dvp operator disable --name kim --config dvp.toml")]
    Disable(OperatorName),
    /// Let a disabled operator sign in again.
    #[command(after_help = "Example:\n  dvp operator enable --name kim --config dvp.toml")]
    Enable(OperatorName),
    /// List operators.
    #[command(after_help = "Example:\n  dvp operator list --dir .dvp --json")]
    List(PlaceArgs),
}

#[derive(Debug, Args)]
pub(crate) struct OperatorAdd {
    /// The name that requests, approvals and the audit log have.
    #[arg(long)]
    pub name: String,
    /// viewer, support, operator, treasury, approver, admin, auditor.
    #[arg(long, value_name = "A,B", value_delimiter = ',', value_parser = role, required = true)]
    pub roles: Vec<OperatorRole>,
    /// Who adds it.
    #[arg(long, visible_alias = "as")]
    pub operator: String,
    #[command(flatten)]
    pub place: PlaceArgs,
}

#[derive(Debug, Args)]
pub(crate) struct OperatorRoles {
    #[arg(long)]
    pub name: String,
    /// viewer, support, operator, treasury, approver, admin, auditor.
    #[arg(long, value_name = "A,B", value_delimiter = ',', value_parser = role, required = true)]
    pub roles: Vec<OperatorRole>,
    #[command(flatten)]
    pub place: PlaceArgs,
}

#[derive(Debug, Args)]
pub(crate) struct OperatorIdentity {
    #[arg(long)]
    pub name: String,
    /// The address; without it the operator does not sign in at the provider any more.
    #[arg(long)]
    pub email: Option<String>,
    #[command(flatten)]
    pub place: PlaceArgs,
}

#[derive(Debug, Args)]
pub(crate) struct OperatorName {
    #[arg(long)]
    pub name: String,
    #[command(flatten)]
    pub place: PlaceArgs,
}

fn role(text: &str) -> Result<OperatorRole, String> {
    let roles = OperatorRole::ALL.map(OperatorRole::as_str).join(", ");
    OperatorRole::parse(text).ok_or_else(|| format!("the roles are {roles}"))
}

const ROWS: i64 = 1000;

pub(crate) async fn run(command: OperatorCommand) -> anyhow::Result<()> {
    match command {
        OperatorCommand::Add(args) => add_one(args).await,
        OperatorCommand::Link(args) => link(args).await,
        OperatorCommand::Roles(args) => roles(args).await,
        OperatorCommand::Identity(args) => identity(args).await,
        OperatorCommand::Disable(args) => switch(args, true).await,
        OperatorCommand::Enable(args) => switch(args, false).await,
        OperatorCommand::List(place) => list(place).await,
    }
}

async fn add_one(args: OperatorAdd) -> anyhow::Result<()> {
    anyhow::ensure!(!args.operator.trim().is_empty(), "--operator cannot be empty");
    let mut access = Access::open(&args.place).await?;
    let id = add(&mut access.conn, &args.name, &args.roles, &args.operator).await?;
    print_link(&mut access, &args.place, &args.name, &id).await
}

async fn link(args: OperatorName) -> anyhow::Result<()> {
    let mut access = Access::open(&args.place).await?;
    let operator = named(&mut access.conn, &args.name).await?;
    anyhow::ensure!(operator.disabled_at.is_none(), "{} is disabled", operator.name);
    print_link(&mut access, &args.place, &operator.name, &operator.id).await
}

async fn print_link(access: &mut Access, place: &PlaceArgs, name: &str, id: &str) -> anyhow::Result<()> {
    let token = invite(&mut access.conn, name).await?;
    let console = match ServiceLocation::find(place.dir.as_deref(), place.config.as_deref())? {
        ServiceLocation::Sandbox { ready, .. } => text(&ready, "/console").ok().map(ToOwned::to_owned),
        ServiceLocation::Configured(config) => config.console.map(|console| console.url.to_string()),
    };
    let path = format!("/login?token={token}");
    let link = console.map_or(path.clone(), |console| format!("{}{path}", console.trim_end_matches('/')));
    print(place.json, &json!({"id": id, "name": name, "token": token, "link": link}), || {
        vec![format!("{name}  {id}"), link.clone(), "The link can be used once, within a day.".to_owned()]
    })
}

async fn roles(args: OperatorRoles) -> anyhow::Result<()> {
    let mut access = Access::open(&args.place).await?;
    let operator = named(&mut access.conn, &args.name).await?;
    accounts::update_roles(&mut access.conn, &operator.id, &args.roles).await?;
    show(&args.place, &mut access, &args.name).await
}

async fn identity(args: OperatorIdentity) -> anyhow::Result<()> {
    let mut access = Access::open(&args.place).await?;
    identify(&mut access.conn, &args.name, args.email.as_deref()).await?;
    show(&args.place, &mut access, &args.name).await
}

async fn switch(args: OperatorName, disabled: bool) -> anyhow::Result<()> {
    let mut access = Access::open(&args.place).await?;
    let operator = named(&mut access.conn, &args.name).await?;
    accounts::set_disabled(&mut access.conn, &operator.id, disabled).await?;
    show(&args.place, &mut access, &args.name).await
}

async fn show(place: &PlaceArgs, access: &mut Access, name: &str) -> anyhow::Result<()> {
    let operator = named(&mut access.conn, name).await?;
    print(place.json, &view(&operator), || vec![line(&operator)])
}

async fn list(place: PlaceArgs) -> anyhow::Result<()> {
    let mut access = Access::open(&place).await?;
    let all = accounts::list(&mut access.conn, "", ROWS).await?;
    print_list(place.json, "operators", &all, view, line)
}

fn view(row: &OperatorRow) -> Value {
    json!({
        "id": row.id, "name": row.name, "roles": row.roles, "createdBy": row.created_by,
        "createdAt": row.created_at.to_rfc3339(), "disabledAt": row.disabled_at.map(|at| at.to_rfc3339()),
        "lastSeenAt": row.last_seen_at.map(|at| at.to_rfc3339()),
    })
}

fn line(row: &OperatorRow) -> String {
    let roles: Vec<&str> = row.roles.iter().copied().map(OperatorRole::as_str).collect();
    let disabled = row.disabled_at.map(|at| format!("  disabled {}", at.to_rfc3339())).unwrap_or_default();
    let seen = row.last_seen_at.map_or("never".to_owned(), |at| at.to_rfc3339());
    format!("{}  {}  seen {seen}{disabled}", row.name, roles.join(","))
}

//! `dvp operator …`: operators of the console.

use dvp_core::operators::{add, identify, invite, named};
use dvp_domain::operator::OperatorRole;
use dvp_store::operators::{self, OperatorRow};
use serde_json::{Value, json};

use crate::access::{Access, ServiceLocation};
use crate::cli::{OperatorAdd, OperatorCommand, OperatorIdentity, OperatorName, OperatorRoles, PlaceArgs};
use crate::output::print;
use crate::sandbox_dir::text;

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
    operators::update_roles(&mut access.conn, &operator.id, &args.roles).await?;
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
    operators::set_disabled(&mut access.conn, &operator.id, disabled).await?;
    show(&args.place, &mut access, &args.name).await
}

async fn show(place: &PlaceArgs, access: &mut Access, name: &str) -> anyhow::Result<()> {
    let operator = named(&mut access.conn, name).await?;
    print(place.json, &view(&operator), || vec![line(&operator)])
}

async fn list(place: PlaceArgs) -> anyhow::Result<()> {
    let mut access = Access::open(&place).await?;
    let all = operators::list(&mut access.conn, "", ROWS).await?;
    let values: Vec<Value> = all.iter().map(view).collect();
    print(place.json, &json!({"operators": values}), || all.iter().map(line).collect())
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

//! `dvp operator list|bootstrap`: the operators, and the first two of an empty deployment.

use std::io::{BufRead as _, IsTerminal as _, Write as _};

use anyhow::{Context as _, ensure};
use clap::{Args, Subcommand};
use dvp_core::operators::accounts::{add, invite};
use dvp_domain::operator::OperatorRole;
use dvp_ops::actions::operators::{line, view};
use dvp_store::Acquire as _;
use dvp_store::operators::accounts;
use serde_json::json;

use crate::access::{Access, ServiceLocation, account};
use crate::cli::PlaceArgs;
use crate::output::{print, print_list};

#[derive(Debug, Subcommand)]
pub(crate) enum OperatorCommand {
    /// Make the first two operators of a deployment that has none, with every role, and show their sign-in links.
    ///
    /// Each link is for one person, used once, within a day: at a terminal the second is shown when the first was handed
    /// over. Everything later is done by these two, each as itself.
    #[command(after_help = "Example:\n  dvp operator bootstrap --first ana --second ben --config dvp.toml")]
    Bootstrap(Bootstrap),
    /// List operators.
    #[command(after_help = "Example:\n  dvp operator list --dir .dvp --json")]
    List(PlaceArgs),
}

#[derive(Debug, Args)]
pub(crate) struct Bootstrap {
    /// The name of the first operator.
    #[arg(long)]
    pub first: String,
    /// The name of the second operator.
    #[arg(long)]
    pub second: String,
    #[command(flatten)]
    pub place: PlaceArgs,
}

const ROWS: i64 = 1000;
/// Clears a terminal, with what was scrolled away.
const CLEAR: &[u8] = b"\x1b[H\x1b[2J\x1b[3J";

pub(crate) async fn run(command: OperatorCommand) -> anyhow::Result<()> {
    match command {
        OperatorCommand::Bootstrap(args) => bootstrap(args).await,
        OperatorCommand::List(place) => list(place).await,
    }
}

async fn bootstrap(args: Bootstrap) -> anyhow::Result<()> {
    let Bootstrap { first, second, place } = args;
    let mut access = Access::open(&place).await?;
    let console = match &access.place {
        ServiceLocation::Configured(config) => config.console.as_ref().map(|console| console.url.clone()),
        ServiceLocation::Sandbox { .. } => None,
    };
    let console = console.context("operators sign in at the console: the configuration has no [console]")?;
    let mut tx = access.conn.begin().await?;
    ensure!(
        accounts::lock_if_none(&mut tx).await?,
        "there are operators: they add others, two of them each (dvp operator add)"
    );
    let mut links = Vec::new();
    for name in [&first, &second] {
        add(&mut tx, name, &OperatorRole::ALL, &account()).await?;
        let mut link = console.join("login")?;
        link.query_pairs_mut().append_pair("token", &invite(&mut tx, name).await?);
        links.push((name, link));
    }
    tx.commit().await?;
    if place.json || !std::io::stdout().is_terminal() {
        let all: Vec<_> = links.iter().map(|(name, link)| json!({"name": name, "link": link})).collect();
        return print(place.json, &json!({"operators": all}), || {
            links.iter().map(|(name, link)| format!("{name}  {link}")).collect()
        });
    }
    let mut out = std::io::stdout().lock();
    for (name, link) in links {
        writeln!(out, "For {name} only, once, within a day:\n{link}\nPress Enter when {name} has it.")?;
        out.flush()?;
        std::io::stdin().lock().read_line(&mut String::new())?;
        out.write_all(CLEAR)?;
    }
    Ok(out.flush()?)
}

async fn list(place: PlaceArgs) -> anyhow::Result<()> {
    let mut access = Access::open(&place).await?;
    let all = accounts::list(&mut access.conn, "", ROWS).await?;
    print_list(place.json, "operators", &all, view, line)
}

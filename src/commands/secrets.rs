//! `dvp secrets status|reseal`: the rotation of the master key.

use clap::Subcommand;
use dvp_core::operators::rotation::{self, Usage};
use serde_json::json;

use crate::access::Access;
use crate::cli::PlaceArgs;
use crate::output::print;

#[derive(Debug, Subcommand)]
pub(crate) enum SecretsCommand {
    /// List how much needs each master key. A key that is not listed can be taken out of the configuration.
    #[command(after_help = "Example:\n  dvp secrets status --config dvp.toml --json")]
    Status(PlaceArgs),
    /// Re-encrypt secrets of earlier keys with the first key of the configuration.
    #[command(after_help = "Example:\n  dvp secrets reseal --config dvp.toml")]
    Reseal(PlaceArgs),
}

pub(crate) async fn run(command: SecretsCommand) -> anyhow::Result<()> {
    match command {
        SecretsCommand::Status(place) => status(place).await,
        SecretsCommand::Reseal(place) => reseal(place).await,
    }
}

async fn status(place: PlaceArgs) -> anyhow::Result<()> {
    let Access { mut conn, vault, .. } = Access::open(&place).await?;
    let usage = rotation::usage(&mut conn, &vault).await?;
    let listed: Vec<&str> = vault.ids().collect();
    let value = json!({"current": vault.current_id(), "listed": listed, "usage": usage});
    print(place.json, &value, || lines(&usage, &listed))
}

fn lines(usage: &Usage, listed: &[&str]) -> Vec<String> {
    let mut lines = Vec::new();
    for (n, id) in listed.iter().enumerate() {
        let role = if n == 0 { "current" } else { "earlier" };
        match usage.get(*id) {
            None if n == 0 => lines.push(format!("{id} ({role}): nothing yet")),
            None => lines.push(format!("{id} ({role}): nothing needs it")),
            Some(uses) => {
                let uses: Vec<String> = uses.iter().map(|(what, rows)| format!("{rows} {what}")).collect();
                lines.push(format!("{id} ({role}): {}", uses.join(", ")));
            }
        }
    }
    for (id, uses) in usage.iter().filter(|(id, _)| !listed.contains(&id.as_str())) {
        let uses: Vec<String> = uses.iter().map(|(what, rows)| format!("{rows} {what}")).collect();
        lines.push(format!("{id} (NOT LISTED): {}", uses.join(", ")));
    }
    lines
}

async fn reseal(place: PlaceArgs) -> anyhow::Result<()> {
    let Access { mut conn, vault, .. } = Access::open(&place).await?;
    let count = rotation::reseal(&mut conn, &vault).await?;
    let current = vault.current_id();
    let value = json!({"current": current, "resealed": count});
    print(place.json, &value, || vec![format!("{count} secrets sealed anew with {current}")])
}

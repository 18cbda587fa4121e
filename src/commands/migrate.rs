//! `dvp migrate`: the schema this program needs, and the environment and cell that the database belongs to.

use anyhow::Context as _;
use dvp_domain::environment::Environment;
use dvp_store::{MIGRATOR, database::deployment};
use serde_json::json;

use crate::access::ServiceLocation;
use crate::cli::PlaceArgs;
use crate::output::print;

pub(crate) async fn run(args: PlaceArgs) -> anyhow::Result<()> {
    let place = ServiceLocation::find(args.dir.as_deref(), args.config.as_deref())?;
    let mut conn = place.connect().await?;
    MIGRATOR.run(&mut conn).await.context("migrations")?;
    let (environment, cell) = match &place {
        ServiceLocation::Configured(config) => (config.environment, config.cell()),
        ServiceLocation::Sandbox { .. } => (Environment::Test, None),
    };
    deployment::stamp(&mut conn, environment).await??;
    deployment::stamp_cell(&mut conn, cell).await??;
    let version = MIGRATOR.iter().map(|migration| migration.version).max().unwrap_or(0);
    let name = environment.as_str();
    print(args.json, &json!({"version": version, "environment": name, "cell": cell}), || {
        let cell = cell.map(|cell| format!(", cell {cell}")).unwrap_or_default();
        vec![format!("the schema is at version {version}; this is a {name} deployment{cell}")]
    })
}

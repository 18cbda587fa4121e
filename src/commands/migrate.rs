//! `dvp migrate`: the schema this program needs.

use anyhow::Context as _;
use dvp_store::MIGRATOR;
use serde_json::json;

use crate::access::Place;
use crate::cli::PlaceArgs;
use crate::output::print;

pub(crate) async fn run(args: PlaceArgs) -> anyhow::Result<()> {
    let place = Place::find(args.dir.as_deref(), args.config.as_deref())?;
    let mut conn = place.connect().await?;
    MIGRATOR.run(&mut conn).await.context("migrations")?;
    let version = MIGRATOR.iter().map(|migration| migration.version).max().unwrap_or(0);
    print(args.json, &json!({"version": version}), || vec![format!("the schema is at version {version}")])
}

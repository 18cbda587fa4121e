//! `dvp band …`: how far prices may be from the middle of their pair. Two operators change it.

use anyhow::Context as _;
use dvp_core::bands::{BandChange, request};
use dvp_core::requests::Maker;
use dvp_store::bands;
use serde_json::{Value, json};

use super::approval::print_requested;
use crate::access::Access;
use crate::cli::{BandCommand, BandRemove, BandSet, BandWhich, PlaceArgs};
use crate::output::print;

pub(crate) async fn run(command: BandCommand) -> anyhow::Result<()> {
    match command {
        BandCommand::Set(BandSet { which, bps, middle }) => make(which, Some((bps, middle))).await,
        BandCommand::Remove(BandRemove { which }) => make(which, None).await,
        BandCommand::List(place) => list(place).await,
    }
}

async fn make(which: BandWhich, band: Option<(u32, Option<String>)>) -> anyhow::Result<()> {
    let BandWhich { pair, operator, reason, evidence, place } = which;
    let (input, output) = pair.split_once('/').context("--pair: a pair is INPUT/OUTPUT")?;
    let mut access = Access::open(&place).await?;
    for asset in [input, output] {
        access.check_asset(asset).await?;
    }
    let (deviation_bps, middle) = band.unzip();
    let middle = middle.flatten().map(|middle| middle.parse()).transpose().context("--middle")?;
    let change = BandChange { input: input.to_owned(), output: output.to_owned(), deviation_bps, middle };
    let maker = Maker { operator: &operator, reason: &reason, evidence: &evidence };
    print_requested(place.json, &request(&mut access.conn, &change, maker).await?)
}

async fn list(place: PlaceArgs) -> anyhow::Result<()> {
    let mut access = Access::open(&place).await?;
    let rows = bands::list(&mut access.conn).await?;
    let all: Vec<Value> = rows
        .iter()
        .map(|row| {
            json!({"pair": format!("{}/{}", row.input, row.output), "deviationBps": row.deviation_bps,
                   "middle": row.middle, "approval": row.approval, "setAt": row.set_at.to_rfc3339()})
        })
        .collect();
    print(place.json, &json!({ "bands": all }), || {
        rows.iter()
            .map(|row| {
                let middle = row.middle.as_deref().unwrap_or("the reference price");
                let (input, output, bps) = (&row.input, &row.output, row.deviation_bps);
                format!("{input}/{output}  {bps} bps around {middle}  by {}", row.approval)
            })
            .collect()
    })
}

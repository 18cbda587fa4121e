//! `dvp partner move …`: a partner moves to another cell.

use dvp_core::moves::{self, HeldBalance, Progress, Side};
use dvp_core::requests::Maker;
use serde_json::json;

use super::approval::print_requested;
use crate::access::Access;
use crate::cli::{MoveCancel, MoveCommand, MoveRecord, MoveRequest, MoveRun, MoveStatus, Moving, PlaceArgs};
use crate::output::print;

pub(crate) async fn run(command: MoveCommand) -> anyhow::Result<()> {
    match command {
        MoveCommand::Request(args) => request(args).await,
        MoveCommand::Run(args) => carry_out(args).await,
        MoveCommand::Status(MoveStatus { moving }) => status(moving).await,
        MoveCommand::Cancel(args) => cancel(args).await,
        MoveCommand::Record(args) => record(args).await,
    }
}

async fn request(args: MoveRequest) -> anyhow::Result<()> {
    let MoveRequest { name, to, operator, reason, evidence, place } = args;
    let mut access = Access::open(&place).await?;
    let maker = Maker { operator: &operator, reason: &reason, evidence: &evidence };
    print_requested(place.json, &moves::request(&mut access.conn, &name, to, maker).await?)
}

/// The two cells of a move.
async fn both(moving: &Moving) -> anyhow::Result<(Access, Access)> {
    let target = PlaceArgs { dir: None, config: Some(moving.to_config.clone()), json: moving.place.json };
    Ok((Access::open(&moving.place).await?, Access::open(&target).await?))
}

async fn carry_out(args: MoveRun) -> anyhow::Result<()> {
    let MoveRun { moving, operator, dry_run } = args;
    if dry_run {
        return status(moving).await;
    }
    let (mut source, mut target) = both(&moving).await?;
    let (mut from, mut to) = (side(&mut source), side(&mut target));
    let progress = moves::run(&mut from, &mut to, &moving.name, &operator).await?;
    shown(&moving, &progress)
}

fn side(access: &mut Access) -> Side<'_> {
    Side { conn: &mut access.conn, vault: &access.vault }
}

async fn status(moving: Moving) -> anyhow::Result<()> {
    let (mut source, mut target) = both(&moving).await?;
    let (mut from, mut to) = (side(&mut source), side(&mut target));
    let progress = moves::progress(&mut from, &mut to, &moving.name).await?;
    shown(&moving, &progress)
}

fn shown(moving: &Moving, progress: &Progress) -> anyhow::Result<()> {
    print(moving.place.json, &json!(progress), || {
        let Progress { id, source, target, source_state, target_state, open_at_source, .. } = progress;
        let there = target_state.as_deref().unwrap_or("nothing yet");
        let mut lines = vec![
            format!("{id}: {} from {source} ({source_state}) to {target} ({there})", moving.name),
            format!("{open_at_source} orders end in {source}"),
        ];
        if progress.redirected_orders > 0 {
            lines.push(format!(
                "{} waiting orders of {source} pay another account than {target} is instructed: dvp partner instruct in {source}",
                progress.redirected_orders
            ));
        }
        lines.extend(progress.obstacles.iter().map(|obstacle| format!("not now: {obstacle}")));
        lines.extend(progress.balances.iter().map(|held| {
            let HeldBalance { asset, available_minor, reserved_minor } = held;
            format!(
                "{available_minor} of {asset} available in {source}, {reserved_minor} reserved: dvp transfer request send"
            )
        }));
        lines.extend(progress.sessions.iter().map(|one| format!("{}: {}", one.session_id, one.state)));
        lines
    })
}

async fn cancel(args: MoveCancel) -> anyhow::Result<()> {
    let MoveCancel { moving, operator } = args;
    let (mut source, mut target) = both(&moving).await?;
    let ended = moves::cancel(&mut source.conn, &mut target.conn, &moving.name, &operator).await?;
    print(moving.place.json, &json!({"id": ended.id, "state": ended.state}), || {
        vec![format!("{} is {}: {} stays in {}", ended.id, ended.state, moving.name, ended.source)]
    })
}

async fn record(args: MoveRecord) -> anyhow::Result<()> {
    let MoveRecord { moving, operator, reason, evidence } = args;
    let (mut source, mut target) = both(&moving).await?;
    let (mut from, mut to) = (side(&mut source), side(&mut target));
    let maker = Maker { operator: &operator, reason: &reason, evidence: &evidence };
    let requested = moves::request_left(&mut from, &mut to, &moving.name, maker).await?;
    print_requested(moving.place.json, &requested)
}

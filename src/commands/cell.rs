//! `dvp cell map`: the maps of a proxy in front of several cells.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, bail, ensure};
use dvp_domain::cell::CellId;
use dvp_store::{deployment, moves};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;

use crate::access::Access;
use crate::cli::{CellCommand, CellMap, PlaceArgs};
use crate::output::print;

const KEYS: &str = "dvp-keys.map";
const SESSIONS: &str = "dvp-sessions.map";

/// Where each of the partners' names is routed.
type Map = BTreeMap<String, CellId>;

pub(crate) async fn run(command: CellCommand) -> anyhow::Result<()> {
    match command {
        CellCommand::Map(args) => map(args).await,
    }
}

async fn map(args: CellMap) -> anyhow::Result<()> {
    let (mut keys, mut sessions, mut cells) = (Map::new(), Map::new(), Vec::new());
    for config in &args.configs {
        let place = PlaceArgs { dir: None, config: Some(config.clone()), json: args.json };
        let mut access = Access::open(&place).await.with_context(|| config.display().to_string())?;
        let cell = deployment::find_cell(&mut access.conn).await?;
        let cell = cell.with_context(|| format!("{} has no [cell]", config.display()))?;
        ensure!(!cells.contains(&cell), "cell {cell} is given twice");
        cells.push(cell);
        let (prefixes, senders) = moves::list_map(&mut access.conn).await?;
        add(&mut keys, prefixes, cell)?;
        add(&mut sessions, senders, cell)?;
    }
    for (name, map) in [(KEYS, &keys), (SESSIONS, &sessions)] {
        let path = args.dir.join(name);
        replace(&path, map).with_context(|| path.display().to_string())?;
        for socket in &args.sockets {
            load(socket, &path, map).await.with_context(|| socket.display().to_string())?;
        }
    }
    let value = json!({"cells": cells, "keys": keys, "sessions": sessions});
    print(args.json, &value, || {
        vec![format!("{} keys and {} sessions of {} cells", keys.len(), sessions.len(), cells.len())]
    })
}

fn add(map: &mut Map, names: Vec<String>, cell: CellId) -> anyhow::Result<()> {
    for name in names {
        // A line of a map ends the name at the first space.
        ensure!(!name.contains(char::is_whitespace), "{name:?} cannot be a key of a map");
        if let Some(other) = map.insert(name.clone(), cell) {
            bail!("{name} is in the cells {other} and {cell}: nothing was written");
        }
    }
    Ok(())
}

fn lines(map: &Map) -> String {
    map.iter().map(|(name, cell)| format!("{name} {cell}\n")).collect()
}

/// Replaces a file as a whole: a proxy that starts now reads the old one or the new one.
fn replace(path: &Path, map: &Map) -> std::io::Result<()> {
    let beside = path.with_extension("map.new");
    std::fs::write(&beside, format!("# Written by `dvp cell map`.\n{}", lines(map)))?;
    std::fs::rename(beside, path)
}

/// Has a running proxy take a map over: the new version is prepared beside the old one and put in its place at once.
async fn load(socket: &Path, path: &Path, map: &Map) -> anyhow::Result<()> {
    let path = path.display();
    let prepared = ask(socket, &format!("prepare map {path}\n")).await?;
    let version = prepared.trim().strip_prefix("New version created: ");
    let version = version.with_context(|| format!("the proxy answered: {}", prepared.trim()))?;
    if !map.is_empty() {
        let added = ask(socket, &format!("add map @{version} {path} <<\n{}\n", lines(map))).await?;
        ensure!(added.trim().is_empty(), "the proxy answered: {}", added.trim());
    }
    let done = ask(socket, &format!("commit map @{version} {path}\n")).await?;
    ensure!(done.trim().is_empty(), "the proxy answered: {}", done.trim());
    Ok(())
}

async fn ask(socket: &Path, command: &str) -> anyhow::Result<String> {
    let mut stream = UnixStream::connect(socket).await.context("the proxy's socket")?;
    stream.write_all(command.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

//! `dvp cell map`: the map of FIX sessions of a proxy in front of several cells.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use clap::{Args, Subcommand};
use dvp_domain::cell::CellId;
use dvp_store::database::deployment;
use dvp_store::durable::{self, Readers};
use dvp_store::fix::{self, MappedSession};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;

use crate::access::Access;
use crate::cli::PlaceArgs;
use crate::output::print;

#[derive(Debug, Subcommand)]
pub(crate) enum CellCommand {
    /// Write the map by which a proxy finds the cell of a FIX session.
    ///
    /// From the databases of all cells, so give every configuration. The file is replaced as a whole. With --socket the
    /// running proxy takes the map over at once, as a whole. A session that two cells have keeps its line and is named, and
    /// the command ends with an error then.
    #[command(
        after_help = "Example:\n  dvp cell map --config a.toml --config b.toml --dir /etc/haproxy --socket /run/haproxy/dvp.sock"
    )]
    Map(CellMap),
}

#[derive(Debug, Args)]
pub(crate) struct CellMap {
    /// The configuration of a cell, once for each cell.
    #[arg(long = "config", value_name = "FILE", required = true)]
    pub configs: Vec<PathBuf>,
    /// Where dvp-sessions.map is.
    #[arg(long, value_name = "DIR")]
    pub dir: PathBuf,
    /// The socket of a proxy that runs.
    #[arg(long = "socket", value_name = "FILE")]
    pub sockets: Vec<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

const SESSIONS: &str = "dvp-sessions.map";

/// Where each name is routed.
type Map = BTreeMap<String, CellId>;
/// The cells that have a name.
type Claims = BTreeMap<String, Vec<CellId>>;

pub(crate) async fn run(command: CellCommand) -> anyhow::Result<()> {
    match command {
        CellCommand::Map(args) => map(args).await,
    }
}

async fn map(args: CellMap) -> anyhow::Result<()> {
    let (mut sessions, mut disabled) = (Claims::new(), Claims::new());
    let mut cells = Vec::new();
    for config in &args.configs {
        let place = PlaceArgs { dir: None, config: Some(config.clone()), json: args.json };
        let mut access = Access::open(&place).await.with_context(|| config.display().to_string())?;
        let cell = deployment::find_cell(&mut access.conn).await?;
        let cell = cell.with_context(|| format!("{} has no [cell]", config.display()))?;
        ensure!(!cells.contains(&cell), "cell {cell} is given twice");
        cells.push(cell);
        for MappedSession { session_id, enabled } in fix::list_mapped(&mut access.conn).await? {
            claim(if enabled { &mut sessions } else { &mut disabled }, session_id, cell)?;
        }
    }
    add_disabled(&mut sessions, disabled);
    let mut conflicts = Vec::new();
    let sessions = write(&args, sessions, &mut conflicts).await?;
    let value = json!({"cells": cells, "sessions": sessions, "conflicts": conflicts});
    print(args.json, &value, || vec![format!("{} sessions of {} cells", sessions.len(), cells.len())])?;
    ensure!(conflicts.is_empty(), "{}: they are where they were, all else was written", conflicts.join("; "));
    Ok(())
}

fn claim(claims: &mut Claims, name: String, cell: CellId) -> anyhow::Result<()> {
    // A line of a map ends the name at the first space.
    ensure!(!name.contains(char::is_whitespace), "{name:?} cannot be a key of a map");
    claims.entry(name).or_default().push(cell);
    Ok(())
}

/// A disabled session has a line, so that its peer needs no new map when it is enabled; not where another cell has the
/// session enabled.
fn add_disabled(sessions: &mut Claims, disabled: Claims) {
    for (name, mut cells) in disabled {
        cells.truncate(1);
        sessions.entry(name).or_insert(cells);
    }
}

/// The cell of each name, and the conflicts. A name that several cells have keeps its line, if it is of one of them.
fn settle(claims: Claims, earlier: &Map) -> (Map, Vec<String>) {
    let (mut map, mut conflicts) = (Map::new(), Vec::new());
    for (name, cells) in claims {
        if let [cell] = cells.as_slice() {
            map.insert(name, *cell);
            continue;
        }
        let shown: Vec<String> = cells.iter().map(ToString::to_string).collect();
        conflicts.push(format!("{name} is in the cells {}", shown.join(" and ")));
        if let Some(cell) = earlier.get(&name).filter(|cell| cells.contains(cell)) {
            map.insert(name, *cell);
        }
    }
    (map, conflicts)
}

/// Writes a map, and has the proxies take it over. Adds its conflicts.
async fn write(args: &CellMap, claims: Claims, conflicts: &mut Vec<String>) -> anyhow::Result<Map> {
    let path = args.dir.join(SESSIONS);
    let earlier = read(&path).with_context(|| path.display().to_string())?;
    let (map, found) = settle(claims, &earlier);
    conflicts.extend(found);
    replace(&path, &map).with_context(|| path.display().to_string())?;
    for socket in &args.sockets {
        load(socket, &path, &map).await.with_context(|| socket.display().to_string())?;
    }
    Ok(map)
}

/// The map in a file; empty without one.
fn read(path: &Path) -> std::io::Result<Map> {
    let text = match std::fs::read_to_string(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Map::new()),
        text => text?,
    };
    let lines = text.lines().filter_map(|line| line.split_once(' '));
    Ok(lines.filter_map(|(name, cell)| Some((name.to_owned(), cell.parse().ok()?))).collect())
}

fn lines(map: &Map) -> String {
    map.iter().map(|(name, cell)| format!("{name} {cell}\n")).collect()
}

/// Replaces a file as a whole: a proxy that starts now reads the old one or the new one.
fn replace(path: &Path, map: &Map) -> std::io::Result<()> {
    let text = format!("# Written by `dvp cell map`.\n{}", lines(map));
    durable::write(path, text.as_bytes(), Readers::Group)
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

#[cfg(test)]
mod tests {
    use super::*;

    fn claims(names: &[(&str, &str)]) -> Claims {
        let mut claims = Claims::new();
        for (name, cell) in names {
            claim(&mut claims, (*name).to_owned(), cell.parse().unwrap()).unwrap();
        }
        claims
    }

    fn settled(claims: Claims, earlier: &[(&str, &str)]) -> (String, Vec<String>) {
        let earlier =
            earlier.iter().map(|(name, cell)| ((*name).to_owned(), cell.parse().unwrap())).collect();
        let (map, conflicts) = settle(claims, &earlier);
        (lines(&map), conflicts)
    }

    #[test]
    fn a_session_is_where_it_is_enabled_and_a_disabled_one_is_no_conflict() {
        let mut sessions = claims(&[("S1", "00b"), ("S2", "00a")]);
        add_disabled(&mut sessions, claims(&[("S1", "00a"), ("S3", "00b"), ("S4", "00b"), ("S4", "00a")]));
        assert_eq!(settled(sessions, &[]), ("S1 00b\nS2 00a\nS3 00b\nS4 00b\n".to_owned(), Vec::new()));
    }

    #[test]
    fn a_conflict_is_named_and_keeps_its_line_and_all_others_are_written() {
        let both = || claims(&[("S1", "00a"), ("S1", "00b"), ("S2", "00b")]);
        let said = vec!["S1 is in the cells 00a and 00b".to_owned()];
        assert_eq!(
            settled(both(), &[("S1", "00b"), ("S2", "00a")]),
            ("S1 00b\nS2 00b\n".to_owned(), said.clone())
        );
        for earlier in [&[][..], &[("S1", "00c")]] {
            assert_eq!(settled(both(), earlier), ("S2 00b\n".to_owned(), said.clone()));
        }
    }

    #[test]
    fn a_map_is_read_as_it_was_written() {
        let path = std::env::temp_dir().join(format!("dvp-cell-map-{}.map", std::process::id()));
        assert_eq!(read(&path).unwrap(), Map::new());
        let (map, _) = settle(claims(&[("FIX.4.4:DVP->ACME", "00b")]), &Map::new());
        replace(&path, &map).unwrap();
        let found = read(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(found, map);
    }
}

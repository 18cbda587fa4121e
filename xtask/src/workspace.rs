//! The crates of the workspace, as `cargo metadata` lists them.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};
use serde_json::Value;

use crate::graph::Graph;

/// A crate of the workspace.
#[derive(Debug, Clone)]
pub struct Member {
    pub name: String,
    /// The folder of its manifest.
    pub folder: PathBuf,
    /// The crates of the workspace that it is built from, optional ones too; not those of its tests.
    pub dependencies: Vec<String>,
}

/// The crates of the workspace at `root`, by name.
pub fn members(root: &Path) -> anyhow::Result<Vec<Member>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--no-deps"])
        .current_dir(root)
        .output()
        .context("cargo metadata")?;
    ensure!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout)?;
    let packages = metadata["packages"].as_array().context("cargo metadata lists no packages")?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let names: Vec<String> = packages.iter().map(|package| text(&package["name"])).collect();
    let mut members: Vec<Member> = packages
        .iter()
        .map(|package| {
            let needs = package["dependencies"].as_array().into_iter().flatten();
            let normal = needs.filter(|need| need["kind"].is_null()).map(|need| text(&need["name"]));
            let manifest = PathBuf::from(text(&package["manifest_path"]));
            Member {
                name: text(&package["name"]),
                folder: manifest.parent().map(Path::to_owned).unwrap_or_default(),
                dependencies: normal.filter(|name| names.contains(name)).collect(),
            }
        })
        .collect();
    members.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(members)
}

/// Which crate is built from which.
pub fn graph(members: &[Member]) -> Graph {
    let mut graph = Graph::default();
    for member in members {
        graph.add(&member.name);
        for dependency in &member.dependencies {
            graph.add_edge(&member.name, dependency);
        }
    }
    graph
}

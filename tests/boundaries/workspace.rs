//! The crates of the workspace, as `cargo metadata` lists them.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::graph::Graph;

/// A crate of the workspace.
#[derive(Debug, Clone)]
pub(crate) struct Member {
    pub(crate) name: String,
    /// The folder of its manifest.
    pub(crate) folder: PathBuf,
    /// The crates of the workspace that it is built from, optional ones too; not those of its tests.
    pub(crate) dependencies: Vec<String>,
}

/// The crates by name.
pub(crate) fn members(metadata: &str) -> Vec<Member> {
    let metadata: Value = serde_json::from_str(metadata).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
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
    members
}

/// Which crate is built from which.
pub(crate) fn graph(members: &[Member]) -> Graph {
    let mut graph = Graph::default();
    for member in members {
        graph.add(&member.name);
        for dependency in &member.dependencies {
            graph.add_edge(&member.name, dependency);
        }
    }
    graph
}

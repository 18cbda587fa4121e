//! `cargo xtask graph`: the crates of the workspace and the modules of each folder, by layer, with edges and cycles.
//! `cargo xtask dist FOLDER`: what is released.

use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

use anyhow::bail;
use xtask::graph::Graph;
use xtask::{dist, modules, workspace};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match run(&args) {
        Ok(text) => {
            // A reader that has gone has seen enough.
            let _ = std::io::stdout().write_all(text.as_bytes());
            ExitCode::SUCCESS
        }
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &[String]) -> anyhow::Result<String> {
    let names: Vec<&str> = args.iter().map(String::as_str).collect();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."));
    let only = match names.as_slice() {
        ["graph", only @ ..] => only,
        ["dist", out] => return dist::run(root, Path::new(out)).map(|()| String::new()),
        _ => bail!("usage: cargo xtask graph [CRATE]... | cargo xtask dist FOLDER"),
    };
    let members = workspace::members(root)?;
    let mut text = String::new();
    if only.is_empty() {
        describe(&mut text, "workspace", &workspace::graph(&members));
    }
    for member in members.iter().filter(|member| only.is_empty() || only.contains(&member.name.as_str())) {
        for (below, graph) in modules::graphs(&modules::sources(&member.folder)?) {
            let name = std::iter::once(&member.name).chain(&below).cloned().collect::<Vec<_>>().join("::");
            describe(&mut text, &name, &graph);
        }
    }
    Ok(text)
}

fn describe(text: &mut String, name: &str, graph: &Graph) {
    text.push_str(&format!("{name}\n"));
    for (level, layer) in graph.layers().iter().enumerate().rev() {
        text.push_str(&format!("  layer {level}: {}\n", layer.join(" ")));
    }
    for (from, targets) in graph.edges().filter(|(_, targets)| !targets.is_empty()) {
        let targets: Vec<&str> = targets.iter().map(String::as_str).collect();
        text.push_str(&format!("  {from} -> {}\n", targets.join(" ")));
    }
    match graph.cycles().as_slice() {
        [] => text.push_str("  no cycles\n"),
        cycles => {
            for cycle in cycles {
                text.push_str(&format!("  cycle: {}\n", cycle.join(" ")));
            }
        }
    }
}

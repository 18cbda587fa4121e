//! A crate's modules and their imports of each other, read from the text of its files.
//!
//! Modules are those of the crate's root; what is below one counts as its own. A path counts wherever it stands, in a
//! `use` or in the code, when it begins with `crate` or `super`. Tests are left out.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::graph::Graph;

/// A source file and the module path it has in its crate.
#[derive(Debug, Clone)]
pub struct Source {
    pub path: PathBuf,
    pub module: Vec<String>,
    /// Without comments and test modules.
    pub code: String,
}

/// The sources of a crate, without its tests.
pub fn sources(folder: &Path) -> anyhow::Result<Vec<Source>> {
    let root = folder.join("src");
    let mut found = Vec::new();
    let mut open = vec![root.clone()];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
            let path = entry?.path();
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            if name == "tests" {
                continue;
            }
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let below = path.strip_prefix(&root)?.with_extension("");
                let mut module: Vec<String> =
                    below.iter().map(|part| part.to_string_lossy().into_owned()).collect();
                if ["mod", "lib", "main"].contains(&name.as_str()) {
                    module.pop();
                }
                let code = code(&fs::read_to_string(&path)?);
                found.push(Source { path, module, code });
            }
        }
    }
    found.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(found)
}

/// A file's text without comments and without its test module, which stands last.
fn code(text: &str) -> String {
    let mut code = String::new();
    for line in text.lines() {
        if line.starts_with("#[cfg(test)]") || line.starts_with("#[cfg(all(test") {
            break;
        }
        if !line.trim_start().starts_with("//") {
            code.push_str(line);
            code.push('\n');
        }
    }
    code
}

/// Which module of the crate's root imports which.
pub fn graph(sources: &[Source]) -> Graph {
    let tops: BTreeSet<&str> =
        sources.iter().filter_map(|source| source.module.first().map(String::as_str)).collect();
    let mut graph = Graph::default();
    for top in &tops {
        graph.add(top);
    }
    for source in sources {
        let Some(own) = source.module.first() else { continue };
        for target in imports(source).iter().filter(|target| tops.contains(target.as_str())) {
            if target != own {
                graph.add_edge(own, target);
            }
        }
    }
    graph
}

/// The first segments below the crate's root that a source names.
fn imports(source: &Source) -> BTreeSet<String> {
    let mut named = BTreeSet::new();
    let to_root = "super::".repeat(source.module.len());
    for start in ["crate::", to_root.as_str()] {
        for (at, _) in source.code.match_indices(start) {
            let before = source.code.get(..at).and_then(|text| text.chars().next_back());
            let is_path_start =
                before.is_none_or(|c| !c.is_alphanumeric() && c != '_' && c != ':' && c != '$');
            if let Some(rest) = source.code.get(at + start.len()..).filter(|_| is_path_start) {
                named.extend(first_segments(rest));
            }
        }
    }
    named
}

/// `a::b` names `a`; `{a::b, c}` names `a` and `c`.
fn first_segments(path: &str) -> Vec<String> {
    let word = |text: &str| -> String {
        text.trim_start().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
    };
    let Some(group) = path.strip_prefix('{') else { return vec![word(path)] };
    let mut segments = vec![word(group)];
    let mut depth = 0_u32;
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => segments.extend(group.get(at + 1..).map(word)),
            _ => {}
        }
    }
    segments.retain(|segment| !segment.is_empty());
    segments
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(module: &[&str], text: &str) -> Source {
        let module = module.iter().map(|part| (*part).to_owned()).collect();
        Source { path: PathBuf::new(), module, code: code(text) }
    }

    #[test]
    fn imports_are_the_first_segments_of_paths_outside_tests() {
        let sources = [
            source(
                &["engine"],
                "use crate::{store::{A, B}, writer::Unit};\n// crate::no::X\nfn f() { super::chain::g() }",
            ),
            source(&["writer"], "#[cfg(test)]\nmod tests { use crate::engine::Engine; }"),
            source(&["writer", "batch"], "use super::unit::Unit;\nuse super::super::store;\n"),
            source(&["store"], ""),
            source(&["chain"], "pub use dvp_store::crate_like;"),
            source(&[], "pub use crate::engine::Engine;"),
        ];
        let graph = graph(&sources);
        let edges: Vec<String> = graph
            .edges()
            .map(|(from, to)| format!("{from}: {}", to.iter().cloned().collect::<Vec<_>>().join(" ")))
            .collect();
        assert_eq!(edges, ["chain: ", "engine: chain store writer", "store: ", "writer: store"]);
        assert!(graph.cycles().is_empty());
    }
}

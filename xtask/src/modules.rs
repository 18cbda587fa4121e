//! A crate's modules and their imports of each other, read from the text of its files.
//!
//! The modules of a folder make a graph; what is below one counts as its own. A path counts wherever it stands, in a `use`
//! or in the code, when it begins with `crate`, `super` or `self`. Tests are left out.

use std::collections::{BTreeMap, BTreeSet};
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

/// Which modules of each folder import which: the graph of the modules below a path, the crate's root first.
pub fn graphs(sources: &[Source]) -> BTreeMap<Vec<String>, Graph> {
    let modules: BTreeSet<&[String]> = sources.iter().map(|source| source.module.as_slice()).collect();
    let mut graphs = BTreeMap::<Vec<String>, Graph>::new();
    for module in &modules {
        if let Some((name, parent)) = module.split_last() {
            graphs.entry(parent.to_vec()).or_default().add(name);
        }
    }
    for source in sources {
        for target in imports(source) {
            let shared = source.module.iter().zip(&target).take_while(|(own, other)| own == other).count();
            let (Some(own), Some(other)) = (source.module.get(shared), target.get(shared)) else { continue };
            if modules.contains(&target[..=shared]) {
                graphs.entry(target[..shared].to_vec()).or_default().add_edge(own, other);
            }
        }
    }
    graphs
}

/// The paths below the crate's root that a source names.
fn imports(source: &Source) -> BTreeSet<Vec<String>> {
    let mut named = BTreeSet::new();
    for (at, _) in source.code.match_indices("::") {
        let (before, rest) = source.code.split_at(at);
        let word = before.rsplit(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default();
        let is_path_start = !before[..before.len() - word.len()].ends_with([':', '$']);
        let base = match word {
            "crate" => &[],
            "super" => source.module.split_last().map_or(&[][..], |(_, parent)| parent),
            "self" => source.module.as_slice(),
            _ => continue,
        };
        if is_path_start {
            follow(base.to_vec(), &rest[2..], &mut named);
        }
    }
    named
}

/// Adds the paths that begin with `base` and go on as `rest` says, such as `a::b`, `{a::{b, c}, d}` or `super::a`.
/// Returns how much of it the path is.
fn follow(mut base: Vec<String>, rest: &str, named: &mut BTreeSet<Vec<String>>) -> usize {
    let spaces = rest.len() - rest.trim_start().len();
    let text = &rest[spaces..];
    if let Some(group) = text.strip_prefix('{') {
        let mut at = 0;
        loop {
            at += follow(base.clone(), &group[at..], named);
            let Some(next) = group[at..].find([',', '}']) else { return rest.len() };
            at += next + 1;
            if group[..at].ends_with('}') {
                return spaces + 1 + at;
            }
        }
    }
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    match &text[..end] {
        "" => {}
        "super" => drop(base.pop()),
        "self" => {}
        word => base.push(word.to_owned()),
    }
    if let Some(further) = text[end..].strip_prefix("::") {
        return spaces + end + 2 + follow(base, further, named);
    }
    named.insert(base);
    spaces + end
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(module: &[&str], text: &str) -> Source {
        let module = module.iter().map(|part| (*part).to_owned()).collect();
        Source { path: PathBuf::new(), module, code: code(text) }
    }

    fn edges(graph: &Graph) -> Vec<String> {
        let edge = |(from, to): (&str, &BTreeSet<String>)| {
            format!("{from}: {}", to.iter().cloned().collect::<Vec<_>>().join(" "))
        };
        graph.edges().map(edge).collect()
    }

    #[test]
    fn imports_are_paths_outside_tests() {
        let sources = [
            source(
                &["engine"],
                "use crate::{store::{A, B}, writer::Unit};\n// crate::no::X\nfn f() { super::chain::g() }",
            ),
            source(&["writer"], "#[cfg(test)]\nmod tests { use crate::engine::Engine; }"),
            source(&["writer", "batch"], "use super::unit::Unit;\nuse super::super::store;\n"),
            source(
                &["writer", "unit"],
                "use super::{batch::{Batch, Size}, plan};\nuse crate::writer::plan::Plan;",
            ),
            source(&["writer", "plan"], "use self::inner::X; mod inner;"),
            source(&["store"], ""),
            source(&["chain"], "pub use dvp_store::crate_like;"),
            source(&[], "pub use crate::engine::Engine;"),
        ];
        let graphs = graphs(&sources);
        let [root, writer] = [&graphs[&vec![]], &graphs[&vec!["writer".to_owned()]]];
        assert_eq!(edges(root), ["chain: ", "engine: chain store writer", "store: ", "writer: store"]);
        assert!(root.cycles().is_empty());
        assert_eq!(edges(writer), ["batch: unit", "plan: ", "unit: batch plan"]);
        assert_eq!(writer.cycles(), [["batch", "unit"]]);
    }
}

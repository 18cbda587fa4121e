//! Examples of the workspace as programs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// How the variables begin that cargo sets for a test. They would make build scripts run again; others are settings.
const OF_A_TEST: [&str; 6] =
    ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_CRATE_", "CARGO_BIN_", "CARGO_PRIMARY_", "CARGO_TARGET_TMPDIR"];

/// Builds an example, unless `cargo test --workspace` has, and returns its program beside that of the test.
///
/// Built with other features than the test it would compile its dependencies again, which takes minutes and gigabytes.
pub fn example(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let program = test.parent().and_then(|deps| deps.parent()).unwrap().join("examples").join(name);
    if is_built(&program) == Some(true) {
        return program;
    }
    let mut build = Command::new(env!("CARGO"));
    for (name, _) in std::env::vars().filter(|(name, _)| OF_A_TEST.iter().any(|set| name.starts_with(set))) {
        build.env_remove(name);
    }
    let built = build.args(["build", "--quiet", "--workspace", "--example", name]).status().unwrap();
    assert!(built.success(), "example {name} cannot be built");
    program
}

/// Whether a program is newer than each of its sources, which cargo lists beside it.
fn is_built(program: &Path) -> Option<bool> {
    let changed = |path: &str| fs::metadata(path).and_then(|found| found.modified()).ok();
    let built = changed(program.to_str()?)?;
    let rule = fs::read_to_string(program.with_extension("d")).ok()?;
    let mut sources = rule.split_once(": ")?.1.split_whitespace();
    Some(sources.all(|source| changed(source).is_some_and(|at| at <= built)))
}

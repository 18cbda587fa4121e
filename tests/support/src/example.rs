//! Examples of the workspace as programs.

use std::path::PathBuf;
use std::process::Command;

/// How the variables begin that cargo sets for a test. They would make build scripts run again; others are settings.
const OF_A_TEST: [&str; 6] =
    ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_CRATE_", "CARGO_BIN_", "CARGO_PRIMARY_", "CARGO_TARGET_TMPDIR"];

/// Builds an example, and returns its program beside that of the test.
///
/// Built for the whole workspace: `cargo test --workspace` has compiled its dependencies with the same features, and
/// another selection of packages would compile them again.
pub fn example(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let program = test.parent().and_then(|deps| deps.parent()).unwrap().join("examples").join(name);
    let mut build = Command::new(env!("CARGO"));
    for (name, _) in std::env::vars().filter(|(name, _)| OF_A_TEST.iter().any(|set| name.starts_with(set))) {
        build.env_remove(name);
    }
    let built = build.args(["build", "--quiet", "--workspace", "--example", name]).status().unwrap();
    assert!(built.success(), "example {name} cannot be built");
    program
}

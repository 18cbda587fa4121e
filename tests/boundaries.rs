//! The house's walls: who may depend on whom, and what the pure crates may not gain.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail their test")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

/// Each crate and the crates of ours it may use. Optional dependencies count.
const ALLOWED: [(&str, &[&str]); 11] = [
    ("dvp-domain", &[]),
    ("dvp-store", &["dvp-domain"]),
    ("dvp-rails", &["dvp-domain", "dvp-store"]),
    ("dvp-sandbox", &["dvp-domain", "dvp-rails", "dvp-store"]),
    ("dvp-fix", &[]),
    ("dvp-core", &["dvp-domain", "dvp-rails", "dvp-store"]),
    ("dvp-api", &["dvp-core", "dvp-domain", "dvp-store"]),
    ("dvp-fix-gateway", &["dvp-core", "dvp-domain", "dvp-fix", "dvp-store"]),
    ("dvp-chain-indexer", &["dvp-core", "dvp-domain", "dvp-sandbox", "dvp-store"]),
    (
        "dvp",
        &[
            "dvp-api",
            "dvp-chain-indexer",
            "dvp-core",
            "dvp-domain",
            "dvp-fix-gateway",
            "dvp-rails",
            "dvp-sandbox",
            "dvp-store",
        ],
    ),
    (
        "dvp-benches",
        &[
            "dvp-api",
            "dvp-chain-indexer",
            "dvp-core",
            "dvp-domain",
            "dvp-fix",
            "dvp-fix-gateway",
            "dvp-sandbox",
            "dvp-store",
        ],
    ),
];

/// The members of the workspace.
const FOLDERS: [&str; 11] = [
    ".",
    "core",
    "core/domain",
    "core/store",
    "core/rails",
    "fix-gateway",
    "fix-gateway/engine",
    "chain-indexer",
    "api",
    "sandbox",
    "benches",
];

/// The crates that are functions from values to values, and where they live.
const PURE: [(&str, &str); 2] = [("dvp-domain", "core/domain"), ("dvp-fix", "fix-gateway/engine")];

/// What would bring IO, a clock or randomness into a pure crate.
const IMPURE: [&str; 10] =
    ["tokio", "sqlx", "axum", "alloy", "hyper", "reqwest", "mio", "getrandom", "rand", "socket2"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn cargo(args: &[&str]) -> String {
    let output = Command::new(env!("CARGO")).args(args).current_dir(root()).output().unwrap();
    assert!(output.status.success(), "cargo {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// For each workspace crate the names of what it needs to be built and run.
fn normal_dependencies() -> BTreeMap<String, BTreeSet<String>> {
    let metadata: serde_json::Value =
        serde_json::from_str(&cargo(&["metadata", "--format-version", "1", "--no-deps"])).unwrap();
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    metadata["packages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|package| {
            let needs = package["dependencies"].as_array().unwrap().iter();
            let normal = needs.filter(|need| need["kind"].is_null()).map(|need| text(&need["name"]));
            (text(&package["name"]), normal.collect())
        })
        .collect()
}

#[test]
fn crates_depend_one_way_and_services_never_on_each_other() {
    let all = normal_dependencies();
    let allowed: BTreeMap<&str, &[&str]> = ALLOWED.into_iter().collect();
    assert_eq!(all.keys().map(String::as_str).collect::<BTreeSet<_>>(), allowed.keys().copied().collect());
    for (name, needs) in &all {
        let ours = needs.iter().filter(|need| all.contains_key(*need));
        for need in ours {
            assert!(allowed[name.as_str()].contains(&need.as_str()), "{name} may not depend on {need}");
        }
    }
}

/// The packages a pure crate is built from, without versions.
fn tree(package: &str) -> BTreeSet<String> {
    let tree = cargo(&["tree", "-p", package, "-e", "normal", "--prefix", "none", "-f", "{p}"]);
    tree.lines().filter_map(|line| line.split_whitespace().next()).map(ToOwned::to_owned).collect()
}

#[test]
fn a_pure_crate_is_built_from_the_committed_list_and_nothing_that_does_io() {
    for (package, folder) in PURE {
        let path = root().join(folder).join("dependencies.txt");
        let found = tree(package);
        for impure in IMPURE {
            assert!(!found.contains(impure), "{package} gained {impure}");
        }
        let listed = found.iter().map(|name| format!("{name}\n")).collect::<String>();
        if std::env::var_os("UPDATE_EXPECT").is_some() {
            fs::write(&path, &listed).unwrap();
        }
        let committed = fs::read_to_string(&path).unwrap_or_default();
        assert_eq!(committed, listed, "{}: UPDATE_EXPECT=1 rewrites it", path.display());
    }
}

#[test]
fn a_servers_build_has_no_sandbox() {
    let server = cargo(&["tree", "-p", "dvp", "--no-default-features", "-e", "normal", "--prefix", "none"]);
    assert!(server.lines().any(|line| line.starts_with("dvp-core ")), "{server}");
    for absent in ["dvp-sandbox ", "rcgen "] {
        assert!(!server.lines().any(|line| line.starts_with(absent)), "a server is built with {absent}");
    }
}

#[test]
fn a_pure_crates_own_clippy_bans_clocks_and_environment() {
    for (package, folder) in PURE {
        let bans = fs::read_to_string(root().join(folder).join("clippy.toml")).unwrap();
        for banned in ["std::time::Instant::now", "std::time::SystemTime::now", "std::env::var"] {
            assert!(bans.contains(banned), "{package} does not ban {banned}");
        }
    }
}

#[test]
fn every_crate_takes_the_workspaces_lints() {
    for folder in FOLDERS {
        let manifest = fs::read_to_string(root().join(folder).join("Cargo.toml")).unwrap();
        assert!(manifest.contains("[lints]\nworkspace = true"), "{folder}");
    }
}

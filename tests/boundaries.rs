//! Boundaries: the permitted dependencies between crates, and those of the pure crates.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail their test")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use xtask::modules;
use xtask::workspace::{self, Member};

/// Each crate and the crates of ours it may use. Optional dependencies count.
const ALLOWED: [(&str, &[&str]); 16] = [
    ("dvp-domain", &[]),
    ("dvp-store", &["dvp-domain"]),
    ("dvp-rails", &["dvp-domain", "dvp-store"]),
    ("dvp-sandbox", &["dvp-domain", "dvp-rails", "dvp-store"]),
    ("dvp-fix", &[]),
    ("dvp-archive", &["dvp-domain", "dvp-store"]),
    ("dvp-core", &["dvp-domain", "dvp-rails", "dvp-store"]),
    ("dvp-api", &["dvp-core", "dvp-domain", "dvp-store"]),
    ("dvp-ops", &["dvp-core", "dvp-domain", "dvp-rails", "dvp-store"]),
    ("dvp-console", &["dvp-core", "dvp-domain", "dvp-ops", "dvp-store"]),
    ("dvp-fix-gateway", &["dvp-core", "dvp-domain", "dvp-fix", "dvp-store"]),
    ("dvp-chain-indexer", &["dvp-core", "dvp-domain", "dvp-sandbox", "dvp-store"]),
    (
        "dvp",
        &[
            "dvp-api",
            "dvp-archive",
            "dvp-chain-indexer",
            "dvp-console",
            "dvp-core",
            "dvp-domain",
            "dvp-fix-gateway",
            "dvp-ops",
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
            "dvp-console",
            "dvp-core",
            "dvp-domain",
            "dvp-fix",
            "dvp-fix-gateway",
            "dvp-ops",
            "dvp-rails",
            "dvp-sandbox",
            "dvp-store",
            "dvp-testing",
        ],
    ),
    ("dvp-testing", &["dvp-core", "dvp-domain", "dvp-rails", "dvp-sandbox", "dvp-store"]),
    ("xtask", &[]),
];

/// The members of the workspace.
const FOLDERS: [&str; 16] = [
    ".",
    "core",
    "core/domain",
    "core/store",
    "core/rails",
    "ops",
    "fix-gateway",
    "fix-gateway/engine",
    "chain-indexer",
    "api",
    "console",
    "sandbox",
    "archive",
    "benches",
    "tests/support",
    "xtask",
];

/// The crates that are functions from values to values, and where they live.
const PURE: [(&str, &str); 2] = [("dvp-domain", "core/domain"), ("dvp-fix", "fix-gateway/engine")];

/// Dependencies that would bring IO, a clock or randomness into a pure crate.
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

fn members() -> Vec<Member> {
    workspace::members(root()).unwrap()
}

#[test]
fn crates_depend_one_way_and_services_never_on_each_other() {
    let members = members();
    let allowed: BTreeMap<&str, &[&str]> = ALLOWED.into_iter().collect();
    let names: BTreeSet<&str> = members.iter().map(|member| member.name.as_str()).collect();
    assert_eq!(names, allowed.keys().copied().collect());
    for Member { name, dependencies, .. } in &members {
        for need in dependencies {
            assert!(allowed[name.as_str()].contains(&need.as_str()), "{name} may not depend on {need}");
        }
    }
    assert!(workspace::graph(&members).cycles().is_empty());
}

#[test]
fn modules_have_no_import_cycles() {
    let mut found = BTreeSet::new();
    for member in members() {
        for (below, graph) in modules::graphs(&modules::sources(&member.folder).unwrap()) {
            let place = std::iter::once(&member.name).chain(&below).cloned().collect::<Vec<_>>().join("::");
            found.extend(graph.cycles().iter().map(|cycle| (place.clone(), cycle.join(" "))));
        }
    }
    assert!(found.is_empty(), "{found:?}: `cargo xtask graph` shows the edges");
}

/// Where statements stand outside of the store, and why.
const STATEMENTS: [(&str, &str); 5] = [
    ("dvp-sandbox", "makes databases, and keeps the books of providers that stand for the world outside"),
    (
        "dvp-chain-indexer",
        "chain-indexer/src/sim: a test's oracle, which must not see through the store's eyes",
    ),
    ("dvp-benches", "drills and measurements look at the rows themselves"),
    ("dvp-testing", "tests look at the rows themselves"),
    ("dvp-store", "all others"),
];

#[test]
fn sql_statements_are_in_the_store_only() {
    let begins = ["sqlx::query", "query_as(", "query_scalar(", "raw_sql(", "QueryBuilder"];
    for member in members() {
        let is_excepted = STATEMENTS.iter().any(|(name, _)| *name == member.name);
        for source in modules::sources(&member.folder).unwrap() {
            let is_sim = source.module.first().is_some_and(|module| module == "sim");
            if is_excepted && (member.name != "dvp-chain-indexer" || is_sim) || member.name == "xtask" {
                continue;
            }
            for begin in begins {
                assert!(!source.code.contains(begin), "{} has a statement: {begin}", source.path.display());
            }
        }
    }
}

/// The modules that begin writing transactions, in the core and in the crates that serve partners.
const TRANSACTIONS: [(&str, &[&str]); 3] = [
    (
        "dvp-core",
        &["engine::webhooks", "ledger", "operators", "workflow::audit", "workflow::retention", "writer"],
    ),
    // Outcomes of attempts, queues and their leases.
    ("dvp-api", &["delivery"]),
    // The store of a session without the engine, for examples and tests of the session layer.
    ("dvp-fix-gateway", &["store"]),
];

#[test]
fn write_transactions_begin_in_the_listed_modules_only() {
    for member in members() {
        let Some((_, listed)) = TRANSACTIONS.iter().find(|(name, _)| *name == member.name) else { continue };
        for source in modules::sources(&member.folder).unwrap() {
            let module = source.module.join("::");
            // A transaction that begins with `SNAPSHOT` is read only.
            let is_written = |line: &str| {
                line.contains("tx = ") && line.contains(".begin") && !line.contains("(SNAPSHOT)")
            };
            let begins = source.code.lines().any(is_written);
            let is_listed = listed.iter().any(|listed| module.starts_with(listed));
            assert!(!begins || is_listed, "{} begins a transaction", source.path.display());
        }
    }
}

#[test]
fn orders_are_mapped_without_a_clock_prices_or_a_database() {
    let gateway = root().join("fix-gateway");
    let mut seen = 0;
    for source in modules::sources(&gateway).unwrap() {
        if source.module.first().is_some_and(|module| module == "orders") {
            seen += 1;
            for impure in ["now()", "async ", "Engine", "liquidity.snapshot", "PgConnection", "PgPool"] {
                assert!(!source.code.contains(impure), "{} has {impure}", source.path.display());
            }
        }
    }
    assert!(seen > 1, "the module has another name");
}

#[test]
fn settlement_reads_the_time_from_the_injected_clock() {
    let decides = ["engine", "writer", "workflow", "legacy"];
    let mut seen = 0;
    for source in modules::sources(&root().join("core")).unwrap() {
        let decides_nothing = ["engine::webhooks", "workflow::figures"].contains(&&*source.module.join("::"));
        if decides_nothing || source.module.first().is_none_or(|module| !decides.contains(&module.as_str())) {
            continue;
        }
        seen += 1;
        for begin in ["Utc::now", "SystemTime::now", "clock::now", "context::now", " now()", "(now()"] {
            assert!(!source.code.contains(begin), "{} reads the system's: {begin}", source.path.display());
        }
    }
    assert!(seen > decides.len(), "{seen} files");
}

#[test]
fn notifications_are_received_by_one_module() {
    for member in members() {
        for source in modules::sources(&member.folder).unwrap() {
            let is_excepted =
                source.path.ends_with("core/store/src/database/notify.rs") || member.name == "xtask";
            assert!(
                is_excepted || !source.code.contains("PgListener"),
                "{} uses PgListener directly",
                source.path.display()
            );
        }
    }
}

#[test]
fn the_documented_walks_name_existing_files_once() {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let walks = text.split("\n## ").find(|section| section.starts_with("Walks")).unwrap();
    let walks: Vec<&str> = walks.split("\n### ").skip(1).collect();
    assert_eq!(walks.len(), 3);
    for walk in walks {
        let files: Vec<&str> = walk.split('`').filter(|word| word.ends_with(".rs")).collect();
        assert!(files.len() > 10, "{walk}");
        let once: BTreeSet<&&str> = files.iter().collect();
        assert_eq!(once.len(), files.len(), "a file is entered twice: {files:?}");
        for file in files {
            assert!(root().join(file).is_file(), "{file}");
        }
    }
}

/// The packages a pure crate is built from, without versions.
fn tree(package: &str) -> BTreeSet<String> {
    let tree = cargo(&["tree", "-p", package, "-e", "normal", "--prefix", "none", "-f", "{p}"]);
    tree.lines().filter_map(|line| line.split_whitespace().next()).map(ToOwned::to_owned).collect()
}

#[test]
fn pure_crates_have_the_committed_dependencies_without_io() {
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
    for absent in ["dvp-sandbox ", "dvp-testing ", "rcgen "] {
        assert!(!server.lines().any(|line| line.starts_with(absent)), "a server is built with {absent}");
    }
}

/// Members of the workspace that only tests and measurements use.
const NEVER_SHIPPED: [&str; 2] = ["dvp-testing", "dvp-benches"];

#[test]
fn no_build_that_is_shipped_lets_items_of_loops_fail() {
    let features = |package: &str| {
        cargo(&["tree", "-p", package, "-e", "normal,features", "--all-features", "--prefix", "none"])
    };
    let is_injecting = |tree: &str| tree.lines().any(|line| line.starts_with("dvp-store feature \"inject\""));
    assert!(is_injecting(&features("dvp-testing")), "the tests inject failures");
    for member in members().iter().filter(|member| !NEVER_SHIPPED.contains(&member.name.as_str())) {
        // All features of the store itself would be asked for.
        if member.name != "dvp-store" {
            assert!(!is_injecting(&features(&member.name)), "{} is shipped with failures", member.name);
        }
    }
}

#[test]
fn pure_crates_ban_clocks_and_environment() {
    for (package, folder) in PURE {
        let bans = fs::read_to_string(root().join(folder).join("clippy.toml")).unwrap();
        for banned in ["std::time::Instant::now", "std::time::SystemTime::now", "std::env::var"] {
            assert!(bans.contains(banned), "{package} does not ban {banned}");
        }
    }
}

#[test]
fn every_crate_inherits_the_workspace_lints() {
    for folder in FOLDERS {
        let manifest = fs::read_to_string(root().join(folder).join("Cargo.toml")).unwrap();
        assert!(manifest.contains("[lints]\nworkspace = true"), "{folder}");
    }
}

/// Names that the glossary's terms have replaced.
const RETIRED: [&str; 26] = [
    "Shelf",
    "Deaf",
    "Duty",
    "Keeper",
    "WebhookLane",
    "Holds",
    "Hands",
    "SignerLane",
    "Once",
    "OncePart",
    "Unasked",
    "Standing",
    "ChainFacts",
    "Door",
    "Penniless",
    "Nonsense",
    "Heard",
    "Told",
    "Asked",
    "Verdict",
    "Claim",
    "Stranger",
    "Desk",
    "Place",
    "Level",
    "NewVerdict",
];

#[test]
fn public_types_have_distinct_names_and_no_retired_ones() {
    let kinds = ["struct ", "enum ", "trait ", "type "];
    let mut types = 0;
    for member in members() {
        let mut seen = BTreeSet::new();
        for source in modules::sources(&member.folder).unwrap() {
            for line in source.code.lines().map(str::trim_start) {
                let Some(item) = line.strip_prefix("pub ") else { continue };
                let Some(named) = kinds.iter().find_map(|kind| item.strip_prefix(kind)) else { continue };
                let name: String = named.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
                assert!(!RETIRED.contains(&name.as_str()), "{}: {name} is retired", source.path.display());
                types += 1;
                assert!(seen.insert(name.clone()), "{} has a second {name}", source.path.display());
            }
        }
    }
    assert!(types > 400, "types are found: {types}");
}

#[test]
fn no_two_migrations_have_one_number() {
    let mut numbers = BTreeSet::new();
    for file in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("migrations")).unwrap() {
        let name = file.unwrap().file_name().into_string().unwrap();
        let number = name.split('_').next().unwrap().to_owned();
        assert!(numbers.insert(number), "{name}: another migration has its number");
    }
    assert!((1..=25).contains(&numbers.len()), "one migration a subject: {numbers:?}");
}

/// What commands may call of the functions of operators: what reads, and what works on the database itself.
const OF_COMMANDS: [&str; 13] = [
    "accounts::token_hash",
    "accounts::{add, invite}",
    "accounts::{new_token, token_hash}",
    "keys::SCOPES",
    "ledger_operations::LEDGER",
    "makers",
    "personal_data",
    "personal_data::AGE_LEAST",
    "requests::Maker",
    "rotation",
    "rotation::{self, Usage}",
    "targets",
    "targets::Targets",
];

#[test]
fn commands_and_pages_change_nothing_as_an_operator() {
    for source in modules::sources(root()).unwrap() {
        for used in source.code.split("use dvp_core::operators::").skip(1) {
            let used = used.split(';').next().unwrap();
            assert!(OF_COMMANDS.contains(&used), "{} uses {used}: actions are in ops", source.path.display());
        }
    }
    for source in modules::sources(&root().join("console")).unwrap() {
        // Who requests a change is named by ops alone.
        assert!(!source.code.contains("Maker {"), "{}: actions are in ops", source.path.display());
    }
}

//! The commands of the runbooks, run beside a sandbox with an order and an endpoint.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::partner::Partner;
use crate::sandbox::{Sandbox, dvp, said};
use crate::webhooks::register;

/// The commands that the pages print in their blocks, and those of ours that they name in their text.
fn commands() -> (BTreeSet<String>, BTreeSet<String>) {
    let (mut whole, mut named) = (BTreeSet::new(), BTreeSet::new());
    for entry in fs::read_dir(root().join("docs/runbooks")).unwrap() {
        let page = fs::read_to_string(entry.unwrap().path()).unwrap();
        for block in page.split("```sh\n").skip(1) {
            whole.extend(block.split("\n```").next().unwrap().lines().map(str::to_owned));
        }
        let parts = page.lines().filter(|line| !line.starts_with("dvp ")).flat_map(|line| line.split('`'));
        named.extend(parts.filter(|text| text.starts_with("dvp ")).map(str::to_owned));
    }
    (whole, named)
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The words of a command, with what a reader puts in.
fn words<'a>(command: &'a str, reference: &'a str, endpoint: &'a str) -> Vec<&'a str> {
    let command = command.strip_prefix("dvp ").unwrap();
    let command = command.strip_suffix(" --config dvp.toml").unwrap_or(command);
    let given = |word: &'a str| match word {
        "exe_…" => reference,
        "ep_…" => endpoint,
        other => other,
    };
    command.split_whitespace().map(given).collect()
}

fn sh(command: &str) -> Output {
    Command::new("sh").args(["-c", command]).stdin(Stdio::null()).output().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_commands_of_the_runbooks_are_carried_out() {
    let sandbox = Sandbox::start_with(&["--webhook-allow-private"]).await;
    let partner = Partner::of(&sandbox);
    let order = partner.order(&sandbox, 0, "000123456789").await;
    let accepted = partner.submit_accepted(&order).await;
    let reference = accepted["reference"].as_str().unwrap();
    register(&sandbox, "https://127.0.0.1:9/").await;
    let endpoints = said(&sandbox, &["webhook", "endpoints"]);
    let endpoint = endpoints["endpoints"][0]["endpointId"].as_str().unwrap();
    let (whole, named) = commands();
    assert!(whole.len() >= 15 && named.len() >= 10, "{whole:?} {named:?}");
    let known = fs::read_to_string(root().join("docs/metrics.md")).unwrap();
    for command in &whole {
        if let Some(rest) = command.strip_prefix("curl -s http://127.0.0.1:9100/metrics | grep -E ") {
            let pattern = rest.trim_matches('\'').trim_start_matches('^');
            let name = pattern.split(['(', '.']).next().unwrap();
            assert!(known.contains(&format!("`{name}")), "{command}: there is no such metric");
            let shell = command.replace("http://127.0.0.1:9100/metrics", &sandbox.text("/metrics"));
            // A counter that has counted nothing is not there.
            let found = sh(&shell);
            assert!(
                matches!(found.status.code(), Some(0 | 1)) && found.stderr.is_empty(),
                "{command}: {found:?}"
            );
        } else if command.starts_with("openssl ") {
            let port = sandbox.value("/fix/tlsPort").to_string();
            let found = sh(&command.replace("localhost:9876", &format!("localhost:{port}")));
            let shown = String::from_utf8_lossy(&found.stdout);
            assert!(shown.contains("notAfter="), "{command}: {found:?}");
        } else {
            assert!(command.ends_with(" --config dvp.toml"), "{command}");
            let output = dvp(&sandbox, &words(command, reference, endpoint));
            let errors = String::from_utf8_lossy(&output.stderr);
            // A list with findings ends with 1.
            let is_list_with_findings =
                command.starts_with("dvp work list") && output.status.code() == Some(1);
            assert!(output.status.success() || is_list_with_findings, "{command}: {errors}");
        }
    }
    for command in &named {
        let mut help = Command::new(env!("CARGO_BIN_EXE_dvp"));
        help.args(words(command, reference, endpoint)).arg("--help").stdin(Stdio::null());
        let output = help.output().unwrap();
        assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    }
    sandbox.stop().await;
}

//! The commands in the guides work as written.

use std::path::Path;
use std::process::Command;

use crate::sandbox::Sandbox;

/// The shell lines under a heading, up to the next heading of its rank.
fn lines(page: &str, heading: &str) -> String {
    let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(page)).unwrap();
    let rank = format!("\n{} ", heading.split(' ').next().unwrap());
    let section = text.split_once(&format!("\n{heading}\n")).unwrap().1;
    let section = section.split(&rank).next().unwrap();
    section.split("```sh\n").skip(1).map(|block| block.split("```").next().unwrap()).collect()
}

/// Types the lines in a directory that has the sandbox in `.dvp`.
fn typed(sandbox: &Sandbox, lines: &str) -> String {
    let dir = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(sandbox.dir(), dir.path().join(".dvp")).unwrap();
    let mut bash = Command::new("bash");
    bash.args(["-eu", "-o", "pipefail", "-c", lines]).current_dir(dir.path());
    let output = bash.output().expect("the guide needs bash");
    let (said, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}\n{errors}");
    said.into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_quick_start_ends_with_a_receipt_and_replays_a_retry() {
    let sandbox = Sandbox::start().await;
    let script = lines("docs/api.md", "## Quick start");
    let said = tokio::task::block_in_place(|| typed(&sandbox, &script));
    for part in ["\"quoteId\":\"qte_", "HTTP/1.1 202 Accepted", "\"_schemaVersion\":\"svc-receipt-1\""] {
        assert!(said.contains(part), "{part} is not in\n{said}");
    }
    assert!(said.to_lowercase().contains("\nx-idempotency-replayed: true"), "{said}");
    assert!(said.contains("\"status\":\"completed\""), "{said}");
    assert_eq!(sandbox.one::<i64>("select count(*) from execution").await, 1);
    let script = lines("README.md", "### REST").replace("python3 docs/tour/rest.py .dvp\n", "");
    let said = tokio::task::block_in_place(|| typed(&sandbox, &script));
    assert!(said.contains("\"candidates\":[{") && said.contains("\"type\":\"payout.completed\""), "{said}");
    sandbox.stop().await;
}

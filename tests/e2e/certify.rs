//! A counterparty's test session, followed by `dvp fix-session certify`, and the report of it.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::fix::FixClient;
use crate::partner::Partner;
use crate::sandbox::{Sandbox, dvp, program, said};

/// The beneficiary whose account ends so.
fn beneficiary<'a>(sandbox: &'a Sandbox, end: &str) -> &'a str {
    let all = sandbox.value("/beneficiaries").as_array().unwrap();
    all.iter().filter_map(Value::as_str).find(|id| id.ends_with(end)).unwrap()
}

/// Follows the script; the Logon resets the numbers.
async fn play(sandbox: &Sandbox) {
    let partner = Partner::of(sandbox);
    let (straight, resting) = (sandbox.text("/beneficiaries/0"), beneficiary(sandbox, "0008"));
    let permit = async |wallet| partner.order(sandbox, wallet, &straight).await["permit"].clone();
    let mut client = FixClient::log_on(sandbox).await;
    client.new_order("T-1", &straight, &permit(1).await).await;
    client.report(|report| report.get(11) == "T-1" && report.get(39) == "2").await;
    client.sell("T-2", &straight, &permit(2).await, &[(55, "NONE/USD")]).await;
    client.report(|report| report.get(11) == "T-2" && report.get(39) == "8").await;
    client.new_order("T-3", resting, &permit(2).await).await;
    client.report(|report| report.get(11) == "T-3" && report.get(39) == "0").await;
    client.cancel("T-4", "T-3").await;
    client.report(|report| report.get(11) == "T-4" && report.get(39) == "4").await;
    client.send_raw("2", &[(7, "1"), (16, "0")]).await;
    client.send_raw("1", &[(112, "all")]).await;
    client.report(|message| message.get(112) == "all").await;
    client.send_raw("5", &[]).await;
    client.report(|message| message.get(35) == "5").await;
}

fn certify(sandbox: &Sandbox, session_id: &str, report: &Path, wait: &str) -> Command {
    let mut command = Command::new(program());
    command.args(["fix-session", "certify", "--session-id", session_id, "--wait", wait]);
    command.arg("--report").arg(report).arg("--dir").arg(sandbox.dir());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

#[tokio::test(flavor = "multi_thread")]
async fn a_test_session_is_followed_and_both_sides_keep_its_signed_report() {
    let sandbox = Sandbox::start().await;
    let part = |name: &str| sandbox.text(&format!("/fix/sessions/0/{name}"));
    let session_id = format!("{}:{}->{}", part("beginString"), part("targetCompId"), part("senderCompId"));
    let place = tempfile::tempdir().unwrap();
    let (file, plain) = (place.path().join("acme.json"), place.path().join("acme.txt"));

    let mut following = certify(&sandbox, &session_id, &file, "240").spawn().unwrap();
    let mut lines = BufReader::new(following.stdout.take().unwrap());
    let mut told = String::new();
    // Only what is done after its beginning counts.
    tokio::task::block_in_place(|| lines.read_line(&mut told).unwrap());
    play(&sandbox).await;
    let output = tokio::task::block_in_place(|| {
        lines.read_to_string(&mut told).unwrap();
        following.wait_with_output().unwrap()
    });
    assert!(output.status.success(), "{told}{}", String::from_utf8_lossy(&output.stderr));
    for said in ["fill: Send a NewOrderSingle(D)", "  passed, by ", "logout: Send a Logout(5)", "passed: "] {
        assert!(told.contains(said), "{said} is not in\n{told}");
    }
    let report: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    assert_eq!(report["report"]["passed"], true, "{report}");
    let fill = &report["report"]["steps"][1];
    assert_eq!((&fill["step"], &fill["messages"][0]["msgType"]), (&json!("fill"), &json!("D")), "{fill}");
    let text = std::fs::read_to_string(plain).unwrap();
    assert!(text.contains(&session_id) && text.contains("cancel: passed."), "{text}");

    let key = report["signature"]["publicKey"].as_str().unwrap();
    let verify = |file: &Path, trusted: [&str; 2]| {
        let words = ["fix-session", "certificate", "--json", "--file", file.to_str().unwrap()];
        let output = Command::new(program()).args(words).args(trusted).output().unwrap();
        let said: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(output.status.success(), said["verified"] == true);
        said
    };
    let dir = sandbox.dir();
    for trusted in [["--public-key", key], ["--dir", dir.to_str().unwrap()]] {
        assert_eq!(verify(&file, trusted)["verified"], true);
    }
    assert_eq!(verify(&file, ["--public-key", &"00".repeat(32)])["fault"], "it is signed with another key");
    let changed = std::fs::read_to_string(&file).unwrap().replacen("\"fill\"", "\"full\"", 1);
    let other = place.path().join("other.json");
    std::fs::write(&other, changed).unwrap();
    assert_eq!(verify(&other, ["--public-key", key])["fault"], "the signature is not of this report");

    // What was done before counts when its time is named, and not otherwise.
    let words = ["fix-session", "certify", "--session-id", &session_id, "--wait", "0", "--report"];
    let words = [&words[..], &[other.to_str().unwrap()]].concat();
    let again = said(&sandbox, &[&words[..], &["--since", "2026-01-01"]].concat());
    assert_eq!(again["report"]["passed"], true, "{again}");
    let later = dvp(&sandbox, &words);
    assert!(!later.status.success());
    let later: Value = serde_json::from_slice(&later.stdout).unwrap();
    assert_eq!(later["report"]["steps"][0]["missing"], "no Logon(A) was accepted", "{later}");
    sandbox.stop().await;
}

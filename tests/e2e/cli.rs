//! Commands beside a running sandbox, as an operator types them.

use std::io::Write;
use std::process::Command;

use dvp_testing::wait::wait_for;
use serde_json::{Value, json};

use crate::partner::Partner;
use crate::sandbox::{Sandbox, dvp, refused, said};
use crate::wait::answer;

fn names(value: &Value) -> Vec<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

/// Asks with a key until the answer is as wanted: a running service believes a key for a second.
async fn answers(sandbox: &Sandbox, key: &Value, wanted: (u16, Option<&str>)) {
    let partner = Partner::with_keys(sandbox, key["apiKey"].as_str().unwrap(), "");
    let ask = async || partner.get("/v1/events").await;
    answer(ask, |(status, body)| (*status, body["error"]["code"].as_str()) == wanted).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn partners_and_keys_are_managed_beside_a_running_service() {
    let sandbox = Sandbox::start().await;
    let created = said(&sandbox, &["partner", "create", "--name", "initech", "--tier", "standard"]);
    assert_eq!(names(&created), ["partnerId"]);
    assert!(
        refused(&sandbox, &["partner", "create", "--name", "initech", "--tier", "standard"])
            .contains("already")
    );
    let partners = said(&sandbox, &["partner", "list"]);
    let ours = partners["partners"].as_array().unwrap().iter().find(|p| p["name"] == "initech").unwrap();
    assert_eq!((&ours["partnerId"], &ours["limitPerMinute"]), (&created["partnerId"], &json!(100)));
    assert_eq!(ours["status"], "enabled");

    let key = said(&sandbox, &["key", "issue", "--partner", "initech", "--env", "test"]);
    assert_eq!(names(&key), ["apiKey", "keyId", "signingSecret"]);
    assert!(key["apiKey"].as_str().unwrap().starts_with("svc_test_"));
    answers(&sandbox, &key, (200, None)).await;
    // With an operator it is a request in a sandbox, too.
    let why = ["--as", "jo", "--reason", "a test", "--evidence", "none"];
    let words = ["key", "issue", "--partner", "initech", "--scopes", "events:read"];
    let asked = said(&sandbox, &[&words[..], &why].concat());
    answers(&sandbox, &asked, (403, Some("API_KEY_DISABLED"))).await;
    let request = asked["approval"].as_str().unwrap();
    said(&sandbox, &["approval", "approve", "--id", request, "--as", "kim"]);
    answers(&sandbox, &asked, (200, None)).await;
    said(&sandbox, &["key", "revoke", "--key-id", asked["keyId"].as_str().unwrap(), "--reason", "unused"]);
    let narrow = ["key", "issue", "--partner", "initech", "--scopes", "quotes:write"];
    answers(&sandbox, &said(&sandbox, &narrow), (403, Some("INSUFFICIENT_SCOPE"))).await;
    assert!(refused(&sandbox, &["key", "issue", "--partner", "nobody", "--env", "test"]).contains("nobody"));
    let live = ["key", "issue", "--partner", "initech", "--env", "live"];
    assert!(refused(&sandbox, &live).contains("this is a test deployment"));

    // Both live during a rotation, and the new signing secret signs.
    let id = key["keyId"].as_str().unwrap();
    let next = said(&sandbox, &["key", "rotate", "--key-id", id]);
    assert_eq!(next["replaces"], key["keyId"]);
    for live in [&key, &next] {
        answers(&sandbox, live, (200, None)).await;
        let (api_key, secret) = (live["apiKey"].as_str().unwrap(), live["signingSecret"].as_str().unwrap());
        let partner = Partner::with_keys(&sandbox, api_key, secret);
        let (status, body) = partner.submit(&json!({})).await;
        assert_eq!((status, body["error"]["code"].as_str()), (400, Some("INVALID_PARAMETER")), "{body}");
    }
    said(&sandbox, &["key", "disable", "--key-id", id, "--reason", "a test"]);
    answers(&sandbox, &key, (403, Some("API_KEY_DISABLED"))).await;
    said(&sandbox, &["key", "enable", "--key-id", id]);
    answers(&sandbox, &key, (200, None)).await;
    said(&sandbox, &["key", "revoke", "--key-id", id, "--reason", "a test"]);
    answers(&sandbox, &key, (401, Some("INVALID_API_KEY"))).await;
    assert!(refused(&sandbox, &["key", "enable", "--key-id", id]).contains("revoked"));
    answers(&sandbox, &next, (200, None)).await;

    let listed = said(&sandbox, &["key", "list", "--partner", "initech"]);
    let shown = listed.to_string();
    assert_eq!(listed["keys"].as_array().unwrap().len(), 4);
    for secret in [&key["apiKey"], &next["apiKey"], &next["signingSecret"]] {
        assert!(!shown.contains(secret.as_str().unwrap()));
    }
    let mut database = sandbox.database().await;
    let rows: Vec<(String,)> =
        sqlx::query_as("select k::text from api_key k").fetch_all(&mut database).await.unwrap();
    for secret in [&key["signingSecret"], &next["signingSecret"], &next["apiKey"]] {
        let secret = secret.as_str().unwrap();
        let as_bytes = hex::encode(secret);
        assert!(rows.iter().all(|row| !row.0.contains(secret) && !row.0.contains(&as_bytes)));
    }
    let doctor = said(&sandbox, &["doctor"]);
    assert_eq!(doctor["ok"], true, "{doctor}");
    sandbox.stop().await;
}

/// What `receipt verify` says once the anchor is final.
pub(crate) async fn once_verified(sandbox: &Sandbox, reference: &str) -> Value {
    wait_for("the anchor to be final", || async {
        let output = dvp(sandbox, &["receipt", "verify", "--reference", reference]);
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
        (answer["verified"] == true).then_some(answer)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn only_an_unchanged_receipt_verifies_against_the_chain() {
    let sandbox = Sandbox::start().await;
    let partner = Partner::of(&sandbox);
    let order = partner.order(&sandbox, 0, "000123456789").await;
    let reference = &partner.settled(&order).await;
    let path = format!("/v1/executions/{reference}/receipt?refType=executionId");
    let (_, receipt) = partner.get(&path).await;
    let by_reference = once_verified(&sandbox, reference).await;
    assert_eq!((&by_reference["verified"], &by_reference["arithmetic"]), (&json!(true), &json!("adds up")));
    assert_eq!(by_reference["anchor"]["txHash"], receipt["txHash"]);

    // The price of the order and that of a firm quote are explained by the same steps.
    let (_, quote) = partner.firm_quote("100000000").await;
    let quote_id = quote["quoteId"].as_str().unwrap();
    let [order, quote] = [reference, quote_id].map(|id| said(&sandbox, &["quote", "explain", "--id", id]));
    let last = |explained: &Value| explained["explanation"]["steps"][5].clone();
    assert_eq!(
        (&last(&order)["step"], &last(&order)["amountMinor"]),
        (&json!("output"), &receipt["payout"]["amountMinor"])
    );
    assert_eq!(last(&quote)["step"], "output");
    assert!(quote["explanation"]["spreadBps"].is_string(), "{quote}");
    let unknown = dvp(&sandbox, &["quote", "explain", "--id", "qte_unknown"]);
    assert!(String::from_utf8_lossy(&unknown.stderr).contains("there is no firm quote qte_unknown"));

    let mut file = tempfile::NamedTempFile::new().unwrap();
    write!(file, "{receipt}").unwrap();
    let path = file.path().to_str().unwrap();
    assert_eq!(
        said(&sandbox, &["receipt", "verify", "--file", path])["contentHash"],
        by_reference["contentHash"]
    );

    // A partner needs a node and the addresses that the API lists, and nothing of ours.
    let (rpc, anchor) = (sandbox.text("/chain/rpcUrl"), sandbox.text("/chain/contracts/anchor"));
    let (status, listed) = partner.get("/v1/chains").await;
    assert_eq!(status, 200, "{listed}");
    let home = &listed["chains"][0];
    assert_eq!(home["contracts"]["anchor"], json!(anchor));
    let submitters: Vec<&str> =
        home["anchorSubmitters"].as_array().unwrap().iter().map(|one| one.as_str().unwrap()).collect();
    assert!(submitters.contains(&by_reference["anchor"]["submitter"].as_str().unwrap()));
    let alone = |submitters: &[&str]| {
        let mut words = vec!["receipt", "verify", "--file", path, "--rpc-url", &rpc, "--anchor", &anchor];
        submitters.iter().for_each(|one| words.extend(["--submitter", one]));
        Command::new(env!("CARGO_BIN_EXE_dvp")).args(words).arg("--json").output().unwrap()
    };
    let verified = alone(&submitters);
    assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stderr));
    // The same anchor is a stranger's to who trusts another account.
    let refused = alone(&["0x00000000000000000000000000000000000000a1"]);
    assert_eq!(refused.status.code(), Some(1));
    let answer: Value = serde_json::from_slice(&refused.stdout).unwrap();
    assert_eq!((&answer["verified"], &answer["anchor"]), (&json!(false), &Value::Null));
    assert_eq!(answer["strangers"][0], by_reference["anchor"]["submitter"]);
    assert!(!alone(&[]).status.success(), "no anchor is believed without a submitter");

    let mut changed = receipt.clone();
    changed["payout"]["amountMinor"] = json!("1");
    let mut file = tempfile::NamedTempFile::new().unwrap();
    write!(file, "{changed}").unwrap();
    let output = dvp(&sandbox, &["receipt", "verify", "--file", file.path().to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&answer["verified"], &answer["anchor"]), (&json!(false), &Value::Null));
    sandbox.stop().await;
}

#[test]
fn the_data_dictionary_of_each_version_is_printed() {
    for (version, file, orchestra) in [
        ("FIX.4.2", "FIX42", "FIX42"),
        ("FIX.4.4", "FIX44", "FIX44"),
        ("FIXT.1.1", "FIXT11", "FIX50SP2"),
        ("FIX.5.0SP2", "FIX50SP2", "FIX50SP2"),
    ] {
        for (format, name) in [
            (&[][..], format!("fix-gateway/dictionaries/{file}.xml")),
            (&["--format", "orchestra"], format!("docs/fix/orchestra-{orchestra}.xml")),
        ] {
            let words = [&["fix-session", "dictionary", "--version", version][..], format].concat();
            let printed = Command::new(env!("CARGO_BIN_EXE_dvp")).args(&words).output().unwrap();
            let name = format!("{}/{name}", env!("CARGO_MANIFEST_DIR"));
            assert!(printed.stdout == std::fs::read(name).unwrap(), "{words:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn fix_sessions_are_added_listed_and_disabled() {
    let sandbox = Sandbox::start().await;
    let add = ["fix-session", "add", "--begin-string", "FIX.4.4", "--sender-comp-id", "INITECH"];
    let words = [&add[..], &["--partner", "acme", "--password", "secret-1"]].concat();
    let session = said(&sandbox, &words);
    let warned = String::from_utf8(dvp(&sandbox, &words).stderr).unwrap();
    assert!(warned.contains("warning: --password") && !warned.contains("secret-1"), "{warned}");
    assert!(
        refused(&sandbox, &[&add[..], &["--partner", "acme", "--password", "env:DVP_NOT_SET"]].concat())
            .contains("DVP_NOT_SET")
    );
    assert_eq!(session["sessionId"], "FIX.4.4:DVP->INITECH");
    assert_eq!(session["username"], "acme");
    assert!(!session.to_string().contains("secret-1"));
    let id = session["sessionId"].as_str().unwrap();
    let find = || {
        let listed = said(&sandbox, &["fix-session", "list"]);
        listed["sessions"].as_array().unwrap().iter().find(|s| s["sessionId"] == id).cloned().unwrap()
    };
    assert_eq!((&find()["enabled"], &find()["nextIn"]), (&json!(true), &json!(1)));
    let why = ["--session-id", id, "--as", "jo", "--reason", "a test"];
    let numbers = ["fix-session", "set-seq", "--next-in", "5", "--next-out", "7"];
    said(&sandbox, &[&numbers[..], &why].concat());
    assert_eq!((&find()["nextIn"], &find()["nextOut"]), (&json!(5), &json!(7)));
    let lower = ["fix-session", "set-seq", "--next-in", "5", "--next-out", "6"];
    assert!(refused(&sandbox, &[&lower[..], &why].concat()).contains("next_out is 7"));
    said(&sandbox, &[&["fix-session", "reset"][..], &why].concat());
    assert_eq!((&find()["nextIn"], &find()["nextOut"]), (&json!(1), &json!(1)));
    said(&sandbox, &[&["fix-session", "logout"][..], &why].concat());
    let disabled = said(&sandbox, &["fix-session", "disable", "--session-id", id, "--reason", "a test"]);
    assert_eq!((&find()["enabled"], &disabled["ended"]), (&json!(false), &json!(true)));
    let set = ["fix-session", "set", "--session-id", id];
    let agreed = || [find()["dropCopy"].clone(), find()["cancelOnDisconnectSecs"].clone()];
    assert_eq!(agreed(), [json!(false), Value::Null]);
    said(&sandbox, &[&set[..], &["--cancel-on-disconnect", "10", "--max-slippage-bps", "25"]].concat());
    assert_eq!((agreed(), &find()["maxSlippageBps"]), ([json!(false), json!(10)], &json!(25)));
    assert!(refused(&sandbox, &[&set[..], &["--drop-copy"]].concat()).contains("no orders to cancel"));
    said(&sandbox, &[&set[..], &["--drop-copy", "--cancel-on-disconnect", "off"]].concat());
    assert_eq!(agreed(), [json!(true), Value::Null]);
    // A new password changes nothing else.
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "secret-2\n").unwrap();
    let given = format!("file:{}", file.path().display());
    let words = [&add[..], &["--partner", "acme", "--password", &given]].concat();
    let output = dvp(&sandbox, &words);
    assert!(output.status.success() && !String::from_utf8_lossy(&output.stderr).contains("warning"));
    assert_eq!((agreed(), &find()["enabled"]), ([json!(true), Value::Null], &json!(false)));
    // A test deployment enables it without a second operator.
    assert_eq!(said(&sandbox, &["fix-session", "enable", "--session-id", id])["enabled"], true);
    assert_eq!(find()["enabled"], true);
    said(&sandbox, &[&set[..], &["--drop-copy", "false"]].concat());
    for wrong in ["-1", "3601", "never"] {
        refused(&sandbox, &[&set[..], &["--cancel-on-disconnect", wrong]].concat());
    }
    let terms = ["--allowed-sources", "10.1.2.3/8,192.0.2.7", "--soft-rate", "50", "--hard-rate", "100"];
    let days = "weekly mon 08:00 Europe/Zurich to fri 22:00 Europe/Zurich";
    let terms = [&terms[..], &["--schedule", days, "--logon-secret", "0123456789abcdef"]].concat();
    let agreed = said(&sandbox, &[&set[..], &terms].concat());
    assert_eq!(agreed["allowedSources"], json!(["10.0.0.0/8", "192.0.2.7/32"]));
    assert_eq!((&agreed["softRate"], &agreed["schedule"]), (&json!(50), &json!(days)));
    assert!(agreed["signedLogon"] == true && !agreed.to_string().contains("0123456789abcdef"));
    let off =
        ["--allowed-sources", "off", "--schedule", "off", "--logon-secret", "off", "--hard-rate", "off"];
    let agreed = said(&sandbox, &[&set[..], &off].concat());
    assert_eq!((&agreed["allowedSources"], &agreed["signedLogon"]), (&Value::Null, &json!(false)));
    assert_eq!((&agreed["softRate"], &agreed["hardRate"]), (&json!(50), &Value::Null));
    for (wrong, expected) in [
        (["--schedule", "always"], "schedule: "),
        (["--hard-rate", "49"], "--soft-rate is at most"),
        (["--allowed-sources", "10.0.0.0/99"], "is no network"),
    ] {
        let complaint = refused(&sandbox, &[&set[..], &wrong].concat());
        assert!(complaint.contains(expected), "{wrong:?}: {complaint}");
    }
    refused(&sandbox, &["fix-session", "set", "--session-id", "FIX.4.4:DVP->NOBODY", "--drop-copy"]);
    let copy = ["fix-session", "add", "--begin-string", "FIX.4.4", "--sender-comp-id", "COPY", "--drop-copy"];
    said(&sandbox, &[&copy[..], &["--partner", "acme", "--password", "p"]].concat());
    let listed = said(&sandbox, &["fix-session", "list"]);
    let copies = listed["sessions"].as_array().unwrap().iter().filter(|s| s["dropCopy"] == true);
    assert_eq!(copies.map(|s| s["sessionId"].as_str().unwrap()).collect::<Vec<_>>(), ["FIX.4.4:DVP->COPY"]);
    let version =
        ["fix-session", "add", "--begin-string", "FIXT.1.1", "--sender-comp-id", "X", "--partner", "acme"];
    assert!(
        refused(&sandbox, &[&version[..], &["--password", "p"]].concat()).contains("default-appl-ver-id")
    );
    sandbox.stop().await;
}

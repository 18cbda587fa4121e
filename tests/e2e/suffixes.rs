//! The simulated bank's behaviour by an account's last four digits, over both interfaces, and the operator's decision
//! about an order that never ends.

use crate::fix::{FixClient, Message};
use crate::partner::Partner;
use crate::sandbox::{Sandbox, dvp, refused, said};
use crate::wait::until;

/// How an order to such an account ends: the last event's type, the failure's code, how often its payout was paid.
struct Ending {
    suffix: &'static str,
    events: &'static [&'static str],
    failure: Option<&'static str>,
    paid: i32,
}

const STRAIGHT: [&str; 5] =
    ["intent.accepted", "offramp.initiated", "offramp.completed", "payout.initiated", "payout.completed"];

const ENDINGS: [Ending; 8] = [
    Ending { suffix: "0000", events: &STRAIGHT, failure: None, paid: 1 },
    Ending {
        suffix: "0001",
        events: &[
            "intent.accepted",
            "offramp.initiated",
            "offramp.completed",
            "payout.initiated",
            "payout.in_progress",
            "payout.completed",
        ],
        failure: None,
        paid: 1,
    },
    Ending {
        suffix: "0002",
        events: &[
            "intent.accepted",
            "offramp.initiated",
            "offramp.completed",
            "payout.initiated",
            "payout.failed",
        ],
        failure: Some("beneficiary_account_closed"),
        paid: 0,
    },
    Ending {
        suffix: "0003",
        events: &["intent.accepted", "offramp.initiated", "offramp.failed"],
        failure: Some("conversion_failed"),
        paid: 0,
    },
    Ending { suffix: "0004", events: &STRAIGHT, failure: None, paid: 1 },
    Ending { suffix: "0005", events: &STRAIGHT, failure: None, paid: 1 },
    Ending {
        suffix: "0006",
        events: &[
            "intent.accepted",
            "offramp.initiated",
            "offramp.in_progress",
            "offramp.completed",
            "payout.initiated",
            "payout.completed",
        ],
        failure: None,
        paid: 1,
    },
    Ending { suffix: "0008", events: &STRAIGHT, failure: None, paid: 1 },
];

fn account(door: &str, suffix: &str) -> String {
    format!("bene_{door}:dest_1000{suffix}")
}

async fn check(sandbox: &Sandbox, ending: &Ending, account: &str, reference: &str) {
    let mut conn = sandbox.database().await;
    let events: Vec<String> =
        sqlx::query_scalar("select type from event where reference = $1 order by sequence")
            .bind(reference)
            .fetch_all(&mut conn)
            .await
            .unwrap();
    assert_eq!(events, ending.events, "{account}");
    let paid: i32 = sqlx::query_scalar(
        "select coalesce(sum(executed), 0)::int4 from simulated_rail where leg = 'payout' and account = $1",
    )
    .bind(account)
    .fetch_one(&mut conn)
    .await
    .unwrap();
    assert_eq!(paid, ending.paid, "{account}");
}

async fn through_rest(sandbox: &Sandbox) {
    let partner = Partner::of(sandbox);
    for ending in &ENDINGS {
        let account = account("rest", ending.suffix);
        let order = partner.order(sandbox, 0, &account).await;
        let accepted = partner.submit_accepted(&order).await;
        let reference = order["clientReference"].as_str().unwrap();
        let execution = partner.wait_until(reference, |e| e["status"] != "in_progress").await;
        let ended = if ending.failure.is_some() { "failed" } else { "completed" };
        assert_eq!(execution["status"], ended, "{account}: {execution}");
        assert_eq!(execution["failure"]["code"].as_str(), ending.failure, "{execution}");
        check(sandbox, ending, &account, accepted["reference"].as_str().unwrap()).await;
    }
}

/// The report that ends an order.
async fn last(client: &mut FixClient, cl_ord_id: &str) -> Message {
    client.report(|r| r.get(11) == cl_ord_id && ["2", "4", "8", "C"].contains(&r.get(39))).await
}

async fn through_fix(sandbox: &Sandbox) {
    let partner = Partner::of(sandbox);
    let mut client = FixClient::log_on(sandbox).await;
    for ending in &ENDINGS {
        let account = account("fix", ending.suffix);
        let id = format!("O-{}", ending.suffix);
        let order = partner.order(sandbox, 1, &account).await;
        client.new_order(&id, &account, &order["permit"]).await;
        let report = last(&mut client, &id).await;
        let wanted = if ending.failure.is_some() { "4" } else { "2" };
        assert_eq!(report.get(39), wanted, "{account}");
        assert_eq!(report.get(20104), ending.failure.unwrap_or_default(), "{account}");
        check(sandbox, ending, &account, report.get(37)).await;
    }
}

/// An order that the bank never answers, until an operator decides it.
async fn until_an_operator_resolves_it(sandbox: &Sandbox) {
    let partner = Partner::of(sandbox);
    let order = partner.order(sandbox, 2, &account("silent", "0007")).await;
    let accepted = partner.submit_accepted(&order).await;
    let reference = accepted["reference"].as_str().unwrap();
    let client_reference = order["clientReference"].as_str().unwrap();
    partner.wait_until(client_reference, |e| e["phase"] == "payout").await;
    let listed = said(sandbox, &["execution", "list", "--stuck-for-secs", "0"]);
    let listed = listed["executions"].as_array().unwrap();
    assert!(
        listed.iter().any(|one| one["reference"] == reference && one["waitsFor"] == "payout"),
        "{listed:?}"
    );
    let decide =
        ["execution", "resolve", "--reference", reference, "--action", "mark-paid", "--leg", "payout"];
    let why =
        ["--operator", "jo", "--reason", "the bank lost its answer", "--evidence", "statement 17, line 4"];
    let decide = [&decide[..], &why, &["--provider-reference", "STATEMENT-17", "--confirm"]].concat();
    let [right, wrong] = [reference, "exe_other"].map(|confirm| [&decide[..], &[confirm]].concat());
    assert!(refused(sandbox, &wrong).contains("nothing was decided"));
    let requested = said(sandbox, &right);
    assert_eq!(requested["isProposal"], true);
    let id = requested["approval"].as_str().unwrap();
    let approve = |operator| ["approval", "approve", "--id", id, "--operator", operator];
    assert!(refused(sandbox, &approve("jo")).contains("another operator"));
    let waiting = said(sandbox, &["approval", "list", "--state", "pending"]);
    assert_eq!(waiting["approvals"][0]["details"]["providerReference"], "STATEMENT-17");
    // Right after the call the payment may still be in flight: decisions are refused then.
    until("the approval", async || {
        let output = dvp(sandbox, &approve("mika"));
        let why = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() || why.contains("still be in flight"), "{why}");
        output.status.success()
    })
    .await;
    let execution = partner.wait_until(client_reference, |e| e["status"] != "in_progress").await;
    assert_eq!(execution["status"], "completed", "{execution}");
    assert_eq!(execution["providerReference"], "STATEMENT-17");
    let shown = said(sandbox, &["execution", "show", "--reference", reference]);
    let operators = shown["operators"].as_array().unwrap();
    let decided: Vec<_> = operators
        .iter()
        .map(|one| [one["operator"].as_str().unwrap(), one["action"].as_str().unwrap()])
        .collect();
    assert_eq!(decided, [["jo", "propose_mark_paid"], ["mika", "mark_paid"]]);
    assert_eq!(said(sandbox, &["approval", "show", "--id", id])["checker"], "mika");
    for part in ["events", "chain", "facts", "ledger"] {
        assert!(!shown[part].as_array().unwrap().is_empty(), "{part}: {shown}");
    }
    assert!(refused(sandbox, &right).contains("does not wait"), "an ended one is left alone");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_account_of_the_simulated_bank_ends_as_documented() {
    let sandbox = Sandbox::start().await;
    tokio::join!(through_rest(&sandbox), through_fix(&sandbox), until_an_operator_resolves_it(&sandbox));
    sandbox.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_with_bank_files_pays_out_through_them() {
    let sandbox = Sandbox::start_with(&["--bank-files"]).await;
    let partner = Partner::of(&sandbox);
    partner.completed_by_a_bank(&sandbox, "000123450001").await;
    let archived = std::fs::read_dir(sandbox.dir().join("bank/archive")).unwrap().count();
    assert!(archived >= 1);
    sandbox.stop().await;
}

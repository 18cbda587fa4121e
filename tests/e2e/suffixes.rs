//! The simulated bank's behaviour by an account's last four digits, over both interfaces.

use crate::fix::{FixClient, Message};
use crate::partner::Partner;
use crate::sandbox::Sandbox;

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
    let events = "select array_agg(type order by sequence) from event where reference = $1";
    assert_eq!(sandbox.one_of::<Vec<String>>(events, reference).await, ending.events, "{account}");
    let paid =
        "select coalesce(sum(executed), 0)::int4 from simulated_rail where leg = 'payout' and account = $1";
    assert_eq!(sandbox.one_of::<i32>(paid, account).await, ending.paid, "{account}");
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

#[tokio::test(flavor = "multi_thread")]
async fn each_account_of_the_simulated_bank_ends_as_documented() {
    let sandbox = Sandbox::start().await;
    tokio::join!(through_rest(&sandbox), through_fix(&sandbox));
    sandbox.stop().await;
}

//! What a screening service over HTTP holds, over REST and over FIX: two operators release or fail it. What else the service
//! and a list may say is in the core's tests.

use std::process::Output;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::fix::FixClient;
use crate::partner::Partner;
use crate::sandbox::{Sandbox, dvp, said};
use crate::wait::answer;

const ACCOUNT: &str = "bene_a:dest_10000000";

/// A screening service that holds every order.
struct Hook {
    url: String,
    requested: Arc<Mutex<String>>,
}

impl Hook {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/orders", listener.local_addr().unwrap());
        let requested = Arc::<Mutex<String>>::default();
        let serving = Arc::clone(&requested);
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut request = vec![0; 65_536];
                let read = stream.read(&mut request).await.unwrap_or(0);
                serving.lock().unwrap().push_str(&String::from_utf8_lossy(&request[..read]));
                let head = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-type: application/json\r\n\r\n";
                let body = json!({"verdict": "hold", "case": "C-17"});
                let _ = stream.write_all(format!("{head}{body}").as_bytes()).await;
            }
        });
        Self { url, requested }
    }
}

/// One order over each interface.
struct Pair {
    /// The client reference of the order over REST, and its execution.
    client: String,
    rest: String,
    cl_ord_id: String,
    fix: String,
}

fn decision<'a>(reference: &'a str, action: &'a str, operator: &'a str) -> Vec<&'a str> {
    let words =
        ["execution", "resolve", "--reference", reference, "--confirm", reference, "--action", action];
    [&words[..], &["--as", operator, "--reason", "looked into", "--evidence", "case 17"]].concat()
}

struct Desk {
    sandbox: Sandbox,
    partner: Partner,
    fix: FixClient,
    wallets: usize,
}

impl Desk {
    async fn open(hook: &Hook) -> Self {
        let sandbox =
            Sandbox::start_with(&["--screening-url", &hook.url, "--screening-on-error", "hold"]).await;
        let (partner, fix) = (Partner::of(&sandbox), FixClient::log_on(&sandbox).await);
        Self { sandbox, partner, fix, wallets: 0 }
    }

    async fn place(&mut self) -> Pair {
        let order = self.partner.order(&self.sandbox, self.wallets, ACCOUNT).await;
        let accepted = self.partner.submit_accepted(&order).await;
        let permit = self.partner.order(&self.sandbox, self.wallets + 1, ACCOUNT).await["permit"].clone();
        self.wallets += 2;
        let cl_ord_id = format!("ORD-{}", self.wallets);
        self.fix.new_order(&cl_ord_id, ACCOUNT, &permit).await;
        let report = self.fix.report(|report| report.get(11) == cl_ord_id).await;
        assert_eq!((report.get(150), report.get(39)), ("0", "0"), "{}", report.get(58));
        Pair {
            client: order["clientReference"].as_str().unwrap().to_owned(),
            rest: accepted["reference"].as_str().unwrap().to_owned(),
            cl_ord_id,
            fix: report.get(37).to_owned(),
        }
    }

    async fn are_held(&self, pair: &Pair) {
        for reference in [&pair.rest, &pair.fix] {
            let shown = async || said(&self.sandbox, &["execution", "show", "--reference", reference]);
            let shown = answer(shown, |shown| shown["work"][0]["lastResult"] == "held by screening").await;
            assert_eq!(shown["screening"][0]["verdict"], "hold", "{shown}");
            assert_eq!(shown["screening"][0]["source"], "hook", "{shown}");
        }
    }

    async fn decide(&self, reference: &str, action: &str) {
        for (operator, is_proposal) in [("jo", true), ("kim", false)] {
            let words = decision(reference, action, operator);
            // The hook may be called at this moment: no decision is taken meanwhile.
            let in_flight = "may still be in flight";
            let decided = async || dvp(&self.sandbox, &words);
            let is_over = |output: &Output| !String::from_utf8_lossy(&output.stderr).contains(in_flight);
            let decided = answer(decided, is_over).await;
            assert!(decided.status.success(), "{decided:?}");
            let decided: Value = serde_json::from_slice(&decided.stdout).unwrap();
            assert_eq!(decided["isProposal"], is_proposal);
        }
    }

    async fn rest_ends(&self, pair: &Pair) -> Value {
        self.partner
            .wait_until(&pair.client, |e| {
                e["status"] == "completed" || e["failure"].is_object() || e["status"] == "failed"
            })
            .await
    }

    /// OrdStatus, and the code of a failure.
    async fn fix_ends(&mut self, pair: &Pair) -> (String, String) {
        let ended = |status: &str| ["2", "4", "8", "C"].contains(&status);
        let report =
            self.fix.report(|report| report.get(11) == pair.cl_ord_id && ended(report.get(39))).await;
        (report.get(39).to_owned(), report.get(20104).to_owned())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn operators_release_or_refuse_what_a_service_holds_over_both_interfaces() {
    let hook = Hook::start().await;
    let mut desk = Desk::open(&hook).await;
    let (first, second) = (desk.place().await, desk.place().await);
    desk.are_held(&first).await;
    desk.are_held(&second).await;
    let requested = hook.requested.lock().unwrap().clone();
    assert!(requested.contains(&first.rest) && requested.contains(&first.fix));
    desk.decide(&first.rest, "release").await;
    desk.decide(&first.fix, "refuse").await;
    desk.decide(&second.rest, "refuse").await;
    desk.decide(&second.fix, "release").await;
    assert_eq!(desk.rest_ends(&first).await["status"], "completed");
    assert_eq!(desk.fix_ends(&first).await, ("4".into(), "screening_refused".into()));
    assert_eq!(desk.rest_ends(&second).await["failure"]["detail"], "screening_refused");
    assert_eq!(desk.fix_ends(&second).await.0, "2");
    assert_eq!(said(&desk.sandbox, &["ledger", "check"])["ok"], true);
    desk.sandbox.stop().await;
}

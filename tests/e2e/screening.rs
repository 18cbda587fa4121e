//! What a list, or a screening service over HTTP, holds, refuses or does not answer, over REST and over FIX: two operators
//! release or fail what is held, or it expires.

use std::process::Output;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::fix::FixClient;
use crate::partner::Partner;
use crate::sandbox::{Sandbox, dvp, refused, said};
use crate::wait::answer;

const ACCOUNT: &str = "bene_a:dest_10000000";

/// A screening service with configured answers. `None`: no answer at all.
#[derive(Clone)]
struct Hook {
    url: String,
    says: Arc<Mutex<Option<&'static str>>>,
    requested: Arc<Mutex<Vec<String>>>,
}

impl Hook {
    async fn saying(says: Option<&'static str>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/orders", listener.local_addr().unwrap());
        let hook = Self { url, says: Arc::new(Mutex::new(says)), requested: Arc::default() };
        let serving = hook.clone();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let hook = serving.clone();
                tokio::spawn(async move {
                    let mut request = vec![0; 65_536];
                    let read = stream.read(&mut request).await.unwrap_or(0);
                    hook.requested
                        .lock()
                        .unwrap()
                        .push(String::from_utf8_lossy(&request[..read]).into_owned());
                    let said = *hook.says.lock().unwrap();
                    let Some(verdict) = said else { return std::future::pending().await };
                    let head =
                        "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-type: application/json\r\n\r\n";
                    let body = json!({"verdict": verdict, "case": "C-17"});
                    let _ = stream.write_all(format!("{head}{body}").as_bytes()).await;
                });
            }
        });
        hook
    }

    fn say(&self, says: Option<&'static str>) {
        *self.says.lock().unwrap() = says;
    }

    fn was_queried_about(&self, reference: &str) -> bool {
        self.requested.lock().unwrap().iter().any(|request| request.contains(reference))
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
    [&words[..], &["--operator", operator, "--reason", "looked into", "--evidence", "case 17"]].concat()
}

struct Desk {
    sandbox: Sandbox,
    partner: Partner,
    fix: FixClient,
    wallets: usize,
}

impl Desk {
    async fn open(hook: &Hook, on_error: &str) -> Self {
        Self::with(&["--screening-url", &hook.url, "--screening-on-error", on_error]).await
    }

    async fn with(args: &[&str]) -> Self {
        let sandbox = Sandbox::start_with(args).await;
        let (partner, fix) = (Partner::of(&sandbox), FixClient::log_on(&sandbox).await);
        Self { sandbox, partner, fix, wallets: 0 }
    }

    /// Both orders end in so many seconds if nothing is decided.
    async fn place(&mut self, secs: i64) -> Pair {
        let mut order = self.partner.order(&self.sandbox, self.wallets % 6, ACCOUNT).await;
        order["deadline"] = json!(chrono::Utc::now().timestamp_millis() + secs * 1_000);
        let accepted = self.partner.submit_accepted(&order).await;
        let permit =
            self.partner.order(&self.sandbox, (self.wallets + 1) % 6, ACCOUNT).await["permit"].clone();
        self.wallets += 2;
        let cl_ord_id = format!("ORD-{}", self.wallets);
        let ends = chrono::Utc::now() + chrono::TimeDelta::seconds(secs);
        let ends = ends.format("%Y%m%d-%H:%M:%S%.3f").to_string();
        self.fix.sell(&cl_ord_id, ACCOUNT, &permit, &[(59, "6"), (126, &ends)]).await;
        let report = self.fix.report(|report| report.get(11) == cl_ord_id).await;
        assert_eq!((report.get(150), report.get(39)), ("0", "0"), "{}", report.get(58));
        Pair {
            client: order["clientReference"].as_str().unwrap().to_owned(),
            rest: accepted["reference"].as_str().unwrap().to_owned(),
            cl_ord_id,
            fix: report.get(37).to_owned(),
        }
    }

    /// Waits until both are held, for the source that is said.
    async fn are_held(&self, pair: &Pair, source: &str) {
        for reference in [&pair.rest, &pair.fix] {
            let shown = async || said(&self.sandbox, &["execution", "show", "--reference", reference]);
            let shown = answer(shown, |shown| shown["work"][0]["lastResult"] == "held by screening").await;
            assert_eq!(shown["screening"][0]["verdict"], "hold", "{shown}");
            assert_eq!(shown["screening"][0]["source"], source, "{shown}");
        }
    }

    async fn decide(&self, reference: &str, action: &str) {
        for (operator, is_proposal) in [("jo", true), ("mika", false)] {
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

    async fn both_complete(&mut self, pair: &Pair) {
        let ended = self.rest_ends(pair).await;
        assert_eq!(ended["status"], "completed", "{ended}");
        assert_eq!(self.fix_ends(pair).await.0, "2");
    }

    async fn both_are_refused(&mut self, pair: &Pair) {
        let ended = self.rest_ends(pair).await;
        assert_eq!(ended["failure"]["code"], "screening_refused", "{ended}");
        assert_eq!(self.fix_ends(pair).await, ("4".into(), "screening_refused".into()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_hook_and_operators_hold_release_and_fail_orders_of_both_interfaces() {
    let hook = Hook::saying(Some("hold")).await;
    let mut desk = Desk::open(&hook, "hold").await;

    // Held, and released or refused by two operators, each interface both ways.
    let (first, second) = (desk.place(600).await, desk.place(600).await);
    desk.are_held(&first, "hook").await;
    desk.are_held(&second, "hook").await;
    assert!(hook.was_queried_about(&first.rest) && hook.was_queried_about(&first.fix));
    desk.decide(&first.rest, "release").await;
    desk.decide(&first.fix, "refuse").await;
    desk.decide(&second.rest, "refuse").await;
    desk.decide(&second.fix, "release").await;
    assert_eq!(desk.rest_ends(&first).await["status"], "completed");
    assert_eq!(desk.fix_ends(&first).await, ("4".into(), "screening_refused".into()));
    assert_eq!(desk.rest_ends(&second).await["failure"]["code"], "screening_refused");
    assert_eq!(desk.fix_ends(&second).await.0, "2");

    // Held, and then passed or refused by the hook itself.
    let third = desk.place(600).await;
    desk.are_held(&third, "hook").await;
    hook.say(Some("pass"));
    desk.both_complete(&third).await;
    hook.say(Some("hold"));
    let fourth = desk.place(600).await;
    desk.are_held(&fourth, "hook").await;
    hook.say(Some("fail"));
    desk.both_are_refused(&fourth).await;

    // No answer in time holds them, and nobody decides: they expire at their deadline.
    hook.say(None);
    let fifth = desk.place(40).await;
    desk.are_held(&fifth, "no_answer").await;
    assert_eq!(desk.rest_ends(&fifth).await["failure"]["code"], "expired");
    assert_eq!(desk.fix_ends(&fifth).await.0, "C");
    assert_eq!(said(&desk.sandbox, &["ledger", "check"])["ok"], true);
    desk.sandbox.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hook_without_an_answer_means_what_is_configured() {
    let hook = Hook::saying(None).await;
    let mut failing = Desk::open(&hook, "fail").await;
    let pair = failing.place(600).await;
    failing.both_are_refused(&pair).await;
    failing.sandbox.stop().await;
    let mut passing = Desk::open(&hook, "pass").await;
    let pair = passing.place(600).await;
    passing.both_complete(&pair).await;
    passing.sandbox.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn parties_of_a_list_are_held_until_two_operators_release_or_fail_their_orders() {
    let list = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(list.path(), format!("name: Jane Doe\naccount: {ACCOUNT}\n")).unwrap();
    let mut desk = Desk::with(&["--screening-list", list.path().to_str().unwrap()]).await;
    let pair = desk.place(600).await;
    desk.are_held(&pair, "list").await;
    let seen = desk.partner.wait_until(&pair.client, |e| e["events"].is_array()).await;
    let events = seen["events"].as_array().unwrap().len();
    assert_eq!((&seen["status"], events), (&json!("in_progress"), 1), "{seen}");
    desk.decide(&pair.rest, "release").await;
    desk.decide(&pair.fix, "refuse").await;
    assert_eq!(desk.rest_ends(&pair).await["status"], "completed");
    assert_eq!(desk.fix_ends(&pair).await, ("4".into(), "screening_refused".into()));
    assert!(refused(&desk.sandbox, &decision(&pair.rest, "refuse", "jo")).contains("screening holds"));
    assert_eq!(said(&desk.sandbox, &["audit", "verify"])["ok"], true);
    desk.sandbox.stop().await;
}

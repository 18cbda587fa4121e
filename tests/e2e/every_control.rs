//! Every control that refuses orders does so over REST and over FIX alike, by the same word, and reserves nothing.
//!
//! | control | both interfaces here | elsewhere |
//! |---|---|---|
//! | limits: six scopes, by order, by day, of open orders | refused | concurrency and crashes in the core's tests |
//! | pauses: everything, partner, pair, provider, chain | refused | |
//! | pauses of a rail | accepted, and the leg waits | |
//! | smallest order of a pair | refused | |
//! | price bands | | `bands` |
//! | partner disabled | refused | |
//! | key and session of the other environment | refused | |
//! | registered beneficiaries | | `beneficiaries` |
//! | screening by list and hook | | `screening` |

use serde_json::{Value, json};

use crate::fix::FixClient;
use crate::partner::Partner;
use crate::sandbox::{Sandbox, approve, refused, said};
use crate::wait::{self, answer};

const BY: [&str; 4] = ["--operator", "jo", "--reason", "to be sure"];
const EVIDENCE: [&str; 2] = ["--evidence", "risk memo 7"];
const EXECUTIONS: &str = "select count(*) from execution";
const RESERVED: &str = "select count(*) from account_balance where reserved <> 0";
const ACCOUNT: &str = "bene_a:dest_10000000";
const PROVIDERS: [&str; 4] = ["northwind", "meridian", "pool-desk", "harbour"];

/// Carries a command out, with a second operator where it takes two.
fn operate(sandbox: &Sandbox, words: &[&str]) {
    let requested = said(sandbox, words);
    if requested["state"] == "pending" {
        approve(sandbox, &requested["id"]);
    }
}

/// What both interfaces say of the same order.
struct Both {
    partner: Partner,
    fix: FixClient,
    placed: u32,
}

impl Both {
    async fn of(sandbox: &Sandbox) -> Self {
        Self { partner: Partner::of(sandbox), fix: FixClient::log_on(sandbox).await, placed: 0 }
    }

    /// Status and reason over REST; ExecType and Text over FIX.
    async fn answers(&mut self, sandbox: &Sandbox) -> [String; 4] {
        let order = self.partner.order(sandbox, 0, ACCOUNT).await;
        let (status, answer) = self.partner.submit(&order).await;
        let reason = answer["reason"].as_str().or_else(|| answer["error"]["code"].as_str());
        let permit = self.partner.order(sandbox, 1, ACCOUNT).await["permit"].clone();
        self.placed += 1;
        let id = format!("ORD-{}", self.placed);
        self.fix.new_order(&id, ACCOUNT, &permit).await;
        let report = self.fix.report(|report| report.get(11) == id).await;
        let texts = [reason.unwrap_or_default(), report.get(150), report.get(58)];
        [status.to_string(), texts[0].to_owned(), texts[1].to_owned(), texts[2].to_owned()]
    }

    async fn are_refused(&mut self, sandbox: &Sandbox, control: &str, code: &str) {
        let said = self.answers(sandbox).await;
        assert_eq!(said, ["422", code, "8", code], "{control}");
    }

    /// Prices in memory are put together anew four times a second: what is refused next is refused for its own sake.
    async fn wait_for_prices(&self) {
        let quoted = async || {
            let body = json!({"requestId": uuid::Uuid::new_v4(), "actorId": "a", "source": "USDC", "target": "USD",
                              "amount": "100", "side": "sell"});
            self.partner.post("/v1/quotes", &body).await.1
        };
        answer(quoted, |quoted| quoted["candidates"].as_array().is_some_and(|all| !all.is_empty())).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_limit_is_refused_over_both_interfaces() {
    let sandbox = Sandbox::start().await;
    let mut both = Both::of(&sandbox).await;
    for period in ["order", "day", "open"] {
        for (scope, targets, asset) in [
            ("everything", &[""][..], "USDC"),
            ("partner", &["acme"], "USDC"),
            ("pair", &["USDC/USD"], "USDC"),
            ("provider", &PROVIDERS, "USD"),
            ("rail", &["offramp"], "USDC"),
            ("rail", &["payout"], "USD"),
            ("chain", &["anvil"], "USDC"),
        ] {
            let change = |action: &str, target: &str| {
                let mut words = vec!["limit", action, "--scope", scope, "--asset", asset, "--per", period];
                if !target.is_empty() {
                    words.extend(["--target", target]);
                }
                if action == "set" {
                    words.extend(["--amount-minor", "1"]);
                }
                operate(&sandbox, &[&words[..], &BY, &EVIDENCE].concat());
            };
            targets.iter().for_each(|target| change("set", target));
            let prefix = if scope == "everything" { String::new() } else { format!("{scope}_") };
            let code = format!("{prefix}{period}_limit_exceeded");
            both.are_refused(&sandbox, &format!("{scope} {targets:?} {period}"), &code).await;
            targets.iter().for_each(|target| change("remove", target));
        }
    }
    assert_eq!(sandbox.one::<i64>(EXECUTIONS).await, 0);
    assert_eq!(sandbox.one::<i64>(RESERVED).await, 0);
    let said = both.answers(&sandbox).await;
    assert_eq!((said[0].as_str(), said[2].as_str()), ("202", "0"), "{said:?}");
    sandbox.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_pause_refuses_orders_or_holds_their_legs() {
    let sandbox = Sandbox::start().await;
    let mut both = Both::of(&sandbox).await;
    let change = |action: &str, scope: &str, target: &str| {
        let mut words = vec!["pause", action, "--scope", scope];
        if !target.is_empty() {
            words.extend(["--target", target]);
        }
        operate(&sandbox, &[&words[..], &BY].concat());
    };
    for (scope, targets) in [
        ("everything", &[""][..]),
        ("partner", &["acme"]),
        ("pair", &["USDC/USD"]),
        ("provider", &PROVIDERS),
        ("chain", &["anvil"]),
    ] {
        both.wait_for_prices().await;
        targets.iter().for_each(|target| change("add", scope, target));
        both.are_refused(&sandbox, scope, "no_liquidity").await;
        targets.iter().for_each(|target| change("remove", scope, target));
    }
    both.wait_for_prices().await;
    too_small(&sandbox, &mut both).await;
    assert_eq!(sandbox.one::<i64>(EXECUTIONS).await, 0);
    assert_eq!(sandbox.one::<i64>(RESERVED).await, 0);
    for (round, leg) in ["offramp", "payout"].into_iter().enumerate() {
        change("add", "rail", leg);
        let said = both.answers(&sandbox).await;
        assert_eq!((said[0].as_str(), said[2].as_str()), ("202", "0"), "{leg}: {said:?}");
        // A paused payout stops the conversion before it.
        let paused = "select count(*) from effect where kind = 'offramp' and last_result = 'paused'";
        answer(async || sandbox.one::<i64>(paused).await, |paused| *paused == 2).await;
        let called = i64::try_from(round * 4).unwrap();
        assert_eq!(sandbox.one::<i64>("select count(*) from simulated_rail").await, called, "{leg}");
        change("remove", "rail", leg);
        let ended = "select count(*) from execution where state_name = 'completed'";
        let all = i64::try_from(2 * (round + 1)).unwrap();
        answer(async || sandbox.one::<i64>(ended).await, |ended| *ended == all).await;
    }
    sandbox.stop().await;
}

/// Half a dollar is less than the pair's smallest order.
async fn too_small(sandbox: &Sandbox, both: &mut Both) {
    let mut order = both.partner.order(sandbox, 0, ACCOUNT).await;
    order.as_object_mut().unwrap().remove("permit");
    order["inputAsset"] = json!({"type": "fiat", "symbol": "USD", "currency": "USD"});
    order["outputAsset"] = json!({"type": "fiat", "symbol": "EUR", "currency": "EUR"});
    order["inputAmountMinor"] = json!("50");
    order["minOutputAmountMinor"] = json!("1");
    let (status, answer) = both.partner.submit(&order).await;
    let half = [(55, "USD/EUR"), (38, "0.5"), (44, "0.02")];
    both.fix.sell("SMALL", ACCOUNT, &Value::Null, &half).await;
    let report = both.fix.report(|report| report.get(11) == "SMALL").await;
    assert_eq!((status, &answer["reason"]), (422, &json!("no_liquidity")), "{answer}");
    assert_eq!((report.get(150), report.get(58)), ("8", "no_liquidity"));
}

#[tokio::test(flavor = "multi_thread")]
async fn disabled_partners_and_the_other_environment_are_refused() {
    let sandbox = Sandbox::start().await;
    let mut both = Both::of(&sandbox).await;
    // A key of the other environment is none of this deployment's, and neither a key nor a session of it is made.
    let other = sandbox.text("/partner/apiKey").replacen("svc_test_", "svc_live_", 1);
    let outsider = Partner::with_keys(&sandbox, &other, &sandbox.text("/partner/signingSecret"));
    let order = outsider.order(&sandbox, 0, ACCOUNT).await;
    let (status, answer) = outsider.submit(&order).await;
    assert_eq!((status, &answer["error"]["code"]), (401, &json!("INVALID_API_KEY")), "{answer}");
    let key = ["key", "create", "--partner", "acme", "--env", "live"];
    assert!(!refused(&sandbox, &key).is_empty());
    let made =
        sqlx::query("update fix_session set livemode = true").execute(&mut sandbox.database().await).await;
    assert!(made.is_err(), "the database keeps the sessions of its environment");

    operate(&sandbox, &[&["partner", "disable", "--name", "acme"][..], &BY].concat());
    let order = both.partner.order(&sandbox, 0, ACCOUNT).await;
    let (status, answer) = both.partner.submit(&order).await;
    assert_eq!((status, &answer["error"]["code"]), (403, &json!("API_KEY_DISABLED")), "{answer}");
    // The session is refused the order, or logged out before it; nothing is accepted.
    let permit = order["permit"].clone();
    both.fix.new_order("ORD-D", ACCOUNT, &permit).await;
    let report = both.fix.report(|report| report.get(11) == "ORD-D" || report.get(35) == "5").await;
    let refusals = ["partner disabled", "session disabled"];
    assert!(refusals.contains(&report.get(58)), "{}", report.get(58));
    assert_eq!(sandbox.one::<i64>(EXECUTIONS).await, 0);

    operate(&sandbox, &[&["partner", "enable", "--name", "acme"][..], &BY].concat());
    let submit = async || both.partner.submit(&order).await;
    let submitted = wait::answer(submit, |(status, _)| *status != 403).await;
    assert!(submitted.0 == 202 && submitted.1["reference"].is_string(), "{submitted:?}");
    sandbox.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_is_requested_once_and_counts_the_orders_in_flight() {
    let sandbox = Sandbox::start().await;
    let limit = ["limit", "set", "--scope", "rail", "--target", "payout", "--asset", "USD", "--per", "open"];
    let set = [&limit[..], &["--amount-minor", "15000"], &BY, &EVIDENCE].concat();
    let requested = said(&sandbox, &set);
    assert_eq!((&requested["state"], &requested["repeated"]), (&json!("pending"), &json!(false)));
    assert_eq!(said(&sandbox, &set)["repeated"], true);
    let limits = || said(&sandbox, &["limit", "list"])["limits"].clone();
    assert_eq!(limits(), json!([]));
    let id = requested["id"].as_str().unwrap();
    let own = ["approval", "approve", "--id", id, "--operator", "jo"];
    assert!(refused(&sandbox, &own).contains("another operator"));
    approve(&sandbox, &requested["id"]);

    // It never ends by itself: about a hundred dollars are in flight.
    let partner = Partner::of(&sandbox);
    let accepted = partner.submit_accepted(&partner.order(&sandbox, 0, "000123450007").await).await;
    let (status, rejected) = partner.submit(&partner.order(&sandbox, 1, ACCOUNT).await).await;
    assert_eq!((status, &rejected["reason"]), (422, &json!("rail_open_limit_exceeded")), "{rejected}");
    let shown = &limits()[0];
    assert_eq!((&shown["amountMinor"], &shown["per"]), (&json!("15000"), &json!("open")));
    assert_eq!(shown["openMinor"], accepted["path"]["outputAmountMinor"], "{shown} {accepted}");
    assert_eq!(said(&sandbox, &["audit", "verify"])["ok"], true);
    sandbox.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_control_must_name_an_existing_subject() {
    let sandbox = Sandbox::start().await;
    let is_refused = |words: &[&str], says: &str| {
        let complaint = refused(&sandbox, &[words, &BY].concat());
        assert!(complaint.contains(says), "{words:?}: {complaint}");
    };
    for (scope, target, asset, per, says) in [
        ("partner", "nobody", "USDC", "day", "nobody"),
        ("pair", "USDC", "USDC", "day", "INPUT/OUTPUT"),
        ("pair", "USDC/USD", "USD", "day", "INPUT/OUTPUT"),
        ("everything", "x", "USDC", "day", "nothing for everything"),
        ("provider", "nobody", "USD", "order", "there is no provider nobody"),
        ("rail", "wire", "USD", "order", "offramp or payout"),
        ("desk", "payout", "USD", "order", "the scopes are everything, partner"),
        ("chain", "anvil", "XYZ", "open", "there is no asset XYZ"),
        ("chain", "anvill", "USDC", "open", "did you mean anvil?"),
        ("pair", "USDC/usd", "USDC", "day", "did you mean USDC/USD?"),
        ("provider", "nortwind", "USD", "order", "did you mean northwind?"),
        ("provider", "northwind", "USD", "week", "a limit is per one of order, day, open"),
    ] {
        let limit = ["limit", "set", "--scope", scope, "--target", target, "--asset", asset, "--per", per];
        is_refused(&[&limit[..], &["--amount-minor", "1"], &EVIDENCE].concat(), says);
    }
    for (scope, target, says) in [
        ("everything", "USDC/USD", "has no target"),
        ("pair", "USDC", "INPUT/OUTPUT"),
        ("rail", "anchor", "offramp or payout"),
        ("provider", "", "needs a target"),
        ("pair", "usdc/usd", "there is no pair usdc/usd, did you mean USDC/USD?"),
        ("provider", "nortwind", "there is no provider nortwind, did you mean northwind?"),
        ("chain", "anvill", "there is no chain anvill, did you mean anvil?"),
        ("partner", "nobody", "nobody"),
        ("nothing", "", "the scopes are everything, partner"),
    ] {
        is_refused(&["pause", "add", "--scope", scope, "--target", target], says);
    }
    for (pair, bps, says) in [
        ("USDC", "50", "INPUT/OUTPUT"),
        ("USDC/XYZ", "50", "there is no pair USDC/XYZ"),
        ("USDC/USD", "0", "1 to 9999"),
        ("USDC/USD", "10000", "1 to 9999"),
    ] {
        is_refused(&[&["band", "set", "--pair", pair, "--bps", bps][..], &EVIDENCE].concat(), says);
    }
    let pause = |action: &str| {
        let pair = ["pause", action, "--scope", "pair", "--target", "USDC/USD"];
        said(&sandbox, &[&pair[..], &BY].concat())["changed"].clone()
    };
    assert_eq!([pause("add"), pause("add")], [true, false]);
    let listed = said(&sandbox, &["pause", "list"])["pauses"][0].clone();
    assert_eq!((&listed["target"], &listed["operator"]), (&json!("USDC/USD"), &json!("jo")));
    assert_eq!(pause("remove"), true);
    sandbox.stop().await;
}

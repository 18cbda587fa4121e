//! Every control that refuses orders does so over REST and over FIX alike, by the same word, and reserves nothing.
//!
//! | control | both interfaces here | elsewhere |
//! |---|---|---|
//! | limits: six scopes, by order, by day, of open orders | refused | concurrency and crashes in the core's tests |
//! | pauses: everything, partner, pair, provider, chain | refused | |
//! | pauses of a rail | accepted, and the leg waits | |
//! | smallest order of a pair | refused | |
//! | price bands | refused | every source of prices in the core's tests |
//! | partner disabled | refused | |
//! | key and session of the other environment | refused | |
//! | registered beneficiaries | | `beneficiaries` |
//! | screening by list and hook | | `screening` |

use serde_json::{Value, json};

use crate::fix::FixClient;
use crate::partner::Partner;
use crate::sandbox::{Sandbox, approve, refused, said};
use crate::wait::{self, answer};

const BY: [&str; 4] = ["--as", "jo", "--reason", "to be sure"];
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
    outside_its_band(&sandbox, &mut both).await;
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

/// A band far from the pair's prices.
async fn outside_its_band(sandbox: &Sandbox, both: &mut Both) {
    let change = |action: &str, more: &[&str]| {
        operate(sandbox, &[&["band", action, "--pair", "USDC/USD"][..], more, &BY, &EVIDENCE].concat());
    };
    change("set", &["--bps", "50", "--middle", "1.1"]);
    assert_eq!(said(sandbox, &["band", "list"])["bands"][0]["middle"], "1.1");
    let figure = r#"dvp_prices_refused{pair="USDC/USD",source="reference",fault="reference_outside"}"#;
    sandbox.wait_for_metric(&format!("{figure} 1")).await;
    both.are_refused(sandbox, "band", "no_liquidity").await;
    change("remove", &[]);
    sandbox.wait_for_metric(&format!("{figure} 0")).await;
    both.wait_for_prices().await;
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

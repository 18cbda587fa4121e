//! What `/metrics` shows: the documented figures and no others, and no series for a caller's text.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;
use sqlx::{Connection as _, Executor as _};
use uuid::Uuid;

use crate::fix::FixClient;
use crate::partner::Partner;
use crate::sandbox::Sandbox;
use crate::wait::answer;

const DOCUMENTATION: &str = include_str!("../../docs/metrics.md");

/// A documented metric: the values of its labels, where the documentation lists them all.
struct Documented {
    labels: BTreeMap<String, Option<BTreeSet<String>>>,
}

/// Metrics whose condition a sandbox with [`traffic`] does not meet.
const ABSENT: [&str; 11] = [
    // Nothing of a bank in files, a webhook endpoint, or a subscribed provider.
    "dvp_bank_alarms",
    "dvp_reconciliation_in_transit",
    "dvp_webhook_attempt_seconds",
    // One process, and no reset that waits.
    "dvp_fix_forwarded_connections",
    "dvp_fix_resets_delayed_total",
    // Nothing fails, differs, rests or is refused.
    "dvp_chain_indexer_failures_total",
    "dvp_chain_command_refusals_total",
    "dvp_prices_refused",
    "dvp_ranges_attempts_total",
    "dvp_reconciliation_breaks",
    "dvp_fix_parked_orders",
];

fn quoted(text: &str) -> Vec<String> {
    text.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

fn documented() -> BTreeMap<String, Documented> {
    let rows = DOCUMENTATION.lines().filter(|line| line.starts_with("| `"));
    rows.map(|row| {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let [_, name, _, labels, meaning, ..] = cells.as_slice() else { panic!("{row}") };
        let label = |text: &str| {
            let (name, values) = text.split_once(": ").unwrap();
            let listed = values.starts_with('`').then(|| quoted(values).into_iter().collect());
            (name.trim_matches('`').to_owned(), listed.filter(|_| !values.contains(" or ")))
        };
        let labels = labels.split("; ").filter(|text| !text.is_empty()).map(label).collect();
        let name = quoted(name).remove(0);
        let is_conditional = meaning.contains("(exists ");
        assert!(is_conditional || !ABSENT.contains(&name.as_str()), "{name} exists from the beginning");
        (name, Documented { labels })
    })
    .collect()
}

/// A series: its metric's name, without the suffix of a histogram's part, and its labels.
type Series = (String, BTreeMap<String, String>);

fn series(text: &str) -> BTreeSet<Series> {
    let histograms: BTreeSet<&str> =
        text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.strip_suffix(" histogram")).collect();
    let one = |line: &str| {
        let (name, labels) = line.split_once(['{', ' ']).unwrap();
        let stem = ["_bucket", "_sum", "_count"].iter().find_map(|suffix| name.strip_suffix(suffix));
        let name = stem.filter(|stem| histograms.contains(stem)).unwrap_or(name);
        let labels = if line[name.len()..].contains('{') { labels.rsplit_once('}').unwrap().0 } else { "" };
        let pairs = labels.split("\",").filter(|pair| !pair.is_empty());
        let pairs = pairs.map(|pair| pair.split_once("=\"").unwrap());
        let pairs = pairs.filter(|(label, _)| *label != "le");
        (
            name.to_owned(),
            pairs.map(|(label, value)| (label.to_owned(), value.trim_end_matches('"').to_owned())).collect(),
        )
    };
    text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()).map(one).collect()
}

async fn figures(sandbox: &Sandbox) -> String {
    reqwest::get(sandbox.text("/metrics")).await.unwrap().text().await.unwrap()
}

/// Requests that a hostile or broken client sends, and some good ones; all of them name things of their own.
async fn traffic(sandbox: &Sandbox, wallet: usize) {
    let partner = Partner::of(sandbox);
    partner.is_served().await;
    let order = partner.order(sandbox, wallet, &format!("00{wallet}123456789")).await;
    partner.settled(&order).await;
    let (base, client) = (sandbox.text("/http"), reqwest::Client::new());
    for n in 0..60 {
        let id = Uuid::new_v4();
        let mut odd = order.clone();
        odd["intentId"] = json!(format!("{id}\"}} 1\ndvp_injected{{x=\"{n}"));
        odd["clientReference"] = json!(id);
        assert_eq!(partner.submit(&odd).await.0, 400);
        let mut rejected = order.clone();
        (rejected["intentId"], rejected["clientReference"]) = (json!(id), json!(id));
        rejected["minOutputAmountMinor"] = json!("99999999");
        partner.submit(&rejected).await;
        partner.get(&format!("/v1/executions/{id}")).await;
        let method = reqwest::Method::from_bytes(format!("M{n}{}", wallet).as_bytes()).unwrap();
        for request in [
            client.get(format!("{base}/{id}/%22%7D?{id}")),
            client.get(format!("{base}/v1/executions/{id}/receipt")).header("x-api-key", id.to_string()),
            client.request(method, format!("{base}/v1/intents")),
            client.post(format!("{base}/v1/intents")).header("x-request-id", id.to_string()).body("{"),
        ] {
            request.send().await.unwrap();
        }
    }
    let console = sandbox.text("/console");
    for path in ["login".to_owned(), format!("orders/{}", Uuid::new_v4()), Uuid::new_v4().to_string()] {
        client.get(format!("{console}/{path}")).send().await.unwrap();
    }
    let mut session = FixClient::log_on(sandbox).await;
    session.send_raw("1", &[(112, &format!("t{wallet}"))]).await;
    session.report(|message| message.get(35) == "0").await;
    session.send_raw("D", &[(11, &Uuid::new_v4().to_string()), (55, "USDC/USD"), (54, "9")]).await;
    session.report(|message| message.get(35) == "3").await;
    let wallet = sandbox.text(&format!("/chain/wallets/{wallet}/address"));
    session.buy_for_money(&Uuid::new_v4().to_string(), &wallet).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_are_the_documented_ones_and_do_not_grow_with_traffic() {
    let sandbox = Sandbox::start().await;
    let documented = documented();
    traffic(&sandbox, 0).await;
    let shown = async || {
        let shown = series(&figures(&sandbox).await);
        let names: BTreeSet<&str> = shown.iter().map(|(name, _)| name.as_str()).collect();
        let required = documented.keys().filter(|name| !ABSENT.contains(&name.as_str()));
        let missing: Vec<&String> = required.filter(|name| !names.contains(name.as_str())).collect();
        (missing, shown)
    };
    let (_, first) = answer(shown, |(missing, _)| missing.is_empty()).await;
    for (name, labels) in &first {
        let metric = documented.get(name).unwrap_or_else(|| panic!("{name} is not documented"));
        let names: Vec<&String> = labels.keys().collect();
        assert_eq!(names, metric.labels.keys().collect::<Vec<_>>(), "labels of {name}");
        for (label, value) in labels {
            if let Some(listed) = &metric.labels[label] {
                assert!(listed.contains(value), "{name}: {label}={value} is not documented");
            }
        }
    }
    for wallet in [1, 2] {
        traffic(&sandbox, wallet).await;
    }
    // Which status a request gets also depends on rate limits.
    let without_status = |shown: &BTreeSet<Series>| -> BTreeSet<Series> {
        let without = |(name, labels): &Series| {
            let mut labels = labels.clone();
            labels.remove("http_response_status_code");
            (name.clone(), labels)
        };
        shown.iter().map(without).collect()
    };
    let later = series(&figures(&sandbox).await);
    assert!(later.len() < 1_500, "{} series", later.len());
    let (first, later) = (without_status(&first), without_status(&later));
    // Shown later than the first look, such as the comparison with the chain and the end of a connection.
    let slow = [
        "dvp_reconciliation_",
        "dvp_ledger_",
        "dvp_open_amount_",
        "dvp_order_",
        "dvp_chain_",
        "dvp_relayer_",
        "dvp_fix_disconnects_",
    ];
    let new: Vec<&Series> = later
        .difference(&first)
        .filter(|(name, _)| !slow.iter().any(|prefix| name.starts_with(prefix)))
        .collect();
    assert!(new.is_empty(), "the same kinds of requests made new series: {new:#?}");
    sandbox.stop().await;
}

/// A report, a refusal of the order's own, a commit that cannot be stored, and one that takes too long.
#[tokio::test(flavor = "multi_thread")]
async fn orders_over_fix_are_counted_by_their_answer() {
    let sandbox = Sandbox::start().await;
    let partner = Partner::of(&sandbox);
    let mut client = FixClient::log_on(&sandbox).await;
    for result in ["answered", "unavailable", "data"] {
        sandbox.wait_for_metric(&format!("dvp_fix_orders_total{{result=\"{result}\"}} 0")).await;
    }
    let account = "bene_a:dest_10000000";
    let permit = async |wallet| partner.order(&sandbox, wallet, account).await["permit"].clone();
    client.new_order("good", account, &permit(0).await).await;
    client.report(|report| report.get(11) == "good" && report.get(150) == "0").await;
    client.sell("unknown", account, &permit(1).await, &[(55, "GOLD/USD")]).await;
    client.report(|report| report.get(11) == "unknown" && report.get(150) == "8").await;
    sandbox.wait_for_metric("dvp_fix_orders_total{result=\"answered\"} 2").await;
    sandbox.wait_for_metric("dvp_fix_order_seconds_count 2").await;

    let mut conn = sandbox.database().await;
    let refusing = "create function refuse() returns trigger language plpgsql as
         $$ begin raise exception 'broken' using errcode = 'character_not_in_repertoire'; end $$;
         create trigger refuse before insert on fix_order for each row when (new.cl_ord_id = 'bad')
         execute function refuse()";
    conn.execute(sqlx::raw_sql(refusing)).await.unwrap();
    // The order's own commit fails, and then it is refused.
    client.new_order("bad", account, &permit(1).await).await;
    sandbox.wait_for_metric("dvp_fix_orders_total{result=\"data\"} 2").await;

    // Longer than a transaction may take.
    conn.execute(sqlx::raw_sql("begin; lock table intent in exclusive mode")).await.unwrap();
    let mut client = FixClient::log_on(&sandbox).await;
    client.new_order("slow", account, &permit(1).await).await;
    sandbox.wait_for_metric("dvp_fix_orders_total{result=\"unavailable\"} 1").await;
    sandbox.wait_for_metric("dvp_fix_order_seconds_count 2").await;
    conn.close().await.unwrap();
    sandbox.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn json_log_lines_name_intent_partner_request_and_session() {
    let sandbox = Sandbox::start_with(&["--log-format", "json"]).await;
    let partner = Partner::of(&sandbox);
    partner.is_served().await;
    let order = partner.order(&sandbox, 0, "000123456789").await;
    partner.settled(&order).await;
    drop(FixClient::log_on(&sandbox).await);
    let log = sandbox.log();
    let lines: Vec<serde_json::Value> =
        log.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"))).collect();
    let intent = &order["intentId"];
    let answered =
        lines.iter().find(|line| line["message"] == "request answered" && line["intent_id"] == *intent);
    let answered = answered.unwrap_or_else(|| panic!("no line of the order's answer in\n{log}"));
    assert_eq!(answered["partner"], "ptn_acme");
    assert!(answered["request_id"].is_string() && answered["status"] == 202, "{answered}");
    // Settlement goes on under the same intent, outside of the request.
    let stepped = lines.iter().filter(|line| line["message"] == "settlement state changed");
    assert!(stepped.filter(|line| line["intent_id"] == *intent).count() > 3, "{log}");
    assert!(lines.iter().any(|line| line["session"] == "FIX.4.4:DVP->ACME"), "{log}");
    sandbox.stop().await;
}

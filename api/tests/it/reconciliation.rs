//! Reports: rows over pages, totals that they add up to, a snapshot that does not move.

use std::collections::BTreeMap;

use chrono::{TimeDelta, Utc};
use dvp_core::context::now;
use dvp_core::operators::operations::Action;
use dvp_core::ranges;
use dvp_domain::reconcile::BreakKind;
use serde_json::{Value, json};

use dvp_testing::wait::{wait_for, wait_past_midnight};

use crate::harness::{ApiHarness, Call, changed, order};
use crate::intents::ranged;

/// Orders of a day.
async fn reported(orders: usize) -> (ApiHarness, String) {
    wait_past_midnight().await;
    let harness = ApiHarness::new().await;
    for _ in 0..orders {
        harness.submit(&harness.acme, &order()).await.ok(202);
    }
    let day = harness.now.iso8601()[..10].to_owned();
    (harness, day)
}

type Sums = BTreeMap<(String, String), (u128, u128, u128, u128)>;

fn number(value: &Value) -> u128 {
    value.as_str().unwrap().parse().unwrap()
}

/// The totals of the rows, by currency and status: input, output, fees deducted and absorbed.
fn add_up(rows: &[Value]) -> Sums {
    let mut sums = Sums::new();
    for row in rows {
        let status = row["status"].as_str().unwrap();
        let key = |currency: &Value| (currency.as_str().unwrap().to_owned(), status.to_owned());
        sums.entry(key(&row["input"]["currency"])).or_default().0 += number(&row["input"]["amountMinor"]);
        sums.entry(key(&row["output"]["currency"])).or_default().1 += number(&row["output"]["amountMinor"]);
        for fee in row["fees"].as_array().unwrap() {
            let sum = sums.entry(key(&fee["currency"])).or_default();
            let amount = number(&fee["amountMinor"]);
            if fee["collection"] == "deducted" { sum.2 += amount } else { sum.3 += amount }
        }
    }
    sums
}

fn totals(report: &Value) -> Sums {
    let one = |total: &Value| {
        let key =
            (total["currency"].as_str().unwrap().to_owned(), total["status"].as_str().unwrap().to_owned());
        let (input, output) =
            (number(&total["inputs"]["amountMinor"]), number(&total["outputs"]["amountMinor"]));
        (key, (input, output, number(&total["feesDeductedMinor"]), number(&total["feesAbsorbedMinor"])))
    };
    report["totals"].as_array().unwrap().iter().map(one).collect()
}

/// Two operators enter that the bank returned an order's payment.
async fn return_payment(harness: &ApiHarness, reference: &str) {
    let action = Action::MarkReturned {
        provider_reference: "R1".into(),
        at: Utc::now(),
        came: None,
        code: "account_closed".into(),
    };
    harness.both_decide(reference, action).await;
    harness.wait_for_state(reference, "reversed").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_of_all_pages_add_up_to_the_totals_despite_new_orders() {
    let (harness, day) = reported(0).await;
    harness.start_workers();
    let mut references = Vec::new();
    for n in 0..7_u32 {
        let mut body = order();
        body["beneficiary"]["account"] = json!(if n == 3 { "000123450008" } else { "000123456789" });
        references.push(harness.submit(&harness.acme, &body).await.ok(202)["reference"].clone());
    }
    for reference in &references[..3] {
        harness.play_chain(reference.as_str().unwrap()).await;
    }
    let first_path = format!("/v1/reconciliation?from={day}&to={day}&limit=3");
    let settled = async || {
        let page = harness.get(&harness.acme, &first_path).await.ok(200);
        let all = page["rows"].as_array().unwrap().iter().all(|row| !row["anchorTxHash"].is_null());
        all.then_some(page)
    };
    wait_for("the first three to be anchored", settled).await;
    return_payment(&harness, references[1].as_str().unwrap()).await;
    let first = harness.get(&harness.acme, &first_path).await.ok(200);
    let (mut rows, mut page) = (first["rows"].as_array().unwrap().clone(), first.clone());
    while page["hasMore"] == true {
        // Orders that arrive between the pages, and steps of those already reported.
        harness.submit(&harness.acme, &order()).await.ok(202);
        if rows.len() == 3 {
            harness.play_chain(references[4].as_str().unwrap()).await;
        }
        let path = format!("{first_path}&cursor={}", page["nextCursor"].as_str().unwrap());
        page = harness.get(&harness.acme, &path).await.ok(200);
        assert_eq!(page["totals"], first["totals"]);
        rows.extend(page["rows"].as_array().unwrap().clone());
    }
    assert_eq!(page["nextCursor"], Value::Null);
    let reported: Vec<&Value> = rows.iter().map(|row| &row["reference"]).collect();
    assert_eq!(reported, references.iter().collect::<Vec<_>>());
    assert_eq!(add_up(&rows), totals(&first));
    let statuses: Vec<&str> = rows.iter().map(|row| row["status"].as_str().unwrap()).collect();
    assert_eq!(statuses[..3], ["completed", "failed", "completed"]);
    assert_eq!(rows[1]["fees"], rows[0]["fees"], "a returned payment had been carried out");
    assert_eq!(statuses[4], "in_progress", "events after the first page are not reported");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_totals_are_counted_once_for_all_pages() {
    let (harness, day) = reported(3).await;
    let path = format!("/v1/reconciliation?from={day}&to={day}&limit=1");
    let first = harness.get(&harness.acme, &path).await.ok(200);
    // Amounts of events never change; if they did, totals that are counted again would show it.
    harness
        .run("update event set object = jsonb_set(object::jsonb, '{input,amountMinor}', '\"1\"')::json")
        .await;
    let path = format!("{path}&cursor={}", first["nextCursor"].as_str().unwrap());
    let second = harness.get(&harness.acme, &path).await.ok(200);
    assert_eq!(second["rows"][0]["input"]["amountMinor"], "1", "{}", second["rows"]);
    assert_eq!(second["totals"], first["totals"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partners_totals_are_counted_one_at_a_time_and_equal_ones_once() {
    let (harness, day) = reported(0).await;
    let accepted = harness.submit(&harness.acme, &order()).await.ok(202);
    // So many that counting takes a while.
    let copies = "insert into execution select reference || '_' || n, partner_id, livemode, intent_id || n, \
                      client_reference || n, sha256(n::text::bytea), terms, state_name, state, version, last_sequence, \
                      last_occurred_at, accepted_at - make_interval(secs => n / 1e6), terminal_at \
                  from execution, generate_series(1, 20000) n where reference = $1";
    sqlx::query(copies).bind(accepted["reference"].as_str()).execute(harness.pool()).await.unwrap();
    let before = (now().to_utc() - TimeDelta::days(1)).format("%Y-%m-%d");
    let paths = [
        format!("/v1/reconciliation?from={day}&to={day}&limit=1"),
        format!("/v1/reconciliation?from={before}&to={day}&limit=1"),
    ];
    let counting = "select count(*) from pg_stat_activity where state = 'active' and query like 'with reported as (%' \
                    and datname = current_database()";
    let (mut most, mut seen, mut was) = (0, 0, 0);
    let calls: Vec<Call> = (0..24).map(|n| Call::get(&harness.acme, &paths[n % 2])).collect();
    let reports = calls.iter().map(|call| harness.send(call));
    let mut reports = std::pin::pin!(futures_util::future::join_all(reports));
    let answers = loop {
        tokio::select! {
            answers = &mut reports => break answers,
            found = sqlx::query_scalar::<_, i64>(counting).fetch_one(harness.pool()) => {
                let found = found.unwrap();
                most = most.max(found);
                seen += i64::from(found > was);
                was = found;
            }
        }
    };
    for answer in answers {
        answer.ok(200);
    }
    // On a busy machine a count may end between two looks.
    assert!(most <= 1, "{most} at a time");
    // Two, each prepared and executed.
    assert!(seen <= 4, "{seen} were counted");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_has_the_whole_execution_in_json_and_csv() {
    let (harness, day) = reported(0).await;
    harness.start_workers();
    let mut body = order();
    body["clientReference"] = json!("desk \"7\", ü");
    let accepted = harness.submit(&harness.acme, &body).await.ok(202);
    let reference = accepted["reference"].as_str().unwrap();
    harness.play_chain(reference).await;
    let path = format!("/v1/reconciliation?from={day}&to={day}");
    let anchored = async || {
        let page = harness.get(&harness.acme, &path).await.ok(200);
        (!page["rows"][0]["anchorTxHash"].is_null()).then_some(page)
    };
    let report = wait_for("the anchor", anchored).await;
    let row = &report["rows"][0];
    let receipt = harness
        .get(&harness.acme, &format!("/v1/executions/{reference}/receipt?refType=executionId"))
        .await
        .ok(200);
    assert_eq!(row["clientReference"], body["clientReference"]);
    assert_eq!((&row["intentId"], &row["status"]), (&body["intentId"], &json!("completed")));
    assert_eq!(row["input"], json!({"amountMinor": "100000000", "currency": "USDC", "exponent": 6}));
    assert_eq!(row["output"]["amountMinor"], receipt["payout"]["amountMinor"]);
    assert_eq!(row["fees"], receipt["fees"]);
    assert_eq!(row["receiptHash"], dvp_domain::receipt::hash(&receipt));
    assert_eq!(row["anchorTxHash"], receipt["txHash"]);
    for field in ["lockTxHash", "settleTxHash", "acceptedAt", "terminalAt"] {
        assert!(row[field].is_string(), "{field}");
    }
    // This harness reports chain events itself; it has no indexer.
    assert_eq!(row["chainState"], Value::Null);
    assert_eq!((&row["breaks"], &report["reconciledAt"]), (&json!([]), &Value::Null));
    harness.found(reference, &[BreakKind::ExecutionWithoutLock]).await;
    harness.found(reference, &[BreakKind::PaidNotSettled, BreakKind::AmountMismatch]).await;
    let report = harness.get(&harness.acme, &path).await.ok(200);
    assert_eq!(
        report["rows"][0]["breaks"],
        json!(["amount_mismatch", "paid_not_settled"]),
        "of the last run"
    );
    assert!(report["reconciledAt"].is_string());

    let call = Call::get(&harness.acme, &path).with("Accept", "text/csv");
    let csv = harness.send(&call).await;
    assert_eq!(csv.status, 200);
    assert!(csv.header("content-type").unwrap().starts_with("text/csv"));
    let lines: Vec<&str> = csv.text.split_terminator("\r\n").collect();
    assert_eq!(lines.len(), 2);
    assert!(lines[0].starts_with("clientReference,reference,intentId,status,"));
    let text = |field: &str| row[field].as_str().unwrap();
    assert!(lines[1].starts_with(&format!(
        "\"desk \"\"7\"\", ü\",{reference},{},completed,100000000,USDC,6,",
        text("intentId")
    )));
    assert!(lines[1].contains(";payout_fee:deducted:50:USD;"));
    assert!(lines[1].ends_with(",amount_mismatch;paid_not_settled"));
}

#[tokio::test]
async fn csv_pages_carry_the_cursor_in_a_header() {
    let (harness, day) = reported(3).await;
    let path = format!("/v1/reconciliation?from={day}&to={day}&limit=2");
    let first = harness.send(&Call::get(&harness.acme, &path).with("Accept", "text/csv;q=0.9, */*")).await;
    let cursor = first.header("x-next-cursor").unwrap().to_owned();
    let next = format!("{path}&cursor={cursor}");
    let second = harness.send(&Call::get(&harness.acme, &next).with("Accept", "text/csv")).await;
    assert_eq!((first.text.lines().count(), second.text.lines().count()), (3, 2));
    assert_eq!(second.header("x-next-cursor"), None);
}

#[tokio::test]
async fn a_daily_report_is_final_a_minute_after_its_cutoff() {
    let (harness, day) = reported(1).await;
    let ask = async |date: &str| {
        let path = format!("/v1/reports/reconciliation/daily?date={date}");
        harness.get(&harness.acme, &path).await.ok(200)
    };
    let report = ask(&day).await;
    assert_eq!((&report["date"], &report["final"]), (&json!(day), &json!(false)));
    assert!(report["cutoff"].as_str().unwrap().ends_with("T00:00:00.000Z"));
    assert_eq!(report["rows"].as_array().unwrap().len(), 1);
    harness.pass(86_400 + 61);
    let settled = ask(&day).await;
    assert_eq!(settled["final"], true);
    assert_eq!((&settled["rows"], &settled["totals"]), (&report["rows"], &report["totals"]));
    let empty = ask("2020-02-29").await;
    assert_eq!(
        (&empty["rows"], &empty["final"], &empty["hasMore"]),
        (&json!([]), &json!(true), &json!(false))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_final_report_keeps_the_amounts_of_a_range_that_is_filled_later() {
    let (harness, _) = reported(0).await;
    // 100 USDC give 99.35, to which the output falls in three seconds.
    let falling = json!({"targetAmountMinor": "10000", "limitAmountMinor": "8000"});
    let body = ranged(json!({"limitAmountMinor": "100000000"}), falling);
    let body = changed(body, "/deadline", Some(json!(now().plus_millis(90_000))));
    let accepted = harness.submit(&harness.acme, &body).await.ok(202);
    let reference = accepted["reference"].as_str().unwrap();
    harness.wait_for_state(reference, "resting").await;
    for earlier in [
        "update execution set accepted_at = accepted_at - interval '1 day'",
        "update event set occurred_at = occurred_at - interval '1 day', observed_at = observed_at - interval '1 day'",
    ] {
        harness.run(earlier).await;
    }
    harness.pass(61);
    let yesterday = (harness.now.to_utc() - TimeDelta::days(1)).date_naive();
    let call = Call::get(&harness.acme, &format!("/v1/reports/reconciliation/daily?date={yesterday}"));
    let before = harness.send(&call).await.ok(200);
    let row = &before["rows"][0];
    assert_eq!(before["final"], true);
    assert_eq!(
        (&row["input"]["amountMinor"], &row["output"]["amountMinor"]),
        (&json!("100000000"), &json!("8000"))
    );

    tokio::spawn(ranges::run(harness.engine.clone(), harness.stopped()));
    harness.wait_for_state(reference, "accepted").await;
    // A process that has not counted the totals yet.
    let after = harness.send_to(harness.another_process(), &call).await.ok(200);
    assert_eq!((&after["rows"], &after["totals"]), (&before["rows"], &before["totals"]));
    assert_eq!(add_up(after["rows"].as_array().unwrap()), totals(&after));
}

#[tokio::test]
async fn bad_dates_ranges_and_cursors_are_refused() {
    let (harness, day) = reported(2).await;
    let ask = async |query: &str| harness.get(&harness.acme, &format!("/v1/reconciliation?{query}")).await;
    for (query, field) in [
        ("", "from"),
        ("from=2026-01-01", "to"),
        ("from=2026-1-1&to=2026-01-02", "from"),
        ("from=2026-02-30&to=2026-03-01", "from"),
        ("from=2026-01-01T00:00:00Z&to=2026-01-02", "from"),
        ("from=2026-01-02&to=2026-01-01", "to"),
        ("from=2026-01-01&to=2026-04-03", "to"),
        ("from=2026-01-01&to=2026-01-02&limit=0", "limit"),
        ("from=2026-01-01&to=2026-01-02&limit=101", "limit"),
    ] {
        let message = ask(query).await.refused(400, "INVALID_PARAMETER");
        assert!(message.starts_with(&format!("{field}: ")), "{query}: {message}");
    }
    let range = format!("from={day}&to={day}&limit=1");
    let cursor = ask(&range).await.ok(200)["nextCursor"].as_str().unwrap().to_owned();
    ask(&format!("from=2026-01-01&to={day}&limit=1")).await.refused(400, "INVALID_PARAMETER");
    ask(&format!("{range}&cursor=00")).await.refused(400, "INVALID_CURSOR");
    let other = format!("/v1/reports/reconciliation/daily?date={day}&cursor={cursor}");
    harness.get(&harness.acme, &other).await.refused(400, "INVALID_CURSOR");
    let foreign = format!("/v1/reconciliation?{range}&cursor={cursor}");
    harness.get(&harness.globex, &foreign).await.refused(400, "INVALID_CURSOR");
    ask(&format!("{range}&cursor={cursor}")).await.ok(200);
}

#[tokio::test]
async fn no_field_of_a_csv_report_is_a_formula() {
    let harness = ApiHarness::new().await;
    let order = changed(order(), "/clientReference", Some(json!("=HYPERLINK(\"x\")")));
    harness.submit(&harness.acme, &order).await.ok(202);
    let day = &harness.now.iso8601()[..10];
    let path = format!("/v1/reconciliation?from={day}&to={day}");
    let csv = harness.send(&Call::get(&harness.acme, &path).with("Accept", "text/csv")).await;
    assert!(csv.text.contains("\r\n\"'=HYPERLINK(\"\"x\"\")\","), "{}", csv.text);
}

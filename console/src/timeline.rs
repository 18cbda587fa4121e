//! What happened to an order, in one list: events, FIX requests, calls of rails, chain commands with their transactions
//! and facts, ledger postings, bank payments with their messages, recalls, screening and operators' actions, by their
//! times.

use chrono::{DateTime, Utc};
use serde_json::Value;

use crate::view::{self, Moment};

/// Something that happened to an order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Happening {
    pub at: Moment,
    pub time: DateTime<Utc>,
    /// Event, rail, chain, ledger, bank, screening or operator.
    pub kind: &'static str,
    pub title: String,
    pub tone: &'static str,
    pub details: Vec<Detail>,
}

/// A named value, and the page of what it names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Detail {
    pub name: &'static str,
    pub value: String,
    pub link: Option<String>,
}

impl Detail {
    const fn plain(name: &'static str, value: String) -> Self {
        Self { name, value, link: None }
    }

    /// An identifier, which leads to what it names.
    fn id(name: &'static str, value: String) -> Self {
        let link = Some(view::found(&value));
        Self { name, value, link }
    }
}

fn text(row: &Value, field: &str) -> Option<String> {
    match &row[field] {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    }
}

fn time(row: &Value, field: &str) -> Option<DateTime<Utc>> {
    row[field].as_str()?.parse().ok()
}

/// The fields of times are named so.
fn is_time(field: &str) -> bool {
    field.ends_with("At")
}

/// An account's name without the parts that say nothing: `escrow` for `escrow::total`.
fn account(name: &str) -> String {
    let name = name.strip_suffix(":total").unwrap_or(name);
    name.replace("::", ":").trim_end_matches(':').to_owned()
}

fn details(row: &Value, ids: &[(&'static str, &str)], values: &[(&'static str, &str)]) -> Vec<Detail> {
    let named = |is_id: bool| {
        move |(name, field): &(&'static str, &str)| {
            let value = if is_time(field) { time(row, field).map(|at| Moment::from(at).text) } else { None };
            let value = value.or_else(|| text(row, field));
            value.map(|value| if is_id { Detail::id(name, value) } else { Detail::plain(name, value) })
        }
    };
    ids.iter().filter_map(named(true)).chain(values.iter().filter_map(named(false))).collect()
}

/// A happening whose time is known.
fn happened(
    at: Option<DateTime<Utc>>,
    kind: &'static str,
    title: String,
    tone: &'static str,
    details: Vec<Detail>,
) -> Option<Dated> {
    at.map(|at| (at, Happening { at: at.into(), time: at, kind, title, tone, details }))
}

fn rows<'a>(history: &'a Value, part: &str) -> impl Iterator<Item = &'a Value> {
    history[part].as_array().map(Vec::as_slice).unwrap_or_default().iter()
}

type Dated = (DateTime<Utc>, Happening);

/// The happenings of an order's history, the oldest first. `decimals` gives an asset's. `documents`: where the order's
/// documents are, for an operator who may read them.
pub(crate) fn of(history: &Value, decimals: impl Fn(&str) -> u8, documents: Option<&str>) -> Vec<Happening> {
    let mut all = Vec::new();
    all.extend(rows(history, "events").filter_map(event));
    all.extend(rows(history, "fix").filter_map(fix));
    all.extend(rows(history, "work").filter_map(work));
    all.extend(rows(history, "calls").filter_map(call));
    all.extend(rows(history, "chain").filter_map(command));
    all.extend(rows(history, "transactions").filter_map(transaction));
    all.extend(rows(history, "facts").filter_map(fact));
    all.extend(postings(history, decimals));
    all.extend(rows(history, "bank").filter_map(payment));
    all.extend(rows(history, "messages").filter_map(|row| message(row, documents)));
    all.extend(rows(history, "recalls").filter_map(recall));
    all.extend(rows(history, "screening").filter_map(screening));
    all.extend(rows(history, "operators").filter_map(decision));
    all.sort_by_key(|(at, _)| *at);
    all.into_iter().map(|(_, happening)| happening).collect()
}

fn event(row: &Value) -> Option<Dated> {
    let name = text(row, "type").unwrap_or_default();
    let tone = match name.rsplit('.').next() {
        Some("completed") => "good",
        Some("failed" | "reversed") => "bad",
        Some("expired" | "cancelled") => "idle",
        _ => "busy",
    };
    let details = details(row, &[], &[("sequence", "sequence")]);
    happened(time(row, "occurredAt"), "event", name, tone, details)
}

fn fix(row: &Value) -> Option<Dated> {
    let (session, id) = (text(row, "session")?, text(row, "clOrdId")?);
    let link = Some(view::messages_of(&session, &id));
    let details =
        vec![Detail::id("session", session), Detail { name: "messages of ClOrdID", value: id, link }];
    happened(time(row, "at"), "fix", "requested over FIX".to_owned(), "busy", details)
}

/// Work that is due or in progress.
fn work(row: &Value) -> Option<Dated> {
    let kind = text(row, "kind").unwrap_or_default();
    let more =
        [("attempts", "attempts"), ("last result", "lastResult"), ("due", "runAt"), ("decided", "verdict")];
    let called = time(row, "calledAt");
    let title = if called.is_some() { format!("{kind}: being called") } else { format!("{kind}: due") };
    happened(called.or_else(|| time(row, "runAt")), "rail", title, "busy", details(row, &[], &more))
}

fn call(row: &Value) -> Option<Dated> {
    let result = text(row, "result").unwrap_or_default();
    let title = format!(
        "{}: {} {}",
        text(row, "leg").unwrap_or_default(),
        if row["call"] == "submit" { "called," } else { "asked," },
        view::words(&result)
    );
    let tone = match result.as_str() {
        "done" => "good",
        "failed" => "bad",
        "unavailable" | "unconfirmed" => "warn",
        _ => "busy",
    };
    let mut shown = details(row, &[], &[("answer", "detail")]);
    if row["times"].as_i64().is_some_and(|times| times > 1) {
        shown.extend(details(row, &[], &[("times", "times"), ("last", "lastAt")]));
    }
    shown.extend(text(row, "tookMs").map(|took| Detail::plain("took", format!("{took} ms"))));
    happened(time(row, "firstAt"), "rail", title, tone, shown)
}

fn command(row: &Value) -> Option<Dated> {
    let (kind, state) = (text(row, "kind").unwrap_or_default(), text(row, "state").unwrap_or_default());
    let tries = if row["tries"] == 0 { "" } else { "tries" };
    let more = [("tries", tries), ("trouble", "trouble"), ("done", "doneAt")];
    let title = format!("{} commanded: {state}", view::words(&kind));
    happened(
        time(row, "createdAt"),
        "chain",
        title,
        view::tone(&state),
        details(row, &[("entity", "entity")], &more),
    )
}

/// A signed transaction: several of a nonce replace each other.
fn transaction(row: &Value) -> Option<Dated> {
    let attempt = row["attempt"].as_i64().unwrap_or_default().saturating_add(1);
    let kind = view::words(&text(row, "kind").unwrap_or_default());
    let state = text(row, "nonceState").unwrap_or_default();
    let ids = [("transaction", "txHash"), ("relayer", "signer")];
    let more = [
        ("nonce", "nonce"),
        ("state of the nonce", "nonceState"),
        ("last sent", "lastBroadcastAt"),
        ("error", "lastError"),
    ];
    let mut shown = details(row, &ids, &more);
    for (name, field) in [("most a gas", "maxFee"), ("tip a gas", "priorityFee")] {
        shown.extend(
            text(row, field)
                .map(|fee| Detail::plain(name, format!("{} gwei", view::amount(&fee, view::GWEI)))),
        );
    }
    let title = format!("{kind}: transaction signed, attempt {attempt}");
    let tone = if row["lastError"].is_null() { view::tone(&state) } else { "warn" };
    happened(time(row, "createdAt"), "chain", title, tone, shown)
}

fn fact(row: &Value) -> Option<Dated> {
    let title = format!("{} on the chain", view::words(&text(row, "kind").unwrap_or_default()));
    let tone = if row["retractedAt"].is_null() && row["differs"].is_null() { "good" } else { "bad" };
    let more = [
        ("block", "block"),
        ("waits for", "waitsFor"),
        ("differs", "differs"),
        ("retracted", "retractedAt"),
        ("error", "lastError"),
    ];
    let details = details(row, &[("transaction", "txHash")], &more);
    happened(time(row, "observedAt"), "chain", title, tone, details)
}

fn payment(row: &Value) -> Option<Dated> {
    let status = text(row, "status").unwrap_or_default();
    let ids =
        [("end-to-end id", "endToEndId"), ("bank reference", "bankReference"), ("message", "messageId")];
    let more = [("reason", "reason"), ("alarm", "alarm"), ("paid", "paidAt"), ("returned", "returnedAt")];
    let tone = if row["alarm"].is_null() { view::tone(&status) } else { "bad" };
    let title = format!("payment ordered: {status}");
    happened(time(row, "orderedAt"), "bank", title, tone, details(row, &ids, &more))
}

/// A message to or from the bank. The name of its file is a link to its text while the text is kept.
fn message(row: &Value, documents: Option<&str>) -> Option<Dated> {
    let (name, said) = (text(row, "message").unwrap_or_default(), text(row, "said").unwrap_or_default());
    let sent = row["direction"] == "out";
    let title = if sent { format!("to the bank: {said}") } else { format!("from the bank: {said}") };
    let tone = match said.as_str() {
        "paid" | "recall accepted" => "good",
        "refused" | "returned" | "recall rejected" => "bad",
        _ => "busy",
    };
    let file = text(row, "file").unwrap_or_default();
    let link = documents.zip(text(row, "digest")).filter(|_| row["isKept"] == true);
    let link = link.map(|(documents, digest)| format!("{documents}/{digest}"));
    let details = vec![Detail::plain("message", name), Detail { name: "file", value: file, link }];
    happened(time(row, "at"), "bank", title, tone, details)
}

fn recall(row: &Value) -> Option<Dated> {
    let status = text(row, "status").unwrap_or_default();
    let more = [
        ("reason", "reason"),
        ("sent", "sentAt"),
        ("answered", "answeredAt"),
        ("the bank's reason", "answerReason"),
        ("contradicting", "contradicting"),
        ("closed", "closedAt"),
    ];
    let tone = if row["contradicting"].is_null() { view::tone(&status) } else { "bad" };
    let title = format!("recall of the payment: {}", view::words(&status));
    happened(time(row, "approvedAt"), "bank", title, tone, details(row, &[("recall", "id")], &more))
}

fn screening(row: &Value) -> Option<Dated> {
    let result = text(row, "verdict").unwrap_or_default();
    let tone = if result == "pass" { "good" } else { "warn" };
    let details = details(row, &[], &[("source", "source"), ("detail", "detail")]);
    happened(time(row, "at"), "screening", format!("screening: {result}"), tone, details)
}

fn decision(row: &Value) -> Option<Dated> {
    let action = view::words(&text(row, "action").unwrap_or_default());
    let title = format!("{action} by {}", text(row, "operator").unwrap_or_default());
    let mut details = details(row, &[], &[("reason", "reason"), ("version", "version")]);
    let evidence = &row["evidence"];
    let given = text(evidence, "evidence").filter(|given| !given.is_empty());
    details.extend(given.map(|value| Detail::plain("evidence", value)));
    details.extend(text(evidence, "approval").map(|value| Detail::id("request", value)));
    happened(time(row, "at"), "operator", title, "warn", details)
}

/// A happening for each posting, with its moves.
fn postings(history: &Value, decimals: impl Fn(&str) -> u8) -> Vec<(DateTime<Utc>, Happening)> {
    let mut all: Vec<(Value, DateTime<Utc>, Happening)> = Vec::new();
    for row in rows(history, "ledger") {
        let asset = text(row, "asset").unwrap_or_default();
        let amount = view::amount(&text(row, "amount").unwrap_or_default(), decimals(&asset));
        let account = account(&text(row, "account").unwrap_or_default());
        let detail = Detail::plain("", format!("{amount} {asset}  {account}"));
        match all.last_mut() {
            Some((step, _, posting)) if *step == row["step"] => posting.details.push(detail),
            _ => {
                let reason = view::words(&text(row, "reason").unwrap_or_default());
                let found = happened(
                    time(row, "recordedAt"),
                    "ledger",
                    format!("posted: {reason}"),
                    "calm",
                    vec![detail],
                );
                all.extend(found.map(|(at, posting)| (row["step"].clone(), at, posting)));
            }
        }
    }
    all.into_iter().map(|(_, at, posting)| (at, posting)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn accounts_have_no_empty_parts() {
        for (name, shown) in [
            ("escrow::total", "escrow"),
            ("house::claim", "house:claim"),
            ("external:network:total", "external:network"),
            ("provider:p:available", "provider:p:available"),
        ] {
            assert_eq!(account(name), shown);
        }
    }

    #[test]
    fn parts_are_merged_by_time_and_moves_of_a_posting_are_one() {
        let history = json!({
            "events": [{"sequence": 1, "type": "intent.accepted", "occurredAt": "2026-01-01T00:00:00Z"}],
            "ledger": [
                {"step": 1, "line": 0, "reason": "order_accepted", "account": "provider:p:available", "asset": "USD",
                 "amount": "-100", "recordedAt": "2026-01-01T00:00:01Z"},
                {"step": 1, "line": 1, "reason": "order_accepted", "account": "provider:p:reserved", "asset": "USD",
                 "amount": "100", "recordedAt": "2026-01-01T00:00:01Z"},
            ],
            "bank": [{"endToEndId": "E1", "status": "paid", "orderedAt": "2026-01-01T00:00:03Z", "alarm": null,
                      "paidAt": "2026-01-01T00:00:04.126834+00:00"}],
            "operators": [{"at": "2026-01-01T00:00:02Z", "operator": "jo", "action": "mark_paid", "reason": "seen",
                           "evidence": {"evidence": "line 4", "approval": "apr_1"}}],
        });
        let all = of(&history, |_| 2, None);
        let titles: Vec<&str> = all.iter().map(|one| one.title.as_str()).collect();
        assert_eq!(
            titles,
            ["intent.accepted", "posted: order accepted", "mark paid by jo", "payment ordered: paid"]
        );
        assert_eq!(all[1].details[0].value, "-1.00 USD  provider:p:available");
        assert_eq!(all[1].details.len(), 2);
        assert_eq!(all[3].details[0].link.as_deref(), Some("/search?q=E1"));
        assert_eq!(all[3].details.last().map(|detail| detail.value.as_str()), Some("2026-01-01 00:00:04"));
        assert!(all[2].details.last().unwrap().link.is_some());
    }

    #[test]
    fn calls_messages_recalls_and_transactions_say_what_they_were() {
        let at = |second: u8| format!("2026-01-01T00:00:0{second}Z");
        let history = json!({
            "fix": [{"session": "BANK", "clOrdId": "A 1", "at": at(0)}],
            "calls": [
                {"leg": "payout", "call": "submit", "result": "unconfirmed", "times": 1, "firstAt": at(1),
                 "lastAt": at(1), "tookMs": 10_000, "detail": null},
                {"leg": "payout", "call": "query", "result": "in_progress", "times": 3, "firstAt": at(2),
                 "lastAt": at(4), "tookMs": 5, "detail": "E1"},
            ],
            "transactions": [{"kind": "settle", "txHash": "0xab", "signer": "0xcd", "nonce": 7, "attempt": 1,
                              "maxFee": "30", "priorityFee": "2", "createdAt": at(5), "nonceState": "broadcast",
                              "lastBroadcastAt": null, "lastError": null}],
            "messages": [
                {"digest": "ff", "said": "payment ordered", "direction": "out", "message": "pain.001.001.09",
                 "file": "E1.xml", "at": at(6), "isKept": true},
                {"digest": "ee", "said": "refused", "direction": "in", "message": "pain.002.001.10",
                 "file": "b.xml", "at": at(7), "isKept": false},
            ],
            "recalls": [{"id": "rcl_1", "reason": "DUPL", "status": "sent", "approvedAt": at(8), "sentAt": at(9),
                         "contradicting": null}],
        });
        let all = of(&history, |_| 2, Some("/orders/exe_1/documents"));
        let titles: Vec<&str> = all.iter().map(|one| one.title.as_str()).collect();
        let expected = [
            "requested over FIX",
            "payout: called, unconfirmed",
            "payout: asked, in progress",
            "settle: transaction signed, attempt 2",
            "to the bank: payment ordered",
            "from the bank: refused",
            "recall of the payment: sent",
        ];
        assert_eq!(titles, expected);
        let links = |n: usize| -> Vec<&str> {
            all[n].details.iter().filter_map(|detail| detail.link.as_deref()).collect()
        };
        assert_eq!(links(0), ["/search?q=BANK", "/fix/BANK/messages?cl_ord_id=A+1"]);
        let shown: Vec<_> = all[2].details.iter().map(|one| (one.name, one.value.as_str())).collect();
        let expected = [("answer", "E1"), ("times", "3"), ("last", "2026-01-01 00:00:04"), ("took", "5 ms")];
        assert_eq!(shown, expected);
        assert_eq!(links(3), ["/search?q=0xab", "/search?q=0xcd"]);
        assert_eq!(links(4), ["/orders/exe_1/documents/ff"]);
        assert!(links(5).is_empty(), "its document is not kept");
        assert!(of(&history, |_| 2, None)[4].details.iter().all(|detail| detail.link.is_none()));
    }
}

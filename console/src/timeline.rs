//! What happened to an order, in one list: events, rail attempts, chain commands and facts, ledger postings, bank
//! payments, screening and operators' actions, by their times.

use chrono::{DateTime, Utc};
use serde_json::Value;

use crate::view::{self, Moment};

/// Something that happened to an order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Happening {
    pub at: Moment,
    /// Event, rail, chain, ledger, bank, screening or operator.
    pub kind: &'static str,
    pub title: String,
    pub tone: &'static str,
    pub details: Vec<Detail>,
}

/// A named value. An identifier leads to what it names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Detail {
    pub name: &'static str,
    pub value: String,
    pub is_id: bool,
}

impl Detail {
    /// The address that finds the identifier.
    pub(crate) fn link(&self) -> String {
        format!("/search?q={}", view::segment(&self.value))
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
            value.or_else(|| text(row, field)).map(|value| Detail { name, value, is_id })
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
) -> Option<(DateTime<Utc>, Happening)> {
    at.map(|at| (at, Happening { at: at.into(), kind, title, tone, details }))
}

fn rows<'a>(history: &'a Value, part: &str) -> impl Iterator<Item = &'a Value> {
    history[part].as_array().map(Vec::as_slice).unwrap_or_default().iter()
}

/// The happenings of an order's history, the oldest first. `decimals` gives an asset's.
pub(crate) fn of(history: &Value, decimals: impl Fn(&str) -> u8) -> Vec<Happening> {
    let mut all = Vec::new();
    for row in rows(history, "events") {
        let name = text(row, "type").unwrap_or_default();
        let tone = match name.rsplit('.').next() {
            Some("completed") => "good",
            Some("failed" | "reversed") => "bad",
            Some("expired" | "cancelled") => "idle",
            _ => "busy",
        };
        let details = details(row, &[], &[("sequence", "sequence")]);
        all.extend(happened(time(row, "occurredAt"), "event", name, tone, details));
    }
    for row in rows(history, "work") {
        let kind = text(row, "kind").unwrap_or_default();
        let more = [
            ("attempts", "attempts"),
            ("last result", "lastResult"),
            ("due", "runAt"),
            ("decided", "verdict"),
        ];
        let called = time(row, "calledAt");
        let title = if called.is_some() { format!("{kind}: rail called") } else { format!("{kind}: due") };
        let at = called.or_else(|| time(row, "runAt"));
        all.extend(happened(at, "rail", title, "busy", details(row, &[], &more)));
    }
    for row in rows(history, "chain") {
        let (kind, state) = (text(row, "kind").unwrap_or_default(), text(row, "state").unwrap_or_default());
        let ids = [("transaction", "txHash"), ("entity", "entity")];
        let tries = if row["tries"] == 0 { "" } else { "tries" };
        let more = [("tries", tries), ("trouble", "trouble"), ("done", "doneAt")];
        let title = format!("{} commanded: {state}", view::words(&kind));
        all.extend(happened(
            time(row, "createdAt"),
            "chain",
            title,
            view::tone(&state),
            details(row, &ids, &more),
        ));
    }
    for row in rows(history, "facts") {
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
        all.extend(happened(time(row, "observedAt"), "chain", title, tone, details));
    }
    all.extend(postings(history, decimals));
    for row in rows(history, "bank") {
        let status = text(row, "status").unwrap_or_default();
        let ids =
            [("end-to-end id", "endToEndId"), ("bank reference", "bankReference"), ("message", "messageId")];
        let more = [("file", "file"), ("reason", "reason"), ("alarm", "alarm"), ("paid", "paidAt")];
        let tone = if row["alarm"].is_null() { view::tone(&status) } else { "bad" };
        let title = format!("payment ordered: {status}");
        all.extend(happened(time(row, "orderedAt"), "bank", title, tone, details(row, &ids, &more)));
    }
    for row in rows(history, "screening") {
        let result = text(row, "verdict").unwrap_or_default();
        let tone = if result == "pass" { "good" } else { "warn" };
        let details = details(row, &[], &[("source", "source"), ("detail", "detail")]);
        all.extend(happened(time(row, "at"), "screening", format!("screening: {result}"), tone, details));
    }
    for row in rows(history, "operators") {
        let action = view::words(&text(row, "action").unwrap_or_default());
        let title = format!("{action} by {}", text(row, "operator").unwrap_or_default());
        let mut details = details(row, &[], &[("reason", "reason"), ("version", "version")]);
        let evidence = &row["evidence"];
        let approval = text(evidence, "approval").map(|value| Detail { name: "request", value, is_id: true });
        let given = text(evidence, "evidence").filter(|given| !given.is_empty());
        details.extend(given.map(|value| Detail { name: "evidence", value, is_id: false }));
        details.extend(approval);
        all.extend(happened(time(row, "at"), "operator", title, "warn", details));
    }
    all.sort_by_key(|(at, _)| *at);
    all.into_iter().map(|(_, happening)| happening).collect()
}

/// A happening for each posting, with its moves.
fn postings(history: &Value, decimals: impl Fn(&str) -> u8) -> Vec<(DateTime<Utc>, Happening)> {
    let mut all: Vec<(Value, DateTime<Utc>, Happening)> = Vec::new();
    for row in rows(history, "ledger") {
        let asset = text(row, "asset").unwrap_or_default();
        let amount = view::amount(&text(row, "amount").unwrap_or_default(), decimals(&asset));
        let account = account(&text(row, "account").unwrap_or_default());
        let detail = Detail { name: "", value: format!("{amount} {asset}  {account}"), is_id: false };
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
        let all = of(&history, |_| 2);
        let titles: Vec<&str> = all.iter().map(|one| one.title.as_str()).collect();
        assert_eq!(
            titles,
            ["intent.accepted", "posted: order accepted", "mark paid by jo", "payment ordered: paid"]
        );
        assert_eq!(all[1].details[0].value, "-1.00 USD  provider:p:available");
        assert_eq!(all[1].details.len(), 2);
        assert_eq!(all[3].details[0].link(), "/search?q=E1");
        assert_eq!(all[3].details.last().map(|detail| detail.value.as_str()), Some("2026-01-01 00:00:04"));
        assert_eq!(all[2].details.last().map(|detail| detail.is_id), Some(true));
    }
}

//! The audit log, the newest entries first, and its export.

use axum::extract::State;
use axum::http::Uri;
use chrono::NaiveDate;
use dvp_store::database::changes::Subject;
use dvp_store::operators::audit::{self, AuditFilter};
use serde_json::{Value, json};

use crate::blocks::{self, Block, Cell, Field};
use crate::error::PageError;
use crate::filter::{Filter, choice};
use crate::request::{Fields, Reply, Visit, file};
use crate::state::Console;
use crate::view;

/// Entries of a page, and of an export.
const ROWS: i64 = 100;
const EXPORTED: i64 = 10_000;
/// The tables whose rows are entries of the log.
pub(crate) const RECORDS: [&str; 21] = [
    "api_key",
    "approval",
    "audit_erasure",
    "bank_folder",
    "beneficiary",
    "closed_break",
    "console_record",
    "destination",
    "fix_session",
    "fix_session_command",
    "maker",
    "operator",
    "operator_action",
    "operator_identity",
    "operator_token",
    "order_limit",
    "partner",
    "partner_action",
    "pause_change",
    "price_band",
    "settlement_instruction",
];

fn number(text: &str, usual: i64) -> Result<i64, PageError> {
    if text.is_empty() {
        return Ok(usual);
    }
    text.parse().map_err(|_| PageError::Invalid(format!("{text} is no number of an entry.")))
}

/// The fields of an entry that say who did what.
fn named(entry: &Value, names: &[&str]) -> String {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned);
    names
        .iter()
        .find_map(|name| entry.get(*name).filter(|value| !value.is_null()).map(text))
        .unwrap_or_default()
}

pub(crate) async fn show(Visit { console, operator }: Visit, uri: Uri) -> Reply {
    let given = Fields::asked(&uri);
    let some = |name: &str| Some(given.one(name)).filter(|value| !value.is_empty());
    let until = some("until").map(str::parse::<NaiveDate>).transpose();
    let until = until.map_err(|_| PageError::Invalid("The last day is no date: YYYY-MM-DD.".to_owned()))?;
    let until = until.and_then(|day| day.succ_opt()?.and_hms_opt(0, 0, 0)).map(|time| time.and_utc());
    let wanted = AuditFilter {
        before: number(given.one("before"), i64::MAX)?,
        record: some("record"),
        operator: some("operator"),
        subject: some("subject"),
        until,
    };
    let mut conn = console.reading().await?;
    let (entries, searched_to) = audit::list_before(&mut conn, &wanted, ROWS).await?;
    let fields = vec![
        choice("record", "Record", RECORDS),
        Field::text("operator", "Operator"),
        Field::text("subject", "Subject"),
        Field::date("until", "Until"),
    ];
    let filter = Filter::new("/audit", fields, &given).with_saved(&mut conn, &operator).await?;
    drop(conn);
    let rows = entries.iter().map(|row| {
        let entry: Value = serde_json::from_str(&row.entry).unwrap_or(Value::Null);
        vec![
            Cell::number(row.seq.to_string()),
            Cell::time(row.at),
            Cell::text(view::words(&row.source)),
            Cell::text(named(&entry, &["checker", "operator", "maker", "created_by"])),
            Cell::text(view::words(&named(&entry, &["action", "state", "kind"]))),
            Cell::found(named(
                &entry,
                &["reference", "subject", "session_id", "target", "partner_id", "name", "id"],
            )),
            Cell::text(named(&entry, &["reason", "note", "route"])),
        ]
    });
    let headings = ["#Entry", "Time (UTC)", "Record", "Operator", "Action", "Subject", "Reason"];
    let last = Some(searched_to).filter(|seq| *seq > 1).map(|seq| seq.to_string());
    let log = Block::table("Entries", &headings, "None of the newest entries is such a one.", rows)
        .paged(&filter, last, None);
    let export = Block::facts(
        "Export",
        vec![("JSON lines, the oldest first", Cell::link("audit.jsonl", "/audit.jsonl"))],
    );
    let page = operator.page("Audit", "Audit log").live(&[Subject::Audit]);
    blocks::list(page, None, filter, vec![log, export])
}

/// Entries with their hashes, one JSON object a line, so that the chain of hashes can be computed again.
pub(crate) async fn export(State(console): State<Console>, uri: Uri) -> Reply {
    let after = number(Fields::asked(&uri).one("after"), 0)?;
    let mut conn = console.reading().await?;
    let entries = audit::list(&mut conn, after, EXPORTED).await?;
    drop(conn);
    let mut text = String::new();
    for row in entries {
        let line = json!({
            "seq": row.seq, "at": row.at.to_rfc3339(), "source": row.source, "entry": row.entry,
            "previous": hex::encode(row.previous), "hash": hex::encode(row.hash), "covered": row.covered,
        });
        text.push_str(&line.to_string());
        text.push('\n');
    }
    file("audit.jsonl", "application/jsonl", text.into())
}

//! The audit log, the newest entries first, and its export.

use axum::extract::State;
use dvp_store::database::changes::Subject;
use dvp_store::operators::audit;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::blocks::{self, Block, Cell};
use crate::error::PageError;
use crate::request::{Asked, Reply, Visit, file};
use crate::state::Console;
use crate::view;

/// Entries of a page, and of an export.
const ROWS: i64 = 100;
const EXPORTED: i64 = 10_000;

#[derive(Debug, Default, Deserialize)]
pub(crate) struct AuditQuery {
    /// Entries before this number.
    #[serde(default)]
    before: String,
    /// Of an export: entries after this number.
    #[serde(default)]
    after: String,
}

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

pub(crate) async fn show(Visit { console, operator }: Visit, Asked(query): Asked<AuditQuery>) -> Reply {
    let before = number(&query.before, i64::MAX)?;
    let mut conn = console.reading().await?;
    let entries = audit::list_before(&mut conn, before, ROWS).await?;
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
    let mut log = Block::table("Entries", &headings, "The log has no such entry.", rows);
    let is_full = i64::try_from(entries.len()) == Ok(ROWS);
    log.older =
        entries.last().filter(|row| is_full && row.seq > 1).map(|row| format!("/audit?before={}", row.seq));
    let export = Block::facts(
        "Export",
        vec![("JSON lines, the oldest first", Cell::link("audit.jsonl", "/audit.jsonl"))],
    );
    blocks::render(operator.page("Audit", "Audit log").live(&[Subject::Audit]), None, vec![log, export])
}

/// Entries with their hashes, one JSON object a line, so that the chain of hashes can be computed again.
pub(crate) async fn export(State(console): State<Console>, Asked(query): Asked<AuditQuery>) -> Reply {
    let mut conn = console.reading().await?;
    let entries = audit::list(&mut conn, number(&query.after, 0)?, EXPORTED).await?;
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

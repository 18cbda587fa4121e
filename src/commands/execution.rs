//! `dvp execution list|show`: executions.

use anyhow::Context as _;
use clap::{Args, Subcommand};
use dvp_store::orders::executions;
use dvp_store::orders::operations::{self, ExecutionFilter, Listed};
use serde_json::{Value, json};

use crate::access::Access;
use crate::cli::PlaceArgs;
use crate::output::{print, print_list};

#[derive(Debug, Subcommand)]
pub(crate) enum ExecutionCommand {
    /// List executions, oldest first: all, those in a state, or those that are stuck.
    #[command(after_help = "Example:\n  dvp execution list --stuck-for-secs 300 --dir .dvp --json")]
    List(ExecutionList),
    /// Show all that is recorded of one: events, due work, commands and facts of the chain, ledger, decisions.
    #[command(after_help = "Example:\n  dvp execution show --reference exe_… --dir .dvp --json")]
    Show(ExecutionShow),
}

#[derive(Debug, Args)]
pub(crate) struct ExecutionList {
    /// Only executions that have not ended after this many seconds, and those with an alarm.
    #[arg(long, value_name = "SECONDS")]
    pub stuck_for_secs: Option<i64>,
    /// Only those in this state, as `list` prints it.
    #[arg(long)]
    pub state: Option<String>,
    /// How many at most.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(i64).range(1..=10_000))]
    pub limit: i64,
    #[command(flatten)]
    pub place: PlaceArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ExecutionShow {
    #[arg(long)]
    pub reference: String,
    #[command(flatten)]
    pub place: PlaceArgs,
}

pub(crate) async fn run(command: ExecutionCommand) -> anyhow::Result<()> {
    match command {
        ExecutionCommand::List(args) => list(args).await,
        ExecutionCommand::Show(args) => show(args).await,
    }
}

async fn list(args: ExecutionList) -> anyhow::Result<()> {
    let mut access = Access::open(&args.place).await?;
    let filter = ExecutionFilter {
        stuck_for_secs: args.stuck_for_secs,
        state: args.state.as_deref(),
        after: None,
        limit: args.limit,
    };
    let found = operations::list(&mut access.conn, &filter).await?;
    print_list(args.place.json, "executions", &found, view, line)
}

fn view(row: &Listed) -> Value {
    json!({
        "reference": row.reference, "partner": row.partner, "intentId": row.intent_id,
        "clientReference": row.client_reference, "state": row.state, "acceptedAt": row.accepted_at.to_rfc3339(),
        "terminalAt": row.terminal_at.map(|at| at.to_rfc3339()), "waitsFor": row.waits_for,
        "attempts": row.attempts, "lastResult": row.last_result, "alarm": row.alarm,
    })
}

fn line(row: &Listed) -> String {
    let waits = row.waits_for.as_deref().map(|what| {
        let last_result =
            row.last_result.as_deref().map(|last_result| format!(": {last_result}")).unwrap_or_default();
        format!("  waits for {what} ({} attempts{last_result})", row.attempts.unwrap_or(0))
    });
    let alarm = row.alarm.as_deref().map(|alarm| format!("  ALARM {alarm}"));
    let [waits, alarm] = [waits, alarm].map(Option::unwrap_or_default);
    format!(
        "{}  {}  {}  {}{waits}{alarm}",
        row.reference,
        row.accepted_at.to_rfc3339(),
        row.partner,
        row.state
    )
}

async fn show(args: ExecutionShow) -> anyhow::Result<()> {
    let mut access = Access::open(&args.place).await?;
    let found = executions::find_by_reference(&mut access.conn, &args.reference).await?;
    let found = found.with_context(|| format!("there is no execution {}", args.reference))?;
    let mut value = operations::load_history(&mut access.conn, &args.reference).await?;
    let fields = value.as_object_mut().context("the history is an object")?;
    let terms = &found.terms;
    fields.insert("reference".into(), json!(args.reference));
    fields.insert("intentId".into(), json!(terms.request.intent_id));
    fields.insert("clientReference".into(), json!(terms.request.client_reference));
    fields.insert("state".into(), serde_json::to_value(&found.state)?);
    fields.insert("version".into(), json!(found.version));
    fields.insert("input".into(), serde_json::to_value(&terms.input)?);
    fields.insert("output".into(), serde_json::to_value(&terms.output)?);
    fields.insert("acceptedAt".into(), json!(terms.accepted_at.iso8601()));
    print(args.place.json, &value, || lines(&value))
}

fn lines(value: &Value) -> Vec<String> {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let mut out = vec![
        format!("{}  {}", text(&value["reference"]), text(&value["state"]["state"])),
        format!("intent {}  accepted {}", text(&value["intentId"]), text(&value["acceptedAt"])),
    ];
    out.extend(funds(&value["state"]).map(|where_they_are| format!("funds {where_they_are}")));
    for part in [
        "events",
        "fix",
        "work",
        "calls",
        "chain",
        "transactions",
        "facts",
        "bank",
        "messages",
        "recalls",
        "ledger",
        "screening",
        "operators",
    ] {
        let rows = value[part].as_array().map(Vec::as_slice).unwrap_or_default();
        if rows.is_empty() {
            continue;
        }
        out.push(format!("{part}:"));
        for row in rows {
            let fields = row.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null());
            let fields: Vec<String> = fields.map(|(name, value)| format!("{name} {}", text(value))).collect();
            out.push(format!("  {}", fields.join("  ")));
        }
    }
    out
}

/// The location of the locked funds, by the settlement's state.
fn funds(state: &Value) -> Option<String> {
    let lock = state["lock"].as_object()?;
    let is = |name: &str| lock.get(name) == Some(&Value::Bool(true));
    let tx = |value: &Value| value.as_str().unwrap_or("an unknown transaction").to_owned();
    Some(if is("refunded") {
        format!("went back to the wallet by {}", tx(&lock["refund_tx"]))
    } else if let Some(settled) = state["settle_tx"].as_str() {
        format!("released by {settled}")
    } else if is("lost") {
        "not locked: a reorganization took the lock back".to_owned()
    } else if is("filled") {
        format!("locked by {} and committed to the payout", tx(&lock["tx_hash"]))
    } else {
        format!("locked by {}", tx(&lock["tx_hash"]))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_location_of_locked_funds_is_one_line() {
        let lock = |filled, lost, refunded| json!({"tx_hash": "0xl", "filled": filled, "lost": lost, "refunded": refunded, "refund_tx": "0xr"});
        let state = |lock: Value, settled: Value| json!({"lock": lock, "settle_tx": settled});
        for (state, said) in [
            (state(Value::Null, Value::Null), None),
            (state(lock(false, false, false), Value::Null), Some("locked by 0xl")),
            (state(lock(true, false, false), Value::Null), Some("locked by 0xl and committed to the payout")),
            (state(lock(true, false, false), json!("0xs")), Some("released by 0xs")),
            (state(lock(true, false, true), Value::Null), Some("went back to the wallet by 0xr")),
            (
                state(lock(false, true, false), Value::Null),
                Some("not locked: a reorganization took the lock back"),
            ),
        ] {
            assert_eq!(funds(&state).as_deref(), said, "{state}");
        }
    }
}

//! `dvp execution list|show|resolve`: executions, and operators' decisions about stuck ones.

use anyhow::{Context as _, ensure};
use chrono::{DateTime, Utc};
use clap::{Args, Subcommand, ValueEnum};
use dvp_core::operators::breaks;
use dvp_core::operators::operations::{Action, OperatorDecision, Resolution, resolve};
use dvp_core::operators::requests::Maker;
use dvp_domain::money::Minor;
use dvp_domain::reconcile::BreakKind;
use dvp_domain::screening::REFUSED;
use dvp_domain::settlement::Remedy;
use dvp_rails::LegKind;
use dvp_store::orders::executions;
use dvp_store::orders::operations::{self, ExecutionFilter, Listed};
use serde_json::{Value, json};

use super::approval::print_requested;
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
    /// Decide about one that does not end by itself. The running service carries it out within seconds; who decided
    /// what, why and on which evidence is kept for ever.
    ///
    /// ask: query the rail now, repeat nothing. retry: the rail never carried the leg out, call it again.
    /// mark-paid: the rail carried the leg out, even after it had failed, or a debt was paid another way. fail: it did not
    /// and will not; the bank has refused the payment, or accepted its recall. return:
    /// two operators' signatures return the committed funds of a failed payout. return-debt: the input of a debt was
    /// given back outside. cancel: end an order whose settlement has not begun. close-contradiction: what the bank's
    /// later word contradicts was put right outside. mark-returned: the rail gave the payment back after it was carried
    /// out; paid-again, given-back: what came back was paid another way, or the input given back. close-conversion:
    /// treasury has unwound or taken over what the desk converted for an order that did not use it. release, refuse:
    /// settle, or fail, an order that screening holds. fill: a resting order of money that its bank knows from before a
    /// restore was filled for these amounts.
    ///
    /// All but ask, cancel and return take two operators: the decision waits until another one approves it (`dvp
    /// approval approve`) or decides the same.
    #[command(
        after_help = "Example:\n  dvp execution resolve --reference exe_… --action mark-paid --leg payout --provider-reference BK1 --operator jo --reason 'bank lost its answer' --evidence 'statement 17, line 4' --confirm exe_… --dir .dvp"
    )]
    Resolve(Box<ExecutionResolve>),
    /// Request that a break about one settlement on the chain is closed, which nothing here can end: its order was
    /// forgotten by a restore. Another operator approves it (`dvp approval approve`). It is shown again when something
    /// else is found about it.
    #[command(
        after_help = "Example:\n  dvp execution close-break --type payout_without_execution --about 0x… --operator jo --reason 'accepted after the restored moment' --evidence 'ticket 17' --dir .dvp"
    )]
    CloseBreak(ExecutionCloseBreak),
}

#[derive(Debug, Args)]
pub(crate) struct ExecutionCloseBreak {
    /// As `dvp reconcile --open` lists it.
    #[arg(long = "type", value_name = "BREAK")]
    pub kind: String,
    /// The execution, or the id on the chain, as listed.
    #[arg(long, value_name = "ID")]
    pub about: String,
    /// The requesting operator.
    #[arg(long, visible_alias = "as")]
    pub operator: String,
    #[arg(long)]
    pub reason: String,
    /// What became of the money.
    #[arg(long)]
    pub evidence: String,
    #[command(flatten)]
    pub place: PlaceArgs,
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

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ActionArg {
    Ask,
    Retry,
    MarkPaid,
    Fail,
    /// The input of a debt was given back outside: two operators.
    ReturnDebt,
    /// Two operators' signatures return the committed funds of a failed payout before its timelock.
    Return,
    Cancel,
    /// The contradiction by the bank's later status was resolved outside: two operators.
    CloseContradiction,
    /// The rail gave the payment back after it was carried out: two operators.
    MarkReturned,
    /// The returned payment was paid another way (paid-again), or the input returned (given-back): two operators.
    PaidAgain,
    GivenBack,
    /// The conversion of an unpaid order was unwound, or taken over by treasury: two operators.
    CloseConversion,
    /// Settle an order that screening holds: two operators.
    Release,
    /// Fail an order that screening holds: two operators.
    Refuse,
    /// A resting order of money was filled before a restore, as its bank's statement shows: two operators.
    Fill,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum LegArg {
    Offramp,
    Payout,
}

#[derive(Debug, Args)]
pub(crate) struct ExecutionResolve {
    #[arg(long)]
    pub reference: String,
    #[arg(long, value_enum)]
    pub action: ActionArg,
    /// Which leg: with retry, mark-paid and fail.
    #[arg(
        long,
        value_enum,
        required_if_eq_any([("action", "retry"), ("action", "mark-paid"), ("action", "fail")])
    )]
    pub leg: Option<LegArg>,
    /// The rail's reference of the payment, the transaction that returned a debt's input, or the trade that ended an
    /// unused conversion: with mark-paid, return-debt, mark-returned, paid-again, given-back, close-conversion.
    #[arg(long, required_if_eq_any([
        ("action", "mark-paid"),
        ("action", "return-debt"),
        ("action", "mark-returned"),
        ("action", "paid-again"),
        ("action", "given-back"),
        ("action", "close-conversion"),
    ]))]
    pub provider_reference: Option<String>,
    /// An operator's EIP-712 signature of ReturnFunds(intentId, deadline), twice: with return.
    #[arg(long)]
    pub signature: Vec<String>,
    /// The deadline that was signed, in Unix seconds: with return.
    #[arg(long, required_if_eq("action", "return"))]
    pub signed_deadline: Option<u64>,
    /// What came back in minor units, when the rail has deducted its charge: with mark-returned.
    #[arg(long, value_name = "MINOR")]
    pub came_minor: Option<u128>,
    /// What the order was filled for, in minor units: with fill.
    #[arg(long, value_name = "MINOR", required_if_eq("action", "fill"))]
    pub input_minor: Option<u128>,
    #[arg(long, value_name = "MINOR", required_if_eq("action", "fill"))]
    pub output_minor: Option<u128>,
    /// When the money moved (RFC 3339); now when not given.
    #[arg(long)]
    pub paid_at: Option<DateTime<Utc>>,
    /// The failure's stable code: with fail (`payment_not_made` when not given), mark-returned (`payment_returned`) and
    /// refuse (`screening_refused`).
    #[arg(long)]
    pub code: Option<String>,
    /// The operator.
    #[arg(long, visible_alias = "as")]
    pub operator: String,
    /// Why.
    #[arg(long)]
    pub reason: String,
    /// The evidence: a line of a bank statement, a ticket. Required by retry, mark-paid and fail.
    #[arg(long, default_value = "")]
    pub evidence: String,
    /// The reference once more: nothing is decided by a slip of the hand.
    #[arg(long)]
    pub confirm: String,
    #[command(flatten)]
    pub place: PlaceArgs,
}

pub(crate) async fn run(command: ExecutionCommand) -> anyhow::Result<()> {
    match command {
        ExecutionCommand::List(args) => list(args).await,
        ExecutionCommand::Show(args) => show(args).await,
        ExecutionCommand::Resolve(args) => resolve_one(*args).await,
        ExecutionCommand::CloseBreak(args) => close_break(args).await,
    }
}

async fn close_break(args: ExecutionCloseBreak) -> anyhow::Result<()> {
    let ExecutionCloseBreak { kind, about, operator, reason, evidence, place } = args;
    let kind = BreakKind::parse(&kind)
        .with_context(|| format!("--type {kind} is no break: dvp reconcile --open lists the breaks"))?;
    let mut access = Access::open(&place).await?;
    let maker = Maker { operator: &operator, reason: &reason, evidence: &evidence };
    print_requested(place.json, &breaks::request(&mut access.conn, kind, &about, maker).await?)
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

async fn resolve_one(args: ExecutionResolve) -> anyhow::Result<()> {
    ensure!(args.confirm == args.reference, "--confirm is not the reference: nothing was decided");
    let action = action(&args)?;
    let mut access = Access::open(&args.place).await?;
    let resolution = Resolution {
        reference: &args.reference,
        action,
        operator: &args.operator,
        reason: &args.reason,
        evidence: &args.evidence,
    };
    let decision = resolve(&mut access.conn, &resolution).await?;
    let rest = format!("; it was {}", decision.state);
    print_decision(args.place.json, &resolution, &decision, "is recorded and will be carried out", &rest)
}

/// Prints what became of a decision: `done`, unless another operator has to approve it.
pub(super) fn print_decision(
    is_json: bool,
    Resolution { reference, action, .. }: &Resolution<'_>,
    OperatorDecision { state, is_proposal, approval }: &OperatorDecision,
    done: &str,
    rest: &str,
) -> anyhow::Result<()> {
    let action = action.as_str();
    let value = json!({"reference": reference, "action": action, "state": state, "isProposal": is_proposal,
                       "approval": approval});
    print(is_json, &value, || {
        let waits = format!(
            "waits for another operator within a day: dvp approval approve --id {}",
            approval.as_deref().unwrap_or_default()
        );
        let what = if *is_proposal { &waits } else { done };
        vec![format!("{reference}: {action} {what}{rest}")]
    })
}

fn action(args: &ExecutionResolve) -> anyhow::Result<Action> {
    let leg = || {
        Ok::<_, anyhow::Error>(match args.leg.context("--leg is needed")? {
            LegArg::Offramp => LegKind::Offramp,
            LegArg::Payout => LegKind::Payout,
        })
    };
    let outside = || {
        let reference = args.provider_reference.clone().context("--provider-reference is needed")?;
        Ok::<_, anyhow::Error>((reference, args.paid_at.unwrap_or_else(Utc::now)))
    };
    let code = |usual: &str| args.code.clone().unwrap_or_else(|| usual.to_owned());
    Ok(match args.action {
        ActionArg::Ask => Action::Ask,
        ActionArg::Cancel => Action::Cancel,
        ActionArg::CloseContradiction => Action::CloseContradiction,
        ActionArg::Release => Action::Release,
        ActionArg::Refuse => Action::Refuse { code: code(REFUSED) },
        ActionArg::Fill => Action::Fill {
            input: args.input_minor.map(Minor::new).context("--input-minor is needed")?,
            output: args.output_minor.map(Minor::new).context("--output-minor is needed")?,
        },
        ActionArg::Retry => Action::Retry { leg: leg()? },
        ActionArg::Fail => Action::Fail { leg: leg()?, code: code("payment_not_made") },
        ActionArg::ReturnDebt => {
            let (provider_reference, at) = outside()?;
            Action::ReturnDebt { provider_reference, at }
        }
        ActionArg::MarkReturned => {
            let (provider_reference, at) = outside()?;
            Action::MarkReturned {
                provider_reference,
                at,
                came: args.came_minor.map(Minor::new),
                code: code("payment_returned"),
            }
        }
        ActionArg::PaidAgain | ActionArg::GivenBack => {
            let (provider_reference, at) = outside()?;
            let remedy =
                if args.action == ActionArg::PaidAgain { Remedy::PaidAgain } else { Remedy::GivenBack };
            Action::ResolveReturn { remedy, provider_reference, at }
        }
        ActionArg::CloseConversion => Action::CloseConversion { provider_reference: outside()?.0 },
        ActionArg::Return => Action::Return {
            deadline: args.signed_deadline.context("--signed-deadline is needed")?,
            signatures: <[String; 2]>::try_from(args.signature.clone())
                .ok()
                .context("--signature is needed twice, of two operators")?,
        },
        ActionArg::MarkPaid => {
            let (provider_reference, at) = outside()?;
            Action::MarkPaid { leg: leg()?, provider_reference, at }
        }
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

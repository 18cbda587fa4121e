//! `dvp execution …`

use chrono::{DateTime, Utc};
use clap::{Args, Subcommand, ValueEnum};

use super::PlaceArgs;

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
    /// mark-paid: the rail carried the leg out, or a debt was paid another way. fail: it did not and will not. return:
    /// two operators' signatures return the committed funds of a failed payout. return-debt: the input of a debt was
    /// given back outside. cancel: end an order whose settlement has not begun. close-contradiction: what the bank's
    /// later word contradicts was put right outside. mark-returned: the rail gave the payment back after it was carried
    /// out; paid-again, given-back: what came back was paid another way, or the input given back. release, refuse:
    /// settle, or fail, an order that screening holds.
    ///
    /// All but ask, cancel and return take two operators: the decision waits until another one approves it (`dvp
    /// approval approve`) or decides the same.
    #[command(
        after_help = "Example:\n  dvp execution resolve --reference exe_… --action mark-paid --leg payout --provider-reference BK1 --operator jo --reason 'bank lost its answer' --evidence 'statement 17, line 4' --confirm exe_… --dir .dvp"
    )]
    Resolve(Box<ExecutionResolve>),
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
    /// Settle an order that screening holds: two operators.
    Release,
    /// Fail an order that screening holds: two operators.
    Refuse,
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
    /// The rail's reference of the payment, or the transaction that returned a debt's input: with mark-paid,
    /// return-debt.
    #[arg(long, required_if_eq_any([
        ("action", "mark-paid"),
        ("action", "return-debt"),
        ("action", "mark-returned"),
        ("action", "paid-again"),
        ("action", "given-back"),
    ]))]
    pub provider_reference: Option<String>,
    /// An operator's EIP-712 signature of ReturnFunds(intentId, deadline), twice: with return.
    #[arg(long)]
    pub signature: Vec<String>,
    /// The deadline that was signed, in Unix seconds: with return.
    #[arg(long, required_if_eq("action", "return"))]
    pub signed_deadline: Option<u64>,
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

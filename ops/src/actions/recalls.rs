//! Payments that the bank is asked to give back, and what it asks back from us.

use anyhow::ensure;
use clap::builder::PossibleValue;
use clap::{Args, Subcommand, ValueEnum};
use dvp_core::operators::operations::Action;
use dvp_core::operators::received_recalls;
use dvp_domain::recall::{RecallReason, RefusalReason};

use crate::actions::{Why, executions, one_of};
use crate::desk::Desk;
use crate::outcome::Outcome;

#[derive(Debug, Subcommand)]
pub(crate) enum RecallAction {
    /// Request that the bank gives the payment of an order back; another operator approves it.
    ///
    /// The service then sends the request to the bank (camt.056), once. Nothing moves by the bank's answer alone: what
    /// comes back is a return of the payment. A payment that the bank does not have is not recalled: cancel the order,
    /// or fail its payout.
    #[command(
        after_help = "Example:\n  dvp recall request --id exe_… --reason DUPL --evidence 'ticket 17' --config dvp.toml"
    )]
    Request(Request),
    /// Close the open recall of an order whose end is known outside of the service, or that is not to be sent: two
    /// operators.
    #[command(
        after_help = "Example:\n  dvp recall close --id exe_… --reason 'the bank let it drop' --evidence 'mail of 3 May' --config dvp.toml"
    )]
    Close(Close),
    /// Request the answer to a bank that asks for money back that was paid to us; another operator approves it.
    ///
    /// The service then sends the answer to the bank (camt.029), once. It moves no money: after a yes the bank debits the
    /// account, and the debit is posted (`dvp ledger request return`).
    #[command(
        after_help = "Example:\n  dvp recall answer --id rcr_… --answer refuse --refusal CUST --reason 'the partner does not agree' --evidence 'mail of 3 May' --config dvp.toml"
    )]
    Answer(Answer),
}

#[derive(Debug, Args)]
pub(crate) struct Request {
    /// The execution.
    #[arg(long, value_name = "EXECUTION")]
    id: String,
    /// Why, as the bank is told.
    #[arg(long, value_parser = one_of(RecallReason::ALL.map(told), RecallReason::parse))]
    reason: RecallReason,
    /// What else the bank is told, in 105 characters.
    #[arg(long)]
    information: Option<String>,
    /// Why, for our own records; the reason's meaning when not given.
    #[arg(long)]
    note: Option<String>,
    /// The evidence: a ticket, a report.
    #[arg(long)]
    evidence: String,
}

#[derive(Debug, Args)]
pub(crate) struct Close {
    /// The execution.
    #[arg(long, value_name = "EXECUTION")]
    id: String,
    #[command(flatten)]
    why: Why,
}

#[derive(Debug, Args)]
pub(crate) struct Answer {
    /// The received recall.
    #[arg(long, value_name = "RECALL")]
    id: String,
    /// Whether the money is given back.
    #[arg(long, value_enum)]
    answer: YesOrNo,
    /// Why not, as the bank is told: with refuse.
    #[arg(long, required_if_eq("answer", "refuse"), value_parser = one_of(RefusalReason::ALL.map(refused), RefusalReason::parse))]
    refusal: Option<RefusalReason>,
    #[command(flatten)]
    why: Why,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum YesOrNo {
    Accept,
    Refuse,
}

fn refused(reason: RefusalReason) -> PossibleValue {
    PossibleValue::new(reason.as_str()).help(reason.describe())
}

fn told(reason: RecallReason) -> PossibleValue {
    PossibleValue::new(reason.as_str()).help(reason.describe())
}

impl RecallAction {
    pub(super) async fn perform(self, desk: &mut Desk<'_>) -> anyhow::Result<Outcome> {
        let (reference, action, reason, evidence) = match self {
            Self::Request(Request { id, reason, information, note, evidence }) => {
                let note = note.unwrap_or_else(|| reason.describe().to_owned());
                (id, Action::Recall { reason, information }, note, evidence)
            }
            Self::Answer(Answer { id, answer, refusal, why }) => {
                ensure!(
                    answer == YesOrNo::Refuse || refusal.is_none(),
                    "--refusal is for --answer refuse: money that is given back needs none"
                );
                let maker = desk.maker(&why.reason, &why.evidence);
                return Ok(Outcome::requested(
                    &received_recalls::request(desk.conn, &id, refusal, maker).await?,
                ));
            }
            Self::Close(Close { id, why }) => (id, Action::CloseRecall, why.reason, why.evidence),
        };
        executions::decide(desk, &reference, action, (&reason, &evidence), "is approved", false).await
    }
}

//! Decisions about orders that do not end by themselves.

use anyhow::{Context as _, ensure};
use chrono::{DateTime, Utc};
use clap::builder::PossibleValue;
use clap::{Args, Subcommand, ValueEnum};
use dvp_core::operators::breaks;
use dvp_core::operators::operations::{
    self, Action, OperatorDecision, Resolution, resolve, resolve_as_maker,
};
use dvp_domain::money::Minor;
use dvp_domain::reconcile::BreakKind;
use dvp_domain::screening::REFUSED;
use dvp_domain::settlement::Remedy;
use dvp_domain::settlement::leg::LegKind;
use dvp_store::database::clock;
use dvp_store::orders::executions::{self, Execution};
use serde_json::json;

use crate::actions::Why;
use crate::caller::Proof;
use crate::desk::Desk;
use crate::outcome::Outcome;
use crate::table::APPROVAL;

#[derive(Debug, Subcommand)]
pub(crate) enum ExecutionAction {
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
    /// restore was filled for these amounts. release-payee: the bank may make a payment whose payee does not match.
    ///
    /// All but ask, cancel and return take two operators: the decision waits until another one approves it (`dvp
    /// approval approve`) or decides the same.
    #[command(
        after_help = "Example:\n  dvp execution resolve --reference exe_… --action mark-paid --leg payout --provider-reference BK1 --reason 'bank lost its answer' --evidence 'statement 17, line 4' --confirm exe_… --config dvp.toml"
    )]
    Resolve(Box<Resolve>),
    /// Request that a break about one settlement on the chain is closed, which nothing here can end: its order was
    /// forgotten by a restore. Another operator approves it. It is shown again when something else is found about it.
    #[command(
        after_help = "Example:\n  dvp execution close-break --type payout_without_execution --about 0x… --reason 'accepted after the restored moment' --evidence 'ticket 17' --config dvp.toml"
    )]
    CloseBreak(CloseBreak),
}

#[derive(Debug, Args)]
pub(crate) struct CloseBreak {
    /// As `dvp reconcile --open` lists it.
    #[arg(long = "type", value_name = "BREAK")]
    kind: String,
    /// The execution, or the id on the chain, as listed.
    #[arg(long, value_name = "ID")]
    about: String,
    #[command(flatten)]
    why: Why,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Decision {
    Ask,
    Retry,
    MarkPaid,
    Fail,
    ReturnDebt,
    Return,
    Cancel,
    CloseContradiction,
    MarkReturned,
    PaidAgain,
    GivenBack,
    CloseConversion,
    Release,
    Refuse,
    Fill,
    ReleasePayee,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Leg {
    Offramp,
    Payout,
}

#[derive(Debug, Args)]
pub(crate) struct Resolve {
    /// The order.
    #[arg(long)]
    reference: String,
    /// The decision.
    #[arg(long, value_enum)]
    action: Decision,
    /// Which leg: with retry, mark-paid and fail.
    #[arg(
        long,
        value_enum,
        required_if_eq_any([("action", "retry"), ("action", "mark-paid"), ("action", "fail")])
    )]
    leg: Option<Leg>,
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
    provider_reference: Option<String>,
    /// An operator's EIP-712 signature of ReturnFunds(intentId, deadline), twice: with return.
    #[arg(long)]
    signature: Vec<String>,
    /// The deadline that was signed, in Unix seconds: with return.
    #[arg(long, required_if_eq("action", "return"))]
    signed_deadline: Option<u64>,
    /// What came back in minor units, when the rail has deducted its charge: with mark-returned.
    #[arg(long, value_name = "MINOR")]
    came_minor: Option<u128>,
    /// What the order was filled for, in minor units: with fill.
    #[arg(long, value_name = "MINOR", required_if_eq("action", "fill"))]
    input_minor: Option<u128>,
    #[arg(long, value_name = "MINOR", required_if_eq("action", "fill"))]
    output_minor: Option<u128>,
    /// When the money moved (RFC 3339); now when not given.
    #[arg(long, value_name = "TIME")]
    paid_at: Option<DateTime<Utc>>,
    /// The failure's stable code: with fail (`payment_not_made` when not given), mark-returned (`payment_returned`) and
    /// refuse (`screening_refused`).
    #[arg(long)]
    code: Option<String>,
    #[arg(long)]
    reason: String,
    /// The evidence: a line of a bank statement, a ticket. Required by retry, mark-paid and fail.
    #[arg(long, default_value = "")]
    evidence: String,
    /// Only if the order is at this version.
    #[arg(long, value_name = "VERSION")]
    seen_version: Option<i64>,
    /// The reference once more: nothing is decided by a slip of the hand.
    #[arg(long)]
    confirm: String,
}

/// A decision about an order: what it is called, and the fields that it takes beside the reason.
#[derive(Debug, Clone, Copy)]
pub struct Choice {
    decision: Decision,
    leg: Option<Leg>,
    pub words: &'static str,
    pub fields: &'static [&'static str],
}

impl Choice {
    /// The values of `--action` and `--leg`.
    pub fn values(&self) -> (String, Option<String>) {
        let name = |value: Option<PossibleValue>| value.map(|value| value.get_name().to_owned());
        (
            name(self.decision.to_possible_value()).unwrap_or_default(),
            name(self.leg.and_then(|leg| leg.to_possible_value())),
        )
    }

    /// Whether money may move by it, or a payment is taken as made or not made.
    pub const fn moves_money(&self) -> bool {
        !matches!(self.decision, Decision::Ask | Decision::CloseContradiction | Decision::CloseConversion)
    }

    /// The decision with fields that only its form can give.
    fn sample(&self) -> Option<Action> {
        let resolve = Resolve {
            reference: String::new(),
            action: self.decision,
            leg: self.leg,
            provider_reference: Some("a".to_owned()),
            signature: Vec::new(),
            signed_deadline: None,
            came_minor: None,
            input_minor: Some(0),
            output_minor: Some(0),
            paid_at: None,
            code: None,
            reason: String::new(),
            evidence: String::new(),
            seen_version: None,
            confirm: String::new(),
        };
        resolve.decision().ok()
    }
}

const fn choice(
    decision: Decision,
    leg: Option<Leg>,
    words: &'static str,
    fields: &'static [&'static str],
) -> Choice {
    Choice { decision, leg, words, fields }
}

/// Of a payment that was seen outside.
const PAYMENT: &[&str] = &["provider-reference", "paid-at", "evidence"];

const CHOICES: [Choice; 19] = [
    choice(Decision::Ask, None, "Query the rail now", &[]),
    choice(Decision::Cancel, None, "Cancel: the order has not begun to settle", &[]),
    choice(Decision::Release, None, "Release: settle although screening holds it", &["evidence"]),
    choice(
        Decision::ReleasePayee,
        None,
        "Release the payment although its payee does not match",
        &["evidence"],
    ),
    choice(Decision::Refuse, None, "Refuse: fail an order that screening holds", &["code", "evidence"]),
    choice(
        Decision::Fill,
        None,
        "Fill again: it was filled before a restore, and its bank has paid it",
        &["input-minor", "output-minor", "evidence"],
    ),
    choice(
        Decision::Retry,
        Some(Leg::Offramp),
        "Retry the conversion: the rail never carried it out",
        &["evidence"],
    ),
    choice(
        Decision::Retry,
        Some(Leg::Payout),
        "Retry the payout: the rail never carried it out",
        &["evidence"],
    ),
    choice(Decision::MarkPaid, Some(Leg::Offramp), "The conversion was carried out", PAYMENT),
    choice(Decision::MarkPaid, Some(Leg::Payout), "The payout was carried out", PAYMENT),
    choice(
        Decision::Fail,
        Some(Leg::Offramp),
        "Fail the conversion: it was not and will not be carried out",
        &["code", "evidence"],
    ),
    choice(
        Decision::Fail,
        Some(Leg::Payout),
        "Fail the payout: it was not and will not be carried out",
        &["code", "evidence"],
    ),
    choice(Decision::ReturnDebt, None, "The input was returned outside: the debt has ended", PAYMENT),
    choice(
        Decision::MarkReturned,
        None,
        "The bank returned the payment",
        &["provider-reference", "paid-at", "came-minor", "code", "evidence"],
    ),
    choice(Decision::PaidAgain, None, "The returned payment was paid another way", PAYMENT),
    choice(Decision::GivenBack, None, "The input of a returned payment was given back", PAYMENT),
    choice(
        Decision::CloseConversion,
        None,
        "An unused conversion was unwound or taken over by treasury",
        &["provider-reference", "evidence"],
    ),
    choice(
        Decision::CloseContradiction,
        None,
        "The bank's contradiction was resolved outside",
        &["evidence"],
    ),
    choice(
        Decision::Return,
        None,
        "Return the committed funds",
        &["signed-deadline", "signature", "evidence"],
    ),
];

/// The decisions that an order's present state can take.
pub fn choices(execution: &Execution) -> impl Iterator<Item = Choice> {
    CHOICES.into_iter().filter(|choice| match choice.decision {
        Decision::Return => operations::may_return(execution),
        _ => choice.sample().is_some_and(|action| operations::is_possible(execution, &action)),
    })
}

impl ExecutionAction {
    pub(super) async fn perform(self, desk: &mut Desk<'_>) -> anyhow::Result<Outcome> {
        match self {
            Self::Resolve(args) => {
                ensure!(
                    args.confirm == args.reference,
                    "--confirm is not the reference: nothing was decided"
                );
                if let Some(seen) = args.seen_version {
                    let found = executions::find_by_reference(desk.conn, &args.reference).await?;
                    let is_seen = found.is_none_or(|found| found.version == seen);
                    ensure!(is_seen, "the order changed since you opened its page: look again");
                }
                let why = (args.reason.as_str(), args.evidence.as_str());
                let done = "is recorded and will be carried out";
                decide(desk, &args.reference, args.decision()?, why, done, true).await
            }
            Self::CloseBreak(CloseBreak { kind, about, why }) => {
                let kind = BreakKind::parse(&kind).with_context(|| {
                    format!("--type {kind} is no break: dvp reconcile --open lists the breaks")
                })?;
                let maker = desk.maker(&why.reason, &why.evidence);
                Ok(Outcome::requested(&breaks::request(desk.conn, kind, &about, maker).await?))
            }
        }
    }
}

/// Records a decision, requests it, or approves another operator's request of the same.
pub(super) async fn decide(
    desk: &mut Desk<'_>,
    reference: &str,
    action: Action,
    (reason, evidence): (&str, &str),
    done: &str,
    tells_state: bool,
) -> anyhow::Result<Outcome> {
    let signs = desk.by.may(APPROVAL) && !matches!(desk.by.proof, Proof::Service { .. });
    let word = action.as_str();
    let resolution = Resolution { reference, action, operator: &desk.by.name, reason, evidence };
    let decision = if signs {
        resolve(desk.conn, &resolution).await?
    } else {
        resolve_as_maker(desk.conn, &resolution).await?
    };
    let OperatorDecision { state, is_proposal, approval } = decision;
    let value = json!({"reference": reference, "action": word, "state": state, "isProposal": is_proposal,
                       "approval": approval});
    let id = approval.clone().unwrap_or_default();
    let waits = format!("waits for another operator within a day: dvp approval approve --id {id}");
    let what = if is_proposal { &waits } else { done };
    let rest = if tells_state { format!("; it was {state}") } else { String::new() };
    let outcome = Outcome::done(value, format!("{reference}: {word} {what}{rest}"));
    Ok(Outcome { approval: approval.filter(|_| is_proposal), ..outcome })
}

impl Resolve {
    fn leg(&self) -> anyhow::Result<LegKind> {
        Ok(match self.leg.context("--leg is needed")? {
            Leg::Offramp => LegKind::Offramp,
            Leg::Payout => LegKind::Payout,
        })
    }

    /// The rail's reference, and when the money moved.
    fn outside(&self) -> anyhow::Result<(String, DateTime<Utc>)> {
        let reference = self.provider_reference.clone().context("--provider-reference is needed")?;
        Ok((reference, self.paid_at.unwrap_or_else(|| clock::now().to_utc())))
    }

    fn decision(&self) -> anyhow::Result<Action> {
        let code = |usual: &str| self.code.clone().unwrap_or_else(|| usual.to_owned());
        Ok(match self.action {
            Decision::Ask => Action::Ask,
            Decision::Cancel => Action::Cancel,
            Decision::CloseContradiction => Action::CloseContradiction,
            Decision::ReleasePayee => Action::ReleasePayee,
            Decision::Release => Action::Release,
            Decision::Refuse => Action::Refuse { code: code(REFUSED) },
            Decision::Fill => Action::Fill {
                input: self.input_minor.map(Minor::new).context("--input-minor is needed")?,
                output: self.output_minor.map(Minor::new).context("--output-minor is needed")?,
            },
            Decision::Retry => Action::Retry { leg: self.leg()? },
            Decision::Fail => Action::Fail { leg: self.leg()?, code: code("payment_not_made") },
            Decision::ReturnDebt => {
                let (provider_reference, at) = self.outside()?;
                Action::ReturnDebt { provider_reference, at }
            }
            Decision::MarkReturned => {
                let (provider_reference, at) = self.outside()?;
                let came = self.came_minor.map(Minor::new);
                Action::MarkReturned { provider_reference, at, came, code: code("payment_returned") }
            }
            Decision::PaidAgain | Decision::GivenBack => {
                let (provider_reference, at) = self.outside()?;
                let is_paid = self.action == Decision::PaidAgain;
                let remedy = if is_paid { Remedy::PaidAgain } else { Remedy::GivenBack };
                Action::ResolveReturn { remedy, provider_reference, at }
            }
            Decision::CloseConversion => Action::CloseConversion { provider_reference: self.outside()?.0 },
            Decision::Return => Action::Return {
                deadline: self.signed_deadline.context("--signed-deadline is needed")?,
                signatures: <[String; 2]>::try_from(self.signature.clone())
                    .ok()
                    .context("--signature is needed twice, of two operators")?,
            },
            Decision::MarkPaid => {
                let (provider_reference, at) = self.outside()?;
                Action::MarkPaid { leg: self.leg()?, provider_reference, at }
            }
        })
    }
}

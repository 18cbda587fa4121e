//! Decisions of an operator about an order that does not end by itself.

use axum::extract::Path;
use chrono::{DateTime, Utc};
use dvp_core::operators::operations::{
    self, Action, OperatorDecision, Resolution, ResolveError, resolve, resolve_as_maker,
};
use dvp_domain::money::Minor;
use dvp_domain::screening::REFUSED;
use dvp_domain::settlement::Remedy;
use dvp_domain::settlement::leg::LegKind;
use dvp_store::PgConnection;
use dvp_store::orders::executions::{self, Execution};
use serde::Deserialize;

use crate::blocks::{Field, Form as FormBlock};
use crate::error::{PageError, sentence};
use crate::navigation::APPROVAL;
use crate::operator::Operator;
use crate::request::{Reply, Sent, Visit, lead_to};
use crate::view;

/// The decisions of the form. Returns and recalls have forms of their own.
const DECISIONS: [(&str, &str); 17] = [
    ("ask", "Query the rail now"),
    ("cancel", "Cancel: the order has not begun to settle"),
    ("release", "Release: settle although screening holds it"),
    ("refuse", "Refuse: fail an order that screening holds"),
    ("fill", "Fill again: the order was filled before a restore, and its bank has paid it"),
    ("retry_offramp", "Retry the conversion: the rail never carried it out"),
    ("retry_payout", "Retry the payout: the rail never carried it out"),
    ("mark_paid_offramp", "The conversion was carried out"),
    ("mark_paid_payout", "The payout was carried out"),
    ("fail_offramp", "Fail the conversion: it was not and will not be carried out"),
    ("fail_payout", "Fail the payout: it was not and will not be carried out"),
    ("return_debt", "The input was returned outside: the debt has ended"),
    ("mark_returned", "The bank returned the payment"),
    ("paid_again", "The returned payment was paid another way"),
    ("given_back", "The input of a returned payment was given back"),
    ("close_conversion", "An unused conversion was unwound or taken over by treasury"),
    ("close_contradiction", "The bank's contradiction was resolved outside"),
];

/// The form of a decision, with those that the order's state allows.
pub(crate) fn form(execution: &Execution) -> FormBlock {
    let reference = execution.terms.reference.as_str();
    let is_possible = |decision: &str| {
        let form = DecisionForm {
            decision: decision.to_owned(),
            provider_reference: reference.to_owned(),
            input_minor: "0".to_owned(),
            output_minor: "0".to_owned(),
            ..DecisionForm::default()
        };
        form.action().is_ok_and(|action| operations::is_possible(execution, &action))
    };
    let possible = DECISIONS.into_iter().filter(|(value, _)| is_possible(value));
    let options = possible.map(|(value, name)| (value.to_owned(), name.to_owned())).collect();
    let choice = Field {
        name: "decision",
        label: "Decision",
        kind: "choice",
        options,
        is_required: true,
        ..Field::default()
    };
    let fields = vec![
        Field::hidden("version", execution.version.to_string()),
        choice,
        Field::text("provider_reference", "Reference of the payment or trade").optional(),
        Field::text("at", "Time of the payment (UTC)").optional(),
        Field::text("code", "Code of the failure").optional(),
        Field::text("input_minor", "Input of the fill, in minor units").optional(),
        Field::text("output_minor", "Output of the fill, in minor units").optional(),
        Field::text("reason", "Reason"),
        Field::text("evidence", "Evidence").optional(),
    ];
    FormBlock::new(format!("/orders/{}/decisions", view::segment(reference)), "Decide", fields)
}

#[derive(Debug, Default, Deserialize)]
pub(crate) struct DecisionForm {
    version: i64,
    decision: String,
    #[serde(default)]
    provider_reference: String,
    #[serde(default)]
    at: String,
    #[serde(default)]
    code: String,
    #[serde(default)]
    input_minor: String,
    #[serde(default)]
    output_minor: String,
    reason: String,
    #[serde(default)]
    evidence: String,
}

impl DecisionForm {
    fn action(&self) -> Result<Action, PageError> {
        let code = |usual: &str| if self.code.is_empty() { usual.to_owned() } else { self.code.clone() };
        Ok(match self.decision.as_str() {
            "ask" => Action::Ask,
            "cancel" => Action::Cancel,
            "release" => Action::Release,
            "refuse" => Action::Refuse { code: code(REFUSED) },
            "retry_offramp" => Action::Retry { leg: LegKind::Offramp },
            "retry_payout" => Action::Retry { leg: LegKind::Payout },
            "fail_offramp" => Action::Fail { leg: LegKind::Offramp, code: code("payment_not_made") },
            "fail_payout" => Action::Fail { leg: LegKind::Payout, code: code("payment_not_made") },
            "mark_paid_offramp" => self.paid(LegKind::Offramp)?,
            "mark_paid_payout" => self.paid(LegKind::Payout)?,
            "return_debt" => {
                let (provider_reference, at) = self.payment()?;
                Action::ReturnDebt { provider_reference, at }
            }
            "mark_returned" => {
                let (provider_reference, at) = self.payment()?;
                Action::MarkReturned { provider_reference, at, came: None, code: code("payment_returned") }
            }
            "paid_again" => self.resolved(Remedy::PaidAgain)?,
            "given_back" => self.resolved(Remedy::GivenBack)?,
            "close_conversion" => Action::CloseConversion { provider_reference: self.payment()?.0 },
            "close_contradiction" => Action::CloseContradiction,
            "fill" => Action::Fill { input: amount(&self.input_minor)?, output: amount(&self.output_minor)? },
            other => return Err(PageError::Invalid(format!("There is no decision {other}."))),
        })
    }

    fn paid(&self, leg: LegKind) -> Result<Action, PageError> {
        let (provider_reference, at) = self.payment()?;
        Ok(Action::MarkPaid { leg, provider_reference, at })
    }

    fn resolved(&self, remedy: Remedy) -> Result<Action, PageError> {
        let (provider_reference, at) = self.payment()?;
        Ok(Action::ResolveReturn { remedy, provider_reference, at })
    }

    fn payment(&self) -> Result<(String, DateTime<Utc>), PageError> {
        let reference = self.provider_reference.trim();
        if reference.is_empty() {
            return Err(PageError::Invalid(
                "This decision needs the reference of the payment or trade.".to_owned(),
            ));
        }
        let at = self.at.trim();
        let unread = |_| PageError::Invalid("A time is written as 2026-01-31T09:00:00Z.".to_owned());
        let at = if at.is_empty() { Utc::now() } else { at.parse().map_err(unread)? };
        Ok((reference.to_owned(), at))
    }
}

fn amount(text: &str) -> Result<Minor, PageError> {
    Minor::parse(text.trim()).map_err(|_| {
        PageError::Invalid("This decision needs the input and the output, in minor units.".to_owned())
    })
}

pub(crate) async fn decide(
    Visit { console, operator }: Visit,
    Path(reference): Path<String>,
    Sent(form): Sent<DecisionForm>,
) -> Reply {
    const ROUTE: &str = "POST /orders/{reference}/decisions";
    let action = form.action()?;
    let mut conn = console.acting().await?;
    let decided = Decided { action, reason: &form.reason, evidence: &form.evidence };
    let decided = decided.about(&mut conn, &reference, form.version).await?;
    carry_out(&mut conn, &operator, ROUTE, &reference, decided, &form.decision).await
}

/// A decision with its reason.
pub(crate) struct Decided<'a> {
    pub action: Action,
    pub reason: &'a str,
    pub evidence: &'a str,
}

impl Decided<'_> {
    /// The decision, or why it is refused: it was made about another version of the order than the present one.
    pub(crate) async fn about(
        self,
        conn: &mut PgConnection,
        reference: &str,
        version: i64,
    ) -> Result<Result<Self, PageError>, PageError> {
        let execution = executions::find_by_reference(conn, reference).await?;
        let execution = execution.ok_or_else(|| PageError::NotFound(format!("order {reference}")))?;
        let changed = "The order changed since you opened its page: look again.";
        Ok(if execution.version == version { Ok(self) } else { Err(PageError::Conflict(changed.to_owned())) })
    }
}

/// Carries a decision out, or makes it a request of another operator; or records that it was refused.
pub(crate) async fn carry_out(
    conn: &mut PgConnection,
    operator: &Operator,
    route: &str,
    reference: &str,
    decided: Result<Decided<'_>, PageError>,
    name: &str,
) -> Reply {
    let done = match decided {
        Ok(Decided { action, reason, evidence }) => {
            let resolution = Resolution { reference, action, operator: &operator.name, reason, evidence };
            let decided = if operator.may(APPROVAL) {
                resolve(conn, &resolution).await
            } else {
                resolve_as_maker(conn, &resolution).await
            };
            decided.map_err(refused)
        }
        Err(error) => Err(error),
    };
    match done {
        Ok(OperatorDecision { approval: Some(request), .. }) => lead_to(&view::approval(&request)),
        Ok(_) => lead_to(&view::order(reference)),
        Err(error) => operator.refuse(conn, route, &format!("{reference}: {name}"), error).await,
    }
}

fn refused(error: ResolveError) -> PageError {
    match error {
        ResolveError::Unknown(reference) => PageError::NotFound(format!("order {reference}")),
        ResolveError::Store(error) => error.into(),
        refused => PageError::Conflict(sentence(&refused.to_string())),
    }
}

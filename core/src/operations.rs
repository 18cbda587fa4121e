//! Operators' decisions about an execution that does not end by itself.
//!
//! A decision is a row that the workflow processes like any due work, and a second row with the operator, the reason
//! and the evidence: both in one transaction, and both immutable. This module changes no settlement; an operator's
//! finding about a leg takes the place of the rail's answer.
//!
//! Two decisions need two operators: to abandon a payout whose fill is on the chain, and to return the input of a
//! settled order. The first operator's decision is a proposal, and the same decision by another operator executes it.
//! Returning filled funds takes two operators' signatures, which the contract verifies.

use chrono::{DateTime, Utc};
use dvp_domain::settlement::State;
use dvp_domain::settlement::leg::{IN_FLIGHT_SECS, LegKind};
use serde_json::{Value, json};
use sqlx::{Connection as _, PgConnection};

use dvp_domain::chain::ChainCommand;

use dvp_store::StoreError;
use dvp_store::chain::commands::{self, NewChainCommand};
use dvp_store::orders::effects::{self, EffectKind, ManualResolution};
use dvp_store::orders::executions::{self, Execution};
use dvp_store::orders::operations::{self as store, NewAction, Nudge};

/// An operator's decision.
#[derive(Debug, Clone)]
pub enum Action {
    /// Process it now: query the rail, without repeating a call.
    Ask,
    /// The rail never executed the leg and never will: call it again.
    Retry(LegKind),
    /// The rail executed the leg.
    MarkPaid { leg: LegKind, provider_reference: String, at: DateTime<Utc> },
    /// The rail never executed the leg and must not: the leg fails, the funds become refundable.
    Fail { leg: LegKind, code: String },
    /// The input of a settled, unpaid order was returned outside of dvp: the debt has ended.
    ReturnDebt { provider_reference: String, at: DateTime<Utc> },
    /// Two operators have signed that the filled funds of a failed payout are returned now.
    Return { deadline: u64, signatures: [String; 2] },
    /// Ends an order whose settlement has not begun.
    Cancel,
}

impl Action {
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Ask => "ask",
            Self::Retry(_) => "retry",
            Self::MarkPaid { .. } => "mark_paid",
            Self::Fail { .. } => "fail",
            Self::ReturnDebt { .. } => "return_debt",
            Self::Return { .. } => "return",
            Self::Cancel => "cancel",
        }
    }

    /// The status of a decision that awaits a second operator.
    const fn as_proposal(&self) -> &'static str {
        match self {
            Self::Ask => "propose_ask",
            Self::Retry(_) => "propose_retry",
            Self::MarkPaid { .. } => "propose_mark_paid",
            Self::Fail { .. } => "propose_fail",
            Self::ReturnDebt { .. } => "propose_return_debt",
            Self::Return { .. } => "propose_return",
            Self::Cancel => "propose_cancel",
        }
    }

    /// Whether a second operator must decide the same: to abandon a payout whose fill is on the chain, and to end a
    /// debt.
    fn takes_two(&self, execution: &Execution) -> bool {
        match self {
            Self::Fail { leg: LegKind::Payout, .. } => execution.state.lock().is_some(),
            Self::ReturnDebt { .. } => true,
            Self::Fail { leg: LegKind::Offramp, .. }
            | Self::Ask
            | Self::Retry(_)
            | Self::MarkPaid { .. }
            | Self::Return { .. }
            | Self::Cancel => false,
        }
    }

    /// Whether the decision needs evidence.
    const fn needs_evidence(&self) -> bool {
        match self {
            Self::Ask | Self::Cancel => false,
            Self::Retry(_)
            | Self::MarkPaid { .. }
            | Self::Fail { .. }
            | Self::ReturnDebt { .. }
            | Self::Return { .. } => true,
        }
    }

    fn details(&self) -> Value {
        match self {
            Self::Ask | Self::Cancel => json!({}),
            Self::Retry(leg) => json!({"leg": leg.as_str()}),
            Self::MarkPaid { leg, provider_reference, at } => {
                json!({"leg": leg.as_str(), "providerReference": provider_reference, "paidAt": at})
            }
            Self::Fail { leg, code } => json!({"leg": leg.as_str(), "code": code}),
            Self::ReturnDebt { provider_reference, at } => {
                json!({"providerReference": provider_reference, "returnedAt": at})
            }
            Self::Return { deadline, .. } => json!({"deadline": deadline}),
        }
    }
}

/// A decision, its operator and its reason.
#[derive(Debug, Clone)]
pub struct Resolution<'a> {
    pub reference: &'a str,
    pub action: Action,
    pub operator: &'a str,
    pub reason: &'a str,
    /// The evidence: a bank statement's line, a ticket.
    pub evidence: &'a str,
}

/// The result of a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OperatorDecision {
    /// The settlement's state at the decision.
    pub state: &'static str,
    /// The decision is a proposal: it takes effect when another operator decides the same.
    pub is_proposal: bool,
}

/// Why a decision was not recorded.
#[derive(Debug, thiserror::Error)]
pub enum ResolveError {
    #[error("there is no execution {0}")]
    Unknown(String),
    #[error("the settlement is {state} and does not wait for {what}")]
    NotWaiting { state: &'static str, what: &'static str },
    #[error("a call may still be on its way: look again in a minute")]
    InFlight,
    #[error("the funds are on their way back: see `dvp chain command list`")]
    Returning,
    #[error("both signatures are one operator's: two operators sign")]
    OneSigner,
    #[error("operator, reason and evidence are needed")]
    NoReason,
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<sqlx::Error> for ResolveError {
    fn from(error: sqlx::Error) -> Self {
        Self::Store(error.into())
    }
}

/// Records a decision; the workflow executes it.
pub async fn resolve(
    conn: &mut PgConnection,
    resolution: &Resolution<'_>,
) -> Result<OperatorDecision, ResolveError> {
    let Resolution { action, operator, reason, evidence, .. } = resolution;
    if operator.trim().is_empty() || reason.trim().is_empty() {
        return Err(ResolveError::NoReason);
    }
    if evidence.trim().is_empty() && action.needs_evidence() {
        return Err(ResolveError::NoReason);
    }
    let mut tx = conn.begin().await?;
    let decided = record(&mut tx, resolution).await;
    // Rolled back explicitly: a dropped transaction keeps its locks until the connection is used again.
    if decided.is_ok() {
        tx.commit().await?
    } else {
        tx.rollback().await?
    }
    decided
}

async fn record(
    conn: &mut PgConnection,
    resolution: &Resolution<'_>,
) -> Result<OperatorDecision, ResolveError> {
    let Resolution { reference, action, operator, reason, evidence } = resolution;
    let Some(execution) = executions::find_by_reference(conn, reference).await? else {
        return Err(ResolveError::Unknown((*reference).to_owned()));
    };
    let state = execution.state.name();
    let kind = waited_for(&execution, action)?;
    let mut kept = action.details();
    let mut keep = |name: &str, value: Value| {
        if let Some(fields) = kept.as_object_mut() {
            fields.insert(name.into(), value);
        }
    };
    keep("evidence", json!(evidence));
    keep("state", json!(state));
    let proposed = action.as_proposal();
    let is_proposal = if action.takes_two(&execution) {
        let by = store::find_proposal(conn, reference, proposed, operator, execution.version).await?;
        keep("proposedBy", json!(by));
        by.is_none()
    } else {
        false
    };
    if !is_proposal {
        carry_out(conn, &execution, action, kind).await?;
    }
    let new = NewAction {
        reference,
        action: if is_proposal { proposed } else { action.as_str() },
        operator,
        reason,
        evidence: &kept,
        version: execution.version,
    };
    store::insert_action(conn, &new).await?;
    Ok(OperatorDecision { state, is_proposal })
}

async fn carry_out(
    conn: &mut PgConnection,
    execution: &Execution,
    action: &Action,
    kind: Option<&str>,
) -> Result<(), ResolveError> {
    let reference = execution.terms.reference.as_str();
    let verdict = verdict(action).map(|verdict| serde_json::to_value(verdict).unwrap_or_default());
    let nudge = match (action, &verdict) {
        (Action::Return { signatures: [first, second], .. }, _) if first.eq_ignore_ascii_case(second) => {
            return Err(ResolveError::OneSigner);
        }
        (Action::Return { deadline, signatures }, _) => {
            let entity = execution.terms.entity.clone();
            let chain_id = commands::find_chain(conn, reference).await?;
            let returns = NewChainCommand {
                chain_id,
                reference: reference.to_owned(),
                intent_id: execution.terms.request.intent_id.clone(),
                entity: entity.clone(),
                command: ChainCommand::ReturnFilled {
                    entity,
                    deadline: *deadline,
                    signatures: signatures.clone(),
                },
            };
            let is_new = commands::insert_again(conn, &returns).await?;
            return if is_new { Ok(()) } else { Err(ResolveError::Returning) };
        }
        // No due work is left that could process the decision.
        (Action::ReturnDebt { .. }, Some(verdict)) => {
            return Ok(effects::insert_verdict(conn, reference, EffectKind::Payout, verdict).await?);
        }
        (Action::Retry(_), _) => Nudge::Uncalled,
        (_, Some(verdict)) => Nudge::Verdict(verdict),
        (_, None) => Nudge::Now,
    };
    if store::nudge(conn, reference, kind, &nudge, IN_FLIGHT_SECS).await? {
        Ok(())
    } else {
        Err(ResolveError::InFlight)
    }
}

/// The kind of due work that the decision is about, if the settlement waits for it.
fn waited_for(execution: &Execution, action: &Action) -> Result<Option<&'static str>, ResolveError> {
    let state = execution.state.name();
    let leg = match action {
        Action::Ask => return Ok(None),
        Action::Cancel if state == "accepted" => return Ok(Some(EffectKind::Lock.as_str())),
        Action::Cancel => return Err(ResolveError::NotWaiting { state, what: "its beginning" }),
        Action::ReturnDebt { .. } => {
            let is_owed =
                matches!(execution.state, State::Owing { settle_tx: Some(_), failure: Some(_), .. });
            let what = "its input to be given back";
            return if is_owed { Ok(None) } else { Err(ResolveError::NotWaiting { state, what }) };
        }
        Action::Return { .. } => {
            let is_held = matches!(execution.state, State::PayoutFailed { debt_returned: None, .. })
                && execution.state.lock().is_some_and(|lock| lock.filled && lock.holds());
            let what = "a return of committed funds";
            return if is_held { Ok(None) } else { Err(ResolveError::NotWaiting { state, what }) };
        }
        Action::Retry(leg) | Action::MarkPaid { leg, .. } | Action::Fail { leg, .. } => *leg,
    };
    let on_chain = leg == LegKind::Payout && execution.terms.pays_on_chain();
    if !execution.state.awaits(leg) || on_chain {
        return Err(ResolveError::NotWaiting { state, what: leg.as_str() });
    }
    Ok(Some(leg.as_str()))
}

fn verdict(action: &Action) -> Option<ManualResolution> {
    match action {
        Action::Ask | Action::Retry(_) | Action::Return { .. } => None,
        Action::ReturnDebt { provider_reference, at } => Some(ManualResolution::Returned {
            provider_reference: provider_reference.clone(),
            occurred_at: *at,
        }),
        Action::MarkPaid { provider_reference, at, .. } => {
            Some(ManualResolution::Done { provider_reference: provider_reference.clone(), occurred_at: *at })
        }
        Action::Fail { code, .. } => Some(ManualResolution::Failed {
            code: code.clone(),
            message: "an operator found that it was not and will not be carried out".to_owned(),
        }),
        Action::Cancel => Some(ManualResolution::Cancel),
    }
}

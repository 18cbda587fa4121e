//! What operators may decide about an execution that does not come to its end by itself.
//!
//! A decision is a row that the workflow carries out like any due work, and a second row that says who decided what,
//! why and on which evidence: both in one transaction, and neither is ever changed. Nothing here moves a settlement;
//! what an operator knows of a leg takes the place of the rail's answer.

use chrono::{DateTime, Utc};
use dvp_domain::settlement::leg::LegKind;
use dvp_domain::settlement::{LegDone, RailAnswer};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sqlx::{Connection as _, PgConnection};

use crate::store::executions::{self, Execution};
use crate::store::operations::{self as store, NewAction, Nudge};
use crate::store::{StoreError, effects::EffectKind};
use crate::workflow::IN_FLIGHT_SECS;

/// What an operator knows, kept with the due work until it is carried out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verdict", rename_all = "snake_case")]
pub enum Verdict {
    Done { provider_reference: String, occurred_at: DateTime<Utc> },
    Failed { code: String, message: String },
    Cancel,
}

impl Verdict {
    /// The answer it stands for, of a leg.
    pub fn answer(&self) -> Option<RailAnswer> {
        match self {
            Self::Done { provider_reference, occurred_at } => Some(RailAnswer::Done(LegDone {
                provider_reference: provider_reference.clone(),
                occurred_at: (*occurred_at).into(),
            })),
            Self::Failed { code, message } => {
                Some(RailAnswer::Failed { code: code.clone(), message: message.clone(), retryable: false })
            }
            Self::Cancel => None,
        }
    }
}

/// What an operator decides.
#[derive(Debug, Clone)]
pub enum Action {
    /// Look at it now: ask the rail, without repeating anything.
    Ask,
    /// The rail never carried the leg out and never will: call it anew.
    Retry(LegKind),
    /// The rail carried the leg out.
    MarkPaid { leg: LegKind, provider_reference: String, at: DateTime<Utc> },
    /// The rail never carried the leg out and is not to: the leg fails, the funds become refundable.
    Fail { leg: LegKind, code: String },
    /// End an order that has not begun to settle.
    Cancel,
}

impl Action {
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Ask => "ask",
            Self::Retry(_) => "retry",
            Self::MarkPaid { .. } => "mark_paid",
            Self::Fail { .. } => "fail",
            Self::Cancel => "cancel",
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
        }
    }
}

/// A decision with who made it and why.
#[derive(Debug, Clone)]
pub struct Resolution<'a> {
    pub reference: &'a str,
    pub action: Action,
    pub operator: &'a str,
    pub reason: &'a str,
    /// What it rests on: a bank statement's line, a ticket.
    pub evidence: &'a str,
}

/// Nothing was decided.
#[derive(Debug, thiserror::Error)]
pub enum ResolveError {
    #[error("there is no execution {0}")]
    Unknown(String),
    #[error("the settlement is {state} and does not wait for {what}")]
    NotWaiting { state: &'static str, what: &'static str },
    #[error("a call may still be on its way: look again in a minute")]
    InFlight,
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

/// Records a decision and leaves it to the workflow. Returns the settlement's state as it was decided on.
pub async fn resolve(
    conn: &mut PgConnection,
    resolution: &Resolution<'_>,
) -> Result<&'static str, ResolveError> {
    let Resolution { reference, action, operator, reason, evidence } = resolution;
    if operator.trim().is_empty() || reason.trim().is_empty() {
        return Err(ResolveError::NoReason);
    }
    if evidence.trim().is_empty()
        && matches!(action, Action::Retry(_) | Action::MarkPaid { .. } | Action::Fail { .. })
    {
        return Err(ResolveError::NoReason);
    }
    let mut tx = conn.begin().await?;
    let Some(execution) = executions::find_by_reference(&mut tx, reference).await? else {
        return Err(ResolveError::Unknown((*reference).to_owned()));
    };
    let state = execution.state.name();
    let kind = waited_for(&execution, action)?;
    let verdict = verdict(action).map(|verdict| serde_json::to_value(verdict).unwrap_or_default());
    let nudge = match (action, &verdict) {
        (Action::Retry(_), _) => Nudge::Uncalled,
        (_, Some(verdict)) => Nudge::Verdict(verdict),
        (_, None) => Nudge::Now,
    };
    if !store::nudge(&mut tx, reference, kind, &nudge, IN_FLIGHT_SECS).await? {
        return Err(ResolveError::InFlight);
    }
    let mut kept = action.details();
    if let Some(fields) = kept.as_object_mut() {
        fields.insert("evidence".into(), json!(evidence));
        fields.insert("state".into(), json!(state));
    }
    let new = NewAction {
        reference,
        action: action.as_str(),
        operator,
        reason,
        evidence: &kept,
        version: execution.version,
    };
    store::insert_action(&mut tx, &new).await?;
    tx.commit().await?;
    Ok(state)
}

/// The kind of work the decision is about, if the settlement waits for it.
fn waited_for(execution: &Execution, action: &Action) -> Result<Option<&'static str>, ResolveError> {
    let state = execution.state.name();
    let leg = match action {
        Action::Ask => return Ok(None),
        Action::Cancel if state == "accepted" => return Ok(Some(EffectKind::Lock.as_str())),
        Action::Cancel => return Err(ResolveError::NotWaiting { state, what: "its beginning" }),
        Action::Retry(leg) | Action::MarkPaid { leg, .. } | Action::Fail { leg, .. } => *leg,
    };
    let on_chain = leg == LegKind::Payout && execution.terms.pays_on_chain();
    if !execution.state.awaits(leg) || on_chain {
        return Err(ResolveError::NotWaiting { state, what: leg.as_str() });
    }
    Ok(Some(leg.as_str()))
}

fn verdict(action: &Action) -> Option<Verdict> {
    match action {
        Action::Ask | Action::Retry(_) => None,
        Action::MarkPaid { provider_reference, at, .. } => {
            Some(Verdict::Done { provider_reference: provider_reference.clone(), occurred_at: *at })
        }
        Action::Fail { code, .. } => Some(Verdict::Failed {
            code: code.clone(),
            message: "an operator found that it was not and will not be carried out".to_owned(),
        }),
        Action::Cancel => Some(Verdict::Cancel),
    }
}

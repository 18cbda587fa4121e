//! The decisions of operators about an execution.

use chrono::{DateTime, Utc};
use dvp_domain::money::Minor;
use dvp_domain::payment::{PaymentStanding, PaymentStatus};
use dvp_domain::recall::RecallReason;
use dvp_domain::settlement::leg::{DESK_HAS_IT, LegKind};
use dvp_domain::settlement::{Remedy, State};
use dvp_store::orders::effects::{EffectKind, ManualResolution};
use dvp_store::orders::executions::Execution;
use serde::{Deserialize, Serialize};

use super::{ResolveError, may_return};

/// The state needed to release or refuse an order.
pub(super) const HELD: &str = "an operator, as an order that screening holds does";

/// The state needed to release a payment to another payee.
pub(super) const PAYEE: &str = "an operator, as a payment whose payee does not match does";

/// The state needed to fill an order again.
pub(super) const FILLED: &str = "a fill that its rail knows from before a restore";

/// A decision of an operator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "action", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum Action {
    /// Query the rail now, without repeating a call.
    Ask,
    /// The rail never carried the leg out and never will: call it again.
    Retry { leg: LegKind },
    /// The rail carried the leg out, even after it had failed, or what is owed for a failed one was paid another way.
    MarkPaid {
        leg: LegKind,
        provider_reference: String,
        #[serde(rename = "paidAt")]
        at: DateTime<Utc>,
    },
    /// The rail never carried the leg out and must not: the leg fails, the funds become refundable. A desk is asked all the
    /// same what became of the conversion; of one that counts as failed, operators find that it was not carried out.
    Fail { leg: LegKind, code: String },
    /// The input of an order that was settled and not paid was returned outside of the service: the debt has ended.
    ReturnDebt {
        provider_reference: String,
        #[serde(rename = "returnedAt")]
        at: DateTime<Utc>,
    },
    /// The rail returned the payment after it was carried out.
    MarkReturned {
        provider_reference: String,
        #[serde(rename = "returnedAt")]
        at: DateTime<Utc>,
        /// Less than was paid, when the rail has deducted its charge.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        came: Option<Minor>,
        code: String,
    },
    /// The returned payment was paid another way, or the input returned.
    ResolveReturn {
        remedy: Remedy,
        provider_reference: String,
        #[serde(rename = "resolvedAt")]
        at: DateTime<Utc>,
    },
    /// Treasury has unwound or taken over what the desk converted for an order that did not use it, by this trade.
    CloseConversion { provider_reference: String },
    /// Two operators have signed the return of the funds of a failed payout to which the chain is committed.
    Return { deadline: u64, signatures: [String; 2] },
    /// End an order that has not begun to settle.
    Cancel,
    /// A contradiction by the bank was resolved outside of the service.
    CloseContradiction,
    /// Settle an order that screening holds.
    Release,
    /// Fail an order that screening holds.
    Refuse { code: String },
    /// A resting order of money that a rail knows was filled for these amounts before a restore.
    Fill { input: Minor, output: Minor },
    /// Ask the bank to give the payment back.
    Recall {
        reason: RecallReason,
        /// What the bank is told beside the reason.
        information: Option<String>,
    },
    /// The bank may make a payment whose payee does not match.
    ReleasePayee,
    /// The end of a recall is known outside of the service, or it is not to be sent.
    CloseRecall,
}

impl Action {
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Ask => "ask",
            Self::Retry { .. } => "retry",
            Self::MarkPaid { .. } => "mark_paid",
            Self::Fail { .. } => "fail",
            Self::ReturnDebt { .. } => "return_debt",
            Self::MarkReturned { .. } => "mark_returned",
            Self::ResolveReturn { .. } => "resolve_return",
            Self::CloseConversion { .. } => "close_conversion",
            Self::Return { .. } => "return",
            Self::Cancel => "cancel",
            Self::CloseContradiction => "close_contradiction",
            Self::Release => "release",
            Self::Refuse { .. } => "refuse",
            Self::Fill { .. } => "fill",
            Self::Recall { .. } => "recall",
            Self::CloseRecall => "close_recall",
            Self::ReleasePayee => "release_payee",
        }
    }

    /// Whether another operator has to approve it: it moves money, or states where money is. A return has two
    /// operators' signatures, which the contract checks.
    pub const fn takes_two(&self) -> bool {
        match self {
            Self::Retry { .. }
            | Self::MarkPaid { .. }
            | Self::Fail { .. }
            | Self::ReturnDebt { .. }
            | Self::MarkReturned { .. }
            | Self::ResolveReturn { .. }
            | Self::CloseConversion { .. }
            | Self::CloseContradiction
            | Self::Release
            | Self::Refuse { .. }
            | Self::Fill { .. }
            | Self::Recall { .. }
            | Self::CloseRecall
            | Self::ReleasePayee => true,
            Self::Ask | Self::Return { .. } | Self::Cancel => false,
        }
    }

    /// Whether it requires evidence.
    pub(super) const fn needs_evidence(&self) -> bool {
        self.takes_two() || matches!(self, Self::Return { .. })
    }

    /// Whether two operators made the same decision. The time of a payment is the first one's.
    pub(super) fn agrees_with(&self, other: &Self) -> bool {
        let at = DateTime::<Utc>::UNIX_EPOCH;
        let timeless = |action: &Self| match action.clone() {
            Self::MarkPaid { leg, provider_reference, .. } => Self::MarkPaid { leg, provider_reference, at },
            Self::ReturnDebt { provider_reference, .. } => Self::ReturnDebt { provider_reference, at },
            Self::MarkReturned { provider_reference, came, code, .. } => {
                Self::MarkReturned { provider_reference, at, came, code }
            }
            Self::ResolveReturn { remedy, provider_reference, .. } => {
                Self::ResolveReturn { remedy, provider_reference, at }
            }
            same @ (Self::Ask
            | Self::Retry { .. }
            | Self::Fail { .. }
            | Self::CloseConversion { .. }
            | Self::Return { .. }
            | Self::Cancel
            | Self::CloseContradiction
            | Self::Release
            | Self::Refuse { .. }
            | Self::Fill { .. }
            | Self::Recall { .. }
            | Self::CloseRecall
            | Self::ReleasePayee) => same,
        };
        timeless(self) == timeless(other)
    }

    /// How known facts about the leg contradict the decision.
    pub(super) fn contradicted(
        &self,
        execution: &Execution,
        standing: Option<PaymentStanding>,
    ) -> Option<&'static str> {
        let status = standing.map(|standing| standing.status);
        match self {
            Self::Retry { leg } if execution.state.confirmed(*leg).is_some() => {
                Some("the rail has confirmed that it has the call: ask, and repeat nothing")
            }
            Self::Retry { leg: LegKind::Payout } if status.is_some_and(PaymentStatus::is_with_bank) => {
                Some("the bank has the payment's file: ask, and repeat nothing")
            }
            Self::MarkPaid { leg: LegKind::Payout, .. } if is_unpaid_debt(execution) => {
                let is_booked = standing.and_then(PaymentStanding::against_unpaid).is_some();
                (!is_booked && !execution.state.is_released_debt()).then_some(NOT_RELEASED)
            }
            Self::MarkPaid { leg: LegKind::Payout, .. }
                if execution.state.may_be_found_paid() || is_open_reversal(execution) =>
            {
                standing.and_then(PaymentStanding::against_found)
            }
            Self::MarkPaid { leg: LegKind::Payout, .. } => standing.and_then(PaymentStanding::against_paid),
            Self::Fail { leg: LegKind::Offramp, .. } if execution.state.confirmed(LegKind::Offramp).is_some() => {
                Some(DESK_HAS_IT)
            }
            Self::Fail { leg: LegKind::Payout, .. } => standing.and_then(PaymentStanding::against_failed),
            Self::ReturnDebt { .. } | Self::Return { .. } => {
                standing.and_then(PaymentStanding::against_unpaid)
            }
            Self::ResolveReturn { remedy: Remedy::PaidAgain, .. } if execution.state.was_paid_by_house() => {
                Some(
                    "the escrow had returned the input before the payment: nothing is owed, record it as given back",
                )
            }
            Self::ResolveReturn { .. } => standing.and_then(PaymentStanding::against_unpaid).map(|_| {
                "the bank took the return back: record the payment with mark-paid, or close the contradiction"
            }),
            Self::Recall { .. } => against_recall(&execution.state, standing),
            Self::Retry { .. }
            | Self::MarkPaid { leg: LegKind::Offramp, .. }
            | Self::Fail { leg: LegKind::Offramp, .. }
            | Self::Ask
            | Self::MarkReturned { .. }
            | Self::CloseConversion { .. }
            | Self::CloseContradiction
            | Self::Release
            | Self::Refuse { .. }
            | Self::Fill { .. }
            | Self::CloseRecall
            | Self::ReleasePayee
            | Self::Cancel => None,
        }
    }

    /// The kind of work the decision is about, if the settlement waits for it.
    pub(super) fn waited_for(&self, execution: &Execution) -> Result<Option<&'static str>, ResolveError> {
        let state = execution.state.name();
        let unless = |is_waiting: bool, what| {
            if is_waiting { Ok(None) } else { Err(ResolveError::NotWaiting { state, what }) }
        };
        let leg = match self {
            Self::Ask | Self::CloseContradiction | Self::Recall { .. } | Self::CloseRecall => {
                return Ok(None);
            }
            Self::Cancel if matches!(execution.state, State::Resting | State::Accepted) => {
                return Ok(Some(EffectKind::Lock.as_str()));
            }
            Self::ReleasePayee => {
                return unless(execution.state.awaits(LegKind::Payout), PAYEE);
            }
            Self::Release | Self::Refuse { .. } if state == "accepted" => {
                return Ok(Some(EffectKind::Lock.as_str()));
            }
            Self::Release | Self::Refuse { .. } => {
                return Err(ResolveError::NotWaiting { state, what: HELD });
            }
            Self::Cancel => return Err(ResolveError::NotWaiting { state, what: "its beginning" }),
            Self::Fill { .. } if execution.state == State::Resting && !execution.terms.locks() => {
                return Ok(Some(EffectKind::Lock.as_str()));
            }
            Self::Fill { .. } => return Err(ResolveError::NotWaiting { state, what: FILLED }),
            Self::ReturnDebt { .. } => {
                return unless(execution.state.is_released_debt(), "its input to be given back");
            }
            Self::MarkReturned { .. } => {
                let is_paid = matches!(execution.state, State::Completed { reversal: None, .. })
                    && !execution.terms.pays_on_chain();
                return unless(is_paid, "its payment to come back");
            }
            Self::ResolveReturn { .. } => {
                return unless(is_open_reversal(execution), "what came back to be resolved");
            }
            Self::CloseConversion { .. } => {
                return unless(execution.state.open_position().is_some(), "the end of an unused conversion");
            }
            // The order has ended: its conversion is asked about, and called no more.
            Self::Retry { leg: LegKind::Offramp } if execution.state.is_terminal() => {
                return Err(ResolveError::NotWaiting { state, what: LegKind::Offramp.as_str() });
            }
            Self::Return { .. } => return unless(may_return(execution), "a return of committed funds"),
            Self::MarkPaid { leg: LegKind::Payout, .. }
                if is_unpaid_debt(execution)
                    || is_failed_payment(execution)
                    || is_open_reversal(execution) =>
            {
                return Ok(Some(LegKind::Payout.as_str()));
            }
            Self::Retry { leg } | Self::MarkPaid { leg, .. } | Self::Fail { leg, .. } => *leg,
        };
        if !execution.state.awaits(leg) || self.is_the_chains(execution) {
            return Err(ResolveError::NotWaiting { state, what: leg.as_str() });
        }
        Ok(Some(leg.as_str()))
    }

    /// The chain says what became of a payment in tokens. Operators decide in its place only about a debt, for the case
    /// that the chain never comes back; nothing is repeated.
    fn is_the_chains(&self, execution: &Execution) -> bool {
        match self {
            Self::Retry { leg: LegKind::Payout } => execution.terms.pays_on_chain(),
            Self::MarkPaid { leg: LegKind::Payout, .. } | Self::Fail { leg: LegKind::Payout, .. } => {
                execution.terms.pays_on_chain() && !matches!(execution.state, State::Owing { .. })
            }
            _ => false,
        }
    }

    pub(super) fn verdict(&self) -> Option<ManualResolution> {
        match self {
            Self::Ask
            | Self::Retry { .. }
            | Self::Return { .. }
            | Self::CloseContradiction
            | Self::Recall { .. }
            | Self::CloseRecall
            | Self::ReleasePayee => None,
            Self::ReturnDebt { provider_reference, at } => Some(ManualResolution::Returned {
                provider_reference: provider_reference.clone(),
                occurred_at: *at,
            }),
            Self::MarkReturned { provider_reference, at, came, code } => {
                Some(ManualResolution::PaymentReturned {
                    provider_reference: provider_reference.clone(),
                    occurred_at: *at,
                    came: *came,
                    code: code.clone(),
                    message: "an operator found that the payment came back".to_owned(),
                })
            }
            Self::ResolveReturn { remedy, provider_reference, at } => {
                Some(ManualResolution::ReversalResolved {
                    remedy: *remedy,
                    provider_reference: provider_reference.clone(),
                    occurred_at: *at,
                })
            }
            Self::CloseConversion { .. } => Some(ManualResolution::ConversionClosed),
            Self::MarkPaid { provider_reference, at, .. } => Some(ManualResolution::Done {
                provider_reference: provider_reference.clone(),
                occurred_at: *at,
            }),
            Self::Fail { code, .. } => Some(ManualResolution::Failed {
                code: code.clone(),
                message: "an operator found that it was not and will not be carried out".to_owned(),
            }),
            Self::Cancel => Some(ManualResolution::Cancel),
            Self::Release => Some(ManualResolution::Released),
            Self::Refuse { code } => Some(ManualResolution::Refused { code: code.clone() }),
            Self::Fill { input, output } => Some(ManualResolution::Filled { input: *input, output: *output }),
        }
    }
}

const NOT_RELEASED: &str = "the funds were not released yet, and may go back to the user: the debt is paid another way \
                            when its execution has a settle transaction";

/// Whether a rail's payout has failed and its output is still owed: it may have been paid all the same, or be paid
/// another way.
pub(super) fn is_unpaid_debt(execution: &Execution) -> bool {
    matches!(execution.state, State::Owing { failure: Some(_), .. }) && !execution.terms.pays_on_chain()
}

/// Whether a rail's payout has failed and its order has ended: it may have been made all the same.
pub(super) fn is_failed_payment(execution: &Execution) -> bool {
    execution.state.may_be_found_paid() && !execution.terms.pays_on_chain()
}

/// Whether a payment came back, and operators have not resolved that.
pub(super) fn is_open_reversal(execution: &Execution) -> bool {
    matches!(&execution.state, State::Completed { reversal: Some(reversal), .. } if reversal.resolved.is_none())
}

/// Why the bank is not asked to give a payment back.
fn against_recall(state: &State, standing: Option<PaymentStanding>) -> Option<&'static str> {
    let is_booked = standing.is_some_and(|standing| standing.against_unpaid().is_some());
    if matches!(state, State::Completed { reversal: Some(_), .. }) && !is_booked {
        return Some("the payment has come back: there is nothing to recall");
    }
    if standing.is_some_and(PaymentStanding::is_booked_after_refusal) {
        return None;
    }
    match standing.map(|standing| standing.status) {
        Some(PaymentStatus::Sent | PaymentStatus::Pending | PaymentStatus::Paid) => None,
        Some(PaymentStatus::Refused) => Some("the bank has refused the payment: there is nothing to recall"),
        Some(PaymentStatus::Returned) => Some("the payment has come back: there is nothing to recall"),
        Some(PaymentStatus::Staged) => {
            Some("the payment was not given to the bank: fail the payout in place of a recall")
        }
        None => Some("no payment of the order was given to a bank: cancel the order, or fail its payout"),
    }
}

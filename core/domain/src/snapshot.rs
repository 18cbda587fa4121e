//! The Intent in an event (spec sections 2.8 and 6.1).

use serde::{Deserialize, Serialize};

use crate::beneficiary::{Beneficiary, MaskedBeneficiary};
use crate::event::{EventType, PhaseState};
use crate::money::Minor;
use crate::settlement::{Leg, LegDone, ShownFailure, State};
use crate::terms::Terms;
use crate::time::Timestamp;

/// Spec section 2.8, Intent object.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IntentSnapshot {
    pub id: String,
    pub status: EventType,
    pub input: SnapshotInput,
    pub output: SnapshotOutput,
    pub beneficiary: MaskedBeneficiary,
    pub lock: Option<SnapshotLock>,
    pub offramp: Option<SnapshotOfframp>,
    pub payout: Option<SnapshotPayout>,
    pub failure: Option<ShownFailure>,
    pub funds_state: FundsState,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SnapshotInput {
    pub asset: String,
    pub amount_minor: Minor,
    pub exponent: u8,
    pub chain: Option<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SnapshotOutput {
    pub currency: String,
    pub amount_minor: Minor,
    pub exponent: u8,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SnapshotLock {
    pub tx_hash: String,
    pub timelock_expires_at: String,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SnapshotOfframp {
    pub status: PhaseState,
    pub from_asset: String,
    pub from_amount_minor: Minor,
    pub to_currency: String,
    pub to_amount_minor: Option<Minor>,
    pub fx_rate: Option<String>,
    pub offramp_id: Option<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SnapshotPayout {
    pub status: PhaseState,
    pub provider: String,
    pub confirmed_at: Option<String>,
    pub receipt: Option<String>,
    pub provider_reference: Option<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FundsState {
    pub location: FundsLocation,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lock_tx_hash: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timelock_expires_at: Option<String>,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FundsLocation {
    NoneMoved,
    Locked,
    Released,
}

/// The Intent after `kind`, in `state`. `account_hash` makes the keyed hash of the beneficiary's account.
pub fn snapshot(
    terms: &Terms,
    state: &State,
    kind: EventType,
    account_hash: impl FnOnce(&str) -> String,
) -> IntentSnapshot {
    let beneficiary = terms.registered.clone().unwrap_or_else(|| {
        let given = terms.request.beneficiary.as_ref();
        MaskedBeneficiary::of(given.unwrap_or(&Beneficiary::default()), account_hash)
    });
    IntentSnapshot {
        id: terms.request.intent_id.clone(),
        status: kind,
        input: SnapshotInput {
            asset: terms.input.asset.clone(),
            amount_minor: terms.input.amount,
            exponent: terms.input.exponent,
            chain: terms.input.chain.clone(),
        },
        output: SnapshotOutput {
            currency: terms.output.asset.clone(),
            amount_minor: terms.output.amount,
            exponent: terms.output.exponent,
        },
        beneficiary,
        lock: state.lock().map(|lock| SnapshotLock {
            tx_hash: lock.tx_hash.clone(),
            timelock_expires_at: lock.timelock_expires_at.iso8601(),
        }),
        offramp: offramp(terms, state, kind),
        payout: payout(terms, state, kind),
        failure: state.failure().cloned().map(ShownFailure::from),
        funds_state: funds(state),
    }
}

fn leg_status(leg: &Leg) -> PhaseState {
    if leg.in_progress { PhaseState::InProgress } else { PhaseState::Initiated }
}

fn offramp(terms: &Terms, state: &State, _kind: EventType) -> Option<SnapshotOfframp> {
    let (status, done): (PhaseState, Option<&LegDone>) = match state {
        State::Resting
        | State::Accepted
        | State::Locking
        | State::Cancelled
        | State::Expired
        | State::Failed { .. } => {
            return None;
        }
        State::Converting { leg, .. } => (leg_status(leg), None),
        State::ConversionFailed { .. } => (PhaseState::Failed, None),
        State::Committing { offramp, .. } => (PhaseState::Completed, Some(&offramp.done)),
        State::Paying { offramp, .. }
        | State::Owing { offramp, .. }
        | State::Releasing { offramp, .. }
        | State::Completed { offramp, .. }
        | State::PayoutFailed { offramp, .. } => {
            // Money for money has no offramp leg.
            (PhaseState::Completed, Some(&offramp.as_ref()?.done))
        }
    };
    let priced = &terms.plan.priced;
    Some(SnapshotOfframp {
        status,
        from_asset: terms.input.asset.clone(),
        from_amount_minor: priced.net_input(),
        to_currency: terms.output.asset.clone(),
        to_amount_minor: done.map(|_| priced.gross_output),
        fx_rate: done.map(|_| priced.rate.to_string()),
        offramp_id: done.map(|done| done.provider_reference.clone()),
    })
}

fn payout(terms: &Terms, state: &State, kind: EventType) -> Option<SnapshotPayout> {
    let (status, reference, confirmed) = match state {
        // One step both completes the conversion and starts the payout: the first event shows the state between them.
        State::Paying { .. } if matches!(kind, EventType::OfframpCompleted) => return None,
        State::Paying { leg, .. } | State::Owing { leg, .. } => {
            (leg_status(leg), leg.provider_reference.clone(), None)
        }
        State::Releasing { payout, .. } => {
            (PhaseState::InProgress, Some(payout.provider_reference.clone()), None)
        }
        State::Completed { payout, reversal, .. } => {
            let confirmed = Some(payout.occurred_at);
            let status = if reversal.is_some() { PhaseState::Reversed } else { PhaseState::Completed };
            (status, Some(payout.provider_reference.clone()), confirmed)
        }
        State::PayoutFailed { .. } => (PhaseState::Failed, None, None),
        State::Resting
        | State::Accepted
        | State::Locking
        | State::Converting { .. }
        | State::Committing { .. }
        | State::ConversionFailed { .. }
        | State::Cancelled
        | State::Expired
        | State::Failed { .. } => return None,
    };
    Some(SnapshotPayout {
        status,
        provider: terms.plan.path.payout_provider().to_owned(),
        confirmed_at: confirmed.map(Timestamp::iso8601),
        receipt: None,
        provider_reference: reference,
    })
}

/// Prefunded money stays with the partner until it is released.
fn funds(state: &State) -> FundsState {
    let location = match state {
        State::Resting
        | State::Accepted
        | State::Locking
        | State::Cancelled
        | State::Expired
        | State::Failed { .. } => FundsLocation::NoneMoved,
        State::Completed { .. }
        | State::Owing { settle_tx: Some(_), .. }
        | State::PayoutFailed { debt_returned: Some(_), .. } => FundsLocation::Released,
        State::Converting { .. }
        | State::Committing { .. }
        | State::Paying { .. }
        | State::Owing { .. }
        | State::Releasing { .. }
        | State::ConversionFailed { .. }
        | State::PayoutFailed { .. } => {
            if state.lock().is_some() {
                FundsLocation::Locked
            } else {
                FundsLocation::NoneMoved
            }
        }
    };
    let held = state.lock().filter(|lock| matches!(location, FundsLocation::Locked) && lock.holds());
    FundsState {
        location,
        lock_tx_hash: held.map(|lock| lock.tx_hash.clone()),
        timelock_expires_at: held.map(|lock| lock.timelock_expires_at.iso8601()),
    }
}

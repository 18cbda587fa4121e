//! Sample Intents, one for each event type, so that a partner can test a receiver without an order.
//!
//! They are made of the same type as real events and so have their shape.

use crate::beneficiary::MaskedBeneficiary;
use crate::event::Stage;
use crate::event::{EventType, PhaseState};
use crate::money::Minor;
use crate::settlement::Failure;
use crate::snapshot::{
    FundsLocation, FundsState, IntentSnapshot, SnapshotInput, SnapshotLock, SnapshotOfframp, SnapshotOutput,
    SnapshotPayout,
};
use crate::time::Timestamp;

const LOCK_TX: &str = "0x1111111111111111111111111111111111111111111111111111111111111111";
const ACCOUNT_HASH: &str = "2222222222222222222222222222222222222222222222222222222222222222";
const TIMELOCK_MILLIS: i64 = 7_200_000;

/// The moment of the life of an Intent that a sample shows.
struct Moment {
    offramp: Option<PhaseState>,
    payout: Option<PhaseState>,
    failed: Option<Stage>,
}

const fn moment(kind: EventType) -> Moment {
    use PhaseState::{Completed, Failed, InProgress, Initiated, Reversed};
    let (offramp, payout, failed) = match kind {
        EventType::IntentAccepted | EventType::IntentCancelled | EventType::IntentExpired => {
            (None, None, None)
        }
        EventType::IntentFailed => (None, None, Some(Stage::Intent)),
        EventType::OfframpInitiated => (Some(Initiated), None, None),
        EventType::OfframpInProgress => (Some(InProgress), None, None),
        EventType::OfframpCompleted => (Some(Completed), None, None),
        EventType::OfframpFailed => (Some(Failed), None, Some(Stage::Offramp)),
        EventType::PayoutInitiated => (Some(Completed), Some(Initiated), None),
        EventType::PayoutInProgress => (Some(Completed), Some(InProgress), None),
        EventType::PayoutCompleted => (Some(Completed), Some(Completed), None),
        EventType::PayoutFailed => (Some(Completed), Some(Failed), Some(Stage::Payout)),
        EventType::PayoutReversed => (Some(Completed), Some(Reversed), Some(Stage::Payout)),
    };
    Moment { offramp, payout, failed }
}

/// The sequence number of an event of this type when no phase passes through `in_progress`.
pub const fn sequence(kind: EventType) -> i64 {
    match kind {
        EventType::IntentAccepted => 1,
        EventType::IntentCancelled
        | EventType::IntentExpired
        | EventType::IntentFailed
        | EventType::OfframpInitiated => 2,
        EventType::OfframpInProgress | EventType::OfframpCompleted | EventType::OfframpFailed => 3,
        EventType::PayoutInitiated => 4,
        EventType::PayoutInProgress | EventType::PayoutCompleted | EventType::PayoutFailed => 5,
        EventType::PayoutReversed => 6,
    }
}

/// An Intent of 100 USDC for USD right after `kind`.
pub fn snapshot(intent_id: &str, kind: EventType, at: Timestamp) -> IntentSnapshot {
    let Moment { offramp, payout, failed } = moment(kind);
    let locked_until = at.plus_millis(TIMELOCK_MILLIS).iso8601();
    let paid = matches!(payout, Some(PhaseState::Completed | PhaseState::Reversed));
    let held = offramp.is_some() && !paid;
    let location = match (offramp, paid) {
        (None, _) => FundsLocation::NoneMoved,
        (Some(_), true) => FundsLocation::Released,
        (Some(_), false) => FundsLocation::Locked,
    };
    IntentSnapshot {
        id: intent_id.to_owned(),
        status: kind,
        input: SnapshotInput {
            asset: "USDC".into(),
            amount_minor: Minor::new(100_000_000),
            exponent: 6,
            chain: Some("sample".into()),
        },
        output: SnapshotOutput { currency: "USD".into(), amount_minor: Minor::new(9935), exponent: 2 },
        beneficiary: MaskedBeneficiary {
            name_masked: Some("J*** D**".into()),
            account_last4: Some("6789".into()),
            account_hash: Some(ACCOUNT_HASH.into()),
            bank: None,
        },
        lock: offramp
            .map(|_| SnapshotLock { tx_hash: LOCK_TX.into(), timelock_expires_at: locked_until.clone() }),
        offramp: offramp.map(sample_offramp),
        payout: payout.map(|status| SnapshotPayout {
            status,
            provider: "sample-bank".into(),
            confirmed_at: paid.then(|| at.iso8601()),
            receipt: None,
            provider_reference: paid.then(|| "sample-payout-1".into()),
        }),
        failure: failed.map(|stage| failure(stage).into()),
        funds_state: FundsState {
            location,
            lock_tx_hash: held.then(|| LOCK_TX.into()),
            timelock_expires_at: held.then_some(locked_until),
        },
    }
}

fn sample_offramp(status: PhaseState) -> SnapshotOfframp {
    let done = matches!(status, PhaseState::Completed);
    SnapshotOfframp {
        status,
        from_asset: "USDC".into(),
        from_amount_minor: Minor::new(100_000_000),
        to_currency: "USD".into(),
        to_amount_minor: done.then(|| Minor::new(9985)),
        fx_rate: done.then(|| "0.9985".into()),
        offramp_id: done.then(|| "sample-offramp-1".into()),
    }
}

fn failure(stage: Stage) -> Failure {
    let (code, message) = match stage {
        Stage::Intent => ("no_liquidity", "no provider can fill the intent"),
        Stage::Offramp => ("conversion_failed", "the conversion failed"),
        Stage::Payout => ("beneficiary_account_closed", "the beneficiary's account is closed"),
    };
    Failure { stage, code: code.into(), message: message.into(), retryable: false }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_has_a_sample_whose_status_agrees_with_its_leg() {
        for kind in EventType::ALL {
            let sample = snapshot("sample_1", kind, Timestamp::from_millis(0));
            let (stage, state) = kind.phase_state();
            assert_eq!(sample.status, kind);
            match stage {
                Stage::Intent => assert!(sample.offramp.is_none() && sample.lock.is_none()),
                Stage::Offramp => assert_eq!(sample.offramp.map(|leg| leg.status), Some(state)),
                Stage::Payout => assert_eq!(sample.payout.map(|leg| leg.status), Some(state)),
            }
            let failed = kind.as_str().ends_with("failed") || kind == EventType::PayoutReversed;
            assert_eq!(sample.failure.map(|failure| failure.failure.stage), failed.then_some(stage));
        }
    }
}

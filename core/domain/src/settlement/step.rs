//! The transitions of a settlement.

use super::owing::{self, Owing};
use super::{
    Conversion, DeskOutcome, Effect, Emitted, Failure, Happened, IllegalTransition, Leg, LegDone, Lock,
    RailAnswer, State, Step, WHEN_RECORDED, Withheld, lock, position, reversal,
};
use crate::event::{EventType, Stage};
use crate::ledger;
use crate::terms::Terms;
use crate::time::Timestamp;

impl State {
    /// The only way a settlement changes.
    pub fn step(self, terms: &Terms, happened: Happened) -> Result<Step, IllegalTransition> {
        let illegal = IllegalTransition { state: self.name(), event: happened.name() };
        let step = match (self, happened) {
            (Self::Resting, Happened::Matched) => matched(terms),
            (Self::Resting, Happened::CancelRequested) => {
                unmatched(Self::Cancelled, EventType::IntentCancelled, WHEN_RECORDED)
            }
            (Self::Resting, Happened::DeadlinePassed { at }) => {
                unmatched(Self::Expired, EventType::IntentExpired, at)
            }
            (Self::Resting, Happened::Refused { code, message, at }) => {
                let failure = Failure { stage: Stage::Intent, code, message, retryable: false };
                unmatched(Self::Failed { failure }, EventType::IntentFailed, at)
            }
            (Self::Accepted, Happened::LockDue) => start(terms),
            (Self::Accepted, Happened::CancelRequested) => {
                close(terms, Self::Cancelled, EventType::IntentCancelled, WHEN_RECORDED)
            }
            (Self::Accepted, Happened::DeadlinePassed { at }) => {
                close(terms, Self::Expired, EventType::IntentExpired, at)
            }
            (Self::Locking, Happened::Locked { lock, at }) if !terms.swaps() => locked(terms, lock, at),
            (Self::Locking, Happened::Settled { tx_hash, at }) if terms.swaps() => {
                swapped(terms, tx_hash, at)
            }
            (Self::Accepted, Happened::Refused { code, message, at }) => refused(terms, (code, message), at),
            // Withdrawn before it was part of a signed transaction.
            (Self::Locking, Happened::CancelRequested) => {
                close(terms, Self::Cancelled, EventType::IntentCancelled, WHEN_RECORDED)
                    .after([Effect::WithdrawLock])
            }
            (Self::Locking, Happened::LockFailed { code, message, at }) => {
                refused(terms, (code, message), at).after([Effect::PublishPermit])
            }
            (Self::Converting { lock, leg }, Happened::Offramp { answer, at }) => {
                converting(terms, lock, leg, answer, at)
            }
            (Self::Converting { lock, .. }, Happened::Withheld { why, at }) => {
                conversion_failed(terms, lock, why.failure(Stage::Offramp), DeskOutcome::NotExecuted, at)
            }
            // Whether the desk has converted is not known.
            (Self::Converting { lock, leg }, Happened::ConversionGivenUp { code, message, at }) => {
                let failure = Failure { stage: Stage::Offramp, code, message, retryable: false };
                conversion_failed(terms, lock, failure, DeskOutcome::Asked(leg), at)
            }
            (
                Self::ConversionFailed { lock, failure, desk: DeskOutcome::Asked(_) },
                Happened::Offramp { answer, .. },
            ) => {
                let desk = match answer {
                    RailAnswer::InProgress { provider_reference } => DeskOutcome::Asked(Leg {
                        in_progress: true,
                        provider_reference: Some(provider_reference),
                    }),
                    RailAnswer::Done(done) => DeskOutcome::Executed(done.into()),
                    RailAnswer::Failed { .. } => DeskOutcome::NotExecuted,
                };
                Step::quiet(Self::ConversionFailed { lock, failure, desk }, Vec::new())
            }
            (
                Self::ConversionFailed { lock, failure, desk: DeskOutcome::Asked(_) },
                Happened::Withheld { .. },
            ) => Step::quiet(
                Self::ConversionFailed { lock, failure, desk: DeskOutcome::NotExecuted },
                Vec::new(),
            ),
            (Self::Committing { lock, offramp }, Happened::Filled { at }) => {
                // The payout begins now. The block's time has whole seconds and may lie before the end of the conversion.
                let lock = Lock { filled: true, ..lock };
                if is_too_late_there(terms, &lock, at) {
                    let failure = Withheld::TimelockNear.failure(Stage::Payout);
                    unpaid(terms, lock, offramp, failure, at)
                } else {
                    pay(terms, Some(lock), Some(offramp), WHEN_RECORDED)
                }
            }
            (
                Self::Committing { lock, offramp },
                ended @ (Happened::FillFailed { .. } | Happened::Refunded { .. } | Happened::LockLost { .. }),
            ) => uncommitted(terms, lock, offramp, ended).ok_or(illegal)?,
            (Self::Paying { lock, offramp, leg }, Happened::Payout { answer, at }) => {
                paying(terms, Paying { lock, offramp, leg }, answer, at)
            }
            (Self::Paying { lock, offramp, .. }, Happened::Withheld { why, at }) => {
                payout_failed(terms, lock, offramp, why.failure(Stage::Payout), at)
            }
            (Self::Paying { lock: Some(lock), offramp, leg }, Happened::TimelockNear) if !lock.refunded => {
                owing::begin(terms, lock, offramp, leg)
            }
            // A restored database has forgotten why: the output is owed until the rail has answered.
            (Self::Paying { lock: Some(lock), offramp, leg }, Happened::Settled { tx_hash, .. })
                if !lock.refunded =>
            {
                owing::released(terms, lock, offramp, leg, tx_hash)
            }
            (
                Self::Owing { lock, offramp, leg, settle_tx, failure, is_reopened },
                reported @ (Happened::Payout { .. }
                | Happened::Withheld { .. }
                | Happened::Settled { .. }
                | Happened::Refunded { .. }
                | Happened::DebtReturned { .. }),
            ) => {
                let owing = Owing { lock, offramp, leg, settle_tx, failure, is_reopened };
                owing::step(terms, owing, reported).ok_or(illegal)?
            }
            (
                Self::PayoutFailed { lock, offramp, debt_returned: None, .. },
                Happened::FoundPaid { done, .. },
            ) if !terms.pays_on_chain() => {
                paid(terms, lock, offramp, done).after([Effect::Post(ledger::taken_back(terms))])
            }
            (
                Self::PayoutFailed { lock: Some(lock), offramp, failure, debt_returned: None },
                Happened::TimelockNear,
            ) if !terms.pays_on_chain() && lock.filled && lock.holds() => {
                owing::reopen(terms, lock, offramp, failure)
            }
            (Self::Releasing { lock, offramp, payout }, Happened::Settled { tx_hash, .. }) => {
                let (lock, found) = lock.found(terms);
                Step::completed(Some(lock), offramp, payout, Some(tx_hash), Some(ledger::settled(terms)))
                    .after(found)
            }
            (Self::Releasing { lock, offramp, payout }, Happened::Refunded { tx_hash, .. }) => {
                let (lock, gone) = lock.gone(terms, tx_hash);
                let settled = ledger::settled_by_house(terms);
                Step::completed(Some(lock), offramp, payout, None, Some(settled)).after(gone)
            }
            (
                Self::Completed { lock, offramp, payout, settle_tx, finality: None, reversal },
                Happened::Anchored(seen),
            ) => {
                let finality = Some(seen);
                let next = Self::Completed { lock, offramp, payout, settle_tx, finality, reversal };
                Step::quiet(next, Vec::new())
            }
            (
                state @ Self::Completed { .. },
                reported @ (Happened::PaymentReturned { .. } | Happened::ReversalResolved { .. }),
            ) => reversal::step(terms, state, reported).ok_or(illegal)?,
            (
                state,
                reported @ (Happened::Locked { .. }
                | Happened::LockLost { .. }
                | Happened::Filled { .. }
                | Happened::FillLost
                | Happened::Refunded { .. }),
            ) => lock::reported(terms, state, reported).ok_or(illegal)?,
            (state, Happened::ConversionClosed) => position::close(terms, state).ok_or(illegal)?,
            (state, again @ (Happened::Settled { .. } | Happened::Anchored(_))) => {
                lock::moved(state, again).ok_or(illegal)?
            }
            (
                _,
                Happened::Matched
                | Happened::LockDue
                | Happened::CancelRequested
                | Happened::DeadlinePassed { .. }
                | Happened::LockFailed { .. }
                | Happened::Refused { .. }
                | Happened::Offramp { .. }
                | Happened::ConversionGivenUp { .. }
                | Happened::FillFailed { .. }
                | Happened::Payout { .. }
                | Happened::FoundPaid { .. }
                | Happened::Withheld { .. }
                | Happened::TimelockNear
                | Happened::DebtReturned { .. }
                | Happened::PaymentReturned { .. }
                | Happened::ReversalResolved { .. },
            ) => return Err(illegal),
        };
        Ok(position::follow(terms, step))
    }
}

/// A resting order is filled: from here on it is any accepted order. Its acceptance was told when it began to rest.
fn matched(terms: &Terms) -> Step {
    let start_at = terms.lock_at.min(terms.request.deadline);
    let effects =
        vec![Effect::EndRest, Effect::Post(ledger::reserved(terms)), Effect::BringForward(start_at)];
    Step::quiet(State::Accepted, effects)
}

/// A resting order ends: nothing was reserved for it.
fn unmatched(next: State, kind: EventType, at: Timestamp) -> Step {
    Step::tell(next, kind, at, vec![Effect::DropTimers, Effect::EndRest])
}

/// The first leg begins: the lock of a token or its swap, the conversion of money, the payout of money for money.
fn start(terms: &Terms) -> Step {
    if terms.locks() {
        let ask = if terms.swaps() { Effect::SwapOnChain } else { Effect::CreateOnChain };
        return Step::quiet(State::Locking, vec![ask]);
    }
    if terms.converts() {
        let next = State::Converting { lock: None, leg: Leg::default() };
        let effects = vec![Effect::DropTimers, Effect::CallOfframp];
        return Step::tell(next, EventType::OfframpInitiated, WHEN_RECORDED, effects);
    }
    pay(terms, None, None, WHEN_RECORDED).after([Effect::DropTimers])
}

/// Ends before any funds moved.
fn close(terms: &Terms, next: State, kind: EventType, at: Timestamp) -> Step {
    Step::tell(next, kind, at, vec![Effect::DropTimers, Effect::Post(ledger::released(terms))])
}

fn refused(terms: &Terms, (code, message): (String, String), at: Timestamp) -> Step {
    let failure = Failure { stage: Stage::Intent, code, message, retryable: false };
    close(terms, State::Failed { failure }, EventType::IntentFailed, at)
}

fn locked(terms: &Terms, lock: Lock, at: Timestamp) -> Step {
    let next = State::Converting { lock: Some(lock), leg: Leg::default() };
    let effects = vec![Effect::DropTimers, Effect::Post(ledger::locked(terms)), Effect::CallOfframp];
    Step::tell(next, EventType::OfframpInitiated, at, effects)
}

/// Input and output were exchanged in one transaction: all events of the API contract are emitted, in its order and with
/// the same time.
fn swapped(terms: &Terms, tx_hash: String, at: Timestamp) -> Step {
    let lock = Lock::swapped(tx_hash.clone(), at);
    let done = LegDone { provider_reference: tx_hash.clone(), occurred_at: at };
    let converting = State::Converting { lock: Some(lock.clone()), leg: Leg::default() };
    let offramp = Conversion::from(done.clone());
    let converted = State::Committing { lock: lock.clone(), offramp: offramp.clone() };
    let paying =
        State::Paying { lock: Some(lock.clone()), offramp: Some(offramp.clone()), leg: Leg::default() };
    let effects = [ledger::locked(terms), ledger::converted(terms), ledger::paid(terms)].map(Effect::Post);
    Step::completed(Some(lock), Some(offramp), done, Some(tx_hash), Some(ledger::settled(terms)))
        .after(effects)
        .after([Effect::DropTimers])
        .reported_after([
            Emitted::new(EventType::OfframpInitiated, at, &converting),
            Emitted::new(EventType::OfframpCompleted, at, &converted),
            Emitted::new(EventType::PayoutInitiated, at, &paying),
        ])
}

fn converting(terms: &Terms, lock: Option<Lock>, leg: Leg, answer: RailAnswer, at: Timestamp) -> Step {
    match answer {
        RailAnswer::InProgress { provider_reference } => {
            let reported = leg.in_progress;
            let leg = Leg { in_progress: true, provider_reference: Some(provider_reference) };
            Step::progress(State::Converting { lock, leg }, reported, EventType::OfframpInProgress, at)
        }
        RailAnswer::Done(done) => converted(terms, lock, done.into(), at),
        RailAnswer::Failed { code, message, retryable } => {
            let failure = Failure { stage: Stage::Offramp, code, message, retryable };
            conversion_failed(terms, lock, failure, DeskOutcome::NotExecuted, at)
        }
    }
}

/// With a lock, `fill` is requested; without one the payout begins. If the lock was refunded or lost, the payout fails.
fn converted(terms: &Terms, lock: Option<Lock>, offramp: Conversion, at: Timestamp) -> Step {
    let done_at = offramp.done.occurred_at;
    let Some(lock) = lock else {
        let paying = State::Paying { lock: None, offramp: Some(offramp.clone()), leg: Leg::default() };
        let reported = Emitted::new(EventType::OfframpCompleted, done_at, &paying);
        return pay(terms, None, Some(offramp), at).reported_after([reported]);
    };
    if !lock.holds() {
        let why = if lock.refunded { Withheld::FundsGone } else { Withheld::LockLost };
        let failure = why.failure(Stage::Offramp);
        return conversion_failed(terms, Some(lock), failure, DeskOutcome::Executed(offramp), at);
    }
    let next = State::Committing { lock: lock.clone(), offramp: offramp.clone() };
    let reported = Emitted::new(EventType::OfframpCompleted, done_at, &next);
    // A restored database has forgotten its conversion, and may have forgotten its payment: the other chain says.
    if lock.filled {
        return pay(terms, Some(lock), Some(offramp), at).reported_after([reported]);
    }
    if is_too_late_there(terms, &lock, at) {
        return unpaid(terms, lock, offramp, Withheld::TimelockNear.failure(Stage::Payout), at)
            .reported_after([reported]);
    }
    if lock.is_too_late(at) {
        return unpaid(terms, lock, offramp, Withheld::TooLate.failure(Stage::Payout), at)
            .reported_after([reported]);
    }
    Step { next, events: vec![reported], effects: vec![Effect::Fill] }
}

/// Whether a payment on another chain would be requested after its last second. Its contract alone does not refuse it
/// while that chain's clock lags.
fn is_too_late_there(terms: &Terms, lock: &Lock, now: Timestamp) -> bool {
    terms.pays_on_chain() && now >= lock.deadlines.pay_before
}

/// The payout begins. No rail is polled about one on the chain, so a timer settles its lock before the timelock.
fn pay(terms: &Terms, lock: Option<Lock>, offramp: Option<Conversion>, at: Timestamp) -> Step {
    let how = if terms.pays_on_chain() { Effect::TransferOnChain } else { Effect::CallPayout };
    let timer = lock.as_ref().filter(|_| terms.pays_on_chain()).map(|lock| lock.deadlines.settle_at);
    let next = State::Paying { lock, offramp, leg: Leg::default() };
    let effects = [Effect::Post(ledger::converted(terms)), how];
    let effects = effects.into_iter().chain(timer.map(Effect::SettleBy)).collect();
    Step::tell(next, EventType::PayoutInitiated, at, effects)
}

fn conversion_failed(
    terms: &Terms,
    lock: Option<Lock>,
    failure: Failure,
    desk: DeskOutcome,
    at: Timestamp,
) -> Step {
    let effects =
        [Effect::Post(ledger::released(terms))].into_iter().chain(lock::give_back(lock.as_ref())).collect();
    let next = State::ConversionFailed { lock, failure, desk };
    Step::tell(next, EventType::OfframpFailed, at, effects)
}

/// The lock cannot be committed to the payout: it is too late, the lock was cancelled, or a reorganization removed it.
/// `None`: the event is none of these.
fn uncommitted(terms: &Terms, lock: Lock, offramp: Conversion, ended: Happened) -> Option<Step> {
    // A lock that is included again is cancelled, and not filled before.
    let withdrawn = matches!(ended, Happened::LockLost { .. }).then_some(Effect::WithdrawFill);
    let (lock, posted, failure, at) = match ended {
        Happened::FillFailed { code, message, at } => {
            (lock, Vec::new(), Failure { stage: Stage::Payout, code, message, retryable: false }, at)
        }
        Happened::Refunded { tx_hash, at } => {
            let (lock, gone) = lock.gone(terms, tx_hash);
            (lock, Vec::from_iter(gone), Withheld::FundsGone.failure(Stage::Payout), at)
        }
        Happened::LockLost { at } => {
            let posted = vec![Effect::PublishPermit, Effect::Post(ledger::lock_lost(terms))];
            (Lock { lost: true, ..lock }, posted, Withheld::LockLost.failure(Stage::Payout), at)
        }
        _ => return None,
    };
    Some(unpaid(terms, lock, offramp, failure, at).after(withdrawn).after(posted))
}

/// The payout fails before the rail was called. The API contract allows `payout.failed` only after `payout.initiated`, so
/// both are emitted.
fn unpaid(terms: &Terms, lock: Lock, offramp: Conversion, failure: Failure, at: Timestamp) -> Step {
    let begun =
        State::Paying { lock: Some(lock.clone()), offramp: Some(offramp.clone()), leg: Leg::default() };
    let begun = Emitted::new(EventType::PayoutInitiated, at, &begun);
    let effects =
        [Effect::Post(ledger::released(terms))].into_iter().chain(lock::give_back(Some(&lock))).collect();
    let (lock, offramp) = (Some(lock), Some(offramp));
    let next = State::PayoutFailed { lock, offramp, failure, debt_returned: None };
    Step::tell(next, EventType::PayoutFailed, at, effects).reported_after([begun])
}

fn payout_failed(
    terms: &Terms,
    lock: Option<Lock>,
    offramp: Option<Conversion>,
    failure: Failure,
    at: Timestamp,
) -> Step {
    let effects =
        [Effect::Post(ledger::returned(terms))].into_iter().chain(lock::give_back(lock.as_ref())).collect();
    let next = State::PayoutFailed { lock, offramp, failure, debt_returned: None };
    Step::tell(next, EventType::PayoutFailed, at, effects)
}

/// The data of [`State::Paying`].
struct Paying {
    lock: Option<Lock>,
    offramp: Option<Conversion>,
    leg: Leg,
}

fn paying(terms: &Terms, Paying { lock, offramp, leg }: Paying, answer: RailAnswer, at: Timestamp) -> Step {
    match answer {
        RailAnswer::InProgress { provider_reference } => {
            let reported = leg.in_progress;
            let leg = Leg { in_progress: true, provider_reference: Some(provider_reference) };
            Step::progress(State::Paying { lock, offramp, leg }, reported, EventType::PayoutInProgress, at)
        }
        RailAnswer::Done(payout) => paid(terms, lock, offramp, payout),
        RailAnswer::Failed { code, message, retryable } => {
            let failure = Failure { stage: Stage::Payout, code, message, retryable };
            payout_failed(terms, lock, offramp, failure, at)
        }
    }
}

/// The recipient has been paid: locked funds are released next, prefunded ones change owner immediately.
fn paid(terms: &Terms, lock: Option<Lock>, offramp: Option<Conversion>, payout: LegDone) -> Step {
    let post = Effect::Post(ledger::paid(terms));
    match lock {
        Some(lock) if !lock.refunded => {
            Step::quiet(State::Releasing { lock, offramp, payout }, vec![post, Effect::Settle])
        }
        Some(lock) => {
            let settled = ledger::settled_by_house(terms);
            Step::completed(Some(lock), offramp, payout, None, Some(settled)).after([post])
        }
        None => Step::completed(None, offramp, payout, None, Some(ledger::settled(terms))).after([post]),
    }
}

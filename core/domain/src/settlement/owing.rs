//! A payout that has no final answer when its lock's timelock is near, or that had failed and was made after all, which
//! operators have not decided on.
//!
//! The funds are released to the solver, because the rail may have paid. From then on the ledger holds the output as a
//! debt to the user. It ends when the rail confirms the payment, or, once the payout has failed, when operators
//! have found it paid or have returned the input.

use super::lock::give_back;
use super::{Conversion, Effect, Failure, Happened, Leg, LegDone, Lock, RailAnswer, State, Step};
use crate::event::{EventType, Stage};
use crate::ledger::{self, DebtTo};
use crate::terms::Terms;
use crate::time::Timestamp;

/// The data of [`State::Owing`].
pub(super) struct Owing {
    pub(super) lock: Lock,
    pub(super) offramp: Option<Conversion>,
    pub(super) leg: Leg,
    pub(super) settle_tx: Option<String>,
    pub(super) failure: Option<Failure>,
    pub(super) is_reopened: bool,
}

impl From<Owing> for State {
    fn from(Owing { lock, offramp, leg, settle_tx, failure, is_reopened }: Owing) -> Self {
        Self::Owing { lock, offramp, leg, settle_tx, failure, is_reopened }
    }
}

pub(super) fn begin(terms: &Terms, lock: Lock, offramp: Option<Conversion>, leg: Leg) -> Step {
    let next = Owing { lock, offramp, leg, settle_tx: None, failure: None, is_reopened: false };
    Step::quiet(next.into(), vec![Effect::Post(ledger::owed(terms)), Effect::Settle])
}

/// The funds were released before the payout's answer is known here.
pub(super) fn released(
    terms: &Terms,
    lock: Lock,
    offramp: Option<Conversion>,
    leg: Leg,
    settle_tx: String,
) -> Step {
    let (lock, found) = lock.found(terms);
    let settle_tx = Some(settle_tx);
    let next = Owing { lock, offramp, leg, settle_tx, failure: None, is_reopened: false };
    let postings = [ledger::owed(terms), ledger::settled(terms)].map(Effect::Post);
    Step::quiet(next.into(), postings.to_vec()).after(found)
}

/// The bank has made a payment that counts as failed, and operators have not decided on it: from the timelock on anyone
/// may return the input beside it. The funds are released; the output is owed until operators find it paid, or return
/// the input.
pub(super) fn reopen(terms: &Terms, lock: Lock, offramp: Option<Conversion>, failure: Failure) -> Step {
    let next = Owing {
        lock,
        offramp,
        leg: Leg::default(),
        settle_tx: None,
        failure: Some(failure),
        is_reopened: true,
    };
    let postings = [ledger::taken_back(terms), ledger::owed(terms)].map(Effect::Post);
    Step::quiet(next.into(), postings.into_iter().chain([Effect::Settle]).collect())
}

impl Owing {
    const fn debt_to(&self) -> DebtTo {
        if self.is_reopened { DebtTo::ProvidersOwed } else { DebtTo::Providers }
    }
}

/// `None`: the event does not apply.
pub(super) fn step(terms: &Terms, owing: Owing, happened: Happened) -> Option<Step> {
    match happened {
        Happened::Payout { answer, at } if owing.failure.is_none() => {
            Some(answered(terms, owing, answer, at))
        }
        // The other chain has the payment, or operators have found it at the bank or made it another way, and it had
        // failed: what is paid is not owed.
        Happened::Payout { answer: answer @ RailAnswer::Done(_), at } => {
            Some(answered(terms, owing, answer, at))
        }
        Happened::Withheld { why, at } if owing.failure.is_none() => {
            Some(unpaid(terms, owing, why.failure(Stage::Payout), at))
        }
        Happened::Settled { tx_hash, .. } if owing.settle_tx.is_none() && !owing.lock.refunded => {
            let (lock, found) = owing.lock.clone().found(terms);
            let next = Owing { lock, settle_tx: Some(tx_hash), ..owing };
            Some(Step::quiet(next.into(), vec![Effect::Post(ledger::settled(terms))]).after(found))
        }
        again @ Happened::Settled { .. } => super::lock::moved(owing.into(), again),
        Happened::Refunded { tx_hash, at } if owing.settle_tx.is_none() && !owing.lock.refunded => {
            let (lock, gone) = owing.lock.clone().gone(terms, tx_hash);
            let Owing { failure, .. } = &owing;
            let step = match failure.clone() {
                Some(failure) => unpaid(terms, Owing { lock, ..owing }, failure, at),
                None => Step::quiet(Owing { lock, ..owing }.into(), Vec::new()),
            };
            Some(step.after(gone))
        }
        Happened::DebtReturned { done, at } => returned(terms, owing, done, at),
        _ => None,
    }
}

fn answered(terms: &Terms, owing: Owing, answer: RailAnswer, at: Timestamp) -> Step {
    match answer {
        RailAnswer::InProgress { provider_reference } => {
            let reported = owing.leg.in_progress;
            let leg = Leg { in_progress: true, provider_reference: Some(provider_reference) };
            Step::progress(Owing { leg, ..owing }.into(), reported, EventType::PayoutInProgress, at)
        }
        RailAnswer::Done(payout) => {
            let paid = Effect::Post(ledger::debt_paid(terms));
            let Owing { lock, offramp, settle_tx, .. } = owing;
            match settle_tx {
                Some(tx) => Step::completed(Some(lock), offramp, payout, Some(tx), None).after([paid]),
                None if lock.refunded => {
                    let settled = ledger::settled_by_house(terms);
                    Step::completed(Some(lock), offramp, payout, None, Some(settled)).after([paid])
                }
                // `settle` was requested when the debt began.
                None => Step::quiet(State::Releasing { lock, offramp, payout }, vec![paid]),
            }
        }
        RailAnswer::Failed { code, message, retryable } => {
            let failure = Failure { stage: Stage::Payout, code, message, retryable };
            unpaid(terms, owing, failure, at)
        }
    }
}

/// The payment was not made. If the escrow refunded the maker, the order ends. A lock without a commitment is cancelled
/// now, and the order ends when that is reported. Otherwise the funds are released to the solver, and operators have to
/// return the input.
fn unpaid(terms: &Terms, owing: Owing, failure: Failure, at: Timestamp) -> Step {
    let released = Effect::Post(ledger::debt_released(terms, owing.debt_to()));
    if !owing.lock.refunded {
        let give_back = give_back(Some(&owing.lock)).filter(|_| owing.settle_tx.is_none());
        let next = Owing { failure: Some(failure), ..owing };
        return Step::quiet(next.into(), give_back.into_iter().collect());
    }
    let Owing { lock, offramp, is_reopened, .. } = owing;
    let next = State::PayoutFailed { lock: Some(lock), offramp, failure, debt_returned: None };
    ended(next, is_reopened, at, released)
}

/// The failure of an order that is reopened was reported when it failed first.
fn ended(next: State, is_reopened: bool, at: Timestamp, posted: Effect) -> Step {
    if is_reopened {
        return Step::quiet(next, vec![posted]);
    }
    Step::tell(next, EventType::PayoutFailed, at, vec![posted])
}

/// Operators returned the input of an order whose funds were released and whose payout failed.
fn returned(terms: &Terms, owing: Owing, done: LegDone, at: Timestamp) -> Option<Step> {
    let posted = Effect::Post(ledger::debt_returned(terms, owing.debt_to()));
    let Owing { lock, offramp, settle_tx: Some(_), failure: Some(failure), is_reopened, .. } = owing else {
        return None;
    };
    let next = State::PayoutFailed { lock: Some(lock), offramp, failure, debt_returned: Some(done) };
    Some(ended(next, is_reopened, at, posted))
}

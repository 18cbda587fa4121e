//! How a leg is carried out at most once by the worker that has claimed it: what a claim permits, and what follows from
//! a rail's answer or silence.
//!
//! ```text
//!            never called ──────────────────────────────> call ──answer──> taken in
//! claimed ─┤                                               ^  ├─down────> again later, as never called
//!            called before, ─> query ─known─> applied      │  └─silence─> again later, as called (unconfirmed)
//!            or too late       ├─never seen, long ago ─────┘, or withheld when it is too late
//!                              └─never seen (too early or after an answer), down, silence ─> again later, as called
//! ```
//!
//! Invariants: a leg is called only when it is proven that no earlier call can have reached the rail; a leg that has
//! provably never been called does not begin when its funds are gone or too little time is left; a leg that may have
//! been called is neither repeated nor abandoned. That a leg was never called is its rail's word, not the database's:
//! one that was restored to an earlier moment has forgotten later calls. A conversion that operators gave up is asked
//! about until the desk has said what became of it. A payout for locked tokens is not called before
//! the chain is committed to it; one that may have been called and has no final answer near the timelock is settled.
//!
//! Kept by `core/domain/src/settlement/model.rs::every_interleaving_ends_once_pays_one_side_and_balances_the_books`,
//! `core/tests/it/settling.rs::an_interrupted_call_is_queried_before_it_is_repeated` and
//! `core/tests/it/days.rs::a_conversion_is_retried_for_days_and_its_lock_returned_in_time`.

use super::{DeskOutcome, Happened, Lock, RailAnswer, State, Withheld};
use crate::canonical::sha256;
use crate::ids::Reference;
use crate::names::names;
use crate::time::Timestamp;

/// How long a call may still take effect, in seconds: longer than a rail may take to answer it.
pub const IN_FLIGHT_SECS: i32 = 12;

/// Why a conversion is not failed.
pub const DESK_HAS_IT: &str =
    "the desk has confirmed that it has the order and has not rejected it: ask, or record what it has done";

names! {
    /// The two legs that a rail carries out.
    #[derive(PartialOrd, Ord)]
    pub enum LegKind {
        Offramp = "offramp",
        Payout = "payout",
    }
}

impl LegKind {
    pub fn answered(self, answer: RailAnswer, at: Timestamp) -> Happened {
        match self {
            Self::Offramp => Happened::Offramp { answer, at },
            Self::Payout => Happened::Payout { answer, at },
        }
    }

    /// The leg's reference at its rail, and the payout's on the chain: the same at every attempt.
    pub fn reference(self, execution: &Reference) -> [u8; 32] {
        sha256(&format!("{execution}:{}", self.as_str()))
    }
}

/// The provider's reference of a conversion from the inventory, by the leg's own in hex digits.
pub fn inventory_reference(leg: &str) -> String {
    format!("INV-{}", leg.get(..16).unwrap_or(leg))
}

/// The record of earlier calls when a leg is claimed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallRecord {
    /// An earlier call may have reached the rail.
    pub called_before: bool,
    /// That call is so recent that it may still be in flight.
    pub in_flight: bool,
}

/// A rail's answer to a call or a query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RailResponse {
    Answer(RailAnswer),
    /// Answer to a query: the rail knows no such call.
    NeverSeen,
    /// The rail was not reached, or refused before it did anything.
    Down,
    /// No answer in time.
    Silence,
}

/// The first action for a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum First {
    /// The settlement does not wait for the leg any more.
    Nothing,
    Ask,
    Call,
    /// Claim the leg again later, as never called.
    Wait,
}

/// Whether a leg that was provably never called may begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Begins {
    Now,
    Later,
    Never(Withheld),
}

/// The action after a query or a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Then {
    Take(RailAnswer),
    /// After a query only: the call never arrived and cannot arrive any more.
    Call,
    Withhold(Withheld),
    /// There is no final answer, and the timelock is near.
    Settle,
    /// Claim it again later. `called` says whether a call may have reached the rail.
    Later {
        called: bool,
    },
}

/// What the timer of a payout on another chain does, or that of a failed payment that the bank has made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Timer {
    /// There is no final answer, and the timelock is near.
    Settle,
    Later(Timestamp),
    Nothing,
}

impl State {
    /// Whether the settlement waits for a leg's answer.
    pub const fn awaits(&self, leg: LegKind) -> bool {
        match leg {
            LegKind::Offramp => {
                matches!(
                    self,
                    Self::Converting { .. } | Self::ConversionFailed { desk: DeskOutcome::Asked(_), .. }
                )
            }
            LegKind::Payout => matches!(self, Self::Paying { .. } | Self::Owing { failure: None, .. }),
        }
    }

    /// Whether the output of a failed payout may be paid another way, or its input be returned: the funds were released.
    /// Until then they may still go back to the user, at the timelock at the latest.
    pub const fn is_released_debt(&self) -> bool {
        matches!(self, Self::Owing { settle_tx: Some(_), failure: Some(_), .. })
    }

    /// Whether operators' finding about a leg changes the settlement: one that it waits for, or the payment of a debt
    /// whose payout has failed.
    pub const fn takes(&self, leg: LegKind, finding: &RailAnswer) -> bool {
        let pays_debt = matches!(
            (self, leg, finding),
            (Self::Owing { failure: Some(_), .. }, LegKind::Payout, RailAnswer::Done(_))
        );
        pays_debt || self.awaits(leg)
    }

    /// The rail's reference for the leg in progress, from its last answer.
    pub fn provider_reference(&self) -> Option<&str> {
        self.confirmed(LegKind::Offramp).or_else(|| self.confirmed(LegKind::Payout))
    }

    /// Whether the leg in progress may begin now.
    fn begins(&self, now: Timestamp) -> Begins {
        let gone = |refunded| if refunded { Withheld::FundsGone } else { Withheld::LockLost };
        match self {
            Self::Converting { lock: Some(lock), .. } | Self::Paying { lock: Some(lock), .. }
                if !lock.holds() =>
            {
                Begins::Never(gone(lock.refunded))
            }
            Self::ConversionFailed { desk: DeskOutcome::Asked(_), .. } => Begins::Never(Withheld::GivenUp),
            // A lock is committed after the conversion only: a restored database has forgotten it, the rail has not.
            Self::Converting { lock: Some(lock), .. } if lock.is_too_late(now) && !lock.filled => {
                Begins::Never(Withheld::TooLate)
            }
            Self::Paying { lock: Some(lock), .. } if now >= lock.deadlines.pay_before => {
                Begins::Never(Withheld::TimelockNear)
            }
            Self::Paying { lock: Some(lock), .. } if !lock.filled => Begins::Later,
            Self::Owing { lock, .. } if lock.refunded => Begins::Never(Withheld::FundsGone),
            // The commitment was reverted, and is too late by now: these funds are never released to the service.
            Self::Owing { lock, settle_tx: None, .. } if lock.holds() && !lock.filled => {
                Begins::Never(Withheld::TimelockNear)
            }
            // A debt may be paid once the funds are released to the service.
            Self::Owing { settle_tx: None, .. } => Begins::Later,
            Self::Owing { .. }
            | Self::Converting { .. }
            | Self::Paying { .. }
            | Self::Resting
            | Self::Accepted
            | Self::Locking
            | Self::Committing { .. }
            | Self::Releasing { .. }
            | Self::Completed { .. }
            | Self::ConversionFailed { .. }
            | Self::PayoutFailed { .. }
            | Self::Cancelled
            | Self::Expired
            | Self::Failed { .. } => Begins::Now,
        }
    }

    /// Whether a payout without a final answer must be settled now.
    fn must_settle(&self, now: Timestamp) -> bool {
        matches!(self, Self::Paying { lock: Some(lock), .. } if !lock.refunded && now >= lock.deadlines.settle_at)
    }

    /// When a payout that is still without a final answer must be settled, if that is yet to come.
    pub fn settles_at(&self, now: Timestamp) -> Option<Timestamp> {
        let Self::Paying { lock: Some(lock), .. } = self else { return None };
        Some(lock.deadlines.settle_at).filter(|settle_at| !lock.refunded && *settle_at > now)
    }

    /// What is due when the timer of a payout on another chain rings, or that of a payment that the bank has made after
    /// its payout had failed (`is_booked`).
    pub fn timer(&self, now: Timestamp, is_booked: bool) -> Timer {
        let until = |lock: &Lock| {
            if now >= lock.deadlines.settle_at {
                Timer::Settle
            } else {
                // The lock was made again, with other deadlines.
                Timer::Later(lock.deadlines.settle_at)
            }
        };
        match self {
            Self::Paying { lock: Some(lock), .. } if !lock.refunded => until(lock),
            // From the timelock on the funds can only go back.
            Self::PayoutFailed { lock: Some(lock), debt_returned: None, .. }
                if is_booked && lock.filled && lock.holds() && now < lock.timelock_expires_at =>
            {
                until(lock)
            }
            Self::Paying { .. }
            | Self::Resting
            | Self::Accepted
            | Self::Locking
            | Self::Converting { .. }
            | Self::Committing { .. }
            | Self::Owing { .. }
            | Self::Releasing { .. }
            | Self::Completed { .. }
            | Self::ConversionFailed { .. }
            | Self::PayoutFailed { .. }
            | Self::Cancelled
            | Self::Expired
            | Self::Failed { .. } => Timer::Nothing,
        }
    }

    /// What operators' finding about a leg is to the settlement. A conversion that they fail is asked about all the same:
    /// a call may have reached the desk.
    pub fn decided(&self, leg: LegKind, finding: RailAnswer, at: Timestamp) -> Happened {
        match (self, leg, finding) {
            (Self::Converting { .. }, LegKind::Offramp, RailAnswer::Failed { code, message, .. }) => {
                Happened::ConversionGivenUp { code, message, at }
            }
            (_, leg, answer) => leg.answered(answer, at),
        }
    }

    /// Why operators may not fail the conversion: it is the desk's to say.
    pub fn against_failed_conversion(&self, finding: &RailAnswer) -> Option<&'static str> {
        let is_confirmed = self.confirmed(LegKind::Offramp).is_some();
        (is_confirmed && matches!(finding, RailAnswer::Failed { .. })).then_some(DESK_HAS_IT)
    }

    /// The first action for a claimed leg.
    pub fn first(&self, leg: LegKind, claim: CallRecord, now: Timestamp) -> First {
        if !self.awaits(leg) {
            return First::Nothing;
        }
        if claim.called_before {
            return First::Ask;
        }
        match self.begins(now) {
            Begins::Now => First::Call,
            Begins::Later => First::Wait,
            // A restored database has forgotten later calls: a leg fails by the rail's word only.
            Begins::Never(_) => First::Ask,
        }
    }

    /// The action after the rail's answer to a query about an earlier call, known or not.
    pub fn requested(&self, claim: CallRecord, response: RailResponse, now: Timestamp) -> Then {
        match response {
            RailResponse::Answer(answer @ (RailAnswer::Done(_) | RailAnswer::Failed { .. })) => {
                Then::Take(answer)
            }
            // A rail that answered for the call before, and does not know it now, gives no proof.
            RailResponse::NeverSeen if !claim.in_flight && self.provider_reference().is_none() => {
                match self.begins(now) {
                    Begins::Now => Then::Call,
                    Begins::Later => Then::Later { called: false },
                    Begins::Never(why) => Then::Withhold(why),
                }
            }
            _ if self.must_settle(now) => Then::Settle,
            RailResponse::Answer(answer @ RailAnswer::InProgress { .. }) => Then::Take(answer),
            RailResponse::NeverSeen | RailResponse::Down | RailResponse::Silence => {
                Then::Later { called: true }
            }
        }
    }

    /// The action after the rail's answer to a call. `Down` proves that this call did nothing, and the rail was queried
    /// for the one before.
    pub fn called(response: RailResponse) -> Then {
        match response {
            RailResponse::Answer(answer) => Then::Take(answer),
            RailResponse::Down => Then::Later { called: false },
            RailResponse::NeverSeen | RailResponse::Silence => Then::Later { called: true },
        }
    }
}

/// The pause before a leg is claimed again, in milliseconds: doubled at each attempt from `first` up to `most`, and
/// shortened by up to a half at random, so that legs that failed together are not retried together. `chance` is any
/// number.
pub fn back_off_ms(attempts: u32, first: u64, most: u64, chance: u64) -> u64 {
    let doublings = attempts.saturating_sub(1).min(16);
    let whole = first.saturating_mul(1 << doublings).min(most).max(1);
    let half = whole / 2;
    whole - chance % half.saturating_add(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn back_off_doubles_up_to_the_longest_and_chance_halves_it_at_most() {
        for (attempts, whole) in [(0, 250), (1, 250), (2, 500), (5, 4000), (9, 60_000), (u32::MAX, 60_000)] {
            let waits: Vec<u64> = (0..1000).map(|n| back_off_ms(attempts, 250, 60_000, n * 7919)).collect();
            assert!(waits.iter().all(|wait| (whole / 2..=whole).contains(wait)), "{attempts}");
            assert!(waits.iter().any(|wait| *wait != waits[0]), "{attempts}: everybody waits alike");
        }
        assert_eq!(back_off_ms(1, 0, 0, 5), 1);
    }
}

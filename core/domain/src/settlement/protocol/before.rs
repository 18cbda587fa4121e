//! The former protocol: the bank is called once the funds are locked, and `fill` follows its payment.

use super::super::leg::{CallRecord, First, LegKind, RailResponse, Then, Timer};
use super::super::{Happened, RailAnswer, Withheld};
use super::service::Service;
use super::service::{Clock, Command};

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Before {
    state: State,
    refunded: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum State {
    Locking,
    Converting,
    Paying,
    Releasing,
    Completed,
    ConversionFailed,
    PayoutFailed,
    Failed,
}

impl Before {
    fn begins(&self, clock: Clock) -> Option<Withheld> {
        if self.refunded {
            return Some(Withheld::FundsGone);
        }
        (clock >= Clock::TooLateToBegin).then_some(Withheld::TooLate)
    }
}

impl Service for Before {
    const NEVER_FILLS_LATE: bool = true;

    fn begin() -> Self {
        Self { state: State::Locking, refunded: false }
    }

    fn step(&self, happened: Happened) -> Option<(Self, Vec<Command>)> {
        use RailAnswer::{Done, Failed};
        let (next, commands) = match (self.state, happened) {
            (State::Locking, Happened::Locked { .. }) => (State::Converting, vec![]),
            (State::Locking, Happened::LockFailed { .. }) => (State::Failed, vec![]),
            (State::Converting, Happened::Offramp { answer: Done(_), .. }) if !self.refunded => {
                (State::Paying, vec![])
            }
            (State::Converting, Happened::Offramp { answer: Done(_) | Failed { .. }, .. })
            | (State::Converting, Happened::Withheld { .. }) => (State::ConversionFailed, vec![]),
            (State::Paying, Happened::Payout { answer: Done(_), .. }) if self.refunded => {
                (State::Completed, vec![])
            }
            (State::Paying, Happened::Payout { answer: Done(_), .. }) => {
                (State::Releasing, vec![Command::Fill, Command::Settle])
            }
            (State::Paying, Happened::Payout { answer: Failed { .. }, .. } | Happened::Withheld { .. }) => {
                (State::PayoutFailed, vec![])
            }
            (State::Releasing, Happened::Settled { .. } | Happened::Refunded { .. }) => {
                (State::Completed, vec![])
            }
            (state, Happened::Refunded { .. }) if !self.refunded => {
                return Some((Self { state, refunded: true }, vec![]));
            }
            _ => return None,
        };
        Some((Self { state: next, refunded: self.refunded }, commands))
    }

    fn first(&self, leg: LegKind, claim: CallRecord, clock: Clock) -> First {
        let awaited = if leg == LegKind::Offramp { State::Converting } else { State::Paying };
        if self.state != awaited {
            return First::Nothing;
        }
        if claim.called_before {
            return First::Ask;
        }
        self.begins(clock).map_or(First::Call, |_| First::Ask)
    }

    fn requested(&self, claim: CallRecord, response: RailResponse, clock: Clock) -> Then {
        match response {
            RailResponse::NeverSeen if !claim.in_flight => {
                self.begins(clock).map_or(Then::Call, Then::Withhold)
            }
            RailResponse::Answer(answer) => Then::Take(answer),
            RailResponse::NeverSeen | RailResponse::Down | RailResponse::Silence => {
                Then::Later { called: true }
            }
        }
    }

    fn timer(&self, _clock: Clock, _is_booked: bool) -> Timer {
        Timer::Nothing
    }

    fn taken_for_paid(&self) -> Option<bool> {
        match self.state {
            State::Releasing | State::Completed => Some(true),
            State::PayoutFailed => Some(false),
            State::Locking | State::Converting | State::Paying | State::ConversionFailed | State::Failed => {
                None
            }
        }
    }

    fn awaits_first_answer(&self) -> bool {
        self.state == State::Paying
    }

    fn is_released_debt(&self) -> bool {
        false
    }

    fn name(&self) -> &'static str {
        match self.state {
            State::Locking => "locking",
            State::Converting => "converting",
            State::Paying => "paying",
            State::Releasing => "releasing",
            State::Completed => "completed",
            State::ConversionFailed => "conversion_failed",
            State::PayoutFailed => "payout_failed",
            State::Failed => "failed",
        }
    }
}

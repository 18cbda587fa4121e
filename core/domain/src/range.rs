//! A range order: the input has a cap, and the output falls in a straight line from a target to a limit between the
//! order's acceptance and its deadline.
//!
//! ```text
//! output
//! target ┬─╲
//!        │   ╲      the market gives M for the cap:
//!      M ├─────╲──  below the limit: rejected; at or above the target: filled now;
//!        │      │╲  in between: the order rests, and is filled when the line has fallen to M
//!  limit ┴──────┴─╲─> time
//!    accepted  fill deadline
//! ```
//!
//! Invariants: what a fill delivers is the line's value at that moment, rounded down, and is never below the limit; what it
//! takes is never above the cap; a resting order has nothing reserved or locked. [`index`] finds those of many resting
//! orders that a price has reached, without looking at the others.

pub mod index;

use crate::asset::Asset;
use crate::intent::{Bounds, IntentRequest};
use crate::liquidity::route::{Fill, Want};
use crate::liquidity::{Ask, Market};
use crate::money::Minor;
use crate::time::Timestamp;

/// The bounds of a range order over its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    pub max_input: Minor,
    pub target_output: Minor,
    pub min_output: Minor,
    pub received_at: Timestamp,
    pub deadline: Timestamp,
}

/// How a range order meets the market at one moment.
#[derive(Debug, Clone, PartialEq)]
pub enum Meeting {
    /// It is filled for what the line says now.
    Now(Fill),
    /// At these prices it would be filled then, as this fill; at its deadline at the latest, when it expires.
    Later { at: Timestamp, fill: Fill },
    /// The cap does not buy the limit.
    Never,
    /// Nobody can deliver the limit, at any price.
    NoLiquidity,
}

impl Range {
    /// The range of an order. `None`: its bounds are fixed.
    pub const fn of(request: &IntentRequest) -> Option<Self> {
        match request.bounds {
            Bounds::Range { max_input, target_output, min_output, received_at } => {
                Some(Self { max_input, target_output, min_output, received_at, deadline: request.deadline })
            }
            Bounds::ExactInput { .. } | Bounds::ExactOutput { .. } => None,
        }
    }

    /// How far the output falls in all.
    pub fn way(&self) -> Minor {
        self.target_output.checked_sub(self.min_output).unwrap_or_default()
    }

    /// From the acceptance to the deadline, in milliseconds.
    pub fn lifetime(&self) -> u128 {
        millis(self.received_at, self.deadline)
    }

    /// The line's value at a moment, rounded down.
    pub fn output_at(&self, now: Timestamp) -> Minor {
        let lifetime = self.lifetime();
        let left = millis(now, self.deadline).min(lifetime);
        let above = self.way().share_floor(left, lifetime).unwrap_or_default();
        self.min_output.checked_add(above).unwrap_or(self.target_output)
    }

    /// The first moment at which the line's value is no more than `output`. `None`: it never is.
    pub fn falls_to(&self, output: Minor) -> Option<Timestamp> {
        if output >= self.target_output {
            return Some(self.received_at);
        }
        let above = output.checked_sub(self.min_output)?;
        // floor(way × left ÷ lifetime) <= above, for the largest `left`.
        let next = Minor::new(self.lifetime()).share_ceil(above.get().saturating_add(1), self.way().get())?;
        let left = i64::try_from(next.get().saturating_sub(1)).ok()?;
        Some(self.deadline.plus_millis(left.saturating_neg()).max(self.received_at))
    }

    pub fn meet(&self, market: &Market<'_>, ask: &Ask<'_>) -> Meeting {
        let best = |output| market.best(ask, Want::Output(output)).map(|(_, fill)| fill);
        let is_within = |fill: &Fill| fill.priced.input <= self.max_input;
        let affordable = |at| best(self.output_at(at)).filter(is_within);
        if let Some(fill) = affordable(market.now) {
            return Meeting::Now(fill);
        }
        let Some(least) = best(self.min_output) else { return Meeting::NoLiquidity };
        if !is_within(&least) {
            return Meeting::Never;
        }
        // What the cap buys says when, unless it buys more than there is.
        let bought = market.best(ask, Want::Input(self.max_input)).map(|(_, fill)| fill.priced.output);
        let first = bought.and_then(|output| self.falls_to(output)).map(|at| at.max(market.now));
        if let Some((at, fill)) = first.and_then(|at| Some((at, affordable(at)?))) {
            return Meeting::Later { at, fill };
        }
        let (mut too_early, mut at) = (market.now.millis(), self.deadline.millis().saturating_sub(1));
        let Some(mut fill) = affordable(Timestamp::from_millis(at)) else {
            return Meeting::Later { at: self.deadline, fill: least };
        };
        while at.saturating_sub(too_early) > 1 {
            let middle = too_early.midpoint(at);
            match affordable(Timestamp::from_millis(middle)) {
                Some(earlier) => (at, fill) = (middle, earlier),
                None => too_early = middle,
            }
        }
        Meeting::Later { at: Timestamp::from_millis(at), fill }
    }
}

/// Zero when `from` is not before `to`.
fn millis(from: Timestamp, to: Timestamp) -> u128 {
    u128::try_from(to.millis().saturating_sub(from.millis())).unwrap_or(0)
}

/// Both assets of a range order, and who asks.
pub fn ask<'a>(request: &IntentRequest, input: &'a Asset, output: &'a Asset) -> Ask<'a> {
    Ask { input, output, actor: request.actor_type, firm: false }
}

#[cfg(test)]
mod tests;

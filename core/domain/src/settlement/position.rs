//! The position that an executed conversion leaves while its order has ended without using it.
//!
//! ```text
//! none ──ends unpaid──> kept ──closed──> taken over
//!      <──found paid──       ──┐              │ found paid
//!      <────────closed──────── short <────────┘
//! ```
//!
//! `kept`: the desk has delivered the output and is owed the input, and the order did not use it. `short`: the house took
//! the position over, and the order was found paid afterwards. Both are open until operators record the trade that ends them.
//! A conversion from the inventory leaves none: no outside party took part.

use serde::{Deserialize, Serialize};

use super::leg::{LegKind, inventory_reference};
use super::{Effect, Leg, LegDone, Remedy, State, Step};
use crate::ledger::{self, Posting};
use crate::terms::Terms;

/// A conversion that was executed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conversion {
    #[serde(flatten)]
    pub done: LegDone,
    #[serde(default, skip_serializing_if = "Position::is_none")]
    pub position: Position,
}

/// What the desk has done for an order whose conversion counts as failed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeskOutcome {
    #[default]
    NotExecuted,
    /// The desk converted although the lock was gone, or after operators had given the conversion up.
    Executed(Conversion),
    /// Operators gave the conversion up: the desk is asked until it has said what became of it.
    Asked(Leg),
}

impl DeskOutcome {
    pub(super) const fn has_not_executed(&self) -> bool {
        matches!(self, Self::NotExecuted)
    }
}

/// What the ledger's account `position` has of a conversion.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Position {
    #[default]
    None,
    /// The output that the desk delivered, and negative the input that it is owed.
    Kept,
    /// Zero: the house has taken it over.
    TakenOver,
    /// The reverse of `Kept`: the order has used what the house had taken over.
    Short,
}

impl Position {
    const fn is_none(&self) -> bool {
        matches!(self, Self::None)
    }
}

impl From<LegDone> for Conversion {
    fn from(done: LegDone) -> Self {
        Self { done, position: Position::None }
    }
}

impl Conversion {
    /// Whether an outside party has taken part.
    fn is_outside(&self, terms: &Terms) -> bool {
        let leg = hex::encode(LegKind::Offramp.reference(&terms.reference));
        !terms.swaps() && self.done.provider_reference != inventory_reference(&leg)
    }
}

/// The conversion in a state, borrowed as the state is.
macro_rules! conversion_of {
    ($state:expr, $borrow:ident) => {
        match $state {
            Self::Committing { offramp, .. } => Some(offramp),
            Self::Paying { offramp, .. }
            | Self::Owing { offramp, .. }
            | Self::Releasing { offramp, .. }
            | Self::Completed { offramp, .. }
            | Self::PayoutFailed { offramp, .. } => offramp.$borrow(),
            Self::ConversionFailed { desk: DeskOutcome::Executed(offramp), .. } => Some(offramp),
            Self::Resting
            | Self::Accepted
            | Self::Locking
            | Self::Converting { .. }
            | Self::ConversionFailed { .. }
            | Self::Cancelled
            | Self::Expired
            | Self::Failed { .. } => None,
        }
    };
}

impl State {
    /// The conversion, once it is known to be executed.
    pub const fn conversion(&self) -> Option<&Conversion> {
        conversion_of!(self, as_ref)
    }

    const fn conversion_mut(&mut self) -> Option<&mut Conversion> {
        conversion_of!(self, as_mut)
    }

    /// Whether the order has ended without its conversion.
    fn leaves_conversion(&self) -> bool {
        match self {
            Self::ConversionFailed { .. } | Self::PayoutFailed { .. } => true,
            Self::Completed { reversal, .. } => reversal
                .as_ref()
                .and_then(|reversal| reversal.resolved.as_ref())
                .is_some_and(|resolved| resolved.remedy == Remedy::GivenBack),
            Self::Resting
            | Self::Accepted
            | Self::Locking
            | Self::Converting { .. }
            | Self::Committing { .. }
            | Self::Paying { .. }
            | Self::Owing { .. }
            | Self::Releasing { .. }
            | Self::Cancelled
            | Self::Expired
            | Self::Failed { .. } => false,
        }
    }

    /// The position of a settlement that has ended, while operators have not recorded its end.
    pub fn open_position(&self) -> Option<Position> {
        let position = self.conversion()?.position;
        (self.is_terminal() && matches!(position, Position::Kept | Position::Short)).then_some(position)
    }
}

/// Posts what the step changes about the position: whatever leads to an end without the conversion, or away from it.
pub(super) fn follow(terms: &Terms, mut step: Step) -> Step {
    let is_left = step.next.leaves_conversion();
    let Some(conversion) = step.next.conversion_mut().filter(|one| one.is_outside(terms)) else {
        return step;
    };
    let (position, posting): (_, fn(&Terms) -> Posting) = match (conversion.position, is_left) {
        (Position::None, true) => (Position::Kept, ledger::conversion_kept),
        (Position::Short, true) => (Position::TakenOver, ledger::conversion_kept),
        (Position::Kept, false) => (Position::None, ledger::conversion_used),
        (Position::TakenOver, false) => (Position::Short, ledger::conversion_used),
        (Position::None | Position::Short, false) | (Position::Kept | Position::TakenOver, true) => {
            return step;
        }
    };
    conversion.position = position;
    step.effects.push(Effect::Post(posting(terms)));
    step
}

/// Operators have recorded the trade that ends the position. `None`: none is open.
pub(super) fn close(terms: &Terms, mut state: State) -> Option<Step> {
    let (position, posting) = match state.open_position()? {
        Position::Kept => (Position::TakenOver, ledger::position_closed(terms)),
        Position::Short => (Position::None, ledger::short_position_closed(terms)),
        Position::None | Position::TakenOver => return None,
    };
    state.conversion_mut()?.position = position;
    Some(Step::quiet(state, vec![Effect::Post(posting)]))
}

//! Pauses set by operators, and what they stop.
//!
//! | scope | target | stops |
//! |---|---|---|
//! | everything | | new orders, and legs that were never called |
//! | partner | its id | its new orders |
//! | pair | `INPUT/OUTPUT` | new orders of the pair |
//! | provider | its id | new orders that it would deliver |
//! | chain | its name | new orders with a token of the chain |
//! | rail | `offramp` or `payout` | legs that were never called |
//!
//! A leg for which a rail was called is followed to its end, and accepted orders keep their reservations. A paused
//! payout stops conversions as well: an order is not committed on the chain to a payout that may not begin.

use crate::asset::Asset;
use crate::liquidity::Snapshot;
use crate::plan::Plan;
use crate::settlement::leg::LegKind;

/// The subject of a pause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scope {
    Everything,
    Partner,
    Pair,
    Provider,
    Rail,
    Chain,
}

impl Scope {
    pub const ALL: [Self; 6] =
        [Self::Everything, Self::Partner, Self::Pair, Self::Provider, Self::Rail, Self::Chain];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Everything => "everything",
            Self::Partner => "partner",
            Self::Pair => "pair",
            Self::Provider => "provider",
            Self::Rail => "rail",
            Self::Chain => "chain",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scope| scope.as_str() == text)
    }
}

/// All pauses in force.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pauses(Vec<(Scope, String)>);

impl FromIterator<(Scope, String)> for Pauses {
    fn from_iter<T: IntoIterator<Item = (Scope, String)>>(pauses: T) -> Self {
        Self(pauses.into_iter().collect())
    }
}

impl Pauses {
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn holds(&self, scope: Scope, is_target: impl Fn(&str) -> bool) -> bool {
        self.0.iter().any(|(paused, target)| match paused {
            Scope::Everything => true,
            Scope::Partner | Scope::Pair | Scope::Provider | Scope::Rail | Scope::Chain => {
                *paused == scope && is_target(target)
            }
        })
    }

    fn stops_pair(&self, input: &str, output: &str) -> bool {
        self.holds(Scope::Pair, |pair| pair.split_once('/') == Some((input, output)))
    }

    fn stops_provider(&self, id: &str) -> bool {
        self.holds(Scope::Provider, |provider| provider == id)
    }

    /// Whether a partner's order, decided as planned, must be rejected.
    pub fn stops_order(&self, partner_id: &str, input: &Asset, output: &Asset, plan: &Plan) -> bool {
        !self.is_empty()
            && (self.holds(Scope::Partner, |partner| partner == partner_id)
                || self.stops_pair(&input.symbol, &output.symbol)
                || self.holds(Scope::Chain, |chain| {
                    [input, output].iter().any(|asset| asset.chain() == Some(chain))
                })
                || plan.slices.iter().any(|slice| self.stops_provider(&slice.provider_id)))
    }

    /// Whether a leg that was never called may not begin.
    pub fn stops_leg(&self, leg: LegKind) -> bool {
        self.holds(Scope::Rail, |rail| {
            rail == leg.as_str() || leg == LegKind::Offramp && rail == LegKind::Payout.as_str()
        })
    }

    /// Removes what new orders may not use from a snapshot; pauses of partners are applied elsewhere.
    pub fn apply(&self, snapshot: &mut Snapshot, chain_of: impl Fn(&str) -> Option<String>) {
        if self.is_empty() {
            return;
        }
        let on_paused_chain =
            |symbol: &str| chain_of(symbol).is_some_and(|of| self.holds(Scope::Chain, |chain| chain == of));
        snapshot.retain_offers(|input, output, _| {
            !self.stops_pair(input, output) && !on_paused_chain(input) && !on_paused_chain(output)
        });
        snapshot.retain_deliverers(|provider| !self.stops_provider(provider));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pauses(all: &[(Scope, &str)]) -> Pauses {
        all.iter().map(|(scope, target)| (*scope, (*target).to_owned())).collect()
    }

    #[test]
    fn a_scope_is_parsed_as_it_is_written() {
        assert!(Scope::ALL.into_iter().all(|scope| Scope::parse(scope.as_str()) == Some(scope)));
        assert_eq!(Scope::parse("Everything"), None);
    }

    #[test]
    fn a_rail_pause_stops_its_legs_and_a_payout_pause_conversions_too() {
        let (offramp, payout) = (pauses(&[(Scope::Rail, "offramp")]), pauses(&[(Scope::Rail, "payout")]));
        assert!(offramp.stops_leg(LegKind::Offramp) && !offramp.stops_leg(LegKind::Payout));
        assert!(payout.stops_leg(LegKind::Offramp) && payout.stops_leg(LegKind::Payout));
        let everything = pauses(&[(Scope::Everything, "")]);
        assert!(
            LegKind::ALL
                .into_iter()
                .all(|leg| everything.stops_leg(leg) && !Pauses::default().stops_leg(leg))
        );
        let others =
            pauses(&[(Scope::Partner, "payout"), (Scope::Pair, "USDC/USD"), (Scope::Chain, "offramp")]);
        assert!(!LegKind::ALL.into_iter().any(|leg| others.stops_leg(leg)));
    }

    #[test]
    fn a_pair_has_a_direction() {
        let pair = pauses(&[(Scope::Pair, "USDC/USD")]);
        assert!(
            pair.stops_pair("USDC", "USD")
                && !pair.stops_pair("USD", "USDC")
                && !pair.stops_pair("USDC", "EUR")
        );
    }
}

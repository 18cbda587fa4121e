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
//! Beside them stands an outage of the payout rail, which the service itself finds: it stops new orders of money, and
//! their legs that were never called.
//!
//! A leg for which a rail was called is followed to its end, and accepted orders keep their reservations. A paused
//! payout stops conversions as well: an order is not committed on the chain to a payout that may not begin.

use crate::asset::Asset;
use crate::liquidity::Snapshot;
use crate::names::names;
use crate::plan::Plan;
use crate::settlement::leg::LegKind;

names! {
    /// The subject of a pause or of a limit.
    #[derive(PartialOrd, Ord)]
    pub enum Scope {
        Everything = "everything",
        Partner = "partner",
        Pair = "pair",
        Provider = "provider",
        Rail = "rail",
        Chain = "chain",
    }
}

/// All pauses in force.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pauses {
    by_operators: Vec<(Scope, String)>,
    is_rail_out: bool,
}

impl FromIterator<(Scope, String)> for Pauses {
    fn from_iter<T: IntoIterator<Item = (Scope, String)>>(pauses: T) -> Self {
        Self { by_operators: pauses.into_iter().collect(), is_rail_out: false }
    }
}

impl Pauses {
    /// With an outage of the payout rail, or without one.
    #[must_use]
    pub fn with_rail_out(self, is_rail_out: bool) -> Self {
        Self { is_rail_out, ..self }
    }

    pub const fn is_empty(&self) -> bool {
        self.by_operators.is_empty() && !self.is_rail_out
    }

    fn holds(&self, scope: Scope, is_target: impl Fn(&str) -> bool) -> bool {
        self.by_operators.iter().any(|(paused, target)| match paused {
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
                || self.is_rail_out && output.is_fiat()
                || plan.slices.iter().any(|slice| self.stops_provider(&slice.provider_id)))
    }

    /// Whether a leg that was never called may not begin. `pays_on_chain`: no rail pays the order's output.
    pub fn stops_leg(&self, leg: LegKind, pays_on_chain: bool) -> bool {
        self.is_rail_out && !pays_on_chain
            || self.holds(Scope::Rail, |rail| {
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
            let is_unpayable = self.is_rail_out && chain_of(output).is_none();
            !is_unpayable
                && !self.stops_pair(input, output)
                && !on_paused_chain(input)
                && !on_paused_chain(output)
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
    fn a_rail_pause_stops_its_legs_and_a_payout_pause_conversions_too() {
        let (offramp, payout) = (pauses(&[(Scope::Rail, "offramp")]), pauses(&[(Scope::Rail, "payout")]));
        assert!(offramp.stops_leg(LegKind::Offramp, false) && !offramp.stops_leg(LegKind::Payout, false));
        assert!(payout.stops_leg(LegKind::Offramp, false) && payout.stops_leg(LegKind::Payout, false));
        let everything = pauses(&[(Scope::Everything, "")]);
        assert!(
            LegKind::ALL
                .into_iter()
                .all(|leg| everything.stops_leg(leg, false) && !Pauses::default().stops_leg(leg, false))
        );
        let others =
            pauses(&[(Scope::Partner, "payout"), (Scope::Pair, "USDC/USD"), (Scope::Chain, "offramp")]);
        assert!(!LegKind::ALL.into_iter().any(|leg| others.stops_leg(leg, false)));
    }

    #[test]
    fn an_outage_of_the_payout_rail_stops_what_it_would_pay_and_nothing_else() {
        let out = Pauses::default().with_rail_out(true);
        assert!(!out.is_empty());
        for leg in LegKind::ALL {
            assert!(out.stops_leg(leg, false) && !out.stops_leg(leg, true));
        }
    }
}

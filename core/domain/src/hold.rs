//! The parts of providers' balances that open firm quotes hold, so that a quote that is used in time finds its output.

use std::collections::HashMap;

use crate::money::Minor;
use crate::plan::Slice;
use crate::quote::FirmTerms;

/// A provider and one of its assets.
type Place = (String, String);

/// The owner of open quotes: a partner, in one environment.
pub type Holder = (String, bool);

/// Sums of open holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct QuoteHolds {
    by_place: HashMap<Place, Minor>,
    by_holder: HashMap<(Holder, Place), Minor>,
}

/// The quote would hold more than is available, or more than one partner may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotHeld;

impl QuoteHolds {
    /// Adds what a partner's quotes hold of a provider's asset.
    pub fn add(&mut self, holder: &Holder, provider: &str, asset: &str, amount: Minor) {
        let place = (provider.to_owned(), asset.to_owned());
        for sum in [
            self.by_place.entry(place.clone()).or_default(),
            self.by_holder.entry((holder.clone(), place)).or_default(),
        ] {
            *sum = sum.checked_add(amount).unwrap_or(Minor::new(u128::MAX));
        }
    }

    /// The total held of a provider's asset, without what `own`, one of the open quotes, holds of it.
    pub fn held(&self, provider: &str, asset: &str, own: Option<&FirmTerms>) -> Minor {
        let all = self.by_place.get(&(provider.to_owned(), asset.to_owned())).copied().unwrap_or_default();
        let own = own.filter(|terms| terms.output_asset == asset);
        let own = own.map_or(Minor::ZERO, |terms| share(&terms.slices, provider));
        all.checked_sub(own).unwrap_or_default()
    }

    /// Holds the output of a new quote, or nothing. `available` is the provider's balance, held or not; one partner's
    /// open quotes hold at most `share_bps` of it.
    pub fn take(
        &mut self,
        holder: &Holder,
        terms: &FirmTerms,
        available: impl Fn(&str) -> Minor,
        share_bps: u32,
    ) -> Result<(), NotHeld> {
        let asset = terms.output_asset.as_str();
        for provider in providers(&terms.slices) {
            let amount = share(&terms.slices, provider);
            let place = (provider.to_owned(), asset.to_owned());
            let theirs = self.by_holder.get(&(holder.clone(), place)).copied().unwrap_or_default();
            let all = self.held(provider, asset, None).checked_add(amount).ok_or(NotHeld)?;
            let theirs = theirs.checked_add(amount).ok_or(NotHeld)?;
            let free = available(provider);
            if all > free || theirs > free.bps_floor(share_bps) {
                return Err(NotHeld);
            }
        }
        for provider in providers(&terms.slices) {
            self.add(holder, provider, asset, share(&terms.slices, provider));
        }
        Ok(())
    }

    /// Ends the hold of a quote that is used.
    pub fn release(&mut self, holder: &Holder, terms: &FirmTerms) {
        for provider in providers(&terms.slices) {
            let amount = share(&terms.slices, provider);
            let place = (provider.to_owned(), terms.output_asset.clone());
            for sum in self
                .by_place
                .get_mut(&place)
                .into_iter()
                .chain(self.by_holder.get_mut(&(holder.clone(), place.clone())))
            {
                *sum = sum.checked_sub(amount).unwrap_or_default();
            }
        }
    }

    /// The sums by provider and asset.
    pub fn places(&self) -> impl Iterator<Item = (&str, &str, Minor)> {
        self.by_place.iter().map(|((provider, asset), amount)| (provider.as_str(), asset.as_str(), *amount))
    }
}

pub fn providers(slices: &[Slice]) -> impl Iterator<Item = &str> {
    let is_first = |at: usize, id: &str| slices.iter().take(at).all(|earlier| earlier.provider_id != id);
    slices
        .iter()
        .enumerate()
        .map(|(at, slice)| (at, slice.provider_id.as_str()))
        .filter(move |(at, id)| is_first(*at, id))
        .map(|(_, id)| id)
}

/// The output of a quote that one provider delivers.
pub fn share(slices: &[Slice], provider: &str) -> Minor {
    let theirs = slices.iter().filter(|slice| slice.provider_id == provider).map(|slice| slice.output);
    theirs.fold(Minor::ZERO, |sum, output| sum.checked_add(output).unwrap_or(Minor::new(u128::MAX)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::ids::QuoteId;
    use crate::intent::{ActorType, Side};
    use crate::money::Residual;
    use crate::pricing::Priced;
    use crate::quote::AmountType;
    use crate::time::Timestamp;

    fn terms(slices: &[(&str, u128)]) -> FirmTerms {
        let slice = |(provider, output): &(&str, u128)| Slice {
            provider_id: (*provider).to_owned(),
            venue: format!("LP:{provider}"),
            wallet: String::new(),
            input: Minor::new(1),
            output: Minor::new(*output),
            residual_e18: Residual::ZERO,
            level_id: None,
        };
        FirmTerms {
            quote_id: QuoteId::from_unique("1"),
            provider: slices[0].0.to_owned(),
            input_asset: "USDC".into(),
            output_asset: "USD".into(),
            side: Side::Sell,
            actor: ActorType::Institution,
            amount_type: AmountType::Source,
            priced: Priced {
                reference: None,
                rate: 1.into(),
                input: Minor::new(1),
                protocol_fee: Minor::ZERO,
                gross_output: Minor::new(1),
                payout_fee: Minor::ZERO,
                output: Minor::new(1),
                residual_e18: Residual::ZERO,
                fee_residual_e18: Residual::ZERO,
                fees: Vec::new(),
                gas: Vec::new(),
            },
            slices: slices.iter().map(slice).collect(),
            score: 0,
            valid_until: Timestamp::from_millis(0),
        }
    }

    fn holder(name: &str) -> Holder {
        (name.to_owned(), true)
    }

    #[test]
    fn a_partner_holds_at_most_its_share_and_a_refused_quote_nothing() {
        let mut holds = QuoteHolds::default();
        let (acme, free) = (holder("acme"), |_: &str| Minor::new(100));
        assert_eq!(holds.take(&acme, &terms(&[("south", 10), ("north", 51)]), free, 5_000), Err(NotHeld));
        assert_eq!(holds, QuoteHolds::default());
        assert_eq!(holds.take(&acme, &terms(&[("north", 50)]), free, 5_000), Ok(()));
        assert_eq!(holds.take(&acme, &terms(&[("north", 1)]), free, 5_000), Err(NotHeld));
        assert_eq!(holds.take(&holder("other"), &terms(&[("north", 50)]), free, 5_000), Ok(()));
    }

    proptest! {
        #[test]
        fn holds_never_exceed_the_balance_and_never_leak(
            steps in proptest::collection::vec((0_usize..3, 0_usize..2, 1_u128..60, any::<bool>()), 1..60),
            share in 1_u32..=10_000,
        ) {
            let mut holds = QuoteHolds::default();
            let mut open: Vec<(Holder, FirmTerms)> = Vec::new();
            for (partner, provider, amount, uses) in steps {
                if uses && !open.is_empty() {
                    let (holder, terms) = open.swap_remove(usize::try_from(amount).unwrap() % open.len());
                    holds.release(&holder, &terms);
                } else {
                    let quote = terms(&[(["north", "south"][provider], amount), ("north", 1)]);
                    let holder = holder(["a", "b", "c"][partner]);
                    if holds.take(&holder, &quote, |_| Minor::new(100), share).is_ok() {
                        open.push((holder, quote));
                    }
                }
                for provider in ["north", "south"] {
                    let sum: u128 = open.iter().map(|(_, terms)| super::share(&terms.slices, provider).get()).sum();
                    prop_assert_eq!(holds.held(provider, "USD", None).get(), sum);
                    prop_assert!(sum <= 100);
                }
            }
        }
    }
}

//! What a fill moved, by the arithmetic of a book: gross, less what is deducted, is what moved.
//!
//! ```text
//! GrossTradeAmt(381) = floor(LastQty(32) × LastPx(31))
//! NetMoney(118)      = GrossTradeAmt − Commission(12) − MiscFeeAmt(137)   sold: what came in
//!                    = GrossTradeAmt + Commission + MiscFeeAmt            bought: what was paid
//! ```
//!
//! All are minor units of the quote asset. Commission is the protocol fee and MiscFeeAmt the payout's, each at the rate
//! of the conversion when it was deducted in the base asset; [`Fee`] has them as they were deducted.

use dvp_domain::{
    fees::{FeeItem, FeeType},
    money::Minor,
    snapshot::{IntentSnapshot, SnapshotInput, SnapshotOutput},
};
use ruint::aliases::U512;

use super::price::Amount;

/// A fee as it was deducted, of the asset that it was deducted from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fee {
    pub(crate) amount: Amount,
    pub(crate) currency: String,
}

/// A fill. Amounts without an exponent are of the quote asset.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Trade {
    pub(crate) base: Amount,
    pub(crate) gross: Amount,
    pub(crate) quote_currency: String,
    /// What came in or was paid.
    pub(crate) net: Minor,
    pub(crate) commission: Minor,
    pub(crate) misc: Minor,
    /// Of the input.
    pub(crate) protocol_fee: Option<Fee>,
    /// Of the output.
    pub(crate) payout_fee: Option<Fee>,
}

impl Trade {
    /// `fees`: those of the order's acceptance, for what is not converted by a provider.
    pub(crate) fn of(snapshot: &IntentSnapshot, is_sell: bool, fees: &[FeeItem]) -> Self {
        Self::with_fees(snapshot, is_sell, fees).unwrap_or_else(|| {
            let IntentSnapshot { input, output, .. } = snapshot;
            let input = (Amount { minor: input.amount_minor, exponent: input.exponent }, &input.asset);
            let output = (Amount { minor: output.amount_minor, exponent: output.exponent }, &output.currency);
            let (base, quote) = if is_sell { (input, output) } else { (output, input) };
            Self {
                base: base.0,
                gross: quote.0,
                quote_currency: quote.1.clone(),
                net: quote.0.minor,
                commission: Minor::ZERO,
                misc: Minor::ZERO,
                protocol_fee: None,
                payout_fee: None,
            }
        })
    }

    /// `None`: the amounts do not add up.
    fn with_fees(snapshot: &IntentSnapshot, is_sell: bool, fees: &[FeeItem]) -> Option<Self> {
        let IntentSnapshot { input, output, offramp, .. } = snapshot;
        let fee = |kind, currency: &str| {
            let found = fees.iter().find(|fee| fee.kind == kind && fee.currency == *currency);
            found.map_or(Minor::ZERO, |fee| fee.amount_minor)
        };
        let converted =
            offramp.as_ref().and_then(|offramp| Some((offramp.from_amount_minor, offramp.to_amount_minor?)));
        let (from, to) = match converted {
            Some(amounts) => amounts,
            None => (
                input.amount_minor.checked_sub(fee(FeeType::ProtocolFee, &input.asset))?,
                output.amount_minor.checked_add(fee(FeeType::PayoutFee, &output.currency))?,
            ),
        };
        let deducted = |minor: Minor, exponent, currency: &str| {
            let amount = Amount { minor, exponent };
            (!minor.is_zero()).then(|| Fee { amount, currency: currency.to_owned() })
        };
        let SnapshotInput { asset, amount_minor: paid, exponent: input_exponent, .. } = input;
        let SnapshotOutput { currency, amount_minor: came, exponent: output_exponent } = output;
        let protocol_fee = deducted(paid.checked_sub(from)?, *input_exponent, asset);
        let payout_fee = deducted(to.checked_sub(*came)?, *output_exponent, currency);
        let of = |minor: &Minor, exponent: &u8| Amount { minor: *minor, exponent: *exponent };
        Some(if is_sell {
            // The whole input at the rate of what was converted of it.
            let gross = scaled(*paid, to, from)?;
            Self {
                base: of(paid, input_exponent),
                gross: of(&gross, output_exponent),
                quote_currency: currency.clone(),
                net: *came,
                commission: gross.checked_sub(to)?,
                misc: to.checked_sub(*came)?,
                protocol_fee,
                payout_fee,
            }
        } else {
            let gross = scaled(*came, from, to)?;
            Self {
                base: of(came, output_exponent),
                gross: of(&gross, input_exponent),
                quote_currency: asset.clone(),
                net: *paid,
                commission: paid.checked_sub(from)?,
                misc: from.checked_sub(gross)?,
                protocol_fee,
                payout_fee,
            }
        })
    }
}

impl Trade {
    /// An amount of the quote asset.
    pub(crate) fn quote(&self, minor: Minor) -> String {
        minor.to_decimal_string(self.gross.exponent)
    }

    pub(crate) fn net(&self) -> String {
        self.quote(self.net)
    }

    /// Commission(12). FIX 4.2 has no other fees: there it has them all.
    pub(crate) fn commission(&self, is_later: bool) -> String {
        let others = if is_later { Minor::ZERO } else { self.misc };
        // The sum is part of an amount of the trade.
        self.quote(self.commission.checked_add(others).unwrap_or(self.commission))
    }

    /// What is left of an order's quantity; `None`: nothing.
    pub(crate) fn leaves(&self, order_qty: &str) -> Option<String> {
        let whole = Minor::parse_decimal(order_qty, self.base.exponent).ok()?;
        let rest = whole.checked_sub(self.base.minor).filter(|rest| !rest.is_zero())?;
        Some(rest.to_decimal_string(self.base.exponent))
    }
}

/// `floor(amount × to ÷ from)`.
fn scaled(amount: Minor, to: Minor, from: Minor) -> Option<Minor> {
    if from.is_zero() {
        return None;
    }
    let product = U512::from(amount.get()) * U512::from(to.get());
    u128::try_from(product / U512::from(from.get())).ok().map(Minor::new)
}

#[cfg(test)]
mod tests {
    use dvp_domain::{event::EventType, sample, time::Timestamp};
    use proptest::prelude::*;

    use super::*;

    fn filled(input: u128, from: u128, to: u128, output: u128) -> IntentSnapshot {
        let mut snapshot = sample::snapshot("a", EventType::PayoutCompleted, Timestamp::from_millis(0));
        (snapshot.input.amount_minor, snapshot.output.amount_minor) = (Minor::new(input), Minor::new(output));
        let offramp = snapshot.offramp.as_mut().unwrap();
        offramp.from_amount_minor = Minor::new(from);
        offramp.to_amount_minor = Some(Minor::new(to));
        snapshot
    }

    #[test]
    fn a_sale_of_a_hundred_adds_up() {
        // 0.1 % of the input, and 35 cents of the output.
        let trade = Trade::of(&filled(100_000_000, 99_900_000, 9_990, 9_955), true, &[]);
        let amounts = [trade.gross.minor, trade.commission, trade.misc, trade.net].map(Minor::get);
        assert_eq!(amounts, [10_000, 10, 35, 9_955]);
        assert_eq!(trade.protocol_fee.unwrap().amount.minor, Minor::new(100_000));
        assert_eq!(trade.payout_fee.unwrap().amount.minor, Minor::new(35));
    }

    proptest! {
        #[test]
        fn gross_less_the_deductions_is_what_moved(
            from in 1..u128::from(u64::MAX), fee in 0..u128::from(u32::MAX),
            output in 1..u128::from(u64::MAX), payout_fee in 0..u128::from(u32::MAX),
            is_sell in any::<bool>(),
        ) {
            let (input, to) = (from + fee, output + payout_fee);
            let trade = Trade::of(&filled(input, from, to, output), is_sell, &[]);
            let deducted = trade.commission.get() + trade.misc.get();
            if is_sell {
                prop_assert_eq!(trade.gross.minor.get() - deducted, output);
            } else {
                prop_assert_eq!(trade.gross.minor.get() + deducted, input);
            }
            prop_assert_eq!(trade.net.get(), if is_sell { output } else { input });
            prop_assert_eq!(trade.protocol_fee.map_or(0, |fee| fee.amount.minor.get()), fee);
            prop_assert_eq!(trade.payout_fee.map_or(0, |fee| fee.amount.minor.get()), payout_fee);
        }
    }
}

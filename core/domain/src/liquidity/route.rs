//! The ways to fill an order: one offer alone, or all offers together, best price first.
//!
//! A route is a list of pieces, each with the most output it gives and the smallest input for all of it. An amount runs
//! through the pieces in order. Forward and inverse use the same list, so that the inverse is the smallest input that
//! reaches an output. When offers are combined, a pool is cut into pieces where its price meets the others' rates, so
//! that at every point the next unit comes from the offer with the best price.

use super::curve::Pool;
use super::{Ask, Curve, Deliverer, Holdings, ListedOffer, Market, Rung};
use crate::money::{Floored, Minor, Ratio, Residual, executed_rate};
use crate::plan::Slice;
use crate::pricing::{Charges, Converted, Priced};
use rust_decimal::Decimal;

/// The fixed side of an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Want {
    /// Pay exactly this.
    Input(Minor),
    /// Deliver exactly this.
    Output(Minor),
}

#[derive(Debug, Clone)]
enum Shape<'a> {
    Rate {
        rate: Decimal,
        ratio: Ratio,
    },
    /// A pool from the point at which `start` was paid and `taken` taken.
    Pool {
        pool: &'a Pool,
        start: Minor,
        taken: Minor,
    },
}

#[derive(Debug, Clone)]
struct Piece<'a> {
    offer: ListedOffer<'a>,
    deliverer: &'a Deliverer,
    level_id: Option<i64>,
    shape: Shape<'a>,
    /// The price of the first unit, by which pieces are ordered.
    price: Ratio,
    /// The most output.
    cap: Minor,
    /// The smallest input for `cap`; `None`: no amount suffices.
    cost: Option<Minor>,
}

/// A way to fill orders of a pair.
#[derive(Debug, Clone)]
pub struct Route<'a> {
    charges: Charges<'a>,
    pieces: Vec<Piece<'a>>,
}

/// An order after it ran through a route.
#[derive(Debug, Clone, PartialEq)]
pub struct Fill {
    pub priced: Priced,
    /// One slice for each provider, in the order in which they were used.
    pub slices: Vec<Slice>,
}

impl Fill {
    /// The largest slice: its provider is the order's solver.
    pub fn primary(&self) -> Option<&Slice> {
        self.slices.iter().rev().max_by_key(|slice| slice.output)
    }
}

impl Piece<'_> {
    fn forward(&self, input: Minor) -> Option<Floored> {
        match &self.shape {
            Shape::Rate { ratio, .. } => ratio.forward(input),
            Shape::Pool { pool, start, taken } => {
                let amount = pool.forward(start.checked_add(input)?)?.checked_sub(*taken)?;
                Some(Floored { amount, residual_e18: Residual::ZERO })
            }
        }
    }

    fn inverse(&self, output: Minor) -> Option<Minor> {
        match &self.shape {
            Shape::Rate { ratio, .. } => ratio.inverse(output),
            Shape::Pool { pool, start, taken } => {
                let paid = pool.inverse(taken.checked_add(output)?)?;
                Some(paid.checked_sub(*start).unwrap_or_default())
            }
        }
    }

    /// `amount` for `input`, the smallest that reaches it: what the rate gives beyond it, which one unit of input can make
    /// many units, is cut off. A pool keeps what it cuts off itself.
    fn fixed(&self, amount: Minor, input: Minor) -> Option<Floored> {
        match &self.shape {
            Shape::Rate { ratio, .. } => ratio.forward(input)?.cut_to(amount),
            Shape::Pool { .. } => Some(Floored { amount, residual_e18: Residual::ZERO }),
        }
    }

    fn slice(&self, input: Minor, floored: Floored) -> Slice {
        Slice {
            provider_id: self.deliverer.provider_id.clone(),
            venue: self.offer.venue.to_string(),
            wallet: self.deliverer.wallet.clone(),
            input,
            output: floored.amount,
            residual_e18: floored.residual_e18,
            level_id: self.level_id,
        }
    }
}

/// The slices so far, in order.
#[derive(Default)]
struct Taken {
    slices: Vec<Slice>,
    rates: Vec<Option<Decimal>>,
    gross: Minor,
    residual_e18: Residual,
}

impl Taken {
    /// `None` when a sum exceeds 2^128 - 1.
    fn add(&mut self, piece: &Piece<'_>, input: Minor, floored: Floored) -> Option<()> {
        self.gross = self.gross.checked_add(floored.amount)?;
        // Too little for one unit of output: the provider of the piece before keeps it.
        if floored.amount.is_zero()
            && let Some(before) = self.slices.last_mut()
        {
            before.input = before.input.checked_add(input)?;
            before.residual_e18 = before.residual_e18.checked_add(floored.residual_e18)?;
            self.residual_e18 = self.residual_e18.checked_add(floored.residual_e18)?;
            return Some(());
        }
        self.residual_e18 = self.residual_e18.checked_add(floored.residual_e18)?;
        self.rates.push(match &piece.shape {
            Shape::Rate { rate, .. } => Some(*rate),
            Shape::Pool { .. } => None,
        });
        let slice = piece.slice(input, floored);
        let same = |s: &&mut Slice| {
            s.provider_id == slice.provider_id && s.venue == slice.venue && s.level_id == slice.level_id
        };
        match self.slices.iter_mut().find(same) {
            Some(known) => {
                known.input = known.input.checked_add(slice.input)?;
                known.output = known.output.checked_add(slice.output)?;
                known.residual_e18 = known.residual_e18.checked_add(slice.residual_e18)?;
            }
            None => self.slices.push(slice),
        }
        Some(())
    }
}

impl<'a> Route<'a> {
    /// Limits the pieces to what can be delivered, and leaves out those without output.
    fn clipped(
        charges: Charges<'a>,
        pieces: impl IntoIterator<Item = Piece<'a>>,
        holdings: &dyn Holdings,
    ) -> Self {
        let output = &charges.output.symbol;
        let mut of_provider: Vec<(&str, Minor)> = Vec::new();
        let mut of_offer: Vec<(ListedOffer<'a>, Minor)> = Vec::new();
        let mut kept: Vec<Piece<'a>> = Vec::new();
        for mut piece in pieces {
            let provider = piece.deliverer.provider_id.as_str();
            let held = entry(
                &mut of_provider,
                |id| *id == provider,
                || (provider, holdings.available(provider, output)),
            );
            let given = entry(
                &mut of_offer,
                |offer| offer.is(&piece.offer),
                || (piece.offer, piece.offer.policy.max_fill),
            );
            let rest = piece.level_id.and_then(|id| holdings.rest_of_level(id)).unwrap_or(piece.cap);
            piece.cap = piece.cap.min(rest).min(*held).min(*given);
            if piece.cap.is_zero() {
                continue;
            }
            // The cap is within both limits.
            let (Some(held_left), Some(given_left)) =
                (held.checked_sub(piece.cap), given.checked_sub(piece.cap))
            else {
                continue;
            };
            (*held, *given) = (held_left, given_left);
            piece.cost = piece.inverse(piece.cap);
            kept.push(piece);
        }
        Self { charges, pieces: kept }
    }

    /// The offers that the route uses, in order.
    pub fn offers(&self) -> impl Iterator<Item = ListedOffer<'a>> {
        let mut seen: Vec<ListedOffer<'a>> = Vec::new();
        for piece in &self.pieces {
            if !seen.iter().any(|offer| offer.is(&piece.offer)) {
                seen.push(piece.offer);
            }
        }
        seen.into_iter()
    }

    /// The most that the route can fill, in output minor units before the payout fee.
    pub fn capacity(&self) -> Minor {
        let total = self.pieces.iter().fold(0_u128, |sum, piece| sum.saturating_add(piece.cap.get()));
        Minor::new(total)
    }

    /// The protocol fee, in basis points of the input.
    pub fn fees_bps(&self) -> u32 {
        self.charges.fees.protocol_fee_bps
    }

    /// The price of the first unit.
    pub fn marginal(&self) -> Option<Ratio> {
        self.pieces.first().map(|piece| piece.price)
    }

    /// Runs an order through the route. `None` when the order is below a source's minimum, above the capacity, or not
    /// larger than the fees.
    pub fn fill(&self, want: Want) -> Option<Fill> {
        match want {
            Want::Input(input) => self.forward(input),
            Want::Output(output) => self.inverse(output),
        }
    }

    fn forward(&self, input: Minor) -> Option<Fill> {
        let mut left = self.charges.net(input)?;
        let (last, before) = self.pieces.split_last()?;
        let mut taken = Taken::default();
        for piece in before {
            let whole = piece.cost.and_then(|cost| left.checked_sub(cost).map(|left| (cost, left)));
            let Some((cost, rest)) = whole else {
                taken.add(piece, left, piece.forward(left)?)?;
                return self.priced(input, taken);
            };
            taken.add(piece, cost, piece.fixed(piece.cap, cost)?)?;
            left = rest;
            if left.is_zero() {
                return self.priced(input, taken);
            }
        }
        let floored = last.forward(left).filter(|floored| floored.amount <= last.cap)?;
        taken.add(last, left, floored)?;
        self.priced(input, taken)
    }

    /// What `net` converts to, rounded up, without regard to the sizes of orders.
    fn most(&self, net: Minor) -> Minor {
        let (mut left, mut gross) = (net, 0_u128);
        for piece in &self.pieces {
            match piece.cost.and_then(|cost| left.checked_sub(cost)) {
                Some(rest) => (left, gross) = (rest, gross.saturating_add(piece.cap.get())),
                None => {
                    let part = piece.forward(left).map_or(piece.cap, |floored| floored.amount.min(piece.cap));
                    return Minor::new(gross.saturating_add(part.get()).saturating_add(1));
                }
            }
        }
        Minor::new(gross)
    }

    fn inverse(&self, output: Minor) -> Option<Fill> {
        let gross = self.charges.gross_for(output)?;
        let (mut left, mut net) = (gross, Minor::ZERO);
        let mut taken = Taken::default();
        for piece in &self.pieces {
            let amount = left.min(piece.cap);
            let cost = piece.inverse(amount)?;
            taken.add(piece, cost, piece.fixed(amount, cost)?)?;
            net = net.checked_add(cost)?;
            left = left.checked_sub(amount)?;
            if left.is_zero() {
                return self.priced(self.charges.input_for(net)?, taken);
            }
        }
        None
    }

    fn priced(&self, input: Minor, taken: Taken) -> Option<Fill> {
        if !self.charges.sizes.take(input) || self.offers().any(|offer| input < offer.policy.min_order) {
            return None;
        }
        let net = self.charges.net(input)?;
        let (paid, given) = (self.charges.input.exponent, self.charges.output.exponent);
        let executed = || executed_rate((net, paid), (taken.gross, given));
        let alone = match taken.rates.as_slice() {
            [Some(rate)] => Some(*rate),
            _ => None,
        };
        let rate = alone.map_or_else(executed, Some)?;
        let converted = Converted { rate, gross_output: taken.gross, residual_e18: taken.residual_e18 };
        let mut priced = self.charges.priced(input, converted)?;
        // A fixed output can be less than what the rate alone gives.
        if alone.is_some() && !priced.is_exact(paid, given) {
            priced.rate = executed()?;
        }
        Some(Fill { priced, slices: taken.slices })
    }
}

/// The value of a key in a short list; inserted when the key is new.
fn entry<K, V>(list: &mut Vec<(K, V)>, is: impl Fn(&K) -> bool, new: impl FnOnce() -> (K, V)) -> &mut V {
    let at = list.iter().position(|(key, _)| is(key)).unwrap_or(list.len());
    if at == list.len() {
        list.push(new());
    }
    &mut list[at].1
}

impl<'a> Market<'a> {
    /// Each offer alone, in the order of the snapshot.
    pub fn single_routes(&self, ask: &Ask<'a>) -> Vec<Route<'a>> {
        let Some(charges) = self.charges(ask) else { return Vec::new() };
        let alone = |offer: ListedOffer<'a>| {
            Route::clipped(charges, pieces(offer, &[], self.holdings), self.holdings)
        };
        self.offers(ask).map(alone).filter(|route| !route.pieces.is_empty()).collect()
    }

    /// All offers together, best price first; and the same without the offers that do not take small orders.
    pub fn split_routes(&self, ask: &Ask<'a>) -> Vec<Route<'a>> {
        let Some(charges) = self.charges(ask) else { return Vec::new() };
        let all: Vec<ListedOffer<'a>> = self.offers(ask).collect();
        let (open, choosy): (Vec<ListedOffer<'a>>, Vec<ListedOffer<'a>>) =
            all.iter().copied().partition(|offer| offer.policy.min_order.is_zero());
        let sets = if choosy.is_empty() { vec![all] } else { vec![all, open] };
        let together = |offers: Vec<ListedOffer<'a>>| self.together(charges, &offers);
        sets.into_iter().filter(|offers| offers.len() > 1).map(together).collect()
    }

    fn together(&self, charges: Charges<'a>, offers: &[ListedOffer<'a>]) -> Route<'a> {
        let mut cuts: Vec<Ratio> =
            offers.iter().flat_map(|offer| offer.rungs()).map(|rung| rung.ratio).collect();
        cuts.sort_unstable_by(|a, b| b.cmp(a));
        let mut parts: Vec<Piece<'a>> =
            offers.iter().flat_map(|offer| pieces(*offer, &cuts, self.holdings)).collect();
        // At the point where a pool's price equals a rate, the rate goes first.
        let is_pool = |piece: &Piece<'_>| matches!(piece.shape, Shape::Pool { .. });
        parts.sort_by(|a, b| b.price.cmp(&a.price).then(is_pool(a).cmp(&is_pool(b))));
        Route::clipped(charges, parts, self.holdings)
    }

    /// What inputs convert to at most, each with its protocol fee taken off, whichever offers take part: no route gives
    /// more. What one unit of input converts to never grows with the input.
    pub fn most(&self, ask: &Ask<'a>, nets: &[Minor]) -> Vec<Minor> {
        let nothing = || nets.iter().map(|_| Minor::ZERO).collect();
        let Some(charges) = self.charges(ask) else { return nothing() };
        let all: Vec<ListedOffer<'a>> = self.offers(ask).collect();
        let route = self.together(charges, &all);
        nets.iter().map(|net| route.most(*net)).collect()
    }

    /// The best fill of an order: the most output, or the smallest input; of equal fills, one from a single offer.
    pub fn best(&self, ask: &Ask<'a>, want: Want) -> Option<(Route<'a>, Fill)> {
        let routes = self.single_routes(ask).into_iter().chain(self.split_routes(ask));
        let mut best: Option<(Route<'a>, Fill)> = None;
        for route in routes {
            let Some(fill) = route.fill(want) else { continue };
            let better = |than: &Fill| match want {
                Want::Input(_) => fill.priced.output > than.priced.output,
                Want::Output(_) => fill.priced.input < than.priced.input,
            };
            if best.as_ref().is_none_or(|(_, known)| better(known)) {
                best = Some((route, fill));
            }
        }
        let (route, mut fill) = best?;
        fill.priced.reference = self.reference(ask);
        Some((route, fill))
    }
}

/// An offer's pieces, best first; a pool is cut where its price reaches one of `cuts`, the best of which come first. What
/// orders have taken from the offer's answer is left out.
fn pieces<'a>(offer: ListedOffer<'a>, cuts: &[Ratio], holdings: &dyn Holdings) -> Vec<Piece<'a>> {
    let taken = offer.answer.map(|answer| holdings.taken_of(answer)).unwrap_or_default();
    match &offer.offer.curve {
        Curve::Ladder(rungs) => after(rungs.iter().map(|rung| of_rung(offer, rung)), taken),
        Curve::Pool { deliverer, pool, guard: _ } => of_pool(offer, deliverer, (pool, taken), cuts),
    }
}

/// Pieces without their first `taken` units.
fn after<'a>(pieces: impl Iterator<Item = Piece<'a>>, mut taken: Minor) -> Vec<Piece<'a>> {
    let rest = |piece: Piece<'a>| {
        let cap = piece.cap.checked_sub(taken).unwrap_or_default();
        taken = taken.checked_sub(piece.cap).unwrap_or_default();
        Piece { cap, ..piece }
    };
    pieces.map(rest).collect()
}

fn of_rung<'a>(offer: ListedOffer<'a>, rung: &'a Rung) -> Piece<'a> {
    Piece {
        offer,
        deliverer: &rung.deliverer,
        level_id: rung.level_id,
        shape: Shape::Rate { rate: rung.rate, ratio: rung.ratio },
        price: rung.ratio,
        cap: rung.capacity,
        cost: None,
    }
}

fn of_pool<'a>(
    offer: ListedOffer<'a>,
    deliverer: &'a Deliverer,
    (pool, mut taken): (&'a Pool, Minor),
    cuts: &[Ratio],
) -> Vec<Piece<'a>> {
    let spot = pool.spot();
    // The price after what was taken is not computed: it is between the cuts around it, which is what orders pieces.
    let (Some(mut start), mut price) = (pool.inverse(taken), spot) else { return Vec::new() };
    let mut cut_up = Vec::with_capacity(cuts.len().saturating_add(1));
    let end =
        |cut: &Ratio| pool.forward(pool.input_until(cut)).map_or(pool.depth(), |end| end.min(pool.depth()));
    let ends = cuts.iter().filter(|cut| **cut < spot).map(|cut| (end(cut), *cut));
    for (end, next_price) in ends.chain([(pool.depth(), spot)]) {
        if let Some(cap) = end.checked_sub(taken).filter(|cap| !cap.is_zero()) {
            let shape = Shape::Pool { pool, start, taken };
            cut_up.push(Piece { offer, deliverer, level_id: None, shape, price, cap, cost: None });
            // The smallest input for the same output: the next piece starts exactly there.
            let Some(next) = pool.inverse(end) else { break };
            (start, taken) = (next, end);
        }
        price = next_price;
    }
    cut_up
}

#[cfg(test)]
pub(crate) mod tests;

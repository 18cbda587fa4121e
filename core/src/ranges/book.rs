//! The resting orders in memory: pure.
//!
//! ```text
//! pair ─> group (who asks, and about how much) ─> index of falling lines ─reached─> tested against the market
//!                                                        ^                           ├─met─> filled by the writer
//!                                                        └──price rises───aside <────┘ not yet: until a time
//! ```
//!
//! The orders of a group have nearly the same size, so that one price bounds what the market gives to any of them. While
//! that price is unchanged, a group is only looked at when its first line comes down to the price. Whether there is enough
//! for an order the price does not tell: an order aside is tested again after a while, whatever the price.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use dvp_domain::asset::Registry;
use dvp_domain::intent::ActorType;
use dvp_domain::liquidity::{Ask, Market};
use dvp_domain::money::Minor;
use dvp_domain::range::index::{Index, Line, Price};
use dvp_domain::range::{Meeting, Range};
use dvp_domain::time::Timestamp;
use dvp_store::orders::ranges::{NewRestingRange, RestingRange};

/// The first wait of an order that is aside, and the longest.
const RETRY_MS: i64 = 1_000;
const RETRY_MS_MAX: i64 = 30_000;
/// Orders that the market does not meet are tested again at multiples of this time: many of them in one look.
const SLOT_MS: i64 = 100;

/// Input and output.
pub(super) type Pair = (Arc<str>, Arc<str>);

/// Orders that are found by one price.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct GroupKey {
    retail: bool,
    /// The smallest input to convert of the group.
    net_min: u128,
}

#[derive(Debug, Default)]
struct Group {
    index: Index,
    /// The price it was last looked at with, and when a line comes down to it.
    looked: Option<(Price, Option<Timestamp>)>,
    /// Orders that a price has reached and the market does not meet: they go back when the price rises, and are tested
    /// again at their time.
    aside: BTreeSet<i64>,
}

#[derive(Debug, Default)]
struct PairBook {
    groups: BTreeMap<GroupKey, Group>,
}

#[derive(Debug)]
struct Entry {
    reference: Box<str>,
    pair: Pair,
    group: GroupKey,
    range: Range,
    line: Line,
    place: Place,
    /// Failed attempts in a row.
    failures: u32,
    /// Tests in a row that did not meet it.
    misses: u32,
}

/// Where an order waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Index,
    /// Until a time, or until the price rises. Without a time: past its deadline.
    Aside(Option<Timestamp>),
    /// It was handed to the writer.
    Filling,
}

/// An order that the market meets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Met {
    pub(super) number: i64,
    pub(super) reference: Box<str>,
    pub(super) pair: Pair,
}

/// What the book has done so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BookFigures {
    pub resting: usize,
    /// Orders that were tested against the market.
    pub tested: u64,
    /// Group prices that were computed.
    pub prices: u64,
}

#[derive(Debug, Default)]
pub(super) struct Book {
    pairs: HashMap<Pair, PairBook>,
    entries: HashMap<i64, Entry>,
    by_reference: HashMap<Box<str>, i64>,
    /// Orders aside with a time.
    timers: BTreeSet<(Timestamp, i64)>,
    figures: BookFigures,
}

/// Amounts of a group differ by less than a fifth.
fn group_of(net: Minor) -> u128 {
    let bits = net.get().checked_ilog2().unwrap_or(0);
    let kept = bits.saturating_sub(2);
    (net.get() >> kept) << kept
}

impl Book {
    pub(super) fn figures(&self) -> BookFigures {
        BookFigures { resting: self.entries.len(), ..self.figures }
    }

    /// Adds an order, unless it is known.
    pub(super) fn add(&mut self, registry: &Registry, resting: RestingRange) {
        let RestingRange { number, rested } = resting;
        let NewRestingRange { reference, input_asset, output_asset, actor, range } = rested;
        if self.entries.contains_key(&number) {
            return;
        }
        let found = registry.find(&input_asset).zip(registry.find(&output_asset));
        let Some((input, output)) = found else { return };
        let Some(listed) = registry.pair(&input_asset, &output_asset) else { return };
        // The line does not depend on the network fee, which the service bears.
        let (fees, sizes) = (listed.fees, listed.sizes());
        let charges = dvp_domain::pricing::Charges { fees, sizes, input, output, gas: &[] };
        let net = charges.net(range.max_input).unwrap_or_default();
        // An order whose fees eat it up is never met; its deadline ends it.
        let Some(line) = Line::of(&range, &charges) else { return };
        let group = GroupKey { retail: actor == ActorType::Retail, net_min: group_of(net) };
        let pair = self.pair(&input_asset, &output_asset);
        let of_group = self.pairs.entry(pair.clone()).or_default().groups.entry(group).or_default();
        of_group.index.insert(number, line);
        if let Some((_, next)) = &mut of_group.looked {
            // Due, and the price stays known: a rise since the last look brings back the orders aside.
            *next = Some(Timestamp::from_millis(0));
        }
        let reference: Box<str> = reference.into();
        self.by_reference.insert(reference.clone(), number);
        let entry =
            Entry { reference, pair, group, range, line, place: Place::Index, failures: 0, misses: 0 };
        self.entries.insert(number, entry);
    }

    /// The names of a pair, once for all its orders.
    fn pair(&self, input: &str, output: &str) -> Pair {
        let known = self.pairs.keys().find(|(from, to)| &**from == input && &**to == output);
        known.cloned().unwrap_or_else(|| (input.into(), output.into()))
    }

    /// Removes an order that was filled or has ended.
    pub(super) fn remove(&mut self, reference: &str) {
        let Some(number) = self.by_reference.remove(reference) else { return };
        let Some(entry) = self.entries.remove(&number) else { return };
        let Some(of_pair) = self.pairs.get_mut(&entry.pair) else { return };
        let Some(group) = of_pair.groups.get_mut(&entry.group) else { return };
        match entry.place {
            Place::Index => drop(group.index.remove(number)),
            Place::Aside(until) => {
                group.aside.remove(&number);
                if let Some(until) = until {
                    self.timers.remove(&(until, number));
                }
            }
            Place::Filling => {}
        }
        if group.index.is_empty() && group.aside.is_empty() {
            of_pair.groups.remove(&entry.group);
        }
    }

    /// The orders that the market meets now, to be filled in this order: by their prices, and of equals the oldest
    /// first. `market` knows all pairs.
    pub(super) fn met(&mut self, market: &Market<'_>) -> Vec<Met> {
        let now = market.now;
        let mut reached: Vec<(Price, i64)> = Vec::new();
        while let Some((at, number)) = self.timers.first().copied().filter(|(at, _)| *at <= now) {
            self.timers.remove(&(at, number));
            let Some(entry) = self.entries.get_mut(&number) else { continue };
            if let Some(group) = group_mut(&mut self.pairs, entry) {
                group.aside.remove(&number);
            }
            reached.push((entry.line.at(now), number));
        }
        let pairs: Vec<Pair> = self.pairs.keys().cloned().collect();
        for pair in pairs {
            reached.extend(self.reached_of(&pair, market));
        }
        reached.sort_unstable();
        reached.into_iter().filter_map(|(_, number)| self.test(number, market)).collect()
    }

    /// The orders that the prices of their groups have reached.
    fn reached_of(&mut self, pair: &Pair, market: &Market<'_>) -> Vec<(Price, i64)> {
        let now = market.now;
        let mut reached = Vec::new();
        let Some(of_pair) = self.pairs.get_mut(pair) else { return reached };
        let find = |symbol: &str| market.registry.find(symbol);
        let Some((input, output)) = find(&pair.0).zip(find(&pair.1)) else { return reached };
        for retail in [false, true] {
            let actor = if retail { ActorType::Retail } else { ActorType::Institution };
            let ask = Ask { input, output, actor, firm: false };
            let Some(charges) = market.charges(&ask) else { continue };
            let mut groups: Vec<(&GroupKey, &mut Group)> =
                of_pair.groups.iter_mut().filter(|(key, _)| key.retail == retail).collect();
            let nets: Vec<Minor> = groups.iter().map(|(key, _)| Minor::new(key.net_min)).collect();
            let prices = if nets.is_empty() { Vec::new() } else { market.most(&ask, &nets) };
            for (((_, group), net), most) in groups.iter_mut().zip(nets).zip(prices) {
                self.figures.prices += 1;
                let Some(price) = Price::of(most, net, &charges) else { continue };
                let before = group.looked;
                let is_due = match before {
                    Some((looked, next)) => looked != price || next.is_some_and(|next| next <= now),
                    None => true,
                };
                if !is_due {
                    continue;
                }
                if before.is_some_and(|(looked, _)| price > looked) {
                    for number in std::mem::take(&mut group.aside) {
                        let Some(entry) = self.entries.get_mut(&number) else { continue };
                        // An order that could not be filled waits for its time, whatever the price.
                        if entry.failures > 0 {
                            group.aside.insert(number);
                            continue;
                        }
                        if let Place::Aside(Some(until)) = entry.place {
                            self.timers.remove(&(until, number));
                        }
                        entry.place = Place::Index;
                        group.index.insert(number, entry.line);
                    }
                }
                for (value, number) in group.index.reached(price, now) {
                    group.index.remove(number);
                    reached.push((value, number));
                }
                let next = group.index.next_reached(price, now);
                let horizon = (!group.index.is_empty()).then(|| group.index.horizon());
                group.looked = Some((price, next.or(horizon)));
            }
        }
        reached
    }

    /// Tests an order that is in no index against the market: it is met, or waits aside.
    fn test(&mut self, number: i64, market: &Market<'_>) -> Option<Met> {
        let entry = self.entries.get(&number)?;
        let find = |symbol: &str| market.registry.find(symbol);
        let (input, output) = find(&entry.pair.0).zip(find(&entry.pair.1))?;
        let actor = if entry.group.retail { ActorType::Retail } else { ActorType::Institution };
        let ask = Ask { input, output, actor, firm: false };
        self.figures.tested += 1;
        if market.now >= entry.range.deadline {
            // The workflow ends it.
            self.put_aside(number, None);
            return None;
        }
        // Amounts become free at unchanged prices.
        let again = retest_at(number, entry.misses, market.now);
        let until = match entry.range.meet(market, &ask) {
            Meeting::Now(_) => {
                let met = Met { number, reference: entry.reference.clone(), pair: entry.pair.clone() };
                let entry = self.entries.get_mut(&number)?;
                (entry.place, entry.misses) = (Place::Filling, 0);
                return Some(met);
            }
            Meeting::Later { at, .. } => at.max(market.now.plus_millis(1)).min(again),
            Meeting::Never | Meeting::NoLiquidity => again,
        };
        let entry = self.entries.get_mut(&number)?;
        entry.misses = entry.misses.saturating_add(1);
        // What prevented its fill matters again when it is met again.
        entry.failures = 0;
        self.put_aside(number, Some(until));
        None
    }

    fn put_aside(&mut self, number: i64, until: Option<Timestamp>) {
        let Some(entry) = self.entries.get_mut(&number) else { return };
        entry.place = Place::Aside(until);
        if let Some(until) = until {
            self.timers.insert((until, number));
        }
        if let Some(group) = group_mut(&mut self.pairs, entry) {
            group.aside.insert(number);
        }
    }

    /// An order that was met could not be filled: it is tried again after a while.
    pub(super) fn postpone(&mut self, number: i64, now: Timestamp) {
        let Some(entry) = self.entries.get_mut(&number) else { return };
        let wait = wait_after(entry.failures);
        entry.failures = entry.failures.saturating_add(1);
        self.put_aside(number, Some(now.plus_millis(wait)));
    }

    /// The market that the writer saw did not meet an order any more.
    pub(super) fn missed(&mut self, number: i64, now: Timestamp) {
        let Some(entry) = self.entries.get_mut(&number) else { return };
        entry.failures = 0;
        self.put_aside(number, Some(now.plus_millis(RETRY_MS)));
    }

    /// When an order is met at unchanged prices, or is to be tried again.
    pub(super) fn next_due(&self) -> Option<Timestamp> {
        let of_groups = self.pairs.values().flat_map(|pair| pair.groups.values());
        // A group that was not looked at is due.
        let due = of_groups.filter_map(|group| match group.looked {
            Some((_, next)) => next,
            None => Some(Timestamp::from_millis(0)),
        });
        due.chain(self.timers.first().map(|(at, _)| *at)).min()
    }
}

/// The wait after so many in a row.
fn wait_after(failures: u32) -> i64 {
    RETRY_MS.saturating_mul(1_i64 << failures.min(5)).min(RETRY_MS_MAX)
}

/// When an order that the market does not meet is tested again. Orders that were tested together are spread.
fn retest_at(number: i64, misses: u32, now: Timestamp) -> Timestamp {
    let wait = wait_after(misses);
    let at = now.plus_millis(wait - number.rem_euclid(wait / 4)).millis();
    Timestamp::from_millis(at - at.rem_euclid(SLOT_MS))
}

fn group_mut<'b>(pairs: &'b mut HashMap<Pair, PairBook>, entry: &Entry) -> Option<&'b mut Group> {
    // A group without an index entry may have been dropped since.
    pairs.get_mut(&entry.pair).map(|pair| pair.groups.entry(entry.group).or_default())
}

#[cfg(test)]
mod tests;

//! Finds the resting orders that a price reaches, among many.
//!
//! Each order is a falling line: the price at which it can be filled, over time. Two questions are asked: which lines are
//! at or below a price now, and when the first line comes down to a price. A line is a point, its values at the two ends
//! of a window of time; its value within the window is a weighted mean of the two. The points are kept in a tree of
//! bounding boxes, so that a question looks at the boxes that the price cuts and at the lines it has reached, and not at
//! the others.
//!
//! Lines that were added since the tree was built are in a short list beside it. The tree is built again when that list or
//! the number of removed lines has grown to a share of it, or when the window has ended: the cost of that is shared by the
//! changes in between.

use std::collections::HashMap;

use super::Range;
use crate::money::{Minor, U512};
use crate::pricing::Charges;
use crate::time::Timestamp;

/// The order's number: of equal prices the lowest goes first.
pub type Number = i64;

/// Lines of one leaf.
const LEAF: usize = 8;
/// The window that a tree is built for, in milliseconds.
const WINDOW_MS: i64 = 3_600_000;
/// Prices have this many decimal places, in whole units of the pair's assets.
const PLACES: u32 = 18;
/// Beyond every price, so that sums of two do not overflow.
const HIGHEST: i128 = i128::MAX / 8;

/// Output per input, in whole units scaled by 10^18, before the payout fee and after the protocol fee.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Price(i128);

impl Price {
    /// `output ÷ input`, rounded up.
    pub fn of(output: Minor, input: Minor, charges: &Charges<'_>) -> Option<Self> {
        if input.is_zero() {
            return None;
        }
        let scaled = U512::from(output.get()) * scale(charges);
        Some(Self(signed(scaled.div_ceil(U512::from(input.get())), false)))
    }
}

/// What makes minor units of output per minor unit of input a price in whole units.
fn scale(charges: &Charges<'_>) -> U512 {
    let places = PLACES + u32::from(charges.input.exponent);
    U512::from(10_u8).pow(U512::from(places.saturating_sub(u32::from(charges.output.exponent))))
}

fn signed(magnitude: U512, is_negative: bool) -> i128 {
    let magnitude = i128::try_from(magnitude).unwrap_or(HIGHEST).min(HIGHEST);
    if is_negative { -magnitude } else { magnitude }
}

/// The falling price of one order. Where it is rounded, it is rounded down: an order is never found too late.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Line {
    /// In minor units of output, the payout fee included, times the lifetime.
    top: U512,
    /// Minor units of output that it falls by within the lifetime.
    way: u128,
    /// The input to convert, times the lifetime.
    whole: U512,
    scale: U512,
    from: Timestamp,
}

impl Line {
    /// `None` for an order whose input the fees eat up, or without a lifetime.
    pub fn of(range: &Range, charges: &Charges<'_>) -> Option<Self> {
        let net = charges.net(range.max_input).filter(|net| !net.is_zero())?;
        let gross = charges.gross_for(range.target_output)?;
        let lifetime = U512::from(range.lifetime());
        let whole = Some(U512::from(net.get()) * lifetime).filter(|whole| !whole.is_zero())?;
        // An output is rounded down, so the order is filled up to a unit before the line itself is met.
        let top = U512::from(gross.get().saturating_sub(1)) * lifetime;
        Some(Self { top, way: range.way().get(), whole, scale: scale(charges), from: range.received_at })
    }

    /// Its value at a moment, rounded down.
    pub fn at(&self, now: Timestamp) -> Price {
        let gone = i128::from(now.millis()).saturating_sub(i128::from(self.from.millis()));
        let fallen = U512::from(self.way) * U512::from(gone.unsigned_abs());
        let (height, is_negative) = match gone < 0 {
            true => (self.top + fallen, false),
            false if fallen <= self.top => (self.top - fallen, false),
            false => (fallen - self.top, true),
        };
        let scaled = height * self.scale;
        let price = if is_negative { scaled.div_ceil(self.whole) } else { scaled / self.whole };
        Price(signed(price, is_negative))
    }
}

/// A line in the window of a tree.
#[derive(Debug, Clone, Copy)]
struct Point {
    number: Number,
    /// Its values at the window's begin and end.
    ends: [i128; 2],
}

impl Point {
    fn of(number: Number, line: &Line, begin: Timestamp) -> Self {
        // One less: the mean of two rounded values may be above the rounded mean.
        let value = |at| line.at(at).0.saturating_sub(1);
        Self { number, ends: [value(begin), value(begin.plus_millis(WINDOW_MS))] }
    }
}

/// The least values of the lines below it, at the window's begin and end.
#[derive(Debug, Clone, Copy)]
struct Node {
    least: [i128; 2],
    /// The lines below it, by position.
    first: usize,
    last: usize,
}

/// The lines of one pair and size.
#[derive(Debug, Clone)]
pub struct Index {
    lines: HashMap<Number, Line>,
    begin: Timestamp,
    points: Vec<Point>,
    /// A complete binary tree: the children of `n` are `2n + 1` and `2n + 2`.
    nodes: Vec<Node>,
    /// Added since the tree was built.
    added: Vec<Point>,
    /// Of the tree, and removed since.
    removed: usize,
    /// Lines whose exact value was compared with a price.
    examined: u64,
}

impl Default for Index {
    fn default() -> Self {
        Self {
            lines: HashMap::new(),
            begin: Timestamp::from_millis(0),
            points: Vec::new(),
            nodes: Vec::new(),
            added: Vec::new(),
            removed: 0,
            examined: 0,
        }
    }
}

impl Index {
    pub fn len(&self) -> usize {
        self.lines.len()
    }

    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// How many lines were compared with a price so far.
    pub const fn examined(&self) -> u64 {
        self.examined
    }

    pub fn insert(&mut self, number: Number, line: Line) {
        if self.lines.insert(number, line).is_none() {
            self.added.push(Point::of(number, &line, self.begin));
        }
    }

    pub fn remove(&mut self, number: Number) -> bool {
        let was_there = self.lines.remove(&number).is_some();
        if was_there {
            match self.added.iter().position(|added| added.number == number) {
                Some(at) => drop(self.added.swap_remove(at)),
                None => self.removed += 1,
            }
        }
        was_there
    }

    /// The lines at or below a price, each with its value: the lowest first, of equals the oldest.
    pub fn reached(&mut self, price: Price, now: Timestamp) -> Vec<(Price, Number)> {
        self.prepare(now);
        let (mut found, mut near) = (Vec::new(), Vec::new());
        let mut open = if self.nodes.is_empty() { Vec::new() } else { vec![0_usize] };
        let weight = self.weight(now);
        while let Some(at) = open.pop() {
            let Some(node) = self.nodes.get(at) else { continue };
            if mean(node.least, weight) > price.0 {
                continue;
            }
            let (left, right) = (2 * at + 1, 2 * at + 2);
            if left < self.nodes.len() {
                open.extend([left, right]);
                continue;
            }
            near.extend(self.points.get(node.first..node.last).unwrap_or_default());
        }
        for point in near.iter().chain(&self.added) {
            if mean(point.ends, weight) > price.0 {
                continue;
            }
            let Some(line) = self.lines.get(&point.number) else { continue };
            self.examined += 1;
            let value = line.at(now);
            if value <= price {
                found.push((value, point.number));
            }
        }
        found.sort_unstable();
        // A line that was removed and inserted again is in the tree and among the added ones.
        found.dedup();
        found
    }

    /// The first moment from `now` on at which a line is at or below the price, within the time that the index looks
    /// ahead. `None`: none is; ask again at [`horizon`](Self::horizon).
    pub fn next_reached(&mut self, price: Price, now: Timestamp) -> Option<Timestamp> {
        self.prepare(now);
        // The least of all lines falls: search for the moment at which it has fallen to the price.
        if !self.is_reached(price, self.horizon()) {
            return None;
        }
        let (mut early, mut late) = (now.millis().saturating_sub(1), self.horizon().millis());
        while late.saturating_sub(early) > 1 {
            let middle = early.midpoint(late);
            if self.is_reached(price, Timestamp::from_millis(middle)) {
                late = middle;
            } else {
                early = middle;
            }
        }
        Some(Timestamp::from_millis(late))
    }

    /// The end of the window.
    pub const fn horizon(&self) -> Timestamp {
        self.begin.plus_millis(WINDOW_MS)
    }

    fn is_reached(&self, price: Price, at: Timestamp) -> bool {
        let weight = self.weight(at);
        let is_reached = |point: &Point| {
            mean(point.ends, weight) <= price.0
                && self.lines.get(&point.number).is_some_and(|line| line.at(at) <= price)
        };
        let mut open = if self.nodes.is_empty() { Vec::new() } else { vec![0_usize] };
        while let Some(at_node) = open.pop() {
            let Some(node) = self.nodes.get(at_node) else { continue };
            if mean(node.least, weight) > price.0 {
                continue;
            }
            let (left, right) = (2 * at_node + 1, 2 * at_node + 2);
            if left < self.nodes.len() {
                open.extend([right, left]);
                continue;
            }
            let leaf = self.points.get(node.first..node.last).unwrap_or_default();
            if leaf.iter().any(&is_reached) {
                return true;
            }
        }
        self.added.iter().any(&is_reached)
    }

    /// How far into the window, of [`WINDOW_MS`].
    fn weight(&self, now: Timestamp) -> i128 {
        i128::from(now.millis()).saturating_sub(i128::from(self.begin.millis()))
    }

    /// Builds the tree again when it is due.
    fn prepare(&mut self, now: Timestamp) {
        let is_in_window = (0..i128::from(WINDOW_MS)).contains(&self.weight(now));
        let slack = self.points.len() / 8 + 64;
        if is_in_window && self.added.len() <= slack && self.removed <= slack {
            return;
        }
        self.begin = now;
        self.points = self.lines.iter().map(|(number, line)| Point::of(*number, line, now)).collect();
        self.added.clear();
        self.removed = 0;
        let leaves = self.points.len().div_ceil(LEAF).next_power_of_two();
        let empty = Node { least: [HIGHEST, HIGHEST], first: 0, last: 0 };
        self.nodes = if self.points.is_empty() { Vec::new() } else { vec![empty; 2 * leaves - 1] };
        if !self.points.is_empty() {
            build(&mut self.nodes, &mut self.points, 0, 0, 0);
        }
    }
}

/// Splits the points in halves, by either end in turn.
fn build(nodes: &mut [Node], points: &mut [Point], at: usize, first: usize, end: usize) {
    let mut least = [HIGHEST, HIGHEST];
    for point in points.iter() {
        for (least, value) in least.iter_mut().zip(point.ends) {
            *least = value.min(*least);
        }
    }
    let Some(node) = nodes.get_mut(at) else { return };
    *node = Node { least, first, last: first + points.len() };
    if 2 * at + 1 >= nodes.len() {
        return;
    }
    let half = points.len() / 2;
    if half > 0 {
        points.select_nth_unstable_by_key(half, |point| point.ends.get(end).copied());
    }
    let (left, right) = points.split_at_mut(half);
    build(nodes, left, 2 * at + 1, first, 1 - end);
    build(nodes, right, 2 * at + 2, first + half, 1 - end);
}

/// The value between two ends, `weight` of [`WINDOW_MS`] after the first, rounded down.
fn mean([begin, end]: [i128; 2], weight: i128) -> i128 {
    let window = i128::from(WINDOW_MS);
    // In parts, because a product of two could overflow.
    let way = end.saturating_sub(begin);
    let (whole, rest) = (way.div_euclid(window), way.rem_euclid(window));
    begin.saturating_add(whole.saturating_mul(weight)).saturating_add((rest * weight).div_euclid(window))
}

#[cfg(test)]
mod tests;

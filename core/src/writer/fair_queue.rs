//! The scheduling of the writer's queue, a fair queue over flows (RFC 8290 has the term): pure.
//!
//! ```text
//! tenant ─┬─ REST        ┐
//!         ├─ session A   ├─ one group: its flows take turns      ┐
//!         └─ session B   ┘                                       ├─ the groups of a class take turns,
//! tenant ─── …                                                   │  the two classes take turns
//! settlement of a tenant ─ one group of the class Service        ┘
//! ```
//!
//! A flow is first in, first out; no other order is guaranteed. A group of the class Entry can use as many places as
//! are still free, so that one tenant alone fills half of them and leaves room for the next.
//!
//! A tenant whose units failed recently is isolated: its units get batches of their own, between the others.
//!
//! Kept by `core/src/writer/fair_queue/tests.rs::a_flood_takes_turns_with_a_single_unit` and
//! `core/src/writer/fair_queue/tests.rs::an_isolated_tenant_shares_no_batch_until_its_batches_succeed`.

use std::collections::{HashMap, VecDeque};

use dvp_store::orders::intents::Tenant;

/// The source of a unit. Units of one flow keep their order.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum UnitSource {
    Rest,
    /// A FIX session, by its id.
    Session(String),
    /// The service's own work on settlements.
    Settlement,
    /// The same, for work that could not be written before: each item is tried alone.
    Suspect,
}

/// The flow of a unit.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Flow {
    pub tenant: Tenant,
    pub source: UnitSource,
}

impl Flow {
    const fn class(&self) -> Class {
        match self.source {
            UnitSource::Rest | UnitSource::Session(_) => Class::Entry,
            UnitSource::Settlement => Class::Service,
            UnitSource::Suspect => Class::Suspect,
        }
    }

    /// Are both flows of one tenant and one class?
    pub(super) fn shares_turns_with(&self, other: &Self) -> bool {
        self.class() == other.class() && self.tenant == other.tenant
    }

    fn group(&self) -> GroupKey {
        GroupKey { class: self.class(), tenant: self.tenant.clone() }
    }
}

/// The classes that take turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Class {
    Entry,
    Service,
    Suspect,
}

impl Class {
    pub(super) const ALL: [Self; 3] = [Self::Entry, Self::Service, Self::Suspect];

    const fn index(self) -> usize {
        match self {
            Self::Entry => 0,
            Self::Service => 1,
            Self::Suspect => 2,
        }
    }

    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Entry => "entry",
            Self::Service => "settlement",
            Self::Suspect => "suspect",
        }
    }
}

/// A tenant's flows of one class.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct GroupKey {
    pub(super) class: Class,
    pub(super) tenant: Tenant,
}

/// The capacity of each class.
#[derive(Debug, Clone, Copy)]
pub(super) struct Places {
    pub(super) entry: usize,
    pub(super) service: usize,
}

/// Units to be written together, each with its flow; units of one group are adjacent.
#[derive(Debug)]
pub(super) struct NextBatch<T> {
    pub(super) units: Vec<(Flow, T)>,
    /// All units are of one isolated tenant, or one suspect.
    pub(super) apart: bool,
}

/// The maximum number of units of an isolated group in one batch.
const APART_UNITS: usize = 128;
/// The number of consecutive batches without a failure that end a tenant's isolation.
const APART_BATCHES: u32 = 16;

pub(super) struct FairQueue<T> {
    places: Places,
    groups: HashMap<GroupKey, Group<T>>,
    /// Groups with waiting units, in the order of their turns.
    entry: VecDeque<GroupKey>,
    service: VecDeque<GroupKey>,
    apart: VecDeque<GroupKey>,
    /// Isolated tenants, and the number of good batches they still need.
    flagged: HashMap<GroupKey, u32>,
    queued: [usize; 3],
    was_apart: bool,
}

struct Group<T> {
    flows: HashMap<UnitSource, VecDeque<T>>,
    /// Flows with waiting units, in the order of their turns.
    turns: VecDeque<UnitSource>,
    queued: usize,
}

impl<T> Default for Group<T> {
    fn default() -> Self {
        Self { flows: HashMap::new(), turns: VecDeque::new(), queued: 0 }
    }
}

impl<T> Group<T> {
    fn flow(&mut self, source: UnitSource) -> &mut VecDeque<T> {
        self.queued += 1;
        if !self.flows.contains_key(&source) {
            self.turns.push_back(source.clone());
        }
        self.flows.entry(source).or_default()
    }

    fn pop(&mut self) -> Option<(UnitSource, T)> {
        let source = self.turns.pop_front()?;
        let flow = self.flows.get_mut(&source)?;
        let unit = flow.pop_front()?;
        self.queued -= 1;
        if flow.is_empty() {
            self.flows.remove(&source);
        } else {
            self.turns.push_back(source.clone());
        }
        Some((source, unit))
    }
}

impl<T> FairQueue<T> {
    pub(super) fn new(places: Places) -> Self {
        Self {
            places,
            groups: HashMap::new(),
            entry: VecDeque::new(),
            service: VecDeque::new(),
            apart: VecDeque::new(),
            flagged: HashMap::new(),
            queued: [0; 3],
            was_apart: false,
        }
    }

    /// Is there a free place for one more unit of the flow?
    pub(super) fn admits(&self, flow: &Flow) -> bool {
        match flow.class() {
            Class::Entry => {
                let free = self.places.entry.saturating_sub(self.queued(Class::Entry));
                let held = self.groups.get(&flow.group()).map_or(0, |group| group.queued);
                held < free
            }
            class @ (Class::Service | Class::Suspect) => self.queued(class) < self.places.service,
        }
    }

    pub(super) const fn queued(&self, class: Class) -> usize {
        self.queued[class.index()]
    }

    /// Appends a unit to its flow, whether or not there is a free place.
    pub(super) fn push(&mut self, flow: Flow, unit: T) {
        self.enter(&flow);
        self.groups.entry(flow.group()).or_default().flow(flow.source).push_back(unit);
    }

    /// Returns units that were taken and not attempted to the front of their flows.
    pub(super) fn put_back(&mut self, units: Vec<(Flow, T)>) {
        for (flow, unit) in units.into_iter().rev() {
            self.enter(&flow);
            self.groups.entry(flow.group()).or_default().flow(flow.source).push_front(unit);
        }
    }

    fn enter(&mut self, flow: &Flow) {
        let key = flow.group();
        self.queued[key.class.index()] += 1;
        if !self.groups.contains_key(&key) {
            self.turns_of(&key).push_back(key);
        }
    }

    fn turns_of(&mut self, key: &GroupKey) -> &mut VecDeque<GroupKey> {
        if self.flagged.contains_key(key) {
            return &mut self.apart;
        }
        match key.class {
            Class::Entry => &mut self.entry,
            Class::Service => &mut self.service,
            Class::Suspect => &mut self.apart,
        }
    }

    /// The next batch of at most `max` units. Batches of isolated tenants alternate with shared ones.
    pub(super) fn take(&mut self, max: usize) -> Option<NextBatch<T>> {
        let has_shared = !self.entry.is_empty() || !self.service.is_empty();
        self.was_apart = !self.apart.is_empty() && (!self.was_apart || !has_shared);
        let units = if self.was_apart { self.take_apart(max) } else { self.take_shared(max) };
        (!units.is_empty()).then_some(NextBatch { units, apart: self.was_apart })
    }

    /// All waiting units, regardless of turns.
    pub(super) fn take_all(&mut self) -> Vec<(Flow, T)> {
        let mut all = Vec::new();
        for (key, mut group) in std::mem::take(&mut self.groups) {
            while let Some((source, unit)) = group.pop() {
                all.push((Flow { tenant: key.tenant.clone(), source }, unit));
            }
        }
        for turns in [&mut self.entry, &mut self.service, &mut self.apart] {
            turns.clear();
        }
        self.queued = [0; 3];
        all
    }

    fn take_apart(&mut self, max: usize) -> Vec<(Flow, T)> {
        let Some(key) = self.apart.pop_front() else { return Vec::new() };
        let max = if key.class == Class::Suspect { 1 } else { max.min(APART_UNITS) };
        let mut units = Vec::new();
        while units.len() < max
            && let Some(unit) = self.pop(&key)
        {
            units.push(unit);
        }
        if self.groups.contains_key(&key) {
            self.apart.push_back(key);
        }
        units
    }

    fn take_shared(&mut self, max: usize) -> Vec<(Flow, T)> {
        let mut by_group: Vec<Vec<(Flow, T)>> = Vec::new();
        let mut places: HashMap<GroupKey, usize> = HashMap::new();
        let mut is_entry = true;
        for _ in 0..max {
            let turns = match (is_entry, self.entry.is_empty(), self.service.is_empty()) {
                (_, true, true) => break,
                (true, false, _) | (false, false, true) => &mut self.entry,
                (false, _, false) | (true, true, false) => &mut self.service,
            };
            is_entry = !is_entry;
            let Some(key) = turns.pop_front() else { break };
            let Some(unit) = self.pop(&key) else { continue };
            let place = *places.entry(key.clone()).or_insert_with(|| {
                by_group.push(Vec::new());
                by_group.len() - 1
            });
            if let Some(group) = by_group.get_mut(place) {
                group.push(unit);
            }
            if self.groups.contains_key(&key) {
                self.turns_of(&key).push_back(key);
            }
        }
        by_group.into_iter().flatten().collect()
    }

    fn pop(&mut self, key: &GroupKey) -> Option<(Flow, T)> {
        let group = self.groups.get_mut(key)?;
        let (source, unit) = group.pop()?;
        if group.queued == 0 {
            self.groups.remove(key);
        }
        self.queued[key.class.index()] -= 1;
        Some((Flow { tenant: key.tenant.clone(), source }, unit))
    }

    /// A unit of the flow failed: its tenant is isolated for a while.
    pub(super) fn set_apart(&mut self, flow: &Flow) {
        let key = flow.group();
        if key.class != Class::Entry {
            return;
        }
        if self.flagged.insert(key.clone(), APART_BATCHES).is_none() && self.groups.contains_key(&key) {
            self.entry.retain(|waiting| *waiting != key);
            self.apart.push_back(key);
        }
    }

    /// A batch of this isolated tenant was written.
    pub(super) fn was_good(&mut self, flow: &Flow) {
        let key = flow.group();
        let Some(left) = self.flagged.get_mut(&key) else { return };
        *left -= 1;
        if *left == 0 {
            self.flagged.remove(&key);
            if self.groups.contains_key(&key) {
                self.apart.retain(|waiting| *waiting != key);
                self.entry.push_back(key);
            }
        }
    }

    /// The number of isolated tenants.
    pub(super) fn tenants_apart(&self) -> usize {
        self.flagged.len()
    }
}

#[cfg(test)]
mod tests;

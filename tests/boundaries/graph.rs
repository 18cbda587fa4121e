//! A directed graph of names, and its cycles.

use std::collections::{BTreeMap, BTreeSet};

/// Dependencies by name. Every name is a key.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Graph {
    edges: BTreeMap<String, BTreeSet<String>>,
}

impl Graph {
    pub(crate) fn add(&mut self, name: &str) {
        self.edges.entry(name.to_owned()).or_default();
    }

    pub(crate) fn add_edge(&mut self, from: &str, to: &str) {
        self.add(to);
        self.edges.entry(from.to_owned()).or_default().insert(to.to_owned());
    }

    /// The edges between some names.
    pub(crate) fn within(&self, names: &[&str]) -> Vec<String> {
        let is_one = |name: &str| names.contains(&name);
        let edges = self.edges.iter().filter(|(from, _)| is_one(from));
        let edges = edges.flat_map(|(from, targets)| targets.iter().map(move |to| (from, to)));
        edges.filter(|(_, to)| is_one(to)).map(|(from, to)| format!("{from} -> {to}")).collect()
    }

    fn reached_from(&self, name: &str) -> BTreeSet<&str> {
        let mut reached = BTreeSet::new();
        let mut open: Vec<&str> = vec![name];
        while let Some(next) = open.pop() {
            for target in self.edges.get(next).into_iter().flatten() {
                if reached.insert(target.as_str()) {
                    open.push(target);
                }
            }
        }
        reached
    }

    /// The groups of names that depend on each other in a circle, each in the order of its names.
    pub(crate) fn cycles(&self) -> Vec<Vec<&str>> {
        let reached: BTreeMap<&str, BTreeSet<&str>> =
            self.edges.keys().map(|name| (name.as_str(), self.reached_from(name))).collect();
        let mut seen = BTreeSet::new();
        let mut cycles = Vec::new();
        for (name, targets) in &reached {
            if !targets.contains(name) || seen.contains(name) {
                continue;
            }
            let returns = |other: &&&str| reached.get(**other).is_some_and(|back| back.contains(name));
            let cycle: Vec<&str> = targets.iter().filter(returns).copied().collect();
            seen.extend(cycle.iter().copied());
            cycles.push(cycle);
        }
        cycles
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cycle_is_one_group() {
        let mut graph = Graph::default();
        for (from, to) in [("a", "b"), ("b", "c"), ("c", "a"), ("top", "a"), ("c", "low"), ("x", "x")] {
            graph.add_edge(from, to);
        }
        assert_eq!(graph.cycles(), [vec!["a", "b", "c"], vec!["x"]]);
    }
}

//! A directed graph of names: dependencies, layers and cycles.

use std::collections::{BTreeMap, BTreeSet};

/// Dependencies by name. Every name is a key.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Graph {
    edges: BTreeMap<String, BTreeSet<String>>,
}

impl Graph {
    pub fn add(&mut self, name: &str) {
        self.edges.entry(name.to_owned()).or_default();
    }

    pub fn add_edge(&mut self, from: &str, to: &str) {
        self.add(to);
        self.edges.entry(from.to_owned()).or_default().insert(to.to_owned());
    }

    pub fn edges(&self) -> impl Iterator<Item = (&str, &BTreeSet<String>)> {
        self.edges.iter().map(|(name, targets)| (name.as_str(), targets))
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
    pub fn cycles(&self) -> Vec<Vec<&str>> {
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

    /// Names by layer, the lowest first: a name is above everything it depends on. Names of a cycle share a layer.
    pub fn layers(&self) -> Vec<Vec<&str>> {
        let cycles = self.cycles();
        let in_cycle = |a: &str, b: &str| cycles.iter().any(|cycle| cycle.contains(&a) && cycle.contains(&b));
        let mut height: BTreeMap<&str, usize> = self.edges.keys().map(|name| (name.as_str(), 0)).collect();
        loop {
            let mut changed = false;
            for (from, targets) in self.edges() {
                for to in targets {
                    let below = height.get(to.as_str()).copied().unwrap_or(0);
                    let least = if in_cycle(from, to) { below } else { below + 1 };
                    if let Some(own) = height.get_mut(from).filter(|own| **own < least) {
                        *own = least;
                        changed = true;
                    }
                }
            }
            if !changed {
                break;
            }
        }
        let mut layers: Vec<Vec<&str>> = Vec::new();
        for (name, level) in height {
            if layers.len() <= level {
                layers.resize(level + 1, Vec::new());
            }
            if let Some(layer) = layers.get_mut(level) {
                layer.push(name);
            }
        }
        layers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(edges: &[(&str, &str)]) -> Graph {
        let mut graph = Graph::default();
        for (from, to) in edges {
            graph.add_edge(from, to);
        }
        graph
    }

    #[test]
    fn layers_start_at_crates_without_dependencies() {
        let graph = graph(&[("app", "core"), ("core", "domain"), ("app", "domain"), ("tool", "domain")]);
        assert_eq!(graph.layers(), [vec!["domain"], vec!["core", "tool"], vec!["app"]]);
        assert!(graph.cycles().is_empty());
    }

    #[test]
    fn a_cycle_is_one_group() {
        let graph = graph(&[("a", "b"), ("b", "c"), ("c", "a"), ("top", "a"), ("c", "low"), ("x", "x")]);
        assert_eq!(graph.cycles(), [vec!["a", "b", "c"], vec!["x"]]);
        assert_eq!(graph.layers(), [vec!["low", "x"], vec!["a", "b", "c"], vec!["top"]]);
    }
}

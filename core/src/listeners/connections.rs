//! The open connections of each source: one host cannot hold all that a server has.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The open connections by source. Cheap to clone.
#[derive(Debug)]
pub struct Connections<Source>(Arc<Mutex<HashMap<Source, usize>>>);

/// One connection of a source.
#[derive(Debug)]
pub struct Connected<Source: Eq + Hash> {
    connections: Connections<Source>,
    source: Source,
}

impl<Source: Eq + Hash + Copy> Connections<Source> {
    /// `None`: the source has `limit` connections already.
    pub fn enter(&self, source: Source, limit: usize) -> Option<Connected<Source>> {
        let mut counts = self.lock();
        let count = counts.get(&source).copied().unwrap_or_default();
        if count >= limit {
            return None;
        }
        counts.insert(source, count.saturating_add(1));
        drop(counts);
        Some(Connected { connections: self.clone(), source })
    }
}

impl<Source> Connections<Source> {
    fn lock(&self) -> MutexGuard<'_, HashMap<Source, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<Source> Clone for Connections<Source> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<Source> Default for Connections<Source> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<Source: Eq + Hash> Drop for Connected<Source> {
    fn drop(&mut self) {
        let mut counts = self.connections.lock();
        match counts.get_mut(&self.source) {
            Some(count) if *count > 1 => *count -= 1,
            Some(_) | None => drop(counts.remove(&self.source)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_of_a_source_are_bounded_and_released_at_their_end() {
        let connections = Connections::default();
        let held: Vec<_> = (0..2).filter_map(|_| connections.enter("one", 2)).collect();
        assert_eq!(held.len(), 2);
        assert!(connections.enter("one", 2).is_none());
        assert!(connections.enter("another", 2).is_some());
        drop(held);
        assert!(connections.enter("one", 2).is_some());
        assert!(connections.lock().is_empty());
    }
}

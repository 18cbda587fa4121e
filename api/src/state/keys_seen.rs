//! Idempotency keys of recent requests: a hint whether a look-up is worthwhile.

use std::collections::HashSet;
use std::mem;
use std::sync::{Mutex, PoisonError};

use uuid::Uuid;

/// How many idempotency keys are remembered, twice.
const SEEN_MAX: usize = 1 << 16;

/// Recent idempotency keys: a hint, because the writer finds every repetition itself. A repetition that reaches the
/// writer makes it check later requests too, which is slower.
#[derive(Default)]
pub(crate) struct KeysSeen {
    memory: Mutex<(HashSet<Uuid>, HashSet<Uuid>)>,
}

impl KeysSeen {
    /// Remembers a key. `true`: it was seen before.
    pub(crate) fn note(&self, key: Uuid) -> bool {
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        let (recent, older) = &mut *memory;
        if recent.len() >= SEEN_MAX {
            *older = mem::take(recent);
        }
        !recent.insert(key) || older.contains(&key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_recent_keys_are_remembered_up_to_the_capacity() {
        let keys = KeysSeen::default();
        let key = |n: usize| Uuid::from_u128(u128::try_from(n).unwrap());
        for n in 0..=SEEN_MAX {
            assert!(!keys.note(key(n)));
        }
        assert!(keys.note(key(0)) && keys.note(key(SEEN_MAX)));
        for n in 0..3 * SEEN_MAX {
            keys.note(key(SEEN_MAX + 1 + n));
        }
        assert!(!keys.note(key(1)));
        let memory = keys.memory.lock().unwrap();
        assert!(memory.0.len() <= SEEN_MAX && memory.1.len() <= SEEN_MAX);
    }
}

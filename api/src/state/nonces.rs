//! Nonces of signed requests, remembered as long as their timestamp is accepted.
//!
//! The memory is bounded and this process's own: repetitions of nonces that it dropped early, or that another process
//! saw, are still refused by the intentId, which is used once. A body without an id of its own has its nonce in the
//! database too ([`SignedNonce`](crate::access::signature::SignedNonce)). The timestamp window is the guarantee
//! (contract section 5).

use std::collections::{BTreeSet, HashSet};

use dvp_domain::canonical::sha256;
use parking_lot::Mutex;

/// The maximum number of nonces; beyond it those that expire first are dropped.
const NONCES_MAX: usize = 1 << 19;

#[derive(Default)]
struct Memory {
    seen: HashSet<[u8; 32]>,
    by_expiry: BTreeSet<(u64, [u8; 32])>,
}

#[derive(Default)]
pub(crate) struct Nonces {
    memory: Mutex<Memory>,
}

impl Nonces {
    /// Remembers a nonce of a key until `expires` (Unix seconds). `false`: it was seen before.
    pub(crate) fn first_use(&self, key_id: &str, nonce: &str, now: u64, expires: u64) -> bool {
        // Neither part can contain a line break, so that no two pairs have the same text.
        let digest = sha256(&format!("{key_id}\n{nonce}"));
        let mut memory = self.memory.lock();
        let Memory { seen, by_expiry } = &mut *memory;
        while let Some(first) = by_expiry.first().copied() {
            if first.0 >= now && by_expiry.len() < NONCES_MAX {
                break;
            }
            by_expiry.remove(&first);
            seen.remove(&first.1);
        }
        let is_new = seen.insert(digest);
        if is_new {
            by_expiry.insert((expires, digest));
        }
        is_new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nonce_is_used_once_per_key_until_it_expires() {
        let nonces = Nonces::default();
        assert!(nonces.first_use("key_1", "n", 100, 400));
        assert!(!nonces.first_use("key_1", "n", 400, 700));
        assert!(nonces.first_use("key_2", "n", 400, 700));
        assert!(nonces.first_use("key_1", "n", 401, 701));
    }
}

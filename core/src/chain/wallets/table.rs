//! The table of the wallet cache: which entries are fresh, which are due to be read again, which are dropped.
//!
//! Time is an argument. Entries belong to the partner whose order created them, so that one partner's orders do not
//! displace another's: when the table is full, the partner with the most entries loses its least recently used one.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::time::{Duration, Instant};

use lru::LruCache;

use crate::chain::{ChainHead, WalletFacts, WalletKey};

/// The maximum age of cached data, counted from before the request. It is long enough that a few failed rounds cost
/// nothing, and short enough that an emptied wallet, or a permit used elsewhere, is accepted for a block or two at
/// most; such an order fails at its lock, before any payment.
pub const AGE_MAX: Duration = Duration::from_secs(5);
/// A wallet unused for this time is no longer refreshed.
pub(crate) const IDLE_MAX: Duration = Duration::from_secs(600);
/// The maximum number of entries: a round reads them all, in batches of [`super::BATCH_WALLETS`].
pub(crate) const WALLETS_MAX: usize = 2048;

/// The data and its age.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Dated {
    pub(crate) facts: WalletFacts,
    /// As of this block, or of a later one.
    pub(crate) head: ChainHead,
    pub(crate) requested_at: Instant,
}

impl Dated {
    fn is_fresh(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.requested_at) <= AGE_MAX
    }
}

#[derive(Debug)]
struct Entry {
    dated: Dated,
    used_at: Instant,
}

impl Entry {
    /// An endpoint that lags behind the previous one does not overwrite fresh data.
    fn take(&mut self, newer: Dated, now: Instant) {
        if newer.head.number >= self.dated.head.number || !self.dated.is_fresh(now) {
            self.dated = newer;
        }
    }
}

#[derive(Debug)]
pub(crate) struct Table {
    by_partner: HashMap<String, LruCache<WalletKey, Entry>>,
    len: usize,
    len_max: usize,
}

impl Table {
    pub(crate) fn new(len_max: usize) -> Self {
        Self { by_partner: HashMap::new(), len: 0, len_max }
    }

    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// Fresh data of a wallet that an order names.
    pub(crate) fn find(&mut self, partner_id: &str, wallet: &WalletKey, now: Instant) -> Option<WalletFacts> {
        let entry = self.by_partner.get_mut(partner_id)?.get_mut(wallet)?;
        entry.used_at = now;
        entry.dated.is_fresh(now).then_some(entry.dated.facts)
    }

    /// Stores the result of an order's look-up.
    pub(crate) fn insert(&mut self, partner_id: &str, wallet: WalletKey, dated: Dated, now: Instant) {
        if let Some(entry) = self.by_partner.get_mut(partner_id).and_then(|of| of.get_mut(&wallet)) {
            entry.used_at = now;
            return entry.take(dated, now);
        }
        if self.len >= self.len_max {
            self.evict();
        }
        let of = self.by_partner.entry(partner_id.to_owned()).or_insert_with(LruCache::unbounded);
        of.push(wallet, Entry { dated, used_at: now });
        self.len += 1;
    }

    /// Stores the results of a round, for every partner that uses the wallet.
    pub(crate) fn refresh(&mut self, wallet: &WalletKey, dated: Dated, now: Instant) {
        for of in self.by_partner.values_mut() {
            if let Some(entry) = of.peek_mut(wallet) {
                entry.take(dated, now);
            }
        }
    }

    /// Data that was current as of `head` was still current at `asked_at`, when that was the latest block.
    pub(crate) fn confirm(&mut self, head: ChainHead, requested_at: Instant) {
        let entries = self.by_partner.values_mut().flat_map(|of| of.iter_mut().map(|(_, entry)| entry));
        for entry in entries.filter(|entry| entry.dated.head == head) {
            entry.dated.requested_at = entry.dated.requested_at.max(requested_at);
        }
    }

    pub(crate) fn drop_idle(&mut self, now: Instant) {
        self.by_partner.retain(|_, of| {
            of.retain(|_, entry| now.saturating_duration_since(entry.used_at) <= IDLE_MAX);
            !of.is_empty()
        });
        self.len = self.by_partner.values().map(LruCache::len).sum();
    }

    /// The wallets without data as of `head`, the most recently used first.
    pub(crate) fn due(&self, head: ChainHead) -> Vec<WalletKey> {
        let entries = self.by_partner.values().flatten().filter(|(_, entry)| entry.dated.head != head);
        let mut last_used: HashMap<&WalletKey, Instant> = HashMap::new();
        for (wallet, entry) in entries {
            let used_at = last_used.entry(wallet).or_insert(entry.used_at);
            *used_at = entry.used_at.max(*used_at);
        }
        let mut due = Vec::from_iter(last_used);
        due.sort_by_key(|(_, used_at)| Reverse(*used_at));
        due.into_iter().map(|(wallet, _)| wallet.clone()).collect()
    }

    pub(crate) fn oldest(&self, now: Instant) -> Duration {
        let entries = self.by_partner.values().flatten();
        let ages = entries.map(|(_, entry)| now.saturating_duration_since(entry.dated.requested_at));
        ages.max().unwrap_or_default()
    }

    /// Looks at partners, not at their wallets: a full table displaces an entry for every new wallet.
    fn evict(&mut self) {
        let largest = self.by_partner.iter().max_by_key(|(_, of)| of.len());
        let Some(partner_id) = largest.map(|(partner_id, _)| partner_id.clone()) else { return };
        let Some(of) = self.by_partner.get_mut(&partner_id) else { return };
        if of.pop_lru().is_some() {
            self.len -= 1;
        }
        if of.is_empty() {
            self.by_partner.remove(&partner_id);
        }
    }
}

#[cfg(test)]
mod tests {
    use dvp_domain::chain::BlockNumber;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn wallet(n: u32) -> WalletKey {
        WalletKey { chain_id: 1, owner: format!("0x{n:040x}"), token: "0xaa".to_owned() }
    }

    const fn head(number: u64) -> ChainHead {
        ChainHead { number: BlockNumber(number), hash: [number.to_le_bytes()[0]; 32] }
    }

    fn dated(nonce: u128, number: u64, requested_at: Instant) -> Dated {
        Dated { facts: WalletFacts { nonce, balance: 5, allowance: 5 }, head: head(number), requested_at }
    }

    fn nonce(table: &mut Table, partner: &str, n: u32, now: Instant) -> Option<u128> {
        table.find(partner, &wallet(n), now).map(|facts| facts.nonce)
    }

    #[test]
    fn facts_are_used_up_to_the_age_limit_counted_from_the_request() {
        let start = Instant::now();
        let mut table = Table::new(10);
        table.insert("acme", wallet(1), dated(7, 1, start), start + SECOND);
        assert_eq!(nonce(&mut table, "acme", 1, start + AGE_MAX), Some(7));
        assert_eq!(nonce(&mut table, "acme", 1, start + AGE_MAX + Duration::from_millis(1)), None);
        assert_eq!(nonce(&mut table, "acme", 2, start), None, "another wallet");
        assert_eq!(nonce(&mut table, "globex", 1, start), None, "another partner");
    }

    #[test]
    fn an_unchanged_head_keeps_facts_fresh_without_reading_them() {
        let start = Instant::now();
        let mut table = Table::new(10);
        table.insert("acme", wallet(1), dated(1, 5, start), start);
        table.insert("acme", wallet(2), dated(2, 4, start), start);
        assert_eq!(table.due(head(5)), [wallet(2)]);
        table.confirm(head(5), start + 4 * SECOND);
        assert_eq!(nonce(&mut table, "acme", 1, start + 9 * SECOND), Some(1));
        assert_eq!(nonce(&mut table, "acme", 2, start + 9 * SECOND), None);
        let reorganized = ChainHead { hash: [0xff; 32], ..head(5) };
        assert_eq!(table.due(reorganized).len(), 2, "the same height is not the same block");
    }

    #[test]
    fn a_lagging_endpoint_does_not_replace_fresh_data() {
        let start = Instant::now();
        let mut table = Table::new(10);
        table.insert("acme", wallet(1), dated(3, 9, start), start);
        table.refresh(&wallet(1), dated(2, 8, start + SECOND), start + SECOND);
        assert_eq!(nonce(&mut table, "acme", 1, start + SECOND), Some(3));
        table.refresh(&wallet(1), dated(4, 10, start + SECOND), start + SECOND);
        assert_eq!(nonce(&mut table, "acme", 1, start + SECOND), Some(4));
        // A chain that was reorganized to a lower height is accepted once the data is stale.
        let later = start + 2 * AGE_MAX;
        table.refresh(&wallet(1), dated(3, 9, later), later);
        assert_eq!(nonce(&mut table, "acme", 1, later), Some(3));
    }

    #[test]
    fn a_wallet_of_two_partners_is_read_once_and_cached_for_both() {
        let start = Instant::now();
        let mut table = Table::new(10);
        table.insert("acme", wallet(1), dated(1, 1, start), start);
        table.insert("globex", wallet(1), dated(1, 1, start), start + SECOND);
        table.insert("acme", wallet(2), dated(1, 1, start), start + 2 * SECOND);
        assert_eq!(table.due(head(2)), [wallet(2), wallet(1)], "last used first");
        table.refresh(&wallet(1), dated(2, 2, start + SECOND), start + SECOND);
        for partner in ["acme", "globex"] {
            assert_eq!(nonce(&mut table, partner, 1, start + SECOND), Some(2));
        }
    }

    #[test]
    fn a_flood_of_wallets_displaces_only_its_own_partners_entries() {
        let start = Instant::now();
        let mut table = Table::new(8);
        table.insert("good", wallet(1), dated(1, 1, start), start);
        table.insert("good", wallet(2), dated(2, 1, start), start);
        for n in 100..1100 {
            let at = start + Duration::from_micros(u64::from(n));
            table.insert("hostile", wallet(n), dated(0, 1, at), at);
            assert!(table.len() <= 8);
        }
        assert_eq!(nonce(&mut table, "good", 1, start + SECOND), Some(1));
        assert_eq!(nonce(&mut table, "good", 2, start + SECOND), Some(2));
        assert_eq!(nonce(&mut table, "hostile", 1099, start + SECOND), Some(0));
        assert_eq!(
            nonce(&mut table, "hostile", 1093, start + SECOND),
            None,
            "used before the ones that stayed"
        );
    }

    #[test]
    fn a_wallet_without_orders_is_dropped() {
        let start = Instant::now();
        let mut table = Table::new(8);
        table.insert("acme", wallet(1), dated(1, 1, start), start);
        table.insert("acme", wallet(2), dated(1, 1, start), start);
        let used = start + IDLE_MAX / 2;
        nonce(&mut table, "acme", 2, used);
        table.drop_idle(start + IDLE_MAX + SECOND);
        assert_eq!(table.due(head(2)), [wallet(2)]);
        assert_eq!(table.len(), 1);
        table.drop_idle(used + IDLE_MAX + SECOND);
        assert_eq!((table.len(), table.oldest(start)), (0, Duration::ZERO));
    }
}

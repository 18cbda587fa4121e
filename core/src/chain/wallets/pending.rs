//! The holds of a wallet's live orders: permit nonces, and amounts of tokens.
//!
//! A wallet's nonces are used on the chain one after the other, so an order whose nonce is not the next one would wait
//! for permits that may never be signed. The next nonce is the lowest from the chain's own nonce on that no live order
//! holds. An order that ends before its lock releases its nonce; later orders wait until a new permit with that nonce
//! is signed.
//!
//! Nonces below the chain's are used, and their amounts have left the balance: they are not counted. A hold therefore
//! outlives its lock for some time, so that data read before the lock stays consistent.
//!
//! The transaction that accepts an order reads the holds and adds its own, so that one of several concurrent orders
//! succeeds. A hold is kept for an hour after its lock, which a reorganization may remove.
//!
//! Kept by `core/tests/it/acceptance.rs::of_concurrent_orders_with_one_nonce_exactly_one_is_accepted` and
//! `core/tests/it/acceptance.rs::a_lock_counts_once_even_if_the_wallet_was_read_before_it`.

use std::collections::{BTreeMap, HashMap};

use dvp_domain::permit::PermitDefect;
use dvp_store::orders::permits::PermitHold;
use dvp_store::orders::ranges::NewRestingRange;

use crate::chain::WalletFacts;

/// The holds on one wallet.
#[derive(Debug, Default)]
pub(crate) struct PendingPermits {
    by_nonce: BTreeMap<u128, (String, u128)>,
    /// The sum held of a token from a nonce on, where it was requested.
    sums: HashMap<(String, u128), u128>,
    /// The range orders among them that wait for the market.
    resting: BTreeMap<u128, NewRestingRange>,
}

impl PendingPermits {
    /// Adds a hold, of the database or of an order accepted since.
    pub(crate) fn hold(&mut self, hold: &PermitHold) {
        let PermitHold { nonce, token, amount, .. } = hold;
        for ((of, from), sum) in &mut self.sums {
            if of == token && from <= nonce {
                *sum = sum.saturating_add(*amount);
            }
        }
        self.by_nonce.insert(*nonce, (token.clone(), *amount));
    }

    /// Adds the hold of a range order that waits for the market: its cap.
    pub(crate) fn rest(&mut self, hold: &PermitHold, range: NewRestingRange) {
        self.hold(hold);
        self.resting.insert(hold.nonce, range);
    }

    /// The order was filled: what it locks takes the place of its cap.
    pub(crate) fn end_rest(&mut self, hold: &PermitHold) {
        self.resting.remove(&hold.nonce);
        self.by_nonce.insert(hold.nonce, (hold.token.clone(), hold.amount));
        self.sums.clear();
    }

    /// The orders that rest with a nonce from the chain's own on and before another one.
    pub(crate) fn resting_before(&self, from: u128, nonce: u128) -> impl Iterator<Item = &NewRestingRange> {
        let from = from.min(nonce);
        self.resting.range(from..nonce).map(|(_, range)| range)
    }

    /// Whether a resting order's permit can be used now, for `amount` in place of its hold.
    pub(crate) fn check_held(
        &self,
        facts: &WalletFacts,
        token: &str,
        nonce: u128,
        amount: u128,
    ) -> Result<(), PermitDefect> {
        let next = self.next(facts.nonce);
        if nonce < facts.nonce {
            return Err(PermitDefect::NonceUsed { next: facts.nonce });
        }
        if nonce >= next {
            return Err(PermitDefect::NonceGap { next });
        }
        let others = self.by_nonce.range(facts.nonce..).filter(|(at, (of, _))| **at != nonce && of == token);
        facts.check(others.fold(amount, |sum, (_, (_, held))| sum.saturating_add(*held)))
    }

    pub(crate) fn holds(&self, nonce: u128) -> bool {
        self.by_nonce.contains_key(&nonce)
    }

    /// Whether an order with this nonce can be accepted.
    pub(crate) fn check_nonce(&self, facts: &WalletFacts, nonce: u128) -> Result<(), PermitDefect> {
        let next = self.next(facts.nonce);
        if nonce == next {
            return Ok(());
        }
        Err(if nonce < facts.nonce {
            PermitDefect::NonceUsed { next }
        } else if self.holds(nonce) {
            PermitDefect::NonceHeld { next }
        } else {
            PermitDefect::NonceGap { next }
        })
    }

    /// Whether the balance and the allowance cover the holds and this amount.
    pub(crate) fn check_funds(
        &mut self,
        facts: &WalletFacts,
        token: &str,
        amount: u128,
    ) -> Result<(), PermitDefect> {
        // Wallet data ends at 2^128 - 1 as well: no balance covers a larger sum.
        let needed = self.held_from(facts.nonce, token).checked_add(amount);
        needed.map_or(Err(PermitDefect::Balance { held: facts.balance, needed: u128::MAX }), |needed| {
            facts.check(needed)
        })
    }

    pub(crate) fn next(&self, from: u128) -> u128 {
        let mut next = from;
        for nonce in self.by_nonce.range(from..).map(|(nonce, _)| *nonce) {
            if nonce != next {
                break;
            }
            next = next.saturating_add(1);
        }
        next
    }

    fn held_from(&mut self, from: u128, token: &str) -> u128 {
        let by_nonce = &self.by_nonce;
        *self.sums.entry((token.to_owned(), from)).or_insert_with(|| {
            let of_token = by_nonce.range(from..).filter(|(_, (of, _))| of == token);
            of_token.fold(0_u128, |sum, (_, (_, amount))| sum.saturating_add(*amount))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AA: &str = "0xaa";

    fn hold(nonce: u128, amount: u128) -> PermitHold {
        let (owner, reference) = (String::new(), String::new());
        PermitHold { chain_id: 1, owner, nonce, token: AA.into(), amount, reference }
    }

    fn pending(nonces: impl IntoIterator<Item = u128>) -> PendingPermits {
        let mut pending = PendingPermits::default();
        for nonce in nonces {
            pending.hold(&hold(nonce, 10));
        }
        pending
    }

    const fn facts(nonce: u128) -> WalletFacts {
        WalletFacts { nonce, balance: 35, allowance: 100 }
    }

    #[test]
    fn holds_beyond_every_balance_are_not_covered() {
        let mut pending = pending([]);
        pending.hold(&hold(0, u128::MAX));
        let rich = WalletFacts { nonce: 0, balance: u128::MAX, allowance: u128::MAX };
        assert_eq!(pending.check_funds(&rich, AA, 0), Ok(()));
        let short = PermitDefect::Balance { held: u128::MAX, needed: u128::MAX };
        assert_eq!(pending.check_funds(&rich, AA, 1), Err(short));
    }

    #[test]
    fn the_next_nonce_is_the_lowest_unheld_one_from_the_chains_on() {
        use PermitDefect::{NonceGap, NonceHeld, NonceUsed};
        for (held, chain, given, expected) in [
            (vec![], 0, 0, Ok(())),
            (vec![], 3, 2, Err(NonceUsed { next: 3 })),
            (vec![], 3, 4, Err(NonceGap { next: 3 })),
            (vec![3, 4], 3, 5, Ok(())),
            (vec![3, 4], 3, 4, Err(NonceHeld { next: 5 })),
            (vec![3, 4], 3, 6, Err(NonceGap { next: 5 })),
            // The order of nonce 3 was cancelled: later ones wait for a new one.
            (vec![4, 5], 3, 3, Ok(())),
            (vec![4, 5], 3, 6, Err(NonceGap { next: 3 })),
            (vec![3, 4, 6], 3, 5, Ok(())),
            // Locked on the chain, and the hold still exists.
            (vec![3, 4], 4, 5, Ok(())),
            (vec![3, 4], 5, 4, Err(NonceUsed { next: 5 })),
            (vec![3, 4], 5, 5, Ok(())),
        ] {
            assert_eq!(pending(held.clone()).check_nonce(&facts(chain), given), expected, "{held:?} {given}");
        }
        assert!(pending([u128::MAX - 1]).check_nonce(&facts(u128::MAX - 1), u128::MAX).is_ok());
        assert_eq!(pending([u128::MAX]).check_nonce(&facts(0), 1), Err(NonceGap { next: 0 }));
    }

    #[test]
    fn balance_and_allowance_must_cover_pending_orders_and_the_new_one() {
        let short = |needed| Err(PermitDefect::Balance { held: 35, needed });
        let mut two = pending([3, 4]);
        assert_eq!(two.check_funds(&facts(3), AA, 15), Ok(()));
        assert_eq!(two.check_funds(&facts(3), AA, 16), short(36));
        assert_eq!(two.check_funds(&facts(3), "0xbb", 35), Ok(()), "another token");
        assert_eq!(two.check_funds(&facts(4), AA, 25), Ok(()), "nonce 3 has moved its tokens");
        two.hold(&hold(5, 15));
        assert_eq!(two.check_funds(&facts(3), AA, 1), short(36));
        assert_eq!(two.check_funds(&facts(5), AA, 20), Ok(()));
        let poor = WalletFacts { allowance: 30, balance: 100, nonce: 3 };
        assert_eq!(two.check_funds(&poor, AA, 1), Err(PermitDefect::Allowance { held: 30, needed: 36 }));
        assert_eq!(two.check_funds(&facts(3), AA, u128::MAX), short(u128::MAX), "sums do not wrap around");
    }
}

//! The parked orders of a session, as values: their dependencies, and the next one to decide.
//!
//! ```text
//! D of an unknown wallet ──> looking up ──answer──> decidable ──> decided, in a turn of its own
//! ```
//!
//! Orders of one wallet are decided in the order of arrival; so are orders of different wallets whose look-ups have
//! ended. An order of another wallet with known data is decided before them.

use std::collections::{HashSet, VecDeque};

use dvp_core::chain::WalletKey;

/// Names a waiting order for as long as it waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ticket(u64);

/// The treatment of an arriving order of a wallet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Arrival {
    /// It is decided immediately.
    Proceeds,
    Waits,
    /// Its ClOrdID is a parked order's.
    IsDuplicate,
    /// Too many orders are parked.
    IsTooMany,
}

/// One order; `O` is its content, `A` the result of its wallet's look-up.
#[derive(Debug)]
pub(super) struct Waiter<O, A> {
    ticket: Ticket,
    pub(super) cl_ord_id: String,
    pub(super) wallet: WalletKey,
    pub(super) order: O,
    answer: Option<A>,
}

/// All parked orders, in the order of arrival.
#[derive(Debug)]
pub(super) struct Waiting<O, A> {
    waiters: VecDeque<Waiter<O, A>>,
    next: u64,
    max: usize,
}

impl<O, A> Waiting<O, A> {
    /// At most `max` orders wait; beyond, an order is refused.
    pub(super) const fn new(max: usize) -> Self {
        Self { waiters: VecDeque::new(), next: 0, max }
    }

    /// Forgets all of them. No ticket is used again.
    pub(super) fn clear(&mut self) {
        self.waiters.clear();
    }

    pub(super) fn len(&self) -> usize {
        self.waiters.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Waiter<O, A>> {
        self.waiters.iter()
    }

    pub(super) fn find(&self, cl_ord_id: &str) -> Option<&Waiter<O, A>> {
        self.waiters.iter().find(|waiter| waiter.cl_ord_id == cl_ord_id)
    }

    /// The treatment of an arriving order. `wallet` is the one it pays with, if its funds are on the chain; `is_known`
    /// tells whether no look-up is needed.
    pub(super) fn arrival(&self, cl_ord_id: &str, wallet: Option<&WalletKey>, is_known: bool) -> Arrival {
        if self.find(cl_ord_id).is_some() {
            return Arrival::IsDuplicate;
        }
        let is_behind = || self.waiters.iter().any(|waiter| Some(&waiter.wallet) == wallet);
        match wallet {
            None => Arrival::Proceeds,
            Some(_) if is_known && !is_behind() => Arrival::Proceeds,
            Some(_) if self.waiters.len() >= self.max => Arrival::IsTooMany,
            Some(_) => Arrival::Waits,
        }
    }

    /// Appends an order.
    pub(super) fn push(&mut self, cl_ord_id: String, wallet: WalletKey, order: O) -> Ticket {
        let ticket = Ticket(self.next);
        self.next += 1;
        self.waiters.push_back(Waiter { ticket, cl_ord_id, wallet, order, answer: None });
        ticket
    }

    /// Records the look-up's result, if the order is still parked.
    pub(super) fn answered(&mut self, ticket: Ticket, answer: A) {
        if let Some(waiter) = self.waiters.iter_mut().find(|waiter| waiter.ticket == ticket) {
            waiter.answer = Some(answer);
        }
    }

    fn next_decidable(&self) -> Option<usize> {
        let mut seen = HashSet::new();
        self.waiters.iter().position(|waiter| {
            let is_first_of_its_wallet = seen.insert(&waiter.wallet);
            is_first_of_its_wallet && waiter.answer.is_some()
        })
    }

    /// Is there an order that can be decided?
    pub(super) fn has_decidable(&self) -> bool {
        self.next_decidable().is_some()
    }

    /// Removes the next order to decide, with the result of its look-up.
    pub(super) fn take_decidable(&mut self) -> Option<(Waiter<O, A>, A)> {
        let mut waiter = self.waiters.remove(self.next_decidable()?)?;
        let answer = waiter.answer.take()?;
        Some((waiter, answer))
    }

    /// Returns an order to the front because its look-up is too old.
    pub(super) fn put_back(&mut self, waiter: Waiter<O, A>) -> Ticket {
        let ticket = waiter.ticket;
        let at =
            self.waiters.iter().position(|other| other.ticket.0 > ticket.0).unwrap_or(self.waiters.len());
        self.waiters.insert(at, Waiter { answer: None, ..waiter });
        ticket
    }

    /// Removes an order that is to be cancelled.
    pub(super) fn take(&mut self, cl_ord_id: &str) -> Option<Waiter<O, A>> {
        let at = self.waiters.iter().position(|waiter| waiter.cl_ord_id == cl_ord_id)?;
        self.waiters.remove(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wallet(n: usize) -> WalletKey {
        WalletKey { chain_id: 1, owner: format!("0x{n}"), token: "0xaa".to_owned() }
    }

    fn waiting(orders: &[(&str, usize)]) -> (Waiting<(), u8>, Vec<Ticket>) {
        let mut waiting = Waiting::new(3);
        let tickets =
            orders.iter().map(|(id, owner)| waiting.push((*id).to_owned(), wallet(*owner), ())).collect();
        (waiting, tickets)
    }

    fn decided(waiting: &mut Waiting<(), u8>) -> Vec<(String, u8)> {
        std::iter::from_fn(|| waiting.take_decidable().map(|(waiter, answer)| (waiter.cl_ord_id, answer)))
            .collect()
    }

    #[test]
    fn an_order_waits_for_its_wallet_or_behind_one_of_the_same_wallet() {
        let (waiting, _) = waiting(&[("a", 1)]);
        let check = |id: &str, owner: Option<usize>, is_known: bool| {
            waiting.arrival(id, owner.map(wallet).as_ref(), is_known)
        };
        assert_eq!(check("b", None, false), Arrival::Proceeds, "no wallet, nothing to wait for");
        assert_eq!(check("b", Some(2), true), Arrival::Proceeds);
        assert_eq!(check("b", Some(2), false), Arrival::Waits);
        assert_eq!(check("b", Some(1), true), Arrival::Waits, "behind the first of its wallet");
        for owner in [None, Some(1), Some(2)] {
            assert_eq!(check("a", owner, true), Arrival::IsDuplicate);
        }
    }

    #[test]
    fn only_waiting_orders_over_the_limit_are_refused() {
        let mut waiting = Waiting::<(), u8>::new(3);
        for n in 0..3 {
            assert_eq!(waiting.arrival(&n.to_string(), Some(&wallet(n)), false), Arrival::Waits);
            waiting.push(n.to_string(), wallet(n), ());
        }
        assert_eq!(waiting.arrival("more", Some(&wallet(1000)), false), Arrival::IsTooMany);
        assert_eq!(waiting.arrival("more", Some(&wallet(0)), true), Arrival::IsTooMany);
        assert_eq!(waiting.arrival("more", Some(&wallet(1000)), true), Arrival::Proceeds);
        assert_eq!(waiting.arrival("more", None, false), Arrival::Proceeds);
    }

    #[test]
    fn a_cancelled_order_releases_the_next_of_its_wallet() {
        let (mut waiting, tickets) = waiting(&[("a", 1), ("b", 1)]);
        waiting.answered(tickets[1], 2);
        assert_eq!(waiting.take("a").map(|waiter| waiter.cl_ord_id), Some("a".to_owned()));
        waiting.answered(tickets[0], 1);
        assert_eq!(decided(&mut waiting), [("b".to_owned(), 2)]);
        assert!(waiting.take("a").is_none());
    }

    #[test]
    fn an_order_that_is_put_back_keeps_its_place() {
        let (mut waiting, tickets) = waiting(&[("a", 1), ("b", 1), ("c", 2)]);
        waiting.answered(tickets[0], 1);
        waiting.answered(tickets[1], 2);
        let (first, _) = waiting.take_decidable().unwrap();
        assert_eq!(waiting.put_back(first), tickets[0]);
        assert!(!waiting.has_decidable(), "its answer was given away, and the next one is behind it");
        waiting.answered(tickets[0], 1);
        assert_eq!(decided(&mut waiting).len(), 2);
    }

    /// Every interleaving of three arrivals, of two wallets, with their look-ups: the order within a wallet is kept, no
    /// order is decided before its look-up, and each is decided exactly once.
    #[test]
    fn every_interleaving_decides_each_order_once_in_wallet_order() {
        #[derive(Clone, Copy, PartialEq)]
        enum Step {
            Arrive(usize),
            Answer(usize),
        }
        const OWNERS: [usize; 3] = [1, 2, 1];
        fn run(steps: &[Step]) {
            let mut waiting = Waiting::<usize, usize>::new(3);
            let (mut tickets, mut answered, mut decided) = ([None; 3], Vec::new(), Vec::new());
            for step in steps {
                match *step {
                    Step::Arrive(n) => tickets[n] = Some(waiting.push(n.to_string(), wallet(OWNERS[n]), n)),
                    Step::Answer(n) => {
                        waiting.answered(tickets[n].unwrap(), n);
                        answered.push(n);
                    }
                }
                while let Some((waiter, answer)) = waiting.take_decidable() {
                    assert_eq!(waiter.order, answer);
                    assert!(answered.contains(&waiter.order));
                    decided.push(waiter.order);
                }
            }
            let mut all = decided.clone();
            all.sort_unstable();
            assert_eq!(all, [0, 1, 2]);
            let of_one: Vec<usize> = decided.into_iter().filter(|n| OWNERS[*n] == 1).collect();
            assert_eq!(of_one, [0, 2]);
        }
        fn interleave(steps: &mut Vec<Step>, ways: &mut usize) {
            if steps.len() == 6 {
                *ways += 1;
                return run(steps);
            }
            let arrived = steps.iter().filter(|step| matches!(step, Step::Arrive(_))).count();
            let answers = (0..arrived).map(Step::Answer).filter(|answer| !steps.contains(answer));
            let next: Vec<Step> =
                (arrived < 3).then_some(Step::Arrive(arrived)).into_iter().chain(answers).collect();
            for step in next {
                steps.push(step);
                interleave(steps, ways);
                steps.pop();
            }
        }
        let mut ways = 0;
        interleave(&mut Vec::new(), &mut ways);
        assert_eq!(ways, 15);
    }
}

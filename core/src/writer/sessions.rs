//! Checks which FIX parts of a batch continue their session's numbers: pure.
//!
//! A part is valid when its number before equals the session's present number. Any other part is stale, and so are all
//! later parts of its session that depend on it. A part of a chain in which a commit has failed is stale, too, whatever
//! its numbers.

use std::collections::HashMap;

use uuid::Uuid;

use super::unit::{FixPart, Unit};

/// The next outbound number of each session, up to the present unit.
#[derive(Debug, Clone, Default)]
pub(super) struct Numbers<'u> {
    next_out: HashMap<&'u str, u64>,
}

impl<'u> Numbers<'u> {
    /// Assumes that the first part of each session is valid; the database's guard reports otherwise.
    pub(super) fn of_first_parts(units: &[&'u Unit]) -> Self {
        let mut numbers = Self::default();
        for part in units.iter().filter_map(|unit| unit.fix.as_ref()) {
            numbers.next_out.entry(&part.numbers.session_id).or_insert(part.numbers.next_out_before);
        }
        numbers
    }

    /// As loaded from the database. A missing session has no valid part: numbers begin at 1.
    pub(super) fn of_loaded(units: &[&'u Unit], loaded: &HashMap<String, u64>) -> Self {
        let ids = sessions(units).into_iter().map(|(id, _)| id);
        Self { next_out: ids.map(|id| (id, loaded.get(id).copied().unwrap_or(0))).collect() }
    }

    pub(super) fn follows(&self, part: &FixPart) -> bool {
        self.next_out.get(part.numbers.session_id.as_str()) == Some(&part.numbers.next_out_before)
    }

    /// The part is written.
    pub(super) fn advance(&mut self, part: &'u FixPart) {
        self.next_out.insert(&part.numbers.session_id, part.numbers.next_out);
    }

    /// Records in the parts' chains the present numbers of their sessions.
    pub(super) fn remember(&self, units: &[&Unit]) {
        for part in units.iter().filter_map(|unit| unit.fix.as_ref()) {
            if let Some(next_out) = self.next_out.get(part.numbers.session_id.as_str()) {
                part.chain.set(*next_out);
            }
        }
    }

    /// For each unit whether its FIX part, if any, is valid when all parts before it are written.
    pub(super) fn foresee(mut self, units: &[&'u Unit]) -> Vec<bool> {
        let follows = units.iter().map(|unit| {
            let Some(part) = &unit.fix else { return true };
            let follows = self.follows(part);
            if follows {
                self.advance(part);
            }
            follows
        });
        follows.collect()
    }
}

/// The sessions of the units, with the process that says it owns them.
pub(super) fn sessions<'u>(units: &[&'u Unit]) -> Vec<(&'u str, Option<Uuid>)> {
    let mut sessions: Vec<(&str, Option<Uuid>)> = units
        .iter()
        .filter_map(|unit| unit.fix.as_ref())
        .map(|part| (part.numbers.session_id.as_str(), part.numbers.owner))
        .collect();
    sessions.sort_unstable();
    sessions.dedup();
    sessions
}

/// For each unit whether it can still be written according to its session's chain: a unit that depends on a failed one
/// cannot.
pub(super) fn unbroken(units: &[&Unit]) -> Vec<bool> {
    let mut left_at: HashMap<usize, Option<u64>> = HashMap::new();
    let unbroken = units.iter().map(|unit| {
        let Some(part) = &unit.fix else { return true };
        let next_out = left_at.entry(part.chain.id()).or_insert_with(|| part.chain.next_out());
        let follows = next_out.is_none_or(|next_out| next_out == part.numbers.next_out_before);
        if follows {
            *next_out = Some(part.numbers.next_out);
        }
        follows
    });
    unbroken.collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::writer::fix::FixChain;
    use crate::writer::unit::Work;
    use dvp_store::fix::rows::{FixNumbers, FixRows};
    use dvp_store::orders::intents::Tenant;

    fn part(chain: &FixChain, before: u64, after: u64) -> Unit {
        let tenant = Tenant { partner_id: "ptn".into(), livemode: false };
        let fix = FixPart {
            numbers: FixNumbers {
                session_id: "S".into(),
                owner: None,
                next_in: 2,
                next_out_before: before,
                next_out: after,
                seen_out: 0,
                written_out: 0,
                feed_position: None,
                renumber: None,
            },
            cl_ord_id: None,
            render: Arc::new(|_| FixRows::default()),
            chain: chain.clone(),
        };
        Unit::of_session(tenant, Work::SessionOnly, fix)
    }

    fn check(chain: &FixChain, parts: &[(u64, u64)], expected: &[bool]) {
        let units: Vec<Unit> = parts.iter().map(|(before, after)| part(chain, *before, *after)).collect();
        assert_eq!(unbroken(&units.iter().collect::<Vec<_>>()), expected);
    }

    #[test]
    fn parts_follow_each_other_from_the_last_commit() {
        let chain = FixChain::from_loaded(5);
        check(&chain, &[(5, 6), (6, 8), (8, 9)], &[true, true, true]);
        check(&chain, &[(6, 7), (7, 8)], &[false, false]);
        check(&chain, &[(5, 5), (5, 6), (6, 1), (1, 2)], &[true, true, true, true]);
    }

    #[test]
    fn a_part_after_a_failed_one_is_stale_and_its_number_can_be_retried() {
        let chain = FixChain::from_loaded(5);
        check(&chain, &[(6, 7), (5, 6), (6, 7)], &[false, true, true]);
    }

    #[test]
    fn nothing_continues_a_failed_part_that_took_no_number() {
        let chain = FixChain::from_loaded(5);
        check(&chain, &[(5, 5), (5, 6)], &[true, true]);
        chain.break_off();
        check(&chain, &[(5, 6), (6, 7)], &[false, false]);
        // As after a commit of units that were written before, or one without an answer.
        chain.set(5);
        check(&chain, &[(5, 6)], &[false]);
        chain.forget();
        check(&chain, &[(5, 6)], &[false]);
        check(&FixChain::from_loaded(5), &[(5, 6)], &[true]);
    }

    #[test]
    fn a_chain_of_unknown_state_reads_the_database() {
        let chain = FixChain::from_loaded(5);
        chain.forget();
        check(&chain, &[(9, 10), (10, 11)], &[true, true]);
        check(&chain, &[(9, 10), (11, 12)], &[true, false]);
    }

    #[test]
    fn a_new_chain_is_independent_of_an_earlier_one() {
        let (old, new) = (FixChain::from_loaded(5), FixChain::from_loaded(7));
        let units = [part(&old, 6, 7), part(&new, 7, 8)];
        assert_eq!(unbroken(&units.iter().collect::<Vec<_>>()), [false, true]);
    }

    #[test]
    fn loaded_numbers_exclude_parts_that_do_not_follow() {
        let chain = FixChain::default();
        let units = [part(&chain, 4, 5), part(&chain, 5, 6), part(&chain, 6, 7)];
        let units: Vec<&Unit> = units.iter().collect();
        let at = |next_out| HashMap::from([("S".to_owned(), next_out)]);
        let foreseen = |loaded: &HashMap<String, u64>| Numbers::of_loaded(&units, loaded).foresee(&units);
        assert_eq!(foreseen(&at(4)), [true, true, true]);
        assert_eq!(foreseen(&at(5)), [false, true, true]);
        assert_eq!(foreseen(&HashMap::new()), [false, false, false]);
    }
}

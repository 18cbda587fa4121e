//! The order in which the pieces of a failed batch are retried: pure.
//!
//! Pieces of several groups are split between groups and tried breadth first, so that good groups are written before
//! the failing one is examined. A piece of one group is halved and tried in order, because its units may depend on each
//! other. With one bad unit of n this takes about 2 log2 n transactions.

use std::collections::VecDeque;
use std::ops::Range;

/// The result for a piece that failed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Split {
    Halved,
    /// It is one unit, which cannot be written.
    Alone,
}

/// The pieces of a batch that are still to be tried.
pub(super) struct Pieces {
    /// The group of each unit. Units of a group are adjacent.
    groups: Vec<usize>,
    /// Whole groups, in any order.
    across: VecDeque<Range<usize>>,
    /// Parts of one group, in order.
    within: VecDeque<Range<usize>>,
}

impl Pieces {
    pub(super) fn whole(groups: Vec<usize>) -> Self {
        let all = 0..groups.len();
        Self { groups, across: VecDeque::from([all]), within: VecDeque::new() }
    }

    pub(super) fn next(&mut self) -> Option<Range<usize>> {
        self.across.pop_front().or_else(|| self.within.pop_front())
    }

    /// The piece failed.
    pub(super) fn split(&mut self, failed: &Range<usize>) -> Split {
        if failed.len() <= 1 {
            return Split::Alone;
        }
        let middle = failed.start + failed.len() / 2;
        match self.boundary(failed, middle) {
            Some(boundary) => {
                self.across.push_back(failed.start..boundary);
                self.across.push_back(boundary..failed.end);
            }
            None => {
                self.within.push_front(middle..failed.end);
                self.within.push_front(failed.start..middle);
            }
        }
        Split::Halved
    }

    /// Is the next piece a part of one group, with no whole group left to try?
    pub(super) fn is_within(&self) -> bool {
        self.across.is_empty() && !self.within.is_empty()
    }

    /// The boundaries between groups; the one nearest to the middle.
    fn boundary(&self, piece: &Range<usize>, middle: usize) -> Option<usize> {
        let group = |at: usize| self.groups.get(at);
        (piece.start + 1..piece.end)
            .filter(|at| group(*at - 1) != group(*at))
            .min_by_key(|at| at.abs_diff(middle))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tries a batch in which some units are bad: which were written, in which order, and by how many transactions.
    fn run(groups: &[usize], bad: &[usize]) -> (Vec<usize>, Vec<usize>, usize) {
        let mut pieces = Pieces::whole(groups.to_vec());
        let (mut written, mut failed, mut tried) = (Vec::new(), Vec::new(), 0);
        while let Some(piece) = pieces.next() {
            tried += 1;
            if !bad.iter().any(|at| piece.contains(at)) {
                written.extend(piece);
            } else if pieces.split(&piece) == Split::Alone {
                failed.extend(piece);
            }
        }
        (written, failed, tried)
    }

    #[test]
    fn a_good_batch_is_one_transaction() {
        assert_eq!(run(&[0, 0, 1, 1], &[]), (vec![0, 1, 2, 3], vec![], 1));
    }

    #[test]
    fn one_bad_unit_of_512_takes_19_transactions() {
        let (written, failed, tried) = run(&[0; 512], &[300]);
        assert_eq!((written.len(), failed, tried), (511, vec![300], 19));
        assert!(written.is_sorted(), "the units of a group are tried in order");
    }

    #[test]
    fn good_groups_are_written_before_the_bad_one_is_split() {
        let (written, failed, _) = run(&[0, 0, 0, 0, 1, 1, 2, 2], &[1]);
        assert_eq!(failed, [1]);
        assert_eq!(written, [4, 5, 6, 7, 0, 2, 3]);
    }

    #[test]
    fn groups_are_halved_between_groups() {
        let mut pieces = Pieces::whole(vec![0, 1, 1, 1, 1, 1, 1, 1]);
        let all = pieces.next().unwrap();
        assert_eq!(pieces.split(&all), Split::Halved);
        assert_eq!(pieces.next(), Some(0..1));
        assert!(!pieces.is_within());
        let second = pieces.next().unwrap();
        assert_eq!(second, 1..8);
        pieces.split(&second);
        assert!(pieces.is_within());
        assert_eq!((pieces.next(), pieces.next(), pieces.next()), (Some(1..4), Some(4..8), None));
    }

    #[test]
    fn every_bad_unit_is_found_and_isolated() {
        let (written, failed, tried) = run(&[0; 8], &[0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!((written.len(), failed.len(), tried), (0, 8, 15));
    }
}

//! Transcripts in virtual time, of what the conversations in `tests/transcripts` do not show: the order of the driver's
//! tasks, schedules, bounds, a slow store, and peers that are not authenticated.
//!
//! `I D 5 11=x|…` is a message from the peer, `+6.5` lets seconds pass, `app …` sends of our own accord. The answers
//! are the driver's tasks, in order.

mod calendar;
mod gaps;
mod peers;
mod resends;
mod rules;
mod world;

use std::collections::BTreeMap;

use proptest::prelude::*;

use self::world::{World, config};
use crate::SeqNum;

proptest! {
    /// For any input, and any point at which the process stops: one number, one message.
    #[test]
    fn a_number_never_stands_for_two_messages(steps in prop::collection::vec((0_usize..9, 1_u64..12), 1..60)) {
        let mut world = World::new(config(), 1, 1);
        let mut sent: BTreeMap<SeqNum, String> = BTreeMap::new();
        let mut expected_in = 1;
        world.run("I A 1 98=0|108=10");
        let mut scanned = 0;
        for (kind, number) in steps {
            expected_in = expected_in.max(world.session.next_in().0);
            match kind {
                0 => world.run(&format!("I 0 {expected_in}")),
                1 => world.run(&format!("I D {expected_in} ORDER")),
                2 => world.run(&format!("I 1 {expected_in} 112=x")),
                3 => world.run(&format!("I 0 {}", expected_in + number)),
                4 => world.run(&format!("I 2 {expected_in} 7={number}|16=0")),
                5 => world.run(&format!("I 4 {expected_in} 123=Y|36={}", expected_in + number)),
                6 => world.run("app"),
                7 => world.run(&format!("+{number}")),
                _ => {
                    world.run("lost");
                    let next = world.session.next_in();
                    world.run(&format!("I A {next} 98=0|108=10"));
                }
            }
            for line in world.transcript[scanned..].lines().filter(|line| line.trim().starts_with("send ")) {
                let mut words = line.trim().splitn(3, ' ').skip(1);
                let (seq, what) = (SeqNum(words.next().unwrap().parse().unwrap()), words.next().unwrap().to_owned());
                if what.contains("43=Y") {
                    let first = sent.get(&seq).expect("only what was sent is sent again");
                    prop_assert!(what.starts_with('4') || first.split('|').next() == what.split('|').next());
                } else {
                    prop_assert!(sent.insert(seq, what).is_none(), "{} again\n{}", seq, world.transcript);
                }
            }
            scanned = world.transcript.len();
            if !world.session.is_connected() {
                world.session.connect(world.now());
                let next = world.session.next_in();
                world.run(&format!("I A {next} 98=0|108=10"));
            }
        }
    }
}

//! Transcripts in virtual time.
//!
//! `I D 5 11=x|…` is a message from the peer, `+6.5` lets seconds pass, `app …` sends of our own accord. The answers
//! are the driver's tasks, in order.

mod announced;
mod calendar;
mod checklist;
mod gaps;
mod peers;
mod recovery;
mod resends;
mod rules;
mod world;

use std::collections::BTreeMap;

use expect_test::expect;
use proptest::prelude::*;

use self::world::{World, check, check_with, config};
use crate::SeqNum;

#[test]
fn a_logon_is_authenticated_then_counted_then_answered() {
    check(
        "I A 1 98=0|108=30|553=me|554=secret",
        expect![[r#"
        I A 1 98=0|108=30|553=me|554=secret
          who is me
          persist in=2 out=2
          send 1 A|98=0|108=30
          logged on
    "#]],
    );
}

#[test]
fn an_unauthenticated_logon_changes_nothing_even_with_a_reset() {
    check_with(
        World::new(config(), 7, 9),
        "unauthenticated
         I A 1 98=0|108=30|141=Y
         lost
         I A 3 98=0|108=30",
        expect![[r#"
            unauthenticated
            I A 1 98=0|108=30|141=Y
              who is 
              disconnect
            lost
            I A 3 98=0|108=30
              who is 
              disconnect
        "#]],
    );
}

#[test]
fn the_first_message_must_be_a_proper_logon() {
    for first in [
        "I 0 1",
        "I A 1 49=OTHER|98=0|108=30",
        "I A 1 8=FIX.4.2|98=0|108=30",
        "I A 1 98=0|108=-1",
        "I A 1 98=1|108=30",
        "I A 1 98=0",
        "I A 1 52=20010101-00:00:00|98=0|108=30",
        "I A 2 98=0|108=30|141=Y",
        "garbled",
    ] {
        let mut world = World::new(config(), 1, 1);
        world.run(first);
        assert_eq!(world.transcript, format!("{first}\n  disconnect\n"));
        assert_eq!((world.session.next_in(), world.session.next_out()), (SeqNum(1), SeqNum(1)));
    }
}

#[test]
fn heartbeats_test_requests_and_timeouts_follow_the_clock() {
    check(
        "I A 1 98=0|108=10
         +10
         I 0 2
         +13
         I 0 3 112=TEST
         +25",
        expect![[r#"
            I A 1 98=0|108=10
              who is 
              persist in=2 out=2
              send 1 A|98=0|108=10
              logged on
            +10
              at 10.0
              persist in=2 out=3
              send 2 0
            I 0 2
              persist in=3 out=3
            +13
              at 20.0
              persist in=3 out=4
              send 3 0
              at 22.0
              persist in=3 out=5
              send 4 1|112=TEST
            I 0 3 112=TEST
              persist in=4 out=5
            +25
              at 32.0
              persist in=4 out=6
              send 5 0
              at 35.0
              persist in=4 out=7
              send 6 1|112=TEST
              at 47.0
              disconnect
        "#]],
    );
    check(
        "I A 1 98=0|108=0
         +100000
         app",
        expect![[r#"
            I A 1 98=0|108=0
              who is 
              persist in=2 out=2
              send 1 A|98=0|108=0
              logged on
            +100000
            app
              persist in=2 out=3
              send 2 8|58=report
        "#]],
    );
}

#[test]
fn a_logout_is_answered_whatever_its_number_is() {
    check(
        "I A 1 98=0|108=30\nI 5 9",
        expect![[r#"
        I A 1 98=0|108=30
          who is 
          persist in=2 out=2
          send 1 A|98=0|108=30
          logged on
        I 5 9
          persist in=2 out=3
          send 2 5
          disconnect
    "#]],
    );
    check(
        "I A 1 98=0|108=30\nI 5 2\napp",
        expect![[r#"
        I A 1 98=0|108=30
          who is 
          persist in=2 out=2
          send 1 A|98=0|108=30
          logged on
        I 5 2
          persist in=3 out=2
          persist in=3 out=3
          send 2 5
          disconnect
        app
          not logged on
    "#]],
    );
}

#[test]
fn grave_violations_are_answered_with_a_logout_that_times_out() {
    check(
        "I A 1 98=0|108=30\nI 1 2 8=FIX.4.2|112=x\n+5",
        expect![[r#"
            I A 1 98=0|108=30
              who is 
              persist in=2 out=2
              send 1 A|98=0|108=30
              logged on
            I 1 2 8=FIX.4.2|112=x
              persist in=3 out=2
              persist in=3 out=3
              send 2 5|58=Incorrect BeginString
            +5
              at 2.0
              disconnect
        "#]],
    );
    check(
        "I A 1 98=0|108=30\nI D 2 49=OTHER|ORDER\nI 5 3",
        expect![[r#"
        I A 1 98=0|108=30
          who is 
          persist in=2 out=2
          send 1 A|98=0|108=30
          logged on
        I D 2 49=OTHER|ORDER
          persist in=3 out=3
          send 2 3|45=2|58=CompID problem|372=D|373=9
          persist in=3 out=4
          send 3 5
        I 5 3
          persist in=4 out=4
          disconnect
    "#]],
    );
    check(
        "I A 1 98=0|108=30\nI 0 2 52=20260101-00:00:00\nI 5 3",
        expect![[r#"
        I A 1 98=0|108=30
          who is 
          persist in=2 out=2
          send 1 A|98=0|108=30
          logged on
        I 0 2 52=20260101-00:00:00
          persist in=3 out=3
          send 2 3|45=2|58=SendingTime accuracy problem|372=0|373=10
          persist in=3 out=4
          send 3 5
        I 5 3
          persist in=4 out=4
          disconnect
    "#]],
    );
    check(
        "I A 1 98=0|108=30\nI 0 x",
        expect![[r#"
        I A 1 98=0|108=30
          who is 
          persist in=2 out=2
          send 1 A|98=0|108=30
          logged on
        I 0 x
          persist in=2 out=3
          send 2 5|58=Received message without MsgSeqNum
          disconnect
    "#]],
    );
}

#[test]
fn a_malformed_message_is_refused_and_counted() {
    check(
        "I A 1 98=0|108=30
         I D 2 115=DESK|11=id
         I 0 3 56=
         I * 4
         garbled
         I 3 9 45=1
         I 0 5",
        expect![[r#"
            I A 1 98=0|108=30
              who is 
              persist in=2 out=2
              send 1 A|98=0|108=30
              logged on
            I D 2 115=DESK|11=id
              persist in=3 out=3
              send 2 3|128=DESK|45=2|58=Required tag missing|371=40|372=D|373=1
            I 0 3 56=
              persist in=4 out=4
              send 3 3|45=3|58=Tag specified without a value|371=56|372=0|373=4
            I * 4
              persist in=5 out=5
              send 4 3|45=4|58=Invalid MsgType|372=*|373=11
            garbled
            I 3 9 45=1
              persist in=5 out=6
              send 5 2|7=5|16=0
            I 0 5
              persist in=6 out=6
        "#]],
    );
}

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

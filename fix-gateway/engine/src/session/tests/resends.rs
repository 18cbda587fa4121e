//! Resends that the peer asks for.

use std::time::Duration;

use expect_test::expect;

use super::{
    super::{MsgType, SessionConfig},
    world::{World, check, config, logged_on},
};

#[test]
fn no_message_is_sent_between_the_slices_of_a_resend() {
    check(
        logged_on(SessionConfig { resend_slice: 2, ..config() }),
        expect![[r#"
        app
          persist in=2 out=3
          send 2 8|58=report
        app
          persist in=2 out=4
          send 3 8|58=report
        app
          persist in=2 out=5
          send 4 8|58=report
        slow
        I 2 2 7=1|16=0
          persist in=3 out=5
          fetch 1..=4
        app
          persist in=3 out=6
        I 1 3 112=x
          persist in=4 out=7
        +40
        stored
          send 1 4|43=Y|122|36=2|123=Y
          send 2 8|43=Y|122|58=report
          send 3 8|43=Y|122|58=report
          fetch 4..=4
        app
          persist in=4 out=8
        stored
          send 4 8|43=Y|122|58=report
          send 5 8|58=report
          send 6 0|112=x
          send 7 8|58=report
        I 0 4
          persist in=5 out=8
    "#]],
    );
}

#[test]
fn messages_held_behind_a_resend_are_bounded() {
    check(
        logged_on(SessionConfig { held_max: 4, ..config() }),
        expect![[r#"
        app
          persist in=2 out=3
          send 2 8|58=report
        slow
        I 2 2 7=1|16=0
          persist in=3 out=3
          fetch 1..=2
        app
          persist in=3 out=4
        app
          persist in=3 out=5
        app
          a resend is under way
        I 1 3 112=a
          persist in=4 out=6
        I 1 4 112=b
          persist in=5 out=7
        I 1 5 112=c
          persist in=6 out=8
        stored
          send 1 4|43=Y|122|36=2|123=Y
          send 2 8|43=Y|122|58=report
          send 3 8|58=report
          send 4 8|58=report
          send 5 0|112=a
          send 6 0|112=b
        I 2 6 7=3|16=0
          persist in=7 out=8
          fetch 3..=7
        stored
          send 3 8|43=Y|122|58=report
          send 4 8|43=Y|122|58=report
          send 5 4|43=Y|122|36=8|123=Y
    "#]],
    );
}

#[test]
fn a_request_during_a_resend_is_answered_after_it() {
    check(
        logged_on(config()),
        expect![[r#"
        app
          persist in=2 out=3
          send 2 8|58=report
        app
          persist in=2 out=4
          send 3 8|58=report
        slow
        I 2 2 7=1|16=2
          persist in=3 out=4
          fetch 1..=2
        I 2 3 7=2|16=0
          persist in=4 out=4
        stored
          send 1 4|43=Y|122|36=2|123=Y
          send 2 8|43=Y|122|58=report
          fetch 2..=3
        stored
          send 2 8|43=Y|122|58=report
          send 3 8|43=Y|122|58=report
    "#]],
    );
}

#[test]
fn a_logout_in_the_middle_of_a_resend_is_answered() {
    check(
        logged_on(config()),
        expect![[r#"
        app
          persist in=2 out=3
          send 2 8|58=report
        slow
        I 2 2 7=1|16=2
          persist in=3 out=3
          fetch 1..=2
        I 5 3
          persist in=4 out=3
          persist in=4 out=4
          send 3 5
          disconnect
    "#]],
    );
}

#[test]
fn an_immediately_repeated_resend_request_is_counted_and_skipped() {
    check(
        logged_on(SessionConfig { same_request_window: Duration::from_secs(1), ..config() }),
        expect![[r#"
        app
          persist in=2 out=3
          send 2 8|58=report
        slow
        I 2 2 7=1|16=0
          persist in=3 out=3
          fetch 1..=2
        +2
        I 2 3 7=1|16=0
          persist in=4 out=3
        stored
          send 1 4|43=Y|122|36=2|123=Y
          send 2 8|43=Y|122|58=report
        I 2 4 7=1|16=0
          persist in=5 out=3
          fetch 1..=2
        stored
          send 1 4|43=Y|122|36=2|123=Y
          send 2 8|43=Y|122|58=report
        I 2 5 7=1|16=0
          persist in=6 out=3
        +1
        I 2 6 7=1|16=0
          persist in=7 out=3
          fetch 1..=2
        stored
          send 1 4|43=Y|122|36=2|123=Y
          send 2 8|43=Y|122|58=report
    "#]],
    );
}

#[test]
fn one_gap_fill_covers_stale_messages_of_several_slices() {
    const STALE: [MsgType; 1] = [MsgType::NEW_ORDER_SINGLE];
    check(
        logged_on(SessionConfig { never_resent: &STALE, resend_slice: 2, ..config() }),
        expect![[r#"
            app
              persist in=2 out=3
              send 2 8|58=report
            app D
              persist in=2 out=4
              send 3 D|58=report
            app D
              persist in=2 out=5
              send 4 D|58=report
            app D
              persist in=2 out=6
              send 5 D|58=report
            app
              persist in=2 out=7
              send 6 8|58=report
            app D
              persist in=2 out=8
              send 7 D|58=report
            I 2 2 7=1|16=0
              persist in=3 out=8
              fetch 1..=7
              send 1 4|43=Y|122|36=2|123=Y
              send 2 8|43=Y|122|58=report
              fetch 4..=7
              fetch 6..=7
              send 3 4|43=Y|122|36=6|123=Y
              send 6 8|43=Y|122|58=report
              send 7 4|43=Y|122|36=8|123=Y
        "#]],
    );
}

#[test]
fn a_range_without_stored_messages_is_fetched_at_once() {
    check(
        World::new(config(), 1, 5_000_001),
        expect![[r#"
        I A 1 98=0|108=30
          who is 
          persist in=2 out=5000002
          send 5000001 A|98=0|108=30
          logged on
        I 2 2 7=1|16=0
          persist in=3 out=5000002
          fetch 1..=5000001
          send 1 4|43=Y|122|36=5000002|123=Y
    "#]],
    );
}

#[test]
fn kept_messages_follow_the_logon_under_new_numbers() {
    check(
        logged_on(config()),
        expect![[r#"
        app
          persist in=2 out=3
          send 2 8|58=report
        app
          persist in=2 out=4
          send 3 8|58=report
        lost
        keeps
        I A 1 98=0|108=30|141=Y
          who is 
          reset, kept 2 3
          persist in=2 out=2
          send 1 A|98=0|108=30|141=Y
          persist in=2 out=4
          fetch 2..=3
          logged on
          send 2 8|58=report
          send 3 8|58=report
        app
          persist in=2 out=5
          send 4 8|58=report
        I 2 2 7=1|16=0
          persist in=3 out=5
          fetch 1..=4
          send 1 4|43=Y|122|36=2|123=Y
          send 2 8|43=Y|122|58=report
          send 3 8|43=Y|122|58=report
          send 4 8|43=Y|122|58=report
    "#]],
    );
}

#[test]
fn our_own_reset_sends_kept_messages_before_it_requests_the_gap() {
    let config = SessionConfig { reset_on_logon: true, ..config() };
    check(
        World::new(config, 1, 1),
        expect![[r#"
        I A 1 98=0|108=30
          who is 
          reset
          persist in=2 out=2
          send 1 A|98=0|108=30
          logged on
        app
          persist in=2 out=3
          send 2 8|58=report
        lost
        keeps
        I A 3 98=0|108=30
          who is 
          reset, kept 2
          persist in=1 out=2
          send 1 A|98=0|108=30
          persist in=1 out=3
          fetch 2..=2
          persist in=1 out=4
          logged on
          send 2 8|58=report
          send 3 2|7=1|16=0
    "#]],
    );
}

//! Resends that the peer asks for.

use std::time::Duration;

use expect_test::expect;

use super::{
    super::{MsgType, SessionConfig},
    world::{World, check, check_with, config},
};

#[test]
fn no_message_is_sent_between_the_slices_of_a_resend() {
    check_with(
        World::new(SessionConfig { resend_slice: 2, ..config() }, 1, 1),
        "I A 1 98=0|108=30
         app
         app
         app
         slow
         I 2 2 7=1|16=0
         app
         I 1 3 112=x
         +40
         stored
         app
         stored
         I 0 4",
        expect![[r#"
            I A 1 98=0|108=30
              who is 
              persist in=2 out=2
              send 1 A|98=0|108=30
              logged on
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
    check_with(
        World::new(SessionConfig { held_max: 4, ..config() }, 1, 1),
        "I A 1 98=0|108=30
         app
         slow
         I 2 2 7=1|16=0
         app
         app
         app
         I 1 3 112=a
         I 1 4 112=b
         I 1 5 112=c
         stored
         I 2 6 7=3|16=0
         stored",
        expect![[r#"
            I A 1 98=0|108=30
              who is 
              persist in=2 out=2
              send 1 A|98=0|108=30
              logged on
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
        "I A 1 98=0|108=30
         app
         app
         slow
         I 2 2 7=1|16=2
         I 2 3 7=2|16=0
         stored
         stored",
        expect![[r#"
            I A 1 98=0|108=30
              who is 
              persist in=2 out=2
              send 1 A|98=0|108=30
              logged on
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
        "I A 1 98=0|108=30
         app
         slow
         I 2 2 7=1|16=2
         I 5 3",
        expect![[r#"
            I A 1 98=0|108=30
              who is 
              persist in=2 out=2
              send 1 A|98=0|108=30
              logged on
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
fn the_same_resend_request_is_answered_a_limited_number_of_times() {
    check(
        "I A 1 98=0|108=30
         app
         I 2 2 7=1|16=0
         I 2 3 7=1|16=0
         I 2 4 7=1|16=0
         I 2 5 7=1|16=0
         I 5 6",
        expect![[r#"
            I A 1 98=0|108=30
              who is 
              persist in=2 out=2
              send 1 A|98=0|108=30
              logged on
            app
              persist in=2 out=3
              send 2 8|58=report
            I 2 2 7=1|16=0
              persist in=3 out=3
              fetch 1..=2
              send 1 4|43=Y|122|36=2|123=Y
              send 2 8|43=Y|122|58=report
            I 2 3 7=1|16=0
              persist in=4 out=3
              fetch 1..=2
              send 1 4|43=Y|122|36=2|123=Y
              send 2 8|43=Y|122|58=report
            I 2 4 7=1|16=0
              persist in=5 out=3
              fetch 1..=2
              send 1 4|43=Y|122|36=2|123=Y
              send 2 8|43=Y|122|58=report
            I 2 5 7=1|16=0
              persist in=6 out=3
              persist in=6 out=3
              persist in=6 out=4
              send 3 5|58=Same messages requested too often
            I 5 6
              persist in=7 out=4
              disconnect
        "#]],
    );
    // One that differs begins the count anew.
    check(
        "I A 1 98=0|108=30
         app
         I 2 2 7=1|16=0
         I 2 3 7=1|16=0
         I 2 4 7=1|16=0
         I 2 5 7=1|16=1
         I 2 6 7=1|16=0",
        expect![[r#"
            I A 1 98=0|108=30
              who is 
              persist in=2 out=2
              send 1 A|98=0|108=30
              logged on
            app
              persist in=2 out=3
              send 2 8|58=report
            I 2 2 7=1|16=0
              persist in=3 out=3
              fetch 1..=2
              send 1 4|43=Y|122|36=2|123=Y
              send 2 8|43=Y|122|58=report
            I 2 3 7=1|16=0
              persist in=4 out=3
              fetch 1..=2
              send 1 4|43=Y|122|36=2|123=Y
              send 2 8|43=Y|122|58=report
            I 2 4 7=1|16=0
              persist in=5 out=3
              fetch 1..=2
              send 1 4|43=Y|122|36=2|123=Y
              send 2 8|43=Y|122|58=report
            I 2 5 7=1|16=1
              persist in=6 out=3
              fetch 1..=1
              send 1 4|43=Y|122|36=2|123=Y
            I 2 6 7=1|16=0
              persist in=7 out=3
              fetch 1..=2
              send 1 4|43=Y|122|36=2|123=Y
              send 2 8|43=Y|122|58=report
        "#]],
    );
}

#[test]
fn an_immediately_repeated_resend_request_is_counted_and_skipped() {
    check_with(
        World::new(SessionConfig { same_request_window: Duration::from_secs(1), ..config() }, 1, 1),
        "I A 1 98=0|108=30
         app
         slow
         I 2 2 7=1|16=0
         +2
         I 2 3 7=1|16=0
         stored
         I 2 4 7=1|16=0
         stored
         I 2 5 7=1|16=0
         +1
         I 2 6 7=1|16=0
         stored",
        expect![[r#"
            I A 1 98=0|108=30
              who is 
              persist in=2 out=2
              send 1 A|98=0|108=30
              logged on
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
fn stale_types_are_skipped_in_a_resend() {
    const STALE: [MsgType; 1] = [MsgType::NEW_ORDER_SINGLE];
    check_with(
        World::new(SessionConfig { never_resent: &STALE, ..config() }, 1, 1),
        "I A 1 98=0|108=30
         app
         app D
         app
         app D
         I 2 2 7=1|16=0",
        expect![[r#"
            I A 1 98=0|108=30
              who is 
              persist in=2 out=2
              send 1 A|98=0|108=30
              logged on
            app
              persist in=2 out=3
              send 2 8|58=report
            app D
              persist in=2 out=4
              send 3 D|58=report
            app
              persist in=2 out=5
              send 4 8|58=report
            app D
              persist in=2 out=6
              send 5 D|58=report
            I 2 2 7=1|16=0
              persist in=3 out=6
              fetch 1..=5
              send 1 4|43=Y|122|36=2|123=Y
              send 2 8|43=Y|122|58=report
              send 3 4|43=Y|122|36=4|123=Y
              send 4 8|43=Y|122|58=report
              send 5 4|43=Y|122|36=6|123=Y
        "#]],
    );
}

#[test]
fn one_gap_fill_covers_stale_messages_of_several_slices() {
    const STALE: [MsgType; 1] = [MsgType::NEW_ORDER_SINGLE];
    check_with(
        World::new(SessionConfig { never_resent: &STALE, resend_slice: 2, ..config() }, 1, 1),
        "I A 1 98=0|108=30
         app
         app D
         app D
         app D
         app
         I 2 2 7=1|16=0",
        expect![[r#"
            I A 1 98=0|108=30
              who is 
              persist in=2 out=2
              send 1 A|98=0|108=30
              logged on
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
            I 2 2 7=1|16=0
              persist in=3 out=7
              fetch 1..=6
              send 1 4|43=Y|122|36=2|123=Y
              send 2 8|43=Y|122|58=report
              fetch 4..=6
              fetch 6..=6
              send 3 4|43=Y|122|36=6|123=Y
              send 6 8|43=Y|122|58=report
        "#]],
    );
}

#[test]
fn a_range_without_stored_messages_is_fetched_at_once() {
    check_with(
        World::new(config(), 1, 5_000_001),
        "I A 1 98=0|108=30
         I 2 2 7=1|16=0",
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
fn a_resend_request_beyond_a_gap_is_answered_before_the_gap_request() {
    check(
        "I A 1 98=0|108=30
         app
         I 2 4 7=2|16=0
         I 4 2 43=Y|122=NOW|123=Y|36=4
         I 0 5",
        expect![[r#"
            I A 1 98=0|108=30
              who is 
              persist in=2 out=2
              send 1 A|98=0|108=30
              logged on
            app
              persist in=2 out=3
              send 2 8|58=report
            I 2 4 7=2|16=0
              fetch 2..=2
              persist in=2 out=4
              send 2 8|43=Y|122|58=report
              send 3 2|7=2|16=0
            I 4 2 43=Y|122=NOW|123=Y|36=4
              persist in=4 out=4
              persist in=5 out=4
            I 0 5
              persist in=6 out=4
        "#]],
    );
}

#[test]
fn a_reject_beyond_a_gap_is_processed_and_not_requested_again() {
    check(
        "I A 1 98=0|108=30
         I 3 4 45=1
         I 4 2 43=Y|122=NOW|123=Y|36=4
         I 0 5",
        expect![[r#"
            I A 1 98=0|108=30
              who is 
              persist in=2 out=2
              send 1 A|98=0|108=30
              logged on
            I 3 4 45=1
              persist in=2 out=3
              send 2 2|7=2|16=0
            I 4 2 43=Y|122=NOW|123=Y|36=4
              persist in=4 out=3
              persist in=5 out=3
            I 0 5
              persist in=6 out=3
        "#]],
    );
}

#[test]
fn invalid_ranges_are_refused_or_cut_to_the_sent_messages() {
    check(
        "I A 1 98=0|108=30
         app
         I 2 2 7=0|16=0
         I 2 3 7=3|16=2
         I 2 4 7=99|16=0
         I 2 5 7=2|16=999999
         I 2 6 7=2|16=999999999999999999
         I 2 7 7=9999999999999999999999|16=0
         I 2 8 7=2|16=99999999999999999999",
        expect![[r#"
            I A 1 98=0|108=30
              who is 
              persist in=2 out=2
              send 1 A|98=0|108=30
              logged on
            app
              persist in=2 out=3
              send 2 8|58=report
            I 2 2 7=0|16=0
              persist in=3 out=4
              send 3 3|45=2|58=Value is incorrect (out of range) for this tag|371=7|372=2|373=5
            I 2 3 7=3|16=2
              persist in=4 out=5
              send 4 3|45=3|58=Value is incorrect (out of range) for this tag|371=16|372=2|373=5
            I 2 4 7=99|16=0
              persist in=5 out=6
              send 5 3|45=4|58=Value is incorrect (out of range) for this tag|371=7|372=2|373=5
            I 2 5 7=2|16=999999
              persist in=6 out=6
              fetch 2..=5
              send 2 8|43=Y|122|58=report
              send 3 4|43=Y|122|36=6|123=Y
            I 2 6 7=2|16=999999999999999999
              persist in=7 out=6
              fetch 2..=5
              send 2 8|43=Y|122|58=report
              send 3 4|43=Y|122|36=6|123=Y
            I 2 7 7=9999999999999999999999|16=0
              persist in=8 out=7
              send 6 3|45=7|58=Value is incorrect (out of range) for this tag|371=7|372=2|373=5
            I 2 8 7=2|16=99999999999999999999
              persist in=9 out=8
              send 7 3|45=8|58=Value is incorrect (out of range) for this tag|371=7|372=2|373=5
        "#]],
    );
}

//! Numbers: gaps, resends, resets.

use expect_test::expect;

use super::{
    super::SessionConfig,
    world::{World, check, check_with, config},
};

#[test]
fn numbers_continue_and_a_gap_is_requested_after_the_logon() {
    check_with(
        World::new(config(), 4, 6),
        "I A 7 98=0|108=30
         I D 4 43=Y|122=NOW|ORDER
         I 4 5 43=Y|122=NOW|123=Y|36=8
         I 0 8",
        expect![[r#"
            I A 7 98=0|108=30
              who is 
              persist in=4 out=7
              send 6 A|98=0|108=30
              persist in=4 out=8
              send 7 2|7=4|16=0
              logged on
            I D 4 43=Y|122=NOW|ORDER
              deliver 4 D
            I 4 5 43=Y|122=NOW|123=Y|36=8
              persist in=8 out=8
            I 0 8
              persist in=9 out=8
        "#]],
    );
}

#[test]
fn a_number_too_low_ends_the_session_unless_it_is_a_duplicate() {
    check_with(
        World::new(config(), 4, 6),
        "I A 4 98=0|108=30
         I D 2 43=Y|122=NOW|ORDER
         I D 2 43=Y|ORDER
         I 4 2 43=Y|123=Y|36=9
         I D 2 ORDER",
        expect![[r#"
            I A 4 98=0|108=30
              who is 
              persist in=5 out=7
              send 6 A|98=0|108=30
              logged on
            I D 2 43=Y|122=NOW|ORDER
            I D 2 43=Y|ORDER
              persist in=5 out=8
              send 7 3|45=2|58=Required tag missing|371=122|372=D|373=1
            I 4 2 43=Y|123=Y|36=9
            I D 2 ORDER
              persist in=5 out=9
              send 8 5|58=MsgSeqNum too low, expecting 5 but received 2
              disconnect
        "#]],
    );
    check_with(
        World::new(config(), 4, 6),
        "I A 3 98=0|108=30",
        expect![[r#"
        I A 3 98=0|108=30
          who is 
          persist in=4 out=7
          send 6 5|58=MsgSeqNum too low, expecting 4 but received 3
          disconnect
    "#]],
    );
}

#[test]
fn a_gap_is_requested_once_and_its_queue_is_processed_in_order() {
    check(
        "I A 1 98=0|108=30
         I D 4 ORDER
         I 1 5 112=x
         I D 2 43=Y|122=NOW|ORDER
         I D 3 43=Y|122=NOW|ORDER
         I D 6 ORDER",
        expect![[r#"
            I A 1 98=0|108=30
              who is 
              persist in=2 out=2
              send 1 A|98=0|108=30
              logged on
            I D 4 ORDER
              persist in=2 out=3
              send 2 2|7=2|16=0
            I 1 5 112=x
            I D 2 43=Y|122=NOW|ORDER
              deliver 2 D
            I D 3 43=Y|122=NOW|ORDER
              deliver 3 D
              deliver 4 D
              persist in=6 out=4
              send 3 0|112=x
            I D 6 ORDER
              deliver 6 D
        "#]],
    );
}

#[test]
fn a_gap_is_requested_in_chunks_where_configured() {
    check_with(
        World::new(SessionConfig { resend_request_chunk: Some(3), ..config() }, 1, 1),
        "I A 1 98=0|108=30
         I 0 9
         I 4 2 43=Y|122=NOW|123=Y|36=5
         I 4 5 43=Y|122=NOW|123=Y|36=8
         I 0 8",
        expect![[r#"
            I A 1 98=0|108=30
              who is 
              persist in=2 out=2
              send 1 A|98=0|108=30
              logged on
            I 0 9
              persist in=2 out=3
              send 2 2|7=2|16=4
            I 4 2 43=Y|122=NOW|123=Y|36=5
              persist in=5 out=3
              persist in=5 out=4
              send 3 2|7=5|16=7
            I 4 5 43=Y|122=NOW|123=Y|36=8
              persist in=8 out=4
              persist in=8 out=5
              send 4 2|7=8|16=0
            I 0 8
              persist in=9 out=5
              persist in=10 out=5
        "#]],
    );
}

#[test]
fn messages_lost_during_a_resend_are_requested_again_up_to_a_limit() {
    check(
        "I A 1 98=0|108=30
         I 0 6
         I 0 2 43=Y|122=NOW
         garbled
         I 0 4 43=Y|122=NOW
         I 0 5 43=Y|122=NOW
         garbled
         I 0 4 43=Y|122=NOW
         I 0 3 43=Y|122=NOW",
        expect![[r#"
            I A 1 98=0|108=30
              who is 
              persist in=2 out=2
              send 1 A|98=0|108=30
              logged on
            I 0 6
              persist in=2 out=3
              send 2 2|7=2|16=0
            I 0 2 43=Y|122=NOW
              persist in=3 out=3
            garbled
            I 0 4 43=Y|122=NOW
              persist in=3 out=4
              send 3 2|7=3|16=0
            I 0 5 43=Y|122=NOW
            garbled
            I 0 4 43=Y|122=NOW
              persist in=3 out=5
              send 4 2|7=3|16=0
            I 0 3 43=Y|122=NOW
              persist in=4 out=5
              persist in=5 out=5
              persist in=6 out=5
              persist in=7 out=5
        "#]],
    );
}

#[test]
fn a_full_queue_costs_one_more_request() {
    check_with(
        World::new(SessionConfig { queue_max: 1, ..config() }, 1, 1),
        "I A 1 98=0|108=30
         I D 3 ORDER
         I D 4 ORDER
         I 0 2
         I D 5 ORDER",
        expect![[r#"
            I A 1 98=0|108=30
              who is 
              persist in=2 out=2
              send 1 A|98=0|108=30
              logged on
            I D 3 ORDER
              persist in=2 out=3
              send 2 2|7=2|16=0
            I D 4 ORDER
            I 0 2
              persist in=3 out=3
              deliver 3 D
            I D 5 ORDER
              persist in=4 out=4
              send 3 2|7=4|16=0
        "#]],
    );
}

#[test]
fn application_messages_are_resent_and_session_messages_skipped() {
    check_with(
        World::new(SessionConfig { resend_slice: 2, ..config() }, 1, 1),
        "I A 1 98=0|108=30
         app
         I 1 2 112=x
         I 1 3 112=y
         app
         I 2 4 7=1|16=0
         I 2 5 7=2|16=2
         I 2 2 7=3|16=4
         I 2 6 7=9|16=0
         I 2 7 7=3|16=2",
        expect![[r#"
            I A 1 98=0|108=30
              who is 
              persist in=2 out=2
              send 1 A|98=0|108=30
              logged on
            app
              persist in=2 out=3
              send 2 8|58=report
            I 1 2 112=x
              persist in=3 out=4
              send 3 0|112=x
            I 1 3 112=y
              persist in=4 out=5
              send 4 0|112=y
            app
              persist in=4 out=6
              send 5 8|58=report
            I 2 4 7=1|16=0
              persist in=5 out=6
              fetch 1..=5
              send 1 4|43=Y|122|36=2|123=Y
              send 2 8|43=Y|122|58=report
              send 3 4|43=Y|122|36=5|123=Y
              send 5 8|43=Y|122|58=report
            I 2 5 7=2|16=2
              persist in=6 out=6
              fetch 2..=2
              send 2 8|43=Y|122|58=report
            I 2 2 7=3|16=4
              fetch 3..=4
              send 3 4|43=Y|122|36=5|123=Y
            I 2 6 7=9|16=0
              persist in=7 out=7
              send 6 3|45=6|58=Value is incorrect (out of range) for this tag|371=7|372=2|373=5
            I 2 7 7=3|16=2
              persist in=8 out=8
              send 7 3|45=7|58=Value is incorrect (out of range) for this tag|371=16|372=2|373=5
        "#]],
    );
}

#[test]
fn both_sides_with_a_gap_do_not_wait_for_each_other() {
    check(
        "I A 1 98=0|108=30
         app
         I 0 5
         I 2 6 7=2|16=0
         I 4 2 43=Y|122=NOW|123=Y|36=7",
        expect![[r#"
            I A 1 98=0|108=30
              who is 
              persist in=2 out=2
              send 1 A|98=0|108=30
              logged on
            app
              persist in=2 out=3
              send 2 8|58=report
            I 0 5
              persist in=2 out=4
              send 3 2|7=2|16=0
            I 2 6 7=2|16=0
              fetch 2..=3
              send 2 8|43=Y|122|58=report
              send 3 4|43=Y|122|36=4|123=Y
            I 4 2 43=Y|122=NOW|123=Y|36=7
              persist in=7 out=4
        "#]],
    );
}

#[test]
fn sequence_resets_only_go_forward() {
    check(
        "I A 1 98=0|108=30
         I 4 2 123=Y|36=5
         I 4 9 123=Y|36=12
         I 4 5 123=Y|36=5
         I 4 0 36=20
         I 4 0 36=20
         I 4 0 36=19
         I 0 20",
        expect![[r#"
            I A 1 98=0|108=30
              who is 
              persist in=2 out=2
              send 1 A|98=0|108=30
              logged on
            I 4 2 123=Y|36=5
              persist in=5 out=2
            I 4 9 123=Y|36=12
              persist in=5 out=3
              send 2 2|7=5|16=0
            I 4 5 123=Y|36=5
              persist in=5 out=4
              send 3 3|45=5|58=Value is incorrect (out of range) for this tag|372=4|373=5
            I 4 0 36=20
              persist in=20 out=4
            I 4 0 36=20
              persist in=20 out=4
            I 4 0 36=19
              persist in=20 out=5
              send 4 3|45=0|58=Value is incorrect (out of range) for this tag|372=4|373=5
            I 0 20
              persist in=21 out=5
        "#]],
    );
}

#[test]
fn a_reset_inside_a_session_restarts_both_numbers() {
    check(
        "I A 1 98=0|108=30
         app
         I A 1 98=0|108=30|141=Y
         I 2 2 7=1|16=0
         I A 3 98=0|108=30",
        expect![[r#"
            I A 1 98=0|108=30
              who is 
              persist in=2 out=2
              send 1 A|98=0|108=30
              logged on
            app
              persist in=2 out=3
              send 2 8|58=report
            I A 1 98=0|108=30|141=Y
              who is 
              reset
              persist in=2 out=2
              send 1 A|98=0|108=30|141=Y
              logged on
            I 2 2 7=1|16=0
              persist in=3 out=2
              fetch 1..=1
              send 1 4|43=Y|122|36=2|123=Y
            I A 3 98=0|108=30
              persist in=3 out=3
              send 2 5|58=Unexpected Logon
              disconnect
        "#]],
    );
}

#[test]
fn kept_messages_follow_the_logon_under_new_numbers() {
    check(
        "I A 1 98=0|108=30
         app
         app
         lost
         keeps
         I A 1 98=0|108=30|141=Y
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
    check_with(
        World::new(config, 1, 1),
        "I A 1 98=0|108=30
         app
         lost
         keeps
         I A 3 98=0|108=30",
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

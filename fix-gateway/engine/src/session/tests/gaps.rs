//! Gaps that do not close by themselves, and the messages that wait beyond them.

use std::time::Duration;

use expect_test::expect;

use super::{
    super::SessionConfig,
    world::{World, check, check_with, config},
};

#[test]
fn a_gap_without_progress_ends_the_session() {
    check_with(
        World::new(SessionConfig { gap_patience: Duration::from_secs(20), ..config() }, 1, 1),
        "I A 1 98=0|108=0
         I 0 9
         +19
         I 0 2 43=Y|122=NOW
         +19
         I 0 10
         +2
         I 5 11",
        expect![[r#"
            I A 1 98=0|108=0
              who is 
              persist in=2 out=2
              send 1 A|98=0|108=0
              logged on
            I 0 9
              persist in=2 out=3
              send 2 2|7=2|16=0
            +19
            I 0 2 43=Y|122=NOW
              persist in=3 out=3
            +19
            I 0 10
            +2
              at 39.0
              persist in=3 out=4
              send 3 5|58=Missing messages were not resent
            I 5 11
              disconnect
        "#]],
    );
}

#[test]
fn a_message_that_is_lost_in_every_pass_ends_the_session() {
    check(
        "I A 1 98=0|108=30
         I 0 5
         I 0 3 43=Y|122=NOW
         I 0 4 43=Y|122=NOW
         I 0 3 43=Y|122=NOW
         I 0 4 43=Y|122=NOW
         I 0 3 43=Y|122=NOW",
        expect![[r#"
            I A 1 98=0|108=30
              who is 
              persist in=2 out=2
              send 1 A|98=0|108=30
              logged on
            I 0 5
              persist in=2 out=3
              send 2 2|7=2|16=0
            I 0 3 43=Y|122=NOW
              persist in=2 out=4
              send 3 2|7=2|16=0
            I 0 4 43=Y|122=NOW
            I 0 3 43=Y|122=NOW
              persist in=2 out=5
              send 4 2|7=2|16=0
            I 0 4 43=Y|122=NOW
            I 0 3 43=Y|122=NOW
              persist in=2 out=6
              send 5 5|58=Missing messages were not resent
        "#]],
    );
}

#[test]
fn a_gap_fill_beyond_a_chunk_closes_the_chunks_it_covers() {
    check_with(
        World::new(SessionConfig { resend_request_chunk: Some(3), ..config() }, 1, 1),
        "I A 1 98=0|108=30
         I 0 9
         I 4 2 43=Y|122=NOW|123=Y|36=7
         I 4 7 43=Y|122=NOW|123=Y|36=12
         I 0 12",
        expect![[r#"
            I A 1 98=0|108=30
              who is 
              persist in=2 out=2
              send 1 A|98=0|108=30
              logged on
            I 0 9
              persist in=2 out=3
              send 2 2|7=2|16=4
            I 4 2 43=Y|122=NOW|123=Y|36=7
              persist in=7 out=3
              persist in=7 out=4
              send 3 2|7=7|16=0
            I 4 7 43=Y|122=NOW|123=Y|36=12
              persist in=12 out=4
            I 0 12
              persist in=13 out=4
        "#]],
    );
}

#[test]
fn a_reset_without_gap_fill_clears_the_queue() {
    check(
        "I A 1 98=0|108=30
         I D 4 ORDER
         I D 6 ORDER
         I 4 0 36=6
         I D 6 ORDER
         I 0 7",
        expect![[r#"
            I A 1 98=0|108=30
              who is 
              persist in=2 out=2
              send 1 A|98=0|108=30
              logged on
            I D 4 ORDER
              persist in=2 out=3
              send 2 2|7=2|16=0
            I D 6 ORDER
            I 4 0 36=6
              persist in=6 out=3
            I D 6 ORDER
              deliver 6 D
            I 0 7
              persist in=8 out=3
        "#]],
    );
}

#[test]
fn the_queue_is_bounded_in_bytes_too() {
    check_with(
        World::new(SessionConfig { queue_bytes_max: 200, ..config() }, 1, 1),
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

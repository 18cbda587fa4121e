//! The sides' announcements of numbers: NextExpectedMsgSeqNum(789) and LastMsgSeqNumProcessed(369).

use expect_test::expect;

use super::{
    super::SessionConfig,
    world::{World, check_with, config, config_fixt, config42},
};

#[test]
fn next_expected_msg_seq_num_causes_a_resend_without_a_request() {
    let config = || SessionConfig { next_expected_msg_seq_num: true, ..config() };
    // Nothing missing on either side.
    check_with(
        World::new(config(), 4, 6),
        "I A 4 98=0|108=30|789=6",
        expect![[r#"
        I A 4 98=0|108=30|789=6
          who is 
          persist in=5 out=7
          send 6 A|98=0|108=30|789=5
          logged on
    "#]],
    );
    // The peer misses our messages.
    check_with(
        World::new(config(), 1, 1),
        "I A 1 98=0|108=30|789=1
         app
         app
         lost
         I A 2 98=0|108=30|789=2
         app",
        expect![[r#"
            I A 1 98=0|108=30|789=1
              who is 
              persist in=2 out=2
              send 1 A|98=0|108=30|789=2
              logged on
            app
              persist in=2 out=3
              send 2 8|58=report
            app
              persist in=2 out=4
              send 3 8|58=report
            lost
            I A 2 98=0|108=30|789=2
              who is 
              persist in=3 out=5
              send 4 A|98=0|108=30|789=3
              fetch 2..=4
              logged on
              send 2 8|43=Y|122|58=report
              send 3 8|43=Y|122|58=report
              send 4 4|43=Y|122|36=5|123=Y
            app
              persist in=3 out=6
              send 5 8|58=report
        "#]],
    );
    // We miss the peer's messages: they come without a request, and in the meantime nothing is requested.
    check_with(
        World::new(config(), 4, 6),
        "I A 7 98=0|108=30|789=6
         I 0 8
         I D 4 43=Y|122=NOW|ORDER
         I 4 5 43=Y|122=NOW|123=Y|36=8",
        expect![[r#"
            I A 7 98=0|108=30|789=6
              who is 
              persist in=4 out=7
              send 6 A|98=0|108=30|789=4
              logged on
            I 0 8
            I D 4 43=Y|122=NOW|ORDER
              deliver 4 D
            I 4 5 43=Y|122=NOW|123=Y|36=8
              persist in=8 out=7
              persist in=9 out=7
        "#]],
    );
    // Both.
    check_with(
        World::new(config(), 4, 6),
        "I A 7 98=0|108=30|789=3
         I 4 4 43=Y|122=NOW|123=Y|36=8
         I 0 8",
        expect![[r#"
            I A 7 98=0|108=30|789=3
              who is 
              persist in=4 out=7
              send 6 A|98=0|108=30|789=4
              fetch 3..=6
              logged on
              send 3 4|43=Y|122|36=7|123=Y
            I 4 4 43=Y|122=NOW|123=Y|36=8
              persist in=8 out=7
            I 0 8
              persist in=9 out=7
        "#]],
    );
    // It expects a number that we never sent.
    check_with(
        World::new(config(), 4, 6),
        "I A 4 98=0|108=30|789=7",
        expect![[r#"
        I A 4 98=0|108=30|789=7
          who is 
          persist in=4 out=7
          send 6 5|58=NextExpectedMsgSeqNum too high, expecting 6 but received 7
          disconnect
    "#]],
    );
    // With a reset both numbers begin at 1, regardless of the field.
    check_with(
        World::new(config(), 4, 6),
        "I A 1 98=0|108=30|141=Y|789=1",
        expect![[r#"
        I A 1 98=0|108=30|141=Y|789=1
          who is 
          reset
          persist in=2 out=2
          send 1 A|98=0|108=30|141=Y|789=2
          logged on
    "#]],
    );
    let resetting = SessionConfig { reset_on_logon: true, ..config() };
    check_with(
        World::new(resetting, 4, 6),
        "I A 1 98=0|108=30|789=6",
        expect![[r#"
        I A 1 98=0|108=30|789=6
          who is 
          reset
          persist in=2 out=2
          send 1 A|98=0|108=30|789=2
          logged on
    "#]],
    );
    // A peer that does not know the field gets a ResendRequest.
    check_with(
        World::new(config(), 4, 6),
        "I A 7 98=0|108=30",
        expect![[r#"
        I A 7 98=0|108=30
          who is 
          persist in=4 out=7
          send 6 A|98=0|108=30|789=4
          persist in=4 out=8
          send 7 2|7=4|16=0
          logged on
    "#]],
    );
}

#[test]
fn next_expected_msg_seq_num_is_sent_on_fixt_and_not_on_4_2() {
    let on = |config| SessionConfig { next_expected_msg_seq_num: true, ..config };
    check_with(
        World::new(on(config_fixt()), 4, 6),
        "I A 4 98=0|108=30|789=5|1137=9",
        expect![[r#"
        I A 4 98=0|108=30|789=5|1137=9
          who is 
          persist in=5 out=7
          send 6 A|98=0|108=30|789=5|1137=9
          fetch 5..=6
          logged on
          send 5 4|43=Y|122|36=7|123=Y
    "#]],
    );
    check_with(
        World::new(on(config42()), 4, 6),
        "I A 7 98=0|108=30",
        expect![[r#"
        I A 7 98=0|108=30
          who is 
          persist in=4 out=7
          send 6 A|98=0|108=30
          persist in=4 out=8
          send 7 2|7=4|16=0
          logged on
    "#]],
    );
}

#[test]
fn every_message_carries_last_msg_seq_num_processed() {
    check_with(
        World::new(SessionConfig { last_msg_seq_num_processed: true, ..config42() }, 1, 1),
        "I A 1 98=0|108=10
         I 1 2 112=x
         app
         I 2 3 7=1|16=0
         I 0 9
         +12
         I D 4 11=a
         I 5 10",
        expect![[r#"
            I A 1 98=0|108=10
              who is 
              persist in=2 out=2
              send 1 A|369=1|98=0|108=10
              logged on
            I 1 2 112=x
              persist in=3 out=3
              send 2 0|369=2|112=x
            app
              persist in=3 out=4
              send 3 8|369=2|58=report
            I 2 3 7=1|16=0
              persist in=4 out=4
              fetch 1..=3
              send 1 4|43=Y|122|369=3|36=3|123=Y
              send 3 8|43=Y|122|369=3|58=report
            I 0 9
              persist in=4 out=5
              send 4 2|369=3|7=4|16=0
            +12
              at 10.0
              persist in=4 out=6
              send 5 0|369=3
              at 12.0
              persist in=4 out=7
              send 6 1|369=3|112=TEST
            I D 4 11=a
              persist in=5 out=8
              send 7 3|369=4|45=4|58=Required tag missing|371=21|372=D|373=1
            I 5 10
              persist in=5 out=9
              send 8 5|369=4
              disconnect
        "#]],
    );
}

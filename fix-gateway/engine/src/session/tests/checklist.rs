//! Mistakes that engines have made, where no other test is about them.

use expect_test::expect;

use super::{
    super::SessionConfig,
    world::{World, check, check_with, config},
};

#[test]
fn a_violation_in_a_queued_message_is_answered_without_a_disconnect() {
    check(
        "I A 1 98=0|108=30
         I 4 3 123=Y|36=2
         I D 4 ORDER
         I 0 2",
        expect![[r#"
            I A 1 98=0|108=30
              who is 
              persist in=2 out=2
              send 1 A|98=0|108=30
              logged on
            I 4 3 123=Y|36=2
              persist in=2 out=3
              send 2 2|7=2|16=0
            I D 4 ORDER
            I 0 2
              persist in=3 out=3
              persist in=3 out=4
              send 3 3|45=3|58=Value is incorrect (out of range) for this tag|372=4|373=5
        "#]],
    );
}

#[test]
fn any_message_answers_a_test_request() {
    for answer in ["I 0 2", "I 0 2 112=OTHER", "I D 2 ORDER", "I 0 9", "I 0 2 999=x"] {
        let mut world = World::new(config(), 1, 1);
        world.run("I A 1 98=0|108=10\n+12");
        assert!(world.transcript.ends_with("|112=TEST\n"), "{answer}");
        world.run(answer);
        world.run("+11.9");
        assert!(world.session.is_logged_on(), "{answer}");
        assert!(!world.transcript.contains("disconnect"), "{answer}");
    }
}

#[test]
fn a_logout_is_not_resent_on_the_next_connection() {
    check(
        "I A 1 98=0|108=30
         logout
         I 5 2
         lost
         I A 3 98=0|108=30
         I 2 4 7=1|16=0",
        expect![[r#"
            I A 1 98=0|108=30
              who is 
              persist in=2 out=2
              send 1 A|98=0|108=30
              logged on
            logout
              persist in=2 out=3
              send 2 5|58=enough
            I 5 2
              persist in=3 out=3
              disconnect
            lost
            I A 3 98=0|108=30
              who is 
              persist in=4 out=4
              send 3 A|98=0|108=30
              logged on
            I 2 4 7=1|16=0
              persist in=5 out=4
              fetch 1..=3
              send 1 4|43=Y|122|36=4|123=Y
        "#]],
    );
}

#[test]
fn a_malformed_logout_is_rejected_and_not_dropped() {
    check(
        "I A 1 98=0|108=30
         I 5 2 999=x
         logout
         I 5 3 999=x
         I 5 4",
        expect![[r#"
            I A 1 98=0|108=30
              who is 
              persist in=2 out=2
              send 1 A|98=0|108=30
              logged on
            I 5 2 999=x
              persist in=3 out=3
              send 2 3|45=2|58=Invalid tag number|371=999|372=5|373=0
            logout
              persist in=3 out=4
              send 3 5|58=enough
            I 5 3 999=x
              persist in=4 out=5
              send 4 3|45=3|58=Invalid tag number|371=999|372=5|373=0
            I 5 4
              persist in=5 out=5
              disconnect
        "#]],
    );
}

#[test]
fn numbers_continue_past_32_bits() {
    check_with(
        World::new(config(), u64::from(u32::MAX), u64::from(u32::MAX)),
        "I A 4294967295 98=0|108=30
         I 1 4294967296 112=x
         I 2 4294967297 7=4294967295|16=0",
        expect![[r#"
            I A 4294967295 98=0|108=30
              who is 
              persist in=4294967296 out=4294967296
              send 4294967295 A|98=0|108=30
              logged on
            I 1 4294967296 112=x
              persist in=4294967297 out=4294967297
              send 4294967296 0|112=x
            I 2 4294967297 7=4294967295|16=0
              persist in=4294967298 out=4294967297
              fetch 4294967295..=4294967296
              send 4294967295 4|43=Y|122|36=4294967297|123=Y
        "#]],
    );
}

#[test]
fn a_gap_of_any_width_costs_one_request_and_a_bounded_queue() {
    let mut world = World::new(SessionConfig { queue_max: 3, ..config() }, 1, 1);
    world.run("I A 1 98=0|108=30");
    for seq in 1_000_000..1_000_100 {
        world.run(&format!("I 0 {seq}"));
    }
    assert_eq!(world.transcript.matches("send ").count(), 2, "{}", world.transcript);
}

#[test]
fn nothing_is_processed_from_an_unauthenticated_peer() {
    check_with(
        World::new(config(), 1, 1),
        "I A 1 98=0|108=30
         lost
         I D 2 ORDER
         lost
         I 2 2 7=1|16=0
         lost
         I 4 2 36=99",
        expect![[r#"
            I A 1 98=0|108=30
              who is 
              persist in=2 out=2
              send 1 A|98=0|108=30
              logged on
            lost
            I D 2 ORDER
              disconnect
            lost
            I 2 2 7=1|16=0
              disconnect
            lost
            I 4 2 36=99
              disconnect
        "#]],
    );
}

//! Gaps that do not close by themselves, and the messages that wait beyond them.

use expect_test::expect;

use super::{
    super::SessionConfig,
    world::{World, check, config, logged_on},
};

#[test]
fn a_gap_without_progress_ends_the_session() {
    check(
        World::new(config(), 1, 1),
        expect![[r#"
        I A 1 98=0|108=0
          who is 
          persist in=2 out=2
          send 1 A|98=0|108=0
          logged on
        I 0 9
          persist in=2 out=3
          send 2 2|7=2|16=0
        +59
        I 0 2 43=Y|122=NOW
          persist in=3 out=3
        +59
        I 0 10
        +2
          at 119.0
          persist in=3 out=4
          send 3 5|58=Missing messages were not resent
        I 5 11
          disconnect
    "#]],
    );
}

#[test]
fn the_queue_is_bounded_in_messages_and_in_bytes() {
    let of_one = SessionConfig { queue_max: 1, ..config() };
    for config in [of_one, SessionConfig { queue_bytes_max: 200, ..config() }] {
        check(
            logged_on(config),
            expect![[r#"
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
}

#[test]
fn a_gap_of_any_width_costs_one_request_and_a_bounded_queue() {
    let mut world = logged_on(SessionConfig { queue_max: 3, ..config() });
    for seq in 1_000_000..1_000_100 {
        world.run(&format!("I 0 {seq}"));
    }
    assert_eq!(world.transcript.matches("send ").count(), 1, "{}", world.transcript);
}

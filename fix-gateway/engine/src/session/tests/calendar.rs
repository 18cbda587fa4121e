//! The session and its schedule. The clock starts at 2027-01-15 08:00:00 UTC, a Friday.

use expect_test::expect;

use crate::schedule::Epoch;

use super::{
    super::SessionConfig,
    world::{World, check, config},
};

fn scheduled(schedule: &str, epoch: Option<i64>, next_in: u64, next_out: u64) -> World {
    let mut world =
        World::new(SessionConfig { schedule: schedule.parse().unwrap(), ..config() }, next_in, next_out);
    world.map_session(|session| session.in_epoch(epoch.map(Epoch)));
    world
}

const TODAY: i64 = 20_833;

#[test]
fn the_end_of_a_window_logs_out_and_awaits_the_answer() {
    check(
        scheduled("daily 07:00 UTC to 09:00 UTC", Some(TODAY), 5, 7),
        expect![[r#"
        I A 5 98=0|108=0
          who is 
          persist in=6 out=8
          send 7 A|98=0|108=0
          logged on
        +3599
        app
          persist in=6 out=9
          send 8 8|58=report
        +2
          at 3600.0
          persist in=6 out=10
          send 9 5|58=End of session
        app
          not logged on
        I 5 6
          persist in=7 out=10
          disconnect
        I A 7 98=0|108=0
        lost
        I A 7 98=0|108=0
          disconnect
    "#]],
    );
}

#[test]
fn a_peer_that_does_not_answer_the_logout_is_disconnected() {
    check(
        scheduled("daily 07:00 UTC to 09:00 UTC", Some(TODAY), 5, 7),
        expect![[r#"
        I A 5 98=0|108=0
          who is 
          persist in=6 out=8
          send 7 A|98=0|108=0
          logged on
        +3600
          at 3600.0
          persist in=6 out=9
          send 8 5|58=End of session
        +10
          at 3602.0
          disconnect
    "#]],
    );
}

#[test]
fn outside_the_schedule_a_logon_is_refused_and_changes_nothing() {
    check(
        scheduled("daily 09:00 UTC to 17:00 UTC", Some(TODAY - 1), 5, 7),
        expect![[r#"
        I A 5 98=0|108=0
          disconnect
        lost
        +3599
        I A 5 98=0|108=0
          disconnect
    "#]],
    );
}

#[test]
fn numbers_reset_at_the_beginning_of_a_window_only() {
    check(
        scheduled("daily 09:00 UTC to 17:00 UTC", Some(TODAY - 1), 5, 7),
        expect![[r#"
        +3599
        +2
          at 3600.0
          reset
          epoch 20833
        I A 1 98=0|108=0
          who is 
          persist in=2 out=2
          send 1 A|98=0|108=0
          logged on
        app
          persist in=2 out=3
          send 2 8|58=report
        I 5 2
          persist in=3 out=3
          persist in=3 out=4
          send 3 5
          disconnect
        lost
        +3600
        I A 3 98=0|108=0
          who is 
          persist in=4 out=5
          send 4 A|98=0|108=0
          logged on
    "#]],
    );
}

#[test]
fn a_window_that_began_during_downtime_is_noticed_at_startup() {
    check(
        scheduled("daily 07:00 UTC to 09:00 UTC", Some(TODAY - 3), 5, 7),
        expect![[r#"
        I A 1 98=0|108=0
          reset
          epoch 20833
          who is 
          persist in=2 out=2
          send 1 A|98=0|108=0
          logged on
    "#]],
    );
}

#[test]
fn a_restart_or_a_clock_set_back_inside_a_window_resets_nothing() {
    for epoch in [TODAY, TODAY + 1] {
        let mut world = scheduled("daily 07:00 UTC to 09:00 UTC", Some(epoch), 5, 7);
        world.run("I A 5 98=0|108=0");
        assert!(!world.transcript.contains("reset") && !world.transcript.contains("epoch"), "{epoch}");
        assert!(world.transcript.contains("send 7 A"), "{epoch}");
    }
}

#[test]
fn numbers_of_an_unknown_window_are_kept() {
    for epoch in [None, Some(0)] {
        let mut world = scheduled("daily 07:00 UTC to 09:00 UTC", epoch, 5, 7);
        world.run("I A 5 98=0|108=0");
        assert!(!world.transcript.contains("reset"), "{epoch:?}");
        assert!(
            world.transcript.contains("epoch 20833\n  who is \n  persist in=6 out=8\n  send 7 A"),
            "{epoch:?}"
        );
    }
}

#[test]
fn a_session_that_is_always_open_is_logged_out_for_its_reset() {
    check(
        scheduled("daily reset 09:00 UTC", Some(TODAY - 1), 5, 7),
        expect![[r#"
        I A 5 98=0|108=0
          who is 
          persist in=6 out=8
          send 7 A|98=0|108=0
          logged on
        +3601
          at 3600.0
          persist in=6 out=9
          send 8 5|58=End of session
        I 5 6
          persist in=7 out=9
          disconnect
        lost
        +0
          at 3601.0
          reset
          epoch 20833
        I A 1 98=0|108=0
          who is 
          persist in=2 out=2
          send 1 A|98=0|108=0
          logged on
    "#]],
    );
}

#[test]
fn a_session_without_end_has_no_boundary_to_wait_for() {
    let mut world = scheduled("daily 00:00 UTC to 00:00 UTC", None, 5, 7);
    assert_eq!(world.session.poll_timeout(), None);
    assert!(world.session.is_open());
    world.run("I A 5 98=0|108=0");
    assert_eq!(world.session.poll_timeout(), None);
}

#[test]
fn nothing_is_numbered_between_windows() {
    let mut world = scheduled("daily 09:00 UTC to 17:00 UTC", Some(TODAY - 1), 5, 7);
    world.run("+1");
    assert!(!world.session.is_open());
    world.run("+3600");
    assert!(world.session.is_open());
}

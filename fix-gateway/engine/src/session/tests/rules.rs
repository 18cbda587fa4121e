//! Rules of the session protocol, one by one.

use expect_test::expect;

use super::{
    super::{SeqNum, SessionConfig},
    world::{World, check, config, logged_on},
};

#[test]
fn a_logon_is_authenticated_then_counted_then_answered() {
    check(
        World::new(config(), 1, 1),
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
    check(
        World::new(config(), 7, 9),
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
fn a_reset_inside_a_session_needs_the_flag_number_1_and_permission() {
    let never = || SessionConfig { reset_allowed: false, ..config() };
    for (config, logon) in [
        (config(), "I A 2 98=0|108=30"),
        (config(), "I A 2 98=0|108=30|141=N"),
        (config(), "I A 2 98=0|108=30|141=Y"),
        (never(), "I A 1 98=0|108=30|141=Y"),
    ] {
        let mut world = logged_on(config);
        world.run(logon);
        assert!(world.transcript.ends_with("send 2 5|58=Unexpected Logon\n  disconnect\n"), "{logon}");
    }
    let mut world = World::new(never(), 4, 6);
    world.run("I A 1 98=0|108=30|141=Y");
    assert_eq!(world.transcript, "I A 1 98=0|108=30|141=Y\n  disconnect\n");
}

#[test]
fn the_number_that_a_peer_expects_has_no_meaning_after_our_own_reset() {
    let config = SessionConfig { next_expected_msg_seq_num: true, reset_on_logon: true, ..config() };
    check(
        World::new(config, 4, 6),
        expect![[r#"
        I A 1 98=0|108=30|789=6
          who is 
          reset
          persist in=2 out=2
          send 1 A|98=0|108=30|789=2
          logged on
    "#]],
    );
}

#[test]
fn an_unauthenticated_logon_inside_a_session_resets_nothing() {
    check(
        World::new(config(), 4, 6),
        expect![[r#"
        I A 4 98=0|108=30
          who is 
          persist in=5 out=7
          send 6 A|98=0|108=30
          logged on
        unauthenticated
        I A 1 98=0|108=30|141=Y
          who is 
          disconnect
    "#]],
    );
}

#[test]
fn sending_time_has_a_tolerance_and_any_precision() {
    // The clock stands at 2027-01-15 08:00:00.
    for (time, fine) in [
        ("20270115-07:58:00", true),
        ("20270115-07:58:00.000", true),
        ("20270115-07:57:59.999999999", false),
        ("20270115-07:57:59", false),
        ("20270115-08:02:00.000", true),
        ("20270115-08:02:00.000001", false),
        ("20270115-08:00:00.123456", true),
        ("20270115-08:00:00.123456789", true),
    ] {
        let mut world = logged_on(config());
        world.run(&format!("I 0 2 52={time}"));
        assert_eq!(world.session.is_logged_on(), fine, "{time}");
        assert_eq!(world.session.next_in(), SeqNum(3), "{time}");
    }
}

#[test]
fn numbers_near_overflow_and_invalid_numbers_are_distinguished() {
    check(
        logged_on(config()),
        expect![[r#"
        I 4 0 36=999999999999999999
          persist in=999999999999999999 out=2
        I 0 999999999999999999
          persist in=1000000000000000000 out=2
        I 0 1000000000000000000
          persist in=1000000000000000000 out=3
          send 2 5|58=Received message without MsgSeqNum
          disconnect
    "#]],
    );
    for seq in ["", "-1", "+2", "2.0", " 2", "2 ", "0x2", "99999999999999999999999"] {
        let mut world = logged_on(config());
        world.run(&format!("raw 8=FIX.4.4|35=0|34={seq}|49=ACME|52=NOW|56=DVP|"));
        let transcript = &world.transcript;
        assert!(transcript.ends_with("Received message without MsgSeqNum\n  disconnect\n"), "{transcript}");
    }
    // Zeros in front are digits like any other.
    let mut world = logged_on(config());
    world.run("I 0 0000000002");
    assert_eq!(world.session.next_in(), SeqNum(3));
}

#[test]
fn no_timer_fires_before_the_logon() {
    let mut world = World::new(config(), 1, 1);
    assert_eq!(world.session.poll_timeout(), None);
    world.run("+3600\nI A 1 98=0|108=30");
    assert!(world.transcript.contains("send 1 A|98=0|108=30"), "{}", world.transcript);
}

#[test]
fn heartbeat_intervals_may_be_zero_but_not_negative_or_excessive() {
    for (interval, fine) in
        [("0", true), ("1", true), ("3600", true), ("3601", false), ("-1", false), ("", false)]
    {
        let mut world = World::new(config(), 1, 1);
        world.run(&format!("I A 1 98=0|108={interval}"));
        assert_eq!(world.session.is_logged_on(), fine, "{interval}");
        assert_eq!(world.session.next_out(), SeqNum(if fine { 2 } else { 1 }), "{interval}");
    }
}

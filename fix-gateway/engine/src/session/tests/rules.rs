//! Rules of the session protocol, one by one.

use expect_test::expect;

use super::{
    super::{SeqNum, SessionConfig, Texts},
    world::{World, check, check_with, config, config_fixt, config42},
};

#[test]
fn our_logout_waits_for_its_answer_and_counts_it() {
    check(
        "I A 1 98=0|108=1
         logout
         app
         +1.5
         I 1 2 112=x
         I D 3 ORDER
         I 5 4",
        expect![[r#"
            I A 1 98=0|108=1
              who is 
              persist in=2 out=2
              send 1 A|98=0|108=1
              logged on
            logout
              persist in=2 out=3
              send 2 5|58=enough
            app
              not logged on
            +1.5
            I 1 2 112=x
              persist in=3 out=4
              send 3 0|112=x
            I D 3 ORDER
              deliver 3 D
            I 5 4
              persist in=5 out=4
              disconnect
        "#]],
    );
    check(
        "I A 1 98=0|108=1\nlogout\n+3",
        expect![[r#"
        I A 1 98=0|108=1
          who is 
          persist in=2 out=2
          send 1 A|98=0|108=1
          logged on
        logout
          persist in=2 out=3
          send 2 5|58=enough
        +3
          at 2.0
          disconnect
    "#]],
    );
}

#[test]
fn violations_after_our_logout_cause_no_second_logout() {
    check(
        "I A 1 98=0|108=30\nlogout\nI D 2 49=OTHER|ORDER\nI D 3 49=OTHER|ORDER\n+3",
        expect![[r#"
        I A 1 98=0|108=30
          who is 
          persist in=2 out=2
          send 1 A|98=0|108=30
          logged on
        logout
          persist in=2 out=3
          send 2 5|58=enough
        I D 2 49=OTHER|ORDER
          persist in=3 out=4
          send 3 3|45=2|58=CompID problem|372=D|373=9
        I D 3 49=OTHER|ORDER
          persist in=4 out=5
          send 4 3|45=3|58=CompID problem|372=D|373=9
        +3
          at 2.0
          disconnect
    "#]],
    );
}

#[test]
fn a_reject_is_never_answered_with_a_reject() {
    check(
        "I A 1 98=0|108=30
         I 3 2 45=x
         I 3 3 45=1|999=x
         I j 4 45=1
         I 3 5 49=OTHER|45=1
         I 5 6",
        expect![[r#"
            I A 1 98=0|108=30
              who is 
              persist in=2 out=2
              send 1 A|98=0|108=30
              logged on
            I 3 2 45=x
              persist in=3 out=2
            I 3 3 45=1|999=x
              persist in=4 out=2
            I j 4 45=1
              persist in=5 out=2
            I 3 5 49=OTHER|45=1
              persist in=6 out=2
              persist in=6 out=3
              send 2 5
            I 5 6
              persist in=7 out=3
              disconnect
        "#]],
    );
}

#[test]
fn a_malformed_message_out_of_order_consumes_no_number() {
    check(
        "I A 1 98=0|108=30
         I 0 5 999=x
         I 0 2 999=x
         I 0 3
         I 0 5",
        expect![[r#"
            I A 1 98=0|108=30
              who is 
              persist in=2 out=2
              send 1 A|98=0|108=30
              logged on
            I 0 5 999=x
              persist in=2 out=3
              send 2 3|45=5|58=Invalid tag number|371=999|372=0|373=0
            I 0 2 999=x
              persist in=3 out=4
              send 3 3|45=2|58=Invalid tag number|371=999|372=0|373=0
            I 0 3
              persist in=4 out=4
            I 0 5
              persist in=4 out=5
              send 4 2|7=4|16=0
        "#]],
    );
}

#[test]
fn a_malformed_logon_inside_a_session_is_refused_and_counted() {
    check(
        "I A 1 98=0|108=30\nI A 2 98=0|108=x\nI 0 3",
        expect![[r#"
        I A 1 98=0|108=30
          who is 
          persist in=2 out=2
          send 1 A|98=0|108=30
          logged on
        I A 2 98=0|108=x
          persist in=3 out=3
          send 2 3|45=2|58=Incorrect data format for value|371=108|372=A|373=6
        I 0 3
          persist in=4 out=3
    "#]],
    );
}

#[test]
fn a_sequence_reset_is_validated_like_any_message() {
    check(
        "I A 1 98=0|108=30
         I 4 2 36=9|999=x
         I 4 2 123=Y
         I 4 2 36=x
         I 4 2 49=OTHER|36=9",
        expect![[r#"
            I A 1 98=0|108=30
              who is 
              persist in=2 out=2
              send 1 A|98=0|108=30
              logged on
            I 4 2 36=9|999=x
              persist in=2 out=3
              send 2 3|45=2|58=Invalid tag number|371=999|372=4|373=0
            I 4 2 123=Y
              persist in=2 out=4
              send 3 3|45=2|58=Required tag missing|371=36|372=4|373=1
            I 4 2 36=x
              persist in=2 out=5
              send 4 3|45=2|58=Incorrect data format for value|371=36|372=4|373=6
            I 4 2 49=OTHER|36=9
              persist in=2 out=6
              send 5 3|45=2|58=CompID problem|372=4|373=9
              persist in=2 out=7
              send 6 5
        "#]],
    );
}

#[test]
fn a_reset_inside_a_session_needs_the_flag_number_1_and_permission() {
    for logon in ["I A 2 98=0|108=30", "I A 2 98=0|108=30|141=N", "I A 2 98=0|108=30|141=Y"] {
        let mut world = World::new(config(), 1, 1);
        world.run("I A 1 98=0|108=30");
        world.run(logon);
        assert!(world.transcript.ends_with("send 2 5|58=Unexpected Logon\n  disconnect\n"), "{logon}");
    }
    let never = SessionConfig { reset_allowed: false, ..config() };
    check_with(
        World::new(never, 1, 1),
        "I A 1 98=0|108=30\nI A 1 98=0|108=30|141=Y",
        expect![[r#"
        I A 1 98=0|108=30
          who is 
          persist in=2 out=2
          send 1 A|98=0|108=30
          logged on
        I A 1 98=0|108=30|141=Y
          persist in=2 out=3
          send 2 5|58=Unexpected Logon
          disconnect
    "#]],
    );
}

#[test]
fn only_a_configured_side_may_reset_the_numbers() {
    let never = SessionConfig { reset_allowed: false, ..config() };
    check_with(
        World::new(never, 4, 6),
        "I A 1 98=0|108=30|141=Y",
        expect![[r#"
        I A 1 98=0|108=30|141=Y
          disconnect
    "#]],
    );
    check_with(
        World::new(config(), 4, 6),
        "I A 1 98=0|108=30|141=Y",
        expect![[r#"
        I A 1 98=0|108=30|141=Y
          who is 
          reset
          persist in=2 out=2
          send 1 A|98=0|108=30|141=Y
          logged on
    "#]],
    );
    check_with(
        World::new(config(), 4, 6),
        "I A 4 98=0|108=30|141=N",
        expect![[r#"
        I A 4 98=0|108=30|141=N
          who is 
          persist in=5 out=7
          send 6 A|98=0|108=30
          logged on
    "#]],
    );
    let always = SessionConfig { reset_on_logon: true, ..config() };
    check_with(
        World::new(always, 4, 6),
        "I A 1 98=0|108=30",
        expect![[r#"
        I A 1 98=0|108=30
          who is 
          reset
          persist in=2 out=2
          send 1 A|98=0|108=30
          logged on
    "#]],
    );
}

#[test]
fn an_unauthenticated_logon_inside_a_session_resets_nothing() {
    check_with(
        World::new(config(), 4, 6),
        "I A 4 98=0|108=30
         unauthenticated
         I A 1 98=0|108=30|141=Y",
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
        let mut world = World::new(config(), 1, 1);
        world.run("I A 1 98=0|108=30");
        world.run(&format!("I 0 2 52={time}"));
        assert_eq!(world.session.is_logged_on(), fine, "{time}");
        assert_eq!(world.session.next_in(), SeqNum(3), "{time}");
    }
}

#[test]
fn possible_duplicates_are_judged_by_their_number_and_original_time() {
    check(
        "I A 1 98=0|108=30
         I D 2 43=Y|122=NOW|ORDER
         I D 3 43=Y|ORDER
         I D 3 43=Y|122=NOW|ORDER
         I 0 3 43=Y
         I 4 2 43=Y|123=Y|36=9
         I D 5 43=N|ORDER
         I D 4 43=Y|122=20270115-08:00:01|ORDER",
        expect![[r#"
            I A 1 98=0|108=30
              who is 
              persist in=2 out=2
              send 1 A|98=0|108=30
              logged on
            I D 2 43=Y|122=NOW|ORDER
              deliver 2 D
            I D 3 43=Y|ORDER
              deliver 3 D
            I D 3 43=Y|122=NOW|ORDER
            I 0 3 43=Y
              persist in=4 out=3
              send 2 3|45=3|58=Required tag missing|371=122|372=0|373=1
            I 4 2 43=Y|123=Y|36=9
            I D 5 43=N|ORDER
              persist in=4 out=4
              send 3 2|7=4|16=0
            I D 4 43=Y|122=20270115-08:00:01|ORDER
              persist in=5 out=5
              send 4 3|45=4|58=SendingTime accuracy problem|372=D|373=10
              persist in=5 out=6
              send 5 5
              deliver 5 D
        "#]],
    );
}

#[test]
fn session_messages_may_lack_their_original_time_where_agreed() {
    let lenient = SessionConfig { require_122_on_admin: false, ..config() };
    check_with(
        World::new(lenient, 1, 1),
        "I A 1 98=0|108=30
         I 0 2
         I 0 2 43=Y
         I D 2 43=Y|ORDER",
        expect![[r#"
            I A 1 98=0|108=30
              who is 
              persist in=2 out=2
              send 1 A|98=0|108=30
              logged on
            I 0 2
              persist in=3 out=2
            I 0 2 43=Y
            I D 2 43=Y|ORDER
              persist in=3 out=3
              send 2 3|45=2|58=Required tag missing|371=122|372=D|373=1
        "#]],
    );
}

#[test]
fn a_possible_resend_reaches_the_application() {
    check(
        "I A 1 98=0|108=30\nI D 2 97=Y|ORDER\nI D 3 43=Y|97=Y|122=NOW|ORDER",
        expect![[r#"
        I A 1 98=0|108=30
          who is 
          persist in=2 out=2
          send 1 A|98=0|108=30
          logged on
        I D 2 97=Y|ORDER
          deliver 2 D
        I D 3 43=Y|97=Y|122=NOW|ORDER
          deliver 3 D
    "#]],
    );
}

#[test]
fn numbers_near_overflow_and_invalid_numbers_are_distinguished() {
    check(
        "I A 1 98=0|108=30
         I 4 0 36=999999999999999999
         I 0 999999999999999999
         I 0 1000000000000000000",
        expect![[r#"
            I A 1 98=0|108=30
              who is 
              persist in=2 out=2
              send 1 A|98=0|108=30
              logged on
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
        let mut world = World::new(config(), 1, 1);
        world.run("I A 1 98=0|108=30");
        let before = world.transcript.len();
        world.run(&format!("raw 8=FIX.4.4|35=0|34={seq}|49=ACME|52=NOW|56=DVP|"));
        assert!(
            world.transcript[before..]
                .contains("send 2 5|58=Received message without MsgSeqNum\n  disconnect"),
            "{seq}: {}",
            world.transcript
        );
    }
    // Zeros in front are digits like any other.
    check(
        "I A 1 98=0|108=30\nI 0 0000000002\nI 0 3",
        expect![[r#"
        I A 1 98=0|108=30
          who is 
          persist in=2 out=2
          send 1 A|98=0|108=30
          logged on
        I 0 0000000002
          persist in=3 out=2
        I 0 3
          persist in=4 out=2
    "#]],
    );
}

#[test]
fn repeated_or_misplaced_header_fields_are_refused() {
    check(
        "I A 1 98=0|108=30
         I 0 2 35=0
         I 0 3 34=3
         raw 8=FIX.4.4|35=0|34=4|49=ACME|52=NOW|56=DVP|112=x|8=FIX.4.4|
         I 0 5",
        expect![[r#"
            I A 1 98=0|108=30
              who is 
              persist in=2 out=2
              send 1 A|98=0|108=30
              logged on
            I 0 2 35=0
              persist in=3 out=3
              send 2 3|45=2|58=Tag appears more than once|371=35|372=0|373=13
            I 0 3 34=3
              persist in=4 out=4
              send 3 3|45=3|58=Tag appears more than once|371=34|372=0|373=13
            raw 8=FIX.4.4|35=0|34=4|49=ACME|52=NOW|56=DVP|112=x|8=FIX.4.4|
              persist in=5 out=5
              send 4 3|45=4|58=Tag specified out of required order|371=8|372=0|373=14
            I 0 5
              persist in=6 out=5
        "#]],
    );
}

#[test]
fn fix_4_2_knows_fewer_reasons_and_other_required_fields() {
    check_with(
        World::new(config42(), 1, 1),
        "I A 1 98=0|108=30
         I D 2 11=id|40=1|54=1|55=INTC|60=20260101-00:00:00
         I D 3 ORDER|40=2
         I D 4 ORDER|34=4
         I D 5 ORDER|386=2|336=A
         I * 6
         I D 7 11=id|21=7|40=1|54=1|55=INTC|60=20260101-00:00:00
         I D 8 ORDER
         I 0 9 49=OTHER",
        expect![[r#"
            I A 1 98=0|108=30
              who is 
              persist in=2 out=2
              send 1 A|98=0|108=30
              logged on
            I D 2 11=id|40=1|54=1|55=INTC|60=20260101-00:00:00
              persist in=3 out=3
              send 2 3|45=2|58=Required tag missing|371=21|372=D|373=1
            I D 3 ORDER|40=2
              persist in=4 out=4
              send 3 3|45=3|58=Tag appears more than once|371=40|372=D
            I D 4 ORDER|34=4
              persist in=5 out=5
              send 4 3|45=4|58=Tag specified out of required order|371=34|372=D
            I D 5 ORDER|386=2|336=A
              persist in=6 out=6
              send 5 3|45=5|58=Incorrect NumInGroup count for repeating group|371=386|372=D
            I * 6
              persist in=7 out=7
              send 6 3|45=6|58=Invalid MsgType|372=*|373=11
            I D 7 11=id|21=7|40=1|54=1|55=INTC|60=20260101-00:00:00
              persist in=8 out=8
              send 7 3|45=7|58=Value is incorrect (out of range) for this tag|371=21|372=D|373=5
            I D 8 ORDER
              deliver 8 D
            I 0 9 49=OTHER
              persist in=10 out=9
              send 8 3|45=9|58=CompID problem|372=0|373=9
              persist in=10 out=10
              send 9 5
        "#]],
    );
}

#[test]
fn fixt_needs_the_application_version_and_mirrors_it() {
    for logon in ["I A 1 98=0|108=30", "I A 1 98=0|108=30|1137=8", "I A 1 98=0|108=30|1137=x"] {
        let mut world = World::new(config_fixt(), 1, 1);
        world.run(logon);
        assert_eq!(world.transcript, format!("{logon}\n  disconnect\n"));
    }
    check_with(
        World::new(config_fixt(), 1, 1),
        "I A 1 98=0|108=30|1137=9
         I D 2 1128=9|ORDER
         I D 3 1128=8|ORDER
         I D 4 ORDER
         I 0 5 55=INTC
         I D 6 11=id|54=1|55=INTC|60=20260101-00:00:00",
        expect![[r#"
            I A 1 98=0|108=30|1137=9
              who is 
              persist in=2 out=2
              send 1 A|98=0|108=30|1137=9
              logged on
            I D 2 1128=9|ORDER
              deliver 2 D
            I D 3 1128=8|ORDER
              persist in=4 out=3
              send 2 3|45=3|58=Invalid/Unsupported application version|371=1128|372=D|373=18
            I D 4 ORDER
              deliver 4 D
            I 0 5 55=INTC
              persist in=6 out=4
              send 3 3|45=5|58=Invalid tag number|371=55|372=0|373=0
            I D 6 11=id|54=1|55=INTC|60=20260101-00:00:00
              persist in=7 out=5
              send 4 3|45=6|58=Required tag missing|371=40|372=D|373=1
        "#]],
    );
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

#[test]
fn texts_come_from_the_sessions_configuration() {
    let texts =
        Texts { session_over: "closing time", incorrect_begin_string: "wrong version", ..Texts::COMMON };
    check_with(
        World::new(SessionConfig { texts, ..config() }, 1, 1),
        "I A 1 98=0|108=30\nI 0 2 8=FIX.4.2",
        expect![[r#"
            I A 1 98=0|108=30
              who is 
              persist in=2 out=2
              send 1 A|98=0|108=30
              logged on
            I 0 2 8=FIX.4.2
              persist in=3 out=2
              persist in=3 out=3
              send 2 5|58=wrong version
        "#]],
    );
}

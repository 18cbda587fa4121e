//! Rules of the session protocol whose cases differ in one value, and a peer that does anything.

use proptest::prelude::*;

use crate::{
    driver::Driver,
    script::{Pieces, Step},
    tasks,
};

const LOGGED_ON: &str = "connect\nsend A 1 98=0|108=30\n";

#[test]
fn a_reset_inside_a_session_needs_the_flag_number_1_and_permission() {
    for (options, logon) in [
        ("", "2 98=0|108=30"),
        ("", "2 98=0|108=30|141=N"),
        ("", "2 98=0|108=30|141=Y"),
        ("set no_reset\n", "1 98=0|108=30|141=Y"),
    ] {
        let said = tasks(&format!("{options}{LOGGED_ON}send A {logon}"));
        assert!(said.ends_with("  send 2 5|58=Unexpected Logon\n  disconnect\n"), "{said}");
    }
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
        let said = tasks(&format!("{LOGGED_ON}send 0 2 52={time}"));
        assert_eq!(said.ends_with("\n  persist in=3 out=2\n"), fine, "{said}");
        assert!(said.contains("persist in=3 out="), "its number is counted: {said}");
    }
}

#[test]
fn invalid_numbers_end_the_session() {
    for seq in ["", "-1", "+2", "2.0", " 2", "2 ", "0x2", "99999999999999999999999"] {
        let said = tasks(&format!("{LOGGED_ON}raw 8=FIX.4.4|35=0|34={seq}|49=ACME|52=NOW|56=DVP|"));
        assert!(said.ends_with("Received message without MsgSeqNum\n  disconnect\n"), "{said}");
    }
    // Zeros in front are digits like any other.
    assert!(tasks(&format!("{LOGGED_ON}send 0 0000000002")).ends_with("  persist in=3 out=2\n"));
}

#[test]
fn heartbeat_intervals_may_be_zero_but_not_negative_or_excessive() {
    for (interval, fine) in
        [("0", true), ("1", true), ("3600", true), ("3601", false), ("-1", false), ("", false)]
    {
        let said = tasks(&format!("connect\nsend A 1 98=0|108={interval}"));
        assert_eq!(said.ends_with("  logged on\n"), fine, "{said}");
        assert_eq!(said.contains("persist in=2 out=2"), fine, "{said}");
    }
}

#[test]
fn a_gap_of_any_width_costs_one_request_and_a_bounded_queue() {
    let early: String = (1_000_000..1_000_100).map(|seq| format!("send 0 {seq}\n")).collect();
    let said = tasks(&format!("set queue_max 3\n{LOGGED_ON}{early}"));
    assert_eq!(said.matches("\n  send ").count(), 2, "the Logon, and the request: {said}");
}

proptest! {
    /// For any input: one number, one message. The driver looks at each.
    #[test]
    fn a_number_never_stands_for_two_messages(steps in prop::collection::vec((0_usize..9, 1_u64..12), 1..60)) {
        let mut driver = Driver::of_tasks();
        let log_on = |driver: &mut Driver| {
            driver.step(Step::Connect, Pieces::Whole);
            let logon = format!("send A {} 98=0|108=10", driver.next_in());
            driver.step(Step::parse(&logon), Pieces::Whole);
        };
        log_on(&mut driver);
        for (kind, number) in steps {
            let next = driver.next_in();
            let later = next.0 + number;
            let line = match kind {
                0 => format!("send 0 {next}"),
                1 => format!("send D {next} ORDER"),
                2 => format!("send 1 {next} 112=x"),
                3 => format!("send 0 {later}"),
                4 => format!("send 2 {next} 7={number}|16=0"),
                5 => format!("send 4 {next} 123=Y|36={later}"),
                6 => "report".to_owned(),
                7 => format!("+{number}"),
                _ => "cut".to_owned(),
            };
            driver.step(Step::parse(&line), Pieces::Whole);
            if !driver.is_connected() {
                log_on(&mut driver);
            }
        }
    }
}

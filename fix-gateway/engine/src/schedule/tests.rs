//! Schedules are walked boundary by boundary from an instant on; a line has a window's start and end in UTC, its
//! length, and the date of its epoch.

use std::fmt::Write as _;

use expect_test::{Expect, expect};
use proptest::prelude::*;

use super::*;

const HOUR: u64 = 3_600_000_000_000;

fn schedule(text: &str) -> Schedule {
    text.parse().unwrap()
}

fn utc(text: &str) -> UtcNanos {
    UtcNanos::parse(text.as_bytes()).unwrap()
}

fn open(schedule: &Schedule, at: &str) -> Option<i64> {
    match schedule.position(utc(at)) {
        Position::Open { epoch, .. } => Some(epoch.0),
        Position::Closed { .. } => None,
    }
}

/// The windows that follow `from`: as many as are expected.
fn check(text: &str, from: &str, expected: Expect) {
    let schedule = schedule(text);
    let windows = expected.data().lines().filter(|line| !line.trim().is_empty()).count();
    let (mut now, mut said, mut seen) = (utc(from), String::new(), 0);
    while seen < windows {
        match schedule.position(now) {
            Position::Closed { until } => now = until,
            Position::Open { epoch, until } => {
                let until = until.unwrap();
                let date = Date::constant(1970, 1, 1).checked_add(Span::new().days(epoch.0)).unwrap();
                let [from, to] = [now, until].map(|instant| instant.to_millis_text()[..17].to_owned());
                let minutes = (until.0 - now.0) / 60_000_000_000;
                writeln!(said, "{from} to {to} {:02}:{:02} {date}", minutes / 60, minutes % 60).unwrap();
                now = until;
                seen += 1;
            }
        }
    }
    expected.assert_eq(&said);
}

#[test]
fn a_daily_session_follows_the_local_time_of_its_zone() {
    // London goes to summer time on 2026-03-29.
    check(
        "daily 08:00 Europe/London to 17:30 Europe/London",
        "20260328-00:00:00",
        expect![[r#"
            20260328-08:00:00 to 20260328-17:30:00 09:30 2026-03-28
            20260329-07:00:00 to 20260329-16:30:00 09:30 2026-03-29
            20260330-07:00:00 to 20260330-16:30:00 09:30 2026-03-30
        "#]],
    );
}

#[test]
fn an_overnight_session_changes_length_with_daylight_saving() {
    check(
        "daily 17:00 America/New_York to 16:45 America/New_York",
        "20260306-21:45:00",
        expect![[r#"
            20260306-22:00:00 to 20260307-21:45:00 23:45 2026-03-06
            20260307-22:00:00 to 20260308-20:45:00 22:45 2026-03-07
            20260308-21:00:00 to 20260309-20:45:00 23:45 2026-03-08
        "#]],
    );
    check(
        "daily 17:00 America/New_York to 16:45 America/New_York",
        "20261030-20:45:00",
        expect![[r#"
            20261030-21:00:00 to 20261031-20:45:00 23:45 2026-10-30
            20261031-21:00:00 to 20261101-21:45:00 24:45 2026-10-31
            20261101-22:00:00 to 20261102-21:45:00 23:45 2026-11-01
        "#]],
    );
}

#[test]
fn start_and_end_each_keep_the_time_of_their_own_zone() {
    // New York changes on 2026-03-08, London on 2026-03-29, Tokyo never.
    check(
        "daily 09:00 Asia/Tokyo to 17:00 America/New_York",
        "20260306-23:00:00",
        expect![[r#"
            20260307-00:00:00 to 20260307-22:00:00 22:00 2026-03-07
            20260308-00:00:00 to 20260308-21:00:00 21:00 2026-03-08
            20260309-00:00:00 to 20260309-21:00:00 21:00 2026-03-09
        "#]],
    );
    check(
        "daily 07:00 Europe/London to 17:00 America/New_York",
        "20260328-00:00:00",
        expect![[r#"
            20260328-07:00:00 to 20260328-21:00:00 14:00 2026-03-28
            20260329-06:00:00 to 20260329-21:00:00 15:00 2026-03-29
        "#]],
    );
}

#[test]
fn a_weekly_session_is_one_window_across_a_clock_change() {
    check(
        "weekly sun 17:05 America/New_York to fri 16:55 America/New_York",
        "20260220-23:00:00",
        expect![[r#"
            20260222-22:05:00 to 20260227-21:55:00 119:50 2026-02-22
            20260301-22:05:00 to 20260306-21:55:00 119:50 2026-03-01
            20260308-21:05:00 to 20260313-20:55:00 119:50 2026-03-08
        "#]],
    );
    // Seen from London both changes fall between Friday and Sunday, too; from a week that ends after the change not.
    check(
        "weekly fri 12:00 America/New_York to thu 12:00 America/New_York",
        "20261029-16:00:00",
        expect![[r#"
            20261030-16:00:00 to 20261105-17:00:00 145:00 2026-10-30
            20261106-17:00:00 to 20261112-17:00:00 144:00 2026-11-06
        "#]],
    );
}

#[test]
fn a_week_may_end_on_the_day_on_which_it_starts() {
    check(
        "weekly sun 18:00 UTC to sun 17:00 UTC",
        "20260301-17:30:00",
        expect![[r#"
            20260301-18:00:00 to 20260308-17:00:00 167:00 2026-03-01
            20260308-18:00:00 to 20260315-17:00:00 167:00 2026-03-08
        "#]],
    );
    check(
        "weekly sun 17:00 UTC to sun 18:00 UTC",
        "20260301-10:30:00",
        expect![[r#"
            20260301-17:00:00 to 20260301-18:00:00 01:00 2026-03-01
            20260308-17:00:00 to 20260308-18:00:00 01:00 2026-03-08
        "#]],
    );
}

#[test]
fn equal_boundaries_make_one_endless_session_without_resets() {
    for text in [
        "continuous",
        "daily 00:00 UTC to 00:00 UTC",
        "daily 00:00:00 America/New_York to 00:00:00 America/New_York",
        "weekly sun 17:05 America/New_York to sun 17:05 America/New_York",
    ] {
        let schedule = schedule(text);
        assert_eq!(schedule, Schedule::CONTINUOUS, "{text}");
        for at in ["20260308-04:59:59.999", "20260308-05:00:00", "20260308-07:00:00", "20261101-06:00:00"] {
            let endless = Position::Open { epoch: Epoch::ENDLESS, until: None };
            assert_eq!(schedule.position(utc(at)), endless, "{text} {at}");
        }
    }
}

#[test]
fn a_reset_without_a_pause_is_configured_explicitly() {
    check(
        "daily reset 17:00 America/New_York",
        "20260306-22:00:00",
        expect![[r#"
            20260306-22:00:00 to 20260307-22:00:00 24:00 2026-03-06
            20260307-22:00:00 to 20260308-21:00:00 23:00 2026-03-07
            20260308-21:00:00 to 20260309-21:00:00 24:00 2026-03-08
        "#]],
    );
    check(
        "weekly reset sat 13:00 America/New_York",
        "20261024-17:00:00",
        expect![[r#"
            20261024-17:00:00 to 20261031-17:00:00 168:00 2026-10-24
            20261031-17:00:00 to 20261107-18:00:00 169:00 2026-10-31
            20261107-18:00:00 to 20261114-18:00:00 168:00 2026-11-07
        "#]],
    );
}

#[test]
fn a_skipped_local_time_takes_effect_at_the_clock_change() {
    // 2026-03-08 in New York goes from 02:00 EST to 03:00 EDT at 07:00 UTC.
    for start in ["02:00", "02:30", "02:59:59"] {
        let schedule = schedule(&format!("daily {start} America/New_York to 16:00 America/New_York"));
        assert_eq!(open(&schedule, "20260308-06:59:59"), None, "{start}");
        assert_eq!(open(&schedule, "20260308-07:00:00"), Some(20_520), "{start}");
    }
    let schedule = schedule("daily 22:00 America/New_York to 02:30 America/New_York");
    assert_eq!(open(&schedule, "20260308-06:59:59"), Some(20_519));
    assert_eq!(open(&schedule, "20260308-07:00:00"), None);
}

#[test]
fn a_repeated_local_time_takes_effect_once_at_the_first() {
    // 2026-11-01 in New York has 01:30 at 05:30 UTC and again at 06:30 UTC.
    check(
        "daily 01:30 America/New_York to 23:00 America/New_York",
        "20261101-04:00:00",
        expect![[r#"
            20261101-05:30:00 to 20261102-04:00:00 22:30 2026-11-01
            20261102-06:30:00 to 20261103-04:00:00 21:30 2026-11-02
        "#]],
    );
    check(
        "daily 22:00 America/New_York to 01:30 America/New_York",
        "20261101-01:00:00",
        expect![[r#"
            20261101-02:00:00 to 20261101-05:30:00 03:30 2026-10-31
            20261102-03:00:00 to 20261102-06:30:00 03:30 2026-11-01
        "#]],
    );
}

#[test]
fn a_zone_may_change_at_midnight_or_lose_a_whole_day() {
    // Chile's clocks jump from 24:00 on 2026-09-05 to 01:00: that Sunday has no midnight.
    check(
        "daily 00:00 America/Santiago to 23:00 America/Santiago",
        "20260905-03:30:00",
        expect![[r#"
            20260905-04:00:00 to 20260906-03:00:00 23:00 2026-09-05
            20260906-04:00:00 to 20260907-02:00:00 22:00 2026-09-06
            20260907-03:00:00 to 20260908-02:00:00 23:00 2026-09-07
        "#]],
    );
    // Samoa went from the 29th to the 31st of December 2011.
    check(
        "daily 08:00 Pacific/Apia to 17:00 Pacific/Apia",
        "20111228-04:00:00",
        expect![[r#"
            20111228-18:00:00 to 20111229-03:00:00 09:00 2011-12-28
            20111229-18:00:00 to 20111230-03:00:00 09:00 2011-12-29
            20111230-18:00:00 to 20111231-03:00:00 09:00 2011-12-31
        "#]],
    );
}

#[test]
fn days_without_a_start_have_no_session() {
    check(
        "daily on mon,tue,wed,thu,fri 18:00 America/New_York to 17:00 America/New_York",
        "20260604-20:00:00",
        expect![[r#"
            20260604-20:00:00 to 20260604-21:00:00 01:00 2026-06-03
            20260604-22:00:00 to 20260605-21:00:00 23:00 2026-06-04
            20260605-22:00:00 to 20260606-21:00:00 23:00 2026-06-05
            20260608-22:00:00 to 20260609-21:00:00 23:00 2026-06-08
        "#]],
    );
}

#[test]
fn moving_a_boundary_resets_nothing() {
    let before = schedule("daily 08:00 Europe/London to 17:00 Europe/London");
    let after = schedule("daily 07:00 Europe/London to 18:00 Europe/London");
    assert_eq!(open(&before, "20260601-12:00:00"), open(&after, "20260601-12:00:00"));
}

#[test]
fn schedules_round_trip_and_invalid_ones_are_refused() {
    for text in [
        "continuous",
        "daily 08:00:00 Europe/London to 17:30:00 America/New_York",
        "daily on mon,fri 08:00:00 UTC to 07:59:59 UTC",
        "weekly sun 17:05:00 America/New_York to fri 16:55:00 America/New_York",
        "daily reset 17:00:00 America/New_York",
        "weekly reset sat 13:00:00 America/New_York",
    ] {
        assert_eq!(schedule(text).to_string(), text);
    }
    let wrong = [
        ("", ScheduleError::Form),
        ("daily", ScheduleError::Form),
        ("daily 08:00 UTC until 09:00 UTC", ScheduleError::Form),
        ("daily 8:00 UTC to 09:00 UTC", ScheduleError::Time),
        ("daily 08:00 UTC to 24:00 UTC", ScheduleError::Time),
        ("daily 08:00:00:00 UTC to 09:00 UTC", ScheduleError::Time),
        ("daily 08:+1 UTC to 09:00 UTC", ScheduleError::Time),
        ("daily on  08:00 UTC to 09:00 UTC", ScheduleError::Form),
        ("daily on someday 08:00 UTC to 09:00 UTC", ScheduleError::Day),
        ("daily 08:00 Mars/Olympus to 09:00 UTC", ScheduleError::Zone("Mars/Olympus".to_owned())),
    ];
    for (text, error) in wrong {
        assert_eq!(text.parse::<Schedule>(), Err(error), "{text}");
    }
}

proptest! {
    /// From any instant: the position holds up to the boundary and not beyond it, and later windows have
    /// greater epochs.
    #[test]
    fn a_position_is_valid_until_its_boundary(
        at in utc("20200101-00:00:00").0..utc("20300101-00:00:00").0,
        start in 0_u32..1440, end in 0_u32..1440,
        zones in prop::array::uniform2(prop::sample::select(vec!["America/New_York", "Europe/London", "Asia/Tokyo",
            "Australia/Lord_Howe", "America/Santiago", "Asia/Kathmandu", "UTC"])),
        kind in 0_usize..4, days in prop::array::uniform2(0_usize..7),
    ) {
        let names = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];
        let [from, to] = [(start, zones[0]), (end, zones[1])]
            .map(|(minute, zone)| format!("{:02}:{:02} {zone}", minute / 60, minute % 60));
        let schedule = schedule(&match kind {
            0 => format!("daily {from} to {to}"),
            1 => format!("daily on {} {from} to {to}", names[days[0]]),
            2 => format!("weekly {} {from} to {} {to}", names[days[0]], names[days[1]]),
            _ => format!("weekly reset {} {from}", names[days[0]]),
        });
        let mut now = UtcNanos(at);
        let mut latest = None;
        for _ in 0..6 {
            let position = schedule.position(now);
            let until = match position {
                Position::Open { until: None, .. } => return Ok(()),
                Position::Open { epoch, until: Some(until) } => {
                    prop_assert!(latest < Some(epoch), "{latest:?} {position:?}");
                    latest = Some(epoch);
                    until
                }
                Position::Closed { until } => until,
            };
            prop_assert!(until > now && until.0 - now.0 <= 8 * 24 * HOUR, "{position:?} at {now:?}");
            for inside in [now.0 + (until.0 - now.0) / 2, until.0 - 1] {
                prop_assert_eq!(schedule.position(UtcNanos(inside)), position);
            }
            prop_assert_ne!(schedule.position(until), position);
            now = until;
        }
    }
}

#[test]
fn a_trading_day_begins_each_day_as_a_window_does() {
    let days = |text: &str, times: &[&str]| -> Vec<i64> {
        let schedule = schedule(text);
        times.iter().map(|time| schedule.trading_day(utc(time)) - 20_780).collect()
    };
    // 20780 is 2026-11-23, a Monday.
    let midnight = ["20261129-23:59:59.999999999", "20261130-00:00:00", "20261130-12:00:00"];
    assert_eq!(days("continuous", &midnight), [6, 7, 7]);
    let morning = ["20261130-06:59:59", "20261130-07:00:00", "20261130-21:59:59", "20261201-06:59:59"];
    assert_eq!(days("daily 08:00 Europe/Zurich to 22:00 Europe/Zurich", &morning), [6, 7, 7, 7]);
    // 17:05 in New York is 22:05 in UTC; a week has as many trading days as it has such times.
    let week = "weekly sun 17:05 America/New_York to fri 16:55 America/New_York";
    let times = ["20261129-22:05:00", "20261130-22:04:59", "20261130-22:05:00", "20261201-22:05:00"];
    assert_eq!(days(week, &times), [6, 6, 7, 8]);
    for text in ["daily reset 17:00 America/New_York", "daily 08:00 Europe/London to 17:30 Europe/London"] {
        let schedule = schedule(text);
        let at = utc("20261130-16:00:00");
        assert_eq!(
            open(&schedule, "20261130-16:00:00"),
            Some(schedule.trading_day(at)),
            "as the window's date"
        );
    }
}

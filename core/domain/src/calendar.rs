//! Days on which payment systems settle.
//!
//! Weekends and the holidays of TARGET and of the Federal Reserve, which follow rules and need no table. Holidays of
//! single countries and banks are not included. Days are those of UTC.

use chrono::{Datelike as _, Days, NaiveDate, Weekday};

/// The days on which a payment makes progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Calendar {
    /// Euro payments: TARGET of the European Central Bank.
    Target,
    /// Dollar payments: Fedwire and FedACH.
    FederalReserve,
    /// Payments that cross borders: days that are business days in both.
    Both,
}

impl Calendar {
    pub fn is_business_day(self, day: NaiveDate) -> bool {
        let is_closed = match self {
            Self::Target => is_target_holiday(day),
            Self::FederalReserve => is_federal_reserve_holiday(day),
            Self::Both => is_target_holiday(day) || is_federal_reserve_holiday(day),
        };
        !is_weekend(day) && !is_closed
    }

    /// The `count`th business day after a day.
    pub fn business_day_after(self, day: NaiveDate, count: u32) -> NaiveDate {
        let mut days = following(day).filter(|day| self.is_business_day(*day));
        let wanted = usize::try_from(count.saturating_sub(1)).unwrap_or(usize::MAX);
        days.nth(wanted).unwrap_or(NaiveDate::MAX)
    }
}

fn following(day: NaiveDate) -> impl Iterator<Item = NaiveDate> {
    let next = |day: &NaiveDate| day.checked_add_days(Days::new(1));
    std::iter::successors(next(&day), next)
}

fn is_weekend(day: NaiveDate) -> bool {
    matches!(day.weekday(), Weekday::Sat | Weekday::Sun)
}

/// New Year's Day, Good Friday, Easter Monday, 1 May, 25 and 26 December (since 2002).
fn is_target_holiday(day: NaiveDate) -> bool {
    if matches!((day.month(), day.day()), (1 | 5, 1) | (12, 25 | 26)) {
        return true;
    }
    easter_sunday(day.year()).is_some_and(|easter| {
        let friday = easter.checked_sub_days(Days::new(2));
        let monday = easter.checked_add_days(Days::new(1));
        friday == Some(day) || monday == Some(day)
    })
}

/// The eleven holidays of the Federal Reserve. One that falls on a Sunday is kept on Monday; on a Saturday, not at all.
fn is_federal_reserve_holiday(day: NaiveDate) -> bool {
    let is_fixed =
        |day: NaiveDate| matches!((day.month(), day.day()), (1, 1) | (6, 19) | (7, 4) | (11, 11) | (12, 25));
    let sunday_before = day.checked_sub_days(Days::new(1)).filter(|_| day.weekday() == Weekday::Mon);
    if is_fixed(day) || sunday_before.is_some_and(is_fixed) {
        return true;
    }
    let week = day.day().div_ceil(7);
    match (day.month(), day.weekday()) {
        // Martin Luther King Jr., Washington's Birthday.
        (1 | 2, Weekday::Mon) => week == 3,
        // Memorial Day, the last Monday.
        (5, Weekday::Mon) => day.day() > 24,
        // Labor Day.
        (9, Weekday::Mon) => week == 1,
        // Columbus Day.
        (10, Weekday::Mon) => week == 2,
        // Thanksgiving.
        (11, Weekday::Thu) => week == 4,
        _ => false,
    }
}

/// By the Gregorian rule (Meeus, Jones, Butcher).
fn easter_sunday(year: i32) -> Option<NaiveDate> {
    let golden = year.rem_euclid(19);
    let (century, of_century) = (year.div_euclid(100), year.rem_euclid(100));
    let (leap_centuries, century_rest) = (century / 4, century % 4);
    let correction = (century - (century + 8) / 25 + 1) / 3;
    let epact = (19 * golden + century - leap_centuries - correction + 15) % 30;
    let (leaps, rest) = (of_century / 4, of_century % 4);
    let weekday = (32 + 2 * century_rest + 2 * leaps - epact - rest) % 7;
    let late = (golden + 11 * epact + 22 * weekday) / 451;
    let place = epact + weekday - 7 * late + 114;
    let (month, day) = (u32::try_from(place / 31).ok()?, u32::try_from(place % 31 + 1).ok()?);
    NaiveDate::from_ymd_opt(year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn day(text: &str) -> NaiveDate {
        text.parse().unwrap()
    }

    #[test]
    fn easter_follows_the_published_dates() {
        for sunday in ["2000-04-23", "2008-03-23", "2024-03-31", "2025-04-20", "2026-04-05", "2038-04-25"] {
            assert_eq!(easter_sunday(day(sunday).year()), Some(day(sunday)));
        }
    }

    #[track_caller]
    fn closed(calendar: Calendar, holidays: &[&str]) {
        let year = day(holidays[0]).year();
        let found: Vec<String> = following(NaiveDate::from_ymd_opt(year - 1, 12, 31).unwrap())
            .take_while(|day| day.year() == year)
            .filter(|day| !is_weekend(*day) && !calendar.is_business_day(*day))
            .map(|day| day.to_string())
            .collect();
        assert_eq!(found, holidays, "{calendar:?}");
    }

    #[test]
    fn calendars_are_closed_on_the_published_days() {
        closed(
            Calendar::Target,
            &["2025-01-01", "2025-04-18", "2025-04-21", "2025-05-01", "2025-12-25", "2025-12-26"],
        );
        // 26 December 2026 is a Saturday.
        closed(Calendar::Target, &["2026-01-01", "2026-04-03", "2026-04-06", "2026-05-01", "2026-12-25"]);
        // 4 July 2026 is a Saturday, 4 July 2027 a Sunday.
        closed(
            Calendar::FederalReserve,
            &[
                "2026-01-01",
                "2026-01-19",
                "2026-02-16",
                "2026-05-25",
                "2026-06-19",
                "2026-09-07",
                "2026-10-12",
                "2026-11-11",
                "2026-11-26",
                "2026-12-25",
            ],
        );
        closed(
            Calendar::FederalReserve,
            &[
                "2027-01-01",
                "2027-01-18",
                "2027-02-15",
                "2027-05-31",
                "2027-07-05",
                "2027-09-06",
                "2027-10-11",
                "2027-11-11",
                "2027-11-25",
            ],
        );
    }

    #[test]
    fn business_days_are_counted_over_weekends_and_holidays() {
        for (calendar, from, count, expected) in [
            (Calendar::Target, "2026-11-20", 1, "2026-11-23"),
            (Calendar::Target, "2026-11-22", 2, "2026-11-24"),
            (Calendar::Target, "2026-04-02", 1, "2026-04-07"),
            (Calendar::FederalReserve, "2026-11-25", 1, "2026-11-27"),
            (Calendar::Both, "2026-12-24", 5, "2027-01-04"),
        ] {
            let found = calendar.business_day_after(day(from), count);
            assert_eq!(found, day(expected), "{calendar:?} {from} {count}");
        }
    }
}

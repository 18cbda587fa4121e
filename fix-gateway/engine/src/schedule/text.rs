//! Schedules in words, as configuration files and tables hold them.

use std::{fmt, str::FromStr};

use jiff::civil::{Time, Weekday};

use super::{Boundary, Days, Kind, Schedule, ScheduleError};

const WEEK: [(&str, Weekday); 7] = [
    ("mon", Weekday::Monday),
    ("tue", Weekday::Tuesday),
    ("wed", Weekday::Wednesday),
    ("thu", Weekday::Thursday),
    ("fri", Weekday::Friday),
    ("sat", Weekday::Saturday),
    ("sun", Weekday::Sunday),
];

/// `HH:MM` or `HH:MM:SS`.
pub(super) fn time(text: &str) -> Option<Time> {
    let mut parts = text.split(':').map(|part| {
        let is_number = part.len() == 2 && part.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| part.parse::<i8>().ok()).flatten()
    });
    let (hour, minute) = (parts.next()??, parts.next()??);
    let second = parts.next().unwrap_or(Some(0))?;
    if parts.next().is_some() {
        return None;
    }
    Time::new(hour, minute, second, 0).ok()
}

fn day(text: &str) -> Result<Weekday, ScheduleError> {
    let known = WEEK.iter().find(|(name, _)| name.eq_ignore_ascii_case(text));
    known.map(|(_, day)| *day).ok_or(ScheduleError::Day)
}

fn name_of(day: Weekday) -> &'static str {
    WEEK.iter().find(|(_, known)| *known == day).map_or("", |(name, _)| name)
}

/// `continuous`, `daily [on DAYS] TIME ZONE to TIME ZONE`, `weekly DAY TIME ZONE to DAY TIME ZONE`,
/// `daily reset TIME ZONE`, `weekly reset DAY TIME ZONE`; for instance
/// `weekly sun 17:05 America/New_York to fri 16:55 America/New_York`.
impl FromStr for Schedule {
    type Err = ScheduleError;

    fn from_str(text: &str) -> Result<Self, ScheduleError> {
        let words: Vec<&str> = text.split_whitespace().collect();
        Ok(match words[..] {
            ["continuous"] => Self::CONTINUOUS,
            ["daily", "reset", at, zone] => Self::daily_reset(Boundary::new(at, zone)?),
            ["weekly", "reset", on, at, zone] => Self::weekly_reset(day(on)?, Boundary::new(at, zone)?),
            ["daily", start, start_zone, "to", end, end_zone] => {
                Self::daily(&[], Boundary::new(start, start_zone)?, Boundary::new(end, end_zone)?)
            }
            ["daily", "on", days, start, start_zone, "to", end, end_zone] => {
                let days = days.split(',').map(day).collect::<Result<Vec<_>, _>>()?;
                Self::daily(&days, Boundary::new(start, start_zone)?, Boundary::new(end, end_zone)?)
            }
            ["weekly", start_day, start, start_zone, "to", end_day, end, end_zone] => Self::weekly(
                (day(start_day)?, Boundary::new(start, start_zone)?),
                (day(end_day)?, Boundary::new(end, end_zone)?),
            ),
            _ => return Err(ScheduleError::Form),
        })
    }
}

/// The form that [`Schedule::from_str`] reads.
impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Continuous => f.write_str("continuous"),
            Kind::DailyReset(at) => write!(f, "daily reset {at}"),
            Kind::WeeklyReset(day, at) => write!(f, "weekly reset {} {at}", name_of(*day)),
            Kind::Daily { days, start, end } if *days == Days::ALL => write!(f, "daily {start} to {end}"),
            Kind::Daily { days, start, end } => {
                let on: Vec<&str> =
                    WEEK.iter().filter(|(_, day)| days.has(*day)).map(|(name, _)| *name).collect();
                write!(f, "daily on {} {start} to {end}", on.join(","))
            }
            Kind::Weekly { start: (from, start), end: (to, end) } => {
                write!(f, "weekly {} {start} to {} {end}", name_of(*from), name_of(*to))
            }
        }
    }
}

impl fmt::Display for Boundary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = self.time;
        write!(f, "{:02}:{:02}:{:02} {}", time.hour(), time.minute(), time.second(), self.zone)
    }
}

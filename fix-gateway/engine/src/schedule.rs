//! The windows of a session: schedules with an IANA time zone per boundary.
//!
//! A schedule cuts time into windows. Each window has an [`Epoch`]: sequence numbers live as long as it does, and begin
//! anew exactly when it changes. Between windows there is no session.
//!
//! ```text
//!      start (its date is the epoch)          end
//! ───────┤ open ══════════════════════════════├── closed ──────┤ open ═══ …
//! ```
//!
//! Invariants:
//!
//! - an instant belongs to one window at most, and the epoch of a later window is greater;
//! - a window ends at the first end boundary after its start, and at the next start at the latest;
//! - start and end at the same time of day in the same zone mean one session without end, never a reset once a day:
//!   for that use [`Schedule::daily_reset`] or [`Schedule::weekly_reset`];
//! - a boundary that clocks jump over happens when they jump; one that they pass twice happens the first
//!   time; a day that a zone leaves out has none;
//! - the epoch is a date, so moving a boundary by an hour resets nothing.
//!
//! The rules of the zones are part of this crate: no file and no environment is read.

#[cfg(test)]
mod tests;
mod text;

pub use jiff::civil::Weekday;
use jiff::{
    Span, Timestamp,
    civil::{Date, Time},
    tz::{AmbiguousOffset, TimeZone, TimeZoneDatabase},
};

use crate::UtcNanos;

/// Days looked at before and after a day: the longest time between two starts is a week, and no zone is further than
/// a day from another.
const DAYS_AROUND: i64 = 9;

/// A session window's identity: the days from 1970-01-01 to the date on which it starts, in the zone of its start.
/// Greater means later. 0 for a session without end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub i64);

impl Epoch {
    /// Of a session without end.
    pub const ENDLESS: Self = Self(0);
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Position {
    /// There is a session. It ends at `until`; `None`: never.
    Open { epoch: Epoch, until: Option<UtcNanos> },
    /// There is none before `until`.
    Closed { until: UtcNanos },
}

/// A time of day somewhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Boundary {
    time: Time,
    /// The zone's IANA name, as it was written.
    zone: String,
    rules: TimeZone,
}

/// When sessions start and end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule(Kind);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Kind {
    Continuous,
    /// One window for each of these weekdays, in the start's zone.
    Daily {
        days: Days,
        start: Boundary,
        end: Boundary,
    },
    /// One window a week.
    Weekly {
        start: (Weekday, Boundary),
        end: (Weekday, Boundary),
    },
    /// Always open; the numbers begin anew each day.
    DailyReset(Boundary),
    /// Always open; the numbers begin anew each week.
    WeeklyReset(Weekday, Boundary),
}

/// A set of weekdays, Monday in the lowest bit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Days(u8);

impl Days {
    const ALL: Self = Self(0b111_1111);

    fn bit(day: Weekday) -> u8 {
        1 << day.to_monday_zero_offset().unsigned_abs()
    }

    fn has(self, day: Weekday) -> bool {
        self.0 & Self::bit(day) != 0
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScheduleError {
    #[error("not a time of day (HH:MM or HH:MM:SS)")]
    Time,
    #[error("no time zone of the IANA database: {0}")]
    Zone(String),
    #[error("not a list of weekdays (mon,tue,…)")]
    Day,
    #[error(
        "not a schedule: `continuous`, `daily [on DAYS] TIME ZONE to TIME ZONE`, `weekly DAY TIME ZONE to DAY TIME \
         ZONE`, `daily reset TIME ZONE` or `weekly reset DAY TIME ZONE`"
    )]
    Form,
}

impl Boundary {
    /// `time` is `HH:MM` or `HH:MM:SS`, `zone` an IANA name such as `America/New_York`.
    pub fn new(time: &str, zone: &str) -> Result<Self, ScheduleError> {
        let time = text::time(time).ok_or(ScheduleError::Time)?;
        let unknown = |_| ScheduleError::Zone(zone.to_owned());
        // The bundled database and no other: the system's zone files are not looked at.
        let rules = TimeZoneDatabase::bundled().get(zone).map_err(unknown)?;
        Ok(Self { time, zone: zone.to_owned(), rules })
    }

    fn is_same_as(&self, other: &Self) -> bool {
        self.time == other.time && self.rules == other.rules
    }

    /// The instant at which clocks there show this time on `date`; `None` when they jump over the whole day.
    fn on(&self, date: Date) -> Option<Timestamp> {
        let local = date.to_datetime(self.time);
        match self.rules.to_ambiguous_timestamp(local).offset() {
            AmbiguousOffset::Unambiguous { offset } => offset.to_timestamp(local).ok(),
            AmbiguousOffset::Fold { before, .. } => before.to_timestamp(local).ok(),
            AmbiguousOffset::Gap { before, .. } => {
                // Taken literally, with the offset from before the jump, the time lies at or after it.
                let nanosecond = Span::new().nanoseconds(1);
                let after = before.to_timestamp(local).ok()?.checked_add(nanosecond).ok()?;
                let jump = self.rules.preceding(after).next()?.timestamp();
                let just_before = jump.checked_sub(nanosecond).ok()?;
                (self.date_of(jump) == date || self.date_of(just_before) == date).then_some(jump)
            }
        }
    }

    fn date_of(&self, instant: Timestamp) -> Date {
        self.rules.to_datetime(instant).date()
    }
}

impl Schedule {
    /// One session without end.
    pub const CONTINUOUS: Self = Self(Kind::Continuous);

    /// A session for each of `days` on which `start` lies (an empty slice: each day), until the next `end`.
    pub fn daily(days: &[Weekday], start: Boundary, end: Boundary) -> Self {
        if start.is_same_as(&end) {
            return Self::CONTINUOUS;
        }
        let days = match days {
            [] => Days::ALL,
            days => Days(days.iter().fold(0, |set, day| set | Days::bit(*day))),
        };
        Self(Kind::Daily { days, start, end })
    }

    /// A session a week.
    pub fn weekly(start: (Weekday, Boundary), end: (Weekday, Boundary)) -> Self {
        if start.0 == end.0 && start.1.is_same_as(&end.1) {
            return Self::CONTINUOUS;
        }
        Self(Kind::Weekly { start, end })
    }

    /// Always open; a new session begins at this time each day.
    pub const fn daily_reset(at: Boundary) -> Self {
        Self(Kind::DailyReset(at))
    }

    /// Always open; a new session begins at this time each week.
    pub const fn weekly_reset(day: Weekday, at: Boundary) -> Self {
        Self(Kind::WeeklyReset(day, at))
    }

    /// Where `now` lies.
    pub fn position(&self, now: UtcNanos) -> Position {
        let endless = Position::Open { epoch: Epoch::ENDLESS, until: None };
        let Some(start) = self.start() else { return endless };
        // Beyond the year 9999 no calendar is consulted.
        let Ok(instant) = Timestamp::from_nanosecond(i128::from(now.0)) else { return endless };
        let today = start.date_of(instant);
        let began = (-DAYS_AROUND..=1).rev().find_map(|days| {
            let date = self.start_date(today, days)?;
            let begin = start.on(date)?;
            (begin <= instant).then_some((date, begin))
        });
        let next = (-1..=DAYS_AROUND)
            .filter_map(|days| start.on(self.start_date(today, days)?))
            .filter(|begin| *begin > instant)
            .min();
        if let Some((date, begin)) = began {
            let until = [self.end_after(begin), next].into_iter().flatten().min();
            if until.is_none_or(|until| instant < until) {
                let epoch = Epoch(i64::from(days_since_1970(date)));
                return Position::Open { epoch, until: until.map(to_utc) };
            }
        }
        match next {
            Some(next) => Position::Closed { until: to_utc(next) },
            None => endless,
        }
    }

    /// The trading day of an instant, as the days from 1970-01-01 to its date. It begins at the time of day at which
    /// windows start, in that zone, on each day of the week; at midnight in UTC without a window.
    pub fn trading_day(&self, at: UtcNanos) -> i64 {
        let days_in_utc = i64::try_from(at.0 / 86_400_000_000_000).unwrap_or(i64::MAX);
        let begun = |start: &Boundary| {
            let instant = Timestamp::from_nanosecond(i128::from(at.0)).ok()?;
            let today = start.date_of(instant);
            let dates = (-2..=1).rev().filter_map(|days| today.checked_add(Span::new().days(days)).ok());
            let has_begun = |date: &Date| start.on(*date).is_some_and(|begin| begin <= instant);
            dates.filter(has_begun).map(|date| i64::from(days_since_1970(date))).next()
        };
        self.start().and_then(begun).unwrap_or(days_in_utc)
    }

    /// `today` moved by `days`, when a session starts on that date.
    fn start_date(&self, today: Date, days: i64) -> Option<Date> {
        let date = today.checked_add(Span::new().try_days(days).ok()?).ok()?;
        let is_start = match &self.0 {
            Kind::Continuous => false,
            Kind::Daily { days, .. } => days.has(date.weekday()),
            Kind::DailyReset(_) => true,
            Kind::Weekly { start: (day, _), .. } | Kind::WeeklyReset(day, _) => date.weekday() == *day,
        };
        is_start.then_some(date)
    }

    const fn start(&self) -> Option<&Boundary> {
        match &self.0 {
            Kind::Continuous => None,
            Kind::Daily { start, .. }
            | Kind::Weekly { start: (_, start), .. }
            | Kind::DailyReset(start)
            | Kind::WeeklyReset(_, start) => Some(start),
        }
    }

    /// The first end boundary after `begin`; `None` where the next start ends the window.
    fn end_after(&self, begin: Timestamp) -> Option<Timestamp> {
        let (day, end) = match &self.0 {
            Kind::Daily { end, .. } => (None, end),
            Kind::Weekly { end: (day, end), .. } => (Some(*day), end),
            Kind::Continuous | Kind::DailyReset(_) | Kind::WeeklyReset(..) => return None,
        };
        let first = end.date_of(begin);
        (-1..=DAYS_AROUND)
            .filter_map(|days| first.checked_add(Span::new().try_days(days).ok()?).ok())
            .filter(|date| day.is_none_or(|day| date.weekday() == day))
            .filter_map(|date| end.on(date))
            .find(|instant| *instant > begin)
    }
}

fn to_utc(instant: Timestamp) -> UtcNanos {
    // Every requested boundary lies around an instant after 1970.
    UtcNanos(u64::try_from(instant.as_nanosecond()).unwrap_or(0))
}

fn days_since_1970(date: Date) -> i32 {
    let since = date.duration_since(Date::constant(1970, 1, 1));
    i32::try_from(since.as_hours() / 24).unwrap_or(i32::MAX)
}

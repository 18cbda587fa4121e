//! How values are shown. Every amount, time and link of every page is made here.

use std::fmt::Display;

use chrono::{DateTime, SecondsFormat, Utc};
use dvp_domain::operator::OperatorRole;
use dvp_store::database::changes::Subject;
use dvp_store::database::clock;
use url::form_urlencoded::Serializer;

use crate::assets;
use crate::navigation::{Section, sections_of};
use crate::operator::Operator;

/// The decimals of a fee in gwei.
pub(crate) const GWEI: u8 = 9;

/// What the layout shows around a page.
#[derive(Debug, Clone)]
pub(crate) struct Page {
    pub title: String,
    /// The section of the navigation that the page belongs to.
    pub section: &'static str,
    pub operator: Option<Shown>,
    pub sections: Vec<&'static Section>,
    pub stylesheet: &'static str,
    pub script: &'static str,
    /// The text of the search box.
    pub query: String,
    /// The subjects whose changes the page shows: it is refreshed while it is open.
    pub live: String,
}

/// The operator as the layout shows it.
#[derive(Debug, Clone)]
pub(crate) struct Shown {
    pub name: String,
    pub roles: String,
    pub environment: &'static str,
}

impl Page {
    pub(crate) fn of(operator: Option<&Operator>, section: &'static str, title: impl Into<String>) -> Self {
        let shown = operator.map(|operator| Shown {
            name: operator.name.clone(),
            roles: role_words(&operator.roles),
            environment: operator.environment.as_str(),
        });
        let sections = operator.map(sections_of).unwrap_or_default();
        let (stylesheet, script) = assets::paths();
        let title = title.into();
        Self {
            title,
            section,
            operator: shown,
            sections,
            stylesheet,
            script,
            query: String::new(),
            live: String::new(),
        }
    }
}

impl Page {
    /// A page that is refreshed when one of these has changed.
    pub(crate) fn live(self, subjects: &[Subject]) -> Self {
        let names: Vec<&str> = subjects.iter().map(|subject| subject.as_str()).collect();
        Self { live: names.join(" "), ..self }
    }
}

pub(crate) fn role_words(roles: &[OperatorRole]) -> String {
    roles.iter().map(|role| role.as_str()).collect::<Vec<_>>().join(", ")
}

/// Minor units as a decimal number: `-1234567` with two decimals is `-12,345.67`. Zeros after the second decimal are
/// left out. `minor` is an integer or a decimal of the database; anything else is shown as it is.
pub(crate) fn amount(minor: &str, decimals: u8) -> String {
    let (sign, unsigned) = minor.strip_prefix('-').map_or(("", minor), |rest| ("-", rest));
    let (whole, rest) = unsigned.split_once('.').unwrap_or((unsigned, ""));
    if whole.is_empty() || !whole.bytes().chain(rest.bytes()).all(|byte| byte.is_ascii_digit()) {
        return minor.to_owned();
    }
    let places = usize::from(decimals);
    let digits = format!("{whole:0>width$}", width = places.saturating_add(1));
    let (units, fraction) = digits.split_at(digits.len().saturating_sub(places));
    let fraction = format!("{fraction}{rest}");
    let shown = fraction.trim_end_matches('0').len().max(places.min(2));
    let fraction = fraction.get(..shown).unwrap_or(&fraction);
    let units = grouped(units.trim_start_matches('0'));
    let point = if fraction.is_empty() { "" } else { "." };
    format!("{sign}{units}{point}{fraction}")
}

/// Digits in groups of three. No digits are zero.
fn grouped(digits: &str) -> String {
    if digits.is_empty() {
        return "0".to_owned();
    }
    let mut shown = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            shown.push(',');
        }
        shown.push(digit);
    }
    shown
}

/// An integer in groups of three.
pub(crate) fn count(number: i64) -> String {
    let sign = if number < 0 { "-" } else { "" };
    format!("{sign}{}", grouped(&number.unsigned_abs().to_string()))
}

/// A time for the page: the machine's form, and the one that is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Moment {
    pub iso: String,
    pub text: String,
}

impl From<DateTime<Utc>> for Moment {
    fn from(at: DateTime<Utc>) -> Self {
        Self {
            iso: at.to_rfc3339_opts(SecondsFormat::Millis, true),
            text: at.format("%Y-%m-%d %H:%M:%S").to_string(),
        }
    }
}

/// A stretch of time in its largest two units.
pub(crate) fn span(seconds: i64) -> String {
    let seconds = seconds.max(0);
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, _) => format!("{minutes} min {} s", seconds % 60),
        (0, _, _) => format!("{hours} h {} min", minutes % 60),
        _ => format!("{days} d {} h", hours % 24),
    }
}

/// The time from one moment to another.
pub(crate) fn took(from: DateTime<Utc>, until: Option<DateTime<Utc>>) -> String {
    span(until.unwrap_or_else(|| clock::now().to_utc()).signed_duration_since(from).num_seconds())
}

/// How long ago a time was.
pub(crate) fn age(at: DateTime<Utc>) -> String {
    took(at, None)
}

/// The class of a state, by what it asks of an operator: `good`, `bad`, `warn`, `busy` or `idle`.
pub(crate) fn tone(state: &str) -> &'static str {
    match state {
        "completed" | "approved" | "done" | "delivered" | "paid" | "following" | "enabled" | "active" => {
            "good"
        }
        "conversion_failed" | "payout_failed" | "failed" | "reversed" | "owing" | "halted" | "returned"
        | "refused" => "bad",
        "holding" | "pending" | "staged" | "retracted" | "failing" | "lapsed" => "warn",
        "cancelled" | "expired" | "denied" | "disabled" | "inactive" | "resting" => "idle",
        _ => "busy",
    }
}

/// A code as words: `payout_failed` is `payout failed`.
pub(crate) fn words(code: &str) -> String {
    code.replace('_', " ")
}

/// A name as a label: `paid-at` is Paid at.
pub(crate) fn label(name: &str) -> String {
    let mut letters =
        name.trim_end_matches("-minor").chars().map(|letter| if letter == '-' { ' ' } else { letter });
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// The page of a request of an operator.
pub(crate) fn approval(id: &str) -> String {
    format!("/approvals/{}", segment(id))
}

/// The page of an order.
pub(crate) fn order(reference: &str) -> String {
    format!("/orders/{}", segment(reference))
}

/// The page of a partner.
pub(crate) fn partner(name: &str) -> String {
    format!("/partners/{}", segment(name))
}

/// The page of an operator.
pub(crate) fn operator(name: &str) -> String {
    format!("/operators/{}", segment(name))
}

/// The page of a FIX session.
pub(crate) fn session(id: &str) -> String {
    format!("/fix/{}", segment(id))
}

/// The search for an identifier.
pub(crate) fn found(id: &str) -> String {
    format!("/search?q={}", segment(id))
}

/// An address with a query of the fields that are not empty.
pub(crate) fn address(path: &str, fields: &[(&str, &str)]) -> String {
    let mut query = Serializer::new(String::new());
    query.extend_pairs(fields.iter().filter(|(_, value)| !value.is_empty()));
    let query = query.finish();
    if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") }
}

/// The place of a row in a list, the newest first: microseconds of its time, a point, its id.
pub(crate) fn place(at: DateTime<Utc>, id: impl Display) -> String {
    format!("{}.{id}", at.timestamp_micros())
}

/// The page of a FIX session's messages.
pub(crate) fn messages(session: &str) -> String {
    format!("/fix/{}/messages", segment(session))
}

/// Those of an order.
pub(crate) fn messages_of(session: &str, cl_ord_id: &str) -> String {
    address(&messages(session), &[("cl_ord_id", cl_ord_id)])
}

/// A text as one segment of an address's path.
pub(crate) fn segment(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push('%');
            encoded.push_str(&hex::encode_upper([byte]));
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_have_a_point_groups_and_at_least_two_decimals() {
        for (minor, decimals, shown) in [
            ("0", 2, "0.00"),
            ("5", 2, "0.05"),
            ("123456789", 2, "1,234,567.89"),
            ("-123456789", 2, "-1,234,567.89"),
            ("1000000", 6, "1.00"),
            ("1234567", 6, "1.234567"),
            ("100000000000000000000", 18, "100.00"),
            ("7", 0, "7"),
            ("1234", 0, "1,234"),
            ("12.500000000000000000", 2, "0.125"),
            ("340282366920938463463374607431768211455", 18, "340,282,366,920,938,463,463.374607431768211455"),
            ("", 2, ""),
            ("1e5", 2, "1e5"),
        ] {
            assert_eq!(amount(minor, decimals), shown, "{minor} with {decimals}");
        }
    }

    #[test]
    fn spans_have_two_units() {
        let shown = [0, 59, 61, 3_600, 90_061].map(span);
        assert_eq!(shown, ["0 s", "59 s", "1 min 1 s", "1 h 0 min", "1 d 1 h"]);
    }
}

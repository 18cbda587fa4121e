//! Orders between FIX and the engine: a message to an intent, and an outcome to a report.
//!
//! Pure functions: they read no clock, no prices and no database, which `tests/boundaries.rs` proves. The service that
//! uses them is [`crate::order_entry`].

pub(crate) mod age;
pub(crate) mod facts;
pub(crate) mod fields;
pub(crate) mod parse;
pub(crate) mod price;
pub(crate) mod quote;
pub(crate) mod report;
pub(crate) mod tags;
pub(crate) mod trade;

/// The differences between the versions in messages about orders.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Version {
    Fix42,
    /// FIX 4.4, and 5.0 SP2 over FIXT 1.1: equal in all messages of this service.
    Fix44,
}

impl Version {
    pub(crate) fn of(begin_string: &str) -> Self {
        if begin_string == "FIX.4.2" { Self::Fix42 } else { Self::Fix44 }
    }
}

//! The files of a day, and their columns.

use crate::table::Kind::{Number, Text, Time};
use crate::table::Table;

pub const ORDERS: Table = Table {
    name: "orders",
    columns: &[
        ("reference", Text),
        ("partner_id", Text),
        ("livemode", Text),
        ("intent_id", Text),
        ("client_reference", Text),
        ("entity", Text),
        ("terms", Text),
        ("state_name", Text),
        ("state", Text),
        ("accepted_at", Time),
        ("terminal_at", Time),
    ],
};
pub const EVENTS: Table = Table {
    name: "events",
    columns: &[
        ("reference", Text),
        ("sequence", Number),
        ("event_id", Text),
        ("type", Text),
        ("position", Number),
        ("occurred_at", Time),
        ("observed_at", Time),
        ("object", Text),
    ],
};
pub const RECEIPTS: Table = Table {
    name: "receipts",
    columns: &[("reference", Text), ("body", Text), ("content_hash", Text), ("issued_at", Time)],
};
pub const POSTINGS: Table = Table {
    name: "postings",
    columns: &[
        ("reference", Text),
        ("step", Number),
        ("line", Number),
        ("reason", Text),
        ("owner_kind", Text),
        ("owner", Text),
        ("part", Text),
        ("asset", Text),
        ("amount", Text),
        ("recorded_at", Time),
    ],
};
/// What accounts held at the beginning of the day.
pub const OPENINGS: Table = Table {
    name: "openings",
    columns: &[("owner_kind", Text), ("owner", Text), ("part", Text), ("asset", Text), ("amount", Text)],
};

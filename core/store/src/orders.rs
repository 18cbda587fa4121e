//! Quotes, intents, executions with their effects, and the feed of their events.

pub mod abandonments;
pub mod bank;
pub mod bank_folder;
pub mod bank_messages;
pub mod deposits;
pub mod effects;
pub mod events;
pub mod executions;
pub mod feed;
pub mod idempotency;
pub mod intents;
pub mod legacy;
pub mod listing;
pub mod operations;
pub mod permits;
pub mod published_permits;
pub mod quote_holds;
pub mod quotes;
pub mod rail_calls;
pub mod ranges;
pub mod recalls;
pub mod receipts;
pub mod reports;
pub mod resting_orders;
pub mod screenings;

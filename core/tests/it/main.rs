//! The core against a real PostgreSQL. Chain facts are rows, as the indexer would write them.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail their test")]

mod bank_files;
mod guard;
mod histories;
mod house;
mod kinds;
mod ledger;
mod liquidity;
mod operations;
mod pool;
mod races;
mod settling;
mod statuses;
mod webhook_lanes;
mod writing;

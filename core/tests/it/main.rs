//! The core against a real PostgreSQL. Chain facts are rows, as the indexer would write them.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail their test")]

mod acceptance;
mod away;
mod bank_files;
mod beneficiaries;
mod commitment;
mod compared;
mod days;
mod desk;
mod endpoint_leases;
mod fix_parts;
mod guard;
mod histories;
mod kinds;
mod ledger;
mod liquidity;
mod notify;
mod older;
mod operations;
mod pauses;
mod pool;
mod pools;
mod proxy;
mod races;
mod retention;
mod rotation;
mod scenes;
mod settling;
mod statuses;
mod times;
mod tls;
mod unavailable;
mod unknown;
mod unwritable;
mod wallets;
mod writing;

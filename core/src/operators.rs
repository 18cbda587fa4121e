//! What operators manage and decide, over the command line and the console: requests of one that another one approves,
//! decisions about orders, partners with their credentials and limits, controls of trading, and the ledger.

pub mod accounts;
pub mod approvals;
pub mod bands;
pub mod bank_parts;
pub mod beneficiaries;
pub mod breaks;
pub mod credentials;
pub mod deposits;
pub mod fix_sessions;
pub mod instructions;
pub mod invitations;
pub mod keys;
pub mod ledger_operations;
pub mod limits;
pub mod makers;
pub mod operations;
pub mod partners;
pub mod pauses;
pub mod personal_data;
pub mod received_recalls;
pub mod requests;
pub mod rotation;
pub mod statements;
pub mod targets;

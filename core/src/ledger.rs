//! What the ledger says, and what bank and chain say beside it.

pub mod rebuild;
pub mod reconciliation;
pub mod statements;

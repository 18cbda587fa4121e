//! Operators, what they decide, and what they see: requests and approvals, the audit log, controls of orders, searches.

pub mod accounts;
pub mod approvals;
pub mod audit;
pub mod bands;
pub mod controls;
pub mod limits;
pub mod makers;
pub mod overview;
pub mod pauses;
pub mod saved_views;
pub mod search;

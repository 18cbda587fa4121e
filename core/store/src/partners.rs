//! Partners, the recipients that they registered, and the personal data of their orders.

pub mod beneficiaries;
pub mod personal;
pub mod registry;
pub mod requests;

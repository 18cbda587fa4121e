//! The parts of a request that do not depend on the partner: body, fields, limits and errors.

pub(crate) mod availability;
pub(crate) mod body;
pub(crate) mod error;
pub(crate) mod fields;
mod figures;
pub(crate) mod load;
mod log_limit;
pub(crate) mod path;
pub(crate) mod query;
pub(crate) mod request;
pub(crate) mod request_id;
pub(crate) mod windows;

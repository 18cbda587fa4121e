//! The one door of dvp: every order, from REST or FIX, passes through [`engine`].

pub mod chain;
#[cfg(feature = "embedded")]
pub mod embedded;

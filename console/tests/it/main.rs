//! The console against a real PostgreSQL: its router, without a browser.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail their test")]

mod access;
mod actions;
mod administration;
mod approvals;
mod authenticator;
mod bank_files;
mod connections;
mod faces;
mod found;
mod invitations;
mod live;
#[cfg(feature = "oidc")]
mod oidc;
mod orders;
mod passkeys;
mod passwords;
mod reports;
mod scene;
mod screens;
mod stale;
mod step_up;

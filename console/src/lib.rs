//! The operations console: pages for the operators of the service, rendered on the server.
//!
//! **Architecture invariant:** every page is in the table of `routes`, with the roles that may request it, and no
//! handler runs before that table was applied. The console reads the database through the store and acts through the
//! core, as the commands of the command line do; it changes no order itself, and it keeps no state but sign-in sessions.
//!
//! Reading order: `routes` the pages and their roles, `access` sessions and the checks of a request, `passkeys`,
//! `passwords` and `step_up` how an operator is authenticated,
//! `server` the listener and the headers of every answer, with its bounds in `connections` and `arrival`, `view` how values are shown, `pulse` the throughput
//! figures.
//!
//! An entry of the audit log is written before personal data is shown.
//!
//! Kept by `console/tests/it/orders.rs::a_look_at_personal_data_is_in_the_audit_log`.

pub mod access;
mod arrival;
mod assets;
mod attempts;
mod blocks;
mod cookies;
mod error;
mod figures;
mod filter;
mod form;
mod lanes;
mod lines;
mod navigation;
mod offers;
#[cfg(feature = "oidc")]
mod oidc;
mod operator;
mod overview;
mod passkeys;
mod passwords;
mod pulse;
mod qr;
mod request;
mod routes;
mod server;
mod state;
mod step_up;
mod timeline;
mod totp;
mod view;

pub use self::navigation::Needs;
pub use self::operator::SessionPolicy;
pub use self::routes::{Permission, permissions};
pub use self::server::{router, serve};
pub use self::state::{Console, ConsoleSettings, ProviderSettings, RequestTimes};

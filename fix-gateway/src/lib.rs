//! The FIX door: sockets in front, the engine behind, one task for each session in between.
//!
//! **Architecture invariant:** nothing is written to a socket that is not durable. A session's numbers, an order's
//! effect and the report about it are one commit; the driver transmits in the order of the numbers, as commits are
//! acknowledged. Protocol rules live in `dvp-fix`, business rules behind the engine: this crate moves and maps.
//!
//! Reading order: [`application`] (what a driver needs), [`driver`] (one session), [`acceptor`] (who is at the listener),
//! [`gateway`] (all sessions of this process); inside, `desk` is the application behind each and `orders` its words.

pub mod acceptor;
pub mod application;
mod clock;
mod config;
mod connection;
pub mod dictionaries;
pub mod driver;
mod feed;
pub mod gate;
pub mod gateway;
mod limits;
mod order_entry;
mod orders;
mod session_config;
pub mod sources;
pub mod store;
mod supervisor;
pub mod tls;

pub use acceptor::{Directory, ListenerConfig, LogonRefusal, SessionKey};
pub use application::{Application, Commit, Numbers, Reach, Renumbering, Turn, Unavailable, UnderWay};
pub use config::GatewayConfig;
pub use connection::{Attach, SlowConsumer};
pub use driver::{Driver, ResendPace};
pub use gate::{Admission, Anyone, Gatekeeper, Lockout, NotAdmitted, Origin};
pub use gateway::FixGateway;
pub use limits::{MessageLimits, Pace};
pub use session_config::{SessionConfigError, check_agreement, stale_types};

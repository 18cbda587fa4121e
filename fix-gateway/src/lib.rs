//! The FIX gateway: listeners and connections, with one task for each session between them and the engine.
//!
//! **Architecture invariant:** nothing is written to a socket before it is durable. A session's sequence numbers, an
//! order's effect and its report are one commit; the driver transmits in the order of the numbers, as commits are
//! acknowledged. The protocol's rules are in `dvp-fix`, the business rules in the engine; this crate maps between them.
//!
//! Reading order: [`application`] the driver's application, [`driver`] one session, [`acceptor`] the listeners,
//! [`gateway`] all sessions of this process; inside, `order_entry` is the application of each session and `orders` maps
//! its messages.

pub mod acceptor;
pub mod application;
mod archive;
pub mod certification;
mod clock;
mod config;
mod connection;
pub mod dictionaries;
pub mod driver;
mod feed;
mod forward;
pub mod gate;
pub mod gateway;
mod limits;
mod order_entry;
mod orders;
mod session_config;
pub mod sources;
mod status;
pub mod store;
mod supervisor;
pub mod tls;

pub use acceptor::{Directory, ListenerConfig, LogonRefusal, SessionKey};
pub use application::{Application, Commit, Numbers, Reach, Renumbering, Turn, Unavailable};
pub use config::GatewayConfig;
pub use connection::{Attach, SlowConsumer};
pub use driver::Driver;
pub use forward::ForwardConfig;
pub use gate::{Admission, Anyone, Gatekeeper, Lockout, NotAdmitted, Origin};
pub use gateway::FixGateway;
pub use limits::{MessageLimits, Pace};
pub use session_config::{SessionConfigError, check_agreement, stale_types};

//! The gateway's configuration.

use std::time::Duration;

use crate::{
    acceptor::{ListenerConfig, LogonRefusal},
    connection::SlowConsumer,
    forward::ForwardConfig,
    gate::Lockout,
};

/// How the gateway keeps its sessions.
#[derive(Debug, Clone)]
pub struct GatewayConfig {
    /// How long a session stays with an owner that has stopped renewing.
    pub lease_ttl: Duration,
    /// How often sessions that were added or changed, or whose owner has died, are looked for. What an operator changes
    /// is notified besides.
    pub refresh: Duration,
    /// The first listener. Its delay and words for refused Logons are those below.
    pub listener: ListenerConfig,
    /// When a refused Logon is answered, on every listener alike.
    pub refusal_delay: Duration,
    /// The answer to a refused Logon, the same on every listener.
    pub refusal: LogonRefusal,
    /// How often a source may be wrong about a session.
    pub lockout: Lockout,
    /// The limit on unread output of a peer.
    pub slow_consumer: SlowConsumer,
    /// Orders of one session that may wait for a look-up of their wallet; beyond, an order is refused.
    pub parked_orders_max: usize,
    pub archives_messages: bool,
    /// How other processes of the service forward connections to this one. With it the processes share the sessions;
    /// without it the first process has every session, and the others none.
    pub forward: Option<ForwardConfig>,
}

impl Default for GatewayConfig {
    fn default() -> Self {
        Self {
            lease_ttl: Duration::from_secs(10),
            refresh: Duration::from_secs(1),
            listener: ListenerConfig::default(),
            refusal_delay: Duration::from_secs(1),
            refusal: LogonRefusal::default(),
            lockout: Lockout::default(),
            slow_consumer: SlowConsumer::default(),
            parked_orders_max: 512,
            archives_messages: true,
            forward: None,
        }
    }
}

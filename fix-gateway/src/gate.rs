//! Who may use a session: asked before anything of the session changes.
//!
//! A refused peer learns nothing: not which part was wrong, not whether there is such a session. It is asked in the
//! stranger's own task, so a session's driver only ever meets peers that may use it.

mod lockout;
mod session;
mod signature;

use std::{future::Future, net::SocketAddr, pin::Pin};

use dvp_fix::codec::Message;

pub use lockout::Lockout;
pub(crate) use lockout::Lockouts;
pub(crate) use session::SessionGate;
pub use signature::{prehash, signature};

use crate::{limits::MessageLimits, tls::PeerCertificate};

/// Where a connection comes from.
#[derive(Debug, Clone)]
pub struct Origin {
    /// The peer's address; behind a proxy, the one the proxy says.
    pub addr: SocketAddr,
    /// The certificate of the peer, when it has shown one.
    pub certificate: Option<PeerCertificate>,
}

/// What a connection may do.
#[derive(Debug, Clone, Default)]
pub struct Admission {
    pub limits: MessageLimits,
}

/// Why a peer may not use a session. It is logged and not told, but for what only an authenticated peer can cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotAdmitted {
    #[error("session disabled")]
    Disabled,
    #[error("address not allowed for this session")]
    Address,
    #[error("no certificate of this session's")]
    Certificate,
    #[error("wrong credentials")]
    Credentials,
    #[error("signed too long ago, or ahead of time")]
    Stale,
    #[error("signed Logon was used before")]
    Replayed,
    #[error("too many refused logons, locked for a while")]
    Locked,
    #[error("credentials cannot be checked now")]
    Unavailable,
    /// The peer is who it says, and is told.
    #[error("the Logon asks for a new password")]
    NewPassword,
}

impl NotAdmitted {
    /// The reason in one word, for metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Disabled => "disabled",
            Self::Address => "address",
            Self::Certificate => "certificate",
            Self::Credentials => "credentials",
            Self::Stale => "stale",
            Self::Replayed => "replayed",
            Self::Locked => "locked",
            Self::Unavailable => "unavailable",
            Self::NewPassword => "new_password",
        }
    }
}

/// A decision under way.
pub type Deciding<'a> = Pin<Box<dyn Future<Output = Result<Admission, NotAdmitted>> + Send + 'a>>;

/// Decides who may use one session.
pub trait Gatekeeper: std::fmt::Debug + Send + Sync + 'static {
    /// May the peer that sent this Logon use the session?
    fn admit<'a>(&'a self, logon: &'a Message, origin: &'a Origin) -> Deciding<'a>;
}

/// Lets everybody in, without limits: for tests of the session layer.
#[derive(Debug, Clone, Copy, Default)]
pub struct Anyone;

impl Gatekeeper for Anyone {
    fn admit<'a>(&'a self, _: &'a Message, _: &'a Origin) -> Deciding<'a> {
        Box::pin(std::future::ready(Ok(Admission::default())))
    }
}

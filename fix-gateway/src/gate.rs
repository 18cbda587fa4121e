//! Authentication and authorization of peers, before the session's state changes.
//!
//! A refused peer learns nothing, neither which part was wrong nor whether the session exists. The check runs in the
//! connection's own task, so that a session's driver gets authenticated connections only.
//!
//! Kept by `fix-gateway/tests/it/admission.rs::an_unauthenticated_reset_changes_nothing`.

mod lockout;
mod session;
mod signature;

use std::{future::Future, net::SocketAddr, pin::Pin};

use dvp_fix::{
    codec::{Encoding, Message},
    session::LogonFault,
};

pub use lockout::Lockout;
pub(crate) use lockout::Lockouts;
pub(crate) use session::SessionGate;
pub use signature::{prehash, signature};

use crate::{limits::MessageLimits, tls::PeerCertificate};

#[derive(Debug, Clone)]
pub struct Origin {
    /// The peer's address; behind a proxy, the one in the PROXY header.
    pub addr: SocketAddr,
    pub certificate: Option<PeerCertificate>,
}

#[derive(Debug, Clone, Default)]
pub struct Admission {
    pub limits: MessageLimits,
}

/// Why a peer may not use a session. It is logged and not sent, except for reasons that only an authenticated peer can
/// cause.
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
    /// The peer is authenticated, and gets the reason.
    #[error("{0}")]
    Logon(LogonFault),
    /// Likewise.
    #[error("NewPassword(925) is not supported: passwords are changed by the operator")]
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
            Self::Logon(_) => "logon",
            Self::NewPassword => "new_password",
        }
    }

    /// Whether the peer has shown right credentials, so that a Logout tells it the reason.
    pub const fn is_told(self) -> bool {
        matches!(self, Self::Logon(_) | Self::NewPassword)
    }
}

pub type Deciding<'a> = Pin<Box<dyn Future<Output = Result<Admission, NotAdmitted>> + Send + 'a>>;

/// Decides which peers may use one session.
pub trait Gatekeeper: std::fmt::Debug + Send + Sync + 'static {
    /// May the peer that sent this Logon use the session?
    fn admit<'a>(&'a self, logon: &'a Message, origin: &'a Origin) -> Deciding<'a>;

    /// The encoding of the session's text; what the gatekeeper gets is UTF-8.
    fn encoding(&self) -> Encoding {
        Encoding::Utf8
    }
}

/// Accepts every peer, without limits: for tests of the session layer.
#[derive(Debug, Clone, Copy, Default)]
pub struct Anyone;

impl Gatekeeper for Anyone {
    fn admit<'a>(&'a self, _: &'a Message, _: &'a Origin) -> Deciding<'a> {
        Box::pin(std::future::ready(Ok(Admission::default())))
    }
}

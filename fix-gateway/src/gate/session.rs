//! The gatekeeper of a configured session: it decides by the session's present row.

use std::{net::IpAddr, sync::Arc, time::Instant};

use dvp_core::engine::Engine;
use dvp_fix::{
    codec::{Encoding, Message},
    tag,
};
use dvp_store::{
    StoreError,
    fix::{
        self, FixSessionRow,
        settings::{self as fix_settings, FixSessionSettings},
    },
};
use ipnet::IpNet;
use tracing::warn;

use super::{Admission, Deciding, Gatekeeper, Lockouts, NotAdmitted, Origin, signature};
use crate::{
    clock,
    limits::MessageLimits,
    session_config::{Terms, session_config},
    tls::PeerCertificate,
};

/// One session's gate.
pub(crate) struct SessionGate {
    engine: Engine,
    session_id: String,
    /// Those that its driver was started with.
    terms: Terms,
    encoding: Encoding,
    lockouts: Arc<Lockouts>,
}

impl std::fmt::Debug for SessionGate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SessionGate").field("session_id", &self.session_id).finish_non_exhaustive()
    }
}

impl Gatekeeper for SessionGate {
    fn admit<'a>(&'a self, logon: &'a Message, origin: &'a Origin) -> Deciding<'a> {
        Box::pin(self.decide(logon, origin))
    }

    fn encoding(&self) -> Encoding {
        self.encoding
    }
}

impl SessionGate {
    pub(crate) const fn new(
        engine: Engine,
        session_id: String,
        terms: Terms,
        encoding: Encoding,
        lockouts: Arc<Lockouts>,
    ) -> Self {
        Self { engine, session_id, terms, encoding, lockouts }
    }

    async fn decide(&self, logon: &Message, origin: &Origin) -> Result<Admission, NotAdmitted> {
        let source = origin.addr.ip();
        if !self.lockouts.attempt(&self.session_id, source, Instant::now()) {
            return Err(NotAdmitted::Locked);
        }
        let (session, settings) = self.load().await?;
        if !session.enabled {
            return Err(NotAdmitted::Disabled);
        }
        check_address(&settings, source)?;
        check_certificate(&settings, origin.certificate.as_ref())?;
        self.check_credentials(&session, &settings, logon).await?;
        self.lockouts.succeeded(&self.session_id, source);
        if logon.get(tag::NEW_PASSWORD).is_some() || logon.get(tag::ENCRYPTED_NEW_PASSWORD).is_some() {
            return Err(NotAdmitted::NewPassword);
        }
        if Terms::of(&session, &settings) != self.terms {
            // The session is about to be started with its new terms; until then its peer connects again.
            return Err(NotAdmitted::Unavailable);
        }
        let config = session_config(&session, &settings).map_err(|error| {
            warn!(session = self.session_id, %error, "the session cannot be run");
            NotAdmitted::Unavailable
        })?;
        config.check_logon(logon.view(), clock::now().utc).map_err(NotAdmitted::Logon)?;
        Ok(Admission { limits: limits(&settings) })
    }

    async fn load(&self) -> Result<(FixSessionRow, FixSessionSettings), NotAdmitted> {
        let read = async {
            let mut conn = self.engine.lookups().acquire().await?;
            let session = fix::find_session(&mut conn, &self.session_id).await?;
            let settings = fix_settings::find_settings(&mut conn, &self.session_id).await?;
            Ok::<_, StoreError>(session.zip(settings))
        };
        match read.await {
            Ok(Some(found)) => Ok(found),
            Ok(None) => Err(NotAdmitted::Disabled),
            Err(error) => {
                warn!(session = self.session_id, %error, "credentials could not be checked");
                Err(NotAdmitted::Unavailable)
            }
        }
    }

    async fn check_credentials(
        &self,
        session: &FixSessionRow,
        settings: &FixSessionSettings,
        logon: &Message,
    ) -> Result<(), NotAdmitted> {
        // FIX 4.2 has no Username(553) and no Password(554): there RawData(96) may be the password.
        let is_42 = session.begin_string == "FIX.4.2";
        let username = logon.get(tag::USERNAME);
        let is_named = username.map_or(is_42 || settings.logon_secret.is_some(), |username| {
            username == session.username.as_bytes()
        });
        let vault = &self.engine.context().vault;
        if let Some(sealed) = &settings.logon_secret {
            let secret = vault.open(&self.session_id, sealed).map_err(|error| {
                warn!(session = self.session_id, %error, "credentials could not be checked");
                NotAdmitted::Unavailable
            })?;
            let window = u64::try_from(settings.logon_window_secs).unwrap_or(0);
            let signed_at = signature::check(logon, &secret, window, clock::now().utc)?;
            return if is_named { self.use_once(signed_at.0).await } else { Err(NotAdmitted::Credentials) };
        }
        let said = logon.get(tag::PASSWORD).or_else(|| logon.get(tag::RAW_DATA).filter(|_| is_42));
        let said = said.and_then(|said| std::str::from_utf8(said).ok());
        let password = said.unwrap_or_default();
        let is_right = vault.is_fix_password(&self.session_id, password, &session.password_hash);
        if !is_named || said.is_none() || !is_right {
            return Err(NotAdmitted::Credentials);
        }
        self.keep_current(session, password).await;
        Ok(())
    }

    /// A password stored under an earlier master key is stored under the current one from now on.
    async fn keep_current(&self, session: &FixSessionRow, password: &str) {
        let vault = &self.engine.context().vault;
        let hash = vault.fix_password_hash(&self.session_id, password);
        if session.password_hash == hash {
            return;
        }
        let kept = async {
            let mut conn = self.engine.lookups().acquire().await?;
            fix::rehash_password(&mut conn, &self.session_id, &hash, vault.current_id()).await
        };
        if let Err(error) = kept.await {
            warn!(session = self.session_id, %error, "password could not be re-encrypted under the current master key, will retry at the next Logon");
        }
    }

    async fn use_once(&self, signed_at: u64) -> Result<(), NotAdmitted> {
        let signed_at = i64::try_from(signed_at).map_err(|_| NotAdmitted::Stale)?;
        let used = async {
            let mut conn = self.engine.lookups().acquire().await?;
            fix_settings::use_signed_logon(&mut conn, &self.session_id, signed_at).await
        };
        match used.await {
            Ok(true) => Ok(()),
            Ok(false) => Err(NotAdmitted::Replayed),
            Err(error) => {
                warn!(session = self.session_id, %error, "credentials could not be checked");
                Err(NotAdmitted::Unavailable)
            }
        }
    }
}

/// An unreadable list allows no address.
fn check_address(settings: &FixSessionSettings, source: IpAddr) -> Result<(), NotAdmitted> {
    let Some(allowed) = &settings.allowed_sources else { return Ok(()) };
    let source = source.to_canonical();
    let is_in = |network: &String| network.parse().is_ok_and(|network: IpNet| network.contains(&source));
    if allowed.iter().any(is_in) { Ok(()) } else { Err(NotAdmitted::Address) }
}

fn check_certificate(
    settings: &FixSessionSettings,
    shown: Option<&PeerCertificate>,
) -> Result<(), NotAdmitted> {
    let is_shown =
        |demanded: bool, matches: &dyn Fn(&PeerCertificate) -> bool| !demanded || shown.is_some_and(matches);
    let fingerprint = |shown: &PeerCertificate| {
        settings.client_cert_sha256.iter().flatten().any(|known| known[..] == shown.sha256)
    };
    let name = |shown: &PeerCertificate| {
        settings.client_cert_names.iter().flatten().any(|known| shown.names.contains(known))
    };
    if is_shown(settings.client_cert_sha256.is_some(), &fingerprint)
        && is_shown(settings.client_cert_names.is_some(), &name)
    {
        Ok(())
    } else {
        Err(NotAdmitted::Certificate)
    }
}

fn limits(settings: &FixSessionSettings) -> MessageLimits {
    let number = |rate: Option<i32>| rate.and_then(|rate| u32::try_from(rate).ok());
    MessageLimits::per_second(
        number(settings.soft_messages_per_sec),
        number(settings.hard_messages_per_sec),
        number(settings.admin_messages_per_sec),
    )
}

//! Passkeys: the console as the relying party of WebAuthn.
//!
//! ```text
//! browser --challenge--> database row --answer, once, within five minutes--> verified
//! ```
//!
//! Invariants: a challenge is deleted before its answer is verified, so that no answer is used twice; an answer is of
//! the console's own origins and in its own page; the authenticator has verified its user; a signature counter that does
//! not grow is refused.

use std::time::Duration;

use dvp_store::operators::accounts::challenges::{self, Purpose};
use dvp_store::operators::accounts::passkeys::{self, FoundPasskey, NewPasskey};
use dvp_store::{PgConnection, StoreError, database::ids};
use serde::Serialize;
use url::Host;
use uuid::Uuid;
use webauthn_rp::bin::{Decode, Encode as _};
use webauthn_rp::request::auth::AuthenticationVerificationOptions;
use webauthn_rp::request::register::{
    CredProtect, Nickname, PublicKeyCredentialUserEntity, RegistrationVerificationOptions, UserHandle16,
    Username,
};
use webauthn_rp::request::{AsciiDomain, PublicKeyCredentialDescriptor, RpId, TimedCeremony as _};
use webauthn_rp::response::auth::error::AuthCeremonyErr;
use webauthn_rp::response::register::{CompressedPubKey, DynamicState, StaticState};
use webauthn_rp::response::{AuthTransports, CredentialId};
use webauthn_rp::{
    AuthenticatedCredential, DiscoverableAuthentication16, DiscoverableAuthenticationServerState,
    DiscoverableCredentialRequestOptions, PublicKeyCredentialCreationOptions, Registration,
    RegistrationServerState,
};

use crate::operator::Operator;
use crate::state::ConsoleSettings;

/// How long a challenge can be answered; browsers are given the same time.
const GOOD_FOR: Duration = Duration::from_secs(300);
/// Passkeys of an operator.
pub(crate) const MOST: usize = 20;

type PublicKey = CompressedPubKey<[u8; 32], [u8; 32], [u8; 48], Vec<u8>>;

/// Why a passkey was not registered or did not authenticate.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PasskeyError {
    #[error("passkeys need a console that is found by a host name")]
    NoHostName,
    #[error("the answer of the browser cannot be read")]
    Unreadable,
    #[error("the challenge was answered already or has expired")]
    NoChallenge,
    #[error("the passkey is not known, or was removed")]
    Unknown,
    #[error(
        "the signature counter of passkey {passkey} of {operator} did not grow: there may be a copy of it"
    )]
    Counter { operator: String, passkey: String },
    #[error("the answer was refused: {0}")]
    Refused(String),
    #[error("this passkey is registered already")]
    Taken,
    #[error("a passkey has a name of 1 to 64 characters, none of them a control character")]
    BadName,
    #[error("an operator has at most {MOST} passkeys")]
    TooMany,
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The relying party: the host name that passkeys belong to, and the origins whose pages may use them.
pub(crate) struct RelyingParty {
    id: RpId,
    origins: Vec<String>,
}

impl RelyingParty {
    /// The relying party of the console. Browsers know passkeys of host names, not of addresses.
    pub(crate) fn of(settings: &ConsoleSettings) -> Result<Self, PasskeyError> {
        let mut named = settings.origins.iter().filter_map(|origin| match origin.host() {
            Some(Host::Domain(name)) => Some((name.to_owned(), origin.origin().ascii_serialization())),
            Some(Host::Ipv4(_) | Host::Ipv6(_)) | None => None,
        });
        let (host, first) = named.next().ok_or(PasskeyError::NoHostName)?;
        let others = named.filter(|(name, _)| *name == host).map(|(_, origin)| origin);
        let origins = std::iter::once(first).chain(others).collect();
        let id = AsciiDomain::try_from(host).map_err(|_| PasskeyError::NoHostName)?;
        Ok(Self { id: RpId::Domain(id), origins })
    }

    /// A challenge for a new passkey of an operator, as the browser takes it.
    pub(crate) async fn registration(
        &self,
        conn: &mut PgConnection,
        operator: &Operator,
        handle: Uuid,
    ) -> Result<String, PasskeyError> {
        let known = passkeys::list(conn, &operator.id, i64::try_from(MOST).unwrap_or(i64::MAX)).await?;
        let known = known.into_iter().map(|row| descriptor(row.credential_id, row.transports));
        let known = known.collect::<Result<Vec<_>, _>>()?;
        if known.len() >= MOST {
            return Err(PasskeyError::TooMany);
        }
        let handle = user_handle(handle);
        let name = Username::try_from(operator.name.as_str())
            .or_else(|_| Username::try_from(operator.id.as_str()))
            .map_err(refused)?;
        let display_name = Nickname::try_from(operator.name.as_str()).ok();
        let user = PublicKeyCredentialUserEntity { name, id: &handle, display_name };
        let mut options = PublicKeyCredentialCreationOptions::passkey(&self.id, user, known);
        // Every use verifies the user; requested as an extension too, authenticators without it would be refused.
        options.extensions.cred_protect = CredProtect::None;
        let (server, client) = options.start_ceremony().map_err(refused)?;
        let state = server.encode().map_err(refused)?;
        let challenge = server.sent_challenge().0.to_be_bytes();
        challenges::insert(conn, &challenge, Purpose::Register(&operator.id), &state, GOOD_FOR).await?;
        json(&client)
    }

    /// A challenge for a passkey, as the browser takes it.
    pub(crate) async fn challenge(
        &self,
        conn: &mut PgConnection,
        purpose: Purpose<'_>,
    ) -> Result<String, PasskeyError> {
        let options = DiscoverableCredentialRequestOptions::passkey(&self.id);
        let (server, client) = options.start_ceremony().map_err(refused)?;
        let state = server.encode().map_err(refused)?;
        let challenge = server.sent_challenge().0.to_be_bytes();
        challenges::insert(conn, &challenge, purpose, &state, GOOD_FOR).await?;
        json(&client)
    }

    /// Verifies a new passkey and stores it. `conn` is in a transaction that began after the challenge was taken.
    pub(crate) async fn register(
        &self,
        conn: &mut PgConnection,
        operator: &Operator,
        name: &str,
        answer: NewAnswer,
    ) -> Result<(), PasskeyError> {
        let NewAnswer { registration, state } = answer;
        let options = RegistrationVerificationOptions::<String, &str> {
            allowed_origins: &self.origins,
            // Browsers request some of themselves.
            error_on_unsolicited_extensions: false,
            ..RegistrationVerificationOptions::default()
        };
        let registered = state.verify(&self.id, &registration, &options).map_err(refused)?;
        let (credential, transports, _, fixed, dynamic, _) = registered.into_parts();
        let Ok(fixed) = fixed.encode();
        let Ok(dynamic) = dynamic.encode();
        let Ok(transports) = transports.encode();
        let id = format!("pky_{}", ids::draw_here(conn).await?.simple());
        let new = NewPasskey {
            id: &id,
            operator_id: &operator.id,
            name,
            credential_id: credential.as_ref(),
            static_state: &fixed,
            dynamic_state: &dynamic,
            transports: transports.into(),
        };
        match passkeys::insert(conn, &new).await {
            Err(error) if error.constraint() == Some("operator_passkey_credential_key") => {
                Err(PasskeyError::Taken)
            }
            inserted => Ok(inserted?),
        }
    }

    /// Verifies an answer and records the passkey's use. `conn` is in a transaction that began after the challenge was
    /// taken.
    pub(crate) async fn verify(
        &self,
        conn: &mut PgConnection,
        answer: Answer,
    ) -> Result<FoundPasskey, PasskeyError> {
        let Answer { authentication, state } = answer;
        let credential = authentication.raw_id();
        let found = passkeys::lock_by_credential(conn, credential.as_ref()).await?;
        let found = found.ok_or(PasskeyError::Unknown)?;
        let corrupt = || StoreError::corrupt("operator_passkey", format_args!("{}", found.id));
        let fixed = StaticState::<PublicKey>::decode(&found.static_state).map_err(|_| corrupt())?;
        let dynamic = found.dynamic_state.as_slice().try_into().map_err(|_| corrupt())?;
        let dynamic = DynamicState::decode(dynamic).map_err(|_| corrupt())?;
        let handle = user_handle(found.handle);
        let mut credential =
            AuthenticatedCredential::new(credential, &handle, fixed, dynamic).map_err(|_| corrupt())?;
        let options = AuthenticationVerificationOptions::<String, &str> {
            allowed_origins: &self.origins,
            error_on_unsolicited_extensions: false,
            ..AuthenticationVerificationOptions::default()
        };
        let verified = state.verify(&self.id, &authentication, &mut credential, &options);
        verified.map_err(|error| match error {
            AuthCeremonyErr::SignatureCounter => {
                PasskeyError::Counter { operator: found.operator.name.clone(), passkey: found.name.clone() }
            }
            error => refused(error),
        })?;
        let Ok(dynamic) = credential.dynamic_state().encode();
        passkeys::update_used(conn, &found.id, &dynamic).await?;
        Ok(found)
    }
}

/// A browser's answer to a challenge that was taken.
pub(crate) struct Answer {
    authentication: DiscoverableAuthentication16,
    state: DiscoverableAuthenticationServerState,
}

impl Answer {
    /// Reads an answer and takes its challenge, which no other answer can use from now on.
    pub(crate) async fn take(
        conn: &mut PgConnection,
        purpose: Purpose<'_>,
        text: &str,
    ) -> Result<Self, PasskeyError> {
        let unreadable = |_| PasskeyError::Unreadable;
        let authentication =
            DiscoverableAuthentication16::from_json_relaxed(text.as_bytes()).map_err(unreadable)?;
        let challenge = authentication.challenge_relaxed().map_err(unreadable)?.0.to_be_bytes();
        let state = challenges::take(conn, &challenge, purpose).await?.ok_or(PasskeyError::NoChallenge)?;
        let state = DiscoverableAuthenticationServerState::decode(&state);
        let state = state.map_err(|error| StoreError::corrupt("operator_challenge", error))?;
        Ok(Self { authentication, state })
    }
}

/// A browser's answer with a new passkey, to a challenge that was taken.
pub(crate) struct NewAnswer {
    registration: Registration,
    state: RegistrationServerState<16>,
}

impl NewAnswer {
    /// Reads an answer and takes its challenge, which no other answer can use from now on.
    pub(crate) async fn take(
        conn: &mut PgConnection,
        operator: &Operator,
        text: &str,
    ) -> Result<Self, PasskeyError> {
        let unreadable = |_| PasskeyError::Unreadable;
        let registration = Registration::from_json_relaxed(text.as_bytes()).map_err(unreadable)?;
        let challenge = registration.challenge_relaxed().map_err(unreadable)?.0.to_be_bytes();
        let state = challenges::take(conn, &challenge, Purpose::Register(&operator.id)).await?;
        let state = RegistrationServerState::decode(&state.ok_or(PasskeyError::NoChallenge)?);
        let state = state.map_err(|error| StoreError::corrupt("operator_challenge", error))?;
        Ok(Self { registration, state })
    }
}

fn user_handle(handle: Uuid) -> UserHandle16 {
    let Ok(handle) = UserHandle16::decode(handle.into_bytes());
    handle
}

fn descriptor(
    credential: Vec<u8>,
    transports: i16,
) -> Result<PublicKeyCredentialDescriptor<Vec<u8>>, StoreError> {
    let corrupt = || StoreError::corrupt("operator_passkey", "credential");
    let id = CredentialId::decode(credential).map_err(|_| corrupt())?;
    let transports = u8::try_from(transports).map_err(|_| corrupt())?;
    let transports = AuthTransports::decode(transports).map_err(|_| corrupt())?;
    Ok(PublicKeyCredentialDescriptor { id, transports })
}

fn refused(error: impl std::fmt::Display) -> PasskeyError {
    PasskeyError::Refused(error.to_string())
}

fn json(options: &impl Serialize) -> Result<String, PasskeyError> {
    serde_json::to_string(options).map_err(refused)
}

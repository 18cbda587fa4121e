//! Passwords with one-time codes: the way to sign in without a passkey.
//!
//! Invariants: a name that is not known, or has no password, is answered in the same words after the same work as a
//! wrong password; attempts are counted before they are examined, by name and by address, also across processes; a code
//! is accepted once.

use std::net::IpAddr;
use std::sync::OnceLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use argon2::Argon2;
use argon2::password_hash::phc::PasswordHash;
use argon2::password_hash::{PasswordHasher as _, PasswordVerifier as _};
use dvp_core::secrets::Vault;
use dvp_store::database::pools::Pools;
use dvp_store::operators::accounts::SignedIn;
use dvp_store::operators::accounts::passwords::{self, AttemptKind};
use dvp_store::{PgConnection, StoreError};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use tokio::sync::Semaphore;

use crate::totp::TotpSecret;

pub(crate) const CHARACTERS_LEAST: usize = 12;
pub(crate) const CHARACTERS_MOST: usize = 256;
/// Attempts with one name within the window.
const ATTEMPTS_PER_NAME: i32 = 5;
/// Attempts from one address within the window.
const ATTEMPTS_PER_SOURCE: i32 = 30;
const WINDOW: Duration = Duration::from_secs(15 * 60);
/// How long a new password waits for its first code.
const GOOD_FOR: Duration = Duration::from_secs(15 * 60);
/// Hashes that are computed at once: each takes 19 MiB and a core.
const AT_ONCE: usize = 2;

/// Why a password was not set, or neither password nor code authenticated.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PasswordError {
    #[error("name, password or code is wrong")]
    Wrong,
    #[error("the code is wrong")]
    WrongCode,
    #[error("the code was used already: wait for the next one")]
    Used,
    #[error(
        "too many attempts with this name or from this address: try again in 15 minutes, or use a passkey"
    )]
    TooMany,
    #[error("the password was chosen too long ago: choose it again")]
    Begun,
    #[error("the session has ended")]
    SessionEnded,
    #[error("a password has {CHARACTERS_LEAST} to {CHARACTERS_MOST} characters")]
    Length,
    #[error("the password could not be examined: {0}")]
    Failed(String),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Hashes passwords, a few at once.
#[derive(Debug)]
pub(crate) struct Passwords {
    places: Semaphore,
    /// The hash of no password, examined for names that are not known.
    decoy: OnceLock<String>,
}

impl Default for Passwords {
    fn default() -> Self {
        Self { places: Semaphore::new(AT_ONCE), decoy: OnceLock::new() }
    }
}

fn failed(error: impl std::fmt::Display) -> PasswordError {
    PasswordError::Failed(error.to_string())
}

fn hash(password: &str) -> Result<String, PasswordError> {
    let hash: PasswordHash = Argon2::default().hash_password(password.as_bytes()).map_err(failed)?;
    Ok(hash.to_string())
}

fn is_password(password: &str, hash: &str) -> Result<bool, PasswordError> {
    let hash = PasswordHash::new(hash).map_err(failed)?;
    Ok(Argon2::default().verify_password(password.as_bytes(), &hash).is_ok())
}

impl Passwords {
    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, PasswordError> + Send + 'static,
    ) -> Result<T, PasswordError> {
        let _place = self.places.acquire().await.map_err(failed)?;
        tokio::task::spawn_blocking(work).await.map_err(failed)?
    }

    /// The Argon2id hash of a new password.
    pub(crate) async fn hash(&self, password: String) -> Result<String, PasswordError> {
        if !(CHARACTERS_LEAST..=CHARACTERS_MOST).contains(&password.chars().count()) {
            return Err(PasswordError::Length);
        }
        self.run(move || hash(&password)).await
    }

    async fn decoy(&self) -> Result<String, PasswordError> {
        if let Some(decoy) = self.decoy.get() {
            return Ok(decoy.clone());
        }
        let made = self.run(|| hash("")).await?;
        Ok(self.decoy.get_or_init(|| made).clone())
    }

    /// The operator whose name, password and code these are. The code is used up by it.
    pub(crate) async fn sign_in(
        &self,
        pools: &Pools,
        vault: &Vault,
        source: IpAddr,
        typed: Typed,
    ) -> Result<SignedIn, PasswordError> {
        let Typed { name, password, code } = typed;
        // PostgreSQL takes no NUL in a text; no name has a control character.
        let plain = if name.contains(char::is_control) { "" } else { name.trim() };
        let mut conn = pools.lookups.acquire().await.map_err(StoreError::from)?;
        let found = passwords::find_by_name(&mut conn, plain).await?;
        // However the name of an operator is written, its attempts are counted together.
        let subject = name_subject(found.as_ref().map_or(&name, |found| &found.operator.name));
        let of_name = passwords::count_attempt(&mut conn, AttemptKind::Name, &subject, WINDOW).await?;
        let of_source =
            passwords::count_attempt(&mut conn, AttemptKind::Source, &source_subject(source), WINDOW).await?;
        if of_name > ATTEMPTS_PER_NAME || of_source > ATTEMPTS_PER_SOURCE {
            return Err(PasswordError::TooMany);
        }
        // Others use the connection while the password is hashed.
        drop(conn);
        let decoy = self.decoy().await?;
        let (hash, totp) = match &found {
            Some(found) => {
                (found.hash.clone(), open(vault, &found.operator.operator_id, &found.sealed_totp)?)
            }
            None => (decoy, TotpSecret::random().map_err(failed)?),
        };
        let is_length = password.chars().count() <= CHARACTERS_MOST;
        let password = if is_length { password } else { String::new() };
        let is_password = self.run(move || is_password(&password, &hash)).await?;
        let step = totp.step_of(&code, unix_secs());
        let (Some(found), true, Some(step)) = (found, is_password, step) else {
            return Err(PasswordError::Wrong);
        };
        let mut conn = pools.lookups.acquire().await.map_err(StoreError::from)?;
        use_step(&mut conn, &found.operator.operator_id, step).await?;
        passwords::forget_attempts(&mut conn, &subject).await?;
        Ok(found.operator)
    }

    /// Examines a code of an operator who has a session. The code is used up.
    pub(crate) async fn step_up(
        &self,
        conn: &mut PgConnection,
        vault: &Vault,
        (operator_id, name): (&str, &str),
        code: &str,
    ) -> Result<(), PasswordError> {
        let subject = name_subject(name);
        let attempts = passwords::count_attempt(conn, AttemptKind::Name, &subject, WINDOW).await?;
        if attempts > ATTEMPTS_PER_NAME {
            return Err(PasswordError::TooMany);
        }
        let found = passwords::find(conn, operator_id).await?.ok_or(PasswordError::WrongCode)?;
        let totp = open(vault, operator_id, &found.sealed_totp)?;
        let step = totp.step_of(code, unix_secs()).ok_or(PasswordError::WrongCode)?;
        use_step(conn, operator_id, step).await?;
        Ok(passwords::forget_attempts(conn, &subject).await?)
    }
}

/// A new password until its first code was typed. It is in a field of the form, encrypted for its operator.
#[derive(Serialize, Deserialize)]
pub(crate) struct NewPassword {
    hash: String,
    totp: [u8; 20],
    until: u64,
}

impl NewPassword {
    pub(crate) fn new(hash: String) -> Result<Self, PasswordError> {
        let totp = TotpSecret::random().map_err(failed)?;
        Ok(Self { hash, totp: *totp.as_bytes(), until: unix_secs() + GOOD_FOR.as_secs() })
    }

    pub(crate) fn totp(&self) -> TotpSecret {
        TotpSecret::of(self.totp)
    }

    fn owner(operator_id: &str) -> String {
        format!("new password of {operator_id}")
    }

    pub(crate) fn seal(&self, vault: &Vault, operator_id: &str) -> Result<String, PasswordError> {
        let text = serde_json::to_vec(self).map_err(failed)?;
        Ok(hex::encode(vault.seal(&Self::owner(operator_id), &text).map_err(failed)?))
    }

    pub(crate) fn open(vault: &Vault, operator_id: &str, sealed: &str) -> Result<Self, PasswordError> {
        let sealed = hex::decode(sealed).map_err(|_| PasswordError::Begun)?;
        let text = vault.open(&Self::owner(operator_id), &sealed).map_err(|_| PasswordError::Begun)?;
        let new: Self = serde_json::from_slice(&text).map_err(failed)?;
        if new.until < unix_secs() { Err(PasswordError::Begun) } else { Ok(new) }
    }

    /// Stores the password when the code is of its secret. The code is used up.
    pub(crate) async fn store(
        &self,
        conn: &mut PgConnection,
        vault: &Vault,
        operator_id: &str,
        code: &str,
    ) -> Result<(), PasswordError> {
        let step = self.totp().step_of(code, unix_secs()).ok_or(PasswordError::WrongCode)?;
        let step = i64::try_from(step).map_err(failed)?;
        let sealed = vault.seal(operator_id, &self.totp).map_err(failed)?;
        Ok(passwords::upsert(conn, operator_id, &self.hash, &sealed, step).await?)
    }
}

/// What was typed at a sign-in.
pub(crate) struct Typed {
    pub name: String,
    pub password: String,
    pub code: String,
}

async fn use_step(conn: &mut PgConnection, operator_id: &str, step: u64) -> Result<(), PasswordError> {
    let step = i64::try_from(step).map_err(failed)?;
    if passwords::use_step(conn, operator_id, step).await? { Ok(()) } else { Err(PasswordError::Used) }
}

fn open(vault: &Vault, operator_id: &str, sealed: &[u8]) -> Result<TotpSecret, PasswordError> {
    let secret = vault.open(operator_id, sealed).map_err(failed)?;
    TotpSecret::from_bytes(&secret)
        .ok_or_else(|| StoreError::corrupt("operator_password", operator_id).into())
}

fn name_subject(name: &str) -> [u8; 32] {
    Sha256::digest(name.trim().to_lowercase()).into()
}

/// Addresses of one IPv6 network are one source.
fn source_subject(source: IpAddr) -> [u8; 32] {
    let text = match source {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            format!("{a:x}:{b:x}:{c:x}:{d:x}")
        }
    };
    Sha256::digest(text).into()
}

pub(crate) fn unix_secs() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

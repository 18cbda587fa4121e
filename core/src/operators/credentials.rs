//! Credentials of partners that operators change: one operator issues an API key, draws a password or requests a FIX
//! session, another one approves that it may be used.
//!
//! A key is issued disabled and enabled by the approval; a session, its settings and its new password are stored by the
//! approval. The texts of keys and passwords are returned to the operator that issued them, once, and exist nowhere
//! else. To disable or revoke a key, or to disable a session, needs one operator.

pub mod sessions;

use dvp_domain::environment::Environment;
use dvp_store::fix::commands::SessionAction;
use dvp_store::fix::settings::FixSessionSettings;
use dvp_store::operators::approvals::Approval;
use dvp_store::{PgConnection, StoreError, fix, partners::registry};
use serde::{Deserialize, Serialize};

use crate::operators::fix_sessions::{self, SessionCommandError};
use crate::operators::keys::{self, IssueError, Issued};
use crate::operators::requests::{self, ChangeError, Maker, RequestedChange, SettingChange, begin, end};
use crate::secrets::Vault;

/// The kind of requests about credentials.
pub const CREDENTIAL: &str = "credential";

/// What another operator approves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "change", rename_all = "snake_case", rename_all_fields = "camelCase", deny_unknown_fields)]
enum Change {
    /// A key that was issued disabled may be used.
    EnableKey { partner: String, key_id: String, begins_with: String, scopes: Vec<String> },
    /// A FIX session has another password, of which this is the keyed hash.
    SetPassword { session_id: String, password_hash: String, master_key: String },
    /// A FIX session that was disabled may log on again.
    EnableSession { session_id: String, partner: String },
    /// A FIX session exists.
    CreateSession {
        session_id: String,
        partner_id: String,
        partner: String,
        livemode: bool,
        begin_string: String,
        client_comp_id: String,
        service_comp_id: String,
        default_appl_ver_id: Option<String>,
        username: String,
        password_hash: String,
        master_key: String,
        settings: Box<FixSessionSettings>,
        max_slippage_bps: Option<i32>,
    },
    /// A FIX session has other settings than `before`.
    SetSettings {
        session_id: String,
        settings: Box<FixSessionSettings>,
        max_slippage_bps: Option<i32>,
        before: Box<FixSessionSettings>,
    },
}

/// Why a credential was not changed.
#[derive(Debug, thiserror::Error)]
pub enum CredentialError {
    #[error("there is no {0}")]
    Unknown(String),
    #[error("there is a session {0} already")]
    Exists(String),
    #[error(
        "the versions are {}, and a CompID is 1 to 64 of the characters a-z, A-Z, 0-9, '.', '_' and '-'",
        sessions::BEGIN_STRINGS.join(", ")
    )]
    SessionId,
    #[error("the key is revoked")]
    Revoked,
    #[error("{0} is not disabled")]
    NotDisabled(String),
    #[error("the scopes of a key are {}", keys::SCOPES.join(", "))]
    Scope,
    #[error(transparent)]
    Issue(#[from] IssueError),
    #[error(transparent)]
    Session(#[from] SessionCommandError),
    #[error(transparent)]
    Change(#[from] ChangeError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Issues a key of a partner, disabled, and requests that it is enabled.
pub async fn issue_key(
    conn: &mut PgConnection,
    vault: &Vault,
    partner: &str,
    environment: Environment,
    scopes: &[String],
    maker: Maker<'_>,
) -> Result<(Issued, RequestedChange), CredentialError> {
    if scopes.is_empty() || scopes.iter().any(|scope| !keys::SCOPES.contains(&scope.as_str())) {
        return Err(CredentialError::Scope);
    }
    let mut tx = begin(conn).await?;
    let issued = issue_disabled(&mut tx, vault, partner, environment, scopes, maker).await;
    end(tx, issued).await
}

async fn issue_disabled(
    conn: &mut PgConnection,
    vault: &Vault,
    partner: &str,
    environment: Environment,
    scopes: &[String],
    maker: Maker<'_>,
) -> Result<(Issued, RequestedChange), CredentialError> {
    let found = registry::find_partner(conn, partner).await?;
    let partner_id = found.ok_or_else(|| CredentialError::Unknown(format!("partner {partner}")))?.id;
    let issued = keys::issue(conn, vault, &partner_id, environment, scopes).await?;
    registry::disable_key(conn, &issued.key_id).await?;
    let requested = request_enabling(conn, &issued.key_id, maker).await?;
    Ok((issued, requested))
}

/// Requests that a disabled key may be used.
pub async fn request_enabling(
    conn: &mut PgConnection,
    key_id: &str,
    maker: Maker<'_>,
) -> Result<RequestedChange, CredentialError> {
    let key = registry::find_listed_key(conn, key_id).await?;
    let key = key.ok_or_else(|| CredentialError::Unknown(format!("key {key_id}")))?;
    if key.revoked_at.is_some() {
        return Err(CredentialError::Revoked);
    }
    // A request of before the disabling would undo it.
    if key.disabled_at.is_none() {
        return Err(CredentialError::NotDisabled(format!("key {key_id}")));
    }
    let change = Change::EnableKey {
        partner: key.partner,
        key_id: key.key_id,
        begins_with: key.key_prefix,
        scopes: key.scopes,
    };
    request(conn, key_id, "enable_key", &change, maker).await
}

/// A password of a FIX session: 32 hex digits.
pub fn draw_password() -> Result<String, CredentialError> {
    Ok(hex::encode(Vault::random().map_err(IssueError::from)?).chars().take(32).collect())
}

/// Requests that a FIX session's password is replaced, by a drawn one when none is given. Returns the password.
pub async fn request_password(
    conn: &mut PgConnection,
    vault: &Vault,
    session_id: &str,
    password: Option<&str>,
    maker: Maker<'_>,
) -> Result<(String, RequestedChange), CredentialError> {
    if fix::find_session(conn, session_id).await?.is_none() {
        return Err(CredentialError::Unknown(format!("session {session_id}")));
    }
    let password = match password {
        Some(password) => password.to_owned(),
        None => draw_password()?,
    };
    let change = Change::SetPassword {
        session_id: session_id.to_owned(),
        password_hash: hex::encode(vault.fix_password_hash(session_id, &password)),
        master_key: vault.current_id().to_owned(),
    };
    let requested = request(conn, session_id, "set_password", &change, maker).await?;
    Ok((password, requested))
}

async fn request(
    conn: &mut PgConnection,
    subject: &str,
    action: &str,
    change: &Change,
    maker: Maker<'_>,
) -> Result<RequestedChange, CredentialError> {
    let wanted = SettingChange { kind: CREDENTIAL, subject, action };
    Ok(requests::request_change(conn, wanted, change, maker).await?)
}

/// Changes a credential when another operator approves it.
pub(crate) async fn carry_out_requested(
    conn: &mut PgConnection,
    request: &Approval,
) -> Result<(), CredentialError> {
    match requests::unmoved(conn, request).await? {
        Change::EnableKey { key_id, .. } => {
            if !registry::enable_key(conn, &key_id).await? {
                let key = registry::find_listed_key(conn, &key_id).await?;
                let key = key.ok_or(CredentialError::Unknown(format!("key {key_id}")))?;
                if key.revoked_at.is_some() {
                    return Err(CredentialError::Revoked);
                }
            }
            Ok(())
        }
        Change::SetPassword { session_id, password_hash, master_key } => {
            Ok(fix::rehash_password(conn, &session_id, &hash_of(&password_hash)?, &master_key).await?)
        }
        Change::EnableSession { session_id, .. } => {
            let (operator, reason) = (&request.maker, &request.reason);
            let command = fix_sessions::command(&session_id, SessionAction::Enable, operator, reason)?;
            Ok(fix_sessions::enable(conn, &command).await?)
        }
        create @ Change::CreateSession { .. } => sessions::create(conn, create).await,
        Change::SetSettings { session_id, settings, max_slippage_bps, before } => {
            sessions::set(conn, &session_id, &settings, max_slippage_bps, &before).await
        }
    }
}

fn hash_of(hex_digits: &str) -> Result<[u8; 32], CredentialError> {
    let hash: Option<[u8; 32]> = hex::decode(hex_digits).ok().and_then(|bytes| bytes.try_into().ok());
    hash.ok_or_else(|| StoreError::corrupt("approval", "a password's hash").into())
}

//! New FIX sessions, and other settings of existing ones, by two operators: the request holds the whole session or all
//! of its settings, and the approval writes them.

use std::net::IpAddr;
use std::str::FromStr;

use dvp_domain::environment::Environment;
use dvp_store::fix::settings::{self, FixSessionSettings};
use dvp_store::fix::{self, NewFixSession, admin};
use dvp_store::{PgConnection, StoreError, partners::registry};
use ipnet::IpNet;

use super::{Change, CredentialError, draw_password, hash_of, request};
use crate::operators::requests::{ChangeError, Maker, RequestedChange};
use crate::secrets::Vault;

/// What a session's BeginString may be.
pub const BEGIN_STRINGS: [&str; 3] = ["FIX.4.2", "FIX.4.4", "FIXT.1.1"];
/// DefaultApplVerID(1137) of a FIXT session: FIX 5.0 SP2.
const FIX50SP2: &str = "9";

/// A session that an operator requests.
#[derive(Debug, Clone)]
pub struct NewSession<'a> {
    /// The partner's name.
    pub partner: &'a str,
    pub environment: Environment,
    pub begin_string: &'a str,
    pub client_comp_id: &'a str,
    pub service_comp_id: &'a str,
    /// The partner's name when not given.
    pub username: Option<&'a str>,
    /// Drawn when not given.
    pub password: Option<&'a str>,
    pub settings: FixSessionSettings,
    pub max_slippage_bps: Option<i32>,
}

/// A CompID is part of the session's id, whose other characters it may not hold.
pub fn is_comp_id(text: &str) -> bool {
    let known = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    (1..=64).contains(&text.len()) && text.chars().all(known) && !text.contains("->")
}

/// Networks with commas between them, in the database's form. Returns the first part that is none as the error.
pub fn networks(text: &str) -> Result<Vec<String>, String> {
    let network = |part: &str| {
        let network = IpNet::from_str(part).or_else(|_| IpAddr::from_str(part).map(IpNet::from));
        network.map(|network| network.trunc().to_string()).map_err(|_| part.to_owned())
    };
    text.split(',').map(|part| network(part.trim())).collect()
}

/// Requests a session, which exists from the approval on. Returns its id and its password.
pub async fn request_session(
    conn: &mut PgConnection,
    vault: &Vault,
    new: NewSession<'_>,
    maker: Maker<'_>,
) -> Result<(String, String, RequestedChange), CredentialError> {
    let known = BEGIN_STRINGS.contains(&new.begin_string);
    if !known || ![new.client_comp_id, new.service_comp_id].into_iter().all(is_comp_id) {
        return Err(CredentialError::SessionId);
    }
    let partner = registry::find_partner(conn, new.partner).await?;
    let partner = partner.ok_or_else(|| CredentialError::Unknown(format!("partner {}", new.partner)))?;
    let session_id = fix::session_id(new.begin_string, new.service_comp_id, new.client_comp_id);
    if fix::find_session(conn, &session_id).await?.is_some() {
        return Err(CredentialError::Exists(session_id));
    }
    let password = match new.password {
        Some(password) => password.to_owned(),
        None => draw_password()?,
    };
    let username = new.username.filter(|name| !name.is_empty()).unwrap_or(&partner.name).to_owned();
    let change = Change::CreateSession {
        session_id: session_id.clone(),
        partner_id: partner.id,
        partner: partner.name,
        livemode: new.environment.is_live(),
        begin_string: new.begin_string.to_owned(),
        client_comp_id: new.client_comp_id.to_owned(),
        service_comp_id: new.service_comp_id.to_owned(),
        default_appl_ver_id: (new.begin_string == "FIXT.1.1").then(|| FIX50SP2.to_owned()),
        username,
        password_hash: hex::encode(vault.fix_password_hash(&session_id, &password)),
        master_key: vault.current_id().to_owned(),
        settings: Box::new(new.settings),
        max_slippage_bps: new.max_slippage_bps,
    };
    let requested = request(conn, &session_id, "create_session", &change, maker).await?;
    Ok((session_id, password, requested))
}

/// Requests that all settings of a session are these.
pub async fn request_settings(
    conn: &mut PgConnection,
    session_id: &str,
    settings: FixSessionSettings,
    max_slippage_bps: Option<i32>,
    maker: Maker<'_>,
) -> Result<RequestedChange, CredentialError> {
    let before = settings::find_settings(conn, session_id).await?;
    let before = before.ok_or_else(|| CredentialError::Unknown(format!("session {session_id}")))?;
    let change = Change::SetSettings {
        session_id: session_id.to_owned(),
        settings: Box::new(settings),
        max_slippage_bps,
        before: Box::new(before),
    };
    request(conn, session_id, "set_settings", &change, maker).await
}

/// Requests that a disabled session may log on again. An enabled one has nothing to request: a request of before its
/// disabling would undo it.
pub async fn request_enabling(
    conn: &mut PgConnection,
    session_id: &str,
    maker: Maker<'_>,
) -> Result<RequestedChange, CredentialError> {
    let session = admin::find(conn, session_id).await?;
    let session = session.ok_or_else(|| CredentialError::Unknown(format!("session {session_id}")))?;
    if session.enabled {
        return Err(CredentialError::NotDisabled(format!("session {session_id}")));
    }
    let change = Change::EnableSession { session_id: session.session_id, partner: session.partner };
    request(conn, session_id, "enable_session", &change, maker).await
}

/// Writes a session that was approved.
pub(super) async fn create(conn: &mut PgConnection, change: Change) -> Result<(), CredentialError> {
    let Change::CreateSession {
        session_id,
        partner_id,
        partner: _,
        livemode,
        begin_string,
        client_comp_id,
        service_comp_id,
        default_appl_ver_id,
        username,
        password_hash,
        master_key,
        settings,
        max_slippage_bps,
    } = change
    else {
        return Err(StoreError::corrupt("approval", "a session").into());
    };
    if fix::find_session(conn, &session_id).await?.is_some() {
        return Err(CredentialError::Exists(session_id));
    }
    let new = NewFixSession {
        partner_id,
        livemode,
        begin_string,
        client_comp_id,
        service_comp_id,
        default_appl_ver_id,
        username,
        password_hash: hash_of(&password_hash)?,
        password_key: master_key,
    };
    fix::upsert_session(conn, &new).await?;
    write(conn, &session_id, &settings, max_slippage_bps).await
}

/// Replaces the settings of a session, unless they changed since the request.
pub(super) async fn set(
    conn: &mut PgConnection,
    session_id: &str,
    settings: &FixSessionSettings,
    max_slippage_bps: Option<i32>,
    before: &FixSessionSettings,
) -> Result<(), CredentialError> {
    if settings::find_settings(conn, session_id).await?.as_ref() != Some(before) {
        return Err(ChangeError::Moved.into());
    }
    write(conn, session_id, settings, max_slippage_bps).await
}

async fn write(
    conn: &mut PgConnection,
    session_id: &str,
    settings: &FixSessionSettings,
    max_slippage_bps: Option<i32>,
) -> Result<(), CredentialError> {
    settings::update_settings(conn, session_id, settings).await?;
    if let Some(bps) = max_slippage_bps {
        admin::update_max_slippage(conn, session_id, bps).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_are_in_the_databases_form() {
        let listed = |list: &[&str]| Ok(list.iter().map(|&one| one.to_owned()).collect::<Vec<_>>());
        assert_eq!(networks("10.1.2.3/8, 192.0.2.7"), listed(&["10.0.0.0/8", "192.0.2.7/32"]));
        assert_eq!(networks("2001:db8::1/32"), listed(&["2001:db8::/32"]));
        assert_eq!(networks("10.0.0.0/33"), Err("10.0.0.0/33".to_owned()));
        assert!(networks("").is_err() && networks("10.0.0.0/8,").is_err());
    }

    #[test]
    fn comp_ids_have_no_character_of_a_sessions_id() {
        assert!(is_comp_id("ACME-1.a_b"));
        for wrong in ["", "A B", "A->B", "A:B", &"A".repeat(65)] {
            assert!(!is_comp_id(wrong), "{wrong}");
        }
    }
}

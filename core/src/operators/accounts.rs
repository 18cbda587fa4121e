//! Operators of the console and their sign-in links, as the command line and the console manage them.

use std::time::Duration;

use dvp_domain::operator::OperatorRole;
use dvp_store::operators::accounts::sessions::{self, NewLink};
use dvp_store::operators::accounts::{self as store, OperatorRow, identities};
use dvp_store::{PgConnection, StoreError, database::ids};
use sha2::{Digest as _, Sha256};

/// How long a sign-in link is good.
pub const LINK_GOOD_FOR: Duration = Duration::from_secs(24 * 3600);

/// Why an operator was not added or changed.
#[derive(Debug, thiserror::Error)]
pub enum OperatorError {
    #[error("there is no operator {0}")]
    Unknown(String),
    #[error("there is an operator {0} already")]
    NameTaken(String),
    #[error("a name has 1 to 64 characters, none of them a control character, and no spaces at its ends")]
    BadName,
    #[error("an address has the form name@host")]
    BadEmail,
    #[error("another operator has the address {0}")]
    EmailTaken(String),
    #[error("an operator has one role at least")]
    NoRoles,
    #[error("the system has no randomness: {0}")]
    Randomness(#[from] getrandom::Error),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A new token of 256 random bits.
pub fn new_token() -> Result<String, getrandom::Error> {
    let mut bytes = [0_u8; 32];
    getrandom::fill(&mut bytes)?;
    Ok(hex::encode(bytes))
}

/// What is stored of a token.
pub fn token_hash(token: &str) -> [u8; 32] {
    Sha256::digest(token.as_bytes()).into()
}

/// Adds an operator and returns its id.
pub async fn add(
    conn: &mut PgConnection,
    name: &str,
    roles: &[OperatorRole],
    created_by: &str,
) -> Result<String, OperatorError> {
    check(name, roles)?;
    let id = format!("opr_{}", ids::draw_here(conn).await?.simple());
    match store::insert(conn, &id, name, roles, created_by).await {
        Err(error) if error.constraint() == Some("operator_name_key") => {
            Err(OperatorError::NameTaken(name.to_owned()))
        }
        inserted => Ok(inserted.map(|()| id)?),
    }
}

/// Checks the name and roles of a new operator.
pub(crate) fn check(name: &str, roles: &[OperatorRole]) -> Result<(), OperatorError> {
    let is_plain = name.trim() == name && !name.contains(char::is_control);
    if !is_plain || !(1..=64).contains(&name.chars().count()) {
        return Err(OperatorError::BadName);
    }
    if roles.is_empty() { Err(OperatorError::NoRoles) } else { Ok(()) }
}

/// The operator of a name; names differ in more than case.
pub async fn named(conn: &mut PgConnection, name: &str) -> Result<OperatorRow, OperatorError> {
    let found = store::find_by_name(conn, name).await?;
    found.ok_or_else(|| OperatorError::Unknown(name.to_owned()))
}

/// Sets the address by which an operator signs in at the identity provider; without one it does so no more.
pub async fn identify(
    conn: &mut PgConnection,
    name: &str,
    email: Option<&str>,
) -> Result<OperatorRow, OperatorError> {
    let operator = named(conn, name).await?;
    let email = email.map(str::trim);
    if email.is_some_and(|email| !is_email(email)) {
        return Err(OperatorError::BadEmail);
    }
    match identities::upsert(conn, &operator.id, email).await {
        Err(error) if error.constraint() == Some("operator_identity_email_key") => {
            Err(OperatorError::EmailTaken(email.unwrap_or_default().to_owned()))
        }
        done => Ok(done.map(|()| operator)?),
    }
}

fn is_email(text: &str) -> bool {
    let is_plain = !text.contains(|letter: char| letter.is_control() || letter.is_whitespace());
    is_plain && (3..=254).contains(&text.len()) && text.contains('@')
}

/// Makes a sign-in link for an operator and returns its token, which is stored nowhere.
pub async fn invite(conn: &mut PgConnection, name: &str) -> Result<String, OperatorError> {
    let operator = named(conn, name).await?;
    let token = new_token()?;
    let hash = token_hash(&token);
    let link = NewLink {
        operator_id: &operator.id,
        token_hash: &hash,
        reusable: false,
        good_for: LINK_GOOD_FOR,
        code_hash: None,
        approval_id: None,
    };
    sessions::insert_link(conn, &link).await?;
    Ok(token)
}

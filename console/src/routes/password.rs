//! An operator's own password with one-time codes: chosen, confirmed by the first code, removed.

use axum::http::header;
use axum::response::{IntoResponse as _, Redirect};
use dvp_core::operators::accounts::{new_token, token_hash};
use dvp_store::operators::accounts::{ConsoleAction, passkeys, passwords, sessions};
use dvp_store::{Acquire as _, StoreError};
use serde::Deserialize;
use tracing::warn;

use super::account::{NOT_NOW, Pending, page};
use crate::cookies;
use crate::error::{PageError, sentence};
use crate::operator::Operator;
use crate::passwords::{NewPassword, PasswordError};
use crate::qr::QrImage;
use crate::request::{Reply, Sent, Visit, lead_to};
use crate::state::Console;

const CHOOSE: &str = "POST /account/password";
const CONFIRM: &str = "POST /account/password/confirm";

#[derive(Deserialize)]
pub(crate) struct ChooseForm {
    #[serde(default)]
    password: String,
}

fn pending(console: &Console, operator: &Operator, new: &NewPassword) -> Result<Pending, PasswordError> {
    let totp = new.totp();
    let issuer = format!("dvp {}", console.settings.environment.as_str());
    let uri = totp.uri(&operator.name, &issuer);
    Ok(Pending {
        sealed: new.seal(&console.vault, &operator.id)?,
        secret: totp.base32(),
        qr: QrImage::of(&uri),
        uri,
    })
}

/// Takes a new password and shows the secret of its codes. Nothing is stored before the first code.
pub(crate) async fn choose(Visit { console, operator }: Visit, Sent(form): Sent<ChooseForm>) -> Reply {
    check(&console, &operator, CHOOSE).await?;
    let chosen = console.passwords.hash(form.password).await.and_then(NewPassword::new);
    match chosen.and_then(|new| pending(&console, &operator, &new)) {
        Ok(pending) => page(&console, &operator, Some(pending), String::new()).await,
        Err(error) => refuse(&console, &operator, CHOOSE, error, None).await,
    }
}

/// A way to sign in is added by an operator who was authenticated just now.
async fn check(console: &Console, operator: &Operator, route: &str) -> Result<(), PageError> {
    if operator.may_register() {
        return Ok(());
    }
    let mut conn = console.acting().await?;
    operator.record(&mut conn, ConsoleAction::Refused, route, "the session is not recent enough").await?;
    Err(PageError::Conflict(NOT_NOW.to_owned()))
}

async fn refuse(
    console: &Console,
    operator: &Operator,
    route: &str,
    error: PasswordError,
    again: Option<Pending>,
) -> Reply {
    if let PasswordError::Store(error) = error {
        return Err(error.into());
    }
    warn!(operator = operator.name, route, %error, "a password was not set");
    let mut conn = console.acting().await?;
    operator.record(&mut conn, ConsoleAction::Failed, route, &error.to_string()).await?;
    drop(conn);
    page(console, operator, again, sentence(&error.to_string())).await
}

#[derive(Deserialize)]
pub(crate) struct ConfirmForm {
    #[serde(default)]
    sealed: String,
    #[serde(default)]
    code: String,
}

/// Sets the password that was chosen, and ends the operator's other sessions.
pub(crate) async fn confirm(Visit { console, operator }: Visit, Sent(form): Sent<ConfirmForm>) -> Reply {
    check(&console, &operator, CONFIRM).await?;
    let new = match NewPassword::open(&console.vault, &operator.id, &form.sealed) {
        Ok(new) => new,
        Err(error) => return refuse(&console, &operator, CONFIRM, error, None).await,
    };
    match set(&console, &operator, &new, &form.code).await {
        Ok(token) => {
            let cookie = cookies::session_cookie(&console, &token);
            Ok(([(header::SET_COOKIE, cookie)], Redirect::to("/account")).into_response())
        }
        Err(error @ PasswordError::WrongCode) => {
            let again = pending(&console, &operator, &new).ok();
            refuse(&console, &operator, CONFIRM, error, again).await
        }
        Err(error) => refuse(&console, &operator, CONFIRM, error, None).await,
    }
}

/// Sets a password, with which the operator is authenticated. Returns the session's new token.
async fn set(
    console: &Console,
    operator: &Operator,
    new: &NewPassword,
    code: &str,
) -> Result<String, PasswordError> {
    let token = new_token().map_err(|error| PasswordError::Failed(error.to_string()))?;
    let hash = token_hash(&token);
    let mut conn = console.acting().await?;
    let mut tx = conn.begin().await.map_err(StoreError::from)?;
    if !passkeys::lock_operator(&mut tx, &operator.id).await? {
        return Err(PasswordError::SessionEnded);
    }
    new.store(&mut tx, &console.vault, &operator.id, code).await?;
    if !sessions::renew_session(&mut tx, &operator.session, &hash).await? {
        return Err(PasswordError::SessionEnded);
    }
    sessions::end_other_sessions(&mut tx, &operator.id, &hash).await?;
    operator.record(&mut tx, ConsoleAction::Registered, CONFIRM, "password with codes").await?;
    tx.commit().await.map_err(StoreError::from)?;
    Ok(token)
}

/// Removes the password, unless it is the last way to sign in, and ends the operator's other sessions.
pub(crate) async fn remove(Visit { console, operator }: Visit) -> Reply {
    const ROUTE: &str = "POST /account/password/remove";
    let mut conn = console.acting().await?;
    let mut tx = conn.begin().await.map_err(StoreError::from)?;
    if !passkeys::lock_operator(&mut tx, &operator.id).await? {
        return Err(PageError::Unauthenticated);
    }
    if !passwords::delete(&mut tx, &operator.id).await? {
        return Err(PageError::NotFound("password of yours".to_owned()));
    }
    if passkeys::list(&mut tx, &operator.id, 1).await?.is_empty() {
        tx.rollback().await.map_err(StoreError::from)?;
        operator.record(&mut conn, ConsoleAction::Refused, ROUTE, "the last way to sign in").await?;
        return Err(PageError::Conflict("It is your last way to sign in: add another one first.".to_owned()));
    }
    sessions::end_other_sessions(&mut tx, &operator.id, &operator.session).await?;
    operator.record(&mut tx, ConsoleAction::Removed, ROUTE, "password with codes").await?;
    tx.commit().await.map_err(StoreError::from)?;
    lead_to("/account")
}

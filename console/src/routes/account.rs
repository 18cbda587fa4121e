//! An operator's own ways to sign in.

use askama::Template;
use axum::extract::Path;
use axum::http::{StatusCode, header};
use axum::response::{Html, IntoResponse as _, Redirect};
use dvp_core::operators::accounts::{new_token, token_hash};
use dvp_store::operators::accounts::challenges::Purpose;
use dvp_store::operators::accounts::{ConsoleAction, passkeys, passwords, sessions};
use dvp_store::{Acquire as _, StoreError};
use serde::Deserialize;
use tracing::warn;

use crate::assets;
use crate::cookies;
use crate::error::{PageError, sentence};
use crate::operator::Operator;
use crate::passkeys::{MOST, NewAnswer, PasskeyError, RelyingParty};
use crate::qr::QrImage;
use crate::request::{Reply, Sent, Visit, lead_to};
use crate::state::Console;
use crate::view::{self, Moment, Page};

#[derive(Template)]
#[template(path = "account.html")]
struct AccountPage {
    page: Page,
    script: &'static str,
    roles: String,
    /// The page with the operator's sign-in sessions.
    sessions: String,
    passkeys: Vec<Passkey>,
    has_password: bool,
    has_passkeys: bool,
    pending: Option<Pending>,
    is_registered: bool,
    may_register: bool,
    problem: String,
}

/// A password that waits for its first code.
pub(crate) struct Pending {
    pub sealed: String,
    pub secret: String,
    pub uri: String,
    /// The same as a QR code.
    pub qr: Option<QrImage>,
}

struct Passkey {
    id: String,
    name: String,
    created: Moment,
    used: Option<Moment>,
    is_last: bool,
}

pub(crate) async fn show(Visit { console, operator }: Visit) -> Reply {
    page(&console, &operator, None, String::new()).await
}

pub(crate) async fn page(
    console: &Console,
    operator: &Operator,
    pending: Option<Pending>,
    problem: String,
) -> Reply {
    let mut conn = console.reading().await?;
    let rows = passkeys::list(&mut conn, &operator.id, i64::try_from(MOST).unwrap_or(i64::MAX)).await?;
    drop(conn);
    let is_last = rows.len() == 1 && !operator.has_password();
    let passkeys = rows.into_iter().map(|row| Passkey {
        id: row.id,
        name: row.name,
        created: row.created_at.into(),
        used: row.last_used_at.map(Moment::from),
        is_last,
    });
    let page = AccountPage {
        page: operator.page("", "Your account"),
        script: assets::passkeys(),
        roles: crate::view::role_words(&operator.roles),
        sessions: view::operator(&operator.name),
        passkeys: passkeys.collect(),
        has_password: operator.has_password(),
        has_passkeys: RelyingParty::of(&console.settings).is_ok(),
        pending,
        is_registered: operator.is_registered(),
        may_register: operator.may_register(),
        problem,
    };
    Ok(Html(page.render()?).into_response())
}

/// A challenge as JSON, or the reason why there is none as text.
pub(crate) fn challenge(made: Result<String, PasskeyError>) -> Reply {
    match made {
        Ok(json) => Ok(([(header::CONTENT_TYPE, "application/json")], json).into_response()),
        Err(PasskeyError::Store(error)) => Err(error.into()),
        Err(error) => Ok((StatusCode::CONFLICT, sentence(&error.to_string())).into_response()),
    }
}

/// A challenge for a passkey of the operator, who is authenticated again with it.
pub(crate) async fn step_up_challenge(Visit { console, operator }: Visit) -> Reply {
    let mut conn = console.acting().await?;
    challenge(match RelyingParty::of(&console.settings) {
        Ok(party) => party.challenge(&mut conn, Purpose::StepUp(&operator.id)).await,
        Err(error) => Err(error),
    })
}

/// A challenge for a new passkey.
pub(crate) async fn registration_challenge(Visit { console, operator }: Visit) -> Reply {
    if !operator.may_register() {
        return Ok((StatusCode::CONFLICT, NOT_NOW).into_response());
    }
    let mut conn = console.acting().await?;
    let handle = passkeys::find_handle(&mut conn, &operator.id).await?.ok_or(PageError::Unauthenticated)?;
    challenge(match RelyingParty::of(&console.settings) {
        Ok(party) => party.registration(&mut conn, &operator, handle).await,
        Err(error) => Err(error),
    })
}

pub(crate) const NOT_NOW: &str =
    "Sign in again, by a passkey or a new link, before you add a way to sign in.";

#[derive(Debug, Deserialize)]
pub(crate) struct NewPasskeyForm {
    #[serde(default)]
    name: String,
    #[serde(default)]
    answer: String,
}

/// Adds a passkey.
pub(crate) async fn register(Visit { console, operator }: Visit, Sent(form): Sent<NewPasskeyForm>) -> Reply {
    const ROUTE: &str = "POST /account/passkeys";
    if !operator.may_register() {
        let mut conn = console.acting().await?;
        operator.record(&mut conn, ConsoleAction::Refused, ROUTE, "the session is not recent enough").await?;
        return Err(PageError::Conflict(NOT_NOW.to_owned()));
    }
    match add(&console, &operator, ROUTE, &form).await {
        Ok(token) => {
            let cookie = cookies::session_cookie(&console, &token);
            Ok(([(header::SET_COOKIE, cookie)], Redirect::to("/account")).into_response())
        }
        Err(PasskeyError::Store(error)) => Err(error.into()),
        Err(error) => {
            warn!(operator = operator.name, %error, "a passkey was not registered");
            let mut conn = console.acting().await?;
            operator.record(&mut conn, ConsoleAction::Failed, ROUTE, &error.to_string()).await?;
            drop(conn);
            page(&console, &operator, None, sentence(&error.to_string())).await
        }
    }
}

/// Adds a passkey, with which the operator is authenticated. Returns the session's new token.
async fn add(
    console: &Console,
    operator: &Operator,
    route: &str,
    form: &NewPasskeyForm,
) -> Result<String, PasskeyError> {
    let party = RelyingParty::of(&console.settings)?;
    let name = form.name.trim();
    if name.is_empty() || name.chars().count() > 64 || name.contains(char::is_control) {
        return Err(PasskeyError::BadName);
    }
    let token = new_token().map_err(|error| PasskeyError::Refused(error.to_string()))?;
    let mut conn = console.acting().await?;
    let answer = NewAnswer::take(&mut conn, operator, &form.answer).await?;
    let mut tx = conn.begin().await.map_err(StoreError::from)?;
    let ended = || PasskeyError::Refused("the session has ended".to_owned());
    if !passkeys::lock_operator(&mut tx, &operator.id).await? {
        return Err(ended());
    }
    party.register(&mut tx, operator, name, answer).await?;
    if !sessions::renew_session(&mut tx, &operator.session, &token_hash(&token)).await? {
        return Err(ended());
    }
    operator.record(&mut tx, ConsoleAction::Registered, route, &format!("passkey {name}")).await?;
    tx.commit().await.map_err(StoreError::from)?;
    Ok(token)
}

/// Removes a passkey, unless it is the last way to sign in, and ends the operator's other sessions.
pub(crate) async fn remove(Visit { console, operator }: Visit, Path(id): Path<String>) -> Reply {
    const ROUTE: &str = "POST /account/passkeys/{id}/remove";
    let mut conn = console.acting().await?;
    let mut tx = conn.begin().await.map_err(StoreError::from)?;
    if !passkeys::lock_operator(&mut tx, &operator.id).await? {
        return Err(PageError::Unauthenticated);
    }
    let removed = passkeys::delete(&mut tx, &operator.id, &id).await?;
    let name = removed.ok_or_else(|| PageError::NotFound(format!("passkey {id} of yours")))?;
    let is_last = passkeys::list(&mut tx, &operator.id, 1).await?.is_empty();
    if is_last && !passwords::exists(&mut tx, &operator.id).await? {
        tx.rollback().await.map_err(StoreError::from)?;
        operator
            .record(&mut conn, ConsoleAction::Refused, ROUTE, &format!("passkey {name}: the last one"))
            .await?;
        return Err(PageError::Conflict("It is your last way to sign in: add another one first.".to_owned()));
    }
    sessions::end_other_sessions(&mut tx, &operator.id, &operator.session).await?;
    operator.record(&mut tx, ConsoleAction::Removed, ROUTE, &format!("passkey {name}")).await?;
    tx.commit().await.map_err(StoreError::from)?;
    lead_to("/account")
}

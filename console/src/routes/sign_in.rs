//! Sign-in by a passkey, by a password with a code, or by a link with a token, and sign-out.

use askama::Template;
use axum::extract::Query;
use axum::extract::rejection::QueryRejection;
use axum::http::{HeaderValue, header};
use axum::response::{Html, IntoResponse as _, Redirect};
use dvp_core::operators::accounts::{new_token, token_hash};
use dvp_core::operators::invitations::code_hash;
use dvp_store::operators::accounts::challenges::Purpose;
use dvp_store::operators::accounts::sessions::{self, NewSession, SignInMethod};
use dvp_store::operators::accounts::{self, ConsoleAction, ConsoleRecord, SignedIn, passkeys};
use dvp_store::{Acquire as _, PgConnection, StoreError};
use serde::Deserialize;
use tracing::warn;

use super::account;
use crate::assets;
use crate::cookies;
use crate::error::{PageError, sentence};
use crate::passkeys::{Answer, PasskeyError, RelyingParty};
use crate::passwords::{PasswordError, Typed};
use crate::request::{Reply, Sent, Stranger, Visit};
use crate::state::Console;
use crate::view::{self, Page};

const LINK_ROUTE: &str = "POST /login";
const PASSWORD_ROUTE: &str = "POST /login/password";
const PASSKEY_ROUTE: &str = "POST /login/passkey";

#[derive(Debug, Default, Deserialize)]
pub(crate) struct SignIn {
    #[serde(default)]
    token: String,
    #[serde(default)]
    code: String,
    #[serde(default)]
    next: String,
}

#[derive(Template)]
#[template(path = "sign_in.html")]
struct SignInPage {
    page: Page,
    script: &'static str,
    token: String,
    needs_code: bool,
    next: String,
    environment: &'static str,
    has_passkeys: bool,
    /// The way to the identity provider; empty: there is none.
    provider: String,
    problem: String,
}

/// The sign-in page. A link opened in a browser is used when its button is pressed, so that programs that look at links
/// do not use it up; a sandbox's reusable link signs in at once.
pub(crate) async fn form(stranger: Stranger, query: Result<Query<SignIn>, QueryRejection>) -> Reply {
    let SignIn { token, code: _, next } = query.map(|Query(query)| query).unwrap_or_default();
    let mut needs_code = false;
    if !token.is_empty() {
        let mut conn = stranger.console.looking_up().await?;
        let found = sessions::find_link(&mut conn, &token_hash(&token)).await?;
        drop(conn);
        if found.is_some_and(|link| link.method == SignInMethod::ReusableLink) {
            return with_link(&stranger, (&token, ""), &next).await;
        }
        needs_code = found.is_some_and(|link| link.needs_code);
    }
    page(&stranger.console, (token, needs_code), next, String::new())
}

/// The page, with the token of a link and whether it needs a code.
pub(super) fn page(
    console: &Console,
    (token, needs_code): (String, bool),
    next: String,
    problem: String,
) -> Reply {
    let has_provider = cfg!(feature = "oidc") && console.settings.provider.is_some();
    let provider =
        if has_provider { format!("/login/provider?next={}", view::segment(&next)) } else { String::new() };
    let view = SignInPage {
        page: Page::of(None, "", "Sign in"),
        script: assets::passkeys(),
        token,
        needs_code,
        next,
        environment: console.settings.environment.as_str(),
        has_passkeys: RelyingParty::of(&console.settings).is_ok(),
        provider,
        problem,
    };
    Ok(Html(view.render()?).into_response())
}

/// Signs in with a token.
pub(crate) async fn submit(stranger: Stranger, Sent(SignIn { token, code, next }): Sent<SignIn>) -> Reply {
    with_link(&stranger, (token.trim(), &code), &next).await
}

async fn with_link(stranger: &Stranger, (token, code): (&str, &str), next: &str) -> Reply {
    const PROBLEM: &str = "The sign-in link is unknown, was used, or has expired, or its code is wrong.";
    if !stranger.console.failures.has_room(stranger.source) {
        return Err(PageError::TooMany);
    }
    let token_of_session = new_token().map_err(|_| PageError::Internal)?;
    let mut conn = stranger.console.looking_up().await?;
    let mut tx = conn.begin().await.map_err(StoreError::from)?;
    let Some((found, method)) = sessions::use_link(&mut tx, &token_hash(token), &code_hash(code)).await?
    else {
        tx.rollback().await.map_err(StoreError::from)?;
        let reason = "its link is unknown, was used, or has expired, or its code is wrong";
        fail(stranger, &mut conn, "", LINK_ROUTE, reason).await?;
        let left = sessions::find_link(&mut conn, &token_hash(token)).await?;
        let again = left.filter(|link| link.needs_code).map(|_| (token.to_owned(), true)).unwrap_or_default();
        return page(&stranger.console, again, next.to_owned(), PROBLEM.to_owned());
    };
    let begun = Begun { found: &found, method, route: LINK_ROUTE, subject: "link" };
    let cookie = begin(stranger, &mut tx, &token_of_session, begun).await?;
    tx.commit().await.map_err(StoreError::from)?;
    Ok(([(header::SET_COOKIE, cookie)], Redirect::to(local(next))).into_response())
}

/// A challenge for any passkey of the console.
pub(crate) async fn challenge(stranger: Stranger) -> Reply {
    if !stranger.console.challenges.count(stranger.source) {
        return Err(PageError::TooMany);
    }
    let mut conn = stranger.console.looking_up().await?;
    account::challenge(match RelyingParty::of(&stranger.console.settings) {
        Ok(party) => party.challenge(&mut conn, Purpose::SignIn).await,
        Err(error) => Err(error),
    })
}

#[derive(Debug, Deserialize)]
pub(crate) struct PasskeySignIn {
    #[serde(default)]
    answer: String,
    #[serde(default)]
    next: String,
}

/// Signs in with a passkey.
pub(crate) async fn with_passkey(stranger: Stranger, Sent(form): Sent<PasskeySignIn>) -> Reply {
    // Whatever failed before: a challenge is used once, so that an attempt costs a look-up, and a passkey is not guessed.
    match passkey_session(&stranger, &form.answer).await {
        Ok(cookie) => Ok(([(header::SET_COOKIE, cookie)], Redirect::to(local(&form.next))).into_response()),
        Err(PasskeyError::Store(error)) => Err(error.into()),
        Err(error) => {
            let operator = match &error {
                PasskeyError::Counter { operator, .. } => operator.as_str(),
                _ => "",
            };
            failed(&stranger, operator, PASSKEY_ROUTE, form.next, &error.to_string()).await
        }
    }
}

async fn passkey_session(stranger: &Stranger, answer: &str) -> Result<HeaderValue, PasskeyError> {
    let party = RelyingParty::of(&stranger.console.settings)?;
    let token = new_token().map_err(|error| PasskeyError::Refused(error.to_string()))?;
    let mut conn = stranger.console.looking_up().await?;
    let answer = Answer::take(&mut conn, Purpose::SignIn, answer).await?;
    let mut tx = conn.begin().await.map_err(StoreError::from)?;
    let passkey = party.verify(&mut tx, answer).await?;
    let subject = format!("passkey {}", passkey.name);
    let begun = Begun {
        found: &passkey.operator,
        method: SignInMethod::Passkey,
        route: PASSKEY_ROUTE,
        subject: &subject,
    };
    let cookie = begin(stranger, &mut tx, &token, begun).await?;
    tx.commit().await.map_err(StoreError::from)?;
    Ok(cookie)
}

#[derive(Debug, Deserialize)]
pub(crate) struct PasswordSignIn {
    #[serde(default)]
    name: String,
    #[serde(default)]
    password: String,
    #[serde(default)]
    code: String,
    #[serde(default)]
    next: String,
}

/// Signs in with a password and a one-time code.
pub(crate) async fn with_password(
    stranger: Stranger,
    Sent(PasswordSignIn { name, password, code, next }): Sent<PasswordSignIn>,
) -> Reply {
    if !stranger.console.failures.has_room(stranger.source) {
        return Err(PageError::TooMany);
    }
    let typed = Typed { name, password, code };
    match password_session(&stranger, typed).await {
        Ok(cookie) => Ok(([(header::SET_COOKIE, cookie)], Redirect::to(local(&next))).into_response()),
        Err(PasswordError::Store(error)) => Err(error.into()),
        Err(error) => failed(&stranger, "", PASSWORD_ROUTE, next, &error.to_string()).await,
    }
}

async fn password_session(stranger: &Stranger, typed: Typed) -> Result<HeaderValue, PasswordError> {
    let token = new_token().map_err(|error| PasswordError::Failed(error.to_string()))?;
    let Stranger { console, source, .. } = stranger;
    let found = console.passwords.sign_in(&console.pools, &console.vault, *source, typed).await?;
    let mut conn = console.looking_up().await?;
    let mut tx = conn.begin().await.map_err(StoreError::from)?;
    if !passkeys::lock_operator(&mut tx, &found.operator_id).await? {
        return Err(PasswordError::Wrong);
    }
    let method = SignInMethod::Password;
    let begun = Begun { found: &found, method, route: PASSWORD_ROUTE, subject: "password and code" };
    let cookie = begin(stranger, &mut tx, &token, begun).await?;
    tx.commit().await.map_err(StoreError::from)?;
    Ok(cookie)
}

/// A sign-in that succeeded.
pub(super) struct Begun<'a> {
    pub found: &'a SignedIn,
    pub method: SignInMethod,
    pub route: &'a str,
    pub subject: &'a str,
}

/// Begins a session in place of the browser's earlier one.
pub(super) async fn begin(
    stranger: &Stranger,
    conn: &mut PgConnection,
    token: &str,
    begun: Begun<'_>,
) -> Result<HeaderValue, StoreError> {
    let Begun { found, method, route, subject } = begun;
    let Stranger { console, source, headers } = stranger;
    console.failures.know(*source);
    console.challenges.know(*source);
    let source = source.to_string();
    if let Some(earlier) = cookies::session_of(console, headers) {
        sessions::end_session(conn, &earlier).await?;
    }
    let hash = token_hash(token);
    let session = NewSession { operator_id: &found.operator_id, token_hash: &hash, method, source: &source };
    sessions::insert_session(conn, &session).await?;
    let action = ConsoleAction::SignedIn;
    let record = ConsoleRecord { operator: &found.name, action, route, subject, source: &source };
    accounts::record(conn, &record).await?;
    Ok(cookies::session_cookie(console, token))
}

/// Records a sign-in that failed, or refuses to after too many: neither the audit log nor the service's log grows with
/// every request of a stranger. `operator` is empty when it is not known.
async fn fail(
    stranger: &Stranger,
    conn: &mut PgConnection,
    operator: &str,
    route: &str,
    reason: &str,
) -> Result<(), PageError> {
    if !stranger.console.failures.count(stranger.source) {
        return Err(PageError::TooMany);
    }
    let source = stranger.source.to_string();
    warn!(source, operator, route, reason, "a sign-in to the console failed");
    let action = ConsoleAction::Failed;
    accounts::record(conn, &ConsoleRecord { operator, action, route, subject: reason, source: &source })
        .await?;
    Ok(())
}

/// The page again after a sign-in that failed, which is recorded.
pub(super) async fn failed(
    stranger: &Stranger,
    operator: &str,
    route: &str,
    next: String,
    reason: &str,
) -> Reply {
    let mut conn = stranger.console.looking_up().await?;
    fail(stranger, &mut conn, operator, route, reason).await?;
    page(&stranger.console, <_>::default(), next, sentence(reason))
}

/// A path of the console; anything else is its home.
pub(crate) fn local(next: &str) -> &str {
    let is_path = next.starts_with('/') && !next.starts_with("//") && !next.contains('\\');
    let is_plain = next.bytes().all(|byte| (0x21..0x7f).contains(&byte));
    if is_path && is_plain { next } else { "/" }
}

/// Ends the session.
pub(crate) async fn sign_out(Visit { console, operator }: Visit) -> Reply {
    let mut conn = console.looking_up().await?;
    if sessions::end_session(&mut conn, &operator.session).await? {
        operator.record(&mut conn, ConsoleAction::SignedOut, "POST /logout", "").await?;
    }
    Ok(([(header::SET_COOKIE, cookies::no_cookie(&console))], Redirect::to("/login")).into_response())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sign_in_leads_to_a_page_of_the_console_only() {
        assert_eq!(local("/orders?view=open&partner=acme"), "/orders?view=open&partner=acme");
        for elsewhere in
            ["", "orders", "//evil.example", "https://evil.example", "/\\evil.example", "/a\r\nb", "/a b"]
        {
            assert_eq!(local(elsewhere), "/", "{elsewhere}");
        }
    }
}

//! Sign-in at an identity provider: the way there, and back.

use askama::Template;
use axum::extract::Query;
use axum::extract::rejection::QueryRejection;
use axum::http::{HeaderValue, header};
use axum::response::{AppendHeaders, Html, IntoResponse as _, Redirect};
use dvp_core::operators::accounts::{new_token, token_hash};
use dvp_store::operators::accounts::challenges::{self, Purpose};
use dvp_store::operators::accounts::identities;
use dvp_store::operators::accounts::sessions::SignInMethod;
use dvp_store::{Acquire as _, StoreError};
use serde::Deserialize;
use std::time::Duration;

use super::sign_in::{self, Begun};
use crate::cookies;
use crate::error::{PageError, sentence};
use crate::oidc::{OidcError, Pending, Provider};
use crate::request::{Reply, Stranger};
use crate::state::Console;
use crate::view::Page;

const ROUTE: &str = "GET /login/provider/callback";
/// How long a sign-in at the provider may take.
const GOOD_FOR: Duration = Duration::from_secs(600);

#[derive(Debug, Default, Deserialize)]
pub(crate) struct Begin {
    #[serde(default)]
    next: String,
}

/// Sends the browser to the provider.
pub(crate) async fn begin(stranger: Stranger, query: Result<Query<Begin>, QueryRejection>) -> Reply {
    if !stranger.console.challenges.count(stranger.source) {
        return Err(PageError::TooMany);
    }
    let Begin { next } = query.map(|Query(query)| query).unwrap_or_default();
    match leave(&stranger.console, next.clone()).await {
        Ok((address, cookie)) => Ok(([(header::SET_COOKIE, cookie)], Redirect::to(&address)).into_response()),
        Err(OidcError::Store(error)) => Err(error.into()),
        Err(error) => {
            tracing::warn!(%error, "a sign-in at the identity provider was not begun");
            sign_in::page(&stranger.console, <_>::default(), next, sentence(&error.to_string()))
        }
    }
}

async fn leave(console: &Console, next: String) -> Result<(String, HeaderValue), OidcError> {
    let provider = Provider::discover(&console.settings).await?;
    let random = || new_token().map_err(|error| OidcError::Invalid(error.to_string()));
    let (browser, state) = (random()?, random()?);
    let (address, pending) = provider.begin(state.clone(), token_hash(&browser), next);
    let kept = serde_json::to_vec(&pending).map_err(|error| OidcError::Invalid(error.to_string()))?;
    let sealed = console.vault.seal(ROUTE, &kept).map_err(|error| OidcError::Invalid(error.to_string()))?;
    let mut conn = console.looking_up().await?;
    challenges::insert(&mut conn, &key(&state), Purpose::Oidc, &sealed, GOOD_FOR).await?;
    Ok((address, cookies::provider_cookie(console, &browser)))
}

/// A state's key among the challenges.
fn key(state: &str) -> [u8; 16] {
    let mut key = [0; 16];
    key.copy_from_slice(&token_hash(state)[..16]);
    key
}

#[derive(Debug, Default, Deserialize)]
pub(crate) struct Callback {
    #[serde(default)]
    code: String,
    #[serde(default)]
    state: String,
    #[serde(default)]
    error: String,
}

#[derive(Template)]
#[template(path = "continue.html")]
struct ContinuePage {
    page: Page,
    next: String,
}

/// Takes the browser back from the provider. The session's cookie is not sent along redirects from another site, so the
/// page leads on by itself.
pub(crate) async fn callback(stranger: Stranger, query: Result<Query<Callback>, QueryRejection>) -> Reply {
    let Callback { code, state, error } = query.map(|Query(query)| query).unwrap_or_default();
    if !stranger.console.failures.has_room(stranger.source) {
        return Err(PageError::TooMany);
    }
    let returned = async {
        let pending = take(&stranger, &state).await?;
        if !error.is_empty() {
            return Err(OidcError::Refused(error.chars().take(100).collect()));
        }
        let account = Provider::discover(&stranger.console.settings).await?.complete(&pending, code).await?;
        let token = new_token().map_err(|error| OidcError::Invalid(error.to_string()))?;
        let mut conn = stranger.console.looking_up().await?;
        let mut tx = conn.begin().await.map_err(StoreError::from)?;
        let email = account.verified_email.as_deref();
        let found = identities::find(&mut tx, &account.issuer, &account.subject, email).await?;
        let found = found.ok_or(OidcError::Unknown)?;
        let begun = Begun {
            found: &found,
            method: SignInMethod::Oidc,
            route: ROUTE,
            subject: &format!("account {}", account.subject),
        };
        let cookie = sign_in::begin(&stranger, &mut tx, &token, begun).await?;
        tx.commit().await.map_err(StoreError::from)?;
        Ok((cookie, pending.next))
    };
    match returned.await {
        Ok((cookie, next)) => {
            let view = ContinuePage {
                page: Page::of(None, "", "Signed in"),
                next: sign_in::local(&next).to_owned(),
            };
            let cookies = [cookie, cookies::provider_cookie(&stranger.console, "")];
            let cookies = AppendHeaders(cookies.map(|cookie| (header::SET_COOKIE, cookie)));
            Ok((cookies, Html(view.render()?)).into_response())
        }
        Err(OidcError::Store(error)) => Err(error.into()),
        Err(error) => sign_in::failed(&stranger, "", ROUTE, String::new(), &error.to_string()).await,
    }
}

/// The sign-in that this browser began, which is taken out.
async fn take(stranger: &Stranger, state: &str) -> Result<Pending, OidcError> {
    let mut conn = stranger.console.looking_up().await?;
    let sealed = challenges::take(&mut conn, &key(state), Purpose::Oidc).await?;
    let sealed = sealed.ok_or(OidcError::NotBegun)?;
    let kept = stranger.console.vault.open(ROUTE, &sealed).map_err(|_| OidcError::NotBegun)?;
    let pending: Pending =
        serde_json::from_slice(&kept).map_err(|error| OidcError::Invalid(error.to_string()))?;
    let is_same_browser = cookies::provider_of(&stranger.console, &stranger.headers) == Some(pending.browser);
    if is_same_browser { Ok(pending) } else { Err(OidcError::NotBegun) }
}

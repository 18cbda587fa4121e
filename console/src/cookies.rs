//! The cookie of a session.

use axum::http::{HeaderMap, HeaderValue, header};
use dvp_core::operators::accounts::token_hash;

use crate::state::Console;

/// The cookie's name. With the prefix a browser accepts it only over TLS, for this host and every path.
fn cookie_name(console: &Console) -> &'static str {
    if console.settings.is_secure() { "__Host-dvp_console" } else { "dvp_console" }
}

fn cookie(console: &Console, value: &str, max_age: u64) -> HeaderValue {
    let secure = if console.settings.is_secure() { "; Secure" } else { "" };
    let name = cookie_name(console);
    let text = format!("{name}={value}; Path=/; HttpOnly; SameSite=Strict; Max-Age={max_age}{secure}");
    // A token is hexadecimal, so the text is a header's.
    HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static(""))
}

/// The cookie of a new session.
pub(crate) fn session_cookie(console: &Console, token: &str) -> HeaderValue {
    cookie(console, token, console.settings.sessions.absolute.as_secs())
}

/// Takes the cookie away.
pub(crate) fn no_cookie(console: &Console) -> HeaderValue {
    cookie(console, "", 0)
}

/// The hash of the request's session token.
pub(crate) fn session_of(console: &Console, headers: &HeaderMap) -> Option<[u8; 32]> {
    hash_of(cookie_name(console), headers)
}

#[cfg(feature = "oidc")]
fn provider_name(console: &Console) -> &'static str {
    if console.settings.is_secure() { "__Host-dvp_provider" } else { "dvp_provider" }
}

/// Binds a sign-in at an identity provider to the browser. The provider's redirect comes from another site, so it is
/// `Lax`.
#[cfg(feature = "oidc")]
pub(crate) fn provider_cookie(console: &Console, token: &str) -> HeaderValue {
    let secure = if console.settings.is_secure() { "; Secure" } else { "" };
    let name = provider_name(console);
    let age = if token.is_empty() { 0 } else { 600 };
    let text = format!("{name}={token}; Path=/; HttpOnly; SameSite=Lax; Max-Age={age}{secure}");
    HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static(""))
}

/// The hash of the token of a sign-in at an identity provider.
#[cfg(feature = "oidc")]
pub(crate) fn provider_of(console: &Console, headers: &HeaderMap) -> Option<[u8; 32]> {
    hash_of(provider_name(console), headers)
}

fn hash_of(name: &str, headers: &HeaderMap) -> Option<[u8; 32]> {
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let token = cookies
        .flat_map(|value| value.split(';'))
        .filter_map(|pair| pair.trim().split_once('='))
        .find_map(|(key, value)| (key == name).then_some(value))?;
    (token.len() == 64).then(|| token_hash(token))
}

//! Who may request a page: sign-in sessions, their cookie, and the checks that come before every handler.
//!
//! ```text
//! passkey, or link with a token --sign-in--> session --an operator's request within 30 min--> session
//!                                              '-- 30 min without one, 12 h in all, or sign-out --> ended
//! ```
//!
//! What an open page requests by itself, to show what changed, does not prolong a session.
//!
//! Invariants: a token has 256 random bits, and only its SHA-256 is stored; a new sign-in has a new session, and an
//! authentication in a session a new token; a form is accepted only from a page of the console's own origin; roles are
//! read with each request.

use std::borrow::Cow;
use std::net::IpAddr;

use axum::extract::{Extension, Request, State};
use axum::http::{HeaderMap, HeaderName, Method, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Redirect, Response};
pub use dvp_core::listeners::source::Peer;
use dvp_core::listeners::source::client;
use dvp_domain::operator::OperatorRole;
use dvp_store::StoreError;
use dvp_store::operators::accounts::ConsoleAction;
use dvp_store::operators::accounts::sessions;

use crate::cookies::session_of;
use crate::error::PageError;
use crate::navigation::Needs;
use crate::operator::Operator;
use crate::state::Console;
use crate::step_up;

/// Where a page's stream of changes is.
pub(crate) const LIVE: &str = "/live";
/// Marks what a page requests by itself.
const REFRESH: HeaderName = HeaderName::from_static("x-refresh");

/// Refuses a form that is not of the console's own pages.
pub(crate) fn check_origin(console: &Console, method: &Method, headers: &HeaderMap) -> Result<(), PageError> {
    if matches!(*method, Method::GET | Method::HEAD) {
        return Ok(());
    }
    let origin = headers.get(header::ORIGIN).and_then(|origin| origin.to_str().ok());
    if origin.is_some_and(|origin| console.settings.is_own(origin)) {
        Ok(())
    } else {
        Err(PageError::ForeignForm)
    }
}

/// What may request a route.
#[derive(Debug, Clone)]
pub(crate) struct Guard {
    pub console: Console,
    pub method: Method,
    pub path: Cow<'static, str>,
    pub roles: &'static [OperatorRole],
    pub needs: Needs,
}

/// Lets a request through that has a session, comes from a page of ours, and is of an operator with one of the roles
/// who was authenticated as the route needs it.
pub(crate) async fn require(
    State(guard): State<Guard>,
    Extension(Peer(peer)): Extension<Peer>,
    mut request: Request,
    next: Next,
) -> Response {
    let Guard { console, method, path, roles, needs } = guard;
    let source = client(peer, &console.settings.proxies, request.headers());
    let mut operator = match operator_of(
        &console,
        request.headers(),
        source,
        !is_automatic(&method, &path, request.headers()),
    )
    .await
    {
        Ok(Some(operator)) => operator,
        Ok(None) => return unauthenticated(&request),
        Err(error) => return PageError::from(error).into_response(),
    };
    if let Err(error) = check_origin(&console, request.method(), request.headers()) {
        return error.shown_to(&operator);
    }
    if needs >= Needs::Registration && !operator.is_registered() {
        return unregistered(&request, &operator);
    }
    if !operator.may(roles) {
        let route = format!("{method} {path}");
        let refused = refuse(&console, &operator, &route, request.uri().path()).await;
        return refused.map_or_else(
            |error| error.shown_to(&operator),
            |()| PageError::Forbidden(roles).shown_to(&operator),
        );
    }
    let mut renewed = None;
    if needs >= Needs::StepUp && !operator.is_authenticated() {
        match step_up::authenticate(&console, operator, &format!("{method} {path}"), request).await {
            Ok(done) => (operator, request, renewed) = (done.operator, done.request, Some(done.cookie)),
            Err(answer) => return answer,
        }
    }
    request.extensions_mut().insert(operator.clone());
    let mut response = next.run(request).await;
    if let Some(cookie) = renewed {
        response.headers_mut().append(header::SET_COOKIE, cookie);
    }
    if let Some(error) = response.extensions_mut().remove::<PageError>() {
        let mut shown = error.shown_to(&operator);
        let cookies = response.headers_mut().remove(header::SET_COOKIE);
        shown.headers_mut().extend(cookies.map(|cookie| (header::SET_COOKIE, cookie)));
        return shown;
    }
    response
}

/// Whether a page makes the request, and not its operator.
fn is_automatic(method: &Method, path: &str, headers: &HeaderMap) -> bool {
    *method == Method::GET && (path == LIVE || headers.contains_key(REFRESH))
}

async fn operator_of(
    console: &Console,
    headers: &HeaderMap,
    source: IpAddr,
    renews: bool,
) -> Result<Option<Operator>, StoreError> {
    let Some(session) = session_of(console, headers) else { return Ok(None) };
    let mut conn = console.looking_up().await?;
    let found = sessions::find_session(&mut conn, &session, console.settings.sessions.into(), renews).await?;
    let environment = console.settings.environment;
    Ok(found.map(|found| Operator::of(found, session, source.to_string(), environment)))
}

/// A page leads to the sign-in and back; a form does not, because its fields would be lost.
fn unauthenticated(request: &Request) -> Response {
    if request.method() != Method::GET {
        return PageError::Unauthenticated.into_response();
    }
    let wanted = request.uri().path_and_query().map_or("/", |wanted| wanted.as_str());
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    query.append_pair("next", wanted);
    Redirect::to(&format!("/login?{}", query.finish())).into_response()
}

/// An operator who used a link and cannot sign in again yet is led to the registration.
fn unregistered(request: &Request, operator: &Operator) -> Response {
    if request.method() == Method::GET {
        return Redirect::to("/account").into_response();
    }
    PageError::Unregistered.shown_to(operator)
}

async fn refuse(console: &Console, operator: &Operator, route: &str, subject: &str) -> Result<(), PageError> {
    let mut conn = console.acting().await?;
    Ok(operator.record(&mut conn, ConsoleAction::Refused, route, subject).await?)
}

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

use std::net::{IpAddr, SocketAddr};

use axum::extract::{Extension, Request, State};
use axum::http::{HeaderMap, HeaderName, Method, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Redirect, Response};
use dvp_domain::operator::OperatorRole;
use dvp_store::StoreError;
use dvp_store::operators::accounts::ConsoleAction;
use dvp_store::operators::accounts::sessions;
use ipnet::IpNet;

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
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// The address of a connection's other end.
#[derive(Debug, Clone, Copy)]
pub struct Peer(pub SocketAddr);

/// The client's address: the connection's, or behind a proxy the last address of X-Forwarded-For that is not a proxy's.
pub(crate) fn source(peer: SocketAddr, proxies: &[IpNet], headers: &HeaderMap) -> IpAddr {
    let is_proxy = |address: IpAddr| proxies.iter().any(|network| network.contains(&address));
    let mut client = peer.ip().to_canonical();
    let forwarded = headers.get_all(FORWARDED_FOR).iter().filter_map(|value| value.to_str().ok());
    let addresses: Vec<&str> = forwarded.flat_map(|value| value.split(',')).map(str::trim).collect();
    for text in addresses.into_iter().rev() {
        if !is_proxy(client) {
            break;
        }
        let Ok(address) = text.parse::<IpAddr>() else { break };
        client = address.to_canonical();
    }
    client
}

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
    pub path: &'static str,
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
    let source = source(peer, &console.settings.proxies, request.headers());
    let mut operator = match operator_of(
        &console,
        request.headers(),
        source,
        !is_automatic(&method, path, request.headers()),
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

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn only_a_proxy_may_name_the_client() {
        let proxies = ["10.0.0.0/8".parse().unwrap()];
        let mut headers = HeaderMap::new();
        headers.append(FORWARDED_FOR, HeaderValue::from_static("6.6.6.6, 192.0.2.7, 10.0.0.9"));
        let client =
            |peer: &str, headers: &HeaderMap| source(peer.parse().unwrap(), &proxies, headers).to_string();
        assert_eq!(client("10.1.2.3:5", &headers), "192.0.2.7");
        assert_eq!(client("192.0.2.1:5", &headers), "192.0.2.1");
        assert_eq!(client("10.1.2.3:5", &HeaderMap::new()), "10.1.2.3");
    }
}

//! Authentication, authorization and rate limit: key, enabled, rate, scope, in this order.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Instant;

use axum::extract::{FromRequestParts, Request, State};
use axum::http::HeaderMap;
use axum::http::request::Parts;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use dvp_core::listeners::source::Source;
use dvp_domain::text::{ID_MAX, TEXT_MAX, clean};
use dvp_store::database::clock;
use dvp_store::database::ids;
use dvp_store::partners::requests::NewRequest;
use tracing::Span;

use crate::access::scope::{Scope, Scopes};
use crate::http::error::{ApiError, Code, RefusedRequest};
use crate::http::request::{ROUTE_LIMIT, guarded};
use crate::http::request_id::current_id;
use crate::state::Api;
use crate::state::keys::FoundKey;

#[derive(Clone)]
pub(crate) struct Caller(Arc<FoundKey>);

impl Deref for Caller {
    type Target = FoundKey;

    fn deref(&self) -> &FoundKey {
        &self.0
    }
}

impl FromRequestParts<Api> for Caller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _api: &Api) -> Result<Self, ApiError> {
        let caller = parts.extensions.get().cloned();
        caller.ok_or_else(|| ApiError::Internal("a route without authentication".into()))
    }
}

/// The layer of every route except the health check.
pub(crate) async fn require(
    State((api, scopes)): State<(Api, Scopes)>,
    request: Request,
    next: Next,
) -> Response {
    let source = request.extensions().get::<Source>().copied();
    let key = match find_key(&api, source, request.headers()).await {
        Ok(key) => key,
        Err(refused) => return refused.into_response(),
    };
    Span::current().record("partner", key.tenant.partner_id.as_str()).record("key", key.key_id.as_str());
    let (method, uri, began) = (request.method().clone(), request.uri().clone(), Instant::now());
    let response = admit(&api, scopes, Arc::clone(&key), request, next).await;
    let refusal = response.extensions().get::<RefusedRequest>();
    if refusal.is_some() || !method.is_safe() {
        let millis = began.elapsed().as_millis();
        let logged = NewRequest {
            id: ids::draw(api.engine.context().cell),
            at: clock::now().to_utc(),
            tenant: key.tenant.clone(),
            key_id: key.key_id.clone(),
            request_id: current_id().to_string(),
            method: method.to_string(),
            path: clean(uri.path(), ID_MAX),
            status: response.status().as_u16().into(),
            code: refusal.map(|refusal| refusal.code.as_str().to_owned()),
            message: refusal.map(|refusal| clean(&refusal.message, TEXT_MAX)),
            millis: i32::try_from(millis).unwrap_or(i32::MAX),
        };
        api.requests.add(&api.engine, logged);
    }
    response
}

/// The answer to a request of a known key.
async fn admit(api: &Api, scopes: Scopes, key: Arc<FoundKey>, mut request: Request, next: Next) -> Response {
    if key.disabled {
        return ApiError::Plain(Code::ApiKeyDisabled).into_response();
    }
    let limit = u64::try_from(key.limit_per_minute).unwrap_or(0);
    let may = key.scopes.iter().filter_map(|held| Scope::parse(held)).any(|held| scopes.contains(&held));
    // A request without the scope counts like any other.
    let window = api.limiter.take(api.engine.lookups(), &key.tenant, limit).await;
    let place = if !window.allowed {
        Err(ApiError::RateLimitExceeded { retry_after_secs: window.reset_secs })
    } else if may {
        api.load.enter(&key.tenant)
    } else {
        Err(ApiError::InsufficientScope(scopes.first().map_or("", |scope| scope.as_str())))
    };
    let mut response = match place {
        Ok(place) => {
            request.extensions_mut().insert(place);
            request.extensions_mut().insert(Caller(key));
            guarded(ROUTE_LIMIT, next.run(request)).await
        }
        Err(refused) => refused.into_response(),
    };
    window.write(response.headers_mut());
    response
}

/// The requests of a source a minute to the routes that need no key.
const OPEN_MAX: u32 = 300;

/// The layer of the routes that need no key.
pub(crate) async fn count_open(State(api): State<Api>, request: Request, next: Next) -> Response {
    if let Some(source) = request.extensions().get::<Source>().copied() {
        let now = Instant::now();
        if let Some(retry_after_secs) = api.open.exhausted(&source, OPEN_MAX, now) {
            return ApiError::RateLimitExceeded { retry_after_secs }.into_response();
        }
        api.open.add(source, now);
    }
    next.run(request).await
}

async fn find_key(api: &Api, source: Option<Source>, headers: &HeaderMap) -> Result<Arc<FoundKey>, ApiError> {
    let mut sent = headers.get_all("x-api-key").iter();
    let api_key = sent.next().ok_or(Code::MissingApiKey)?;
    let api_key = api_key.to_str().map_err(|_| ApiError::Plain(Code::InvalidApiKey))?;
    if sent.next().is_some() {
        return Err(ApiError::Plain(Code::InvalidApiKey));
    }
    api.keys.find(&api.engine, source, api_key).await
}

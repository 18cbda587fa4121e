//! Authentication, authorization and rate limit: key, enabled, scope, rate, in this order.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Instant;

use axum::extract::{FromRequestParts, Request, State};
use axum::http::HeaderMap;
use axum::http::request::Parts;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use dvp_core::listeners::source::Source;
use tracing::Span;

use crate::access::scope::{Scope, Scopes};
use crate::http::error::{ApiError, Code};
use crate::http::request::{ROUTE_LIMIT, guarded};
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
    mut request: Request,
    next: Next,
) -> Response {
    let source = request.extensions().get::<Source>().copied();
    let key = match find_key(&api, source, request.headers()).await {
        Ok(key) => key,
        Err(refused) => return refused.into_response(),
    };
    Span::current().record("partner", key.tenant.partner_id.as_str()).record("key", key.key_id.as_str());
    if key.disabled {
        return ApiError::Plain(Code::ApiKeyDisabled).into_response();
    }
    let limit = u64::try_from(key.limit_per_minute).unwrap_or(0);
    let may = key.scopes.iter().filter_map(|held| Scope::parse(held)).any(|held| scopes.contains(&held));
    if !may {
        let wanted = scopes.first().map_or("", |scope| scope.as_str());
        let mut response = ApiError::InsufficientScope(wanted).into_response();
        api.limiter.peek(&key.tenant, limit, Instant::now()).write(response.headers_mut());
        return response;
    }
    let window = api.limiter.take(api.engine.lookups(), &key.tenant, limit).await;
    let place = if window.allowed {
        api.load.enter(&key.tenant)
    } else {
        Err(ApiError::RateLimitExceeded { retry_after_secs: window.reset_secs })
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

async fn find_key(api: &Api, source: Option<Source>, headers: &HeaderMap) -> Result<Arc<FoundKey>, ApiError> {
    let mut sent = headers.get_all("x-api-key").iter();
    let api_key = sent.next().ok_or(Code::MissingApiKey)?;
    let api_key = api_key.to_str().map_err(|_| ApiError::Plain(Code::InvalidApiKey))?;
    if sent.next().is_some() {
        return Err(ApiError::Plain(Code::InvalidApiKey));
    }
    api.keys.find(&api.engine, source, api_key).await
}

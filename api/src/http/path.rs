//! The name in a request's path.

use std::convert::Infallible;

use axum::extract::{FromRequestParts, Path};
use axum::http::request::Parts;

use crate::http::error::ApiError;
use crate::http::fields::is_id;

/// `None`: nothing can have this name.
pub(crate) struct PathId(Option<String>);

impl<S: Send + Sync> FromRequestParts<S> for PathId {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Infallible> {
        let path = Path::<String>::from_request_parts(parts, state).await;
        Ok(Self(path.ok().map(|Path(id)| id).filter(|id| is_id(id))))
    }
}

impl PathId {
    pub(crate) fn or(self, missing: impl Into<ApiError>) -> Result<String, ApiError> {
        self.0.ok_or_else(|| missing.into())
    }
}

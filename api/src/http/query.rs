//! Query strings: named values, each at most once; unknown names are ignored.

use axum::extract::{FromRequestParts, Query};
use axum::http::request::Parts;

use crate::http::error::ApiError;
use crate::http::fields::fault;

const LIMIT_MAX: i64 = 100;

pub(crate) struct Params(Vec<(String, String)>);

impl<S: Send + Sync> FromRequestParts<S> for Params {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        let pairs = Query::<Vec<(String, String)>>::try_from_uri(&parts.uri);
        pairs.map(|Query(pairs)| Self(pairs)).map_err(|_| fault("query", "is not a query string"))
    }
}

impl Params {
    pub(crate) fn get(&self, name: &str) -> Result<Option<&str>, ApiError> {
        let mut values = self.0.iter().filter(|pair| pair.0 == name).map(|pair| pair.1.as_str());
        let value = values.next();
        if values.next().is_some() {
            return Err(fault(name, "must be given once"));
        }
        Ok(value)
    }

    /// Every value of a name, in the order given.
    pub(crate) fn all(&self, name: &str) -> Vec<&str> {
        self.0.iter().filter(|pair| pair.0 == name).map(|pair| pair.1.as_str()).collect()
    }

    /// `limit`: the number of items on a page, from 1 to 100.
    pub(crate) fn limit(&self, default: i64) -> Result<i64, ApiError> {
        Ok(self.whole("limit", LIMIT_MAX)?.unwrap_or(default))
    }

    /// A whole number from 1 to `max`.
    pub(crate) fn whole(&self, name: &str, max: i64) -> Result<Option<i64>, ApiError> {
        let Some(text) = self.get(name)? else { return Ok(None) };
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let number = text.parse().ok().filter(|number| digits && (1..=max).contains(number));
        number.map(Some).ok_or_else(|| fault(name, format_args!("must be a whole number from 1 to {max}")))
    }
}

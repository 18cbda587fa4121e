//! Query strings: named values, each at most once; names nobody asked for are ignored.

use axum::extract::Query;
use axum::http::Uri;

use crate::error::ApiError;

pub(crate) struct Params(Vec<(String, String)>);

impl Params {
    pub(crate) fn of(uri: &Uri) -> Result<Self, ApiError> {
        let pairs = Query::<Vec<(String, String)>>::try_from_uri(uri);
        pairs
            .map(|Query(pairs)| Self(pairs))
            .map_err(|_| ApiError::InvalidParameter("query: is not a query string".into()))
    }

    pub(crate) fn get(&self, name: &str) -> Result<Option<&str>, ApiError> {
        let mut values = self.0.iter().filter(|pair| pair.0 == name).map(|pair| pair.1.as_str());
        let value = values.next();
        if values.next().is_some() {
            return Err(ApiError::InvalidParameter(format!("{name}: must be given once")));
        }
        Ok(value)
    }
}

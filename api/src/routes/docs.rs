//! `GET /v1/openapi.json` and `GET /docs`: the description of all routes, for programs and for readers.

use std::sync::Arc;

use axum::extract::Extension;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

use crate::http::error::json;
use crate::openapi::{self, page};

#[derive(Clone)]
pub(crate) struct Rendered(Arc<str>);

impl Rendered {
    pub(crate) fn new() -> Self {
        Self(page::page(&openapi::document()).into())
    }
}

pub(crate) async fn openapi() -> Response {
    json(StatusCode::OK, openapi::TEXT.to_owned())
}

pub(crate) async fn html(Extension(Rendered(page)): Extension<Rendered>) -> Response {
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8")),
        (
            header::CONTENT_SECURITY_POLICY,
            HeaderValue::from_static("default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"),
        ),
        (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    ];
    (StatusCode::OK, headers, page.to_string()).into_response()
}

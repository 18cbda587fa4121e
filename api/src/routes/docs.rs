//! `GET /v1/openapi.json` and `GET /docs`: the description of all routes, for programs and for readers.

use std::sync::Arc;

use axum::extract::Extension;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::Value;

use crate::http::error::json;
use crate::openapi::{self, page};

/// The document as it is sent, in both forms.
pub(crate) struct Rendered {
    json: String,
    html: String,
}

impl Rendered {
    pub(crate) fn new(document: &Value) -> Arc<Self> {
        Arc::new(Self { json: openapi::text(document), html: page::page(document) })
    }
}

pub(crate) async fn openapi(Extension(rendered): Extension<Arc<Rendered>>) -> Response {
    json(StatusCode::OK, rendered.json.clone())
}

pub(crate) async fn html(Extension(rendered): Extension<Arc<Rendered>>) -> Response {
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8")),
        (
            header::CONTENT_SECURITY_POLICY,
            HeaderValue::from_static("default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"),
        ),
        (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    ];
    (StatusCode::OK, headers, rendered.html.clone()).into_response()
}

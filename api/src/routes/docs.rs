//! `GET /v1/openapi.json` and `GET /docs`: the description of all routes, for programs and for readers.
//! `GET /docs/errors/{code}`: the page of an error code.

use std::sync::{Arc, LazyLock};

use axum::extract::Extension;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use dvp_domain::canonical::sha256;

use crate::http::error::{Code, Reply, json};
use crate::http::path::PathId;
use crate::openapi::{self, page};

/// The page of the document, and what a browser may run of it.
#[derive(Clone)]
pub(crate) struct Rendered {
    page: Arc<str>,
    policy: HeaderValue,
}

const NO_SCRIPT: HeaderValue =
    HeaderValue::from_static("default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'");

impl Rendered {
    pub(crate) fn new(has_forms: bool) -> Self {
        let page = page::page(&openapi::document(), has_forms).into();
        let hash = BASE64.encode(sha256(page::SCRIPT));
        let with_script = format!(
            "default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{hash}'; connect-src 'self'; \
             form-action 'none'; frame-ancestors 'none'"
        );
        let policy = HeaderValue::try_from(with_script).ok().filter(|_| has_forms).unwrap_or(NO_SCRIPT);
        Self { page, policy }
    }
}

/// The document, unless the caller has it.
pub(crate) async fn openapi(headers: HeaderMap) -> Response {
    static TAG: LazyLock<Option<HeaderValue>> =
        LazyLock::new(|| HeaderValue::try_from(format!("W/\"{}\"", hex::encode(sha256(openapi::TEXT)))).ok());
    let known = |tag: &HeaderValue| headers.get_all(header::IF_NONE_MATCH).iter().any(|given| given == tag);
    let mut response = match TAG.as_ref() {
        Some(tag) if known(tag) => StatusCode::NOT_MODIFIED.into_response(),
        _ => json(StatusCode::OK, openapi::TEXT),
    };
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("public, max-age=300"));
    if let Some(tag) = TAG.as_ref() {
        response.headers_mut().insert(header::ETAG, tag.clone());
    }
    response
}

pub(crate) async fn html(Extension(Rendered { page, policy }): Extension<Rendered>) -> Response {
    shown(page.to_string(), policy)
}

/// The page of one code, where `error.docUrl` leads.
pub(crate) async fn error(code: PathId) -> Reply {
    let code = Code::parse(&code.or(Code::NotFound)?).ok_or(Code::NotFound)?;
    Ok(shown(page::error_page(code), NO_SCRIPT))
}

fn shown(page: String, policy: HeaderValue) -> Response {
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8")),
        (header::CONTENT_SECURITY_POLICY, policy),
        (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    ];
    (StatusCode::OK, headers, page).into_response()
}

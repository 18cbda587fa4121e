//! Stylesheet, script and icon, compiled into the program. Their addresses contain their hashes, so that browsers keep
//! them for as long as they do not change.

use std::sync::LazyLock;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use sha2::{Digest as _, Sha256};

const STYLESHEET: &str = include_str!("../assets/console.css");
const SCRIPT: &str = include_str!("../assets/console.js");
const PASSKEYS: &str = include_str!("../assets/passkeys.js");
const ICON: &str = include_str!("../assets/icon.svg");

static PATHS: LazyLock<(String, String, String)> = LazyLock::new(|| {
    let path = |name: &str, text: &str| {
        format!("/assets/{name}?v={}", hex::encode(&Sha256::digest(text.as_bytes())[..6]))
    };
    (path("console.css", STYLESHEET), path("console.js", SCRIPT), path("passkeys.js", PASSKEYS))
});

/// The addresses of stylesheet and script.
pub(crate) fn paths() -> (&'static str, &'static str) {
    (&PATHS.0, &PATHS.1)
}

/// The address of the script of pages with passkeys.
pub(crate) fn passkeys() -> &'static str {
    &PATHS.2
}

/// A file by its name.
pub(crate) async fn serve(axum::extract::Path(name): axum::extract::Path<String>) -> Response {
    let (kind, text) = match name.as_str() {
        "console.css" => ("text/css; charset=utf-8", STYLESHEET),
        "console.js" => ("text/javascript; charset=utf-8", SCRIPT),
        "passkeys.js" => ("text/javascript; charset=utf-8", PASSKEYS),
        "icon.svg" => ("image/svg+xml", ICON),
        _ => return StatusCode::NOT_FOUND.into_response(),
    };
    let kept = HeaderValue::from_static("public, max-age=31536000, immutable");
    ([(header::CONTENT_TYPE, HeaderValue::from_static(kind)), (header::CACHE_CONTROL, kept)], text)
        .into_response()
}

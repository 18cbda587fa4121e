//! Receives dvp webhooks. Needs the crates axum, tokio, serde_json, hmac, sha2, hex and subtle.
//!
//!     WEBHOOK_SECRET=whsec_… PORT=3000 cargo run --example receiver

use std::collections::HashSet;
use std::io::Write;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use subtle::{Choice, ConstantTimeEq};

const TOLERANCE_SECONDS: u64 = 300;
const BODY_BYTES_MAX: usize = 64 * 1024;

/// Whether a delivery is genuine: one v1 matches the raw body, and t is near.
fn verify(secret: &str, header: &str, body: &[u8], now: u64) -> bool {
    let parts = || header.split(',').filter_map(|part| part.trim().split_once('='));
    let mut times = parts().filter(|part| part.0 == "t").map(|part| part.1);
    let (Some(text), None) = (times.next(), times.next()) else { return false };
    let Ok(t) = text.parse::<u64>() else { return false };
    // The whole secret is the key, whsec_ included.
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(secret.as_bytes()) else { return false };
    mac.update(text.as_bytes());
    mac.update(b".");
    mac.update(body);
    let ours = hex::encode(mac.finalize().into_bytes());
    let given = parts().filter(|part| part.0 == "v1").map(|part| part.1);
    let matches = given.fold(Choice::from(0), |found, value| found | ours.as_bytes().ct_eq(value.as_bytes()));
    bool::from(matches) && now.abs_diff(t) <= TOLERANCE_SECONDS
}

#[derive(Clone)]
struct App {
    secret: Arc<str>,
    /// A database table with a unique id, in earnest.
    seen: Arc<Mutex<HashSet<String>>>,
}

async fn receive(State(app): State<App>, headers: HeaderMap, body: Bytes) -> StatusCode {
    let header = headers.get("svc-signature").and_then(|value| value.to_str().ok()).unwrap_or_default();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    if !verify(&app.secret, header, &body, now) {
        return StatusCode::UNAUTHORIZED;
    }
    let event: serde_json::Value = serde_json::from_slice(&body).unwrap_or_default();
    let Some(id) = event["id"].as_str() else { return StatusCode::BAD_REQUEST };
    if app.seen.lock().unwrap_or_else(PoisonError::into_inner).insert(id.to_owned()) {
        let _ = writeln!(std::io::stdout(), "handled {id}");
    }
    StatusCode::NO_CONTENT
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let app = App { secret: std::env::var("WEBHOOK_SECRET")?.into(), seen: Arc::default() };
    let port = std::env::var("PORT").ok().and_then(|port| port.parse().ok()).unwrap_or(3000_u16);
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await?;
    writeln!(std::io::stdout(), "listening {}", listener.local_addr()?.port())?;
    let router =
        Router::new().fallback(post(receive)).layer(DefaultBodyLimit::max(BODY_BYTES_MAX)).with_state(app);
    axum::serve(listener, router).await?;
    Ok(())
}

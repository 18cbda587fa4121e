//! Webhook receivers: of the hostile partner, which hang or answer poison, and of the well-behaved partner, whose
//! deliveries are measured.

use std::time::Duration;

use chrono::{DateTime, Utc};
use dvp_testing::receiver::{Authority, Got, Receiver, ReceiverManner, Reply};
use serde_json::Value;

use super::latency::{Action, Recorder};
use super::target::{HOSTILE_ENDPOINTS, Target};
use crate::crash::load::subscribe;
use crate::http::Keys;

/// Answers of one hostile endpoint each.
const BEHAVIOURS: [fn(usize) -> Reply; HOSTILE_ENDPOINTS] = [
    |_| Reply::Never,
    |n| if n.is_multiple_of(2) { Reply::DripHead } else { Reply::EndlessBody },
    |_| Reply::HangUp,
    |_| Reply::Bytes(POISONED.to_vec()),
    |n| {
        if n.is_multiple_of(3) {
            Reply::Redirect("https://127.0.0.1:1/\u{202e}".to_owned())
        } else {
            Reply::Status(500)
        }
    },
];
/// An answer that no log, page or row may take as it is.
const POISONED: &[u8] =
    b"HTTP/1.1 500 \x1b[2J\xff\xfe\r\nx-note: <script>\xc3\x28\r\ncontent-type: text/html\r\n\
    content-length: 44\r\n\r\n\0\xed\xa0\x80<script>alert(1)</script>'; drop table \xff\x1b[31m";

async fn receiver(
    authority: &Authority,
    answer: impl Fn(usize, &Got) -> Reply + Send + Sync + 'static,
) -> Receiver {
    Receiver::start(authority, ReceiverManner { keep: false, ..ReceiverManner::default() }, answer).await
}

/// The receiver of the well-behaved partner: each delivery counts from the moment at which its event was recorded.
pub(super) async fn measured(
    authority: &Authority,
    target: &Target,
    recorder: &Recorder,
) -> anyhow::Result<Receiver> {
    let recorder = recorder.clone();
    let took = move |_, got: &Got| {
        if let Some(age) = age(&got.body) {
            recorder.took(Action::Webhook, age);
        }
        Reply::Status(200)
    };
    let receiver = receiver(authority, took).await;
    register(target, &target.good, &receiver).await?;
    Ok(receiver)
}

/// Receivers of the hostile partner, until they are dropped.
pub(super) async fn hostile(authority: &Authority, target: &Target) -> anyhow::Result<Vec<Receiver>> {
    let mut receivers = Vec::new();
    for (keys, behaviour) in target.hostile_endpoints.iter().zip(BEHAVIOURS) {
        let receiver = receiver(authority, move |n, _| behaviour(n)).await;
        register(target, keys, &receiver).await?;
        receivers.push(receiver);
    }
    Ok(receivers)
}

fn age(body: &str) -> Option<Duration> {
    let event: Value = serde_json::from_str(body).ok()?;
    let at = DateTime::parse_from_rfc3339(event["observedAt"].as_str()?).ok()?;
    Utc::now().signed_duration_since(at).to_std().ok()
}

async fn register(target: &Target, keys: &Keys, receiver: &Receiver) -> anyhow::Result<()> {
    subscribe(&format!("http://{}", target.http), keys, &receiver.url("127.0.0.1")).await
}

//! Whether this process can do its work: `/readyz` for load balancers, `/livez` for whoever restarts it.

use std::sync::{Arc, PoisonError, RwLock};

use axum::Router;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::routing::get;
use dvp_core::engine::Engine;
use serde_json::{Value, json};

/// Shared by those who bring a process up and down and those who are asked. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Readiness(Arc<RwLock<Phase>>);

#[derive(Default)]
enum Phase {
    /// The database is not reached, the schema not checked, or a listener not bound yet.
    #[default]
    Starting,
    Serving(Engine),
    Stopping,
}

impl Readiness {
    /// Every listener is bound and every part runs.
    pub(crate) fn serving(&self, engine: Engine) {
        self.set(Phase::Serving(engine));
    }

    /// No new work, please; what is in hand is finished.
    pub(crate) fn stopping(&self) {
        self.set(Phase::Stopping);
    }

    fn set(&self, phase: Phase) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = phase;
    }

    /// What stands in the way, if anything.
    fn reasons(&self) -> Vec<&'static str> {
        match &*self.0.read().unwrap_or_else(PoisonError::into_inner) {
            Phase::Starting => vec!["starting"],
            Phase::Stopping => vec!["stopping"],
            Phase::Serving(engine) => {
                let database = (!engine.availability().is_available()).then_some("database");
                let writer = (!engine.is_writing()).then_some("writer");
                database.into_iter().chain(writer).collect()
            }
        }
    }

    fn answer(&self) -> (StatusCode, Value) {
        let reasons = self.reasons();
        if reasons.is_empty() {
            (StatusCode::OK, json!({"ready": true}))
        } else {
            (StatusCode::SERVICE_UNAVAILABLE, json!({"ready": false, "reasons": reasons}))
        }
    }

    /// `/livez` and `/readyz`.
    pub(crate) fn router(self) -> Router {
        let ready = move || {
            let (status, body) = self.answer();
            async move { (status, [("content-type", "application/json")], body.to_string()).into_response() }
        };
        let live = || async { ([("content-type", "application/json")], r#"{"live":true}"#) };
        Router::new().route("/livez", get(live)).route("/readyz", get(ready))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use dvp_testing::market::pair;
    use dvp_testing::{Harness, Market};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    /// The status and the reasons of `/readyz` over a socket.
    async fn asked(readiness: &Readiness) -> (u16, Value) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut socket = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let serving = tokio::spawn(axum::serve(listener, readiness.clone().router()).into_future());
        socket.write_all(b"GET /readyz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await.unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).await.unwrap();
        serving.abort();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head[9..12].parse().unwrap(), serde_json::from_str::<Value>(body).unwrap()["reasons"].clone())
    }

    #[tokio::test]
    async fn a_process_that_starts_or_stops_says_so() {
        let readiness = Readiness::default();
        assert_eq!(asked(&readiness).await, (503, json!(["starting"])));
        readiness.stopping();
        assert_eq!(asked(&readiness).await, (503, json!(["stopping"])));
    }
    #[tokio::test]
    async fn a_process_whose_writer_has_ended_says_so() {
        let harness = Harness::new(Market::new(vec![pair("USD", "EUR", "0.92")])).await;
        let Harness { engine, writing, .. } = &harness;
        let readiness = Readiness::default();
        readiness.serving(engine.clone());
        assert_eq!(asked(&readiness).await, (200, Value::Null));
        writing.abort();
        let ended = async {
            while engine.is_writing() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), ended).await.unwrap();
        assert_eq!(asked(&readiness).await, (503, json!(["writer"])));
    }
}

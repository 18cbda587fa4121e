//! The process's health: `/readyz` for load balancers, `/livez` for supervisors.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Router;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::routing::get;
use dvp_core::engine::Engine;
use parking_lot::RwLock;
use serde_json::{Value, json};

use crate::config::Role;

/// Shared between startup, shutdown and the health endpoints. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Readiness(Arc<Shared>);

#[derive(Default)]
struct Shared {
    phase: RwLock<Phase>,
    /// The schema lacks migrations that this program needs, by the last look at it.
    schema_is_old: AtomicBool,
}

#[derive(Default)]
enum Phase {
    /// The database is not reached, the schema not checked, or a listener not bound yet.
    #[default]
    Starting,
    Serving {
        engine: Engine,
        roles: Vec<Role>,
    },
    Stopping,
}

/// A condition of being ready.
struct Check {
    name: String,
    ok: bool,
}

impl Readiness {
    /// Every listener is bound and every part runs.
    pub(crate) fn serving(&self, engine: Engine, roles: &[Role]) {
        self.set(Phase::Serving { engine, roles: roles.to_vec() });
    }

    /// Whether the schema has what this program needs.
    pub(crate) fn schema(&self, is_current: bool) {
        self.0.schema_is_old.store(!is_current, Ordering::Relaxed);
    }

    /// No new work is accepted; work in progress is finished.
    pub(crate) fn stopping(&self) {
        self.set(Phase::Stopping);
    }

    fn set(&self, phase: Phase) {
        *self.0.phase.write() = phase;
    }

    /// Every check, from memory: a probe of the process must not wait for the database.
    fn checks(&self) -> Vec<Check> {
        let check = |name: &str, ok| Check { name: name.to_owned(), ok };
        match &*self.0.phase.read() {
            Phase::Starting => vec![check("starting", false)],
            Phase::Stopping => vec![check("stopping", false)],
            Phase::Serving { engine, roles } => {
                let general = [
                    check("database", engine.availability().is_available()),
                    check("schema", !self.0.schema_is_old.load(Ordering::Relaxed)),
                    check("writer", engine.is_writing()),
                ];
                // A role whose part has ended ends the process, which is then stopping.
                let roles = roles.iter().map(|role| check(&format!("role {}", role.as_str()), true));
                general.into_iter().chain(roles).collect()
            }
        }
    }

    fn answer(&self) -> (StatusCode, Value) {
        let checks = self.checks();
        let shown: Vec<Value> =
            checks.iter().map(|check| json!({"name": check.name, "ok": check.ok})).collect();
        let reasons: Vec<&str> =
            checks.iter().filter(|check| !check.ok).map(|check| check.name.as_str()).collect();
        if reasons.is_empty() {
            (StatusCode::OK, json!({"ready": true, "checks": shown}))
        } else {
            let body = json!({"ready": false, "reasons": reasons, "checks": shown});
            (StatusCode::SERVICE_UNAVAILABLE, body)
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
    async fn readyz(readiness: &Readiness) -> (u16, Value) {
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
    async fn starting_and_stopping_processes_are_not_ready() {
        let readiness = Readiness::default();
        assert_eq!(readyz(&readiness).await, (503, json!(["starting"])));
        readiness.stopping();
        assert_eq!(readyz(&readiness).await, (503, json!(["stopping"])));
    }
    #[tokio::test]
    async fn a_process_without_its_writer_is_not_ready() {
        let harness = Harness::new(Market::new(vec![pair("USD", "EUR", "0.92")])).await;
        let Harness { engine, writing, .. } = &harness;
        let readiness = Readiness::default();
        readiness.serving(engine.clone(), &[Role::Api]);
        assert_eq!(readyz(&readiness).await, (200, Value::Null));
        let names: Vec<String> = readiness.checks().into_iter().map(|check| check.name).collect();
        assert_eq!(names, ["database", "schema", "writer", "role api"]);
        readiness.schema(false);
        assert_eq!(readyz(&readiness).await, (503, json!(["schema"])));
        readiness.schema(true);
        writing.abort();
        let ended = async {
            while engine.is_writing() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), ended).await.unwrap();
        assert_eq!(readyz(&readiness).await, (503, json!(["writer"])));
    }
}

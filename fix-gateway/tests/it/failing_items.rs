//! One session that fails holds up no other, and what all share is listed while it fails.

use std::time::Duration;

use dvp_fix_gateway::{FixGateway, GatewayConfig};
use dvp_store::workers::{Step, Worker, in_database};
use dvp_testing::failing::{FailingScene, NamedScene, each_named_step, each_step};
use sqlx::PgPool;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::harness::{FixHarness, add_session};

struct Sessions(FixHarness);

impl Sessions {
    fn gateway(&self) -> JoinHandle<()> {
        let config = GatewayConfig {
            lease_ttl: Duration::from_secs(4),
            refresh: Duration::from_millis(100),
            ..GatewayConfig::default()
        };
        let (engine, pool) = (self.0.engine.clone(), self.0.pool().clone());
        tokio::spawn(async move {
            let any = "127.0.0.1:0".parse().unwrap();
            let (gateway, _) = FixGateway::bind(any, engine, pool, config).await.unwrap();
            gateway.run(CancellationToken::new()).await;
        })
    }
}

impl FailingScene for Sessions {
    fn pool(&self) -> &PgPool {
        self.0.pool()
    }

    async fn make(&self) -> String {
        add_session(&self.0, "FIX.4.4", &Uuid::new_v4().simple().to_string()).await
    }

    fn start(&self) -> JoinHandle<()> {
        self.gateway()
    }

    /// A process runs it, and it does not fail.
    async fn is_done(&self, session_id: &str) -> bool {
        let runs = "select exists (select from lease where name = 'fix:' || $1 and expires_at > clock_timestamp()) \
                       and not exists (select from set_aside where item = $1)";
        sqlx::query_scalar(runs).bind(session_id).fetch_one(self.0.pool()).await.unwrap()
    }

    fn patience(&self) -> Duration {
        // Of one look at a session.
        Duration::from_secs(2)
    }
}

impl NamedScene for Sessions {
    fn pool(&self) -> &PgPool {
        self.0.pool()
    }

    fn items(&self, step: Step) -> Vec<String> {
        let item = if step.worker() == Worker::FixFeed { "feed" } else { "sessions" };
        vec![in_database(self.0.pool(), item).to_string()]
    }

    fn start(&self) -> JoinHandle<()> {
        self.gateway()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_fails_holds_up_no_other() {
    each_step(Worker::FixSessions, &Sessions(FixHarness::new().await)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_all_sessions_share_is_listed_while_it_fails() {
    let scene = Sessions(FixHarness::new().await);
    each_named_step(Worker::FixFeed, &scene).await;
    each_named_step(Worker::FixStatus, &scene).await;
}

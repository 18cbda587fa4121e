//! One event, endpoint or replay that fails holds up no other.

use std::collections::HashMap;
use std::sync::Mutex;

use dvp_store::workers::set_aside::SetAside;
use dvp_store::workers::{Step, Worker};
use dvp_testing::failing::{FailingScene, NamedScene, Running, each_named_step, each_step};
use dvp_testing::orders;
use sqlx::PgPool;
use tokio::task::JoinHandle;

use super::*;

fn deliver(scene: &Scene) -> JoinHandle<()> {
    let delivery = Delivery::new(scene.harness.engine.clone(), config(&scene.authority)).unwrap();
    tokio::spawn(delivery.run(CancellationToken::new()))
}

/// Accepted orders, whose events are delivered.
struct Events {
    scene: Scene,
    positions: Mutex<HashMap<String, i64>>,
}

impl FailingScene for Events {
    fn pool(&self) -> &PgPool {
        self.scene.harness.pool()
    }

    async fn make(&self) -> String {
        let reference = self.scene.harness.accept(orders::order("000123456789")).await.reference;
        let position = "select position from event where reference = $1";
        let (position,) = self.scene.harness.row_of(position, &reference).await;
        self.positions.lock().unwrap().insert(reference.clone(), position);
        reference
    }

    fn start(&self) -> JoinHandle<()> {
        deliver(&self.scene)
    }

    async fn is_done(&self, reference: &str) -> bool {
        let delivered = "select exists (select from webhook_delivery_log d join event e using (event_id) \
                                        where e.reference = $1 and d.state = 'delivered')";
        self.scene.harness.row_of::<(bool,)>(delivered, reference).await.0
    }

    fn is_listed_as(&self, row: &SetAside, reference: &str) -> bool {
        let position = self.positions.lock().unwrap()[reference].to_string();
        row.item.split(' ').next() == Some(position.as_str())
    }

    fn patience(&self) -> Duration {
        // The lease of the endpoint that the process before had.
        Duration::from_secs(6)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_that_cannot_be_dispatched_holds_up_no_other() {
    let scene = Scene::before_delivery(ReceiverManner::default(), |_, _| Reply::Status(200)).await;
    let events = Events { scene, positions: Mutex::default() };
    each_step(Worker::Dispatcher, &events).await;
}

/// Two endpoints that are sent to again and again.
struct Endpoints {
    scene: Scene,
    ids: Vec<String>,
    /// What makes work for each of them.
    work: &'static str,
}

impl Endpoints {
    async fn new(work: &'static str) -> Self {
        let scene = Scene::before_delivery(ReceiverManner::default(), |_, _| Reply::Status(200)).await;
        register(&scene.harness, &scene.harness.globex, &scene.receiver.url("127.0.0.1")).await;
        let ids =
            scene.harness.rows::<(String,)>("select id from webhook_endpoint order by created_at").await;
        let ids = ids.into_iter().map(|(id,)| id).collect();
        Self { scene, ids, work }
    }
}

impl NamedScene for Endpoints {
    fn pool(&self) -> &PgPool {
        self.scene.harness.pool()
    }

    fn items(&self, _: Step) -> Vec<String> {
        self.ids.clone()
    }

    fn patience(&self) -> Duration {
        // The lease of the endpoint that the process before had, and the one batch that waits for what hangs.
        Duration::from_secs(6 + 5)
    }

    fn start(&self) -> JoinHandle<()> {
        let (delivering, pool, work) = (Running(deliver(&self.scene)), self.pool().clone(), self.work);
        tokio::spawn(async move {
            let _delivering = delivering;
            loop {
                // Pauses are over.
                for statement in [
                    work,
                    "update webhook_queue set due_at = clock_timestamp() where due_at > clock_timestamp()",
                    "update webhook_replay set due_at = clock_timestamp() where due_at > clock_timestamp()",
                ] {
                    sqlx::query(statement).execute(&pool).await.unwrap();
                }
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        })
    }
}

const DELIVERY: &str = "insert into webhook_queue (endpoint_id, partner_id, event_id, type, origin, body) \
                        select id, partner_id, 'evt_' || gen_random_uuid(), 'payout.completed', 'test', '{}' \
                        from webhook_endpoint";

#[tokio::test(flavor = "multi_thread")]
async fn an_endpoint_whose_attempts_fail_here_holds_up_no_other() {
    each_named_step(Worker::Deliveries, &Endpoints::new(DELIVERY).await).await;
}

const MANY_DELIVERIES: &str = "insert into webhook_queue (endpoint_id, partner_id, event_id, type, origin, body) \
                               select id, partner_id, 'evt_' || gen_random_uuid(), 'payout.completed', 'test', '{}' \
                               from webhook_endpoint, generate_series(1, 10)";

#[tokio::test(flavor = "multi_thread")]
async fn outcomes_that_cannot_be_written_hold_up_no_other() {
    each_named_step(Worker::Outcomes, &Endpoints::new(MANY_DELIVERIES).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replay_that_fails_holds_up_no_other() {
    let replay = "insert into webhook_replay (endpoint_id, position, until, from_time, to_time) \
                  select id, 0, 1, now() - interval '1 hour', now() + interval '1 hour' from webhook_endpoint w \
                  where not exists (select from webhook_replay r where r.endpoint_id = w.id)";
    each_named_step(Worker::Replays, &Endpoints::new(replay).await).await;
}

//! Delivery to real receivers over TLS: requests, the effect of each response, and that nothing is lost.

mod failing;
mod log;
mod processes;
mod replays;

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use dvp_api::WebhookRules;
use dvp_api::delivery::address::Reach;
use dvp_api::delivery::names::{LookUp, Names, SystemNames};
use dvp_api::delivery::signature::verify;
use dvp_api::delivery::{Delivery, DeliveryConfig, DeliveryLimits};
use dvp_testing::receiver::{Authority, Got, Receiver, ReceiverManner, Reply};
use dvp_testing::wait::wait_for;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::harness::{Answer, ApiHarness, Call, order};
use crate::webhooks::register;

const PATH: &str = "/v1/webhook_endpoints";

/// A harness with a receiver, and deliveries under way until it is dropped.
pub(crate) struct Scene {
    harness: ApiHarness,
    authority: Authority,
    receiver: Receiver,
    pub(crate) secret: String,
    stop: CancellationToken,
}

fn config(authority: &Authority) -> DeliveryConfig {
    let reach = Reach::PublicAnd(vec![IpAddr::from([127, 0, 0, 1])]);
    // A claim that died is due again soon.
    let limits = DeliveryLimits {
        timeout: Duration::from_secs(2),
        lease: Duration::from_secs(4),
        poll: Duration::from_millis(50),
        ..DeliveryLimits::default()
    };
    DeliveryConfig { reach, authorities: vec![authority.certificate()], limits, ..DeliveryConfig::default() }
}

impl Scene {
    pub(crate) async fn new(answer: impl Fn(usize, &Got) -> Reply + Send + Sync + 'static) -> Self {
        Self::with_manner(ReceiverManner::default(), answer).await
    }

    async fn with_manner(
        manner: ReceiverManner,
        answer: impl Fn(usize, &Got) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let mut scene = Self::before_delivery(manner, answer).await;
        scene.start_delivery();
        scene
    }

    /// Nothing is delivered until it is started.
    async fn before_delivery(
        manner: ReceiverManner,
        answer: impl Fn(usize, &Got) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let authority = Authority::new();
        let receiver = Receiver::start(&authority, manner, answer).await;
        let rules = WebhookRules { reach: Reach::Everything, names: Arc::new(SystemNames) };
        let harness = ApiHarness::with_webhooks(rules).await;
        let registered = register(&harness, &harness.acme, &receiver.url("127.0.0.1")).await;
        let secret = registered["secret"].as_str().unwrap().to_owned();
        Self { harness, authority, receiver, secret, stop: CancellationToken::new() }
    }

    fn start_delivery(&mut self) {
        self.start_with(config(&self.authority));
    }

    fn start_with(&mut self, config: DeliveryConfig) {
        self.stop = CancellationToken::new();
        let delivery = Delivery::new(self.harness.engine.clone(), config).unwrap();
        tokio::spawn(delivery.run(self.stop.clone()));
    }

    /// A write of the endpoint's management.
    async fn manage(&self, method: &'static str, below: &str, body: &Value) -> Answer {
        self.harness.manage(&self.harness.acme, method, &format!("{PATH}{below}"), body).await
    }

    async fn notices(&self) -> Vec<String> {
        let mut conn = self.harness.pool().acquire().await.unwrap();
        let notices = dvp_store::webhooks::list_notices(&mut conn, i64::MAX, 10).await.unwrap();
        notices.into_iter().map(|notice| notice.kind).collect()
    }

    pub(crate) async fn ping(&self) -> String {
        self.manage("POST", "/test", &Value::Null).await.ok(202)["eventId"].as_str().unwrap().to_owned()
    }

    async fn accept(&self) -> Value {
        let body = order();
        self.harness.submit(&self.harness.acme, &body).await.ok(202);
        body
    }

    /// The delivery log, latest first.
    async fn log(&self) -> Vec<Value> {
        let page = self.harness.get(&self.harness.acme, &format!("{PATH}/deliveries")).await.ok(200);
        page["data"].as_array().unwrap().clone()
    }

    /// The latest delivery, once it has had this number of attempts.
    async fn attempted(&self, times: usize) -> Value {
        wait_for("an attempt", || async {
            let latest = self.log().await.into_iter().next()?;
            (latest["attempts"].as_array().unwrap().len() >= times).then_some(latest)
        })
        .await
    }

    pub(crate) async fn received(&self, count: usize) -> Vec<Got> {
        wait_for("a delivery", || async { (self.receiver.count() >= count).then(|| self.receiver.got()) })
            .await
    }

    /// Lets the pauses of pending deliveries be over.
    async fn skip_pauses(&self) {
        self.harness.run("update webhook_queue set due_at = clock_timestamp()").await;
    }

    async fn is_active(&self) -> bool {
        let endpoint = self.harness.get(&self.harness.acme, PATH).await.ok(200);
        endpoint["isActive"].as_bool().unwrap()
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

fn now() -> u64 {
    dvp_core::context::now().unix_secs()
}

#[tokio::test]
async fn an_accepted_intent_is_delivered_signed_as_the_feed_shows_it() {
    let scene = Scene::new(|_, _| Reply::Status(201)).await;
    let order = scene.accept().await;
    let got = scene.received(1).await.remove(0);
    assert!(got.head.starts_with("POST /hook HTTP/1.1"), "{}", got.head);
    assert_eq!(got.header("content-type"), Some("application/json; charset=utf-8"));
    assert_eq!(got.header("user-agent"), Some("svc-webhook/1.0"));
    verify(&scene.secret, got.header("svc-signature").unwrap(), got.body.as_bytes(), now(), 300).unwrap();
    let event: Value = serde_json::from_str(&got.body).unwrap();
    assert_eq!(event["intentId"], order["intentId"]);
    let listed = scene.harness.get(&scene.harness.acme, "/v1/events").await.ok(200);
    assert_eq!(listed["data"][0], event);
    let logged = scene.attempted(1).await;
    assert_eq!((&logged["state"], &logged["origin"]), (&json!("delivered"), &json!("feed")));
    let attempt = &logged["attempts"][0];
    assert_eq!(
        (&attempt["status"], &attempt["error"], &attempt["body"]),
        (&json!(201), &json!(null), &json!("ok"))
    );
}

#[tokio::test]
async fn only_subscribed_types_of_the_keys_own_environment_are_sent() {
    let scene = Scene::new(|_, _| Reply::Status(200)).await;
    let harness = &scene.harness;
    harness.submit(&harness.acme_live, &order()).await.ok(202);
    harness.submit(&harness.globex, &order()).await.ok(202);
    let narrow = json!({"subscribedTypes": ["payout.failed"]});
    harness.manage(&harness.acme, "PATCH", PATH, &narrow).await.ok(200);
    scene.accept().await;
    let ping = scene.ping().await;
    let got = scene.received(1).await;
    assert_eq!(got.iter().map(Got::event_id).collect::<Vec<_>>(), [ping]);
    assert_eq!(scene.log().await.len(), 1);
}

#[tokio::test]
async fn a_failure_is_retried_with_the_same_id_and_body_and_a_new_signature() {
    let scene = Scene::new(|n, _| Reply::Status(if n == 0 { 500 } else { 200 })).await;
    scene.accept().await;
    let failed = scene.attempted(1).await;
    assert_eq!((&failed["state"], &failed["attempts"][0]["error"]), (&json!("pending"), &json!("status")));
    let next = chrono::DateTime::parse_from_rfc3339(failed["nextAttemptAt"].as_str().unwrap()).unwrap();
    let pause = (next.to_utc() - chrono::Utc::now()).num_seconds();
    assert!((1..=66).contains(&pause), "{pause}");
    scene.skip_pauses().await;
    let got = scene.received(2).await;
    assert_eq!((got[0].event_id(), &got[0].body), (got[1].event_id(), &got[1].body));
    for one in &got {
        verify(&scene.secret, one.header("svc-signature").unwrap(), one.body.as_bytes(), now(), 300).unwrap();
    }
    let delivered = scene.attempted(2).await;
    assert_eq!(delivered["state"], "delivered");
}

#[tokio::test]
async fn after_the_eighth_attempt_the_event_can_be_resent() {
    let well = Arc::new(AtomicBool::new(false));
    let answer = well.clone();
    let scene =
        Scene::new(move |_, _| Reply::Status(if answer.load(Ordering::Relaxed) { 200 } else { 503 })).await;
    scene.accept().await;
    for attempt in 1..=8 {
        scene.attempted(attempt).await;
        scene.skip_pauses().await;
    }
    let failed = scene.attempted(8).await;
    assert_eq!((&failed["state"], &failed["nextAttemptAt"]), (&json!("failed"), &json!(null)));
    well.store(true, Ordering::Relaxed);
    let event = failed["eventId"].as_str().unwrap();
    let resend =
        Call::manage(&scene.harness.acme, "POST", &format!("/v1/events/{event}/resend"), &Value::Null);
    scene.harness.send(&resend).await.ok(202);
    let got = scene.received(9).await;
    assert!(got.iter().all(|one| one.event_id() == event && one.body == got[0].body));
}

#[tokio::test]
async fn each_bad_response_is_classified_and_a_2xx_is_success_regardless_of_its_body() {
    for (reply, error, status) in [
        (Reply::Status(404), json!("status"), json!(404)),
        (Reply::Redirect("https://127.0.0.1:1/".into()), json!("redirect"), json!(302)),
        (Reply::Never, json!("timeout"), json!(null)),
        (Reply::DripHead, json!("timeout"), json!(null)),
        (Reply::HangUp, json!("closed"), json!(null)),
        (Reply::EndlessBody, json!(null), json!(200)),
        (Reply::DripBody, json!(null), json!(200)),
    ] {
        let name = format!("{reply:?}");
        let scene = Scene::new(move |_, _| reply.clone()).await;
        scene.ping().await;
        let logged = scene.attempted(1).await;
        let attempt = &logged["attempts"][0];
        assert_eq!((&attempt["error"], &attempt["status"]), (&error, &status), "{name}");
        assert_eq!(logged["state"], if error.is_null() { "delivered" } else { "pending" }, "{name}");
        assert!(attempt["body"].as_str().is_none_or(|body| body.len() <= 1024), "{name}");
    }
}

#[tokio::test]
async fn a_certificate_that_is_expired_or_for_another_name_is_refused() {
    for manner in [
        ReceiverManner { expired: true, ..ReceiverManner::default() },
        ReceiverManner { names: vec!["other.example"], ..ReceiverManner::default() },
    ] {
        let scene = Scene::with_manner(manner, |_, _| Reply::Status(200)).await;
        scene.ping().await;
        let logged = scene.attempted(1).await;
        assert_eq!(logged["attempts"][0]["error"], "tls");
        assert_eq!(scene.receiver.count(), 0);
    }
}

#[tokio::test]
async fn gone_deactivates_the_endpoint_and_keeps_its_deliveries() {
    let gone = Arc::new(AtomicBool::new(true));
    let answer = gone.clone();
    let scene =
        Scene::new(move |_, _| Reply::Status(if answer.load(Ordering::Relaxed) { 410 } else { 200 })).await;
    scene.accept().await;
    wait_for("the end", || async { (!scene.is_active().await).then_some(()) }).await;
    assert_eq!(scene.notices().await, ["deactivated_gone"]);
    // Recorded while it is inactive, and not sent.
    let missed = scene.accept().await;
    scene.skip_pauses().await;
    gone.store(false, Ordering::Relaxed);
    let on = json!({"isActive": true});
    scene.manage("PATCH", "", &on).await.ok(200);
    let got = scene.received(2).await;
    assert_eq!(got[0].event_id(), got[1].event_id());
    let listed = scene.harness.get(&scene.harness.acme, "/v1/events").await.ok(200);
    assert_eq!(listed["data"][1]["intentId"], missed["intentId"]);
    // A replay of the period sends the missed events.
    let span = json!({"from": "2020-01-01T00:00:00Z", "to": "2100-01-01T00:00:00Z"});
    scene.manage("POST", "/replay", &span).await.ok(202);
    let got = scene.received(4).await;
    assert!(got.iter().any(|one| one.event_id() == listed["data"][1]["id"]));
}

#[tokio::test]
async fn a_former_urls_failures_do_not_count_for_the_endpoint() {
    let asked = Arc::new(AtomicBool::new(false));
    let is_asked = asked.clone();
    let scene = Scene::new(move |_, got| {
        is_asked.store(true, Ordering::Relaxed);
        if got.head.starts_with("POST /hook/new ") { Reply::Status(200) } else { Reply::Never }
    })
    .await;
    scene.accept().await;
    wait_for("the first attempt", || async { asked.load(Ordering::Relaxed).then_some(()) }).await;
    // It moves during the attempt.
    let to = json!({"url": format!("{}/new", scene.receiver.url("127.0.0.1"))});
    scene.manage("PATCH", "", &to).await.ok(200);
    let logged = scene.attempted(1).await;
    assert_eq!(logged["attempts"][0]["error"], "timeout", "{logged}");
    let failing = "select count(*) from webhook_endpoint where failing_since is not null";
    assert_eq!(scene.harness.count(failing).await, 0);
    scene.skip_pauses().await;
    wait_for("the delivery", || async { (scene.log().await.first()?["state"] == "delivered").then_some(()) })
        .await;
}

#[tokio::test]
async fn five_days_of_failures_deactivate_the_endpoint_after_a_notice() {
    let scene = Scene::new(|_, _| Reply::Status(500)).await;
    scene.ping().await;
    scene.attempted(1).await;
    let age = "update webhook_endpoint set failing_since = failing_since - interval '5 days', \
                                           noticed_at = noticed_at - interval '1 day'";
    for (attempts, expected) in [(2, vec!["failing"]), (3, vec!["deactivated_failing", "failing"])] {
        scene.harness.run(age).await;
        scene.skip_pauses().await;
        scene.attempted(attempts).await;
        assert_eq!(scene.notices().await, expected);
    }
    assert!(!scene.is_active().await);
}

#[tokio::test]
async fn both_secrets_verify_during_a_rotation() {
    let scene = Scene::new(|_, _| Reply::Status(200)).await;
    let rotated = async || scene.manage("POST", "/rotate", &Value::Null).await.ok(200)["nextSecret"].clone();
    let [dead, next] = [rotated().await, rotated().await].map(|secret| secret.as_str().unwrap().to_owned());
    scene.ping().await;
    let check = |got: &Got, secret: &str| {
        verify(secret, got.header("svc-signature").unwrap(), got.body.as_bytes(), now(), 300).is_ok()
    };
    let got = scene.received(1).await;
    assert_eq!(
        (check(&got[0], &scene.secret), check(&got[0], &next), check(&got[0], &dead)),
        (true, true, false)
    );
    scene.harness.run("update webhook_endpoint set grace_expires_at = now()").await;
    scene.ping().await;
    let got = scene.received(2).await;
    assert_eq!((check(&got[1], &scene.secret), check(&got[1], &next)), (false, true));
}

#[tokio::test]
async fn a_hanging_endpoint_does_not_delay_another() {
    let scene = Scene::new(|_, _| Reply::Never).await;
    let healthy =
        Receiver::start(&scene.authority, ReceiverManner::default(), |_, _| Reply::Status(200)).await;
    register(&scene.harness, &scene.harness.globex, &healthy.url("127.0.0.1")).await;
    for _ in 0..40 {
        scene.ping().await;
    }
    for _ in 0..10 {
        scene.harness.submit(&scene.harness.globex, &order()).await.ok(202);
    }
    wait_for("the healthy one", || async { (healthy.count() == 10).then_some(()) }).await;
    // After its first time-outs the other endpoint gets one request at a time.
    assert!(scene.receiver.count() < 40);
}

#[tokio::test]
async fn a_test_key_can_request_a_sample_event_of_any_type() {
    let scene = Scene::new(|_, _| Reply::Status(200)).await;
    let ask = |keys, kind: &str| Call::manage(keys, "POST", &format!("{PATH}/test"), &json!({"type": kind}));
    let event = scene.harness.send(&ask(&scene.harness.acme, "payout.failed")).await.ok(202);
    let got = scene.received(1).await.remove(0);
    let body: Value = serde_json::from_str(&got.body).unwrap();
    assert_eq!((&body["id"], &body["type"]), (&event["eventId"], &json!("payout.failed")));
    assert_eq!(
        (&body["livemode"], &body["data"]["object"]["status"]),
        (&json!(false), &json!("payout.failed"))
    );
    assert_eq!(body["data"]["object"]["failure"]["stage"], "payout");
    scene.harness.send(&ask(&scene.harness.acme, "payout.unknown")).await.refused(400, "INVALID_TYPE");
    register(&scene.harness, &scene.harness.acme_live, &scene.receiver.url("127.0.0.1")).await;
    scene
        .harness
        .send(&ask(&scene.harness.acme_live, "payout.failed"))
        .await
        .refused(400, "INVALID_PARAMETER");
}

/// Stands for the resolver: no name but the probe's resolves, and that one only while the resolver works.
struct NoNames {
    works: AtomicBool,
}

impl Names for NoNames {
    fn look_up<'a>(&'a self, name: &'a str) -> LookUp<'a> {
        let failed =
            |text: &str| Err(std::io::Error::other(format!("failed to lookup address information: {text}")));
        let answer = match (self.works.load(Ordering::Relaxed), name) {
            (true, "probe.example") => Ok(vec![IpAddr::from([192, 0, 2, 1])]),
            (true, "gone.example") => failed("Name or service not known"),
            (true, "empty.example") => Ok(Vec::new()),
            _ => failed("Temporary failure in name resolution"),
        };
        Box::pin(async move { answer })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_that_does_not_resolve_is_our_fault_only_if_none_resolves() {
    let mut scene = Scene::new(|_, _| Reply::Status(200)).await;
    for (host, works) in
        [("gone", true), ("empty", true), ("broken", true), ("gone", false), ("broken", false)]
    {
        scene.stop.cancel();
        let url = json!({"url": format!("https://{host}.example/hook")});
        scene.manage("PATCH", "", &url).await.ok(200);
        let names = Arc::new(NoNames { works: AtomicBool::new(works) });
        let probe_name = "probe.example".to_owned();
        scene.start_with(DeliveryConfig { names, probe_name, ..config(&scene.authority) });
        let event = scene.ping().await;
        let attempts = wait_for("the delivery to be put off", || async {
            let queued = "select attempts, due_at > clock_timestamp() + interval '10 seconds' \
                          from webhook_queue where event_id = $1";
            let row = scene.harness.rows_of::<(i32, bool)>(queued, &event).await.pop();
            row.filter(|(_, waits)| *waits).map(|(attempts, _)| attempts)
        })
        .await;
        let logged = scene.log().await.into_iter().find(|one| one["eventId"] == event.as_str()).unwrap();
        let errors: Vec<&str> =
            logged["attempts"].as_array().unwrap().iter().map(|one| one["error"].as_str().unwrap()).collect();
        let expected = if works { vec!["dns"] } else { Vec::new() };
        assert_eq!((attempts, errors), (i32::from(works), expected), "{host}, resolver works: {works}");
    }
}

/// Leads to this machine at the first look-up and to a private address from then on.
#[derive(Default)]
struct Rebinding(AtomicUsize);

impl Names for Rebinding {
    fn look_up<'a>(&'a self, _name: &'a str) -> LookUp<'a> {
        let is_first = self.0.fetch_add(1, Ordering::Relaxed) == 0;
        let address = if is_first { [127, 0, 0, 1] } else { [127, 0, 0, 2] };
        Box::pin(async move { Ok(vec![IpAddr::from(address)]) })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_that_leads_to_a_private_address_later_is_refused_then() {
    let manner = ReceiverManner { names: vec!["rebinding.test"], ..ReceiverManner::default() };
    // It hangs up, so that the next attempt needs another look-up.
    let mut scene = Scene::before_delivery(manner, |_, _| Reply::HangUp).await;
    let url = json!({"url": scene.receiver.url("rebinding.test")});
    scene.manage("PATCH", "", &url).await.ok(200);
    let names = Arc::new(Rebinding::default());
    scene.start_with(DeliveryConfig { names, ..config(&scene.authority) });
    scene.ping().await;
    assert_eq!(scene.attempted(1).await["attempts"][0]["error"], "closed");
    scene.skip_pauses().await;
    assert_eq!(scene.attempted(2).await["attempts"][1]["error"], "address_refused");
    assert_eq!(scene.receiver.count(), 1);
}

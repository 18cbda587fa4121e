//! A store that fails: the connection ends, the session does not.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use dvp_fix::{
    SeqNum,
    codec::{Body, MessageRef, MsgType},
    session::Stored,
};
use dvp_fix_gateway::{Application, Commit, Numbers, Reach, Turn, Unavailable};
use metrics_exporter_prometheus::PrometheusBuilder;

use super::served::{ORDER, Served};

/// Answers every order, and stores none until the numbers are loaded for the second time.
struct Fickle {
    numbers: (SeqNum, SeqNum),
    loads: usize,
    /// Orders are not answered, and the numbers cannot be loaded for the second time.
    is_down: bool,
    /// The highest inbound number that was to be made durable, beside those of orders.
    persisted: Arc<AtomicU64>,
}

impl Fickle {
    fn new(is_down: bool) -> Self {
        let numbers = (SeqNum::FIRST, SeqNum::FIRST);
        Self { numbers, loads: 0, is_down, persisted: Arc::default() }
    }

    fn keep(&mut self, numbers: Numbers, messages: Vec<Stored>) -> Commit {
        self.numbers = (numbers.next_in, numbers.next_out);
        Box::pin(async move {
            tokio::task::yield_now().await;
            Ok(messages)
        })
    }
}

impl Application for Fickle {
    async fn load(&mut self) -> Result<(SeqNum, SeqNum), Unavailable> {
        self.loads += 1;
        Ok(self.numbers)
    }

    async fn reach(&mut self) -> Result<Reach, Unavailable> {
        if self.is_down && self.loads > 1 {
            return Err(Unavailable::new("down".to_owned()));
        }
        Ok(Reach::default())
    }

    async fn persist(&mut self, numbers: Numbers) -> Result<Commit, Unavailable> {
        self.persisted.fetch_max(numbers.next_in.0, Ordering::Relaxed);
        Ok(self.keep(numbers, Vec::new()))
    }

    async fn deliver(&mut self, _: MessageRef<'_>, turn: &mut Turn<'_>) -> Result<Commit, Unavailable> {
        if self.is_down {
            turn.numbers();
            return Ok(Box::pin(std::future::ready(Err(Unavailable::new("down".to_owned())))));
        }
        let (seq, sending_time) = (turn.reserve(), turn.sending_time());
        let numbers = turn.numbers();
        if self.loads == 1 {
            return Ok(Box::pin(async move {
                tokio::task::yield_now().await;
                Err(Unavailable::data("no such text".to_owned()))
            }));
        }
        let body = Body::new().field(45, "1").field(58, "stored").field(372, "D").field(380, "0");
        let message =
            Stored { seq, msg_type: MsgType::BUSINESS_MESSAGE_REJECT, body, sending_time, resend: true };
        Ok(self.keep(numbers, vec![message]))
    }
}

#[tokio::test]
async fn a_failed_commit_ends_the_connection_and_the_order_is_resent() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let figures = recorder.handle();
    let _guard = metrics::set_default_local_recorder(&recorder);
    let served = Served::start(Fickle::new(false)).await;
    let mut client = served.connect().await;
    client.log_on("").await;
    // Several at once, so that there is more in flight behind the one that fails.
    for _ in 0..3 {
        client.try_send("D", ORDER).await;
    }
    assert!(client.next().await.is_none(), "nothing is reported that was not stored");
    let figures = figures.render();
    for figure in [
        "dvp_fix_store_failures_total{session=\"FIX.4.4:DVP->ACME\",kind=\"data\"} 1",
        "dvp_fix_disconnects_total{session=\"FIX.4.4:DVP->ACME\",reason=\"data_failed\"} 1",
    ] {
        assert!(figures.contains(figure), "{figure} is missing:\n{figures}");
    }

    // The numbers of the orders were not used up: they come again.
    client.next_out = 2;
    client.log_on_when_let_in(served.addr, "").await;
    let answer = client.ask("D", ORDER, "j").await;
    assert_eq!(answer.text(58), Some("stored"));
    served.end().await;
}

#[tokio::test]
async fn a_session_whose_numbers_could_not_be_loaded_again_keeps_none() {
    let app = Fickle::new(true);
    let persisted = Arc::clone(&app.persisted);
    let served = Served::start(app).await;
    let mut client = served.connect().await;
    client.log_on("").await;
    // Later messages show that the peer has received the Logon's answer, which is not durable yet.
    client.send("0", "").await;
    tokio::time::sleep(Duration::from_millis(2_100)).await;
    client.send("0", "").await;
    client.try_send("D", ORDER).await;
    assert!(client.next().await.is_none());
    served.end().await;
    assert_eq!(persisted.load(Ordering::Relaxed), 4, "the order was not stored: the peer sends it again");
}

#[tokio::test]
async fn a_peer_that_resets_in_a_loop_is_delayed_and_answered_each_time() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let figures = recorder.handle();
    let _guard = metrics::set_default_local_recorder(&recorder);
    let served = Served::start(Fickle::new(false)).await;
    let mut client = served.connect().await;
    let mut delayed: u64 = 0;
    for _ in 0..100 {
        client.next_out = 1;
        client.received.clear();
        let answer = client.log_on("141=Y").await;
        assert_eq!((answer.seq().unwrap().0, answer.is_yes(141)), (1, true));
        let figures = figures.render();
        let figure = "dvp_fix_resets_delayed_total{session=\"FIX.4.4:DVP->ACME\"} ";
        delayed =
            figures.lines().find_map(|line| line.strip_prefix(figure)).map_or(0, |n| n.parse().unwrap());
        if delayed > 0 {
            break;
        }
    }
    assert_eq!(delayed, 1);
    client.send("1", "112=goes on").await;
    assert_eq!(client.expect("0").await.text(112), Some("goes on"));
    served.end().await;
}

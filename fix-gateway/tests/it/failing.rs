//! A store that fails: the connection ends, the session does not.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use dvp_fix::{
    SeqNum,
    codec::{Body, MessageRef, MsgType},
    dictionary::Rules,
    session::{ResendSlice, SessionConfig, Stored},
};
use dvp_fix_gateway::{
    Application, Commit, Directory, Driver, Numbers, Reach, SessionKey, Turn, Unavailable, acceptor,
};
use metrics_exporter_prometheus::PrometheusBuilder;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::client::Client;

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
    fn keep(&mut self, numbers: Numbers, messages: Vec<Stored>) -> Commit {
        self.numbers = (numbers.next_in, numbers.next_out);
        Commit::under_way(async move {
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
            return Ok(Commit::under_way(std::future::ready(Err(Unavailable::new("down".to_owned())))));
        }
        let (seq, sending_time) = (turn.reserve(), turn.sending_time());
        let numbers = turn.numbers();
        if self.loads == 1 {
            return Ok(Commit::under_way(async move {
                tokio::task::yield_now().await;
                Err(Unavailable::data("no such text".to_owned()))
            }));
        }
        let body = Body::new().field(45, "1").field(58, "stored").field(372, "D").field(380, "0");
        let message =
            Stored { seq, msg_type: MsgType::BUSINESS_MESSAGE_REJECT, body, sending_time, resend: true };
        Ok(self.keep(numbers, vec![message]))
    }

    async fn refuse(
        &mut self,
        message: MessageRef<'_>,
        _: &str,
        turn: &mut Turn<'_>,
    ) -> Result<Commit, Unavailable> {
        self.deliver(message, turn).await
    }

    fn is_about_earlier(&self, _: MessageRef<'_>) -> bool {
        false
    }

    async fn stored(&mut self, _: ResendSlice) -> Result<Vec<Stored>, Unavailable> {
        Ok(Vec::new())
    }

    async fn wait_for_reports(&mut self) {
        std::future::pending().await
    }

    async fn report(&mut self, _: &mut Turn<'_>) -> Result<Option<Commit>, Unavailable> {
        Ok(None)
    }

    fn connected(&mut self, _: bool) {}
}

/// A session on a socket of its own.
async fn serve() -> (SocketAddr, CancellationToken, JoinSet<()>) {
    let numbers = (SeqNum::FIRST, SeqNum::FIRST);
    serve_over(Fickle { numbers, loads: 0, is_down: false, persisted: Arc::default() }).await
}

async fn serve_over(app: Fickle) -> (SocketAddr, CancellationToken, JoinSet<()>) {
    let directory = Directory::default();
    let rules = Rules::strict("FIX.4.4", "FIX.4.4").unwrap();
    let config = SessionConfig::new("FIX.4.4", "DVP", "ACME", rules);
    let attach = directory.announce(SessionKey {
        begin_string: "FIX.4.4".to_owned(),
        peer_comp_id: "ACME".to_owned(),
        our_comp_id: "DVP".to_owned(),
    });
    let stop = CancellationToken::new();
    let mut tasks = JoinSet::new();
    tasks.spawn(Driver::new(app, config, attach).run(stop.clone()));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    tasks.spawn(acceptor::accept(listener, directory, stop.clone()));
    (addr, stop, tasks)
}

#[tokio::test]
async fn a_failed_commit_ends_the_connection_and_the_order_is_resent() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let figures = recorder.handle();
    let _guard = metrics::set_default_local_recorder(&recorder);
    let (addr, stop, tasks) = serve().await;
    let order = "11=A|21=1|38=1|40=1|54=1|55=USDC/USD|60=20261121-12:00:40";
    let mut client = Client::connect(addr, "FIX.4.4", "ACME").await;
    client.log_on("").await;
    // Several at once, so that there is more in flight behind the one that fails.
    for _ in 0..3 {
        client.try_send("D", order).await;
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
    tokio::time::timeout(Duration::from_secs(120), async {
        loop {
            client.reconnect(addr).await;
            client.send("A", "98=0|108=30").await;
            if client.next().await.is_some() {
                break;
            }
            client.next_out = 2;
        }
    })
    .await
    .expect("the session is there again");
    client.send("D", order).await;
    let answer = client.expect("j").await;
    assert_eq!(answer.text(58), Some("stored"));
    stop.cancel();
    tasks.join_all().await;
}

#[tokio::test]
async fn a_session_whose_numbers_could_not_be_loaded_again_keeps_none() {
    let persisted = Arc::new(AtomicU64::new(0));
    let app = Fickle {
        numbers: (SeqNum::FIRST, SeqNum::FIRST),
        loads: 0,
        is_down: true,
        persisted: Arc::clone(&persisted),
    };
    let (addr, stop, tasks) = serve_over(app).await;
    let mut client = Client::connect(addr, "FIX.4.4", "ACME").await;
    client.log_on("").await;
    // Later messages show that the peer has received the Logon's answer, which is not durable yet.
    client.send("0", "").await;
    tokio::time::sleep(Duration::from_millis(2_100)).await;
    client.send("0", "").await;
    client.try_send("D", "11=A|21=1|38=1|40=1|54=1|55=USDC/USD|60=20261121-12:00:40").await;
    assert!(client.next().await.is_none());
    stop.cancel();
    tasks.join_all().await;
    assert_eq!(persisted.load(Ordering::Relaxed), 4, "the order was not stored: the peer sends it again");
}

#[tokio::test]
async fn a_peer_that_resets_in_a_loop_is_delayed_and_answered_each_time() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let figures = recorder.handle();
    let _guard = metrics::set_default_local_recorder(&recorder);
    let (addr, stop, tasks) = serve().await;
    let mut client = Client::connect(addr, "FIX.4.4", "ACME").await;
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
    stop.cancel();
    tasks.join_all().await;
}

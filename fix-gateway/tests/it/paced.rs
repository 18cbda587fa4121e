//! Reads and resends at a limited pace lose and reorder nothing.

use std::time::Duration;

use dvp_fix::{
    SeqNum,
    codec::{Body, MessageRef, MsgType},
    dictionary::Rules,
    session::{SessionConfig, Stored},
};
use dvp_fix_gateway::{
    Application, BytePace, Commit, Directory, Driver, Numbers, SessionKey, Turn, Unavailable, acceptor,
    store::{Allowance, MemoryStore},
};
use tokio_util::sync::CancellationToken;

use crate::client::Client;

/// Answers every order with a long report.
struct Talker {
    memory: MemoryStore,
}

impl Application for Talker {
    async fn load(&mut self) -> Result<(SeqNum, SeqNum), Unavailable> {
        Ok(self.memory.numbers())
    }

    async fn persist(&mut self, numbers: Numbers) -> Result<Commit, Unavailable> {
        self.memory.count(numbers);
        Ok(Commit::Ready)
    }

    async fn deliver(&mut self, _: MessageRef<'_>, turn: &mut Turn<'_>) -> Result<Commit, Unavailable> {
        let (seq, sending_time) = (turn.reserve(), turn.sending_time());
        let body = Body::new().field(58, "x".repeat(2_000));
        self.memory.keep(seq, MsgType::EXECUTION_REPORT, sending_time, &body);
        turn.transmit(seq, MsgType::EXECUTION_REPORT, body);
        self.memory.count(turn.numbers());
        Ok(Commit::Ready)
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

    async fn stored(&mut self, from: SeqNum, to: SeqNum) -> Result<Vec<Stored>, Unavailable> {
        Ok(self.memory.stored(from, to))
    }

    async fn wait_for_reports(&mut self) {
        std::future::pending().await
    }

    async fn report(&mut self, _: &mut Turn<'_>) -> Result<Option<Commit>, Unavailable> {
        Ok(None)
    }

    fn connected(&mut self, _: bool) {}
}

type Ended = tokio::task::JoinHandle<()>;

/// A session of a talker, changed by `paced`, and a client that has logged on.
async fn session(
    paced: impl FnOnce(Driver<Talker>) -> Driver<Talker>,
) -> (Client, CancellationToken, Ended, Ended) {
    let directory = Directory::default();
    let rules = Rules::strict("FIX.4.4", "FIX.4.4").unwrap();
    let config = SessionConfig { resend_slice: 5, ..SessionConfig::new("FIX.4.4", "DVP", "ACME", rules) };
    let attach = directory.announce(SessionKey {
        begin_string: "FIX.4.4".to_owned(),
        peer_comp_id: "ACME".to_owned(),
        our_comp_id: "DVP".to_owned(),
    });
    let stop = CancellationToken::new();
    let app = Talker { memory: MemoryStore::new(Allowance::of_bytes(1 << 20)) };
    let driver = tokio::spawn(paced(Driver::new(app, config, attach)).run(stop.clone()));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let listener = tokio::spawn(acceptor::accept(listener, directory, stop.clone()));
    let mut client = Client::connect(addr, "FIX.4.4", "ACME").await;
    client.is_strict = false;
    client.log_on("").await;
    (client, stop, driver, listener)
}

const ORDER: &str = "11=A|21=1|38=1|40=1|54=1|55=USDC/USD|60=20261121-12:00:40";

#[tokio::test]
async fn a_paced_resend_is_complete_and_uninterrupted() {
    // Two slices at once; the others some milliseconds apart.
    let pace = BytePace { bytes_per_second: 400_000, burst_bytes: 20_000 };
    let (mut client, stop, driver, listener) = session(|driver| driver.with_resend_pace(pace)).await;
    for seq in 2..=40 {
        client.send("D", ORDER).await;
        assert_eq!(client.expect("8").await.seq(), Some(SeqNum(seq)));
    }
    client.send("2", "7=2|16=0").await;
    // Read while the resend waits for its time, or after it: answered after it in any case.
    client.send("D", ORDER).await;
    for seq in 2..=40 {
        let again = client.expect("8").await;
        assert_eq!((again.seq(), again.text(43)), (Some(SeqNum(seq)), Some("Y")));
    }
    let answer = client.expect("8").await;
    assert_eq!((answer.seq(), answer.text(43)), (Some(SeqNum(41)), None));
    stop.cancel();
    driver.await.unwrap();
    listener.await.unwrap();
}

/// Orders of a thousand bytes each, sent at once.
const FLOOD: usize = 200;

async fn flood(client: &mut Client) {
    let order = format!("{ORDER}|58={}", "x".repeat(900));
    for _ in 0..FLOOD {
        client.send("D", &order).await;
    }
}

#[tokio::test]
async fn messages_over_the_pace_are_left_unread() {
    let pace = BytePace { bytes_per_second: 1, burst_bytes: 20_000 };
    let (mut client, stop, driver, listener) = session(|driver| driver.with_read_pace(pace)).await;
    flood(&mut client).await;
    let mut answered = 0;
    while tokio::time::timeout(Duration::from_secs(1), client.expect("8")).await.is_ok() {
        answered += 1;
    }
    // The burst, and one read more.
    assert!((15..=85).contains(&answered), "{answered} of {FLOOD} orders were read");
    stop.cancel();
    client.expect("5").await;
    drop(client);
    driver.await.unwrap();
    listener.await.unwrap();
}

#[tokio::test]
async fn messages_over_the_pace_are_read_eventually() {
    let pace = BytePace { bytes_per_second: 1_000_000, burst_bytes: 20_000 };
    let (mut client, stop, driver, listener) = session(|driver| driver.with_read_pace(pace)).await;
    flood(&mut client).await;
    for seq in 2..=FLOOD + 1 {
        assert_eq!(client.expect("8").await.seq(), Some(SeqNum(seq.try_into().unwrap())));
    }
    stop.cancel();
    driver.await.unwrap();
    listener.await.unwrap();
}

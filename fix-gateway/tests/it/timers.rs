//! Session timers beside frames that never pause and an application that takes its time.

use std::time::{Duration, Instant};

use dvp_fix::{
    SeqNum,
    codec::MessageRef,
    dictionary::Rules,
    session::{ResendSlice, SessionConfig, Stored},
};
use dvp_fix_gateway::{
    Application, Commit, Directory, Driver, Numbers, SessionKey, Turn, Unavailable, acceptor,
    store::{Allowance, MemoryStore},
};
use tokio_util::sync::CancellationToken;

use crate::client::Client;

const ORDER: &str = "11=A|21=1|38=1|40=1|54=1|55=USDC/USD|60=20261121-12:00:40";

/// Takes its time over each order, and answers none.
struct Slow {
    memory: MemoryStore,
    each: Duration,
}

impl Application for Slow {
    async fn load(&mut self) -> Result<(SeqNum, SeqNum), Unavailable> {
        Ok(self.memory.numbers())
    }

    async fn persist(&mut self, numbers: Numbers) -> Result<Commit, Unavailable> {
        self.memory.count(numbers);
        Ok(Commit::Ready)
    }

    async fn deliver(&mut self, _: MessageRef<'_>, turn: &mut Turn<'_>) -> Result<Commit, Unavailable> {
        tokio::time::sleep(self.each).await;
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

    async fn stored(&mut self, slice: ResendSlice) -> Result<Vec<Stored>, Unavailable> {
        Ok(self.memory.stored(slice))
    }

    async fn wait_for_reports(&mut self) {
        std::future::pending().await
    }

    async fn report(&mut self, _: &mut Turn<'_>) -> Result<Option<Commit>, Unavailable> {
        Ok(None)
    }

    fn connected(&mut self, _: bool) {}
}

#[tokio::test]
async fn heartbeats_are_sent_while_a_burst_is_processed() {
    let directory = Directory::default();
    let rules = Rules::strict("FIX.4.4", "FIX.4.4").unwrap();
    let attach = directory.announce(SessionKey {
        begin_string: "FIX.4.4".to_owned(),
        peer_comp_id: "ACME".to_owned(),
        our_comp_id: "DVP".to_owned(),
    });
    let stop = CancellationToken::new();
    let memory = MemoryStore::new(Allowance::of_bytes(1 << 20));
    let app = Slow { memory, each: Duration::from_millis(400) };
    let config = SessionConfig::new("FIX.4.4", "DVP", "ACME", rules);
    let driver = tokio::spawn(Driver::new(app, config, attach).run(stop.clone()));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let listener = tokio::spawn(acceptor::accept(listener, directory, stop.clone()));

    let mut client = Client::connect(addr, "FIX.4.4", "ACME").await;
    client.send("A", "98=0|108=1").await;
    client.expect("A").await;
    // Eight seconds' worth of work arrives at once; the peer gives a silent side up after 2.4 of them.
    for _ in 0..20 {
        client.send("D", ORDER).await;
    }
    client.send("1", "112=done").await;
    let (mut heartbeats, mut longest, mut received_at) = (0, Duration::ZERO, Instant::now());
    loop {
        let message = client.next().await.expect("the session goes on");
        longest = longest.max(received_at.elapsed());
        received_at = Instant::now();
        match message.text(35) {
            Some("0") if message.text(112) == Some("done") => break,
            Some("0") => heartbeats += 1,
            // A TestRequest goes to a silent peer: this one is, when the machine stalls.
            Some("1") => {}
            other => panic!("{other:?}"),
        }
    }
    assert!(heartbeats >= 3, "{heartbeats} heartbeats, {longest:?} without any");
    stop.cancel();
    driver.await.unwrap();
    listener.await.unwrap();
}

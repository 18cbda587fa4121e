//! Session timers beside frames that never pause and an application that takes its time.

use std::time::{Duration, Instant};

use dvp_fix::{
    SeqNum,
    codec::MessageRef,
    session::{ResendSlice, Stored},
};
use dvp_fix_gateway::{Application, Commit, Numbers, Turn, Unavailable, store::MemoryStore};

use super::served::{ORDER, Served};

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
        Ok(self.memory.commit(numbers, Vec::new()))
    }

    async fn deliver(&mut self, _: MessageRef<'_>, turn: &mut Turn<'_>) -> Result<Commit, Unavailable> {
        tokio::time::sleep(self.each).await;
        Ok(self.memory.commit(turn.numbers(), Vec::new()))
    }

    async fn stored(&mut self, slice: ResendSlice) -> Result<Vec<Stored>, Unavailable> {
        Ok(self.memory.stored(slice))
    }
}

#[tokio::test]
async fn heartbeats_are_sent_while_a_burst_is_processed() {
    let memory = MemoryStore::new(1 << 20);
    let served = Served::start(Slow { memory, each: Duration::from_millis(400) }).await;
    let mut client = served.connect().await;
    client.ask("A", "98=0|108=1", "A").await;
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
    served.end().await;
}

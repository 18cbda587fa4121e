//! Reads and resends at a limited pace lose and reorder nothing.

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use dvp_fix::{
    SeqNum,
    codec::{Body, MessageRef, MsgType},
    session::{ResendSlice, SessionConfig, Stored},
};
use dvp_fix_gateway::{Application, Commit, Driver, Numbers, Pace, Turn, Unavailable, store::MemoryStore};

use super::{
    client::Client,
    served::{ORDER, Served, config},
};

/// A call of the application.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Call {
    Stored,
    Chore,
}

/// Answers every order with a long report. Has other work to do as soon as a resend has begun.
struct Talker {
    memory: MemoryStore,
    calls: Arc<Mutex<Vec<Call>>>,
}

impl Talker {
    fn new() -> Self {
        Self { memory: MemoryStore::new(1 << 20), calls: Arc::default() }
    }
}

impl Application for Talker {
    async fn load(&mut self) -> Result<(SeqNum, SeqNum), Unavailable> {
        Ok(self.memory.numbers())
    }

    async fn persist(&mut self, numbers: Numbers) -> Result<Commit, Unavailable> {
        Ok(self.memory.commit(numbers, Vec::new()))
    }

    async fn deliver(&mut self, _: MessageRef<'_>, turn: &mut Turn<'_>) -> Result<Commit, Unavailable> {
        let (seq, sending_time) = (turn.reserve(), turn.sending_time());
        let body = Body::new().field(58, "x".repeat(2_000));
        let report = self.memory.keep(seq, MsgType::EXECUTION_REPORT, sending_time, body);
        Ok(self.memory.commit(turn.numbers(), vec![report]))
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let is_due = *self.calls.lock().unwrap() == [Call::Stored];
        // Long past, whatever the resolution of the timer.
        Instant::now().checked_sub(Duration::from_secs(1)).filter(|_| is_due)
    }

    async fn handle_timeout(&mut self, _: &mut Turn<'_>) -> Result<Option<Commit>, Unavailable> {
        self.calls.lock().unwrap().push(Call::Chore);
        Ok(None)
    }

    async fn stored(&mut self, slice: ResendSlice) -> Result<Vec<Stored>, Unavailable> {
        self.calls.lock().unwrap().push(Call::Stored);
        Ok(self.memory.stored(slice))
    }
}

/// A session of a talker, changed by `paced`, and a client that has logged on.
async fn session(app: Talker, paced: impl FnOnce(Driver<Talker>) -> Driver<Talker>) -> (Client, Served) {
    let config = SessionConfig { resend_slice: 5, ..config() };
    let served = Served::start_as(app, config, paced).await;
    let mut client = served.connect().await;
    client.is_strict = false;
    client.log_on("").await;
    (client, served)
}

#[tokio::test]
async fn a_paced_resend_is_complete_and_uninterrupted() {
    // Two slices at once; the others some milliseconds apart.
    let pace = Pace::per_second(400_000, 20_000);
    let (mut client, served) = session(Talker::new(), |driver| driver.with_resend_pace(pace)).await;
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
    drop(client);
    served.end().await;
}

#[tokio::test]
async fn other_work_is_done_between_the_slices_of_a_resend() {
    let app = Talker::new();
    let calls = Arc::clone(&app.calls);
    let (mut client, served) = session(app, |driver| driver).await;
    for seq in 2..=21 {
        client.send("D", ORDER).await;
        assert_eq!(client.expect("8").await.seq(), Some(SeqNum(seq)));
    }
    client.send("2", "7=2|16=0").await;
    for seq in 2..=21 {
        assert_eq!(client.expect("8").await.seq(), Some(SeqNum(seq)));
    }
    let calls = calls.lock().unwrap().clone();
    assert_eq!(calls, [Call::Stored, Call::Chore, Call::Stored, Call::Stored, Call::Stored]);
    drop(client);
    served.end().await;
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
    let pace = Pace::per_second(1, 20_000);
    let (mut client, served) = session(Talker::new(), |driver| driver.with_read_pace(pace)).await;
    flood(&mut client).await;
    let mut answered = 0;
    while tokio::time::timeout(Duration::from_secs(4), client.expect("8")).await.is_ok() {
        answered += 1;
    }
    // The burst, and one read more.
    assert!((15..=85).contains(&answered), "{answered} of {FLOOD} orders were read");
    drop(client);
    served.end().await;
}

#[tokio::test]
async fn messages_over_the_pace_are_read_eventually() {
    let pace = Pace::per_second(1_000_000, 20_000);
    let (mut client, served) = session(Talker::new(), |driver| driver.with_read_pace(pace)).await;
    flood(&mut client).await;
    for seq in 2..=FLOOD + 1 {
        assert_eq!(client.expect("8").await.seq(), Some(SeqNum(seq.try_into().unwrap())));
    }
    drop(client);
    served.end().await;
}

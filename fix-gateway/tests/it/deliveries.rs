//! Deliveries and commits: a message's number is durable no earlier than its effect, and no broken connection loses a
//! counted message.

use std::{sync::Arc, time::Duration};

use dvp_fix::{
    SeqNum,
    codec::{Body, MessageRef, MsgType},
    session::{SessionConfig, Stored},
};
use dvp_fix_gateway::{Application, Commit, Numbers, Turn, Unavailable};
use tokio::{
    net::TcpStream,
    sync::{Semaphore, mpsc},
};

use super::{
    client::Client,
    served::{ORDER, Served, config},
};

const CANCEL: &str = "11=B|41=A|38=1|54=1|55=USDC/USD|60=20261121-12:00:40";

/// A call of the application.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// Numbers that belong to no message become durable.
    Persisted {
        next_in: SeqNum,
    },
    /// Is the message about earlier ones?
    Asked(SeqNum),
    Delivered(SeqNum),
}

/// Records its calls. Answers every message, once the test lets the commit end. A cancel is about earlier messages.
struct Recording {
    numbers: (SeqNum, SeqNum),
    steps: mpsc::UnboundedSender<Step>,
    /// A permit for each delivery whose commit may end.
    may_commit: Arc<Semaphore>,
}

impl Recording {
    fn note(&self, step: Step) {
        self.steps.send(step).unwrap();
    }
}

impl Application for Recording {
    async fn load(&mut self) -> Result<(SeqNum, SeqNum), Unavailable> {
        Ok(self.numbers)
    }

    async fn persist(&mut self, numbers: Numbers) -> Result<Commit, Unavailable> {
        self.note(Step::Persisted { next_in: numbers.next_in });
        Ok(Box::pin(async { Ok(Vec::new()) }))
    }

    async fn deliver(&mut self, message: MessageRef<'_>, turn: &mut Turn<'_>) -> Result<Commit, Unavailable> {
        self.note(Step::Delivered(message.seq().unwrap()));
        let (seq, sending_time) = (turn.reserve(), turn.sending_time());
        turn.numbers();
        let body = Body::new()
            .number(45, message.seq().unwrap().0)
            .field(58, "delivered")
            .field(372, message.msg_type())
            .field(380, "0");
        let answer =
            Stored { seq, msg_type: MsgType::BUSINESS_MESSAGE_REJECT, body, sending_time, resend: true };
        let may_commit = Arc::clone(&self.may_commit);
        Ok(Box::pin(async move {
            may_commit.acquire().await.unwrap().forget();
            Ok(vec![answer])
        }))
    }

    fn is_about_earlier(&self, message: MessageRef<'_>) -> bool {
        self.note(Step::Asked(message.seq().unwrap()));
        message.msg_type() == b"F"
    }
}

/// A session, and the calls of its application.
struct Recorded {
    served: Served,
    steps: mpsc::UnboundedReceiver<Step>,
    seen: Vec<Step>,
    may_commit: Arc<Semaphore>,
}

impl Recorded {
    async fn start(next_in: u64, next_out: u64) -> Self {
        let may_commit = Arc::new(Semaphore::new(0));
        let (noted, steps) = mpsc::unbounded_channel();
        let numbers = (SeqNum(next_in), SeqNum(next_out));
        let app = Recording { numbers, steps: noted, may_commit: Arc::clone(&may_commit) };
        let config = SessionConfig { last_msg_seq_num_processed: true, ..config() };
        let served = Served::start_as(app, config, |driver| driver).await;
        Self { served, steps, seen: Vec::new(), may_commit }
    }

    /// Waits for this call.
    async fn until(&mut self, step: Step) {
        let waited = tokio::time::timeout(Duration::from_secs(120), async {
            while self.seen.last() != Some(&step) {
                self.seen.push(self.steps.recv().await.unwrap());
            }
        });
        waited.await.unwrap_or_else(|_| panic!("no {step:?}: {:?}", self.seen));
    }

    /// Ends the session, whose client has disconnected. Returns all calls.
    async fn end(mut self) -> Vec<Step> {
        self.served.end().await;
        while let Some(step) = self.steps.recv().await {
            self.seen.push(step);
        }
        self.seen
    }
}

/// A message whose number was made durable before its delivery would be lost by a stop in between.
fn assert_no_number_precedes_its_message(steps: &[Step]) {
    let mut durable = SeqNum(0);
    for step in steps {
        match *step {
            Step::Persisted { next_in } => durable = durable.max(next_in),
            Step::Delivered(seq) => assert!(durable <= seq, "{seq} was durable before: {steps:?}"),
            Step::Asked(_) => {}
        }
    }
}

#[tokio::test]
async fn a_number_is_not_durable_before_its_message_is_delivered() {
    let mut recorded = Recorded::start(8, 1).await;
    let mut client = recorded.served.connect().await;
    client.next_out = 10;
    client.log_on("").await;
    assert_eq!(client.expect("2").await.text(7), Some("8"));
    client.send("1", "112=queued").await;
    client.send("D", ORDER).await;
    // Then the Logon, the TestRequest and the order are processed at once.
    client.send_as(8, Some(Client::utc()), "4", "36=10|123=Y").await;
    // It precedes the commit of the order, which the peer must not discard yet.
    let heartbeat = client.expect("0").await;
    assert_eq!((heartbeat.text(112), heartbeat.text(369)), (Some("queued"), Some("11")));
    recorded.until(Step::Delivered(SeqNum(12))).await;
    recorded.may_commit.add_permits(1);
    let answer = client.expect("j").await;
    assert_eq!((answer.text(45), answer.text(369)), (Some("12"), Some("12")));
    drop(client);
    assert_no_number_precedes_its_message(&recorded.end().await);
}

#[tokio::test]
async fn a_heartbeat_before_a_cancel_is_counted_without_it() {
    let mut recorded = Recorded::start(1, 1).await;
    let mut client = recorded.served.connect().await;
    client.log_on("").await;
    client.send("D", ORDER).await;
    client.send("0", "").await;
    client.send("F", CANCEL).await;
    // It waits for the commit of the order.
    recorded.until(Step::Asked(SeqNum(4))).await;
    recorded.may_commit.add_permits(2);
    for seq in ["2", "4"] {
        assert_eq!(client.expect("j").await.text(45), Some(seq));
    }
    drop(client);
    let steps = recorded.end().await;
    assert!(steps.contains(&Step::Persisted { next_in: SeqNum(4) }), "{steps:?}");
    assert_no_number_precedes_its_message(&steps);
}

#[tokio::test]
async fn a_message_is_delivered_though_its_connection_breaks_before() {
    let mut recorded = Recorded::start(1, 1).await;
    let stream = TcpStream::connect(recorded.served.addr).await.unwrap();
    stream.set_zero_linger().unwrap();
    let mut client = Client::over(stream, "FIX.4.4", "ACME");
    client.log_on("").await;
    client.send("D", ORDER).await;
    client.send("F", CANCEL).await;
    // The cancel waits for the commit of the order, whose answer meets a connection that was reset.
    recorded.until(Step::Asked(SeqNum(3))).await;
    client.reconnect(recorded.served.addr).await;
    recorded.may_commit.add_permits(2);
    // The cancel was counted, and is not requested.
    client.log_on("").await;
    client.send("1", "112=no gap").await;
    assert_eq!(client.expect("0").await.text(112), Some("no gap"));
    drop(client);
    let steps = recorded.end().await;
    let delivered = steps.iter().filter(|step| matches!(step, Step::Delivered(_)));
    let expected = [Step::Delivered(SeqNum(2)), Step::Delivered(SeqNum(3))];
    assert!(delivered.eq(&expected), "{steps:?}");
}

//! A FIX client that sends the given messages and checks every number it receives.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::LazyLock,
    time::{Duration, Instant, SystemTime},
};

use dvp_fix::{
    Precision, SeqNum, Stamp, UtcNanos,
    codec::{Body, Encoding, Framed, Framer, Head, Message, MsgType, encode},
    dictionary::{FieldDef, Kind, Rules},
};
use dvp_fix_gateway::dictionaries::OWN_FIELDS;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::TcpStream,
};

pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

const PATIENCE: Duration = Duration::from_secs(120);

/// The service's own fields beyond the standard, as published.
static OWN: LazyLock<Vec<(&str, FieldDef)>> = LazyLock::new(|| {
    let field = |own: &dvp_fix_gateway::dictionaries::OwnField| {
        (own.message, FieldDef { tag: own.tag, kind: Kind::Text, values: own.values })
    };
    let session_status = FieldDef { tag: 1409, kind: Kind::Integer, values: &[] };
    let later = ["5", "A"].map(|message| (message, session_status));
    OWN_FIELDS.iter().filter(|own| own.message == "8").map(field).chain(later).collect()
});

pub(crate) struct Client {
    stream: Box<dyn Stream>,
    framer: Framer,
    begin_string: &'static str,
    comp_id: &'static str,
    pub(crate) next_out: u64,
    /// The content of each number, across all connections: one number, one message.
    pub(crate) received: BTreeMap<u64, String>,
    has_failed: bool,
    /// Where it has connected anew, and is not logged on yet.
    again: Option<SocketAddr>,
    /// Must every received message conform to the version's dictionary? Messages of a test's own application do not.
    pub(crate) is_strict: bool,
    /// Of the text on the wire; a test reads and writes UTF-8.
    pub(crate) encoding: Encoding,
    /// Of SendingTime(52).
    pub(crate) precision: Precision,
}

/// `11=x|55=y` as a body.
pub(crate) fn fields(text: &str) -> Body {
    text.split('|').filter(|field| !field.is_empty()).fold(Body::new(), |body, field| {
        let (tag, value) = field.split_once('=').unwrap();
        body.field(tag.parse().unwrap(), value)
    })
}

impl Client {
    pub(crate) async fn connect(addr: SocketAddr, begin_string: &'static str, comp_id: &'static str) -> Self {
        Self::over(TcpStream::connect(addr).await.unwrap(), begin_string, comp_id)
    }

    /// Uses an existing connection.
    pub(crate) fn over(
        stream: impl Stream + 'static,
        begin_string: &'static str,
        comp_id: &'static str,
    ) -> Self {
        let (stream, framer) = (Box::new(stream), Framer::new(1 << 20));
        Self {
            stream,
            framer,
            begin_string,
            comp_id,
            next_out: 1,
            received: BTreeMap::new(),
            has_failed: false,
            again: None,
            is_strict: true,
            encoding: Encoding::Utf8,
            precision: Precision::Millis,
        }
    }

    /// Connects anew, with the numbers of before.
    pub(crate) async fn reconnect(&mut self, addr: SocketAddr) {
        self.stream = Box::new(TcpStream::connect(addr).await.unwrap());
        self.framer = Framer::new(1 << 20);
        self.again = Some(addr);
    }

    /// After a [`reconnect`](Self::reconnect) as soon as the session is free: that an earlier connection has ended is
    /// noticed a moment later.
    pub(crate) async fn log_on(&mut self, extra: &str) -> Message {
        let (seq, deadline) = (self.next_out, Instant::now() + PATIENCE);
        loop {
            let logon = self.encoded(seq, None, "A", &format!("98=0|108=30|{extra}"));
            let is_sent = self.stream.write_all(&logon).await.is_ok();
            if is_sent && let Some(answer) = self.next().await {
                assert_eq!(answer.text(35), Some("A"), "{answer:?}");
                self.next_out = seq + 1;
                self.again = None;
                return answer;
            }
            let addr = self.again.expect("connection ended, expected a Logon");
            assert!(Instant::now() < deadline, "not let in");
            tokio::time::sleep(Duration::from_millis(20)).await;
            self.reconnect(addr).await;
        }
    }

    /// Logs on as soon as the session is free and has an owner that is reached.
    pub(crate) async fn log_on_when_let_in(&mut self, addr: SocketAddr, extra: &str) -> Message {
        self.reconnect(addr).await;
        self.log_on(extra).await
    }

    /// Is a Logon refused, with no answer but the end of the connection?
    pub(crate) async fn is_refused(&mut self, extra: &str) -> bool {
        self.send_as(self.next_out, None, "A", &format!("98=0|108=30|{extra}")).await;
        self.next().await.is_none()
    }

    pub(crate) async fn log_out(&mut self) -> Message {
        self.ask("5", "", "5").await
    }

    pub(crate) fn forget_numbers(&mut self) {
        self.next_out = 1;
        self.received.clear();
    }

    /// Logs on, and requests what the service has sent, or stored for this client, since the last connection.
    pub(crate) async fn resume(&mut self, extra: &str) {
        let logon = self.log_on(extra).await.seq().unwrap().0;
        self.request_missed(logon).await;
    }

    /// Requests what was not received of the numbers before the service's Logon.
    pub(crate) async fn request_missed(&mut self, logon: u64) {
        if let Some(missed) = (1..logon).find(|seq| !self.received.contains_key(seq)) {
            self.send("2", &format!("7={missed}|16={}", logon - 1)).await;
        }
    }

    pub(crate) fn utc() -> UtcNanos {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        UtcNanos(u64::try_from(now.as_nanos()).unwrap())
    }

    pub(crate) async fn send(&mut self, msg_type: &str, body: &str) {
        let seq = self.next_out;
        self.next_out += 1;
        self.send_as(seq, None, msg_type, body).await;
    }

    /// A body of any bytes.
    pub(crate) async fn send_body(&mut self, msg_type: &str, body: &Body) {
        let seq = self.next_out;
        self.next_out += 1;
        let mut out = Vec::new();
        encode(&self.head(Self::utc(), seq, None, msg_type), body, &mut out);
        self.stream.write_all(&out).await.unwrap();
    }

    /// Sends on a connection that the peer may have closed already.
    pub(crate) async fn try_send(&mut self, msg_type: &str, body: &str) {
        let bytes = self.encoded(self.next_out, None, msg_type, body);
        self.next_out += 1;
        self.has_failed |= self.stream.write_all(&bytes).await.is_err();
    }

    /// Has a message found the connection closed?
    pub(crate) const fn has_failed(&self) -> bool {
        self.has_failed
    }

    /// The next message that is no heartbeat must be of one of these types.
    pub(crate) async fn expect_any(&mut self, msg_types: &[&str]) -> Message {
        loop {
            let message =
                self.next().await.unwrap_or_else(|| panic!("connection ended, expected {msg_types:?}"));
            if msg_types.contains(&message.text(35).unwrap()) {
                return message;
            }
            assert_eq!(message.text(35), Some("0"), "{message:?}");
        }
    }

    /// A Logon with number 1, `body` and a signature over the documented fields.
    pub(crate) fn signed_logon(&self, body: &str, sign: impl FnOnce(&[u8]) -> String) -> Vec<u8> {
        let at = Self::utc();
        let prehash = format!("{}\u{1}A\u{1}1\u{1}{}\u{1}DVP", at.to_millis_text(), self.comp_id);
        let signature = sign(prehash.as_bytes());
        self.encoded_at(at, 1, None, "A", &format!("{body}|95={}|96={signature}", signature.len()))
    }

    pub(crate) async fn send_raw(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
    }

    pub(crate) fn into_stream(self) -> Box<dyn Stream> {
        self.stream
    }

    /// Under a number of one's choice; a time makes it a possible duplicate.
    pub(crate) async fn send_as(&mut self, seq: u64, orig: Option<UtcNanos>, msg_type: &str, body: &str) {
        let bytes = self.encoded(seq, orig, msg_type, body);
        self.stream.write_all(&bytes).await.unwrap();
    }

    fn encoded(&self, seq: u64, orig: Option<UtcNanos>, msg_type: &str, body: &str) -> Vec<u8> {
        self.encoded_at(Self::utc(), seq, orig, msg_type, body)
    }

    fn encoded_at(
        &self,
        sending_time: UtcNanos,
        seq: u64,
        orig: Option<UtcNanos>,
        msg_type: &str,
        body: &str,
    ) -> Vec<u8> {
        let mut out = Vec::new();
        encode(&self.head(sending_time, seq, orig, msg_type), &fields(body), &mut out);
        out
    }

    fn head(
        &self,
        sending_time: UtcNanos,
        seq: u64,
        orig: Option<UtcNanos>,
        msg_type: &str,
    ) -> Head<'static> {
        Head {
            begin_string: self.begin_string,
            msg_type: MsgType::new(msg_type).unwrap(),
            seq: SeqNum(seq),
            sender_comp_id: self.comp_id,
            target_comp_id: "DVP",
            sending_time: Stamp { time: sending_time, precision: self.precision },
            orig_sending_time: orig.map(Into::into),
            last_processed: None,
        }
    }

    /// The next message, `None` when the connection has ended.
    pub(crate) async fn next(&mut self) -> Option<Message> {
        let read = async {
            loop {
                match self.framer.next_frame() {
                    Framed::Frame(frame) => {
                        let message = Message::parse(frame).unwrap();
                        return Some(self.encoding.message(message).unwrap());
                    }
                    Framed::Incomplete => {}
                    Framed::Discarded(_) | Framed::TooLong => panic!("frame too long"),
                }
                let mut buffer = [0; 4096];
                match self.stream.read(&mut buffer).await {
                    Ok(0) | Err(_) => return None,
                    Ok(bytes) => self.framer.push(&buffer[..bytes]),
                }
            }
        };
        let message = tokio::time::timeout(PATIENCE, read).await.expect("no message in time")?;
        self.note(&message);
        Some(message)
    }

    fn note(&mut self, message: &Message) {
        let application = if self.begin_string == "FIXT.1.1" { "FIX.5.0SP2" } else { self.begin_string };
        let rules = Rules { extra: &OWN, ..Rules::strict(self.begin_string, application).unwrap() };
        let checked = if self.is_strict { rules.check(message.view()) } else { Ok(()) };
        checked.unwrap_or_else(|fault| panic!("{fault:?}: {message:?}"));
        if message.msg_type() == b"4" || message.is_yes(141) {
            return;
        }
        let stamps = [8, 9, 10, 34, 43, 49, 52, 56, 122];
        let content: String = message
            .fields()
            .iter()
            .filter(|field| !stamps.contains(&field.tag))
            .map(|field| format!("{}={}|", field.tag, String::from_utf8_lossy(message.value(field))))
            .collect();
        let seq = message.seq().unwrap().0;
        let before = self.received.entry(seq).or_insert_with(|| content.clone());
        assert_eq!(*before, content, "number {seq} stands for two messages");
    }

    /// The next message that is no heartbeat must be of this type.
    pub(crate) async fn expect(&mut self, msg_type: &str) -> Message {
        self.expect_any(&[msg_type]).await
    }

    /// Sends a message, and returns the answer, which must be of this type.
    pub(crate) async fn ask(&mut self, msg_type: &str, body: &str, answer: &str) -> Message {
        self.send(msg_type, body).await;
        self.expect(answer).await
    }

    /// Reads ExecutionReports until one has this OrdStatus.
    pub(crate) async fn report(&mut self, cl_ord_id: &str, ord_status: &str) -> Message {
        loop {
            let report = self.expect("8").await;
            if report.text(11) == Some(cl_ord_id) && report.text(39) == Some(ord_status) {
                return report;
            }
        }
    }
}

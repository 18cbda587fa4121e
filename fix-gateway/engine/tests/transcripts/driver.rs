//! Our side of a transcript: a driver in virtual time, with a store in memory and an echo.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    sync::{Arc, LazyLock},
    time::{Duration, Instant},
};

use dvp_fix::{
    SeqNum, UtcNanos,
    codec::{Body, Framed, Framer, Message, MessageRef, MsgType},
    dictionary::Rules,
    session::{Now, Output, ResendSlice, Session, SessionConfig, Stored, Transmit, business_reject},
    tag,
};

use super::script::{Pieces, Step};

static START: LazyLock<Instant> = LazyLock::new(|| {
    #[expect(
        clippy::disallowed_methods,
        reason = "an arbitrary origin: std has no other way to make an Instant"
    )]
    Instant::now()
});
/// 2027-01-15 08:00:00 UTC.
const EPOCH: u64 = 1_800_000_000_000_000_000;
const ORDER: &str = "11=id|21=1|40=1|54=1|55=INTC|60=20270115-08:00:00";
/// The standard header, which the echo does not send back.
const STAMPED: [u32; 11] = [8, 9, 10, 34, 35, 43, 49, 52, 56, 122, 369];

pub(crate) struct Driver {
    config: SessionConfig,
    /// Made with the first connection.
    session: Option<Session>,
    framer: Framer,
    stored: BTreeMap<SeqNum, Stored>,
    seen: BTreeSet<Vec<u8>>,
    elapsed: Duration,
    is_connected: bool,
    said: String,
}

impl Driver {
    pub(crate) fn new((begin_string, application): (&str, &str)) -> Self {
        let rules = Rules::strict(begin_string, application).unwrap();
        let config = SessionConfig {
            default_appl_ver_id: begin_string.starts_with("FIXT").then(|| "9".to_owned()),
            ..SessionConfig::new(begin_string, "DVP", "ACME", rules)
        };
        Self {
            config,
            session: None,
            framer: Framer::new(4096),
            stored: BTreeMap::new(),
            seen: BTreeSet::new(),
            elapsed: Duration::ZERO,
            is_connected: false,
            said: String::new(),
        }
    }

    /// The messages sent since the last call.
    pub(crate) fn said(&mut self) -> String {
        std::mem::take(&mut self.said)
    }

    fn now(&self) -> Now {
        let nanos = u64::try_from(self.elapsed.as_nanos()).unwrap();
        Now { mono: *START + self.elapsed, utc: UtcNanos(EPOCH + nanos) }
    }

    fn session(&mut self) -> &mut Session {
        self.session.as_mut().unwrap()
    }

    pub(crate) fn step(&mut self, step: Step<'_>, pieces: Pieces<'_>) {
        let now = self.now();
        match step {
            Step::Comment => {}
            Step::Set(option) => self.set(option),
            Step::Connect => {
                let config = Arc::new(self.config.clone());
                self.framer = Framer::new(4096);
                self.is_connected = true;
                let new = || Session::new(config, now, SeqNum::FIRST, SeqNum::FIRST);
                self.session.get_or_insert_with(new).connect(now);
            }
            Step::Cut => {
                self.is_connected = false;
                self.seen.clear();
                self.session().disconnected();
            }
            Step::Send { .. } | Step::Raw(_) | Step::Bytes(_) => {
                let bytes = self.bytes_of(&step);
                self.take(&bytes, pieces);
            }
            Step::Wait(seconds) => self.wait(Duration::from_secs_f64(seconds)),
            Step::Report => {
                let body = Body::new().field(37, "1").field(11, "id");
                if self.session().send(now, MsgType::EXECUTION_REPORT, body).is_err() {
                    self.said.push_str("  not sent\n");
                }
                self.drain(None);
            }
            Step::LogOut(text) => {
                if self.session().log_out(now, text).is_err() {
                    self.said.push_str("  not logged on\n");
                }
                self.drain(None);
            }
        }
    }

    fn set(&mut self, option: &str) {
        match option {
            "reset_on_logon" => self.config.reset_on_logon = true,
            "369" => self.config.last_msg_seq_num_processed = true,
            "1409" => self.config.session_status = true,
            "789" => self.config.next_expected_msg_seq_num = true,
            "chunk" => self.config.resend_request_chunk = Some(2),
            "empty values" => self.config.rules.require_values = false,
            "user-defined" => self.config.rules.check_user_defined = false,
            "any order" => self.config.rules.check_order = false,
            other => panic!("{other}"),
        }
    }

    /// The bytes that a line stands for.
    pub(crate) fn bytes_of(&self, step: &Step<'_>) -> Vec<u8> {
        match step {
            Step::Send { msg_type, seq, fields } => {
                let fields = self.fill_in(fields);
                let given: Vec<&str> = fields.split('|').filter(|field| !field.is_empty()).collect();
                let mut header = format!("8={}|35={msg_type}|34={seq}|", self.config.begin_string);
                for usual in ["49=ACME".to_owned(), format!("52={}", self.time(0)), "56=DVP".to_owned()] {
                    let tag = &usual[..2];
                    if !given.iter().any(|field| field.split('=').next() == Some(tag)) {
                        header.push_str(&format!("{usual}|"));
                    }
                }
                let fields = given.iter().filter(|field| field.contains('='));
                wire(&fields.fold(header, |text, field| format!("{text}{field}|")))
            }
            Step::Raw(text) => wire(&self.fill_in(text)),
            Step::Bytes(text) => self.fill_in(text).replace('|', "\x01").into_bytes(),
            _ => Vec::new(),
        }
    }

    fn time(&self, offset: i64) -> String {
        let seconds = i64::try_from((EPOCH / 1_000_000_000) + self.elapsed.as_secs()).unwrap() + offset;
        let nanos = u64::try_from(seconds).unwrap() * 1_000_000_000;
        UtcNanos(nanos).to_millis_text()
    }

    /// Fills in the fields that depend on the version and the time.
    fn fill_in(&self, text: &str) -> String {
        let version = self.config.default_appl_ver_id.as_ref().map_or("", |_| "|1137=9");
        let mut text = text
            .replace("ORDER", ORDER)
            .replace("|VERSION", version)
            .replace("BEGIN", &self.config.begin_string);
        while let Some(at) = text.find("NOW") {
            let rest = &text[at + 3..];
            let end =
                rest.find(|char: char| !(char.is_ascii_digit() || "+-".contains(char))).unwrap_or(rest.len());
            let offset = if end == 0 { 0 } else { rest[..end].parse().unwrap() };
            text.replace_range(at..at + 3 + end, &self.time(offset));
        }
        text
    }

    /// Bytes arrive.
    pub(crate) fn take(&mut self, bytes: &[u8], pieces: Pieces<'_>) {
        for piece in pieces.of(bytes) {
            if !self.is_connected {
                return;
            }
            self.framer.push(piece);
            let mut framer = std::mem::replace(&mut self.framer, Framer::new(4096));
            while self.is_connected {
                let Framed::Frame(frame) = framer.next_frame() else { break };
                let now = self.now();
                match Message::parse(frame) {
                    Ok(message) => {
                        self.session().handle_message(now, message.view());
                        self.drain(Some(&message));
                    }
                    Err(_) => {
                        self.session().handle_garbled(now);
                        self.drain(None);
                    }
                }
            }
            self.framer = framer;
        }
    }

    fn wait(&mut self, time: Duration) {
        let end = self.elapsed + time;
        while let Some(due) = self.session().poll_timeout().filter(|due| *due <= *START + end) {
            self.elapsed = self.elapsed.max(due - *START);
            let now = self.now();
            self.session().handle_timeout(now);
            self.drain(None);
        }
        self.elapsed = end;
    }

    fn drain(&mut self, handed_in: Option<&Message>) {
        while let Some(output) = self.session().poll_output() {
            let now = self.now();
            match output {
                Output::Authenticate(_) => self.session().handle_authentication(now, true),
                Output::Reset { .. } => self.stored.clear(),
                Output::Epoch(_) | Output::LoggedOn => {}
                Output::Persist { next_in, .. } => self.session().note_durable(next_in),
                Output::Transmit(message) => self.transmit(message),
                Output::Deliver { queued, .. } => {
                    self.deliver(queued.as_deref().or(handed_in).unwrap().view());
                }
                Output::Fetch(ResendSlice { from, to, limit }) => {
                    let found = self.stored.range(from..=to).map(|(_, stored)| stored.clone());
                    let found = found.take(limit).collect();
                    self.session().handle_stored(now, found);
                }
                Output::Disconnect => {
                    self.said.push_str("  closed\n");
                    self.is_connected = false;
                    self.seen.clear();
                    self.session().disconnected();
                }
            }
        }
    }

    /// Orders, security definitions and mails come back; an order known already does not when it says that it may be
    /// one.
    fn deliver(&mut self, message: MessageRef<'_>) {
        let next_in = self.session().next_in();
        self.session().note_durable(next_in);
        let msg_type = MsgType::from_bytes(message.msg_type()).unwrap();
        let (msg_type, body) = match message.msg_type() {
            b"D" => {
                let is_new = self.seen.insert(message.get(11).unwrap().to_vec());
                if !is_new && message.is_yes(tag::POSS_RESEND) {
                    return;
                }
                (msg_type, echo(message))
            }
            b"d" | b"C" => (msg_type, echo(message)),
            b"j" => return,
            _ => {
                let body = business_reject(message, None, 3, "Unsupported Message Type");
                let body = body.maybe(tag::DEFAULT_APPL_VER_ID, self.config.default_appl_ver_id.as_deref());
                (MsgType::BUSINESS_MESSAGE_REJECT, body)
            }
        };
        let seq = self.session().reserve();
        let sending_time = self.now().utc;
        self.transmit(Transmit { seq, msg_type, body, sending_time, orig_sending_time: None });
    }

    fn transmit(&mut self, message: Transmit) {
        let (mut bytes, now) = (Vec::new(), self.now());
        self.session().encode(now, &message, &mut bytes);
        assert!(Message::parse(&bytes).is_ok());
        writeln!(self.said, "  {}", String::from_utf8(bytes).unwrap().replace('\x01', "|")).unwrap();
        if message.orig_sending_time.is_none() && !message.msg_type.is_session() {
            let Transmit { seq, msg_type, body, sending_time, .. } = message;
            self.stored.insert(seq, Stored { seq, msg_type, body, sending_time, resend: true });
        }
    }
}

fn echo(message: MessageRef<'_>) -> Body {
    let fields = message.fields().iter().filter(|field| !STAMPED.contains(&field.tag));
    fields.fold(Body::new(), |mut body, field| {
        body.copy(message, field);
        body
    })
}

/// `|` for SOH; BodyLength(9) and a CheckSum(10) at the end are put in where the text has none.
fn wire(text: &str) -> Vec<u8> {
    let text = text.replace('|', "\x01");
    let (begin, rest) = text.split_once('\x01').unwrap();
    let sum_at = rest.trim_end_matches('\x01').rfind('\x01').map_or(0, |at| at + 1);
    let (body, sum) = if rest[sum_at..].starts_with("10=") { rest.split_at(sum_at) } else { (rest, "") };
    let mut out = format!("{begin}\x01");
    if !text.contains("\x019=") {
        out.push_str(&format!("9={}\x01", body.len()));
    }
    out.push_str(body);
    if sum.is_empty() {
        let sum = out.bytes().fold(0_u8, u8::wrapping_add);
        out.push_str(&format!("10={sum:03}\x01"));
    } else {
        out.push_str(sum);
    }
    out.into_bytes()
}

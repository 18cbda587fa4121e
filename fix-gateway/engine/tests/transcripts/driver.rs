//! Our side of a transcript: a driver in virtual time, with a store in memory and an echo.
//!
//! One that shows its tasks has no echo.

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
    schedule::Epoch,
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

/// More outputs than any step has.
const OUTPUTS_MAX: usize = 100_000;

/// Both clocks, `elapsed` after the beginning.
pub(crate) fn at(elapsed: Duration) -> Now {
    let nanos = u64::try_from(elapsed.as_nanos()).unwrap();
    Now::of(*START + elapsed, UtcNanos(EPOCH + nanos))
}

/// The rules of engagement with the peer, strict ones of a version.
pub(crate) fn config((begin_string, application): (&str, &str)) -> SessionConfig {
    let rules = Rules::strict(begin_string, application).unwrap();
    SessionConfig {
        default_appl_ver_id: begin_string.starts_with("FIXT").then(|| "9".to_owned()),
        ..SessionConfig::new(begin_string, "DVP", "ACME", rules)
    }
}

pub(crate) struct Driver {
    config: SessionConfig,
    numbers: (SeqNum, SeqNum),
    epoch: Option<Epoch>,
    /// Made with the first connection.
    session: Option<Session>,
    framer: Framer,
    stored: BTreeMap<SeqNum, Stored>,
    /// The numbers that stand for a message since the last reset.
    sent: BTreeSet<SeqNum>,
    seen: BTreeSet<Vec<u8>>,
    elapsed: Duration,
    /// By how much the schedule's time is ahead.
    ahead: Duration,
    is_connected: bool,
    is_authenticated: bool,
    /// Has the peer seen nothing that is stored?
    keeps: bool,
    /// Does the store answer at the script's command?
    is_slow: bool,
    requested: Option<ResendSlice>,
    /// Does it say its tasks instead of the bytes on the wire?
    shows_tasks: bool,
    said: String,
}

impl Driver {
    pub(crate) fn new(version: (&str, &str)) -> Self {
        Self {
            config: config(version),
            numbers: (SeqNum::FIRST, SeqNum::FIRST),
            epoch: None,
            session: None,
            framer: Framer::new(4096),
            stored: BTreeMap::new(),
            sent: BTreeSet::new(),
            seen: BTreeSet::new(),
            elapsed: Duration::ZERO,
            ahead: Duration::ZERO,
            is_connected: false,
            is_authenticated: true,
            keeps: false,
            is_slow: false,
            requested: None,
            shows_tasks: false,
            said: String::new(),
        }
    }

    /// A driver of FIX 4.4 that shows its tasks.
    pub(crate) fn of_tasks() -> Self {
        Self { shows_tasks: true, ..Self::new(("FIX.4.4", "FIX.4.4")) }
    }

    /// The messages sent since the last call.
    pub(crate) fn said(&mut self) -> String {
        std::mem::take(&mut self.said)
    }

    pub(crate) const fn is_connected(&self) -> bool {
        self.is_connected
    }

    pub(crate) fn next_in(&self) -> SeqNum {
        self.session.as_ref().map_or(SeqNum::FIRST, Session::next_in)
    }

    fn now(&self) -> Now {
        Now { calendar: at(self.elapsed + self.ahead).utc, ..at(self.elapsed) }
    }

    fn session(&mut self) -> &mut Session {
        self.session.as_mut().unwrap()
    }

    pub(crate) fn step(&mut self, step: Step<'_>, pieces: Pieces<'_>) {
        let now = self.now();
        match step {
            Step::Comment => {}
            Step::New => *self = Self::of_tasks(),
            Step::Set(option) => self.set(option),
            Step::Connect => {
                let (config, (next_in, next_out)) = (Arc::new(self.config.clone()), self.numbers);
                let epoch = self.epoch;
                self.framer = Framer::new(4096);
                self.is_connected = true;
                let new = || Session::new(config, now, next_in, next_out).in_epoch(epoch);
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
            Step::Report(msg_type) => {
                let body = Body::new().field(37, "1").field(11, "id");
                if let Err(error) = self.session().send(now, MsgType::new(msg_type).unwrap(), body) {
                    self.say(&error.to_string());
                }
                self.drain(None);
            }
            Step::LogOut(text) => {
                if self.session().log_out(now, text).is_err() {
                    self.say("not logged on");
                }
                self.drain(None);
            }
            Step::Unauthenticated => self.is_authenticated = false,
            Step::Keeps => self.keeps = true,
            Step::Slow => self.is_slow = true,
            Step::Stored => {
                let slice = self.requested.take().unwrap();
                self.answer(slice);
                self.drain(None);
            }
            Step::IsOpen => {
                let is_open = self.session().is_open();
                self.say(if is_open { "open" } else { "closed" });
            }
        }
    }

    fn say(&mut self, line: &str) {
        writeln!(self.said, "  {line}").unwrap();
    }

    fn set(&mut self, option: &str) {
        const ORDERS: [MsgType; 1] = [MsgType::NEW_ORDER_SINGLE];
        let config = &mut self.config;
        match option.split_once(' ').unwrap_or((option, "")) {
            ("reset_on_logon", _) => config.reset_on_logon = true,
            ("no_reset", _) => config.reset_allowed = false,
            ("369", _) => config.last_msg_seq_num_processed = true,
            ("1409", _) => config.session_status = true,
            ("789", _) => config.next_expected_msg_seq_num = true,
            ("chunk", _) => config.resend_request_chunk = Some(2),
            ("empty", "values") => config.rules.require_values = false,
            ("user-defined", _) => config.rules.check_user_defined = false,
            ("any", "order") => config.rules.check_order = false,
            ("no_resend_of_orders", _) => config.never_resent = &ORDERS,
            ("queue_max", value) => config.queue_max = value.parse().unwrap(),
            ("queue_bytes_max", value) => config.queue_bytes_max = value.parse().unwrap(),
            ("held_max", value) => config.held_max = value.parse().unwrap(),
            ("resend_slice", value) => config.resend_slice = value.parse().unwrap(),
            ("same_request_window", value) => {
                config.same_request_window = Duration::from_secs(value.parse().unwrap());
            }
            ("schedule", value) => config.schedule = value.parse().unwrap(),
            ("ahead", value) => self.ahead = Duration::from_secs(value.parse().unwrap()),
            ("epoch", value) => self.epoch = Some(Epoch(value.parse().unwrap())),
            ("numbers", value) => {
                let (next_in, next_out) = value.split_once(' ').unwrap();
                self.numbers = (SeqNum(next_in.parse().unwrap()), SeqNum(next_out.parse().unwrap()));
            }
            other => panic!("{other:?}"),
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

    pub(crate) fn time(&self, offset: i64) -> String {
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
            let (now, before) = (self.now(), self.said.len());
            self.session().handle_timeout(now);
            self.drain(None);
            if self.shows_tasks && self.said.len() > before {
                self.said.insert_str(before, &format!("  at {:.1}\n", self.elapsed.as_secs_f64()));
            }
        }
        self.elapsed = end;
    }

    fn drain(&mut self, handed_in: Option<&Message>) {
        let mut outputs = 0;
        while let Some(output) = self.session().poll_output() {
            outputs += 1;
            assert!(outputs < OUTPUTS_MAX, "a step without an end");
            if self.shows_tasks {
                self.said.push_str(&task(&output, handed_in));
            }
            self.carry_out(output, handed_in);
        }
    }

    fn carry_out(&mut self, output: Output, handed_in: Option<&Message>) {
        let now = self.now();
        match output {
            Output::Authenticate(_) => {
                let is_genuine = self.is_authenticated;
                self.session().handle_authentication(now, is_genuine);
            }
            Output::Reset { first_kept } => self.reset(first_kept),
            Output::Epoch(_) | Output::LoggedOn => {}
            Output::Persist { next_in, .. } => self.session().note_durable(next_in),
            Output::Transmit(message) => self.transmit(message),
            Output::Deliver { queued, .. } => {
                self.deliver(queued.as_deref().or(handed_in).unwrap().view());
            }
            Output::Fetch(slice) if self.is_slow => self.requested = Some(slice),
            Output::Fetch(slice) => self.answer(slice),
            Output::Disconnect => {
                if !self.shows_tasks {
                    self.say("closed");
                }
                self.is_connected = false;
                self.seen.clear();
                self.session().disconnected();
            }
        }
    }

    fn reset(&mut self, first_kept: SeqNum) {
        self.sent.clear();
        let kept: Vec<Stored> =
            std::mem::take(&mut self.stored).into_values().filter(|_| self.keeps).collect();
        self.session().handle_kept(u64::try_from(kept.len()).unwrap());
        let numbers = std::iter::successors(Some(first_kept), |seq| Some(seq.next()));
        self.stored = numbers.zip(kept).map(|(seq, message)| (seq, Stored { seq, ..message })).collect();
    }

    fn answer(&mut self, ResendSlice { from, to, limit }: ResendSlice) {
        let found = self.stored.range(from..=to).map(|(_, stored)| stored.clone()).take(limit).collect();
        let now = self.now();
        self.session().handle_stored(now, found);
    }

    /// Orders, security definitions and mails come back; an order known already does not when it says that it may be
    /// one.
    fn deliver(&mut self, message: MessageRef<'_>) {
        let next_in = self.session().next_in();
        self.session().note_durable(next_in);
        if self.shows_tasks {
            return;
        }
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
        let sending_time = self.now().utc.into();
        self.transmit(Transmit { seq, msg_type, body, sending_time, orig_sending_time: None });
    }

    fn transmit(&mut self, message: Transmit) {
        let (mut bytes, now) = (Vec::new(), self.now());
        self.session().encode(now, &message, &mut bytes);
        let parsed = Message::parse(&bytes).unwrap();
        assert_eq!(parsed.seq(), Some(message.seq));
        if self.shows_tasks {
            self.say(&format!("send {} {}{}", message.seq, message.msg_type, beyond_header(&parsed)));
        } else {
            self.say(&String::from_utf8(bytes).unwrap().replace('\x01', "|"));
        }
        let Transmit { seq, msg_type, body, sending_time, orig_sending_time } = message;
        if orig_sending_time.is_none() {
            assert!(self.sent.insert(seq), "{seq} stands for two messages");
            if !msg_type.is_session() {
                self.stored.insert(seq, Stored { seq, msg_type, body, sending_time, resend: true });
            }
        } else if msg_type != MsgType::SEQUENCE_RESET {
            assert!(self.sent.contains(&seq), "{seq} was never sent");
        }
    }
}

/// The line of a task; that of a message needs its encoding.
fn task(output: &Output, handed_in: Option<&Message>) -> String {
    let task = match output {
        Output::Transmit(_) => return String::new(),
        Output::Authenticate(credentials) => {
            format!("who is {}", credentials.username.as_deref().unwrap_or("there"))
        }
        Output::Reset { .. } => "reset".to_owned(),
        Output::Epoch(epoch) => format!("epoch {}", epoch.0),
        Output::Persist { next_in, next_out } => format!("persist in={next_in} out={next_out}"),
        Output::Deliver { seq, queued } => {
            let message = queued.as_deref().or(handed_in).unwrap();
            format!("deliver {seq} {}", String::from_utf8_lossy(message.msg_type()))
        }
        Output::Fetch(slice) => format!("fetch {}..={}", slice.from, slice.to),
        Output::LoggedOn => "logged on".to_owned(),
        Output::Disconnect => "disconnect".to_owned(),
    };
    format!("  {task}\n")
}

/// A message's fields that are not the same in every message, without the value of the time at which it was first sent.
fn beyond_header(message: &Message) -> String {
    let fields = message.fields().iter().filter(|field| ![8, 9, 35, 34, 49, 52, 56, 10].contains(&field.tag));
    fields
        .map(|field| match field.tag {
            122 => "|122".to_owned(),
            tag => format!("|{tag}={}", String::from_utf8_lossy(message.value(field))),
        })
        .collect()
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

//! The driver of the transcripts: carries out every output in virtual time and records it.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    sync::LazyLock,
    time::{Duration, Instant},
};

use expect_test::Expect;

use super::super::*;
use crate::{codec::tests::wire, dictionary::Rules};

static START: LazyLock<Instant> = LazyLock::new(|| {
    #[expect(
        clippy::disallowed_methods,
        reason = "an arbitrary origin: std has no other way to make an Instant"
    )]
    Instant::now()
});
const EPOCH: u64 = 1_800_000_000_000_000_000;

const ORDER: &str = "11=id|21=1|40=1|54=1|55=INTC|60=20260101-00:00:00";

pub(super) fn config() -> SessionConfig {
    SessionConfig::new("FIX.4.4", "DVP", "ACME", Rules::strict("FIX.4.4", "FIX.4.4").unwrap())
}

/// Both clocks, `elapsed` after the beginning.
pub(super) fn at(elapsed: Duration) -> Now {
    let nanos = u64::try_from(elapsed.as_nanos()).unwrap();
    Now { mono: *START + elapsed, utc: UtcNanos(EPOCH + nanos) }
}

pub(super) struct World {
    pub(super) session: Session,
    elapsed: Duration,
    stored: BTreeMap<SeqNum, Stored>,
    is_authenticated: bool,
    /// Has the peer seen nothing that is stored?
    keeps: bool,
    /// Does the store answer at once, or at the script's command?
    is_prompt: bool,
    requested: Option<ResendSlice>,
    /// The message of a delivery without a queued one.
    handed_in: Option<Message>,
    pub(super) transcript: String,
}

impl World {
    pub(super) fn new(config: SessionConfig, next_in: u64, next_out: u64) -> Self {
        let now = Now { mono: *START, utc: UtcNanos(EPOCH) };
        let mut session = Session::new(Arc::new(config), now, SeqNum(next_in), SeqNum(next_out));
        session.connect(now);
        let (elapsed, stored) = (Duration::ZERO, BTreeMap::new());
        Self {
            session,
            elapsed,
            stored,
            is_authenticated: true,
            keeps: false,
            is_prompt: true,
            requested: None,
            handed_in: None,
            transcript: String::new(),
        }
    }

    pub(super) fn map_session(&mut self, change: impl FnOnce(Session) -> Session) {
        let blank = Session::new(Arc::new(config()), self.now(), SeqNum::FIRST, SeqNum::FIRST);
        self.session = change(std::mem::replace(&mut self.session, blank));
    }

    pub(super) fn now(&self) -> Now {
        at(self.elapsed)
    }

    pub(super) fn run(&mut self, script: &str) {
        for line in script.lines().map(str::trim).filter(|line| !line.is_empty()) {
            writeln!(self.transcript, "{line}").unwrap();
            let mut words = line.splitn(4, ' ');
            match words.next().unwrap() {
                "I" => {
                    let (kind, seq) = (words.next().unwrap(), words.next().unwrap());
                    let message = self.message(kind, seq, words.next().unwrap_or_default());
                    self.session.handle_message(self.now(), message.view());
                    self.handed_in = Some(message);
                }
                "garbled" => self.session.handle_garbled(self.now()),
                "unauthenticated" => self.is_authenticated = false,
                "slow" => self.is_prompt = false,
                "keeps" => self.keeps = true,
                "stored" => {
                    let slice = self.requested.take().unwrap();
                    self.answer(slice);
                }
                "lost" => {
                    self.session.disconnected();
                    self.session.connect(self.now());
                }
                "app" => {
                    let msg_type =
                        words.next().map_or(MsgType::EXECUTION_REPORT, |text| MsgType::new(text).unwrap());
                    let sent = self.session.send(self.now(), msg_type, Body::new().field(58, "report"));
                    if let Err(error) = sent {
                        writeln!(self.transcript, "  {error}").unwrap();
                    }
                }
                "logout" => self.session.log_out(self.now(), "enough").unwrap(),
                "raw" => {
                    let text = line[4..].replace("NOW", &self.now().utc.to_millis_text());
                    let message = Message::parse(&wire(&text)).unwrap();
                    self.session.handle_message(self.now(), message.view());
                    self.handed_in = Some(message);
                }
                time => self.pass(Duration::from_secs_f64(time[1..].parse().unwrap())),
            }
            self.drain();
        }
    }

    fn message(&self, kind: &str, seq: &str, rest: &str) -> Message {
        let sent = self.now().utc.to_millis_text();
        let begin_string = rest.strip_prefix("8=").and_then(|rest| rest.split('|').next());
        let rest = rest.split_once('|').filter(|_| begin_string.is_some()).map_or(rest, |(_, rest)| rest);
        let rest = rest.replace("NOW", &sent).replace("ORDER", ORDER);
        let head = ["49=ACME", "52=", "56=DVP"].map(|field| {
            let tag = &field[..3];
            if rest.split('|').any(|given| given.starts_with(tag)) {
                String::new()
            } else if field == "52=" {
                format!("52={sent}|")
            } else {
                format!("{field}|")
            }
        });
        let tail = if rest.is_empty() { String::new() } else { format!("{rest}|") };
        let begin_string = begin_string.unwrap_or(&self.session.config().begin_string);
        Message::parse(&wire(&format!("8={begin_string}|35={kind}|34={seq}|{}{tail}", head.concat())))
            .unwrap()
    }

    fn pass(&mut self, time: Duration) {
        let end = self.elapsed + time;
        while let Some(due) = self.session.poll_timeout().filter(|due| *due <= *START + end) {
            self.elapsed = self.elapsed.max(due - *START);
            let before = self.transcript.len();
            self.session.handle_timeout(self.now());
            self.drain();
            let said = self.transcript.split_off(before);
            if !said.is_empty() {
                writeln!(self.transcript, "  at {:.1}", self.elapsed.as_secs_f64()).unwrap();
                self.transcript.push_str(&said);
            }
        }
        self.elapsed = end;
    }

    fn drain(&mut self) {
        while let Some(output) = self.session.poll_output() {
            self.carry_out(output);
        }
    }

    fn carry_out(&mut self, output: Output) {
        let now = self.now();
        let said = match output {
            Output::Authenticate(credentials) => {
                self.session.handle_authentication(now, self.is_authenticated);
                format!("who is {}", credentials.username.unwrap_or_default())
            }
            Output::Reset { first_kept } => self.reset(first_kept),
            Output::Epoch(epoch) => format!("epoch {}", epoch.0),
            Output::Persist { next_in, next_out } => {
                self.session.note_durable(next_in);
                format!("persist in={next_in} out={next_out}")
            }
            Output::Transmit(message) => self.transmit(message),
            Output::Deliver { seq, queued } => {
                let message = queued.map(|queued| *queued).or_else(|| self.handed_in.clone()).unwrap();
                self.session.note_durable(seq.next());
                format!("deliver {seq} {}", String::from_utf8_lossy(message.msg_type()))
            }
            Output::Fetch(slice) => {
                if self.is_prompt {
                    self.answer(slice);
                } else {
                    self.requested = Some(slice);
                }
                format!("fetch {}..={}", slice.from, slice.to)
            }
            Output::LoggedOn => "logged on".to_owned(),
            Output::Disconnect => {
                self.session.disconnected();
                "disconnect".to_owned()
            }
        };
        writeln!(self.transcript, "  {said}").unwrap();
    }

    fn reset(&mut self, first_kept: SeqNum) -> String {
        let kept: Vec<Stored> =
            std::mem::take(&mut self.stored).into_values().filter(|_| self.keeps).collect();
        self.session.handle_kept(u64::try_from(kept.len()).unwrap());
        let numbers = std::iter::successors(Some(first_kept), |seq| Some(seq.next()));
        self.stored = numbers.zip(kept).map(|(seq, message)| (seq, Stored { seq, ..message })).collect();
        let kept: Vec<String> = self.stored.keys().map(ToString::to_string).collect();
        if kept.is_empty() { "reset".to_owned() } else { format!("reset, kept {}", kept.join(" ")) }
    }

    fn answer(&mut self, ResendSlice { from, to, limit }: ResendSlice) {
        let found = self.stored.range(from..=to).map(|(_, stored)| stored.clone()).take(limit).collect();
        self.session.handle_stored(self.now(), found);
    }

    fn transmit(&mut self, message: Transmit) -> String {
        let mut bytes = Vec::new();
        let now = self.now();
        self.session.encode(now, &message, &mut bytes);
        let parsed = Message::parse(&bytes).unwrap();
        assert_eq!(parsed.seq(), Some(message.seq));
        let body: String = parsed
            .fields()
            .iter()
            .filter(|field| ![8, 9, 35, 34, 49, 52, 56, 10].contains(&field.tag))
            .map(|field| match field.tag {
                122 => "|122".to_owned(),
                tag => format!("|{tag}={}", String::from_utf8_lossy(parsed.value(field))),
            })
            .collect();
        let said = format!("send {} {}{body}", message.seq, message.msg_type);
        if message.orig_sending_time.is_none() && !message.msg_type.is_session() {
            let Transmit { seq, msg_type, body, sending_time, .. } = message;
            self.stored.insert(seq, Stored { seq, msg_type, body, sending_time, resend: true });
        }
        said
    }
}

/// After a Logon, which is not part of the transcript.
pub(super) fn logged_on(config: SessionConfig) -> World {
    let mut world = World::new(config, 1, 1);
    world.run("I A 1 98=0|108=30");
    world.transcript.clear();
    world
}

/// Plays the lines of a transcript that are not indented; the others are what they cause.
pub(super) fn check(mut world: World, transcript: Expect) {
    let lines = || transcript.data().lines().filter(|line| !line.trim().is_empty());
    let indent = |line: &str| line.len() - line.trim_start().len();
    let margin = lines().map(indent).min();
    lines().filter(|line| Some(indent(line)) == margin).for_each(|line| world.run(line));
    transcript.assert_eq(&world.transcript);
}

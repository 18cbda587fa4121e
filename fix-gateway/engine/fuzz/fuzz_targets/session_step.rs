//! Any messages and events in any order: no panic, bounded queues, and no number that stands for two messages.
//!
//! Every line of the input is a step: `+N` lets N tenths of a second pass, `!` is a garbled frame, `x` loses the
//! connection, `>` sends a report, anything else is a message (`35=D|34=2|…`, the rest of the header is added).
#![no_main]

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use dvp_fix::{
    SeqNum, UtcNanos,
    codec::{Body, Message, MsgType, Parser},
    dictionary::Rules,
    session::{Now, Output, ResendSlice, Session, SessionConfig, Stored, Transmit},
};
use libfuzzer_sys::fuzz_target;

struct World {
    session: Session,
    now: Now,
    stored: BTreeMap<SeqNum, Stored>,
    /// What each number stood for since the last reset.
    said: BTreeMap<SeqNum, (MsgType, Vec<u8>)>,
    parser: Parser,
    wire: Vec<u8>,
}

impl World {
    fn new() -> Self {
        let now = Now { mono: Instant::now(), utc: UtcNanos(1_800_000_000_000_000_000) };
        let rules = Rules::strict("FIX.4.4", "FIX.4.4").expect("a known version");
        let mut config = SessionConfig::new("FIX.4.4", "DVP", "ACME", rules);
        config.queue_max = 16;
        config.resend_slice = 3;
        let mut session = Session::new(Arc::new(config), now, SeqNum::FIRST, SeqNum::FIRST);
        session.connect(now);
        let (stored, said) = (BTreeMap::new(), BTreeMap::new());
        Self { session, now, stored, said, parser: Parser::new(), wire: Vec::new() }
    }

    fn step(&mut self, line: &[u8]) {
        let message = match line {
            [b'+', tenths @ ..] => {
                let tenths = tenths.iter().take(6).fold(0_u64, |sum, byte| sum * 10 + u64::from(byte.wrapping_sub(b'0') % 10));
                let time = Duration::from_millis(100 * tenths.min(100_000));
                self.now.mono += time;
                self.now.utc.0 += u64::try_from(time.as_nanos()).unwrap_or(0);
                self.session.handle_timeout(self.now);
                None
            }
            b"!" => {
                self.session.handle_garbled(self.now);
                None
            }
            b"x" => {
                self.session.disconnected();
                self.session.connect(self.now);
                None
            }
            b">" => {
                // Refused when nobody is logged on.
                let _ = self.session.send(self.now, MsgType::EXECUTION_REPORT, Body::new().field(58, "report"));
                None
            }
            fields => self.message(fields),
        };
        if let Some(message) = &message {
            self.session.handle_message(self.now, message.view());
        }
        let mut outputs = 0;
        while let Some(output) = self.session.poll_output() {
            outputs += 1;
            assert!(outputs < 100_000, "a step that does not end");
            self.carry_out(output, message.as_ref());
        }
    }

    /// `35=D|34=2|…` with the header around it.
    fn message(&mut self, fields: &[u8]) -> Option<Message> {
        let mut body = Vec::new();
        for (at, field) in fields.split(|byte| *byte == b'|').enumerate() {
            body.extend_from_slice(field);
            body.push(1);
            if at == 1 && !fields.windows(3).any(|part| part == b"49=") {
                let sent = self.now.utc.to_millis_text();
                body.extend_from_slice(format!("49=ACME\x0152={sent}\x0156=DVP\x01").as_bytes());
            }
        }
        self.wire.clear();
        self.wire.extend_from_slice(format!("8=FIX.4.4\x019={}\x01", body.len()).as_bytes());
        self.wire.extend_from_slice(&body);
        let sum = self.wire.iter().fold(0_u8, |sum, byte| sum.wrapping_add(*byte));
        self.wire.extend_from_slice(format!("10={sum:03}\x01").as_bytes());
        self.parser.parse(&self.wire).ok().map(|message| message.to_owned())
    }

    fn carry_out(&mut self, output: Output, handed_in: Option<&Message>) {
        match output {
            Output::Authenticate(_) => self.session.handle_authentication(self.now, true),
            Output::Reset { .. } => {
                self.stored.clear();
                self.said.clear();
            }
            Output::Fetch(ResendSlice { from, to, limit }) => {
                let found = self.stored.range(from..=to).map(|(_, stored)| stored.clone());
                let found = found.take(limit).collect();
                self.session.handle_stored(self.now, found);
            }
            Output::Transmit(message) => self.transmit(message),
            Output::Deliver { queued, .. } => assert!(queued.is_some() || handed_in.is_some()),
            Output::Disconnect => {
                self.session.disconnected();
                self.session.connect(self.now);
            }
            Output::Epoch(_) | Output::Persist { .. } | Output::LoggedOn => {}
        }
    }

    fn transmit(&mut self, message: Transmit) {
        let mut out = Vec::new();
        self.session.encode(self.now, &message, &mut out);
        let parsed = Message::parse(&out).expect("what is written can be read");
        assert_eq!(parsed.seq(), Some(message.seq));
        let Transmit { seq, msg_type, body, sending_time, orig_sending_time } = message;
        if orig_sending_time.is_some() {
            return;
        }
        let before = self.said.insert(seq, (msg_type, body.as_bytes().to_vec()));
        assert!(before.is_none(), "{seq} stands for two messages");
        if !msg_type.is_session() {
            self.stored.insert(seq, Stored { seq, msg_type, body, sending_time, resend: true });
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let mut world = World::new();
    for line in data.split(|byte| *byte == b'\n').take(64) {
        world.step(line);
    }
});

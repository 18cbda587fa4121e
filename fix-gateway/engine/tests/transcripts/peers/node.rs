//! The acceptor: our session, a store, and an application that answers each order with a report.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use dvp_fix::{
    SeqNum,
    codec::{Body, Message, MsgType},
    session::{Now, Output, ResendSlice, Session, SessionConfig, Stored, Transmit},
    tag,
};

use super::Link;
use crate::driver::{at, config};

/// The state that survives a stop of the process.
#[derive(Debug, Default)]
struct Store {
    next_in: u64,
    next_out: u64,
    messages: BTreeMap<SeqNum, Stored>,
    /// Orders that had their effect, in the order in which they had it.
    orders: Vec<u64>,
    /// Reports of our own accord, ever.
    reports: u64,
    /// Reports given a number since the latest reset.
    reported: u64,
    resets: u64,
}

type Content = Vec<(u32, Vec<u8>)>;

#[derive(Debug)]
pub(super) struct Node {
    config: Arc<SessionConfig>,
    store: Store,
    session: Session,
    /// Outputs until the process stops.
    fuse: Option<usize>,
    has_crashed: bool,
    /// Every message ever sent, by reset and number.
    said: BTreeMap<(u64, SeqNum), Content>,
}

/// Small bounds, so that they are reached. Gaps are requested in chunks, or whole.
fn agreed(resend_request_chunk: Option<u64>, next_expected_msg_seq_num: bool) -> SessionConfig {
    SessionConfig {
        resend_slice: 3,
        queue_max: 6,
        resend_request_chunk,
        next_expected_msg_seq_num,
        ..config(("FIX.4.4", "FIX.4.4"))
    }
}

impl Node {
    pub(super) fn new(chunk: Option<u64>, says_next_expected: bool) -> Self {
        let config = Arc::new(agreed(chunk, says_next_expected));
        let store = Store { next_in: 1, next_out: 1, ..Store::default() };
        let session = Session::new(Arc::clone(&config), at(Duration::ZERO), SeqNum::FIRST, SeqNum::FIRST);
        Self { config, store, session, fuse: None, has_crashed: false, said: BTreeMap::new() }
    }

    pub(super) const fn orders(&self) -> &Vec<u64> {
        &self.store.orders
    }

    pub(super) fn reports(&self) -> usize {
        usize::try_from(self.store.reports).unwrap()
    }

    pub(super) const fn is_connected(&self) -> bool {
        self.session.is_connected()
    }

    pub(super) fn connect(&mut self, elapsed: Duration) {
        self.session.connect(at(elapsed));
    }

    pub(super) fn disconnected(&mut self) {
        self.session.disconnected();
    }

    pub(super) const fn crash_after(&mut self, outputs: usize) {
        self.fuse = Some(outputs);
    }

    pub(super) const fn forget_crash(&mut self) {
        self.fuse = None;
    }

    pub(super) const fn take_crash(&mut self) -> bool {
        std::mem::replace(&mut self.has_crashed, false)
    }

    pub(super) fn receive(&mut self, elapsed: Duration, frame: &[u8], link: &mut Link) {
        let now = at(elapsed);
        match Message::parse(frame) {
            Ok(message) => {
                self.session.handle_message(now, message.view());
                self.carry_out(now, Some(&message), link);
            }
            Err(_) => {
                self.session.handle_garbled(now);
                self.carry_out(now, None, link);
            }
        }
    }

    pub(super) fn tick(&mut self, elapsed: Duration, link: &mut Link) {
        let now = at(elapsed);
        if self.session.poll_timeout().is_some_and(|due| due <= now.mono) {
            self.session.handle_timeout(now);
            self.carry_out(now, None, link);
        }
    }

    pub(super) fn log_out(&mut self, elapsed: Duration, link: &mut Link) {
        if self.session.log_out(at(elapsed), "enough").is_ok() {
            self.carry_out(at(elapsed), None, link);
        }
    }

    /// Something happened that the peer has to learn of, whether it is there or not.
    pub(super) fn report(&mut self, elapsed: Duration, link: &mut Link) {
        self.store.reports += 1;
        self.number_reports(at(elapsed), link);
    }

    /// Gives each report that has none a number; after a reset, all of them once more.
    fn number_reports(&mut self, now: Now, link: &mut Link) {
        while self.store.reported < self.store.reports {
            self.store.reported += 1;
            let body =
                Body::new().field(tag::POSS_RESEND, "Y").field(11, format!("r{}", self.store.reported));
            self.say(now, MsgType::EXECUTION_REPORT, body, link);
        }
    }

    /// One transaction: the numbers as they are now and the message; then it is put on the line.
    fn say(&mut self, now: Now, msg_type: MsgType, body: Body, link: &mut Link) {
        let seq = self.session.reserve();
        let stored = Stored { seq, msg_type, body: body.clone(), sending_time: now.utc.into(), resend: true };
        self.store.messages.insert(seq, stored);
        self.persist();
        if self.session.is_logged_on() {
            let sending_time = now.utc.into();
            self.transmit(
                now,
                &Transmit { seq, msg_type, body, sending_time, orig_sending_time: None },
                link,
            );
        }
    }

    const fn persist(&mut self) {
        self.store.next_in = self.session.next_in().0;
        self.store.next_out = self.session.next_out().0;
    }

    fn carry_out(&mut self, now: Now, handed_in: Option<&Message>, link: &mut Link) {
        while let Some(output) = self.session.poll_output() {
            if self.burn() {
                let (next_in, next_out) = (SeqNum(self.store.next_in), SeqNum(self.store.next_out));
                self.session = Session::new(Arc::clone(&self.config), now, next_in, next_out);
                self.has_crashed = true;
                return;
            }
            self.carry_out_one(now, output, handed_in, link);
        }
    }

    fn burn(&mut self) -> bool {
        match &mut self.fuse {
            Some(0) => {
                self.fuse = None;
                true
            }
            Some(left) => {
                *left -= 1;
                false
            }
            None => false,
        }
    }

    fn carry_out_one(&mut self, now: Now, output: Output, handed_in: Option<&Message>, link: &mut Link) {
        match output {
            Output::Authenticate(_) => self.session.handle_authentication(now, true),
            Output::Reset { .. } => {
                self.store.messages.clear();
                (self.store.next_in, self.store.next_out) = (1, 1);
                (self.store.reported, self.store.resets) = (0, self.store.resets + 1);
            }
            Output::Epoch(_) => panic!("there is no schedule"),
            Output::Persist { next_in, next_out } => {
                (self.store.next_in, self.store.next_out) = (next_in.0, next_out.0);
            }
            Output::Transmit(message) => self.transmit(now, &message, link),
            Output::Deliver { queued, .. } => {
                let message = queued.as_deref().or(handed_in).unwrap();
                self.deliver(now, message, link);
            }
            Output::Fetch(ResendSlice { from, to, limit }) => {
                let found = self.store.messages.range(from..=to).map(|(_, stored)| stored.clone());
                let found = found.take(limit).collect();
                self.session.handle_stored(now, found);
            }
            Output::LoggedOn => self.number_reports(now, link),
            Output::Disconnect => self.session.disconnected(),
        }
    }

    /// An order has its effect once; one that comes again is answered again.
    fn deliver(&mut self, now: Now, message: &Message, link: &mut Link) {
        assert_eq!(message.msg_type(), b"D", "{message:?}");
        let id: u64 = message.text(11).unwrap().parse().unwrap();
        if self.store.orders.contains(&id) {
            assert!(message.is_yes(tag::POSS_RESEND), "delivered twice: {message:?}");
        } else {
            self.store.orders.push(id);
        }
        let body = Body::new().field(tag::POSS_RESEND, "Y").field(11, format!("o{id}"));
        self.say(now, MsgType::EXECUTION_REPORT, body, link);
    }

    fn transmit(&mut self, now: Now, message: &Transmit, link: &mut Link) {
        let mut frame = Vec::new();
        self.session.encode(now, message, &mut frame);
        let parsed = Message::parse(&frame).unwrap();
        self.check_number(&parsed);
        if link.is_up {
            link.to_initiator.push_back(frame);
        }
    }

    /// One number, one message: byte for byte, except for the fields that a resend changes.
    fn check_number(&mut self, message: &Message) {
        let seq = message.seq().unwrap();
        let is_resent = message.is_yes(tag::POSS_DUP_FLAG);
        assert!(seq.0 < self.store.next_out, "said before it was persisted: {message:?}");
        if is_resent && message.msg_type() == b"4" {
            let until = SeqNum(message.text(tag::NEW_SEQ_NO).unwrap().parse().unwrap());
            let lost: Vec<_> = self.store.messages.range(seq..until).collect();
            assert!(lost.is_empty(), "{message:?} passes over {lost:?}");
            return;
        }
        let content: Content = message
            .fields()
            .iter()
            .filter(|field| ![9, 10, 43, 52, 122].contains(&field.tag))
            .map(|field| (field.tag, message.value(field).to_vec()))
            .collect();
        let key = (self.store.resets, seq);
        match self.said.get(&key) {
            Some(before) => {
                assert!(is_resent, "number used again: {message:?}");
                assert_eq!(*before, content, "{message:?}");
            }
            None => drop(self.said.insert(key, content)),
        }
    }
}

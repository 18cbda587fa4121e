//! The initiator: the smallest counterparty that loses nothing. It keeps no queue: it requests early messages again.
//! Its state, except for the connection, survives a stop.

use std::{collections::BTreeMap, time::Duration};

use dvp_fix::{
    SeqNum, UtcNanos,
    codec::{Body, Head, Message, MsgType, encode},
    tag,
};

use super::Link;

const HEART_BEAT: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
struct Connection {
    is_logged_on: bool,
    /// The expected number at the last request, and the time of that request.
    requested: Option<(u64, Duration)>,
    last_sent: Duration,
    logon_sent: Duration,
}

#[derive(Debug)]
pub(super) struct Initiator {
    /// Does it send and process NextExpectedMsgSeqNum(789)?
    says_next_expected: bool,
    next_in: u64,
    next_out: u64,
    /// Orders sent since the latest reset, by number.
    sent: BTreeMap<u64, Body>,
    orders: u64,
    answers: Vec<u64>,
    reports: Vec<u64>,
    /// A reset was requested and not yet agreed to.
    is_resetting: bool,
    connection: Option<Connection>,
    now: Duration,
}

impl Initiator {
    pub(super) const fn new(says_next_expected: bool) -> Self {
        Self {
            says_next_expected,
            next_in: 1,
            next_out: 1,
            sent: BTreeMap::new(),
            orders: 0,
            answers: Vec::new(),
            reports: Vec::new(),
            is_resetting: false,
            connection: None,
            now: Duration::ZERO,
        }
    }

    pub(super) fn orders(&self) -> usize {
        usize::try_from(self.orders).unwrap()
    }

    pub(super) const fn answers(&self) -> &Vec<u64> {
        &self.answers
    }

    pub(super) const fn reports(&self) -> &Vec<u64> {
        &self.reports
    }

    pub(super) const fn is_connected(&self) -> bool {
        self.connection.is_some()
    }

    pub(super) fn disconnected(&mut self) {
        self.connection = None;
    }

    pub(super) fn connect(&mut self, link: &mut Link) {
        self.connection = Some(Connection { last_sent: self.now, ..Connection::default() });
        self.log_on(link);
    }

    /// Asks for a reset, inside the session or with the next Logon.
    pub(super) fn reset(&mut self, link: &mut Link) {
        if std::mem::replace(&mut self.is_resetting, true) {
            // One at a time: the answer to the first would be taken for the second's.
            return;
        }
        if self.connection.as_ref().is_some_and(|connection| connection.is_logged_on) {
            self.log_on(link);
        }
    }

    fn log_on(&mut self, link: &mut Link) {
        if let Some(connection) = &mut self.connection {
            connection.logon_sent = self.now;
        }
        let mut body = Body::new().field(tag::ENCRYPT_METHOD, "0").field(tag::HEART_BT_INT, "10");
        if self.is_resetting {
            (self.next_in, self.next_out) = (1, 1);
            self.sent.clear();
            body = body.field(tag::RESET_SEQ_NUM_FLAG, "Y");
        }
        if self.says_next_expected {
            body = body.number(tag::NEXT_EXPECTED_MSG_SEQ_NUM, self.next_in);
        }
        self.say(MsgType::LOGON, body, link);
    }

    pub(super) fn order(&mut self, link: &mut Link) {
        self.orders += 1;
        if !self.is_resetting {
            self.send_order(self.orders, false, link);
        }
    }

    fn send_order(&mut self, id: u64, is_again: bool, link: &mut Link) {
        let again = is_again.then_some("Y");
        let body = Body::new().maybe(tag::POSS_RESEND, again).field(11, id.to_string());
        let body = body.field(40, "1").field(54, "1").field(55, "X").field(60, "20260101-00:00:00");
        self.sent.insert(self.next_out, body.clone());
        let is_logged_on = self.connection.as_ref().is_some_and(|connection| connection.is_logged_on);
        if is_logged_on {
            self.say(MsgType::NEW_ORDER_SINGLE, body, link);
        } else {
            // The message has its number; the other side requests it when it finds the gap.
            self.next_out += 1;
        }
    }

    fn say(&mut self, msg_type: MsgType, body: Body, link: &mut Link) {
        let seq = self.next_out;
        self.next_out += 1;
        self.put(seq, msg_type, &body, false, link);
    }

    fn put(&mut self, seq: u64, msg_type: MsgType, body: &Body, is_again: bool, link: &mut Link) {
        let Some(connection) = &mut self.connection else { return };
        connection.last_sent = self.now;
        let sending_time = crate::driver::at(self.now).utc;
        let mut frame = Vec::new();
        let head = Head {
            begin_string: "FIX.4.4",
            msg_type,
            seq: SeqNum(seq),
            sender_comp_id: "ACME",
            target_comp_id: "DVP",
            sending_time: sending_time.into(),
            orig_sending_time: is_again.then_some(UtcNanos(sending_time.0 - 1_000_000).into()),
            last_processed: None,
        };
        encode(&head, body, &mut frame);
        if link.is_up {
            link.to_node.push_back(frame);
        }
    }

    pub(super) fn tick(&mut self, now: Duration, link: &mut Link) {
        self.now = now;
        let Some(connection) = &mut self.connection else { return };
        if !connection.is_logged_on || self.is_resetting {
            // No answer to our Logon: try again with the next connection.
            if now > connection.logon_sent + HEART_BEAT {
                self.connection = None;
            }
            return;
        }
        if let Some((begin, at)) = connection.requested
            && now > at + HEART_BEAT
        {
            if begin == self.next_in {
                return self.request_resend(link);
            }
            connection.requested = None;
        }
        if now >= connection.last_sent + HEART_BEAT {
            self.say(MsgType::HEARTBEAT, Body::new(), link);
        }
    }

    pub(super) fn receive(&mut self, frame: &[u8], link: &mut Link) {
        let Some(connection) = &mut self.connection else { return };
        let message = Message::parse(frame).unwrap();
        let seq = message.seq().unwrap().0;
        let is_agreed_reset = message.msg_type() == b"A" && message.is_yes(tag::RESET_SEQ_NUM_FLAG);
        match message.msg_type() {
            // The connection may end here; messages in the other direction are sent again.
            b"5" => {
                if connection.is_logged_on && seq == self.next_in && !self.is_resetting {
                    self.next_in += 1;
                }
                if connection.is_logged_on {
                    self.say(MsgType::LOGOUT, Body::new(), link);
                }
                self.connection = None;
            }
            _ if is_agreed_reset => {
                if !self.is_resetting || seq != 1 {
                    return;
                }
                self.is_resetting = false;
                self.next_in = 2;
                connection.is_logged_on = true;
                connection.requested = None;
                let unanswered: Vec<u64> =
                    (1..=self.orders).filter(|id| !self.answers.contains(id)).collect();
                for id in unanswered {
                    self.send_order(id, true, link);
                }
            }
            _ if self.is_resetting => {}
            b"A" => {
                connection.is_logged_on = true;
                if self.says_next_expected && seq > self.next_in {
                    // The messages come without a request.
                    connection.requested = Some((self.next_in, self.now));
                }
                self.in_turn(&message, seq, link);
                if let Some(expected) = message.text(tag::NEXT_EXPECTED_MSG_SEQ_NUM) {
                    self.resend(expected.parse().unwrap(), link);
                }
            }
            // The answer to our Logon was lost.
            _ if !connection.is_logged_on => self.connection = None,
            b"2" => {
                self.resend(message.text(tag::BEGIN_SEQ_NO).unwrap().parse().unwrap(), link);
                self.in_turn(&message, seq, link);
            }
            _ => self.in_turn(&message, seq, link),
        }
    }

    fn in_turn(&mut self, message: &Message, seq: u64, link: &mut Link) {
        if seq < self.next_in {
            assert!(message.is_yes(tag::POSS_DUP_FLAG), "number used again: {message:?}");
        } else if seq > self.next_in {
            let requested = self.connection.as_ref().and_then(|connection| connection.requested);
            if requested.is_none() {
                self.request_resend(link);
            }
        } else {
            self.next_in += 1;
            self.act(message, link);
            if let Some(connection) = &mut self.connection
                && connection.requested.is_some_and(|(begin, _)| self.next_in > begin)
            {
                connection.requested = None;
            }
        }
    }

    fn act(&mut self, message: &Message, link: &mut Link) {
        match message.msg_type() {
            b"4" => self.next_in = message.text(tag::NEW_SEQ_NO).unwrap().parse().unwrap(),
            b"1" => self.say(
                MsgType::HEARTBEAT,
                Body::new().maybe(tag::TEST_REQ_ID, message.get(tag::TEST_REQ_ID)),
                link,
            ),
            b"8" => {
                let id = message.text(11).unwrap();
                let (list, number) = match id.split_at(1) {
                    ("o", number) => (&mut self.answers, number),
                    (_, number) => (&mut self.reports, number),
                };
                let number = number.parse().unwrap();
                if !list.contains(&number) {
                    list.push(number);
                }
            }
            b"0" | b"2" | b"A" => {}
            _ => panic!("unexpected message: {message:?}"),
        }
    }

    fn request_resend(&mut self, link: &mut Link) {
        if let Some(connection) = &mut self.connection {
            connection.requested = Some((self.next_in, self.now));
        }
        let body = Body::new().number(tag::BEGIN_SEQ_NO, self.next_in).number(tag::END_SEQ_NO, 0);
        self.say(MsgType::RESEND_REQUEST, body, link);
    }

    fn resend(&mut self, begin: u64, link: &mut Link) {
        let end = self.next_out;
        let mut next = begin;
        for (seq, body) in
            self.sent.range(begin..end).map(|(seq, body)| (*seq, body.clone())).collect::<Vec<_>>()
        {
            self.fill(next, seq, link);
            self.put(seq, MsgType::NEW_ORDER_SINGLE, &body, true, link);
            next = seq + 1;
        }
        self.fill(next, end, link);
    }

    fn fill(&mut self, from: u64, to: u64, link: &mut Link) {
        if from < to {
            let body = Body::new().number(tag::NEW_SEQ_NO, to).field(tag::GAP_FILL_FLAG, "Y");
            self.put(from, MsgType::SEQUENCE_RESET, &body, true, link);
        }
    }
}

//! An order's way through an established session: dictionary, session rules, the echo under its number, encoding;
//! beside the codec's part of it alone, which is the floor.

use std::{
    hint::black_box,
    sync::Arc,
    time::{Duration, Instant},
};

use criterion::{Criterion, criterion_group, criterion_main};
use dvp_benches::fix_messages::{NEW_ORDER_SINGLE, wire};
use dvp_fix::{
    SeqNum, UtcNanos,
    codec::{Body, Head, Message, MessageRef, MsgType, Parser, encode},
    dictionary::Rules,
    session::{Now, Output, Session, SessionConfig},
};

/// SendingTime(52) of the order.
const SENT: &[u8] = b"20261121-12:00:40.123";

/// Orders that are made beforehand for one sample.
const ORDERS: u64 = 1_000;

fn rules() -> Rules {
    Rules::strict("FIX.4.4", "FIX.4.4").expect("a known version")
}

fn head(msg_type: MsgType, seq: u64) -> Head<'static> {
    Head {
        begin_string: "FIX.4.4",
        msg_type,
        seq: SeqNum(seq),
        sender_comp_id: "CLNT",
        target_comp_id: "DVP",
        sending_time: UtcNanos::parse(SENT).expect("a time").into(),
        orig_sending_time: None,
        last_processed: None,
    }
}

fn frame(msg_type: MsgType, seq: u64, body: &Body) -> Vec<u8> {
    let mut out = Vec::new();
    encode(&head(msg_type, seq), body, &mut out);
    out
}

fn body_of(message: MessageRef<'_>, mut body: Body) -> Body {
    for field in message.fields() {
        if !matches!(field.tag, 8 | 9 | 35 | 34 | 49 | 52 | 56 | 10) {
            body.copy(message, field);
        }
    }
    body
}

fn session(now: Now) -> Session {
    let config = SessionConfig::new("FIX.4.4", "DVP", "CLNT", rules());
    let mut session = Session::new(Arc::new(config), now, SeqNum::FIRST, SeqNum::FIRST);
    session.connect(now);
    let logon = frame(MsgType::LOGON, 1, &Body::new().field(98, "0").field(108, "30"));
    let logon = Message::parse(&logon).expect("a proper frame");
    session.handle_message(now, logon.view());
    while let Some(output) = session.poll_output() {
        if matches!(output, Output::Authenticate(_)) {
            session.handle_authentication(now, true);
        }
    }
    assert!(session.is_logged_on());
    session
}

/// One order in, its echo out.
fn step(session: &mut Session, now: Now, order: MessageRef<'_>, out: &mut Vec<u8>) {
    session.handle_message(now, order);
    while let Some(output) = session.poll_output() {
        match output {
            Output::Deliver { .. } => {
                let body = body_of(order, session.body());
                session.send(now, MsgType::NEW_ORDER_SINGLE, body).expect("logged on");
            }
            Output::Transmit(message) => {
                out.clear();
                session.encode(now, &message, out);
                session.recycle(message.body);
            }
            _ => {}
        }
    }
}

fn steps(criterion: &mut Criterion) {
    let now = Now::of(Instant::now(), UtcNanos::parse(SENT).expect("a time"));
    let order = wire(NEW_ORDER_SINGLE);
    let order = Message::parse(&order).expect("a proper frame");
    criterion.bench_function("check an order by its dictionary", |bench| {
        let rules = rules();
        bench.iter(|| rules.check(black_box(order.view())).expect("a proper order"));
    });
    let body = body_of(order.view(), Body::new());
    let frames: Vec<_> = (2..2 + ORDERS).map(|seq| frame(MsgType::NEW_ORDER_SINGLE, seq, &body)).collect();
    let messages: Vec<_> =
        frames.iter().map(|frame| Message::parse(frame).expect("a proper frame")).collect();
    criterion.bench_function("session step: order in, checked, echo encoded", |bench| {
        bench.iter_custom(|rounds| {
            run(rounds, now, |session, out, at| step(session, now, messages[at].view(), out))
        });
    });
    let (mut parser, mut out, mut echo) = (Parser::new(), Vec::new(), Body::new());
    let head = head(MsgType::NEW_ORDER_SINGLE, 2);
    criterion.bench_function("floor: an order decoded and its echo encoded, without any session", |bench| {
        bench.iter(|| {
            let order = parser.parse(black_box(&frames[0])).expect("a proper frame");
            echo.clear();
            echo = body_of(order, std::mem::take(&mut echo));
            out.clear();
            encode(&head, &echo, &mut out);
            out.len()
        });
    });
    let mut parser = Parser::new();
    criterion.bench_function("the same from the frame's bytes", |bench| {
        bench.iter_custom(|rounds| {
            run(rounds, now, |session, out, at| {
                let order = parser.parse(&frames[at]).expect("a proper frame");
                step(session, now, order, out);
            })
        });
    });
}

/// Takes the orders in rows, each row through a session of its own, and counts only the time of the orders.
fn run(rounds: u64, now: Now, mut order: impl FnMut(&mut Session, &mut Vec<u8>, usize)) -> Duration {
    let mut out = Vec::new();
    let (mut left, mut elapsed) = (rounds, Duration::ZERO);
    while left > 0 {
        let row = left.min(ORDERS);
        let mut session = session(now);
        let started = Instant::now();
        for at in 0..usize::try_from(row).unwrap_or(0) {
            order(&mut session, &mut out, at);
        }
        elapsed += started.elapsed();
        assert_eq!(session.next_out(), SeqNum(row + 2), "every order was echoed");
        left -= row;
    }
    elapsed
}

criterion_group!(benches, steps);
criterion_main!(benches);

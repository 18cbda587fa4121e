//! No message of an established session allocates: counted by the allocator, not believed.
//!
//! One test alone in its binary: allocations of other threads would be counted, too.

use std::{
    alloc::System,
    sync::Arc,
    time::{Duration, Instant},
};

use dvp_fix::{
    SeqNum, UtcNanos,
    codec::{Body, Framed, Framer, Head, MessageRef, MsgType, Parser, encode},
    dictionary::Rules,
    session::{Now, Output, Session, SessionConfig},
};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static GLOBAL: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const WARM_UP: u64 = 200;
const COUNTED: u64 = 2_000;

/// The components that process a message.
struct Path {
    framer: Framer,
    parser: Parser,
    session: Session,
    now: Now,
    order: Body,
    inbound: Vec<u8>,
    outbound: Vec<u8>,
}

impl Path {
    fn new(now: Now) -> Self {
        let rules = Rules::strict("FIX.4.4", "FIX.4.4").expect("a known version");
        let config = SessionConfig::new("FIX.4.4", "DVP", "ACME", rules);
        let mut session = Session::new(Arc::new(config), now, SeqNum::FIRST, SeqNum::FIRST);
        session.connect(now);
        let order = Body::new()
            .field(11, "ORD-1")
            .field(21, "1")
            .field(38, "250000.00")
            .field(40, "2")
            .field(44, "0.9991")
            .field(54, "2")
            .field(55, "USDC/USD")
            .field(59, "0")
            .field(60, "20261121-12:00:40.100");
        let (inbound, outbound) = (Vec::new(), Vec::new());
        let mut path =
            Self { framer: Framer::new(4096), parser: Parser::new(), session, now, order, inbound, outbound };
        let logon = Body::new().field(98, "0").field(108, "30");
        path.write(MsgType::LOGON, 1, &logon);
        path.take();
        path
    }

    /// The peer's next message, in `inbound`.
    fn write(&mut self, msg_type: MsgType, seq: u64, body: &Body) {
        let head = Head {
            begin_string: "FIX.4.4",
            msg_type,
            seq: SeqNum(seq),
            sender_comp_id: "ACME",
            target_comp_id: "DVP",
            sending_time: self.now.utc.into(),
            orig_sending_time: None,
            last_processed: None,
        };
        self.inbound.clear();
        encode(&head, body, &mut self.inbound);
    }

    /// From bytes to the session's answers in `outbound`.
    fn take(&mut self) {
        let Self { framer, parser, session, now, inbound, outbound, .. } = self;
        framer.push(inbound);
        let Framed::Frame(frame) = framer.next_frame() else { panic!("one frame") };
        let message = parser.parse(frame).expect("a proper frame");
        session.handle_message(*now, message);
        while let Some(output) = session.poll_output() {
            match output {
                Output::Authenticate(_) => session.handle_authentication(*now, true),
                Output::Deliver { .. } => echo(session, *now, message),
                Output::Transmit(message) => {
                    outbound.clear();
                    session.encode(*now, &message, outbound);
                    session.recycle(message.body);
                }
                Output::Persist { .. } | Output::LoggedOn => {}
                other => panic!("not in this conversation: {other:?}"),
            }
        }
    }

    fn run(&mut self, orders: std::ops::Range<u64>) {
        let order = std::mem::take(&mut self.order);
        for seq in orders {
            self.now.mono += Duration::from_millis(1);
            self.now.utc.0 += 1_000_000;
            self.write(MsgType::NEW_ORDER_SINGLE, seq, &order);
            self.take();
            assert_eq!(self.session.next_out(), SeqNum(seq + 1), "the order was echoed");
        }
        self.order = order;
    }
}

/// Sends the order's body back.
fn echo(session: &mut Session, now: Now, order: MessageRef<'_>) {
    let mut body = session.body();
    for field in order.fields().iter().filter(|field| ![8, 9, 35, 34, 49, 52, 56, 10].contains(&field.tag)) {
        body.copy(order, field);
    }
    session.send(now, MsgType::NEW_ORDER_SINGLE, body).expect("logged on");
}

#[test]
fn an_order_is_processed_without_allocations() {
    #[expect(
        clippy::disallowed_methods,
        reason = "an arbitrary origin: std has no other way to make an Instant"
    )]
    let mono = Instant::now();
    let mut path = Path::new(Now::of(mono, UtcNanos(1_800_000_000_000_000_000)));
    path.run(2..2 + WARM_UP);
    // The harness's own thread is counted, too, when it happens to run: the cost of a message shows in every round.
    let mut next = 2 + WARM_UP;
    let mut rounds = (0..5).map(|_| {
        let region = Region::new(GLOBAL);
        path.run(next..next + COUNTED);
        next += COUNTED;
        let counted = region.change();
        (counted.allocations, counted.reallocations, counted.deallocations)
    });
    assert!(rounds.any(|counted| counted == (0, 0, 0)), "an allocation in every round of {COUNTED} messages");
}

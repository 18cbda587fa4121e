//! Two sides and a bad line: under disconnects, restarts, gaps, duplicates and resets both end with the same
//! application messages, each once and in order, and no number ever stands for two messages.
//!
//! The acceptor is ours, with a store of the persisted messages and a process that may stop between any two
//! outputs. The initiator is written for this test alone and shares no rule with ours.

mod initiator;
mod node;

use std::{collections::VecDeque, time::Duration};

use proptest::prelude::*;

use self::{initiator::Initiator, node::Node};

/// Messages in flight.
#[derive(Debug, Default)]
pub(super) struct Link {
    is_up: bool,
    to_node: VecDeque<Vec<u8>>,
    to_initiator: VecDeque<Vec<u8>>,
}

impl Link {
    fn cut(&mut self) {
        *self = Self::default();
    }
}

/// The events of a run.
#[derive(Debug, Clone, Copy)]
enum Event {
    Order,
    Report,
    Connect,
    /// One side reads this many messages.
    ToNode(usize),
    ToInitiator(usize),
    /// The next message is lost, comes garbled, or comes twice.
    LoseToNode,
    LoseToInitiator,
    GarbleToNode,
    RepeatToNode,
    Cut,
    /// The acceptor's process stops before its next output but this many.
    CrashNode(usize),
    CrashInitiator,
    Reset,
    LogOut,
    Seconds(u64),
}

struct World {
    link: Link,
    node: Node,
    initiator: Initiator,
    elapsed: Duration,
}

impl World {
    fn new(chunk: Option<u64>, says_next_expected: bool) -> Self {
        Self {
            link: Link::default(),
            node: Node::new(chunk, says_next_expected),
            initiator: Initiator::new(says_next_expected),
            elapsed: Duration::ZERO,
        }
    }

    fn connect(&mut self) {
        if self.link.is_up {
            return;
        }
        self.link.cut();
        self.link.is_up = true;
        self.node.connect(self.elapsed);
        self.initiator.connect(&mut self.link);
    }

    fn cut(&mut self) {
        self.link.cut();
        self.node.disconnected();
        self.initiator.disconnected();
    }

    fn node_reads(&mut self) -> bool {
        let Some(frame) = self.link.to_node.pop_front() else { return false };
        self.node.receive(self.elapsed, &frame, &mut self.link);
        true
    }

    fn initiator_reads(&mut self) -> bool {
        let Some(frame) = self.link.to_initiator.pop_front() else { return false };
        self.initiator.receive(&frame, &mut self.link);
        true
    }

    /// Either side may have ended the connection; the other side notices it after it has read the earlier messages.
    fn notice_the_end(&mut self) {
        let node_is_gone = !self.node.is_connected() && self.link.to_initiator.is_empty();
        let initiator_is_gone = !self.initiator.is_connected() && self.link.to_node.is_empty();
        if self.link.is_up && (node_is_gone || initiator_is_gone) {
            self.cut();
        }
    }

    fn pass(&mut self, seconds: u64) {
        for _ in 0..seconds {
            self.elapsed += Duration::from_secs(1);
            self.node.tick(self.elapsed, &mut self.link);
            self.initiator.tick(self.elapsed, &mut self.link);
        }
    }

    fn apply(&mut self, event: Event) {
        match event {
            Event::Order => self.initiator.order(&mut self.link),
            Event::Report => self.node.report(self.elapsed, &mut self.link),
            Event::Connect => self.connect(),
            Event::ToNode(count) => (0..count).for_each(|_| _ = self.node_reads()),
            Event::ToInitiator(count) => (0..count).for_each(|_| _ = self.initiator_reads()),
            Event::LoseToNode => drop(self.link.to_node.pop_front()),
            Event::LoseToInitiator => drop(self.link.to_initiator.pop_front()),
            Event::GarbleToNode => {
                if let Some(byte) = self.link.to_node.front_mut().and_then(|frame| frame.get_mut(30)) {
                    *byte ^= 0x10;
                }
            }
            Event::RepeatToNode => {
                // A repeated Logon with a reset is a second reset: the protocol cannot distinguish them.
                let is_reset = |frame: &[u8]| frame.windows(6).any(|window| window == b"\x01141=Y");
                if let Some(frame) = self.link.to_node.front().filter(|frame| !is_reset(frame)).cloned() {
                    self.link.to_node.push_front(frame);
                }
            }
            Event::Cut => self.cut(),
            Event::CrashNode(after) => self.node.crash_after(after),
            Event::CrashInitiator => self.cut(),
            Event::Reset => self.initiator.reset(&mut self.link),
            Event::LogOut => self.node.log_out(self.elapsed, &mut self.link),
            Event::Seconds(seconds) => self.pass(seconds),
        }
        if self.node.take_crash() {
            self.cut();
        }
        self.notice_the_end();
    }

    /// From now on the line is good. Both sides have to find together.
    fn settle(&mut self) {
        self.node.forget_crash();
        for _ in 0..600 {
            self.connect();
            while self.node_reads() | self.initiator_reads() {
                self.notice_the_end();
            }
            self.notice_the_end();
            if self.is_settled() {
                return;
            }
            self.pass(1);
            self.notice_the_end();
        }
        panic!(
            "never settled: {} of {} orders, {} of {} reports, {:?}",
            self.node.orders().len(),
            self.initiator.orders(),
            self.initiator.reports().len(),
            self.node.reports(),
            self.initiator
        );
    }

    fn is_settled(&self) -> bool {
        self.link.is_up
            && self.node.orders().len() == self.initiator.orders()
            && self.initiator.answers().len() == self.initiator.orders()
            && self.initiator.reports().len() == self.node.reports()
    }
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        6 => Just(Event::Order),
        4 => Just(Event::Report),
        5 => Just(Event::Connect),
        8 => (1_usize..6).prop_map(Event::ToNode),
        8 => (1_usize..6).prop_map(Event::ToInitiator),
        2 => Just(Event::LoseToNode),
        2 => Just(Event::LoseToInitiator),
        1 => Just(Event::GarbleToNode),
        1 => Just(Event::RepeatToNode),
        2 => Just(Event::Cut),
        2 => (0_usize..8).prop_map(Event::CrashNode),
        1 => Just(Event::CrashInitiator),
        1 => Just(Event::Reset),
        1 => Just(Event::LogOut),
        2 => (1_u64..30).prop_map(Event::Seconds),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn both_sides_have_the_same_messages_once_in_order(
        chunk in prop::option::of(1_u64..4),
        events in prop::collection::vec(event(), 1..150),
        says_next_expected in any::<bool>(),
    ) {
        let mut world = World::new(chunk, says_next_expected);
        for event in events {
            world.apply(event);
        }
        world.settle();
        let expected: Vec<u64> = (1..).take(world.initiator.orders()).collect();
        prop_assert_eq!(world.node.orders(), &expected);
        prop_assert_eq!(world.initiator.answers(), &expected);
        let expected: Vec<u64> = (1..).take(world.node.reports()).collect();
        prop_assert_eq!(world.initiator.reports(), &expected);
    }
}

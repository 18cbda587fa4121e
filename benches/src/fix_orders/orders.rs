//! Orders of a fiat pair, each measured until the report that it was sent for.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use dvp_fix::codec::{Body, MsgType, Parser};
use dvp_fix::{UtcNanos, tag};

use crate::fix_client::{Client, Workload};
use crate::harness::ACCOUNT;

/// Which report answers an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Goal {
    /// It is accepted: ExecType(150) is New.
    Accepted,
    /// It is paid: ExecType(150) is Trade.
    Filled,
}

pub(super) struct Orders {
    goal: Goal,
    parser: Parser,
    /// When the unanswered orders were sent, by ClOrdID.
    sent: HashMap<Vec<u8>, Instant>,
    /// From writing each order to the report that it was sent for.
    pub(super) latencies: Vec<Duration>,
}

impl Orders {
    pub(super) fn new(goal: Goal) -> Self {
        Self { goal, parser: Parser::new(), sent: HashMap::new(), latencies: Vec::new() }
    }
}

impl Workload for Orders {
    fn write_order(&mut self, client: &mut Client, at: UtcNanos) {
        // Sequence numbers begin at 1 in each run; a ClOrdID must never repeat.
        let id = format!("{}-{}-{}", client.comp_id(), at.0, client.next_seq());
        let order = Body::new().field(1, ACCOUNT).field(11, &id).field(38, "100").field(40, "2");
        let order = order.field(44, "0.5").field(54, "2").field(55, "USD/EUR").field(59, "0");
        let order = order.field(60, at.to_millis_text());
        client.write(MsgType::NEW_ORDER_SINGLE, &order, at);
        self.sent.insert(id.into_bytes(), Instant::now());
    }

    fn is_answer(&mut self, frame: &[u8]) -> anyhow::Result<bool> {
        let message = self.parser.parse(frame)?;
        if message.msg_type() == b"0" {
            return Ok(false);
        }
        ensure!(message.msg_type() == b"8", "not a report: {}", message.redacted());
        // A report of the connection before: our Logon reset the numbers before the service knew that it was read.
        if message.is_yes(tag::POSS_RESEND) {
            return Ok(false);
        }
        match (message.get(150), self.goal) {
            (Some(b"0"), Goal::Accepted) | (Some(b"F"), Goal::Filled) => {}
            (Some(b"0" | b"I"), Goal::Filled) => return Ok(false),
            _ => bail!("an order was not taken: {}", message.redacted()),
        }
        let id = message.get(11).context("a report without ClOrdID")?;
        let at = self.sent.remove(id).context("a report of an unknown order")?;
        self.latencies.push(at.elapsed());
        Ok(true)
    }
}

//! The same order again and again, answered by its echo.

use dvp_fix::UtcNanos;
use dvp_fix::codec::{Body, MsgType, Parser};

use crate::fix_client::{Client, Workload};

/// One echo in this number is parsed, so that wrong answers are noticed at little cost to the client.
const CHECKED: usize = 16;

pub(super) struct Echo {
    order: Body,
    parser: Parser,
    pub(super) answered: usize,
}

impl Echo {
    pub(super) fn new() -> Self {
        let order = Body::new()
            .field(1, "A")
            .field(11, "ORD1201")
            .field(15, "USDC")
            .field(18, "1")
            .field(21, "1")
            .field(38, "250000.00")
            .field(40, "2")
            .field(44, "0.9991")
            .field(54, "2")
            .field(55, "USDC/USD")
            .field(58, "x")
            .field(59, "0")
            .field(60, "20261121-12:00:40")
            .field(63, "0")
            .field(110, "0")
            .field(461, "FX");
        Self { order, parser: Parser::new(), answered: 0 }
    }
}

impl Workload for Echo {
    fn write_order(&mut self, client: &mut Client, at: UtcNanos) {
        client.write(MsgType::NEW_ORDER_SINGLE, &self.order, at);
    }

    fn is_answer(&mut self, frame: &[u8]) -> anyhow::Result<bool> {
        if self.answered.is_multiple_of(CHECKED) {
            let is_echo = self.parser.parse(frame)?.msg_type() == b"D";
            anyhow::ensure!(is_echo, "not an echo: {frame:?}");
        }
        self.answered += 1;
        Ok(true)
    }
}

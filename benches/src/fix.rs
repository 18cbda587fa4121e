//! The echo acceptor over loopback, as a process of its own, beside a bare echo of bytes and, where one is named,
//! beside another engine's acceptor: orders a second, user CPU an order, memory with many sessions.
//!
//! The same client drives all of them: it keeps a fixed number of orders unanswered on each session.

pub mod server;

use std::net::SocketAddr;
use std::time::Duration;

use dvp_fix::UtcNanos;
use dvp_fix::codec::{Body, MsgType, Parser};

use self::server::{Server, target};
use crate::figure::{Figure, per_second};
use crate::fix_client::{Client, Driven, Workload, drive};
use crate::fix_messages::NEW_ORDER_SINGLE;
use crate::fix_orders::{PARTS, Part};
use crate::proc::{Vitals, worked_as_user};
use crate::progress;

/// Sessions of the last part: the number of idle ones, and of those that send orders.
const IDLE: usize = 1_000;
const BUSY: usize = 100;

#[derive(Debug, Clone, Copy, Default)]
struct Measured {
    orders_a_second: u64,
    user_nanos_an_order: u64,
}

/// Measures for `seconds` each: one session, eight sessions, many sessions. `peer` is a command that starts another
/// engine's echo acceptor with the sessions that `server::target` names and prints `listening HOST:PORT`.
pub fn measure(seconds: u64, peer: Option<&str>) -> anyhow::Result<Vec<Figure>> {
    let time = Duration::from_secs(seconds);
    let mut figures = Vec::new();
    progress::expect(u64::try_from(PARTS.len())? * (2 + u64::from(peer.is_some())) + 1);
    for part in &PARTS {
        let ours = orders(Server::ours(part.sessions)?, time, part)?;
        let floor = orders(Server::bare_echo()?, time, part)?;
        figures.extend(beside(part, ["", ""], ours, floor));
        if let Some(command) = peer {
            let theirs = orders(Server::peer(command)?, time, part)?;
            figures.extend(beside(part, [", beside the peer", " beside the peer's"], ours, theirs));
        }
    }
    figures.push(memory(time)?);
    Ok(figures)
}

fn beside(part: &Part, whom: [&str; 2], ours: Measured, floor: Measured) -> [Figure; 2] {
    let (rate, cpu) =
        (format!("fix, {}{}", part.name, whom[0]), format!("fix, {}, user CPU{}", part.name, whom[1]));
    [
        Figure::new(rate, ours.orders_a_second, "orders/s", floor.orders_a_second),
        Figure::new(cpu, ours.user_nanos_an_order, "ns/order", floor.user_nanos_an_order),
    ]
}

fn log_on(addr: SocketAddr, comp_id: String) -> anyhow::Result<Client> {
    Client::log_on(addr, comp_id, None)
}

fn orders(server: Server, time: Duration, part: &Part) -> anyhow::Result<Measured> {
    let connect = if server.is_fix { log_on } else { Client::connect };
    let clients = (0..part.sessions)
        .map(|session| Ok((connect(server.addr, target(session))?, Echo::new())))
        .collect::<anyhow::Result<Vec<_>>>()?;
    let before = worked_as_user(server.pid);
    let Driven { workloads, elapsed, .. } = drive(clients, time, part.window)?;
    let count = workloads.iter().map(|echo| echo.answered).sum();
    let used = worked_as_user(server.pid).saturating_sub(before);
    server.stop()?;
    progress::done(part.name);
    let nanos = used.as_nanos().checked_div(u128::try_from(count)?).unwrap_or(0);
    let user_nanos_an_order = u64::try_from(nanos)?;
    Ok(Measured { orders_a_second: per_second(count, elapsed), user_nanos_an_order })
}

/// Peak memory of our acceptor with [`IDLE`] sessions that only are there and [`BUSY`] that send orders.
fn memory(time: Duration) -> anyhow::Result<Figure> {
    let server = Server::ours(IDLE + BUSY)?;
    let idle = (BUSY..BUSY + IDLE)
        .map(|session| log_on(server.addr, target(session)))
        .collect::<Result<Vec<_>, _>>()?;
    let busy = (0..BUSY)
        .map(|session| Ok((log_on(server.addr, target(session))?, Echo::new())))
        .collect::<anyhow::Result<Vec<_>>>()?;
    let at_rest = Vitals::of(server.pid)?.peak_bytes;
    drive(busy, time, 4)?;
    let value = Vitals::of(server.pid)?.peak_bytes;
    drop(idle);
    server.stop()?;
    progress::done("1,000 idle sessions");
    Ok(Figure::new("fix, 1,000 idle and 100 busy sessions", value, "bytes", at_rest))
}

/// One echo in this number is parsed, so that wrong answers are noticed at little cost to the client.
const CHECKED: usize = 16;

/// The same order again and again, answered by its echo.
struct Echo {
    order: Body,
    parser: Parser,
    answered: usize,
}

impl Echo {
    fn new() -> Self {
        let fields = NEW_ORDER_SINGLE.split('|').filter_map(|field| field.split_once('='));
        let mut order = Body::new();
        for (tag, value) in fields.skip(7).filter(|(tag, _)| *tag != "10") {
            order.push(tag.parse().unwrap_or_default(), value.as_bytes());
        }
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

//! The echo acceptor over loopback, as a process of its own, beside a bare echo of bytes and, where one is named,
//! beside another engine's acceptor: orders a second, user CPU an order, memory with many sessions.
//!
//! The same client drives all of them: it keeps a fixed number of orders unanswered on each session.

mod client;
pub mod server;

use std::time::Duration;

use client::{Client, drive};
use server::Server;

use crate::figure::{Figure, per_second};

/// Sessions of the last part: so many idle ones, and so many that send orders.
const IDLE: usize = 1_000;
const BUSY: usize = 100;

/// What one server did in one part.
#[derive(Debug, Clone, Copy, Default)]
struct Measured {
    orders_a_second: u64,
    user_nanos_an_order: u64,
}

/// Measures for `seconds` each: one session, eight sessions, many sessions. `peer` is a command that starts another
/// engine's echo acceptor with the sessions that [`server::target`] names and prints `listening HOST:PORT`.
pub fn measure(seconds: u64, peer: Option<&str>) -> anyhow::Result<Vec<Figure>> {
    let time = Duration::from_secs(seconds);
    let mut figures = Vec::new();
    for (name, cpu_name, sessions, window) in [
        ("fix, one session", "fix, one session, user CPU", 1, 64),
        ("fix, eight sessions", "fix, eight sessions, user CPU", 8, 32),
    ] {
        let ours = orders(Server::ours(sessions)?, time, sessions, window)?;
        let floor = orders(Server::bare_echo()?, time, sessions, window)?;
        figures.push(rate(name, ours, floor));
        figures.push(cpu(cpu_name, ours, floor));
        if let Some(command) = peer {
            let theirs = orders(Server::peer(command)?, time, sessions, window)?;
            figures.push(rate("fix, beside the peer", ours, theirs));
            figures.push(cpu("fix, user CPU beside the peer's", ours, theirs));
        }
    }
    figures.push(memory(time)?);
    Ok(figures)
}

const fn rate(name: &'static str, ours: Measured, floor: Measured) -> Figure {
    Figure { name, value: ours.orders_a_second, unit: "orders/s", floor: floor.orders_a_second }
}

const fn cpu(name: &'static str, ours: Measured, floor: Measured) -> Figure {
    Figure { name, value: ours.user_nanos_an_order, unit: "ns/order", floor: floor.user_nanos_an_order }
}

/// Drives `sessions` at once, each by a thread of its own.
fn orders(server: Server, time: Duration, sessions: usize, window: usize) -> anyhow::Result<Measured> {
    let clients = (0..sessions)
        .map(|session| Client::log_on(server.addr(), session, server.is_fix()))
        .collect::<Result<Vec<_>, _>>()?;
    let before = server.user_nanos()?;
    let (count, elapsed) = drive(clients, time, window)?;
    let used = server.user_nanos()?.saturating_sub(before);
    server.stop()?;
    let user_nanos_an_order = used.checked_div(u64::try_from(count)?).unwrap_or(0);
    Ok(Measured { orders_a_second: per_second(count, elapsed), user_nanos_an_order })
}

/// Peak memory of our acceptor with [`IDLE`] sessions that only are there and [`BUSY`] that send orders.
fn memory(time: Duration) -> anyhow::Result<Figure> {
    let server = Server::ours(IDLE + BUSY)?;
    let idle = (BUSY..BUSY + IDLE)
        .map(|session| Client::log_on(server.addr(), session, true))
        .collect::<Result<Vec<_>, _>>()?;
    let busy = (0..BUSY)
        .map(|session| Client::log_on(server.addr(), session, true))
        .collect::<Result<Vec<_>, _>>()?;
    let at_rest = server.peak_bytes()?;
    drive(busy, time, 4)?;
    let value = server.peak_bytes()?;
    drop(idle);
    server.stop()?;
    Ok(Figure { name: "fix, 1,000 idle and 100 busy sessions", value, unit: "bytes", floor: at_rest })
}

//! A client that keeps a number of orders unanswered on its session.

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    time::{Duration, Instant, SystemTime},
};

use anyhow::Context as _;
use dvp_fix::{
    SeqNum, UtcNanos,
    codec::{Body, Framed, Framer, Head, MsgType, Parser, encode},
};

use super::server::target;

/// Patience with a server that says nothing.
const PATIENCE: Duration = Duration::from_secs(20);

pub(super) struct Client {
    stream: TcpStream,
    framer: Framer,
    comp_id: String,
    seq: u64,
    order: Body,
    out: Vec<u8>,
}

fn now() -> anyhow::Result<UtcNanos> {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
    Ok(UtcNanos(u64::try_from(since.as_nanos())?))
}

impl Client {
    /// Connects, and logs on to a server that speaks FIX.
    pub(super) fn log_on(addr: SocketAddr, session: usize, is_fix: bool) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(addr)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
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
        let framer = Framer::new(64 * 1024);
        let mut client = Self { stream, framer, comp_id: target(session), seq: 0, order, out: Vec::new() };
        if is_fix {
            let logon = Body::new().field(98, "0").field(108, "600").field(141, "Y");
            client.write(MsgType::LOGON, &logon, now()?);
            client.send()?;
            anyhow::ensure!(client.receive()? == 1, "one answer to a logon");
        }
        Ok(client)
    }

    fn write(&mut self, msg_type: MsgType, body: &Body, sending_time: UtcNanos) {
        self.seq = self.seq.saturating_add(1);
        let head = Head {
            begin_string: "FIX.4.4",
            msg_type,
            seq: SeqNum(self.seq),
            sender_comp_id: &self.comp_id,
            target_comp_id: "DVP",
            sending_time,
            orig_sending_time: None,
            last_processed: None,
        };
        encode(&head, body, &mut self.out);
    }

    fn send(&mut self) -> anyhow::Result<()> {
        self.stream.write_all(&self.out)?;
        self.out.clear();
        Ok(())
    }

    fn send_orders(&mut self, count: usize) -> anyhow::Result<()> {
        let (order, at) = (std::mem::take(&mut self.order), now()?);
        for _ in 0..count {
            self.write(MsgType::NEW_ORDER_SINGLE, &order, at);
        }
        self.order = order;
        self.send()
    }

    /// Waits for at least one message, and says how many there were.
    fn receive(&mut self) -> anyhow::Result<usize> {
        let mut count: usize = 0;
        while count == 0 {
            let bytes = self.stream.read(self.framer.room(16 * 1024)).context("no answer")?;
            anyhow::ensure!(bytes > 0, "the server closed the connection");
            self.framer.filled(bytes);
            while let Framed::Frame(frame) = self.framer.next_frame() {
                if count == 0 {
                    // One of each batch, so that echoes of something else are noticed.
                    let message = Parser::new().parse(frame).map(|message| message.msg_type().to_vec())?;
                    anyhow::ensure!(matches!(&message[..], b"D" | b"A"), "not an echo: {frame:?}");
                }
                count = count.saturating_add(1);
            }
        }
        Ok(count)
    }

    /// Sends orders until `until`, with `window` of them unanswered; then takes what is left.
    fn run(mut self, until: Instant, window: usize) -> anyhow::Result<usize> {
        self.send_orders(window)?;
        let (mut answered, mut unanswered) = (0_usize, window);
        while unanswered > 0 {
            let came = self.receive()?;
            answered = answered.saturating_add(came);
            unanswered = unanswered.saturating_sub(came);
            if Instant::now() < until {
                self.send_orders(came)?;
                unanswered = unanswered.saturating_add(came);
            }
        }
        Ok(answered)
    }
}

/// Runs the clients at once; the orders answered, and how long that took.
pub(super) fn drive(
    clients: Vec<Client>,
    time: Duration,
    window: usize,
) -> anyhow::Result<(usize, Duration)> {
    let started = Instant::now();
    let until = started + time;
    let threads: Vec<_> =
        clients.into_iter().map(|client| std::thread::spawn(move || client.run(until, window))).collect();
    let mut answered: usize = 0;
    for thread in threads {
        let count = thread.join().map_err(|_| anyhow::anyhow!("a client panicked"))??;
        answered = answered.saturating_add(count);
    }
    Ok((answered, started.elapsed()))
}

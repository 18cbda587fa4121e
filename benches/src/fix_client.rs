//! A FIX client on a thread of its own that keeps a number of orders unanswered on its session.
//!
//! What the orders are and what answers them is the [`Workload`]'s; connection, numbers and threads are the same for
//! every measurement.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use dvp_fix::codec::{Body, Framed, Framer, Head, MsgType, Parser, encode};
use dvp_fix::{SeqNum, UtcNanos};

use crate::proc;
use crate::wire::after;

/// How long a client waits for an answer before the measurement fails.
const PATIENCE: Duration = Duration::from_secs(30);
const MESSAGE_MAX: usize = 64 * 1024;

pub(crate) trait Workload: Send + 'static {
    fn write_order(&mut self, client: &mut Client, at: UtcNanos);

    /// Says whether a received message answers an order. An unexpected message is an error.
    fn is_answer(&mut self, frame: &[u8]) -> anyhow::Result<bool>;
}

pub(crate) struct Client {
    stream: TcpStream,
    framer: Framer,
    pub(crate) comp_id: String,
    /// Of the last message.
    pub(crate) seq: u64,
    out: Vec<u8>,
}

pub(crate) struct Driven<W> {
    pub(crate) workloads: Vec<W>,
    pub(crate) elapsed: Duration,
    pub(crate) worked: Duration,
}

impl Client {
    /// Connects without a Logon.
    pub(crate) fn connect(addr: SocketAddr, comp_id: String) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(addr)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Self { stream, framer: Framer::new(MESSAGE_MAX), comp_id, seq: 0, out: Vec::new() })
    }

    /// Connects and logs on, with both sequence numbers reset to 1.
    pub(crate) fn log_on(
        addr: SocketAddr,
        comp_id: String,
        credentials: Option<(&str, &str)>,
    ) -> anyhow::Result<Self> {
        let mut client = Self::connect(addr, comp_id)?;
        let mut logon = Body::new().field(98, "0").field(108, "600").field(141, "Y");
        if let Some((username, password)) = credentials {
            logon = logon.field(553, username).field(554, password);
        }
        client.write(MsgType::LOGON, &logon, after(Duration::ZERO));
        client.flush()?;
        // Reports of earlier orders may follow the Logon at once.
        let mut answer = None;
        client.receive(|frame| {
            answer.get_or_insert(Parser::new().parse(frame)?.msg_type().to_vec());
            Ok(true)
        })?;
        ensure!(answer.as_deref() == Some(b"A"), "{} was not admitted", client.comp_id);
        Ok(client)
    }

    pub(crate) fn write(&mut self, msg_type: MsgType, body: &Body, sending_time: UtcNanos) {
        self.seq += 1;
        let head = Head {
            begin_string: "FIX.4.4",
            msg_type,
            seq: SeqNum(self.seq),
            sender_comp_id: &self.comp_id,
            target_comp_id: "DVP",
            sending_time: sending_time.into(),
            orig_sending_time: None,
            last_processed: None,
        };
        encode(&head, body, &mut self.out);
    }

    fn flush(&mut self) -> anyhow::Result<()> {
        self.stream.write_all(&self.out)?;
        self.out.clear();
        Ok(())
    }

    /// Reads until a read brought at least one message that `is_answer` counts, and returns the number of those.
    fn receive(&mut self, mut is_answer: impl FnMut(&[u8]) -> anyhow::Result<bool>) -> anyhow::Result<usize> {
        let mut answers = 0;
        while answers == 0 {
            let bytes = self.stream.read(self.framer.room(16 * 1024)).context("no answer")?;
            ensure!(bytes > 0, "the server closed the connection");
            self.framer.filled(bytes);
            while let Framed::Frame(frame) = self.framer.next_frame() {
                answers += usize::from(is_answer(frame)?);
            }
        }
        Ok(answers)
    }

    fn send_orders(&mut self, workload: &mut impl Workload, count: usize) -> anyhow::Result<()> {
        let at = after(Duration::ZERO);
        for _ in 0..count {
            workload.write_order(self, at);
        }
        self.flush()
    }

    /// Sends orders until `until`, with `window` of them unanswered; then waits for the rest of the answers.
    fn run(mut self, workload: &mut impl Workload, until: Instant, window: usize) -> anyhow::Result<()> {
        self.send_orders(workload, window)?;
        let mut unanswered = window;
        while unanswered > 0 {
            let answers = self.receive(|frame| workload.is_answer(frame))?;
            unanswered = unanswered.checked_sub(answers).context("an answer to no order")?;
            if Instant::now() < until {
                self.send_orders(workload, answers)?;
                unanswered += answers;
            }
        }
        Ok(())
    }
}

pub(crate) fn drive<W: Workload>(
    clients: Vec<(Client, W)>,
    time: Duration,
    window: usize,
) -> anyhow::Result<Driven<W>> {
    let started = Instant::now();
    let until = started + time;
    let run = move |client: Client, mut workload: W| {
        let before = proc::worked_by_this_thread();
        client.run(&mut workload, until, window)?;
        anyhow::Ok((workload, proc::worked_by_this_thread().saturating_sub(before)))
    };
    let threads: Vec<_> = clients
        .into_iter()
        .map(|(client, workload)| std::thread::spawn(move || run(client, workload)))
        .collect();
    let (mut workloads, mut worked) = (Vec::new(), Duration::ZERO);
    for thread in threads {
        let (workload, time) = thread.join().map_err(|_| anyhow::anyhow!("a client panicked"))??;
        workloads.push(workload);
        worked += time;
    }
    Ok(Driven { workloads, elapsed: started.elapsed(), worked })
}

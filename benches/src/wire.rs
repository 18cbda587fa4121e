//! FIX connections that may say anything: every field's value is bytes.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, ensure};
use dvp_domain::intent::Permit;
use dvp_fix::UtcNanos;
use dvp_fix::codec::{Framed, Framer, Message};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};

/// A connection attempt that takes longer has failed.
pub(crate) const CONNECT_WITHIN: Duration = Duration::from_secs(10);

/// A message's fields after the standard header.
pub(crate) type Fields = Vec<(u32, Vec<u8>)>;

#[derive(Debug, Clone)]
pub(crate) struct Login {
    pub begin_string: String,
    pub comp_id: String,
    pub username: String,
    pub password: String,
    pub target: String,
}

impl Login {
    pub(crate) fn of(session: &Value) -> anyhow::Result<Self> {
        let found = |name: &str| {
            session[name].as_str().with_context(|| format!("{name} of a session")).map(str::to_owned)
        };
        Ok(Self {
            begin_string: found("beginString")?,
            comp_id: found("senderCompId")?,
            username: found("username")?,
            password: found("password")?,
            target: session["targetCompId"].as_str().unwrap_or("DVP").to_owned(),
        })
    }

    pub(crate) fn session_id(&self) -> String {
        format!("{}:{}->{}", self.begin_string, self.target, self.comp_id)
    }
}

pub(crate) fn fields(text: &[(u32, &str)]) -> Fields {
    text.iter().map(|(tag, value)| (*tag, value.as_bytes().to_vec())).collect()
}

/// Fields of a text as `tag=value|tag=value`.
pub(crate) fn fields_of(text: &str) -> Fields {
    let fields = text.split('|').filter_map(|field| field.split_once('='));
    fields.filter_map(|(tag, value)| Some((tag.parse().ok()?, value.as_bytes().to_vec()))).collect()
}

/// A moment from now.
pub(crate) fn after(pause: Duration) -> UtcNanos {
    let since = (SystemTime::now() + pause).duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    UtcNanos(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}

/// The current time as FIX writes it.
pub(crate) fn utc() -> String {
    after(Duration::ZERO).to_millis_text()
}

/// A permit's own fields of an order.
pub(crate) fn permit_fields(permit: &Permit) -> Fields {
    let (nonce, deadline) = (permit.nonce.to_string(), permit.deadline.to_string());
    fields(&[(20_001, &nonce), (20_002, &deadline), (20_003, &permit.signature)])
}

/// Connects from an address of this machine's loopback network.
pub(crate) async fn connect(to: SocketAddr, from: Ipv4Addr) -> std::io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddr::from((from, 0)))?;
    let connecting = tokio::time::timeout(CONNECT_WITHIN, socket.connect(to));
    let stream = connecting.await.map_err(|_| std::io::ErrorKind::TimedOut)??;
    stream.set_nodelay(true)?;
    Ok(stream)
}

pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// A connection, its numbers, and its input buffer.
pub(crate) struct Line {
    socket: Box<dyn Stream>,
    framer: Framer,
    login: Login,
    pub next_out: u64,
    /// HeartBtInt(108) of a Logon: the peer ends a connection that is silent for longer.
    pub heartbeat_secs: u64,
}

impl Line {
    pub(crate) async fn open(
        to: SocketAddr,
        from: Ipv4Addr,
        login: &Login,
        next_out: u64,
    ) -> std::io::Result<Self> {
        Ok(Self::over(Box::new(connect(to, from).await?), login.clone(), next_out))
    }

    pub(crate) fn over(socket: Box<dyn Stream>, login: Login, next_out: u64) -> Self {
        Self { socket, framer: Framer::new(1 << 20), login, next_out, heartbeat_secs: 30 }
    }

    /// Connects and logs on with both numbers at 1.
    pub(crate) async fn log_on(to: SocketAddr, from: Ipv4Addr, login: &Login) -> anyhow::Result<Self> {
        let mut line = Self::open(to, from, login, 1).await?;
        line.send_logon(&[(141, "Y")]).await?;
        let answer = tokio::time::timeout(Duration::from_secs(20), line.next()).await.context("no answer")?;
        let answer = answer.context("the connection was closed")?;
        ensure!(answer.msg_type() == b"A", "refused: {}", readable(&answer));
        Ok(line)
    }

    pub(crate) async fn send_logon(&mut self, more: &[(u32, &str)]) -> std::io::Result<()> {
        let (user, password) = (self.login.username.clone(), self.login.password.clone());
        let mut body = fields(&[(98, "0"), (108, &self.heartbeat_secs.to_string())]);
        body.extend(fields(more));
        body.extend(fields(&[(553, &user), (554, &password)]));
        if self.login.begin_string == "FIXT.1.1" {
            body.extend(fields(&[(1137, "9")]));
        }
        self.send("A", &body).await.map(|_| ())
    }

    /// Sends a message under the next number, and says which.
    pub(crate) async fn send(&mut self, kind: &str, body: &Fields) -> std::io::Result<u64> {
        let (seq, bytes) = self.message(kind, body);
        self.write(&bytes).await?;
        Ok(seq)
    }

    /// A message under the next number, as bytes.
    pub(crate) fn message(&mut self, kind: &str, body: &Fields) -> (u64, Vec<u8>) {
        let seq = self.next_out;
        self.next_out = self.next_out.saturating_add(1);
        (seq, self.encoded(kind, seq, body))
    }

    pub(crate) fn encoded(&self, kind: &str, seq: u64, body: &Fields) -> Vec<u8> {
        let Login { comp_id, target, .. } = &self.login;
        let head = format!("35={kind}\x0134={seq}\x0149={comp_id}\x0152={}\x0156={target}\x01", utc());
        let mut counted = head.into_bytes();
        for (tag, value) in body {
            counted.extend_from_slice(format!("{tag}=").as_bytes());
            counted.extend_from_slice(value);
            counted.push(1);
        }
        let mut bytes = format!("8={}\x019={}\x01", self.login.begin_string, counted.len()).into_bytes();
        bytes.append(&mut counted);
        let sum = bytes.iter().fold(0_u8, |sum, byte| sum.wrapping_add(*byte));
        bytes.extend_from_slice(format!("10={sum:03}\x01").as_bytes());
        bytes
    }

    pub(crate) async fn write(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        // A service that takes nothing any more must not hold up the drill.
        match tokio::time::timeout(CONNECT_WITHIN, self.socket.write_all(bytes)).await {
            Ok(written) => written,
            Err(_) => Err(std::io::ErrorKind::TimedOut.into()),
        }
    }

    /// Sends a message again that was first sent under this number, at this time.
    pub(crate) async fn repeat(
        &mut self,
        (seq, at): (u64, &str),
        kind: &str,
        body: &Fields,
    ) -> std::io::Result<()> {
        let mut all = fields(&[(43, "Y"), (122, at)]);
        all.extend_from_slice(body);
        let bytes = self.encoded(kind, seq, &all);
        self.write(&bytes).await
    }

    /// Gap-fills requested messages that are not resent, up to the number `until`.
    pub(crate) async fn fill_gap_until(&mut self, from: u64, until: u64) -> std::io::Result<()> {
        let body = fields(&[(123, "Y"), (36, &until.to_string())]);
        self.repeat((from, &utc()), "4", &body).await
    }

    /// The same up to the next message.
    pub(crate) async fn fill_gap(&mut self, from: u64) -> std::io::Result<()> {
        self.fill_gap_until(from, self.next_out).await
    }

    /// The next message; `None` when the connection has ended. Nothing is lost when this is dropped while it waits.
    pub(crate) async fn next(&mut self) -> Option<Message> {
        loop {
            match self.framer.next_frame() {
                Framed::Frame(frame) => return Message::parse(frame).ok(),
                Framed::Incomplete => {}
                Framed::Discarded(_) | Framed::TooLong => return None,
            }
            match self.socket.read(self.framer.room(16 * 1024)).await {
                Ok(0) | Err(_) => return None,
                Ok(bytes) => self.framer.filled(bytes),
            }
        }
    }
}

/// A message with its separators and its unprintable bytes made visible, cut to a length that fits a report.
pub(crate) fn readable(message: &Message) -> String {
    let bytes = message.fields().iter().flat_map(|field| {
        let tag = format!("{}=", field.tag).into_bytes();
        tag.into_iter().chain(message.value(field).iter().copied()).chain([b'|'])
    });
    visible(&bytes.collect::<Vec<u8>>())
}

/// Bytes as printable text of at most 300 characters.
pub(crate) fn visible(bytes: &[u8]) -> String {
    let text = bytes.escape_ascii().to_string();
    match text.get(..300) {
        Some(start) if text.len() > 300 => format!("{start}… ({} bytes)", bytes.len()),
        _ => text,
    }
}

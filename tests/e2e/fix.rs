//! A FIX 4.4 client, no cleverer than it needs to be.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::sandbox::Sandbox;

const SOH: char = '\u{1}';

/// A message's fields in order.
pub(crate) struct Message(Vec<(u32, String)>);

impl Message {
    /// A field's value; empty when it is not there.
    pub(crate) fn get(&self, tag: u32) -> &str {
        self.0.iter().find(|(t, _)| *t == tag).map_or("", |(_, value)| value)
    }
}

/// A client's transport.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

pub(crate) struct FixClient {
    socket: Box<dyn Stream>,
    read: Vec<u8>,
    next_out: u64,
    sender: String,
    target: String,
}

impl FixClient {
    /// Connects and logs on with numbers starting at one. As peers do, it connects again when nobody answers its Logon:
    /// on a busy machine a new sandbox may not have its sessions yet.
    pub(crate) async fn log_on(sandbox: &Sandbox) -> Self {
        let text = |field: &str| sandbox.text(&format!("/fix/sessions/0/{field}"));
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let port = sandbox.value("/fix/port");
            let socket = TcpStream::connect(format!("127.0.0.1:{port}")).await.unwrap();
            let ids = [text("senderCompId"), text("targetCompId")];
            match Self::try_log_on(Box::new(socket), ids, text("username"), text("password")).await {
                Some(client) => return client,
                None => assert!(Instant::now() < deadline, "no Logon is answered"),
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }

    /// Over TLS, trusting the sandbox's own authority only.
    pub(crate) async fn log_on_with_tls(sandbox: &Sandbox) -> Self {
        let port = sandbox.value("/fix/tlsPort");
        let socket = TcpStream::connect(format!("127.0.0.1:{port}")).await.unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(sandbox.text("/fix/ca")).unwrap()).unwrap();
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = ServerName::try_from("localhost").unwrap();
        let socket = TlsConnector::from(Arc::new(config)).connect(name, socket).await.unwrap();
        Self::log_on_over(sandbox, socket).await
    }

    async fn log_on_over(sandbox: &Sandbox, socket: impl Stream + 'static) -> Self {
        let text = |field: &str| sandbox.text(&format!("/fix/sessions/0/{field}"));
        let ids = [text("senderCompId"), text("targetCompId")];
        Self::log_on_as(socket, ids, text("username"), text("password")).await
    }

    /// With other CompIDs than the sandbox's client.
    pub(crate) async fn log_on_as(
        socket: impl Stream + 'static,
        [sender, target]: [String; 2],
        username: String,
        password: String,
    ) -> Self {
        let client = Self::try_log_on(Box::new(socket), [sender, target], username, password).await;
        client.expect("the session was closed")
    }

    /// `None`: the connection was closed without an answer.
    pub(crate) async fn try_log_on(
        socket: Box<dyn Stream>,
        [sender, target]: [String; 2],
        username: String,
        password: String,
    ) -> Option<Self> {
        let mut client = Self { socket, read: Vec::new(), next_out: 1, sender, target };
        let logon = [(98, "0"), (108, "30"), (141, "Y"), (553, username.as_str()), (554, password.as_str())];
        client.send_raw("A", &logon).await;
        let answer = tokio::time::timeout(Duration::from_secs(60), client.next_message()).await.unwrap()?;
        assert_eq!(answer.get(35), "A");
        Some(client)
    }

    /// Connects anew and logs on with the numbers of before.
    pub(crate) async fn log_on_again(&mut self, sandbox: &Sandbox) {
        let port = sandbox.value("/fix/port");
        self.socket = Box::new(TcpStream::connect(format!("127.0.0.1:{port}")).await.unwrap());
        self.read.clear();
        let text = |field: &str| sandbox.text(&format!("/fix/sessions/0/{field}"));
        let (username, password) = (text("username"), text("password"));
        self.send_raw("A", &[(98, "0"), (108, "30"), (553, &username), (554, &password)]).await;
        assert_eq!(self.receive().await.get(35), "A");
    }

    pub(crate) const fn next_out(&self) -> u64 {
        self.next_out
    }

    pub(crate) async fn send_raw(&mut self, kind: &str, fields: &[(u32, &str)]) {
        let seq = self.next_out;
        self.next_out += 1;
        self.send_as(seq, false, kind, fields).await;
    }

    /// Under a number of one's choice, perhaps as a possible duplicate.
    pub(crate) async fn send_as(&mut self, seq: u64, again: bool, kind: &str, fields: &[(u32, &str)]) {
        let now = sending_time();
        let seq = seq.to_string();
        let header =
            [(35, kind), (49, self.sender.as_str()), (56, self.target.as_str()), (34, &seq), (52, &now)];
        let duplicate: &[(u32, &str)] = if again { &[(43, "Y"), (122, &now)] } else { &[] };
        let fields = header.iter().chain(duplicate).chain(fields);
        let body: String = fields.map(|(tag, value)| format!("{tag}={value}{SOH}")).collect();
        let framed = format!("8=FIX.4.4{SOH}9={}{SOH}{body}", body.len());
        let sum = framed.bytes().fold(0_u8, u8::wrapping_add);
        self.socket.write_all(format!("{framed}10={sum:03}{SOH}").as_bytes()).await.unwrap();
    }

    /// A message with a wrong checksum: it is to be passed over without using up a number.
    pub(crate) async fn send_garbled(&mut self) {
        let text = format!("8=FIX.4.4{SOH}9=5{SOH}35=0{SOH}10=000{SOH}");
        self.socket.write_all(text.as_bytes()).await.unwrap();
    }

    pub(crate) async fn new_order(&mut self, cl_ord_id: &str, account: &str, permit: &Value) {
        self.new_order_of("USDC/USD", cl_ord_id, account, permit).await;
    }

    /// A sale of 100 of the symbol's base asset.
    pub(crate) async fn new_order_of(
        &mut self,
        symbol: &str,
        cl_ord_id: &str,
        account: &str,
        permit: &Value,
    ) {
        let now = sending_time();
        let deadline = permit["deadline"].to_string();
        let fields = [
            (11, cl_ord_id),
            (1, account),
            (55, symbol),
            (54, "2"),
            (60, now.as_str()),
            (38, "100"),
            (40, "2"),
            (44, "0.99"),
            (59, "0"),
            (20001, permit["nonce"].as_str().unwrap()),
            (20002, deadline.as_str()),
            (20003, permit["signature"].as_str().unwrap()),
        ];
        self.send_raw("D", &fields).await;
    }

    pub(crate) async fn cancel(&mut self, cl_ord_id: &str, original: &str) {
        let now = sending_time();
        let fields =
            [(11, cl_ord_id), (41, original), (55, "USDC/USD"), (54, "2"), (60, now.as_str()), (38, "100")];
        self.send_raw("F", &fields).await;
    }

    /// The next message that looks as wanted; others are passed over.
    pub(crate) async fn report(&mut self, wanted: impl Fn(&Message) -> bool) -> Message {
        let waited = tokio::time::timeout(Duration::from_secs(60), async {
            loop {
                let message = self.receive().await;
                if wanted(&message) {
                    return message;
                }
            }
        });
        waited.await.unwrap()
    }

    /// Buys 100 of the symbol's base asset for money, and waits for the answer or the end of the connection.
    pub(crate) async fn buy_for_money(&mut self, cl_ord_id: &str, wallet: &str) {
        let now = sending_time();
        let fields = [
            (11, cl_ord_id),
            (38, "100"),
            (40, "2"),
            (44, "1.05"),
            (54, "1"),
            (55, "USDC/USD"),
            (60, now.as_str()),
            (20010, "Jane Doe"),
            (20011, "12345678"),
            (20012, "US"),
            (20013, "ach"),
            (20020, wallet),
        ];
        self.send_raw("D", &fields).await;
        while let Some(message) = self.next_message().await {
            if matches!(message.get(35), "8" | "j") {
                return;
            }
        }
    }

    pub(crate) async fn receive(&mut self) -> Message {
        self.next_message().await.expect("the session was closed")
    }

    /// `None`: the connection is closed.
    async fn next_message(&mut self) -> Option<Message> {
        loop {
            if let Some(end) = end_of_message(&self.read) {
                let whole: Vec<u8> = self.read.drain(..end).collect();
                let text = String::from_utf8(whole).unwrap();
                let fields = text.split_terminator(SOH).map(|field| {
                    let (tag, value) = field.split_once('=').unwrap();
                    (tag.parse().unwrap(), value.to_owned())
                });
                return Some(Message(fields.collect()));
            }
            if self.socket.read_buf(&mut self.read).await.unwrap() == 0 {
                return None;
            }
        }
    }
}

/// Where the first whole message ends: after the field that follows `SOH 10=`.
fn end_of_message(bytes: &[u8]) -> Option<usize> {
    let trailer = bytes.windows(4).position(|four| four == b"\x0110=")?;
    let rest = &bytes[trailer + 4..];
    rest.iter().position(|byte| *byte == 1).map(|soh| trailer + 4 + soh + 1)
}

pub(crate) fn sending_time() -> String {
    chrono::Utc::now().format("%Y%m%d-%H:%M:%S%.3f").to_string()
}

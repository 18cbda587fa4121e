//! A FIX 4.4 client, no cleverer than it needs to be.

use std::sync::Arc;

use serde_json::Value;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::sandbox::Sandbox;
use super::wait::{PATIENCE, until};
pub use crate::wire::Stream;
use crate::wire::{Line, Login, fields, fields_of, utc};

/// A message's fields in order.
pub struct Message(dvp_fix::codec::Message);

impl Message {
    /// A field's value; empty when it is not there.
    pub fn get(&self, tag: u32) -> &str {
        self.0.text(tag).unwrap_or_default()
    }
}

pub struct FixClient {
    line: Line,
    login: Login,
}

async fn connect(sandbox: &Sandbox, port: &str) -> TcpStream {
    TcpStream::connect(format!("127.0.0.1:{}", sandbox.value(port))).await.unwrap()
}

/// The client sends no heartbeats: it may be silent for as long as a test waits.
fn line(socket: Box<dyn Stream>, login: Login, next_out: u64) -> Line {
    let mut line = Line::over(socket, login, next_out);
    line.heartbeat_secs = PATIENCE.as_secs();
    line
}

fn login(sandbox: &Sandbox) -> Login {
    Login::of(sandbox.value("/fix/sessions/0")).unwrap()
}

impl FixClient {
    /// Connects and logs on with numbers starting at one. As peers do, it connects again when nobody answers its Logon:
    /// on a busy machine a new sandbox may not have its sessions yet.
    pub async fn log_on(sandbox: &Sandbox) -> Self {
        let mut client = None;
        until("an answered Logon", async || {
            let socket = connect(sandbox, "/fix/port").await;
            client = Self::admitted(Box::new(socket), login(sandbox)).await;
            client.is_some()
        })
        .await;
        client.unwrap()
    }

    /// Over TLS, trusting the sandbox's own authority only.
    pub async fn log_on_with_tls(sandbox: &Sandbox) -> Self {
        let socket = connect(sandbox, "/fix/tlsPort").await;
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(sandbox.text("/fix/ca")).unwrap()).unwrap();
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = ServerName::try_from("localhost").unwrap();
        let socket = TlsConnector::from(Arc::new(config)).connect(name, socket).await.unwrap();
        Self::admitted(Box::new(socket), login(sandbox)).await.expect("the session was closed")
    }

    /// With other CompIDs than the sandbox's client. `None`: the connection was closed without an answer.
    pub async fn try_log_on(
        socket: Box<dyn Stream>,
        [comp_id, target]: [String; 2],
        username: String,
        password: String,
    ) -> Option<Self> {
        let begin_string = "FIX.4.4".to_owned();
        Self::admitted(socket, Login { begin_string, comp_id, username, password, target }).await
    }

    async fn admitted(socket: Box<dyn Stream>, login: Login) -> Option<Self> {
        let mut client = Self { line: line(socket, login.clone(), 1), login };
        client.line.send_logon(&[(141, "Y")]).await.unwrap();
        let answer = tokio::time::timeout(PATIENCE, client.next_message()).await.unwrap()?;
        assert_eq!(answer.get(35), "A");
        Some(client)
    }

    /// Connects anew and logs on with the numbers of before, again when nobody answers: who had the session may have to
    /// lose it first.
    pub async fn log_on_again(&mut self, sandbox: &Sandbox) {
        let next_out = self.next_out();
        until("an answered Logon", async || {
            let socket = connect(sandbox, "/fix/port").await;
            self.line = line(Box::new(socket), self.login.clone(), next_out);
            self.line.send_logon(&[]).await.unwrap();
            self.next_message().await.is_some_and(|answer| answer.get(35) == "A")
        })
        .await;
    }

    pub const fn next_out(&self) -> u64 {
        self.line.next_out
    }

    pub async fn send_raw(&mut self, kind: &str, body: &[(u32, &str)]) {
        self.line.send(kind, &fields(body)).await.unwrap();
    }

    /// A heartbeat under a number of one's choice.
    pub async fn beat_as(&mut self, seq: u64) {
        let bytes = self.line.encoded("0", seq, &fields(&[]));
        self.line.write(&bytes).await.unwrap();
    }

    pub async fn new_order(&mut self, cl_ord_id: &str, account: &str, permit: &Value) {
        self.sell(cl_ord_id, account, permit, &[]).await;
    }

    /// A sale of 100 USDC for USD, but for these fields; those without a value are left out.
    pub async fn sell(&mut self, cl_ord_id: &str, account: &str, permit: &Value, but: &[(u32, &str)]) {
        let (now, deadline) = (utc(), permit["deadline"].to_string());
        let mut all = vec![(11, cl_ord_id), (1, account), (55, "USDC/USD"), (54, "2"), (60, now.as_str())];
        all.extend([(38, "100"), (40, "2"), (44, "0.99"), (59, "0")]);
        if let (Some(nonce), Some(signature)) = (permit["nonce"].as_str(), permit["signature"].as_str()) {
            all.extend([(20001, nonce), (20002, deadline.as_str()), (20003, signature)]);
        }
        all.retain(|(tag, _)| !but.iter().any(|(other, _)| other == tag));
        all.extend(but.iter().filter(|(_, value)| !value.is_empty()));
        self.send_raw("D", &all).await;
    }

    pub async fn cancel(&mut self, cl_ord_id: &str, original: &str) {
        let cancel = format!("11={cl_ord_id}|41={original}|55=USDC/USD|54=2|60={}|38=100", utc());
        self.line.send("F", &fields_of(&cancel)).await.unwrap();
    }

    /// The next message that looks as wanted; others are passed over.
    pub async fn report(&mut self, wanted: impl Fn(&Message) -> bool) -> Message {
        let waited = tokio::time::timeout(PATIENCE, async {
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
    pub async fn buy_for_money(&mut self, cl_ord_id: &str, wallet: &str) {
        let order = format!(
            "11={cl_ord_id}|38=100|40=2|44=1.05|54=1|55=USDC/USD|60={}|20010=Jane Doe|20011=12345678|20012=US|\
             20013=ach|20020={wallet}",
            utc()
        );
        self.line.send("D", &fields_of(&order)).await.unwrap();
        while let Some(message) = self.next_message().await {
            if matches!(message.get(35), "8" | "j") {
                return;
            }
        }
    }

    pub async fn receive(&mut self) -> Message {
        self.next_message().await.expect("the session was closed")
    }

    /// `None`: the connection is closed.
    async fn next_message(&mut self) -> Option<Message> {
        self.line.next().await.map(Message)
    }
}

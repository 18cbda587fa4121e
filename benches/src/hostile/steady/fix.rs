//! Orders over FIX on one session, and another session that logs on again and again.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use dvp_fix::codec::Message;
use tokio::task::JoinHandle;

use super::{PATIENCE, TOKEN_PAUSE, Terms};
use crate::crash::fix::{ENDED, SessionTranscript, content};
use crate::crash::process::text;
use crate::crash::rest::Wallet;
use crate::hostile::fix_peers::carry_on;
use crate::hostile::latency::{Action, Due};
use crate::wire::{Fields, Line, Login, fields_of, permit_fields, readable, utc};

/// Pause between two Logons of the session that only logs on and off.
const LOGON_EVERY: Duration = Duration::from_secs(2);
/// After this time without a message, no more messages are expected.
const QUIET: Duration = Duration::from_secs(2);

pub(super) async fn run(terms: Terms) -> anyhow::Result<SessionTranscript> {
    let logons = tokio::spawn(logons(terms.clone()));
    let login = terms.target.good_sessions.first().context("a session")?.clone();
    let line = Line::log_on(terms.target.fix, Ipv4Addr::LOCALHOST, &login).await?;
    // The Logon had number 1.
    let transcript = SessionTranscript::new(login.session_id(), 2);
    let client =
        Client { terms, line, transcript, waiting: BTreeMap::new(), permit: None, token_order: None, n: 0 };
    let transcript = client.run().await?;
    logons.await?;
    Ok(transcript)
}

type Permit = JoinHandle<anyhow::Result<Fields>>;

struct Client {
    terms: Terms,
    line: Line,
    transcript: SessionTranscript,
    /// Orders without their first report.
    waiting: BTreeMap<String, Due>,
    permit: Option<Permit>,
    /// The order that was placed with the last one.
    token_order: Option<String>,
    n: u64,
}

impl Client {
    async fn run(mut self) -> anyhow::Result<SessionTranscript> {
        let mut at = Instant::now() + self.terms.interval;
        let mut beat = tokio::time::interval(Duration::from_secs(20));
        self.permit = Some(self.sign(TOKEN_PAUSE)?);
        while !self.terms.stop.is_cancelled() {
            tokio::select! {
                message = self.line.next() => self.take(message).await?,
                () = tokio::time::sleep_until(at.into()) => {
                    self.order(Action::Fix, at, Fields::new()).await?;
                    at += self.terms.interval;
                }
                permit = joined(&mut self.permit), if self.permit.is_some() => {
                    self.permit = None;
                    self.order(Action::FixToken, Instant::now(), permit?).await?;
                }
                _ = beat.tick() => {
                    self.line.send("0", &Fields::new()).await?;
                }
            }
        }
        self.wait_for_ends().await?;
        Ok(self.transcript)
    }

    async fn wait_for_ends(&mut self) -> anyhow::Result<()> {
        let until = Instant::now() + PATIENCE;
        loop {
            let has_ended =
                |id: &String| self.transcript.status.get(id).is_some_and(|is| ENDED.contains(&is.as_str()));
            let open = self.transcript.orders.iter().find(|id| !has_ended(id)).cloned();
            match (tokio::time::timeout(QUIET, self.line.next()).await, open) {
                (Ok(message), _) => self.take(message).await?,
                (Err(_), None) => return Ok(()),
                (Err(_), Some(open)) if Instant::now() > until => {
                    let promise = "an order of the well-behaved partner over FIX is reported to its end";
                    self.terms.promises.broken(promise, || open);
                    return Ok(());
                }
                (Err(_), Some(_)) => {}
            }
        }
    }

    /// Signs the next permit beside everything else.
    fn sign(&self, pause: Duration) -> anyhow::Result<Permit> {
        let wallet = Wallet::of(&self.terms.target.ready, 1)?;
        let rpc = text(&self.terms.target.ready, "/chain/rpcUrl")?.to_owned();
        Ok(tokio::spawn(async move {
            tokio::time::sleep(pause).await;
            let permit = wallet.permit(&reqwest::Client::new(), &rpc, 10_000_000).await?;
            Ok(permit_fields(&permit))
        }))
    }

    async fn order(&mut self, action: Action, at: Instant, permit: Fields) -> anyhow::Result<()> {
        self.n += 1;
        let id = format!("S-{}", self.n);
        let due = self.terms.recorder.due(action, at);
        let is_token = action == Action::FixToken;
        let (symbol, quantity, price) =
            if is_token { ("USDC/USD", "10", "0.9") } else { ("USD/EUR", "100", "0.5") };
        let account = if is_token { self.terms.dollars() } else { self.terms.euros() };
        let mut body = fields_of(&format!(
            "11={id}|1={account}|55={symbol}|54=2|60={}|38={quantity}|40=2|44={price}|59=0",
            utc()
        ));
        body.extend(permit);
        if is_token {
            self.token_order = Some(id.clone());
        }
        self.waiting.insert(id.clone(), due);
        self.transcript.orders.insert(id);
        self.line.send("D", &body).await.context("the well-behaved session")?;
        Ok(())
    }

    async fn take(&mut self, message: Option<Message>) -> anyhow::Result<()> {
        let message = message.context("the well-behaved FIX session was disconnected")?;
        let seq = message.seq().context("a message without its number")?.0;
        if seq != self.transcript.next_in {
            bail!("message {seq} came where {} was due: {}", self.transcript.next_in, readable(&message));
        }
        self.transcript.next_in += 1;
        match message.msg_type() {
            b"0" | b"A" => return Ok(()),
            b"1" => {
                carry_on(&mut self.line, &message).await;
                return Ok(());
            }
            b"8" => self.report(&message)?,
            _ => {
                let promise = "a message of the well-behaved FIX session is taken";
                self.terms.promises.broken(promise, || readable(&message));
            }
        }
        self.transcript.received.insert(seq, content(&message));
        Ok(())
    }

    fn report(&mut self, message: &Message) -> anyhow::Result<()> {
        let order = message.text(11).unwrap_or_default();
        let status = message.text(39).unwrap_or_default();
        if let Some(due) = self.waiting.remove(order) {
            due.answered();
        }
        let promise = "an order of the well-behaved partner over FIX is accepted";
        self.terms.promises.check(status != "8", promise, || readable(message));
        self.transcript.status.insert(order.to_owned(), status.to_owned());
        if ENDED.contains(&status) && self.token_order.as_deref() == Some(order) {
            self.token_order = None;
            self.permit = Some(self.sign(TOKEN_PAUSE)?);
        }
        Ok(())
    }
}

async fn joined(permit: &mut Option<Permit>) -> anyhow::Result<Fields> {
    match permit {
        Some(permit) => permit.await?,
        None => std::future::pending().await,
    }
}

/// Another session of the partner logs on and off: wrong Logons of other peers do not lock it out.
async fn logons(terms: Terms) {
    let Some(login) = terms.target.good_sessions.get(1) else { return };
    while !terms.stop.is_cancelled() {
        let pause = Instant::now() + LOGON_EVERY;
        let due = terms.recorder.due(Action::FixLogon, Instant::now());
        match come_and_go(&terms, login, due).await {
            Ok(()) => {}
            // The service without processor time closes the connection; the next Logon may be admitted.
            Err(_) if terms.promises.is_excused(503) => {}
            Err(error) => {
                let promise = "a Logon of the well-behaved partner is admitted";
                terms.promises.broken(promise, || format!("{error:#}"));
            }
        }
        tokio::time::sleep_until(pause.into()).await;
    }
}

async fn come_and_go(terms: &Terms, login: &Login, due: Due) -> anyhow::Result<()> {
    let mut line = Line::log_on(terms.target.fix, Ipv4Addr::LOCALHOST, login).await?;
    due.answered();
    line.send("5", &Fields::new()).await?;
    while let Some(message) = tokio::time::timeout(Duration::from_secs(10), line.next()).await? {
        if message.msg_type() == b"5" {
            return Ok(());
        }
    }
    Ok(())
}

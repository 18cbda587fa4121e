//! A FIX client that keeps its numbers and messages across disconnects, requests missed messages, resends requested
//! ones, and records the message of each number.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use dvp_fix::codec::Message;
use serde_json::Value;
use tokio::sync::watch;

use super::Ready;
use super::process::text;
use super::recipients::{Recipient, Recipients};
use super::rest::{Wallet, numbered, up};
use crate::dice::Dice;
use crate::wire::{Fields, Line, Login, fields_of, utc};

/// Header, trailer, and the fields that a repetition changes.
const STAMPS: [u32; 11] = [8, 9, 10, 34, 43, 49, 52, 56, 97, 122, 1128];
/// OrdStatus of an order that has ended.
pub(crate) const ENDED: [&str; 4] = ["2", "4", "8", "C"];
/// Its number among the callers that order with tokens, after those over REST.
const CALLER: u64 = 100;
/// Beyond two intervals of heartbeats, a connection without a message has ended.
const SILENCE_MAX: Duration = Duration::from_secs(12);
const OPEN_ORDERS: usize = 12;

pub(crate) struct SessionTranscript {
    pub session_id: String,
    /// Application messages by number, as `tag=value|…`.
    pub received: BTreeMap<u64, String>,
    /// ClOrdIDs placed.
    pub orders: BTreeSet<String>,
    pub status: BTreeMap<String, String>,
    pub next_in: u64,
    pub repeats: usize,
}

impl SessionTranscript {
    /// Nothing yet; `next_in` is the number of the first message.
    pub(crate) fn new(session_id: String, next_in: u64) -> Self {
        let (received, orders, status) = (BTreeMap::new(), BTreeSet::new(), BTreeMap::new());
        Self { session_id, received, orders, status, next_in, repeats: 0 }
    }
}

pub(crate) struct FixClient {
    login: Login,
    wallet: Option<Wallet>,
    http: reqwest::Client,
    recipients: Recipients,
    dice: Dice,
    next_out: u64,
    /// The orders by their number, and when they were first sent.
    sent: BTreeMap<u64, (Fields, String)>,
    requested_from: u64,
    transcript: SessionTranscript,
    /// ClOrdIDs of orders whose payment comes back if it is made.
    returned: BTreeSet<String>,
    orders: u64,
}

impl FixClient {
    pub(crate) fn new(
        ready: &Value,
        n: usize,
        wallet: Option<Wallet>,
        recipients: Recipients,
        dice: Dice,
    ) -> anyhow::Result<Self> {
        let login = Login::of(&ready["fix"]["sessions"][n])?;
        let transcript = SessionTranscript::new(login.session_id(), 1);
        Ok(Self {
            login,
            wallet,
            http: reqwest::Client::builder().timeout(Duration::from_secs(5)).build()?,
            recipients,
            dice,
            next_out: 1,
            sent: BTreeMap::new(),
            requested_from: 0,
            transcript,
            returned: BTreeSet::new(),
            orders: 0,
        })
    }

    /// Places orders until the drill closes, then stays until each has ended and nothing more comes.
    pub(crate) async fn run(
        mut self,
        mut place: watch::Receiver<Ready>,
        closing: watch::Receiver<bool>,
    ) -> anyhow::Result<SessionTranscript> {
        loop {
            let ready = up(&mut place).await?;
            match self.connected(&ready, &closing).await? {
                true => return Ok(self.transcript),
                false => tokio::time::sleep(Duration::from_millis(60)).await,
            }
        }
    }

    /// One connection. `true`: everything has come to its end; an error is a broken promise.
    async fn connected(&mut self, ready: &Value, closing: &watch::Receiver<bool>) -> anyhow::Result<bool> {
        let port = ready.pointer("/fix/port").and_then(Value::as_u64).context("the FIX port")?;
        let to = SocketAddr::from((Ipv4Addr::LOCALHOST, u16::try_from(port)?));
        let Ok(mut line) = Line::open(to, Ipv4Addr::LOCALHOST, &self.login, self.next_out).await else {
            return Ok(false);
        };
        self.requested_from = 0;
        let logon = format!("98=0|108=5|553={}|554={}", self.login.username, self.login.password);
        if !self.say(&mut line, "A", &logon).await {
            return Ok(false);
        }
        let mut admitted = false;
        let mut idle_since = None;
        let mut read_at = Instant::now();
        loop {
            let wait = Duration::from_millis(20 + self.dice.roll(120));
            match tokio::time::timeout(wait, line.next()).await {
                Ok(Some(message)) => {
                    idle_since = None;
                    read_at = Instant::now();
                    admitted |= message.msg_type() == b"A";
                    if !self.take(&mut line, &message).await? {
                        return Ok(false);
                    }
                    continue;
                }
                Ok(None) => return Ok(false),
                // A service that sends nothing, no heartbeat either, is gone or frozen.
                Err(_) if read_at.elapsed() > SILENCE_MAX => return Ok(false),
                Err(_) if !admitted => continue,
                Err(_) => {}
            }
            let is_closing = *closing.borrow();
            // The kills may leave no time for a Logon: a client that has placed nothing yet still has to.
            let may_place = !is_closing || self.transcript.orders.is_empty();
            if may_place && self.open_orders() < OPEN_ORDERS {
                if let Some(order) = self.order(ready).await
                    && !self.say(&mut line, "D", &order).await
                {
                    return Ok(false);
                }
            } else if is_closing && self.open_orders() == 0 {
                let since = *idle_since.get_or_insert_with(Instant::now);
                if since.elapsed() > Duration::from_secs(2) {
                    return Ok(true);
                }
            }
        }
    }

    fn open_orders(&self) -> usize {
        let ended = |id: &&String| {
            let status = self.transcript.status.get(*id).map(String::as_str);
            // A fill is cancelled when the payment comes back.
            let is_due = status == Some("2") && self.returned.contains(*id);
            !is_due && status.is_some_and(|status| ENDED.contains(&status))
        };
        self.transcript.orders.len() - self.transcript.orders.iter().filter(ended).count()
    }

    /// The next order, or none yet: a wallet has one at a time.
    async fn order(&mut self, ready: &Value) -> Option<String> {
        let id = uuid::Uuid::new_v4().simple().to_string();
        let id = format!("C-{}", id.get(..16)?);
        let handling = if self.login.begin_string == "FIX.4.2" { "21=1|" } else { "" };
        let currency = if self.wallet.is_some() { "USD" } else { "EUR" };
        let Recipient { name: account, is_returned, .. } =
            self.recipients.pick(currency, &mut self.dice).ok()?;
        let at = utc();
        let order = match &self.wallet {
            Some(_) if self.open_orders() > 0 => return None,
            Some(wallet) => {
                let rpc = text(ready, "/chain/rpcUrl").ok()?;
                let amount = numbered(CALLER, self.orders);
                let permit = wallet.permit(&self.http, rpc, amount).await.ok()?;
                let amount = format!("{}.{:06}", amount / 1_000_000, amount % 1_000_000);
                self.orders += 1;
                format!(
                    "11={id}|1={account}|{handling}55=USDC/USD|54=2|60={at}|38={amount}|40=2|44=0.9|59=0|\
                     20001={}|20002={}|20003={}",
                    permit.nonce, permit.deadline, permit.signature
                )
            }
            None => format!("11={id}|1={account}|{handling}55=USD/EUR|54=2|60={at}|38=100|40=2|44=0.5|59=0"),
        };
        if *is_returned {
            self.returned.insert(id.clone());
        }
        self.transcript.orders.insert(id);
        Some(order)
    }

    /// A message of ours, kept under its number whether or not it arrives. `false`: the connection is gone.
    async fn say(&mut self, line: &mut Line, kind: &str, body: &str) -> bool {
        let (body, at) = (fields_of(body), utc());
        let (seq, bytes) = line.message(kind, &body);
        self.next_out = line.next_out;
        if kind == "D" {
            self.sent.insert(seq, (body, at));
        }
        line.write(&bytes).await.is_ok()
    }

    /// Takes a message in. `false`: the connection is of no use any more.
    async fn take(&mut self, line: &mut Line, message: &Message) -> anyhow::Result<bool> {
        let number = |tag| message.text(tag).and_then(|text| text.parse::<u64>().ok());
        let seq = number(34).context("a message without its number")?;
        let kind = message.text(35).unwrap_or_default().to_owned();
        if kind == "4" && message.text(123) == Some("Y") {
            if seq == self.transcript.next_in {
                let next = number(36).context("a gap fill without its end")?;
                ensure!(next > seq, "a gap fill backwards, from {seq} to {next}");
                self.transcript.next_in = next;
            }
            return Ok(true);
        }
        ensure!(kind != "4", "the numbers were reset");
        if seq > self.transcript.next_in {
            // A gap: requested once per connection and gap.
            if self.requested_from < self.transcript.next_in {
                self.requested_from = self.transcript.next_in;
                let ask = format!("7={}|16=0", self.transcript.next_in);
                if !self.say(line, "2", &ask).await {
                    return Ok(false);
                }
            }
            if kind != "2" {
                return Ok(true);
            }
        } else if seq < self.transcript.next_in {
            ensure!(message.is_yes(43), "number {seq} came again and is no repetition: {message:?}");
            self.note(seq, &kind, message)?;
            return Ok(true);
        } else {
            self.transcript.next_in += 1;
            self.note(seq, &kind, message)?;
        }
        Ok(match kind.as_str() {
            "1" => {
                let answer = format!("112={}", message.text(112).unwrap_or_default());
                self.say(line, "0", &answer).await
            }
            "2" => self.give_again(line, number(7).unwrap_or(1)).await,
            "3" => bail!("rejected: {message:?}"),
            "5" => {
                let text = message.text(58).unwrap_or_default();
                ensure!(!text.contains("too low"), "our numbers are unknown to the service: {text}");
                false
            }
            _ => true,
        })
    }

    /// Records a number's message: one number, one message.
    fn note(&mut self, seq: u64, kind: &str, message: &Message) -> anyhow::Result<()> {
        if matches!(kind, "0" | "1" | "2" | "5" | "A") {
            return Ok(());
        }
        let content = content(message);
        if let Some(before) = self.transcript.received.get(&seq) {
            ensure!(*before == content, "number {seq} stood for two messages:\n{before}\n{content}");
            self.transcript.repeats += 1;
            return Ok(());
        }
        if kind == "8"
            && let (Some(order), Some(status)) = (message.text(11), message.text(39))
        {
            ensure!(self.transcript.orders.contains(order), "a report of an order never placed: {message:?}");
            let before = self.transcript.status.insert(order.to_owned(), status.to_owned());
            let is_reversal =
                before.as_deref() == Some("2") && status == "4" && self.returned.contains(order);
            let ended = !is_reversal && before.is_some_and(|before| ENDED.contains(&before.as_str()));
            ensure!(!ended, "a report after the end of {order}: {message:?}");
        }
        self.transcript.received.insert(seq, content);
        Ok(())
    }

    /// Orders again under their numbers, everything else filled over.
    async fn give_again(&self, line: &mut Line, from: u64) -> bool {
        let again = async {
            let mut next = from;
            for (seq, (body, at)) in self.sent.range(from..) {
                if next < *seq {
                    line.fill_gap_until(next, *seq).await?;
                }
                line.repeat((*seq, at), "D", body).await?;
                next = seq + 1;
            }
            if next < line.next_out { line.fill_gap(next).await } else { Ok(()) }
        };
        again.await.is_ok()
    }
}

/// A message's content, without the fields that a repetition changes.
pub(crate) fn content(message: &Message) -> String {
    let fields = message.fields().iter().filter(|field| !STAMPS.contains(&field.tag));
    let text = |field| String::from_utf8_lossy(message.value(field));
    fields.map(|field| format!("{}={}|", field.tag, text(field))).collect()
}

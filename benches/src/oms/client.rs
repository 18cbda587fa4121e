//! The session of an order management system: numbers that go on, gaps that are asked for and filled, heartbeats that
//! are answered, and a book that takes what comes.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use dvp_fix::codec::Message;
use serde_json::Value;

use super::book::Book;
use super::{Begins, Precision, Profile};
use crate::wire::{Fields, Line, Login, after, fields, fields_of, readable, utc};

/// A place in braces, and what stands there.
pub(super) type Places<'a> = &'a [(&'a str, &'a str)];

/// A connection that says nothing for so long while something is waited for has failed.
const PATIENCE: Duration = Duration::from_secs(120);
const TRIES: u32 = 15;

pub(super) struct Client {
    pub(super) profile: Profile,
    pub(super) book: Book,
    /// OrderCancelReject, by the ClOrdID of the request.
    pub(super) refused: BTreeMap<String, String>,
    login: Login,
    to: SocketAddr,
    line: Option<Line>,
    next_out: u64,
    next_in: u64,
    /// Application messages by their number, since the last reset, and when they were first sent.
    sent: BTreeMap<u64, (String, Fields, String)>,
    /// A gap was asked for from this number on.
    asked_from: Option<u64>,
    is_on: bool,
    /// By a Logout.
    is_refused: bool,
}

impl Client {
    pub(super) fn new(profile: Profile, ready: &Value) -> anyhow::Result<Self> {
        let all = ready["fix"]["sessions"].as_array().context("sessions")?;
        let own = all.iter().find(|session| session["beginString"] == profile.version.as_str());
        let login = Login::of(own.context("no session of this version")?)?;
        let port = ready["fix"]["port"].as_u64().context("the FIX port")?;
        let to = SocketAddr::from((Ipv4Addr::LOCALHOST, u16::try_from(port)?));
        let (book, refused, sent) = (Book::of(&profile.version), BTreeMap::new(), BTreeMap::new());
        let (line, asked_from) = (None, None);
        Ok(Self {
            profile,
            book,
            refused,
            login,
            to,
            line,
            next_out: 1,
            next_in: 1,
            sent,
            asked_from,
            is_on: false,
            is_refused: false,
        })
    }

    pub(super) fn session_id(&self) -> String {
        self.login.session_id()
    }

    /// Connects as the profile begins, and returns when the Logon is answered.
    pub(super) async fn begin(&mut self, how: Begins) -> anyhow::Result<()> {
        if how == Begins::Resets {
            self.start_over();
        }
        let more = if how == Begins::Resets { "|141=Y" } else { "" };
        let (next_out, mut tries) = (self.next_out, 0);
        // A connection that is closed without an answer is opened again, as every system does.
        while let Err(error) = self.connect(next_out, more).await {
            tries += 1;
            ensure!(self.line.is_none() && !self.is_refused && tries < TRIES, "{error:#}");
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        if how == Begins::Exchanges {
            self.start_over();
            if let Some(line) = &mut self.line {
                line.next_out = 1;
            }
            self.log_on("|141=Y").await?;
        }
        Ok(())
    }

    async fn connect(&mut self, next_out: u64, more: &str) -> anyhow::Result<()> {
        self.line = Some(Line::open(self.to, Ipv4Addr::LOCALHOST, &self.login, next_out).await?);
        self.log_on(more).await
    }

    fn start_over(&mut self) {
        (self.next_out, self.next_in, self.asked_from) = (1, 1, None);
        self.sent.clear();
    }

    async fn log_on(&mut self, more: &str) -> anyhow::Result<()> {
        self.is_on = false;
        let Login { username, password, .. } = self.login.clone();
        let length = password.len().to_string();
        let places = [("username", &*username), ("password", &password), ("length", &length)];
        let form = self.profile.logon.clone();
        let form = if more.is_empty() {
            form
        } else {
            format!("{}{more}", form.replace("|141=N", "").replace("|141=Y", ""))
        };
        self.say("A", &form, &places).await?;
        self.until("an answered Logon", |client| client.is_on).await
    }

    /// The connection is gone without a word.
    pub(super) fn cut(&mut self) {
        (self.line, self.asked_from) = (None, None);
    }

    pub(super) async fn log_out(&mut self) -> anyhow::Result<()> {
        self.say("5", "", &[]).await?;
        self.until("an answered Logout", |client| client.line.is_none()).await
    }

    /// Sends a message of the profile's form under the next number.
    pub(super) async fn say(&mut self, kind: &str, form: &str, places: Places<'_>) -> anyhow::Result<()> {
        let (time, today) = (self.time(), utc());
        let today = today.get(..8).unwrap_or_default().to_owned();
        let mut text = [self.profile.header.as_str(), form].join("|");
        for (place, value) in places.iter().chain(&[("time", time.as_str()), ("today", today.as_str())]) {
            text = text.replace(&format!("{{{place}}}"), value);
        }
        ensure!(!text.contains('{'), "a place without a value: {text}");
        self.put(kind, fields_of(&text)).await
    }

    async fn put(&mut self, kind: &str, body: Fields) -> anyhow::Result<()> {
        let line = self.line.as_mut().context("not connected")?;
        let seq = line.send(kind, &body).await.context("sending")?;
        self.next_out = line.next_out;
        if !matches!(kind, "0" | "1" | "2" | "3" | "4" | "5" | "A") {
            self.sent.insert(seq, (kind.to_owned(), body, utc()));
        }
        Ok(())
    }

    fn time(&self) -> String {
        let now = after(Duration::ZERO);
        let millis = now.to_millis_text();
        match self.profile.time {
            Precision::Seconds => millis.get(..17).unwrap_or_default().to_owned(),
            Precision::Milliseconds => millis,
            Precision::Microseconds => format!("{millis}{:03}", now.0 / 1_000 % 1_000),
        }
    }

    /// Reads for so long, whatever comes.
    pub(super) async fn read_for(&mut self, time: Duration) -> anyhow::Result<()> {
        let end = Instant::now() + time;
        while self.line.is_some() && Instant::now() < end {
            self.read(end).await?;
        }
        Ok(())
    }

    /// Reads until it is so.
    pub(super) async fn until(&mut self, what: &str, is_so: impl Fn(&Self) -> bool) -> anyhow::Result<()> {
        let end = Instant::now() + PATIENCE;
        while !is_so(self) {
            ensure!(Instant::now() < end, "{what}: not within {PATIENCE:?}");
            ensure!(self.line.is_some(), "{what}: the connection was closed");
            self.read(Instant::now() + Duration::from_millis(200)).await?;
        }
        Ok(())
    }

    async fn read(&mut self, end: Instant) -> anyhow::Result<()> {
        let Some(line) = &mut self.line else { return Ok(()) };
        match tokio::time::timeout_at(end.into(), line.next()).await {
            Err(_) => Ok(()),
            Ok(None) => {
                self.line = None;
                Ok(())
            }
            Ok(Some(message)) => self.receive(&message).await,
        }
    }

    async fn receive(&mut self, message: &Message) -> anyhow::Result<()> {
        let number = |tag| message.text(tag).and_then(|value| value.parse::<u64>().ok());
        let seq = number(34).context("a message without a number")?;
        let kind = String::from_utf8_lossy(message.msg_type()).into_owned();
        match &*kind {
            "A" if message.text(141) == Some("Y") => self.next_in = 1,
            // It counts whatever its own number is.
            "2" => self.resend(number(7).context("7")?).await?,
            "5" => {
                let text = message.text(58).unwrap_or_default();
                self.is_refused |= !self.is_on;
                ensure!(self.is_on, "the Logon was refused: {text}");
                self.line = None;
                self.next_in = self.next_in.max(seq.saturating_add(1));
                return Ok(());
            }
            _ => {}
        }
        if seq > self.next_in {
            self.is_on |= kind == "A";
            if self.asked_from != Some(self.next_in) {
                self.asked_from = Some(self.next_in);
                let body = fields(&[(7, &self.next_in.to_string()), (16, "0")]);
                self.put("2", body).await?;
            }
            return Ok(());
        }
        if seq < self.next_in {
            ensure!(message.text(43) == Some("Y"), "a number that was used before: {}", readable(message));
            return Ok(());
        }
        self.next_in = match &*kind {
            "4" => number(36).context("36")?,
            _ => seq.saturating_add(1),
        };
        match &*kind {
            "A" => self.is_on = true,
            "1" => {
                let id = message.text(112).unwrap_or_default().to_owned();
                self.put("0", fields(&[(112, &id)])).await?;
            }
            "8" => self.book.take(message)?,
            "9" => {
                let request = message.text(11).unwrap_or_default().to_owned();
                self.refused.insert(request, readable(message));
            }
            "0" | "2" | "4" => {}
            _ => bail!("refused: {}", readable(message)),
        }
        Ok(())
    }

    /// What was asked for: orders again, and a gap in place of the rest.
    async fn resend(&mut self, from: u64) -> anyhow::Result<()> {
        let (sent, until) = (self.sent.clone(), self.next_out);
        let line = self.line.as_mut().context("not connected")?;
        let mut next = from;
        for (seq, (kind, body, at)) in sent.range(from..) {
            if next < *seq {
                line.fill_gap_until(next, *seq).await?;
            }
            line.repeat((*seq, at), kind, body).await?;
            next = seq.saturating_add(1);
        }
        if next < until {
            line.fill_gap_until(next, until).await?;
        }
        Ok(())
    }
}

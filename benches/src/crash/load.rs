//! The load of the drills that disturb processes or the database, and what must hold after it: orders come through both
//! interfaces, webhooks and a bank's files go out. Afterwards every acknowledged order must exist and be settled once,
//! and everything that was reported must be stored.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use dvp_domain::event::EventType;
use dvp_testing::receiver::{Authority, Receiver, ReceiverManner, Reply};
use serde_json::{Value, json};
use sqlx::{Connection as _, PgConnection};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::desk::Desk;
use super::fix::{FixClient, SessionTranscript};
use super::process::{Process, text};
use super::recipients::{Kind, Recipients};
use super::rest::{Placed, RestCaller, Traffic, Wallet};
use super::{Ready, books, check};
use crate::dice::Dice;
use crate::drill::{PATIENCE, Report, until, with_log};
use crate::http::Keys;

/// A receiver of webhooks that takes everything, and its authority's certificate.
pub(crate) async fn receiver() -> (Receiver, String) {
    let authority = Authority::new();
    let receiver = Receiver::start(&authority, ReceiverManner::default(), |_, _| Reply::Status(200)).await;
    (receiver, authority.pem())
}

/// Who orders at both interfaces: those with the number of a wallet pay with tokens, the others with money.
pub(crate) struct Who<'a> {
    pub callers: &'a [Option<usize>],
    pub sessions: &'a [Option<usize>],
}

pub(crate) struct Clients {
    closing: watch::Sender<bool>,
    callers: JoinSet<anyhow::Result<Vec<Placed>>>,
    sessions: JoinSet<anyhow::Result<SessionTranscript>>,
    pub(crate) traffic: Vec<Arc<Traffic>>,
}

pub(crate) enum Door {
    Rest(usize),
    Fix,
}

impl Clients {
    pub(crate) fn start(
        seed: u64,
        ready: &Value,
        recipients: &Recipients,
        who: &Who<'_>,
        mut place: impl FnMut(Door) -> watch::Receiver<Ready>,
    ) -> anyhow::Result<Self> {
        let closing = watch::Sender::new(false);
        let (mut callers, mut sessions, mut traffic) = (JoinSet::new(), JoinSet::new(), Vec::new());
        for (n, wallet) in who.callers.iter().enumerate() {
            let wallet = wallet.map(|n| Wallet::of(ready, n)).transpose()?;
            let dice = Dice::new(seed ^ (1 + u64::try_from(n)?) << 32);
            let number =
                who.callers.iter().take(n).filter(|other| other.is_some() == wallet.is_some()).count();
            let number = (u64::try_from(number)?, dice);
            let place = place(Door::Rest(n));
            let caller = RestCaller::new(place, closing.subscribe(), wallet, recipients.clone(), number)?;
            traffic.push(caller.traffic());
            callers.spawn(caller.run());
        }
        for (n, wallet) in who.sessions.iter().enumerate() {
            let wallet = wallet.map(|n| Wallet::of(ready, n)).transpose()?;
            let dice = Dice::new(seed ^ (9 + u64::try_from(n)?) << 32);
            let client = FixClient::new(ready, n, wallet, recipients.clone(), dice)?;
            sessions.spawn(client.run(place(Door::Fix), closing.subscribe()));
        }
        Ok(Self { closing, callers, sessions, traffic })
    }

    /// Places no more orders, and waits until every request is answered and every order over FIX has ended.
    pub(crate) async fn end(mut self) -> anyhow::Result<Seen> {
        self.closing.send_replace(true);
        let ended = async {
            let mut seen = Seen { placed: Vec::new(), transcripts: Vec::new() };
            while let Some(orders) = self.callers.join_next().await {
                seen.placed.extend(orders??);
            }
            while let Some(one) = self.sessions.join_next().await {
                seen.transcripts.push(one??);
            }
            Ok(seen)
        };
        tokio::time::timeout(PATIENCE, ended).await.context("clients wait in vain for their answers")?
    }
}

pub(crate) struct Seen {
    placed: Vec<Placed>,
    transcripts: Vec<SessionTranscript>,
}

/// The bank's folder, and what else is compared with what the clients saw.
pub(crate) struct Outside<'a> {
    pub ready: &'a Value,
    /// `None`: the simulated bank pays.
    pub bank: Option<&'a Path>,
    pub desk: Option<&'a Desk>,
    pub recipients: &'a Recipients,
    pub receiver: &'a Receiver,
}

impl Outside<'_> {
    /// Waits until every order has ended and every payment that the bank gives back has reversed its order.
    pub(crate) async fn ended(&self) -> anyhow::Result<()> {
        let mut conn = self.database().await?;
        check::settled(&mut conn, check::Until::Ended, PATIENCE).await?;
        match self.bank {
            Some(bank) => books::await_returns(&mut conn, bank).await,
            None => Ok(()),
        }
    }

    /// Compares what the clients, bank, desk and webhook receiver saw with what is stored.
    pub(crate) async fn compared(&self, seen: &Seen, report: &mut Report) -> anyhow::Result<()> {
        let mut conn = self.database().await?;
        check::check(&mut conn, &seen.placed, &seen.transcripts, report).await?;
        report.count("fixMessages", seen.transcripts.iter().map(|one| one.received.len()).sum::<usize>());
        report.count("resent", seen.transcripts.iter().map(|one| one.repeats).sum::<usize>());
        if let Some(bank) = self.bank {
            let desk = self.desk.map(Desk::books);
            books::check(&mut conn, bank, desk, self.recipients, report).await?;
        }
        report.count("eventsDelivered", check_webhooks(&mut conn, self.receiver).await?);
        Ok(())
    }

    async fn database(&self) -> anyhow::Result<PgConnection> {
        Ok(PgConnection::connect(text(self.ready, "/databaseUrl")?).await?)
    }
}

pub(crate) struct Load {
    pub(crate) process: Process,
    ready: Value,
    has_bank: bool,
    recipients: Recipients,
    receiver: Receiver,
    clients: Clients,
    /// What the clients know of the service; they end when it is dropped.
    place: watch::Sender<Ready>,
}

impl Load {
    pub(crate) async fn begin(
        binary: PathBuf,
        seed: u64,
        dir: &Path,
        mut args: Vec<String>,
        (kind, who): (Kind, Who<'_>),
    ) -> anyhow::Result<Self> {
        let (receiver, pem) = receiver().await;
        let ca = dir.join("receiver.pem");
        std::fs::write(&ca, pem)?;
        let has_bank = kind != Kind::Simulated;
        args.extend(has_bank.then(|| "--bank-files".to_owned()));
        args.extend([
            "--webhook-allow-private".to_owned(),
            "--webhook-ca".to_owned(),
            ca.display().to_string(),
        ]);
        let mut process = Process::start_with(&binary, dir, args)?;
        let ready = process.ready_within(PATIENCE).await?;
        let recipients = Recipients::register(kind, &|words| process.command(words))?;
        subscribe(text(&ready, "/http")?, &Keys::of(&ready["partner"])?, &receiver.url("127.0.0.1")).await?;
        let place = watch::Sender::new(Some(Arc::new(ready.clone())));
        let clients = Clients::start(seed, &ready, &recipients, &who, |_| place.subscribe())?;
        Ok(Self { process, ready, has_bank, recipients, receiver, clients, place })
    }

    pub(crate) fn check_running(&mut self) -> anyhow::Result<()> {
        ensure!(self.process.is_running()?, "the service ended by itself");
        Ok(())
    }

    pub(crate) fn log_tail(&self) -> String {
        self.process.log_tail()
    }

    /// Sends SIGKILL; the clients know it.
    pub(crate) async fn kill(&mut self) -> anyhow::Result<()> {
        self.process.kill().await?;
        self.place.send_replace(None);
        Ok(())
    }

    pub(crate) async fn start_again(&mut self) -> anyhow::Result<()> {
        self.process.start_again()?;
        self.ready = self.process.ready_within(PATIENCE).await?;
        self.place.send_replace(Some(Arc::new(self.ready.clone())));
        Ok(())
    }

    /// Places no more orders, waits for the last ones, and compares what the clients and everyone outside saw with what
    /// is stored in the database at `url`, or in the service's own.
    pub(crate) async fn end(
        self,
        url: Option<String>,
        desk: Option<&Desk>,
        report: &mut Report,
    ) -> anyhow::Result<()> {
        let Self { mut process, mut ready, has_bank, recipients, receiver, clients, place: _place } = self;
        if let Some(url) = url {
            ready["databaseUrl"] = url.into();
        }
        let bank = process.data_dir().join("bank");
        let bank = has_bank.then_some(&*bank);
        let outside = Outside { ready: &ready, bank, desk, recipients: &recipients, receiver: &receiver };
        let compared = async {
            let seen = clients.end().await;
            // An order that does not end may be one that was converted twice.
            desk.map_or(Ok(()), |desk| books::check_once(&desk.books()))?;
            let seen = seen?;
            outside.ended().await?;
            outside.compared(&seen, report).await
        };
        with_log(compared.await, || process.log_tail())?;
        process.stop().await
    }
}

/// Registers a receiver for all events of the key's partner. A service without processor time may ask to try again.
pub(crate) async fn subscribe(base: &str, keys: &Keys, url: &str) -> anyhow::Result<()> {
    let types = EventType::ALL.map(EventType::as_str);
    let (client, body) = (reqwest::Client::new(), json!({"url": url, "subscribedTypes": types}));
    for _ in 0..10 {
        let request = client.post(format!("{base}/v1/webhook_endpoints")).header("X-API-Key", &keys.api_key);
        let answer = request.json(&body).send().await?;
        let status = answer.status().as_u16();
        if status == 201 {
            return Ok(());
        }
        ensure!(status == 503, "a webhook endpoint: {status} {}", answer.text().await?);
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    bail!("no webhook endpoint is registered")
}

pub(crate) async fn position(admin: &mut PgConnection) -> anyhow::Result<i64> {
    check::count(admin, "select position from feed_counter").await
}

pub(crate) async fn written_since(admin: &mut PgConnection, before: i64) -> anyhow::Result<()> {
    until(PATIENCE, "the service writes to the new primary", async || {
        Ok((position(admin).await? != before).then_some(()))
    })
    .await
}

/// The receiver got exactly the stored events of its partner.
async fn check_webhooks(conn: &mut PgConnection, receiver: &Receiver) -> anyhow::Result<usize> {
    let mut missing = Vec::new();
    let delivered = until(PATIENCE, "every event is delivered", async || {
        let stored: Vec<(String, String)> = sqlx::query_as(
            "select e.event_id, e.type from event e join partner p on p.id = e.partner_id where p.name = 'acme'",
        )
        .fetch_all(&mut *conn)
        .await?;
        let stored: BTreeMap<String, String> = stored.into_iter().collect();
        let mut delivered = BTreeSet::new();
        for got in receiver.got() {
            let body: Value = serde_json::from_str(&got.body).context("a webhook's body")?;
            let id = body["id"].as_str().unwrap_or_default();
            let kind = stored.get(id).map(String::as_str);
            ensure!(kind.is_some() && kind == body["type"].as_str(), "delivered and not stored: {body}");
            delivered.insert(id.to_owned());
        }
        missing = stored.keys().filter(|id| !delivered.contains(*id)).cloned().collect();
        Ok(missing.is_empty().then_some(stored.len()))
    });
    delivered.await.with_context(|| format!("missing: {missing:?}"))
}

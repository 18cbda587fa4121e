//! The load of the drills of a fail-over, and what must hold after it: orders come through both interfaces, webhooks
//! and a bank's files go out. Afterwards every acknowledged order must exist and be settled once, and everything that
//! was reported must be stored.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use dvp_domain::event::EventType;
use serde_json::{Value, json};
use sqlx::{Connection as _, PgConnection};
use tokio::sync::watch;

use crate::crash::Ready;
use crate::crash::clients::Clients;
use crate::crash::dice::Dice;
use crate::crash::fix::FixClient;
use crate::crash::process::Process;
use crate::crash::recipients::Recipients;
use crate::crash::rest::{RestCaller, Wallet, text};
use crate::crash::{books, check};
use crate::receiver::{Authority, Manner, Receiver, Reply};

/// The time limit for the service to write again, and for the last orders.
pub(crate) const PATIENCE: Duration = Duration::from_secs(300);

/// The counts of a drill.
#[derive(Debug, Clone, Default)]
pub struct FailoverReport {
    /// Rounds by their fault.
    pub rounds: BTreeMap<&'static str, u32>,
    pub orders: usize,
    pub completed: usize,
    pub fix_messages: usize,
    pub resent: usize,
    pub payments: usize,
    pub events_delivered: usize,
    /// From a fault to the first commit at the new primary.
    pub longest_outage: Duration,
}

impl FailoverReport {
    pub fn add(&mut self, other: &Self) {
        for (fault, rounds) in &other.rounds {
            *self.rounds.entry(fault).or_default() += rounds;
        }
        self.orders += other.orders;
        self.completed += other.completed;
        self.fix_messages += other.fix_messages;
        self.resent += other.resent;
        self.payments += other.payments;
        self.events_delivered += other.events_delivered;
        self.longest_outage = self.longest_outage.max(other.longest_outage);
    }
}

/// A service whose database fails, with its clients.
pub(crate) struct Load {
    process: Process,
    ready: Value,
    recipients: Recipients,
    receiver: Receiver,
    clients: Clients,
    /// What the clients know of the service; they end when it is dropped.
    _place: watch::Sender<Ready>,
}

impl Load {
    /// Starts the service on a database, and its clients.
    pub(crate) async fn begin(
        binary: &Path,
        seed: u64,
        dir: &Path,
        database: Vec<String>,
    ) -> anyhow::Result<Self> {
        let authority = Authority::new().map_err(|error| anyhow::anyhow!("{error}"))?;
        let receiver = Receiver::start(&authority, Manner::default(), |_, _| Reply::Status(200)).await;
        let receiver = receiver.map_err(|error| anyhow::anyhow!("{error}"))?;
        let ca = dir.join("receiver.pem");
        std::fs::write(&ca, authority.pem())?;
        let mut args = vec!["--bank-files".to_owned(), "--webhook-allow-private".to_owned()];
        args.extend(["--webhook-ca".to_owned(), ca.display().to_string()]);
        args.extend(database);
        let mut process = Process::start_with(binary, dir, args)?;
        let ready = process.ready_within(PATIENCE).await?;
        let recipients = Recipients::register_prompt(&|words| process.command(words))?;
        subscribe(&ready, &receiver.url("127.0.0.1")).await?;
        let place = watch::Sender::new(Some(Arc::new(ready.clone())));
        let clients = clients(seed, &ready, &recipients, &place)?;
        Ok(Self { process, ready, recipients, receiver, clients, _place: place })
    }

    pub(crate) fn check_running(&mut self) -> anyhow::Result<()> {
        ensure!(self.process.is_running()?, "the service ended by itself");
        Ok(())
    }

    pub(crate) fn log_tail(&self) -> String {
        self.process.log_tail()
    }

    /// Places no more orders, waits for the last ones, and compares what the clients, the bank and the webhook receiver
    /// saw with what is stored in the database at `url`.
    pub(crate) async fn end(self, url: String, report: &mut FailoverReport) -> anyhow::Result<()> {
        let Self { process, mut ready, recipients, receiver, clients, _place } = self;
        ready["databaseUrl"] = url.clone().into();
        let compared = async {
            let seen = clients.end(PATIENCE).await?;
            let mut conn = PgConnection::connect(&url).await?;
            let deadline = Instant::now() + PATIENCE;
            let bank = process.data_dir().join("bank");
            check::settled(&mut conn, check::Until::Ended, deadline).await?;
            books::await_returns(&mut conn, &bank, deadline).await?;
            let checked = check::check(&ready, &seen.placed, &seen.transcripts, deadline).await?;
            report.orders = checked.orders;
            report.completed = checked.completed;
            report.fix_messages = seen.transcripts.iter().map(|one| one.received.len()).sum();
            report.resent = seen.transcripts.iter().map(|one| one.repeats).sum();
            report.payments = books::check(&mut conn, &bank, None, &recipients).await?.payments;
            report.events_delivered = check_webhooks(&mut conn, &receiver, deadline).await?;
            anyhow::Ok(())
        };
        compared.await.with_context(|| process.log_tail())?;
        process.stop().await
    }
}

/// Registers the receiver for all events of the first partner.
pub(crate) async fn subscribe(ready: &Value, url: &str) -> anyhow::Result<()> {
    let types = EventType::ALL.map(EventType::as_str);
    let request = reqwest::Client::new()
        .post(format!("{}/v1/webhook_endpoints", text(ready, "/http")?))
        .header("X-API-Key", text(ready, "/partner/apiKey")?)
        .json(&json!({"url": url, "subscribedTypes": types}));
    let answer = request.send().await?;
    let status = answer.status();
    ensure!(status == 201, "the webhook endpoint was answered with {status}: {}", answer.text().await?);
    Ok(())
}

/// Two callers without a wallet and two with one over REST, and one of each over FIX.
fn clients(
    seed: u64,
    ready: &Value,
    recipients: &Recipients,
    place: &watch::Sender<Ready>,
) -> anyhow::Result<Clients> {
    let mut clients = Clients::new();
    for (n, wallet) in [None, None, Some(0), Some(2)].into_iter().enumerate() {
        let wallet = wallet.map(|n| Wallet::of(ready, n)).transpose()?;
        let caller = u64::try_from(if wallet.is_some() { n - 2 } else { n })?;
        let dice = Dice::new(seed ^ (1 + u64::try_from(n)?) << 32);
        let (place, closing) = (place.subscribe(), clients.closing());
        clients.call(RestCaller::new(place, closing, wallet, recipients.clone(), (caller, dice))?);
    }
    for (n, wallet) in [(0, Some(1)), (1, None)] {
        let wallet = wallet.map(|n| Wallet::of(ready, n)).transpose()?;
        let dice = Dice::new(seed ^ (9 + u64::try_from(n)?) << 32);
        clients.connect(FixClient::new(ready, n, wallet, recipients.clone(), dice)?, place.subscribe());
    }
    Ok(clients)
}

/// The feed's last position.
pub(crate) async fn position(admin: &mut PgConnection) -> anyhow::Result<i64> {
    check::count(admin, "select position from feed_counter").await
}

/// The receiver got exactly the stored events of its partner.
pub(crate) async fn check_webhooks(
    conn: &mut PgConnection,
    receiver: &Receiver,
    deadline: Instant,
) -> anyhow::Result<usize> {
    loop {
        let stored: Vec<(String, String, String)> = sqlx::query_as(
            "select e.event_id, e.type, e.reference from event e join partner p on p.id = e.partner_id \
             where p.name = 'acme' order by e.event_id",
        )
        .fetch_all(&mut *conn)
        .await?;
        let stored: BTreeMap<String, (String, String)> =
            stored.into_iter().map(|(id, kind, reference)| (id, (kind, reference))).collect();
        let mut missing = stored.clone();
        for got in receiver.got() {
            let body: Value = serde_json::from_str(&got.body).context("a webhook's body")?;
            let id = body["id"].as_str().unwrap_or_default();
            let kind = stored.get(id).map(|(kind, _)| kind.as_str());
            ensure!(kind.is_some() && kind == body["type"].as_str(), "delivered and not stored: {body}");
            missing.remove(id);
        }
        if missing.is_empty() {
            return Ok(stored.len());
        }
        ensure!(Instant::now() < deadline, "{} events were not delivered: {missing:?}", missing.len());
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

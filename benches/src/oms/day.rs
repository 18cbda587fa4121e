//! A day and the morning after it.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use rust_decimal::Decimal;

use super::client::Client;
use super::{Begins, Profile};
use crate::dice::Dice;
use crate::drill::Report;
use crate::progress;
use crate::scenes::sandbox::Sandbox;

pub(super) const STEPS: u32 = 5;

const SYMBOL: &str = "USD/EUR";
const BASE: &str = "USD";
/// Recipients that are paid at once, after a while, and never.
const STRAIGHT: &str = "bene_oms:dest_10000000";
const SLOW: &str = "bene_oms:dest_10000004";
const REFUSED: &str = "bene_oms:dest_10000002";

struct Day {
    client: Client,
    dice: Dice,
    orders: u32,
    requests: u32,
}

pub(super) async fn run(profile: Profile, seed: u64, report: &mut Report) -> anyhow::Result<()> {
    let sandbox = Sandbox::start().await;
    let client = Client::new(profile, sandbox.as_ref())?;
    if !client.profile.ignored.is_empty() {
        let session = client.session_id();
        let set =
            ["fix-session", "set", "--session-id", &session, "--ignored-fields", &client.profile.ignored];
        sandbox.command(&set).context("agreeing on the fields to ignore")?;
    }
    let mut day = Day { client, dice: Dice::new(seed), orders: 0, requests: 0 };
    day.client.begin(Begins::Continues).await.context("onboarding")?;
    progress::done("logged on");

    day.trade(report).await.context("trading")?;
    progress::done("traded");
    day.be_cut_off().await.context("cut off")?;
    progress::done("cut off");
    day.end_and_begin().await.context("the next day")?;
    progress::done("the next day");
    day.reconcile(&sandbox, report).await.context("reconciling")?;
    progress::done("reconciled");
    sandbox.stop().await;
    Ok(())
}

impl Day {
    async fn order(&mut self, account: &str) -> anyhow::Result<String> {
        self.orders += 1;
        let id = format!("{}-{}", self.client.profile.version, self.orders);
        let quantity = 20 + self.dice.roll(980);
        self.client.book.place(&id, Decimal::from(quantity));
        let quantity = quantity.to_string();
        let places =
            [("id", &*id), ("account", account), ("quantity", &quantity), ("symbol", SYMBOL), ("base", BASE)];
        let form = self.client.profile.order.clone();
        self.client.say("D", &form, &places).await?;
        Ok(id)
    }

    /// A request about an order that has a report. `None`: this system has no such request.
    async fn ask(&mut self, kind: &str, form: String, id: &str) -> anyhow::Result<Option<String>> {
        if form.is_empty() {
            return Ok(None);
        }
        self.client.until("a report", |client| !client.book.lines[id].order_id.is_empty()).await?;
        self.requests += 1;
        let line = &self.client.book.lines[id];
        let (order, quantity) = (line.order_id.clone(), line.quantity.to_string());
        // A status request names the order, and has no ClOrdID of its own.
        let request = if kind == "H" { id.to_owned() } else { format!("{id}.{}", self.requests) };
        let places = [
            ("id", &*request),
            ("original", id),
            ("order", &order),
            ("quantity", &quantity),
            ("symbol", SYMBOL),
            ("base", BASE),
        ];
        self.client.say(kind, &form, &places).await?;
        Ok(Some(request))
    }

    async fn trade(&mut self, report: &mut Report) -> anyhow::Result<()> {
        for _ in 0..3 + self.dice.roll(4) {
            let account = *self.dice.pick(&[REFUSED, STRAIGHT, STRAIGHT, STRAIGHT]);
            self.order(account).await?;
        }
        let (replace, cancel) = (self.client.profile.replace.clone(), self.client.profile.cancel.clone());
        let slow = self.order(SLOW).await?;
        if let Some(request) = self.ask("G", replace, &slow).await? {
            self.client.until("an answer", |client| client.refused.contains_key(&request)).await?;
            report.count("replacementsRefused", 1_u64);
        }
        let status = self.client.profile.status.clone();
        if self.ask("H", status, &slow).await?.is_some() {
            report.count("statusRequests", 1_u64);
        }
        if let Some(request) = self.ask("F", cancel, &slow).await? {
            let answered = |client: &Client| {
                client.refused.contains_key(&request) || client.book.lines[&slow].status == "4"
            };
            self.client.until("an answer", answered).await?;
            report.count("cancelRequests", 1_u64);
        }
        Ok(())
    }

    /// Orders are on their way when the connection goes, and more while nobody knows.
    async fn be_cut_off(&mut self) -> anyhow::Result<()> {
        for _ in 0..2 + self.dice.roll(3) {
            let account = *self.dice.pick(&[SLOW, STRAIGHT, STRAIGHT]);
            self.order(account).await?;
        }
        let before = Duration::from_millis(self.dice.roll(300));
        self.client.read_for(before).await?;
        self.client.cut();
        tokio::time::sleep(self.dice.millis(4_000)).await;
        self.client.begin(self.client.profile.after_cut).await?;
        self.client.read_for(Duration::from_secs(1)).await
    }

    /// It logs out with orders open, and is back in the morning.
    async fn end_and_begin(&mut self) -> anyhow::Result<()> {
        self.order(SLOW).await?;
        self.client.read_for(Duration::from_millis(300)).await?;
        self.client.log_out().await?;
        tokio::time::sleep(self.dice.millis(4_000)).await;
        self.client.begin(self.client.profile.starts_day).await?;
        self.order(STRAIGHT).await?;
        self.client.until("every order ends", |client| client.book.open() == 0).await
    }

    /// Order by order: the book's status and amount are those of the receipt and of the ledger.
    async fn reconcile(&mut self, sandbox: &Sandbox, report: &mut Report) -> anyhow::Result<()> {
        self.client.read_for(Duration::from_secs(1)).await?;
        const DELIVERED: &str = "select abs(coalesce(sum(amount), 0))::bigint from ledger_entry \
                                 where owner_kind = 'external' and owner = $1 and asset = 'EUR'";
        const RECEIPT: &str = "select coalesce((select (body::json #>> '{payout,amountMinor}')::bigint \
                                                from receipt where reference = $1), 0)";
        let mut sum = (Decimal::ZERO, 0_i64);
        for (id, line) in &self.client.book.lines {
            let delivered: i64 = sandbox.one_of(DELIVERED, &line.order_id).await;
            let receipt: i64 = sandbox.one_of(RECEIPT, &line.order_id).await;
            let net = (line.net * Decimal::ONE_HUNDRED).normalize();
            let all = format!("{id}: book {net}, receipt {receipt}, ledger {delivered}; {line:?}");
            ensure!(net == Decimal::from(delivered) && delivered == receipt, "{all}");
            ensure!((line.status == "2") == (delivered > 0), "{all}");
            report.kind("orders", &format!("status {}", line.status), 1);
            ensure!(line.status != "8", "{id} was rejected: {line:?}");
            sum = (sum.0 + line.net, sum.1 + delivered);
        }
        ensure!(sum.1 > 0, "nothing was delivered");
        let orders: i64 = sandbox.one("select count(*) from execution").await;
        ensure!(orders == i64::from(self.orders), "{orders} executions of {} orders", self.orders);
        report.count("deliveredMinor", u64::try_from(sum.1).unwrap_or(0));
        Ok(())
    }
}

//! The service under fire: orders come through both interfaces while the real program is killed with SIGKILL and
//! started again, at moments that a seed picks, in the middle of its start too. Afterwards nothing may be lost, nothing
//! duplicated, and every FIX client must have received the stored messages.
//!
//! With the rails of a business the service pays through a bank's files and converts at a desk over HTTP that behaves
//! badly; the books of both are held against the orders.

pub(crate) mod books;
pub(crate) mod check;
pub(crate) mod clients;
mod desk;
pub(crate) mod dice;
pub(crate) mod fix;
mod payments;
pub(crate) mod process;
pub(crate) mod recipients;
pub(crate) mod rest;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use sqlx::{Connection as _, PgConnection};
use tokio::sync::watch;
use tokio::task::JoinSet;

use self::desk::Desk;
use self::dice::Dice;
use self::fix::FixClient;
use self::process::Process;
use self::recipients::Recipients;
use self::rest::{RestCaller, Wallet, text};

/// The service's ready file while it runs.
pub(crate) type Ready = Option<Arc<serde_json::Value>>;

/// The rails of conversion and payout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CrashRails {
    /// The simulated ones, which keep books in the service's database.
    Simulated,
    /// A bank by files, and a desk over HTTP in the drill itself.
    BankAndDesk,
}

impl CrashRails {
    /// Wallets that order over REST. A desk that is slow keeps an order for long, and a wallet orders one at a time.
    const fn wallets(self) -> &'static [usize] {
        match self {
            Self::Simulated => &[0],
            Self::BankAndDesk => &[0, 2, 3, 4, 5, 6],
        }
    }
}

/// One drill.
#[derive(Debug, Clone)]
pub struct CrashPlan {
    /// The program under fire.
    pub binary: PathBuf,
    pub seed: u64,
    pub kills: u32,
    pub rails: CrashRails,
}

/// The counts of a drill.
#[derive(Debug, Clone, Default)]
pub struct CrashReport {
    pub kills: u32,
    pub starts_cut_short: u32,
    pub orders: usize,
    pub completed: usize,
    pub fix_messages: usize,
    pub resent: usize,
    /// Payments that the bank was ordered to make, and orders that the desk got; none of simulated rails.
    pub payments: usize,
    /// Of these, payments that came back.
    pub returned: usize,
    pub conversions: usize,
}

impl CrashReport {
    pub fn add(&mut self, other: &Self) {
        let Self { kills, starts_cut_short, orders, completed, fix_messages, resent, .. } = other;
        let Self { payments, returned, conversions, .. } = other;
        self.kills += kills;
        self.starts_cut_short += starts_cut_short;
        self.orders += orders;
        self.completed += completed;
        self.fix_messages += fix_messages;
        self.resent += resent;
        self.payments += payments;
        self.returned += returned;
        self.conversions += conversions;
    }
}

/// The time limit for the last orders after the last kill.
const PATIENCE: Duration = Duration::from_secs(300);
/// A start that takes longer is stuck.
const START_WITHIN: Duration = Duration::from_secs(300);

/// Runs a drill in a directory of its own. An error names the promise that was broken.
pub async fn run(plan: &CrashPlan) -> anyhow::Result<CrashReport> {
    let dir = tempfile::tempdir()?;
    let outcome = under_fire(plan, dir.path()).await;
    if outcome.is_err() {
        let kept = dir.keep();
        return outcome
            .with_context(|| format!("seed {}; everything is left in {}", plan.seed, kept.display()));
    }
    outcome
}

async fn under_fire(plan: &CrashPlan, dir: &Path) -> anyhow::Result<CrashReport> {
    let mut dice = Dice::new(plan.seed);
    let desk = match plan.rails {
        CrashRails::Simulated => None,
        CrashRails::BankAndDesk => Some(Desk::open(plan.seed).await?),
    };
    let args = match &desk {
        None => Vec::new(),
        Some((_, url, _)) => vec!["--bank-files".to_owned(), "--desk-url".to_owned(), url.clone()],
    };
    let mut process = Process::start_with(&plan.binary, dir, args)?;
    let first = process.ready_within(START_WITHIN).await?;
    let recipients = match plan.rails {
        CrashRails::Simulated => Recipients::simulated(),
        CrashRails::BankAndDesk => Recipients::register(&|words| process.command(words))?,
    };
    let place = watch::Sender::new(Some(Arc::new(first.clone())));
    let closing = watch::Sender::new(false);
    let (mut callers, mut clients) = (JoinSet::new(), JoinSet::new());
    let wallets = plan.rails.wallets().iter().map(|n| Some(*n));
    for (n, wallet) in [None, None].into_iter().chain(wallets).enumerate() {
        let wallet = wallet.map(|n| Wallet::of(&first, n)).transpose()?;
        // Two have no wallet.
        let caller = u64::try_from(if wallet.is_some() { n - 2 } else { n })?;
        let dice = Dice::new(plan.seed ^ (1 + u64::try_from(n)?) << 32);
        let caller = RestCaller::new(
            place.subscribe(),
            closing.subscribe(),
            wallet,
            recipients.clone(),
            (caller, dice),
        )?;
        callers.spawn(caller.run());
    }
    for (n, wallet) in [(0, Some(1)), (1, None)] {
        let wallet = wallet.map(|n| Wallet::of(&first, n)).transpose()?;
        let dice = Dice::new(plan.seed ^ (9 + u64::try_from(n)?) << 32);
        let client = FixClient::new(&first, n, wallet, recipients.clone(), dice)?;
        clients.spawn(client.run(place.subscribe(), closing.subscribe()));
    }
    let mut report = CrashReport::default();
    while report.kills < plan.kills {
        tokio::time::sleep(Duration::from_millis(30 + dice.roll(1_800))).await;
        ensure!(process.is_running()?, "the service ended by itself\n{}", process.log_tail());
        process.kill().await?;
        place.send_replace(None);
        report.kills += 1;
        // Some starts are not waited for.
        while report.kills < plan.kills && dice.roll(5) == 0 {
            process.start_again()?;
            tokio::time::sleep(Duration::from_millis(dice.roll(2_500))).await;
            process.kill().await?;
            report.kills += 1;
            report.starts_cut_short += 1;
        }
        process.start_again()?;
        let ready = process.ready_within(START_WITHIN).await?;
        place.send_replace(Some(Arc::new(ready)));
    }
    // No more kills: every request is answered, and every order ends.
    tokio::time::sleep(Duration::from_millis(500)).await;
    closing.send_replace(true);
    desk.iter().for_each(|(desk, ..)| desk.speak());
    let mut placed = Vec::new();
    let wait = async {
        while let Some(orders) = callers.join_next().await {
            placed.extend(orders??);
        }
        let mut transcripts = Vec::new();
        while let Some(one) = clients.join_next().await {
            transcripts.push(one??);
        }
        anyhow::Ok(transcripts)
    };
    let transcripts = match tokio::time::timeout(PATIENCE, wait).await {
        Ok(transcripts) => transcripts?,
        Err(_) => {
            // An order that does not end may be one that was converted twice.
            desk.iter().try_for_each(|(desk, ..)| books::check_once(&desk.books()))?;
            anyhow::bail!("clients wait in vain for their answers\n{}", process.log_tail())
        }
    };
    let ready = place.borrow().clone().context("the service is up")?;
    let bank = process.data_dir().join("bank");
    if desk.is_some() {
        let (mut conn, deadline) =
            (PgConnection::connect(text(&ready, "/databaseUrl")?).await?, Instant::now() + PATIENCE);
        let returned = async {
            check::settled(&mut conn, check::Until::Ended, deadline).await?;
            books::await_returns(&mut conn, &bank, deadline).await
        };
        returned.await.with_context(|| process.log_tail())?;
    }
    let checked = check::check(&ready, &placed, &transcripts, Instant::now() + PATIENCE).await;
    let checked = checked.with_context(|| process.log_tail())?;
    report.orders = checked.orders;
    report.completed = checked.completed;
    report.fix_messages = transcripts.iter().map(|one| one.received.len()).sum();
    report.resent = transcripts.iter().map(|one| one.repeats).sum();
    if let Some((desk, ..)) = &desk {
        let mut conn = PgConnection::connect(text(&ready, "/databaseUrl")?).await?;
        let booked = books::check(&mut conn, &bank, Some(desk.books()), &recipients).await;
        let booked = booked.with_context(|| process.log_tail())?;
        let books::Booked { payments, returned, conversions, .. } = booked;
        (report.payments, report.returned, report.conversions) = (payments, returned, conversions);
    }
    process.stop().await?;
    Ok(report)
}

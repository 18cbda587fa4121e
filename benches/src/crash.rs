//! The service under fire: orders come through both interfaces while the real program is killed with SIGKILL and
//! started again, at moments that a seed picks, in the middle of its start too. Afterwards nothing may be lost, nothing
//! duplicated, and every FIX client must have received the stored messages.
//!
//! With the rails of a business the service pays through a bank's files and converts at a desk over HTTP that behaves
//! badly; the books of both are held against the orders.

pub(crate) mod books;
pub(crate) mod check;
mod desk;
pub(crate) mod fix;
pub(crate) mod load;
pub(crate) mod process;
pub(crate) mod recipients;
pub(crate) mod rest;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use clap::{Args, ValueEnum};

use self::desk::Desk;
use self::load::{Load, Who};
use self::recipients::Kind;
use crate::dice::Dice;
use crate::drill::{Drill, Program, Report, name_of, with_log};
use crate::progress;

/// The service's ready file while it runs.
pub(crate) type Ready = Option<Arc<serde_json::Value>>;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CrashRails {
    /// The sandbox's own, which move no money.
    Simulated,
    /// A bank by files and a desk over HTTP, both of which behave badly.
    BankAndDesk,
}

impl CrashRails {
    /// A desk that is slow keeps an order for long, and a wallet orders one at a time.
    const fn load(self) -> (Kind, Who<'static>) {
        const SESSIONS: &[Option<usize>] = &[Some(1), None];
        match self {
            Self::Simulated => (Kind::Simulated, Who { callers: &[None, None, Some(0)], sessions: SESSIONS }),
            Self::BankAndDesk => {
                let callers = &[None, None, Some(0), Some(2), Some(3), Some(4), Some(5), Some(6)];
                (Kind::All, Who { callers, sessions: SESSIONS })
            }
        }
    }
}

#[derive(Debug, Clone, Args)]
pub struct CrashDrill {
    /// How often the service is killed with each seed.
    #[arg(long, default_value_t = 20)]
    pub kills: u32,
    /// The rails of conversion and payout; both kinds in turn when not given.
    #[arg(long, value_enum)]
    pub rails: Option<CrashRails>,
    #[command(flatten)]
    pub program: Program,
}

impl Drill for CrashDrill {
    const NAME: &'static str = "crash";

    fn rounds(&self) -> u32 {
        self.kills * if self.rails.is_some() { 1 } else { 2 }
    }

    async fn run_in(&self, seed: u64, dir: &Path) -> anyhow::Result<Report> {
        let mut sum = Report::default();
        for kind in CrashRails::value_variants() {
            if self.rails.is_none_or(|rails| rails == *kind) {
                let dir = dir.join(name_of(kind));
                std::fs::create_dir(&dir)?;
                let outcome = self.under_fire(seed, *kind, &dir).await;
                sum.add(outcome.with_context(|| format!("{kind:?}"))?);
            }
        }
        Ok(sum)
    }
}

impl CrashDrill {
    async fn under_fire(&self, seed: u64, rails: CrashRails, dir: &Path) -> anyhow::Result<Report> {
        let desk = match rails {
            CrashRails::Simulated => None,
            CrashRails::BankAndDesk => Some(Desk::open(seed).await?),
        };
        let args = desk.iter().flat_map(|(_, url, _)| ["--desk-url".to_owned(), url.clone()]).collect();
        let mut load = Load::begin(self.program.path()?, seed, dir, args, rails.load()).await?;
        let mut report = Report::default();
        let fire = self.fire(&mut load, &mut Dice::new(seed), &mut report).await;
        with_log(fire, || load.log_tail())?;
        // No more kills: every request is answered, and every order ends.
        tokio::time::sleep(Duration::from_millis(500)).await;
        let desk = desk.as_ref().map(|(desk, ..)| desk);
        desk.into_iter().for_each(Desk::speak);
        load.end(None, desk, &mut report).await?;
        Ok(report)
    }

    async fn fire(&self, load: &mut Load, dice: &mut Dice, report: &mut Report) -> anyhow::Result<()> {
        let mut kills = 0;
        while kills < self.kills {
            tokio::time::sleep(Duration::from_millis(30) + dice.millis(1_800)).await;
            load.check_running()?;
            load.kill().await?;
            kills += 1;
            // Some starts are not waited for.
            while kills < self.kills && dice.roll(5) == 0 {
                load.process.start_again()?;
                tokio::time::sleep(dice.millis(2_500)).await;
                load.process.kill().await?;
                kills += 1;
                report.count("startsCutShort", 1_u64);
                progress::done(format!("kill {kills}"));
            }
            load.start_again().await?;
            progress::done(format!("kill {kills}"));
        }
        report.count("kills", kills);
        Ok(())
    }
}

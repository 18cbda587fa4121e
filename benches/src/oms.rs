//! Order management systems as they are: each logs on, trades, is cut off, ends its day and begins the next as the
//! system of its profile does. What its book has, by the reports' own numbers, must be what receipts and ledger have.

use std::panic::AssertUnwindSafe;
use std::path::Path;

use anyhow::Context as _;
use clap::Args;
use futures_util::FutureExt as _;
use serde::Deserialize;

use crate::drill::{Drill, Report, said};

mod book;
mod client;
mod day;

macro_rules! profiles {
    ($($name:literal),* $(,)?) => {
        const FILES: &[(&str, &str)] =
            &[$(($name, include_str!(concat!("../profiles/oms/", $name, ".toml")))),*];
    };
}

profiles!["apama", "cqg", "equity-oms", "futures-desk", "quickfix-sample", "tt-gateway"];

/// How a connection that is not the first begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Begins {
    /// With the numbers of before.
    Continues,
    /// ResetSeqNumFlag(141)=Y in its Logon.
    Resets,
    /// As it continues, and then by a second Logon on the connection.
    Exchanges,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Precision {
    Seconds,
    Milliseconds,
    Microseconds,
}

/// What a system says, with places for what changes in braces; a message without a form is never sent.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Profile {
    #[serde(rename = "name")]
    _name: String,
    #[serde(rename = "sources")]
    _sources: Vec<String>,
    #[serde(rename = "assumed")]
    _assumed: Vec<String>,
    version: String,
    /// What is agreed with it beyond the fields that are ignored anyway.
    #[serde(default)]
    ignored: String,
    /// Beyond the standard header.
    header: String,
    logon: String,
    order: String,
    replace: String,
    cancel: String,
    status: String,
    /// Of TransactTime.
    time: Precision,
    starts_day: Begins,
    after_cut: Begins,
}

impl Profile {
    fn named(name: &str) -> anyhow::Result<Self> {
        let (_, text) = FILES.iter().find(|(known, _)| *known == name).context("no such profile")?;
        toml::from_str(text).with_context(|| format!("the profile {name}"))
    }
}

#[derive(Debug, Clone, Args)]
pub struct OmsDrill {
    /// A profile of `benches/profiles/oms`, or all of them; several are several of these.
    #[arg(long = "profile", value_name = "PROFILE", required = true, value_parser = known)]
    pub profiles: Vec<String>,
}

const ALL: &str = "all";

fn known(name: &str) -> Result<String, String> {
    let is_known = name == ALL || FILES.iter().any(|(known, _)| *known == name);
    let names = || FILES.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    if is_known { Ok(name.to_owned()) } else { Err(format!("one of all, {}", names())) }
}

impl OmsDrill {
    fn names(&self) -> Vec<&str> {
        let is_all = self.profiles.iter().any(|name| name == ALL);
        let all = || FILES.iter().map(|(name, _)| *name).collect();
        if is_all { all() } else { self.profiles.iter().map(String::as_str).collect() }
    }
}

impl Drill for OmsDrill {
    const NAME: &'static str = "oms";

    fn rounds(&self) -> u32 {
        u32::try_from(self.names().len()).unwrap_or(u32::MAX).saturating_mul(day::STEPS)
    }

    async fn run_in(&self, seed: u64, _: &Path) -> anyhow::Result<Report> {
        let mut report = Report::default();
        for name in self.names() {
            let run = day::run(Profile::named(name)?, seed, &mut report);
            // A day that cannot go on ends; the other profiles are tried all the same.
            let broken = match AssertUnwindSafe(run).catch_unwind().await {
                Ok(Ok(())) => None,
                Ok(Err(error)) => Some(format!("{error:#}")),
                Err(panic) => Some(said(&*panic).to_owned()),
            };
            report.broken.extend(broken.map(|line| format!("{name}: {line}")));
            report.kind("profiles", name, 1);
        }
        Ok(report)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_profile_can_be_read_and_names_its_sources() {
        for (name, _) in FILES {
            let profile = Profile::named(name).unwrap();
            assert!(!profile._sources.is_empty(), "{name}");
        }
        assert!(known("all").is_ok() && known("another").is_err());
    }
}

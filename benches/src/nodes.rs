//! Nodes as they are: the service on a chain whose endpoint behaves as the nodes of a profile do. Contracts are deployed
//! over it, orders of every kind, a burst, a reorganization as deep as that chain has had, dear gas and an endpoint that
//! stands still follow. Every order is completed, fails cleanly, or is refused at the door with a reason.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::path::Path;

use clap::{Args, ValueEnum};
use futures_util::FutureExt as _;

use crate::drill::{Drill, Program, Report, said};
use crate::scenes::profile::Profile;

mod edr;
mod scene;

/// The node behind a profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum NodeKind {
    Anvil,
    /// Hardhat's EDR, fetched by npm; needs Node.js.
    Hardhat,
}

#[derive(Debug, Clone, Args)]
pub struct NodesDrill {
    /// A profile of `benches/profiles/nodes`, or all of them; several are several of these.
    #[arg(long = "profile", value_name = "PROFILE", required = true, value_parser = known)]
    pub profiles: Vec<String>,
    /// The implementation behind the profiles.
    #[arg(long, value_enum, default_value_t = NodeKind::Anvil)]
    pub node: NodeKind,
    #[command(flatten)]
    pub program: Program,
}

const ALL: &str = "all";

fn known(name: &str) -> Result<String, String> {
    let is_known = name == ALL || Profile::names().any(|known| known == name);
    let names = || Profile::names().collect::<Vec<_>>().join(", ");
    if is_known { Ok(name.to_owned()) } else { Err(format!("one of all, {}", names())) }
}

impl NodesDrill {
    fn names(&self) -> Vec<&str> {
        let is_all = self.profiles.iter().any(|name| name == ALL);
        if is_all { Profile::names().collect() } else { self.profiles.iter().map(String::as_str).collect() }
    }
}

impl Drill for NodesDrill {
    const NAME: &'static str = "nodes";

    fn rounds(&self) -> u32 {
        u32::try_from(self.names().len()).unwrap_or(u32::MAX).saturating_mul(scene::STEPS)
    }

    async fn run_in(&self, seed: u64, dir: &Path) -> anyhow::Result<Report> {
        let binary = self.program.path()?;
        let stand_in = match self.node {
            NodeKind::Anvil => None,
            NodeKind::Hardhat => Some(edr::prepare(dir)?),
        };
        let mut report = Report::default();
        for name in self.names() {
            let profile = Profile::named(name)?;
            let place = dir.join(name);
            std::fs::create_dir_all(&place)?;
            // A scene that cannot go on panics; the other profiles are tried all the same.
            let run = AssertUnwindSafe(scene::run(profile, seed, (binary.clone(), stand_in.clone()), &place))
                .catch_unwind();
            match run.await {
                Ok(of) => report.add(counted(name, of)),
                Err(panic) => report.broken.push(format!("{name}: {}", said(&*panic))),
            }
        }
        Ok(report)
    }
}

/// What became of the orders on a profile's node, and what its endpoints have refused.
#[derive(Debug, Default)]
struct Outcome {
    orders: BTreeMap<String, u64>,
    refused: BTreeMap<&'static str, u64>,
    broken: Vec<String>,
}

fn counted(name: &str, Outcome { orders, refused, broken }: Outcome) -> Report {
    let mut report = Report::default();
    report.kind("profiles", name, 1);
    orders.iter().for_each(|(end, count)| report.kind("orders", end, *count));
    refused.iter().for_each(|(reason, count)| report.kind("refused", reason, *count));
    let list = |counts: Vec<String>| counts.join(", ");
    let ended = list(orders.iter().map(|(end, count)| format!("{count} {end}")).collect());
    let by_node = list(refused.iter().map(|(reason, count)| format!("{reason} {count}")).collect());
    report.list("lines", format!("{name}: {ended}; the node has refused: {by_node}").into());
    report.broken = broken.into_iter().map(|line| format!("{name}: {line}")).collect();
    report
}

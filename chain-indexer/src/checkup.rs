//! Whether a chain is as the configuration says: endpoints, clock, contracts, roles, tokens, funds and pools.
//!
//! What contradicts the configuration ends `dvp serve` before it takes an order; what is missing is logged, and an
//! endpoint that does not answer holds nothing up.
//!
//! Kept by `chain-indexer/tests/it/checkup.rs::a_configuration_of_another_chain_or_token_is_a_contradiction`.

mod code;
mod contracts;
mod endpoints;
mod limits;
mod money;
mod pools;

pub use limits::probe;

use std::fmt;

use alloy::primitives::Address;
use alloy::transports::TransportError;
use dvp_core::liquidity::PoolKind;
use futures_util::future::join_all;

use crate::ChainConfig;
use crate::deploy::Deployment;

/// What the service's configuration expects of a chain, beside its [`ChainConfig`].
#[derive(Debug, Clone, Default)]
pub struct Expected {
    pub relayers: Vec<Address>,
    /// Wallets that locked funds are released to.
    pub receivers: Vec<Address>,
    pub tokens: Vec<ExpectedToken>,
    /// Wallets whose allowances pay outputs.
    pub payers: Vec<Payer>,
    pub pools: Vec<ExpectedPool>,
    /// Whether the contracts may be another version's.
    pub accept_other_code: bool,
    /// The escrows of earlier contracts in which something is open.
    pub ending: Vec<Address>,
}

impl Expected {
    /// The sets of contracts that are called: the one that takes new orders, and those in which something is open.
    fn called<'a>(&'a self, deployment: &'a Deployment) -> impl Iterator<Item = &'a Deployment> {
        let is_ending = |set: &&Deployment| self.ending.contains(&set.escrow);
        std::iter::once(deployment).chain(deployment.earlier.iter().filter(is_ending))
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExpectedToken {
    pub symbol: String,
    pub address: Address,
    pub decimals: u8,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Payer {
    pub wallet: Address,
    pub token: ExpectedToken,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExpectedPool {
    pub id: String,
    pub address: Address,
    pub kind: PoolKind,
    /// The tokens of the configured pairs of its chain.
    pub pairs: Vec<(Address, Address)>,
    /// The time that its average price is made over, in seconds.
    pub window_secs: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    pub about: &'static str,
    pub found: Result<String, Defect>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Defect {
    /// The configuration and the chain contradict each other: nothing may be settled like this.
    Contradiction(String),
    /// Some orders will fail or wait until it is put right, which needs no restart.
    Lack(String),
    Unanswered(String),
}

impl fmt::Display for Defect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Contradiction(text) | Self::Lack(text) => f.write_str(text),
            Self::Unanswered(error) => write!(f, "no answer: {error}"),
        }
    }
}

impl std::error::Error for Defect {}

impl Defect {
    /// The same, with what it is about before it.
    fn of(self, subject: &str) -> Self {
        match self {
            Self::Contradiction(text) => Self::Contradiction(format!("{subject}: {text}")),
            Self::Lack(text) => Self::Lack(format!("{subject}: {text}")),
            Self::Unanswered(text) => Self::Unanswered(format!("{subject}: {text}")),
        }
    }
}

impl Finding {
    /// The same, with what it is about before it.
    fn of(self, subject: &str) -> Self {
        let found = self.found.map(|said| format!("{subject}: {said}")).map_err(|defect| defect.of(subject));
        Self { found, ..self }
    }
}

impl From<TransportError> for Defect {
    fn from(error: TransportError) -> Self {
        Self::Unanswered(error.to_string())
    }
}

/// All checks, in the order of this module's sentence. `now` is this machine's time in Unix seconds.
pub async fn check_up(config: &ChainConfig, expected: &Expected, now: u64) -> Vec<Finding> {
    let (mut findings, answering) = endpoints::check(config, now).await;
    let Some(provider) = answering else { return findings };
    let (contracts, money, pools) = tokio::join!(
        contracts::check(&provider, config, expected),
        money::check(&provider, config, expected),
        pools::check(&provider, expected)
    );
    findings.extend(contracts);
    findings.extend(money);
    findings.extend(pools);
    findings
}

/// One finding of several parts: the sentence when all are well, or every defect of the gravest kind.
async fn all(
    about: &'static str,
    well: String,
    parts: impl IntoIterator<Item = impl Future<Output = Result<(), Defect>>>,
) -> Finding {
    let defects: Vec<Defect> = join_all(parts).await.into_iter().filter_map(Result::err).collect();
    Finding { about, found: gravest(defects).map_or(Ok(well), Err) }
}

fn gravest(defects: Vec<Defect>) -> Option<Defect> {
    let (mut contradictions, mut lacks, mut unanswered) = (Vec::new(), Vec::new(), None);
    for defect in defects {
        match defect {
            Defect::Contradiction(text) => contradictions.push(text),
            Defect::Lack(text) => lacks.push(text),
            Defect::Unanswered(text) => unanswered = Some(text),
        }
    }
    match (contradictions.is_empty(), lacks.is_empty()) {
        (false, _) => Some(Defect::Contradiction(contradictions.join("; "))),
        (true, false) => Some(Defect::Lack(lacks.join("; "))),
        (true, true) => unanswered.map(Defect::Unanswered),
    }
}

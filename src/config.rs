//! The service's configuration: one TOML file.
//!
//! Unknown keys are refused, and errors name the key. A secret is never in the file: it is
//! `env:NAME` or `file:PATH`. [`Config::parse`] is the last place that checks rules across keys.

pub(crate) mod cell;
pub(crate) mod chain;
mod cool_down;
pub(crate) mod database;
pub(crate) mod gate;
pub(crate) mod listeners;
pub(crate) mod market;
pub(crate) mod rails;
pub(crate) mod screening;
pub(crate) mod signers;
pub(crate) mod value;

use std::collections::HashSet;
use std::path::Path;

use anyhow::{Context as _, ensure};
use dvp_core::operators::targets::Targets;
use dvp_core::secrets::{MasterKey, UNNAMED, Vault};
use dvp_domain::cell::CellId;
use dvp_domain::environment::Environment;
use dvp_store::database::Database;
use serde::Deserialize;
use sha2::{Digest as _, Sha256};

use self::cell::CellSection;
use self::chain::ChainSection;
use self::cool_down::CoolDownSection;
use self::database::DatabaseSection;
use self::listeners::{
    ApiSection, ConsoleSection, DeskSection, FixSection, LogSection, MetricsSection, OfframpKind,
    RailsSection, RetentionSection, SettlementSection, TracesSection, WebhooksSection,
};
use self::market::{AssetSection, LiquiditySection, PairSection};
pub(crate) use self::rails::BankSection;
use self::screening::ScreeningSection;
use self::value::Secret;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Config {
    /// Stamped into the database by the first `dvp migrate`.
    pub environment: Environment,
    /// The roles of this process.
    #[serde(default = "every_role")]
    pub roles: Vec<Role>,
    /// The cell that this deployment is, of several.
    pub cell: Option<CellSection>,
    pub database: DatabaseSection,
    pub secrets: SecretsSection,
    pub api: Option<ApiSection>,
    pub fix: Option<FixSection>,
    pub console: Option<ConsoleSection>,
    #[serde(default)]
    pub metrics: MetricsSection,
    #[serde(default)]
    pub log: LogSection,
    #[serde(default)]
    pub traces: TracesSection,
    #[serde(default)]
    pub webhooks: WebhooksSection,
    #[serde(default)]
    pub retention: RetentionSection,
    #[serde(default)]
    pub settlement: SettlementSection,
    pub rails: Option<RailsSection>,
    pub bank: Option<BankSection>,
    pub desk: Option<DeskSection>,
    #[serde(default)]
    pub chains: Vec<ChainSection>,
    #[serde(default)]
    pub assets: Vec<AssetSection>,
    #[serde(default)]
    pub pairs: Vec<PairSection>,
    #[serde(default)]
    pub liquidity: LiquiditySection,
    #[serde(default)]
    pub screening: ScreeningSection,
    #[serde(default)]
    pub cool_down: CoolDownSection,
    /// Of what every process must have alike ([`digest_of`]).
    #[serde(skip)]
    digest: String,
}

/// The sections that decide what an order gets: every process must have them alike.
const SHARED: [&str; 13] = [
    "environment",
    "cell",
    "settlement",
    "rails",
    "bank",
    "desk",
    "chains",
    "assets",
    "pairs",
    "liquidity",
    "screening",
    "cool_down",
    "retention",
];
/// What may differ in them: where a process finds the chain, its keys and its files.
const OWN: [&str; 9] = [
    "rpc_urls",
    "ws_url",
    "deployment",
    "relayer_keys",
    "remote_signers",
    "aws_kms_signers",
    "gcp_kms_signers",
    "folder",
    "list",
];

/// The SHA-256 of the shared sections, whatever their order and layout.
fn digest_of(text: &str) -> anyhow::Result<String> {
    let mut all: toml::Table = toml::from_str(text)?;
    all.retain(|name, _| SHARED.contains(&name));
    for value in all.iter_mut().map(|(_, value)| value) {
        let tables: &mut [toml::Value] = match value {
            toml::Value::Array(values) => values,
            one => std::slice::from_mut(one),
        };
        for table in tables.iter_mut().filter_map(toml::Value::as_table_mut) {
            table.retain(|name, _| !OWN.contains(&name));
        }
    }
    Ok(hex::encode(Sha256::digest(serde_json::to_vec(&all)?)))
}

/// A part of the service. Several processes may have the same one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Role {
    /// REST.
    Api,
    /// FIX.
    Fix,
    /// Follows the chains and sends transactions.
    Indexer,
    /// Settles, delivers webhooks, works the older surface's orders.
    Worker,
    /// Pages for operators.
    Console,
}

impl Role {
    pub(crate) const ALL: [Self; 5] = [Self::Api, Self::Fix, Self::Indexer, Self::Worker, Self::Console];

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Api => "api",
            Self::Fix => "fix",
            Self::Indexer => "indexer",
            Self::Worker => "worker",
            Self::Console => "console",
        }
    }
}

fn every_role() -> Vec<Role> {
    Role::ALL.to_vec()
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SecretsSection {
    /// 64 hex digits. Everything derived and sealed hangs on it.
    pub master_key: Option<Secret>,
    /// In its place: several, of which the first makes everything new.
    #[serde(default)]
    pub master_keys: Vec<MasterKeySection>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct MasterKeySection {
    /// Sealed values name their key by this id.
    pub id: String,
    /// 64 hex digits.
    pub key: Secret,
}

impl Config {
    pub(crate) fn read(path: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
        Self::parse(&text).with_context(|| path.display().to_string())
    }

    pub(crate) fn parse(text: &str) -> anyhow::Result<Self> {
        let mut config: Self = toml::from_str(text).map_err(|error| parse_error(text, &error))?;
        config.digest = digest_of(text)?;
        // The console is optional: a configuration without roles has it when it has its section.
        if config.roles == Role::ALL && config.console.is_none() {
            config.roles.retain(|role| *role != Role::Console);
        }
        if let Some(console) = &config.console {
            console.check()?;
        }
        ensure!(!config.roles.is_empty(), "roles names none");
        ensure!(
            config.secrets.master_key.is_some() == config.secrets.master_keys.is_empty(),
            "secrets has either master_key or master_keys"
        );
        let sends = config.roles.contains(&Role::Indexer);
        let relayers = config.chains.iter().map(chain::ChainSection::relayers).sum();
        config.database.check(if sends { relayers } else { 0 })?;
        chain::check_all(&config.chains)?;
        let chains: HashSet<&str> = config.chains.iter().map(|chain| chain.name.as_str()).collect();
        let coins: HashSet<&str> = config.chains.iter().filter_map(|chain| chain.coin.as_deref()).collect();
        market::check(&config.assets, &config.pairs, &config.liquidity, &chains, &coins)?;
        chain::check_gates(&config.chains, &config.assets)?;
        if let Some(forward) = config.fix.as_ref().and_then(|fix| fix.forward.as_ref()) {
            forward.check()?;
        }
        if let Some(bank) = &config.bank {
            bank.check()?;
            config.check_payable(bank)?;
        }
        if let Some(desk) = &config.desk {
            desk.check()?;
        }
        config.retention.ages()?;
        config.cool_down.rules()?;
        if let Some(rails) = &config.rails {
            config.settlement.windows(rails.payout.time())?;
            rails.offramp_calls.check("rails.offramp_calls")?;
            rails.payout_calls.check("rails.payout_calls")?;
            ensure!(
                rails.offramp != OfframpKind::Http || config.desk.is_some(),
                "rails.offramp = \"http\" needs the section [desk]"
            );
        }
        if config.environment.is_live() {
            config.check_live()?;
        }
        Ok(config)
    }

    /// Checks that the bank has an account in every currency that orders may receive.
    fn check_payable(&self, bank: &BankSection) -> anyhow::Result<()> {
        if self.rails.as_ref().is_none_or(|rails| rails.payout != listeners::PayoutKind::BankFiles) {
            return Ok(());
        }
        for (n, pair) in self.pairs.iter().enumerate() {
            let asset = self.assets.iter().find(|asset| asset.symbol == pair.quote);
            let currency = asset.and_then(|asset| asset.currency.as_ref());
            let is_paid =
                |currency: &String| bank.accounts.iter().any(|account| account.currency == *currency);
            ensure!(
                currency.is_none_or(is_paid),
                "pairs[{n}].quote: bank.accounts has no account to pay {} from",
                pair.quote
            );
        }
        Ok(())
    }

    /// Checks that a live deployment has no simulated rails and no access to private networks.
    fn check_live(&self) -> anyhow::Result<()> {
        #[cfg(feature = "sandbox")]
        if let Some(rails) = &self.rails {
            let refused = "\"simulated\" moves no money; environment = \"live\" refuses it";
            ensure!(rails.offramp != OfframpKind::Simulated, "rails.offramp: {refused}");
            ensure!(rails.payout != listeners::PayoutKind::Simulated, "rails.payout: {refused}");
        }
        if let Some(console) = &self.console {
            ensure!(console.url.scheme() == "https", "console.url: environment = \"live\" needs https");
        }
        ensure!(!self.webhooks.allow_private, "webhooks.allow_private: environment = \"live\" refuses it");
        Ok(())
    }

    /// The digest of what every process must have alike.
    pub(crate) fn digest(&self) -> &str {
        &self.digest
    }

    pub(crate) fn cell(&self) -> Option<CellId> {
        self.cell.as_ref().map(|section| section.id)
    }

    /// The decimals of the assets.
    pub(crate) fn decimals<T: FromIterator<(String, u8)>>(&self) -> T {
        self.assets.iter().map(|asset| (asset.symbol.clone(), asset.exponent)).collect()
    }

    /// What operators' controls can be about.
    pub(crate) fn targets(&self) -> Targets {
        let liquidity = &self.liquidity;
        let own = liquidity.providers.iter().map(|one| &one.id);
        let external = liquidity.external.iter().map(|one| &one.provider_id);
        let pools = liquidity.pools.iter().map(|one| &one.provider_id);
        Targets::of_names(
            self.assets.iter().map(|asset| (asset.symbol.clone(), asset.chain.clone())).collect(),
            self.pairs.iter().map(|pair| format!("{}/{}", pair.base, pair.quote)).collect(),
            own.chain(external).chain(pools).cloned().collect(),
            self.chains.iter().map(|chain| chain.name.clone()).collect(),
        )
    }

    pub(crate) fn database(&self) -> anyhow::Result<Database> {
        self.database.database()
    }

    pub(crate) fn vault(&self) -> anyhow::Result<Vault> {
        let keys = match &self.secrets.master_key {
            Some(key) => {
                vec![MasterKey { id: UNNAMED.to_owned(), key: read_key(key, "secrets.master_key")? }]
            }
            None => {
                let read = |section: &MasterKeySection| {
                    let name = format!("secrets.master_keys {}", section.id);
                    Ok(MasterKey { id: section.id.clone(), key: read_key(&section.key, &name)? })
                };
                self.secrets.master_keys.iter().map(read).collect::<anyhow::Result<Vec<_>>>()?
            }
        };
        Vault::with_keys(keys).context("secrets")
    }
}

fn read_key(secret: &Secret, name: &str) -> anyhow::Result<[u8; 32]> {
    let text = secret.read().with_context(|| name.to_owned())?;
    let bytes = hex::decode(text).ok().and_then(|bytes| bytes.try_into().ok());
    bytes.with_context(|| format!("{name} is not 64 hex digits"))
}

/// The line and key of an error, without the value, which may be a misplaced secret.
fn parse_error(text: &str, error: &toml::de::Error) -> anyhow::Error {
    let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
    let number = before.lines().count().max(1) + usize::from(before.ends_with('\n'));
    let line = text.lines().nth(number - 1).unwrap_or_default();
    let key = line.split_once('=').map_or(line, |(key, _)| key).trim();
    anyhow::anyhow!("line {number}, {key}: {}", error.message())
}

// The example names the simulated rails.
#[cfg(all(test, feature = "sandbox"))]
mod tests;

//! `dvp doctor`: checks of the service's requirements, one line each.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use dvp_chain_indexer::ChainConfig;
use dvp_chain_indexer::checkup::{Expected, ExpectedToken, Finding, check_up, probe};
use dvp_chain_indexer::deploy::DeployedToken;
use dvp_chain_indexer::signing::Account;
use dvp_rails::iso20022::folder::Folder;
#[cfg(feature = "sandbox")]
use dvp_sandbox::embedded::tools::Finder;
use dvp_store::database::clock;
use dvp_store::database::health;
use dvp_store::orders::bank_folder;
use dvp_store::workers::processes;
use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::access::ServiceLocation;
use crate::chains;
use crate::checkup::{self, unix_secs};
use crate::cli::DoctorArgs;
use crate::config::chain::ChainSection;
use crate::config::{Config, Role};
use crate::output::print;
use crate::sandbox_dir::{self, text};

const PATIENCE: Duration = Duration::from_secs(5);

struct Check {
    name: &'static str,
    found: anyhow::Result<String>,
}

pub(crate) async fn run(args: DoctorArgs) -> anyhow::Result<ExitCode> {
    let checks = match (&args.dir, &args.config) {
        (None, None) => tokio::task::spawn_blocking(machine).await?,
        (dir, config) => service(&ServiceLocation::find(dir.as_deref(), config.as_deref())?).await,
    };
    let ok = checks.iter().all(|check| check.found.is_ok());
    let detail = |check: &Check| match &check.found {
        Ok(detail) => detail.clone(),
        Err(error) => format!("{error:#}"),
    };
    let views: Vec<Value> = checks
        .iter()
        .map(|check| json!({"name": check.name, "ok": check.found.is_ok(), "detail": detail(check)}))
        .collect();
    print(args.json, &json!({"ok": ok, "checks": views}), || {
        let mark = |check: &Check| if check.found.is_ok() { "ok     " } else { "MISSING" };
        checks.iter().map(|check| format!("{} {}: {}", mark(check), check.name, detail(check))).collect()
    })?;
    Ok(if ok { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A sandbox's requirements on this machine. Missing programs are fetched when possible.
#[cfg(feature = "sandbox")]
fn machine() -> Vec<Check> {
    let finder = Finder::machine();
    let postgres = finder.postgres(None, None);
    let anvil = finder.anvil();
    vec![
        Check {
            name: "PostgreSQL",
            found: postgres
                .map(|found| format!("{} in {}", found.version, found.bin.display()))
                .map_err(Into::into),
        },
        Check { name: "anvil", found: anvil.map(|found| found.display().to_string()).map_err(Into::into) },
    ]
}

#[cfg(not(feature = "sandbox"))]
fn machine() -> Vec<Check> {
    vec![Check { name: "sandbox", found: Err(anyhow::anyhow!(crate::NO_SANDBOX)) }]
}

async fn service(place: &ServiceLocation) -> Vec<Check> {
    let mut checks = vec![
        Check { name: "database", found: database(place).await },
        Check { name: "schema", found: schema(place).await },
        Check { name: "clock", found: clock(place).await },
        Check { name: "master key", found: master_key(place).await },
    ];
    match place {
        ServiceLocation::Sandbox { dir, ready } => {
            for one in sandbox_dir::chains(ready) {
                checks.extend(sandbox_chain(dir, ready, one).await);
            }
            checks.push(Check { name: "REST", found: rest(ready).await });
        }
        ServiceLocation::Configured(config) => {
            checks.push(Check { name: "deployment", found: deployment(config, place).await });
            checks.push(Check { name: "prices", found: prices(config, place).await });
            checks.push(Check {
                name: "screening",
                found: config.screening.screening().map(|_| "readable".to_owned()),
            });
            if let Some(bank) = &config.bank {
                checks.push(Check { name: "bank folder", found: bank_folder(place, &bank.folder).await });
            }
            for section in &config.chains {
                checks.extend(configured_chain(config, section, place).await);
            }
            checks.push(Check { name: "processes", found: processes(config, place).await });
            if config.roles.contains(&Role::Indexer) {
                for section in &config.chains {
                    checks.extend(signers(section).await);
                }
            }
        }
    }
    checks
}

async fn database(place: &ServiceLocation) -> anyhow::Result<String> {
    let mut conn = within(place.connect()).await?;
    let version = health::server_version(&mut conn).await?;
    Ok(format!("PostgreSQL {version}, {}", health::protection(&mut conn).await?))
}

/// How far the clocks of this machine and of the database may be apart.
const CLOCKS_APART: Duration = Duration::from_secs(2);

async fn clock(place: &ServiceLocation) -> anyhow::Result<String> {
    let mut conn = within(place.connect()).await?;
    let asked = clock::now().to_utc();
    let there = health::clock(&mut conn).await?;
    // It was read at some moment between the two.
    let here = asked + (clock::now().to_utc() - asked) / 2;
    let apart = (there - here).abs();
    let said = format!("{} ms apart from the database's", apart.num_milliseconds());
    ensure!(
        apart.to_std()? <= CLOCKS_APART,
        "{said}: deadlines and signatures would be wrong; run NTP on both"
    );
    Ok(said)
}

/// The bank's folder carries its id, seen from here.
async fn bank_folder(place: &ServiceLocation, folder: &Path) -> anyhow::Result<String> {
    let mut conn = within(place.connect()).await?;
    let id = bank_folder::find_id(&mut conn).await?;
    Folder::at(folder, id).verify().await?;
    Ok(format!("{} carries its id", folder.display()))
}

/// What `dvp serve` compares before it starts.
async fn deployment(config: &Config, place: &ServiceLocation) -> anyhow::Result<String> {
    checkup::database(config, &mut within(place.connect()).await?).await
}

/// Every pair has a price from what is configured.
async fn prices(config: &Config, place: &ServiceLocation) -> anyhow::Result<String> {
    let without = within(crate::serve::pairs_without_price(config, place.vault()?)).await?;
    ensure!(
        without.is_empty(),
        "no price of {}: their sources do not answer or disagree",
        without.join(", ")
    );
    Ok(format!("{} pairs have one", config.pairs.len()))
}

/// Every process that runs has the configuration that is looked at.
async fn processes(config: &Config, place: &ServiceLocation) -> anyhow::Result<String> {
    let mut conn = within(place.connect()).await?;
    let running = processes::list(&mut conn).await?;
    let running: Vec<_> = running.into_iter().filter(|process| !process.is_silent).collect();
    let other = running.iter().filter(|process| process.configuration != config.digest());
    let other: Vec<String> = other
        .map(|process| {
            format!("{} on {} since {}", process.roles.join(" "), process.host, process.started_at)
        })
        .collect();
    ensure!(
        other.is_empty(),
        "these run with another configuration than this one (assets, pairs, prices, rails, chains, times): {}; start \
         them again with it",
        other.join(", ")
    );
    Ok(format!("{} run, all with this configuration", running.len()))
}

async fn schema(place: &ServiceLocation) -> anyhow::Result<String> {
    let mut conn = within(place.connect()).await?;
    let schema = health::schema(&mut conn).await?;
    match schema.complaint() {
        Some(complaint) => bail!("{complaint}"),
        None => Ok(format!("version {}", schema.newest.unwrap_or_default())),
    }
}

async fn master_key(place: &ServiceLocation) -> anyhow::Result<String> {
    let vault = place.vault()?;
    let mut conn = within(place.connect()).await?;
    match health::any_sealed_secret(&mut conn).await? {
        Some((key_id, sealed)) => {
            vault.open(&key_id, &sealed).with_context(|| format!("the secret of {key_id}"))?;
            Ok(format!("opens the secret of {key_id}"))
        }
        None => Ok("well-formed; nothing is sealed yet".to_owned()),
    }
}

/// A chain of a sandbox has what the sandbox deployed.
async fn sandbox_chain(dir: &Path, ready: &Value, chain: &Value) -> Vec<Check> {
    let config = match chains::of_sandbox(dir, ready, chain) {
        Ok(config) => config,
        Err(error) => return vec![Check { name: "chain", found: Err(error) }],
    };
    let token = |token: &DeployedToken| ExpectedToken {
        symbol: token.symbol.clone(),
        address: token.address,
        decimals: token.decimals,
    };
    let expected = Expected {
        relayers: config.deployment.relayers.clone(),
        tokens: config.deployment.tokens.iter().map(token).collect(),
        ..Expected::default()
    };
    chain_checks(&config, &expected).await
}

async fn configured_chain(config: &Config, section: &ChainSection, place: &ServiceLocation) -> Vec<Check> {
    let prepared = async {
        let chain = section.config(section.deployment()?, &config.assets)?;
        // The addresses of its accounts; a signer's key is not used here.
        let relayers = if config.roles.contains(&Role::Indexer) { section.accounts()? } else { Vec::new() };
        let relayers = relayers.iter().map(Account::address).collect();
        let mut conn = within(place.connect()).await?;
        let sets = checkup::contract_sets(&chain, &mut conn).await;
        Ok((chain, checkup::expected(config, section, relayers, &mut conn).await?, sets))
    };
    match prepared.await {
        Ok((chain, expected, sets)) => {
            let mut checks = chain_checks(&chain, &expected).await;
            checks.push(Check { name: "contract sets", found: sets });
            checks
        }
        Err(error) => vec![Check { name: "chain", found: Err(error) }],
    }
}

async fn chain_checks(config: &ChainConfig, expected: &Expected) -> Vec<Check> {
    let (mut findings, limits) = tokio::join!(check_up(config, expected, unix_secs()), probe(config));
    findings.extend(limits);
    let check = |Finding { about, found }: Finding| Check {
        name: about,
        found: match found {
            Ok(said) => Ok(format!("{}: {said}", config.name)),
            Err(defect) => Err(anyhow::anyhow!("{}: {defect}", config.name)),
        },
    };
    findings.into_iter().map(check).collect()
}

/// Each relayer account's signer answers, and signs for its address.
async fn signers(section: &ChainSection) -> Vec<Check> {
    let accounts = match section.accounts() {
        Ok(accounts) => accounts,
        Err(error) => return vec![Check { name: "signer", found: Err(error) }],
    };
    let check = async |account: &Account| {
        let named = || format!("{account:?} of {}", section.name);
        let found = account.check().await.with_context(named).map(|()| named());
        Check { name: "signer", found }
    };
    join_all(accounts.iter().map(check)).await
}

async fn rest(ready: &Value) -> anyhow::Result<String> {
    let url = text(ready, "/http")?;
    let address = url.strip_prefix("http://").with_context(|| format!("{url} is not http"))?;
    let status = within(async {
        let mut socket = TcpStream::connect(address).await?;
        socket.write_all(b"GET /healthz HTTP/1.1\r\nhost: dvp\r\nconnection: close\r\n\r\n").await?;
        let mut answer = String::new();
        socket.read_to_string(&mut answer).await?;
        Ok(answer.split_whitespace().nth(1).unwrap_or_default().to_owned())
    });
    let status = status.await?;
    ensure!(status == "200", "{url}/healthz answers {status}");
    Ok(url.to_owned())
}

async fn within<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    tokio::time::timeout(PATIENCE, work).await.context("no answer in time")?
}

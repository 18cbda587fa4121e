//! `dvp doctor`: checks of the service's requirements, one line each.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use dvp_chain_indexer::rpc;
use dvp_chain_indexer::signing::Account;
use dvp_domain::chain::BlockNumber;
#[cfg(feature = "sandbox")]
use dvp_sandbox::embedded::tools::Finder;
use dvp_store::database::health;
use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::access::ServiceLocation;
use crate::cli::DoctorArgs;
use crate::config::Role;
use crate::config::chain::ChainSection;
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
        Check { name: "master key", found: master_key(place).await },
    ];
    match place {
        ServiceLocation::Sandbox { ready, .. } => {
            for one in sandbox_dir::chains(ready) {
                checks.push(Check { name: "chain", found: chain(one).await });
            }
            checks.push(Check { name: "REST", found: rest(ready).await });
        }
        ServiceLocation::Configured(config) => {
            for section in &config.chains {
                checks.push(Check { name: "chain", found: configured_chain(section).await });
            }
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

async fn chain(chain: &Value) -> anyhow::Result<String> {
    let (name, provider) = (text(chain, "/name")?, rpc::connect(text(chain, "/rpcUrl")?)?);
    let head = within(async { Ok(rpc::head(&provider).await?) }).await.context(name.to_owned())?;
    Ok(format!("{name} at block {}", head.number))
}

/// Every endpoint answers, and there is a record of the contracts.
async fn configured_chain(section: &ChainSection) -> anyhow::Result<String> {
    section.deployment()?;
    let mut newest = BlockNumber::FIRST;
    let urls = section.rpc_urls()?;
    for (n, url) in urls.iter().enumerate() {
        // A URL may hold a secret, and so may an error that quotes it.
        let silent = || format!("rpc_urls[{n}] of {} does not answer", section.name);
        let provider = rpc::connect(url).ok().with_context(silent)?;
        let head = within(async { Ok(rpc::head(&provider).await?) }).await.ok().with_context(silent)?;
        newest = newest.max(head.number);
    }
    Ok(format!("{} at block {newest}, endpoints: {}", section.name, urls.len()))
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

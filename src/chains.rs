//! Which chains a command is about: a sandbox's own, or one that is named by its node and its contracts' record.

use std::path::Path;

use anyhow::{Context as _, bail};
use dvp_chain_indexer::ChainConfig;
use dvp_chain_indexer::deploy::Deployment;
use dvp_domain::address::{Address, OwnContracts};

use crate::access::ServiceLocation;
use crate::cli::ChainPlace;
use crate::config::Config;
use crate::sandbox_dir;
use crate::sandbox_dir::text;
use serde_json::Value;

/// The service's chain as the indexer reads it.
pub(crate) fn find(args: &ChainPlace, place: &ServiceLocation) -> anyhow::Result<ChainConfig> {
    if let (Some(path), [url, further @ ..]) = (&args.deployment, args.rpc_url.as_slice()) {
        let record = std::fs::read(path).with_context(|| path.display().to_string())?;
        let deployment = serde_json::from_slice(&record).with_context(|| path.display().to_string())?;
        return Ok(named(url, further, deployment));
    }
    match place {
        ServiceLocation::Sandbox { dir, ready } => {
            let chains = sandbox_dir::chains(ready);
            let home = chains.first().context("sandbox.json has no chain")?;
            let chain = match &args.chain {
                None => home,
                Some(name) => (chains.iter())
                    .find(|chain| chain.get("name").and_then(Value::as_str) == Some(name))
                    .with_context(|| format!("the sandbox has no chain {name}"))?,
            };
            of_sandbox(dir, ready, chain)
        }
        ServiceLocation::Configured(config) => {
            let section = match (&args.chain, config.chains.as_slice()) {
                (None, [only]) => only,
                (None, []) => bail!("the configuration has no chain; give --rpc-url and --deployment"),
                (None, _) => bail!("the configuration has several chains; give --chain"),
                (Some(name), chains) => chains
                    .iter()
                    .find(|chain| chain.name == *name)
                    .with_context(|| format!("the configuration has no chain {name}"))?,
            };
            section.config(section.deployment()?, &config.assets)
        }
    }
}

/// All of the service's chains.
pub(crate) fn all(place: &ServiceLocation) -> anyhow::Result<Vec<ChainConfig>> {
    match place {
        ServiceLocation::Sandbox { dir, ready } => {
            sandbox_dir::chains(ready).iter().map(|chain| of_sandbox(dir, ready, chain)).collect()
        }
        ServiceLocation::Configured(config) => {
            let chains = config.chains.iter();
            chains.map(|section| section.config(section.deployment()?, &config.assets)).collect()
        }
    }
}

/// A chain of a sandbox, from the ready file.
pub(crate) fn of_sandbox(dir: &Path, ready: &Value, chain: &Value) -> anyhow::Result<ChainConfig> {
    let name = text(chain, "/name")?.to_owned();
    // A further chain has a directory of its own.
    let is_home = sandbox_dir::chains(ready).first() == Some(chain);
    let place = if is_home { dir.to_owned() } else { dir.join(&name) };
    let deployment = sandbox_dir::read_deployment(&place)?;
    Ok(ChainConfig { name, ..ChainConfig::development(text(chain, "/rpcUrl")?, deployment) })
}

/// A chain of its own: finality is the node's word.
fn named(url: &str, further: &[String], deployment: Deployment) -> ChainConfig {
    let name = format!("chain {}", deployment.chain_id);
    ChainConfig { further_rpc_urls: further.to_vec(), ..ChainConfig::public(&name, url, deployment) }
}

/// The contracts that no wallet may be: those of the chains' deployments, and the configured tokens.
pub(crate) fn contracts(config: &Config) -> anyhow::Result<OwnContracts> {
    let mut contracts = OwnContracts::default();
    for chain in &config.chains {
        for (name, contract) in chain.deployment()?.contracts() {
            let name = format!("the {name} of {}", chain.name);
            contracts.insert(Address::from_bytes(contract.into_array()), name);
        }
    }
    for asset in &config.assets {
        let token = asset.address.as_ref().or(asset.wrapped.as_ref());
        if let Some(token) = token.and_then(|token| token.parse().ok()) {
            contracts.insert(token, format!("the token contract of {}", asset.symbol));
        }
    }
    Ok(contracts)
}

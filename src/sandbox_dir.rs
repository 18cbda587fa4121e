//! A sandbox's directory as commands read it, whichever build runs the sandbox.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use anyhow::Context as _;
use dvp_chain_indexer::deploy::Deployment;
use dvp_core::operators::targets::Targets;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// The ready file of a running sandbox.
pub(crate) const READY: &str = "sandbox.json";
/// The addresses of the contracts.
pub(crate) const DEPLOYMENT: &str = "deployment.json";
pub(crate) const SECRETS: &str = "secrets.json";

/// Reads a JSON file. `None` when it is not there.
pub(crate) fn read<T: DeserializeOwned>(dir: &Path, name: &str) -> anyhow::Result<Option<T>> {
    let path = dir.join(name);
    let text = match fs::read(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        read => read.with_context(|| path.display().to_string())?,
    };
    Ok(Some(serde_json::from_slice(&text).with_context(|| path.display().to_string())?))
}

/// The ready file of a running sandbox.
pub(crate) fn read_ready(dir: &Path) -> anyhow::Result<Value> {
    read(dir, READY)?.with_context(|| format!("no sandbox is running in {}", dir.display()))
}

/// The master key of the sandbox in a directory.
pub(crate) fn read_master_key(dir: &Path) -> anyhow::Result<[u8; 32]> {
    let secrets: Option<Value> = read(dir, SECRETS)?;
    let secrets = secrets.with_context(|| format!("{} was never a sandbox's directory", dir.display()))?;
    master_key(text(&secrets, "/master_key")?)
}

/// A master key as a sandbox writes it: 32 bytes in hex.
pub(crate) fn master_key(hex: &str) -> anyhow::Result<[u8; 32]> {
    let bytes = hex::decode(hex).context("master key")?;
    bytes.try_into().map_err(|_| anyhow::anyhow!("the master key is not 32 bytes"))
}

/// The contracts of the sandbox in a directory.
pub(crate) fn read_deployment(dir: &Path) -> anyhow::Result<Deployment> {
    read(dir, DEPLOYMENT)?.with_context(|| format!("{} has no {DEPLOYMENT}", dir.display()))
}

/// The chains of a ready file, the home chain first.
pub(crate) fn chains(ready: &Value) -> &[Value] {
    ready.get("chains").and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// The assets of a ready file, with their decimals.
pub(crate) fn assets(ready: &Value) -> HashMap<String, u8> {
    let listed = ready.get("assets").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let asset = |one: &Value| {
        let decimals =
            one.get("decimals").and_then(Value::as_u64).and_then(|count| u8::try_from(count).ok())?;
        Some((one.get("symbol")?.as_str()?.to_owned(), decimals))
    };
    listed.iter().filter_map(asset).collect()
}

/// What operators' controls can be about in a sandbox.
pub(crate) fn targets(ready: &Value) -> Targets {
    let list = |value: &Value, name: &str| -> Vec<Value> {
        value.get(name).and_then(Value::as_array).cloned().unwrap_or_default()
    };
    let texts = |values: Vec<Value>| -> Vec<String> {
        values.iter().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let name = |value: &Value, name: &str| value.get(name).and_then(Value::as_str).map(str::to_owned);
    let mut assets: Vec<(String, Option<String>)> = Vec::new();
    for chain in chains(ready) {
        let on = name(chain, "name");
        let coin = chain.get("coin").and_then(|coin| name(coin, "asset"));
        let tokens = list(chain, "tokens").into_iter().filter_map(|token| name(&token, "asset"));
        assets.extend(tokens.chain(coin).map(|asset| (asset, on.clone())));
    }
    let fiat = list(ready, "assets").into_iter().filter_map(|asset| name(&asset, "symbol"));
    let fiat: Vec<String> = fiat.filter(|symbol| !assets.iter().any(|(asset, _)| asset == symbol)).collect();
    assets.extend(fiat.into_iter().map(|symbol| (symbol, None)));
    let chains = chains(ready).iter().filter_map(|chain| name(chain, "name")).collect();
    Targets::of_names(assets, texts(list(ready, "pairs")), texts(list(ready, "providers")), chains)
}

/// A text of the ready file, by JSON pointer.
pub(crate) fn text<'a>(ready: &'a Value, pointer: &str) -> anyhow::Result<&'a str> {
    ready
        .pointer(pointer)
        .and_then(Value::as_str)
        .with_context(|| format!("sandbox.json has no text at {pointer}"))
}

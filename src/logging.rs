//! Log lines on standard error; `RUST_LOG` chooses which. Colours are for terminals, and for those without `NO_COLOR`.

use std::io::IsTerminal as _;

use anyhow::anyhow;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// Our own crates at info, everybody else's at warn.
const DEFAULT: &str = "warn,dvp=info,dvp_api=info,dvp_chain_indexer=info,dvp_core=info,dvp_fix_gateway=info";

pub(crate) fn start() -> anyhow::Result<()> {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(DEFAULT));
    let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let colours = std::io::stderr().is_terminal() && !plain;
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_ansi(colours);
    let started = tracing_subscriber::registry().with(filter).with(lines).try_init();
    started.map_err(|error| anyhow!("logging: {error}"))
}

//! Log lines on standard error, as text or JSON; `RUST_LOG` chooses which. Colours are for terminals, and for those
//! without `NO_COLOR`.

mod json;

use std::io::IsTerminal as _;

use anyhow::anyhow;
use dvp_core::trace::SPANS;
use serde::Deserialize;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::layer::{Layer as _, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

use self::json::JsonLines;
use crate::traces::SpanRecorder;

/// Our own crates at info, everybody else's at warn.
const DEFAULT: &str = "warn,dvp=info,dvp_api=info,dvp_chain_indexer=info,dvp_core=info,dvp_fix_gateway=info";

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line, for programs.
    Json,
}

pub(crate) fn start(format: LogFormat, spans: Option<SpanRecorder>) -> anyhow::Result<()> {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(DEFAULT));
    let filter = match &spans {
        Some(_) => filter.add_directive(format!("{SPANS}=debug").parse()?),
        None => filter,
    };
    let lines = match format {
        LogFormat::Text => {
            let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
            let colours = std::io::stderr().is_terminal() && !plain;
            tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_ansi(colours).boxed()
        }
        LogFormat::Json => JsonLines(std::io::stderr).boxed(),
    };
    let started = tracing_subscriber::registry().with(filter).with(lines).with(spans).try_init();
    started.map_err(|error| anyhow!("logging: {error}"))
}

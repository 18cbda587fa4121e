//! Arguments that several commands have, and those of the service itself.

mod secret;

use std::net::SocketAddr;
use std::path::PathBuf;

use chrono::{DateTime, NaiveDate, NaiveTime, Utc};
use clap::Args;
use dvp_core::writer::ORDER_PLACES;
use dvp_domain::screening::ScreeningResult;

use crate::config::Role;

pub(crate) use self::secret::GivenSecret;

#[derive(Debug, Args)]
pub(crate) struct SandboxArgs {
    /// Where the data lives.
    #[arg(long, value_name = "DIR", default_value = ".dvp")]
    pub dir: PathBuf,
    /// Where REST listens; port 0 takes any free port.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8080")]
    pub http: SocketAddr,
    /// Where FIX listens; port 0 takes any free port.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:9880")]
    pub fix: SocketAddr,
    /// Where FIX listens with TLS, if anywhere, with a certificate of the sandbox's own authority.
    #[arg(long, value_name = "ADDR")]
    pub fix_tls: Option<SocketAddr>,
    /// Where the operations console listens [default: 127.0.0.1:8081, or any free port when that one is taken].
    #[arg(long, value_name = "ADDR")]
    pub console: Option<SocketAddr>,
    /// Pay out through ISO 20022 files in DIR/bank, answered by a simulated bank.
    #[arg(long)]
    pub bank_files: bool,
    /// Convert by the desk at this URL in place of the simulated one; its token is `sandbox`.
    #[arg(long, value_name = "URL")]
    pub desk_url: Option<reqwest::Url>,
    /// Where Prometheus finds the service's figures; port 0 takes any free port.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    pub metrics: SocketAddr,
    /// For drills: the servers of a database to use in place of one of the sandbox's own; their commits wait for a
    /// standby.
    #[arg(long = "database-url", value_name = "URL")]
    pub database_urls: Vec<String>,
    /// For drills: use those servers although their commits do not wait for a standby.
    #[arg(long, requires = "database_urls")]
    pub asynchronous_database: bool,
    /// For drills: the only authority that those servers' certificates may be of.
    #[arg(long, value_name = "FILE", requires = "database_urls")]
    pub database_ca: Option<PathBuf>,
    /// For drills: the certificate that those servers are shown, and its key.
    #[arg(long, value_name = "FILE", requires = "database_key")]
    pub database_certificate: Option<PathBuf>,
    #[arg(long, value_name = "FILE", requires = "database_certificate")]
    pub database_key: Option<PathBuf>,
    /// The number of private chains. The second has another block time and finality, and tokens of its own.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=2))]
    pub chains: u8,
    /// For drills: put a node that fails, lags and loses between the service and the home chain, with this seed.
    #[arg(long, value_name = "SEED")]
    pub chain_faults: Option<u64>,
    /// A further endpoint of the first chain, such as one that answers wrongly; several are several of these.
    #[arg(long = "chain-endpoint", value_name = "URL")]
    pub chain_endpoints: Vec<reqwest::Url>,
    /// The places of orders in the writer's queue: few of them are soon taken. One partner can fill half.
    #[arg(long, value_name = "N", default_value_t = ORDER_PLACES)]
    pub order_places: usize,
    /// Sign the chain's transactions by the signers of this file, in place of a key of the sandbox's own. It has
    /// `pkcs11_signers` and `remote_signers` as a chain of a configuration has them.
    #[arg(long, value_name = "FILE")]
    pub signers: Option<PathBuf>,
    /// For tests: let webhooks lead to any address and port of this machine and its networks.
    #[arg(long)]
    pub webhook_allow_private: bool,
    /// Certificate authorities (PEM) that webhook endpoints may have, beside the system's.
    #[arg(long, value_name = "FILE")]
    pub webhook_ca: Option<PathBuf>,
    /// A list of names and accounts: an order of a party on it is held before its lock.
    #[arg(long, value_name = "FILE")]
    pub screening_list: Option<PathBuf>,
    /// A service that is queried for every order before its lock.
    #[arg(long, value_name = "URL")]
    pub screening_url: Option<String>,
    /// The result when that service does not answer: hold, fail or pass.
    #[arg(long, value_name = "RESULT", default_value = "hold", value_parser = screening_result)]
    pub screening_on_error: ScreeningResult,
}

fn screening_result(text: &str) -> Result<ScreeningResult, String> {
    ScreeningResult::parse(text)
        .ok_or_else(|| format!("one of {}", ScreeningResult::ALL.map(ScreeningResult::as_str).join(", ")))
}

/// A point in time: RFC 3339, or a date for its beginning (UTC).
pub(crate) fn time(text: &str) -> Result<DateTime<Utc>, String> {
    if let Ok(day) = text.parse::<NaiveDate>() {
        return Ok(day.and_time(NaiveTime::MIN).and_utc());
    }
    let time = DateTime::parse_from_rfc3339(text).map_err(|_| "YYYY-MM-DD, or RFC 3339".to_owned())?;
    Ok(time.to_utc())
}

#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// The service's configuration.
    #[arg(long, value_name = "FILE")]
    pub config: PathBuf,
    /// The roles of this process, overriding the configuration.
    #[arg(long, value_name = "ROLES", value_delimiter = ',')]
    pub roles: Vec<Role>,
}

/// Which service is meant, and how its answer is printed.
#[derive(Debug, Clone, Args)]
pub(crate) struct PlaceArgs {
    /// The directory of a running sandbox.
    #[arg(long, value_name = "DIR", conflicts_with = "config", required_unless_present = "config")]
    pub dir: Option<PathBuf>,
    /// The service's configuration.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// The directory of a running sandbox.
    #[arg(long, value_name = "DIR", conflicts_with = "config")]
    pub dir: Option<PathBuf>,
    /// The service's configuration.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// A service and one of its chains.
#[derive(Debug, Args)]
pub(crate) struct ChainPlace {
    #[command(flatten)]
    pub place: PlaceArgs,
    /// The chain's name in the configuration, if it has several.
    #[arg(long, value_name = "NAME", conflicts_with = "rpc_url")]
    pub chain: Option<String>,
    /// A node of the chain; several are several of these, the first one by preference.
    #[arg(long, value_name = "URL", requires = "deployment")]
    pub rpc_url: Vec<String>,
    /// The record that `dvp chain deploy` wrote.
    #[arg(long, value_name = "FILE", requires = "rpc_url")]
    pub deployment: Option<PathBuf>,
}

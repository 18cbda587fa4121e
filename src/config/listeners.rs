//! Where the service listens, and what it sends to.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::NonZeroU32;
use std::path::PathBuf;

use anyhow::{Context as _, anyhow, ensure};
use dvp_core::context::{PayoutTime, Windows, WindowsError};
use dvp_core::retention::{Ages, IDEMPOTENCY_LEAST};
use dvp_rails::http_desk::DeskConfig;
use dvp_rails::iso20022;
use dvp_rails::iso20022::instruction::Debtor;
use dvp_rails::iso20022::text::is_bic;
#[cfg(feature = "sandbox")]
use dvp_sandbox::rails as simulated;
use ipnet::IpNet;
use serde::{Deserialize, Deserializer, de};
use url::{Host, Url};

use super::value::{Secret, Span};

/// Locks, conversion and `fill` within an hour.
const FILL_SECS: u64 = 60 * 60;
/// Two operators have a day.
const MARGIN_SECS: u64 = 24 * 60 * 60;

/// REST.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ApiSection {
    pub listen: SocketAddr,
    /// Connections served at once.
    pub connections: Option<usize>,
    /// Connections of one source at once; more are closed.
    pub connections_per_source: Option<usize>,
    /// Requests worked on at once; more are answered with 503.
    pub in_flight: Option<usize>,
    /// Of these, one partner's when half of them are taken; more of the partner's are answered with 503.
    pub in_flight_per_partner: Option<usize>,
    /// Requests of one partner that wait for an event; more are answered with 429.
    pub waiting_per_partner: Option<usize>,
    /// Unknown API keys of one source a minute; more are answered with 429.
    pub unknown_keys_per_source: Option<u32>,
    /// Networks of proxies, whose X-Forwarded-For says who the client is.
    #[serde(default)]
    pub proxies: Vec<Network>,
}

/// FIX.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FixSection {
    pub listen: SocketAddr,
    /// Networks of load balancers, which must say with a PROXY header who is behind them.
    #[serde(default)]
    pub proxies: Vec<Network>,
    /// Networks that may connect; all of them when empty.
    #[serde(default)]
    pub allow: Vec<Network>,
    #[serde(default)]
    pub budget: FixBudgetSection,
    /// When a refused Logon is answered, on every listener.
    pub refusal_delay: Option<Span>,
    /// Answer a refused Logon with a Logout that gives no reason, on every listener; or with nothing.
    #[serde(default)]
    pub refusal_logout: bool,
    #[serde(default)]
    pub lockout: FixLockoutSection,
    pub tls: Option<FixTlsSection>,
}

/// A second listener of FIX, with TLS.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FixTlsSection {
    pub listen: SocketAddr,
    /// PEM files.
    pub certificate: PathBuf,
    pub key: PathBuf,
    /// Authorities of the clients' certificates, when clients shall show one.
    pub client_ca: Option<PathBuf>,
    /// Whether a client without a certificate is turned away.
    #[serde(default)]
    pub client_certificate_required: bool,
    /// As the plain listener's.
    #[serde(default)]
    pub proxies: Vec<Network>,
    #[serde(default)]
    pub allow: Vec<Network>,
    #[serde(default)]
    pub budget: FixBudgetSection,
}

/// What connections of one listener may cost before they have logged on.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FixBudgetSection {
    /// From the connection to the end of PROXY header and TLS handshake.
    pub handshake: Option<Span>,
    /// From the connection to a whole Logon.
    pub logon: Option<Span>,
    /// Connections at once that have not logged on, in all and from one address.
    pub unauthenticated: Option<NonZeroU32>,
    pub unauthenticated_per_source: Option<NonZeroU32>,
    /// Connections from one address.
    pub connections_per_minute: Option<NonZeroU32>,
}

/// How often one address may be wrong about one session.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FixLockoutSection {
    /// At once.
    pub attempts: Option<NonZeroU32>,
    /// After that.
    pub per_minute: Option<NonZeroU32>,
}

/// A network as `10.0.0.0/8`, or a single address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Network(pub IpNet);

impl<'de> Deserialize<'de> for Network {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let network = text.parse().or_else(|_| text.parse().map(|address: IpAddr| address.into()));
        network
            .map(Self)
            .map_err(|_| de::Error::custom(format!("{text:?} is no network such as \"10.0.0.0/8\"")))
    }
}

/// Figures for Prometheus, and whether the process lives and is ready.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct MetricsSection {
    pub listen: SocketAddr,
}

impl Default for MetricsSection {
    /// Any free port of this machine.
    fn default() -> Self {
        Self { listen: (Ipv4Addr::LOCALHOST, 0).into() }
    }
}

/// How long is kept what is not kept for ever.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RetentionSection {
    /// Answers under an idempotency key: a day at least, as the contract says.
    pub idempotency: Option<Span>,
    /// Quotes that have lapsed: a day at least.
    pub quotes: Option<Span>,
    /// Messages that a FIX session's peer has seen.
    pub fix_messages: Option<Span>,
    /// Notices to owners of webhook endpoints.
    pub notices: Option<Span>,
    /// Signed chain transactions that are final.
    pub transactions: Option<Span>,
}

impl RetentionSection {
    pub(crate) fn ages(&self) -> anyhow::Result<Ages> {
        let usual = Ages::default();
        let or = |given: &Option<Span>, usual| given.as_ref().map_or(usual, |span| span.0);
        let ages = Ages {
            idempotency: or(&self.idempotency, usual.idempotency),
            quotes: or(&self.quotes, usual.quotes),
            fix_messages: or(&self.fix_messages, usual.fix_messages),
            notices: or(&self.notices, usual.notices),
            transactions: or(&self.transactions, usual.transactions),
        };
        for (name, age) in [
            ("idempotency", ages.idempotency),
            ("quotes", ages.quotes),
            ("fix_messages", ages.fix_messages),
            ("notices", ages.notices),
            ("transactions", ages.transactions),
        ] {
            ensure!(age >= IDEMPOTENCY_LEAST, "retention.{name} must be at least 1d");
        }
        Ok(ages)
    }
}

/// Webhook delivery.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WebhooksSection {
    /// Certificate authorities (PEM) that endpoints may have, beside the system's.
    pub ca: Option<PathBuf>,
    /// A name that always has addresses: while it has none, names that do not resolve are our fault.
    pub probe_name: Option<String>,
    /// For tests: let webhooks lead to private addresses and any port.
    #[serde(default)]
    pub allow_private: bool,
}

/// How long funds stay locked. The contract's limits and the payout rail's calendar bound both.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SettlementSection {
    /// From the moment the lock is asked for; covers the lock, the conversion and `fill`.
    pub fill_window: Option<Span>,
    /// From the end of the slowest payout to the timelock.
    pub timelock_margin: Option<Span>,
}

impl SettlementSection {
    /// The windows of orders that are paid out by a rail that takes so long.
    pub(crate) fn windows(&self, payout: PayoutTime) -> anyhow::Result<Windows> {
        let or = |given: &Option<Span>, usual: u64| given.as_ref().map_or(usual, |span| span.0.as_secs());
        let windows = Windows {
            fill_secs: or(&self.fill_window, FILL_SECS),
            margin_secs: or(&self.timelock_margin, MARGIN_SECS),
            payout,
        };
        windows.check().map_err(|error| {
            let key = match error {
                WindowsError::FillTooShort | WindowsError::FillTooLong => "fill_window",
                WindowsError::MarginTooShort | WindowsError::MarginTooLong { .. } => "timelock_margin",
            };
            anyhow!("settlement.{key} {error}")
        })?;
        Ok(windows)
    }
}

/// Who converts and who pays.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RailsSection {
    pub offramp: OfframpKind,
    pub payout: PayoutKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum OfframpKind {
    /// The provider's own inventory, at the rate that was locked.
    Inventory,
    /// The desk of the section `[desk]`.
    Http,
    /// Moves no money: it keeps books of its own in the database and misbehaves on request.
    #[cfg(feature = "sandbox")]
    Simulated,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum PayoutKind {
    /// As the offramp's.
    #[cfg(feature = "sandbox")]
    Simulated,
    /// ISO 20022 files in the folder of the section `[bank]`.
    BankFiles,
}

impl PayoutKind {
    pub(crate) const fn time(self) -> PayoutTime {
        match self {
            #[cfg(feature = "sandbox")]
            Self::Simulated => simulated::PAYOUT_TIME,
            Self::BankFiles => iso20022::PAYOUT_TIME,
        }
    }
}

/// The desk that converts.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DeskSection {
    pub url: Url,
    /// Sent as `Authorization: Bearer`.
    pub token: Secret,
    /// PEM file of the authorities to trust; the machine's when not given.
    pub ca: Option<PathBuf>,
}

impl DeskSection {
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        let is_here = match self.url.host() {
            Some(Host::Domain(name)) => name == "localhost",
            Some(Host::Ipv4(address)) => address.is_loopback(),
            Some(Host::Ipv6(address)) => address.is_loopback(),
            None => false,
        };
        let is_protected = self.url.scheme() == "https" || is_here && self.url.scheme() == "http";
        ensure!(is_protected, "desk.url: {} is not https", self.url);
        Ok(())
    }

    pub(crate) fn config(&self) -> anyhow::Result<DeskConfig> {
        let authorities = self.ca.as_ref().map(std::fs::read).transpose().context("desk.ca")?;
        let token = self.token.read().context("desk.token")?;
        Ok(DeskConfig { url: self.url.clone(), token, authorities })
    }
}

/// The bank that pays out.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct BankSection {
    /// Shared with it; every process with the role worker must see the same.
    pub folder: PathBuf,
    /// What is paid from, one a currency.
    pub accounts: Vec<Debtor>,
}

impl BankSection {
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        ensure!(!self.accounts.is_empty(), "bank.accounts names none");
        for (n, account) in self.accounts.iter().enumerate() {
            let at = format!("bank.accounts[{n}]");
            let upper =
                |text: &str, length| text.len() == length && text.bytes().all(|b| b.is_ascii_uppercase());
            ensure!(upper(&account.currency, 3), "{at}.currency: {} is no ISO 4217 code", account.currency);
            ensure!(upper(&account.country, 2), "{at}.country: {} is no ISO 3166 code", account.country);
            ensure!(is_bic(&account.bic), "{at}.bic: {} is no BIC", account.bic);
            ensure!(!account.name.is_empty() && !account.account.is_empty(), "{at} needs name and account");
            let before = self.accounts.iter().take(n).any(|other| other.currency == account.currency);
            ensure!(!before, "{at}.currency: {} is there twice", account.currency);
        }
        Ok(())
    }
}

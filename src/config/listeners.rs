//! The service's listeners, and the settings of its clients.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::NonZeroU32;
use std::path::PathBuf;

use anyhow::{Context as _, anyhow, ensure};
use dvp_console::{ProviderSettings, SessionPolicy};
use dvp_core::context::{PayoutTime, Windows, WindowsError};
use dvp_core::operators::personal_data::AGE_LEAST;
use dvp_core::workflow::retention::{Ages, IDEMPOTENCY_LEAST};
use dvp_fix_gateway::ForwardConfig;
use dvp_rails::http_desk::DeskConfig;
use dvp_rails::iso20022;
#[cfg(feature = "sandbox")]
use dvp_sandbox::rails as simulated;
use ipnet::IpNet;
use serde::{Deserialize, Deserializer, de};
use url::Url;

use super::rails::RailCallsSection;
use super::value::{Endpoint, Secret, Span, protected};
use crate::logging::LogFormat;

/// Locks, conversion and `fill` within an hour.
const FILL_SECS: u64 = 60 * 60;
/// Two operators have a day.
const MARGIN_SECS: u64 = 24 * 60 * 60;
/// `settlement.payment_finality` if it is not set: hours are known of chains that prove their blocks to another.
const FINALITY_SECS: u64 = 4 * 60 * 60;

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
    /// Networks of proxies, whose X-Forwarded-For gives the client's address.
    #[serde(default)]
    pub proxies: Vec<Network>,
}

/// The operations console.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ConsoleSection {
    pub listen: SocketAddr,
    /// Where browsers find it: scheme, host and port, without a path.
    pub url: Url,
    /// Connections served at once.
    pub connections: Option<usize>,
    /// A session ends after this time without a request, and this long after its sign-in.
    pub idle: Option<Span>,
    pub session: Option<Span>,
    /// What moves money or changes limits needs an authentication within this time.
    pub step_up: Option<Span>,
    /// An identity provider, where operators can sign in.
    pub oidc: Option<OidcSection>,
    /// Networks of proxies, whose X-Forwarded-For gives the client's address.
    #[serde(default)]
    pub proxies: Vec<Network>,
}

/// An OpenID Connect provider.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct OidcSection {
    pub issuer: Url,
    pub client_id: String,
    pub client_secret: Secret,
}

impl ConsoleSection {
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        let is_web = matches!(self.url.scheme(), "http" | "https") && self.url.has_host();
        let is_bare = self.url.path() == "/" && self.url.query().is_none() && self.url.fragment().is_none();
        ensure!(is_web && is_bare, "console.url: http(s)://host, without a path");
        let SessionPolicy { idle, absolute, step_up } = self.sessions();
        ensure!(
            !idle.is_zero() && idle <= absolute,
            "console.idle is above zero and at most console.session"
        );
        ensure!(
            !step_up.is_zero() && step_up <= absolute,
            "console.step_up is above zero and at most console.session"
        );
        if let Some(oidc) = &self.oidc {
            ensure!(cfg!(feature = "oidc"), "console.oidc: this program was built without the feature oidc");
            protected("console.oidc.issuer", &oidc.issuer)?;
        }
        Ok(())
    }

    pub(crate) fn provider(&self) -> anyhow::Result<Option<ProviderSettings>> {
        let Some(OidcSection { issuer, client_id, client_secret }) = &self.oidc else { return Ok(None) };
        let client_secret = client_secret.read().context("console.oidc.client_secret")?;
        Ok(Some(ProviderSettings { issuer: issuer.clone(), client_id: client_id.clone(), client_secret }))
    }

    pub(crate) fn sessions(&self) -> SessionPolicy {
        let usual = SessionPolicy::default();
        SessionPolicy {
            idle: self.idle.map_or(usual.idle, |span| span.0),
            absolute: self.session.map_or(usual.absolute, |span| span.0),
            step_up: self.step_up.map_or(usual.step_up, |span| span.0),
        }
    }
}

/// FIX.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FixSection {
    pub listen: SocketAddr,
    /// Networks of load balancers, whose PROXY header must give the client's address.
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
    /// Whether messages are archived; they are unless this is false.
    pub archive: Option<bool>,
    /// Where the other processes of the service forward connections to this one.
    pub forward: Option<FixForwardSection>,
}

/// The listener for connections that other processes of the service forward.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FixForwardSection {
    pub listen: SocketAddr,
    /// `host:port` by which the other processes reach it, or the variable that has it.
    pub address: Option<Endpoint>,
}

impl FixForwardSection {
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        ensure!(
            self.address.is_some() || !self.listen.ip().is_unspecified(),
            "fix.forward.address is needed: other processes cannot connect to {}",
            self.listen
        );
        match &self.address {
            Some(Endpoint::Url(address)) => check_host_and_port(address),
            Some(Endpoint::Secret(_)) | None => Ok(()),
        }
    }

    pub(crate) fn config(&self) -> anyhow::Result<ForwardConfig> {
        let address = self.address.as_ref().map(Endpoint::read).transpose().context("fix.forward.address")?;
        address.as_deref().map_or(Ok(()), check_host_and_port)?;
        Ok(ForwardConfig { listen: self.listen, address })
    }
}

fn check_host_and_port(address: &str) -> anyhow::Result<()> {
    let port =
        address.rsplit_once(':').filter(|(host, _)| !host.is_empty()).map(|(_, port)| port.parse::<u16>());
    ensure!(matches!(port, Some(Ok(1..))), "fix.forward.address: {address:?} is no \"host:port\"");
    Ok(())
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

/// The limits on unauthenticated connections of a listener.
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

/// How log lines are written.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LogSection {
    #[serde(default)]
    pub format: LogFormat,
}

/// Where spans are sent.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TracesSection {
    pub endpoint: Option<Url>,
}

/// Retention periods.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RetentionSection {
    /// Answers under an idempotency key: a day at least, as the contract says.
    pub idempotency: Option<Span>,
    /// Quotes that have lapsed: a day at least.
    pub quotes: Option<Span>,
    /// Messages that a FIX session's peer has seen.
    pub fix_messages: Option<Span>,
    /// The archive of FIX messages.
    pub fix_archive: Option<Span>,
    /// Notices to owners of webhook endpoints.
    pub notices: Option<Span>,
    /// Signed chain transactions that are final.
    pub transactions: Option<Span>,
    /// What the chain side keeps of ended orders.
    pub chain: Option<Span>,
    /// Calls of rails, and messages to and from the bank.
    pub order_records: Option<Span>,
    /// Personal data of orders, from their end on; without it, it is kept.
    pub personal_data: Option<Span>,
}

impl RetentionSection {
    pub(crate) fn ages(&self) -> anyhow::Result<Ages> {
        let usual = Ages::default();
        let or = |given: &Option<Span>, usual| given.as_ref().map_or(usual, |span| span.0);
        let ages = Ages {
            idempotency: or(&self.idempotency, usual.idempotency),
            quotes: or(&self.quotes, usual.quotes),
            fix_messages: or(&self.fix_messages, usual.fix_messages),
            fix_archive: or(&self.fix_archive, usual.fix_archive),
            notices: or(&self.notices, usual.notices),
            transactions: or(&self.transactions, usual.transactions),
            chain: or(&self.chain, usual.chain),
            order_records: or(&self.order_records, usual.order_records),
            personal_data: self.personal_data.as_ref().map(|span| span.0),
        };
        for (name, age) in [
            ("idempotency", ages.idempotency),
            ("quotes", ages.quotes),
            ("fix_messages", ages.fix_messages),
            ("fix_archive", ages.fix_archive),
            ("notices", ages.notices),
            ("transactions", ages.transactions),
            ("chain", ages.chain),
            ("order_records", ages.order_records),
        ] {
            ensure!(age >= IDEMPOTENCY_LEAST, "retention.{name} must be at least 1d");
        }
        let is_early = ages.personal_data.is_some_and(|age| age < AGE_LEAST);
        ensure!(
            !is_early,
            "retention.personal_data must be at least 400d: a payment may be recalled for 13 months"
        );
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
    /// From the request for the lock; covers the lock, the conversion and `fill`.
    pub fill_window: Option<Span>,
    /// From the end of the slowest payout to the timelock.
    pub timelock_margin: Option<Span>,
    /// From the last moment of a payment on another chain until it is final there whether it was made.
    pub payment_finality: Option<Span>,
}

impl SettlementSection {
    /// The windows of orders paid out by a rail with this payout time.
    pub(crate) fn windows(&self, payout: PayoutTime) -> anyhow::Result<Windows> {
        let or = |given: &Option<Span>, usual: u64| given.as_ref().map_or(usual, |span| span.0.as_secs());
        let windows = Windows {
            fill_secs: or(&self.fill_window, FILL_SECS),
            margin_secs: or(&self.timelock_margin, MARGIN_SECS),
            payout,
            finality_secs: or(&self.payment_finality, FINALITY_SECS),
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

/// The rails of conversion and payout.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RailsSection {
    pub offramp: OfframpKind,
    pub payout: PayoutKind,
    #[serde(default)]
    pub offramp_calls: RailCallsSection,
    #[serde(default)]
    pub payout_calls: RailCallsSection,
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
        protected("desk.url", &self.url)
    }

    pub(crate) fn config(&self) -> anyhow::Result<DeskConfig> {
        let authorities = self.ca.as_ref().map(std::fs::read).transpose().context("desk.ca")?;
        let token = self.token.read().context("desk.token")?;
        Ok(DeskConfig { url: self.url.clone(), token, authorities })
    }
}

//! Where the service listens, and what it sends to.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::ensure;
use dvp_core::rails::iso20022::instruction::Debtor;
use dvp_core::rails::iso20022::text::is_bic;
use serde::Deserialize;

use super::value::Span;

/// REST.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ApiSection {
    pub listen: SocketAddr,
    /// Connections served at once.
    pub connections: Option<usize>,
    /// Requests worked on at once; more are answered with 503.
    pub in_flight: Option<usize>,
}

/// FIX.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FixSection {
    pub listen: SocketAddr,
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
}

/// Figures for Prometheus.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct MetricsSection {
    pub listen: SocketAddr,
}

/// Webhook delivery.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WebhooksSection {
    /// Certificate authorities (PEM) that endpoints may have, beside the system's.
    pub ca: Option<PathBuf>,
    /// For tests: let webhooks lead to private addresses and any port.
    #[serde(default)]
    pub allow_private: bool,
}

/// How long funds stay claimable, counted from the lock.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SettlementSection {
    /// After it anyone may cancel an unfilled settlement.
    pub fill_window: Span,
    /// After it the funds are refunded.
    pub timelock: Span,
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
    /// Moves no money: it keeps books of its own in the database and misbehaves on request.
    Simulated,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum PayoutKind {
    /// As the offramp's.
    Simulated,
    /// ISO 20022 files in the folder of the section `[bank]`.
    BankFiles,
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

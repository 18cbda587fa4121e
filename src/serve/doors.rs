//! What the configuration says about doors and workers, as the service takes it.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, ensure};
use dvp_api::delivery::DeliveryConfig;
use dvp_api::delivery::address::Reach;
use dvp_api::delivery::names::SystemNames;
use dvp_api::{Limits, WebhookRules};
use dvp_core::rails::Rail;
use dvp_core::rails::iso20022::BankFiles;
use dvp_core::rails::simulated::SimulatedRails;
use dvp_core::store::PgPool;
use dvp_fix_gateway::DoorConfig;
use dvp_fix_gateway::acceptor::{ClientCertificates, Tls, TlsFiles, TlsVersion};
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;

use crate::config::Config;
use crate::config::doors::{FixTlsSection, OfframpKind, PayoutKind};
use crate::service::{BankParts, FixParts, Rails, RestParts, WorkerParts};

pub(super) fn rest(config: &Config) -> anyhow::Result<RestParts> {
    let api = config.api.as_ref().context("the role api needs the section [api]")?;
    let usual = Limits::default();
    Ok(RestParts {
        addr: api.listen,
        limits: Limits {
            connections: api.connections.unwrap_or(usual.connections),
            in_flight: api.in_flight.unwrap_or(usual.in_flight),
            ..usual
        },
        webhook_rules: WebhookRules { reach: reach(config), names: Arc::new(SystemNames) },
    })
}

pub(super) fn fix(config: &Config) -> anyhow::Result<FixParts> {
    let fix = config.fix.as_ref().context("the role fix needs the section [fix]")?;
    let tls = match &fix.tls {
        Some(section) => Some((section.listen, fix_door(section).context("fix.tls")?)),
        None => None,
    };
    Ok(FixParts { addr: fix.listen, gateway: Default::default(), tls })
}

fn fix_door(section: &FixTlsSection) -> anyhow::Result<DoorConfig> {
    let clients = match (&section.client_ca, section.client_certificate_required) {
        (Some(authorities), true) => ClientCertificates::Required(authorities.clone()),
        (Some(authorities), false) => ClientCertificates::Optional(authorities.clone()),
        (None, false) => ClientCertificates::Ignored,
        (None, true) => anyhow::bail!("client_certificate_required needs client_ca"),
    };
    let files = TlsFiles {
        certificate: section.certificate.clone(),
        key: section.key.clone(),
        clients,
        oldest: TlsVersion::Tls12,
    };
    Ok(DoorConfig { tls: Some(Arc::new(Tls::load(files)?)), ..DoorConfig::default() })
}

pub(super) async fn worker(config: &Config, pool: &PgPool) -> anyhow::Result<WorkerParts> {
    let rails = config.rails.as_ref().context("the role worker needs the section [rails]")?;
    let simulated = || Arc::new(SimulatedRails::new(pool.clone()));
    let offramp: Arc<dyn Rail> = match rails.offramp {
        OfframpKind::Simulated => simulated(),
    };
    let (payout, bank): (Arc<dyn Rail>, _) = match rails.payout {
        PayoutKind::Simulated => (simulated(), None),
        PayoutKind::BankFiles => {
            let bank =
                config.bank.as_ref().context("rails.payout = \"bank_files\" needs the section [bank]")?;
            let files = BankFiles::open(pool.clone(), &bank.folder, bank.accounts.clone()).await;
            let files = files.with_context(|| format!("bank.folder {}", bank.folder.display()))?;
            (Arc::new(files.clone()), Some(BankParts { files, simulated: None }))
        }
    };
    let authorities = match &config.webhooks.ca {
        Some(path) => authorities(path).context("webhooks.ca")?,
        None => Vec::new(),
    };
    Ok(WorkerParts {
        rails: Rails { offramp, payout },
        bank,
        delivery: DeliveryConfig { reach: reach(config), authorities, ..DeliveryConfig::default() },
    })
}

fn reach(config: &Config) -> Reach {
    if config.webhooks.allow_private { Reach::Everything } else { Reach::Public }
}

/// Certificates of authorities, from a PEM file.
pub(crate) fn authorities(path: &Path) -> anyhow::Result<Vec<CertificateDer<'static>>> {
    let read = CertificateDer::pem_file_iter(path).with_context(|| path.display().to_string())?;
    let found: Vec<_> = read.collect::<Result<_, _>>().with_context(|| path.display().to_string())?;
    ensure!(!found.is_empty(), "{} holds no certificate", path.display());
    Ok(found)
}

//! From the configuration of listeners and workers to the service's own types.

use std::net::IpAddr;
use std::num::NonZeroU32;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, ensure};
use dvp_api::delivery::DeliveryConfig;
use dvp_api::delivery::address::Reach;
use dvp_api::delivery::names::SystemNames;
use dvp_api::{Limits, WebhookRules};
use dvp_console::ConsoleSettings;
use dvp_fix_gateway::sources::Budget;
use dvp_fix_gateway::tls::{ClientCertificates, Tls, TlsFiles, TlsVersion};
use dvp_fix_gateway::{GatewayConfig, ListenerConfig, Lockout, LogonRefusal};
use dvp_rails::Rail;
use dvp_rails::http_desk::HttpDesk;
use dvp_rails::inventory::Inventory;
use dvp_rails::iso20022::BankFiles;
#[cfg(feature = "sandbox")]
use dvp_sandbox::rails::SimulatedRails;
use dvp_store::PgPool;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tracing::warn;

use crate::config::listeners::{
    FixBudgetSection, FixForwardSection, FixTlsSection, Network, OfframpKind, PayoutKind,
};
use crate::config::{Config, Role};
use crate::service::{BankParts, ConsoleParts, FixParts, Rails, RestParts, WorkerParts};

pub(super) fn rest(config: &Config) -> anyhow::Result<RestParts> {
    let api = config.api.as_ref().context("the role api needs the section [api]")?;
    let usual = Limits::default();
    let in_flight = api.in_flight.unwrap_or(usual.in_flight);
    let share = (in_flight / 4).max(1);
    Ok(RestParts {
        addr: api.listen,
        limits: Limits {
            connections: api.connections.unwrap_or(usual.connections),
            connections_per_source: api.connections_per_source.unwrap_or(usual.connections_per_source),
            proxies: api.proxies.iter().map(|network| network.0).collect(),
            in_flight,
            in_flight_per_partner: api.in_flight_per_partner.unwrap_or(share),
            waiting_per_partner: api.waiting_per_partner.unwrap_or(usual.waiting_per_partner),
            unknown_keys_per_source: api.unknown_keys_per_source.unwrap_or(usual.unknown_keys_per_source),
            ..usual
        },
        webhook_rules: WebhookRules { reach: reach(config), names: Arc::new(SystemNames) },
        sandbox: None,
    })
}

pub(super) fn console(config: &Config) -> anyhow::Result<ConsoleParts> {
    let console = config.console.as_ref().context("the role console needs the section [console]")?;
    let settings = ConsoleSettings {
        origins: vec![console.url.clone()],
        environment: config.environment,
        decimals: config.decimals(),
        targets: config.targets(),
        proxies: console.proxies.iter().map(|network| network.0).collect(),
        sessions: console.sessions(),
        provider: console.provider()?,
        connections: console.connections.unwrap_or(ConsoleSettings::CONNECTIONS),
    };
    Ok(ConsoleParts { addr: console.listen, or_any_port: false, settings })
}

pub(super) fn fix(config: &Config) -> anyhow::Result<FixParts> {
    let fix = config.fix.as_ref().context("the role fix needs the section [fix]")?;
    let tls = match &fix.tls {
        Some(section) => Some((section.listen, tls_listener(section).context("fix.tls")?)),
        None => None,
    };
    let usual = GatewayConfig::default();
    let gateway = GatewayConfig {
        listener: listener(&fix.proxies, &fix.allow, &fix.budget),
        refusal_delay: fix.refusal_delay.map_or(usual.refusal_delay, |delay| delay.0),
        refusal: if fix.refusal_logout { LogonRefusal::Logout } else { LogonRefusal::Silent },
        lockout: Lockout {
            attempts: fix.lockout.attempts.map_or(usual.lockout.attempts, NonZeroU32::get),
            per_minute: fix.lockout.per_minute.map_or(usual.lockout.per_minute, NonZeroU32::get),
        },
        archives_messages: fix.archive.unwrap_or(usual.archives_messages),
        forward: fix.forward.as_ref().map(FixForwardSection::config).transpose()?,
        ..usual
    };
    Ok(FixParts { addr: fix.listen, gateway, tls })
}

fn listener(proxies: &[Network], allow: &[Network], budget: &FixBudgetSection) -> ListenerConfig {
    let networks = |list: &[Network]| list.iter().map(|network| network.0).collect();
    let usual = Budget::default();
    let unauthenticated_max = budget.unauthenticated.and_then(|limit| usize::try_from(limit.get()).ok());
    ListenerConfig {
        proxies: networks(proxies),
        allow: networks(allow),
        budget: Budget {
            handshake: budget.handshake.map_or(usual.handshake, |span| span.0),
            logon: budget.logon.map_or(usual.logon, |span| span.0),
            unauthenticated_max: unauthenticated_max.unwrap_or(usual.unauthenticated_max),
            unauthenticated_per_source_max: budget
                .unauthenticated_per_source
                .map_or(usual.unauthenticated_per_source_max, NonZeroU32::get),
            connections_per_minute: budget
                .connections_per_minute
                .map_or(usual.connections_per_minute, NonZeroU32::get),
            ..usual
        },
        ..ListenerConfig::default()
    }
}

fn tls_listener(section: &FixTlsSection) -> anyhow::Result<ListenerConfig> {
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
    let tls = Some(Arc::new(Tls::load(files)?));
    Ok(ListenerConfig { tls, ..listener(&section.proxies, &section.allow, &section.budget) })
}

pub(super) async fn worker(config: &Config, pool: &PgPool) -> anyhow::Result<WorkerParts> {
    let rails = config.rails.as_ref().context("the role worker needs the section [rails]")?;
    #[cfg(feature = "sandbox")]
    let simulated = || Arc::new(SimulatedRails::new(pool.clone()));
    let offramp: Arc<dyn Rail> = match rails.offramp {
        OfframpKind::Inventory => Arc::new(Inventory),
        OfframpKind::Http => {
            let desk = config.desk.as_ref().context("rails.offramp = \"http\" needs the section [desk]")?;
            Arc::new(HttpDesk::new(desk.config()?)?)
        }
        #[cfg(feature = "sandbox")]
        OfframpKind::Simulated => simulated(),
    };
    let (payout, bank): (Arc<dyn Rail>, _) = match rails.payout {
        #[cfg(feature = "sandbox")]
        PayoutKind::Simulated => (simulated(), None),
        PayoutKind::BankFiles => {
            let bank =
                config.bank.as_ref().context("rails.payout = \"bank_files\" needs the section [bank]")?;
            let files = BankFiles::open(pool.clone(), &bank.folder, bank.accounts.clone()).await;
            let files = files.with_context(|| format!("bank.folder {}", bank.folder.display()))?;
            let files = bank.paced(files);
            (Arc::new(files.clone()), Some(BankParts::of(files)))
        }
    };
    let authorities = match &config.webhooks.ca {
        Some(path) => authorities(path).context("webhooks.ca")?,
        None => Vec::new(),
    };
    let ages = config.retention.ages()?;
    let (offramp, payout) = (rails.offramp_calls.of(offramp), rails.payout_calls.of(payout));
    let books = bank.is_some().then(|| config.books_patience());
    let rails = Rails { offramp, payout };
    Ok(WorkerParts { rails, bank, books, delivery: delivery(config, authorities), ages })
}

fn delivery(config: &Config, authorities: Vec<CertificateDer<'static>>) -> DeliveryConfig {
    let usual = DeliveryConfig::default();
    let probe_name = config.webhooks.probe_name.clone().unwrap_or(usual.probe_name);
    DeliveryConfig { reach: reach(config), probe_name, authorities, ..DeliveryConfig::default() }
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

/// Warns about plain text listeners on public addresses.
pub(super) fn warn_of_plain_text(config: &Config) {
    let has = |role| config.roles.contains(&role);
    let rest = config.api.as_ref().filter(|_| has(Role::Api)).map(|api| ("api.listen", api.listen));
    let fix = config.fix.as_ref().filter(|_| has(Role::Fix)).map(|fix| ("fix.listen", fix.listen));
    let console = config.console.as_ref().filter(|_| has(Role::Console));
    let console = console.map(|console| ("console.listen", console.listen));
    for (setting, address) in rest.into_iter().chain(fix).chain(console) {
        if is_public(address.ip()) {
            warn!(
                setting,
                %address,
                "without TLS on an address that other networks may reach: listen on a private address behind a \
                 proxy that speaks TLS"
            );
        }
    }
}

/// Neither this machine's own nor of a private network. Every address is public, as 0.0.0.0 is all of them.
fn is_public(ip: IpAddr) -> bool {
    match ip.to_canonical() {
        IpAddr::V4(ip) => !(ip.is_loopback() || ip.is_private() || ip.is_link_local()),
        IpAddr::V6(ip) => !(ip.is_loopback() || ip.is_unique_local() || ip.is_unicast_link_local()),
    }
}

#[cfg(test)]
mod tests {
    use dvp_fix_gateway::ForwardConfig;

    use super::*;

    #[test]
    fn loopback_and_private_addresses_are_not_public() {
        for private in [
            "127.0.0.1",
            "10.1.2.3",
            "172.16.0.1",
            "192.168.1.1",
            "169.254.1.1",
            "::1",
            "fd00::1",
            "fe80::1",
            "::ffff:10.0.0.1",
        ] {
            assert!(!is_public(private.parse().unwrap()), "{private}");
        }
        for public in ["0.0.0.0", "::", "203.0.113.7", "172.32.0.1", "2001:db8::1"] {
            assert!(is_public(public.parse().unwrap()), "{public}");
        }
    }

    const LEAST: &str = "environment = \"test\"\n[database]\nurl = \"env:DVP_DATABASE_URL\"\n[secrets]\nmaster_key = \"file:/run/dvp/master\"\n\
                         [fix]\nlisten = \"127.0.0.1:0\"\n";

    fn parts(more: &str) -> FixParts {
        fix(&Config::parse(&format!("{LEAST}{more}")).unwrap()).unwrap()
    }

    #[test]
    fn an_unconfigured_fix_listener_has_the_defaults() {
        let (found, usual) = (parts("").gateway, GatewayConfig::default());
        assert_eq!((found.refusal_delay, found.refusal), (usual.refusal_delay, usual.refusal));
        assert_eq!((found.lockout, found.listener.budget), (usual.lockout, usual.listener.budget));
        assert!(found.listener.proxies.is_empty() && found.listener.allow.is_empty());
    }

    #[test]
    fn a_fix_listener_takes_its_limits_from_the_configuration() {
        let found = parts(
            "proxies = [\"10.0.0.0/8\"]\nallow = [\"192.0.2.7\", \"2001:db8::/32\"]\nrefusal_delay = \"2s\"\n\
             refusal_logout = true\n[fix.budget]\nhandshake = \"3s\"\nlogon = \"4s\"\nunauthenticated = 5\n\
             unauthenticated_per_source = 6\nconnections_per_minute = 7\n[fix.lockout]\nattempts = 8\nper_minute = 9\n",
        );
        let GatewayConfig { listener, refusal_delay, refusal, lockout, .. } = found.gateway;
        assert_eq!((refusal_delay.as_secs(), refusal), (2, LogonRefusal::Logout));
        assert_eq!(lockout, Lockout { attempts: 8, per_minute: 9 });
        assert_eq!(listener.proxies, ["10.0.0.0/8".parse().unwrap()]);
        assert_eq!(listener.allow, ["192.0.2.7/32".parse().unwrap(), "2001:db8::/32".parse().unwrap()]);
        let Budget {
            handshake,
            logon,
            unauthenticated_max,
            unauthenticated_per_source_max,
            connections_per_minute,
            ..
        } = listener.budget;
        assert_eq!((handshake.as_secs(), logon.as_secs()), (3, 4));
        assert_eq!((unauthenticated_max, unauthenticated_per_source_max, connections_per_minute), (5, 6, 7));
    }

    #[test]
    fn the_address_for_forwarded_connections_is_the_listeners_or_one_of_its_own() {
        let forward = |lines: &str| parts(&format!("[fix.forward]\n{lines}\n")).gateway.forward.unwrap();
        let listen = "10.0.0.5:9882".parse().unwrap();
        assert_eq!(parts("").gateway.forward, None);
        let own = forward("listen = \"10.0.0.5:9882\"");
        assert_eq!(own, ForwardConfig { listen, address: None });
        let named = forward("listen = \"10.0.0.5:9882\"\naddress = \"fix-0.internal:9882\"");
        assert_eq!(named.address.as_deref(), Some("fix-0.internal:9882"));
        for wrong in [
            "listen = \"0.0.0.0:9882\"",
            "listen = \"[::]:9882\"",
            "listen = \"10.0.0.5:9882\"\naddress = \"fix-0.internal\"",
            "listen = \"10.0.0.5:9882\"\naddress = \":9882\"",
            "listen = \"10.0.0.5:9882\"\naddress = \"fix-0.internal:0\"",
        ] {
            assert!(Config::parse(&format!("{LEAST}[fix.forward]\n{wrong}\n")).is_err(), "{wrong}");
        }
    }

    #[test]
    fn invalid_networks_and_budgets_are_refused() {
        for wrong in ["proxies = [\"10.0.0.0/99\"]", "allow = [\"somewhere\"]", "[fix.lockout]\nattempts = 0"]
        {
            assert!(Config::parse(&format!("{LEAST}{wrong}\n")).is_err(), "{wrong}");
        }
    }
}

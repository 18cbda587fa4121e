//! Where a sandbox may send webhooks, and the certificates it trusts for it.
//!
//! With private addresses allowed it has an authority of its own, new at each start, and a certificate of that
//! authority for listeners on this machine, so that `dvp webhook listen` needs nothing else.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use dvp_api::WebhookRules;
use dvp_api::delivery::DeliveryConfig;
use dvp_api::delivery::address::Reach;
use dvp_api::delivery::names::SystemNames;
use dvp_store::durable::{self, Readers};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use serde_json::{Value, json};
use tokio_rustls::rustls::pki_types::CertificateDer;

use super::files::Files;
use crate::cli::SandboxArgs;
use crate::serve::authorities;

/// A certificate for listeners of this machine, and its key, in one file.
pub(crate) const LISTENER: &str = "webhook-listener.pem";
const AUTHORITY: &str = "webhook-ca.pem";

pub(super) struct Hooks {
    reach: Reach,
    authorities: Vec<CertificateDer<'static>>,
    /// The sandbox's own authority and listener certificate.
    own: Option<(PathBuf, PathBuf)>,
}

impl Hooks {
    pub(super) fn prepare(args: &SandboxArgs, files: &Files) -> anyhow::Result<Self> {
        let mut hooks = Self { reach: Reach::Public, authorities: Vec::new(), own: None };
        if let Some(path) = &args.webhook_ca {
            hooks.authorities.extend(authorities(path)?);
        }
        if args.webhook_allow_private {
            hooks.reach = Reach::Everything;
            let (authority, listener) = (files.dir().join(AUTHORITY), files.dir().join(LISTENER));
            hooks.authorities.push(issue(&authority, &listener)?);
            hooks.own = Some((authority, listener));
        }
        Ok(hooks)
    }

    pub(super) fn rules(&self) -> WebhookRules {
        WebhookRules { reach: self.reach.clone(), names: Arc::new(SystemNames) }
    }

    pub(super) fn delivery(&self) -> DeliveryConfig {
        DeliveryConfig {
            reach: self.reach.clone(),
            authorities: self.authorities.clone(),
            ..DeliveryConfig::default()
        }
    }

    /// For the ready file.
    pub(super) fn ready(&self) -> Value {
        match &self.own {
            None => json!({"allowPrivate": false}),
            Some((authority, listener)) => {
                json!({"allowPrivate": true, "ca": authority, "listener": listener})
            }
        }
    }
}

fn issue(authority: &Path, listener: &Path) -> anyhow::Result<CertificateDer<'static>> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
    let key = KeyPair::generate()?;
    let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned(), "::1".to_owned()];
    let leaf = CertificateParams::new(names)?.signed_by(&key, &issuer)?;
    durable::write(authority, issuer.pem().as_bytes(), Readers::Owner)?;
    let text = format!("{}{}", leaf.pem(), key.serialize_pem());
    durable::write(listener, text.as_bytes(), Readers::Owner)?;
    Ok(issuer.der().clone())
}

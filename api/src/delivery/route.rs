//! The destination and signing keys of an endpoint's deliveries: created with each read of its queue, for all
//! deliveries of that read.

use dvp_core::engine::webhooks::SigningKeys;
use dvp_core::secrets::Vault;
use dvp_store::webhooks::Endpoint;
use tracing::error;
use url::Url;

use super::client::Client;
use super::signature::Signer;

pub(super) struct EndpointRoute {
    pub(super) endpoint_id: String,
    /// The fence of its endpoint lease.
    pub(super) fence: i64,
    /// The endpoint's URL as its owner wrote it.
    pub(super) target: String,
    /// `None`: it no longer follows the rules.
    pub(super) url: Option<Url>,
    /// `None`: a secret could not be decrypted.
    pub(super) keys: Option<SigningKeys<Signer>>,
}

impl EndpointRoute {
    pub(super) fn new(fence: i64, endpoint: &Endpoint, client: &Client, vault: &Vault) -> Self {
        let keys = SigningKeys::open(vault, &endpoint.id, &endpoint.secrets, Signer::new);
        if let Err(error) = &keys {
            error!(endpoint = endpoint.id, %error, "webhook signing secret could not be decrypted");
        }
        let (endpoint_id, target) = (endpoint.id.clone(), endpoint.url.clone());
        Self { endpoint_id, fence, url: client.check(&target), target, keys: keys.ok() }
    }
}

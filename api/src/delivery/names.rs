//! Resolves names, and refuses a name if one of its addresses is not allowed.
//!
//! One refused address refuses the name: an attacker with one public and one private address would only need to wait
//! for their order to change.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;

use super::address::Reach;
use super::network::{Resolver, routed};

/// The result of a look-up.
pub type LookUp<'a> = Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send + 'a>>;

/// The resolver.
pub trait Names: Send + Sync {
    fn look_up<'a>(&'a self, name: &'a str) -> LookUp<'a>;
}

/// The machine's own resolver.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemNames;

impl Names for SystemNames {
    fn look_up<'a>(&'a self, name: &'a str) -> LookUp<'a> {
        Box::pin(async move { Ok(tokio::net::lookup_host((name, 0)).await?.map(|at| at.ip()).collect()) })
    }
}

/// A name that resolves to an address that is not allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the name leads to the address {0}, which is not public")]
pub struct NonPublicAddress(pub IpAddr);

/// The resolver of the shared client.
pub(super) struct Guarded {
    pub(super) resolver: Arc<Resolver>,
    pub(super) reach: Reach,
}

impl reqwest::dns::Resolve for Guarded {
    fn resolve(&self, name: reqwest::dns::Name) -> reqwest::dns::Resolving {
        let (resolver, reach) = (Arc::clone(&self.resolver), self.reach.clone());
        Box::pin(async move {
            let found = resolver.look_up(name.as_str()).await?;
            if let Some(refused) = found.iter().find(|address| !reach.allows(**address)) {
                return Err(NonPublicAddress(*refused).into());
            }
            // Port 0 stands for the URL's port.
            let addresses = routed(found)?.into_iter().map(|address| SocketAddr::new(address, 0));
            Ok(Box::new(addresses) as reqwest::dns::Addrs)
        })
    }
}

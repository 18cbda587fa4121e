//! Names to addresses, with a refusal when any of them may not be reached.
//!
//! One refused address refuses the name: an attacker who mixes a public and a private one would only need to wait for
//! the order to change.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;

use super::address::Reach;

/// What a look-up gives.
pub type LookUp<'a> = Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send + 'a>>;

/// Where names are looked up.
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

/// A name that leads to an address which may not be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the name leads to the address {0}, which is not public")]
pub struct Refused(pub IpAddr);

/// A look-up that failed.
#[derive(Debug, thiserror::Error)]
#[error("the name does not resolve: {0}")]
pub struct Unresolved(#[source] pub io::Error);

impl Unresolved {
    /// The resolver itself is out of order, which says nothing about the name.
    pub fn is_ours(&self) -> bool {
        // The standard library keeps the C library's text and not its code.
        let text = self.0.to_string();
        text.contains("Temporary failure") || text.contains("System error") || text.contains("Try again")
    }
}

/// The resolver of the shared client.
pub(crate) struct Guarded {
    pub(crate) names: Arc<dyn Names>,
    pub(crate) reach: Reach,
}

impl reqwest::dns::Resolve for Guarded {
    fn resolve(&self, name: reqwest::dns::Name) -> reqwest::dns::Resolving {
        let (names, reach) = (Arc::clone(&self.names), self.reach.clone());
        Box::pin(async move {
            let found = names.look_up(name.as_str()).await.map_err(Unresolved)?;
            if let Some(refused) = found.iter().find(|address| !reach.allows(**address)) {
                return Err(Refused(*refused).into());
            }
            if found.is_empty() {
                return Err(Unresolved(io::Error::other("no addresses")).into());
            }
            // Port 0 stands for the URL's.
            let addresses = found.into_iter().map(|address| SocketAddr::new(address, 0));
            Ok(Box::new(addresses) as reqwest::dns::Addrs)
        })
    }
}

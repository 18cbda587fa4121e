//! Resolves names.

use std::io;
use std::net::IpAddr;
use std::pin::Pin;

pub type LookUp<'a> = Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send + 'a>>;

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

//! The permit contract as the engine asks it.

use crate::contracts::permit::Permit;
use crate::rpc;
use alloy::eips::BlockId;
use alloy::primitives::Address;
use alloy::providers::DynProvider;
use alloy::transports::TransportError;
use dvp_core::chain::{ChainUnavailable, PermitNonces};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// An order waits for this answer, so it comes soon or not at all.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

/// Reads `Permit.nonces` at the latest block, of the endpoint that answered last; when it does not, of the next one.
///
/// An endpoint that lags tells an older nonce, which lets a permit through that the chain then refuses.
#[derive(Clone)]
pub struct ChainPermitNonces {
    providers: Arc<[DynProvider]>,
    answering: Arc<AtomicUsize>,
    permit: Address,
}

impl ChainPermitNonces {
    /// No traffic yet.
    pub fn new(rpc_url: &str, permit: Address) -> Result<Self, TransportError> {
        Self::over([rpc_url], permit)
    }

    /// The same with several endpoints of one chain, which share the time for an answer.
    pub fn over<'a>(
        rpc_urls: impl IntoIterator<Item = &'a str>,
        permit: Address,
    ) -> Result<Self, TransportError> {
        let providers = rpc_urls.into_iter().map(rpc::connect).collect::<Result<_, _>>()?;
        Ok(Self { providers, answering: Arc::default(), permit })
    }

    async fn ask(&self, owner: &str) -> Result<u128, ChainUnavailable> {
        let owner: Address = owner.parse().map_err(|_| ChainUnavailable(format!("{owner} is no address")))?;
        let call = Permit::noncesCall { owner };
        let patience = ANSWER_WITHIN / u32::try_from(self.providers.len().max(1)).unwrap_or(u32::MAX);
        let first = self.answering.load(Ordering::Relaxed);
        let mut unavailable = ChainUnavailable("no endpoint".to_owned());
        for at in (0..self.providers.len()).map(|step| (first + step) % self.providers.len()) {
            let answer = rpc::view(&self.providers[at], self.permit, &call, BlockId::latest());
            unavailable = match tokio::time::timeout(patience, answer).await {
                Ok(Ok(nonce)) => {
                    self.answering.store(at, Ordering::Relaxed);
                    return u128::try_from(nonce)
                        .map_err(|_| ChainUnavailable("a nonce beyond all use".to_owned()));
                }
                Ok(Err(error)) => ChainUnavailable(error.to_string()),
                Err(_) => ChainUnavailable("no answer in time".to_owned()),
            };
        }
        Err(unavailable)
    }
}

impl PermitNonces for ChainPermitNonces {
    fn permit_nonce<'a>(
        &'a self,
        owner: &'a str,
    ) -> Pin<Box<dyn Future<Output = Result<u128, ChainUnavailable>> + Send + 'a>> {
        Box::pin(self.ask(owner))
    }
}

//! The permit contract as the engine asks it.

use crate::contracts::permit::Permit;
use crate::rpc;
use alloy::eips::BlockId;
use alloy::primitives::Address;
use alloy::providers::DynProvider;
use alloy::transports::TransportError;
use dvp_core::chain::{ChainUnavailable, PermitNonces};
use std::pin::Pin;
use std::time::Duration;

/// An order waits for this answer, so it comes soon or not at all.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

/// Reads `Permit.nonces` at the latest block.
#[derive(Clone)]
pub struct ChainPermitNonces {
    provider: DynProvider,
    permit: Address,
}

impl ChainPermitNonces {
    /// No traffic yet.
    pub fn new(rpc_url: &str, permit: Address) -> Result<Self, TransportError> {
        Ok(Self { provider: rpc::connect(rpc_url)?, permit })
    }

    async fn ask(&self, owner: &str) -> Result<u128, ChainUnavailable> {
        let owner: Address = owner.parse().map_err(|_| ChainUnavailable(format!("{owner} is no address")))?;
        let call = Permit::noncesCall { owner };
        let answer = rpc::view(&self.provider, self.permit, &call, BlockId::latest());
        let nonce = tokio::time::timeout(ANSWER_WITHIN, answer)
            .await
            .map_err(|_| ChainUnavailable("no answer in time".to_owned()))?
            .map_err(|error| ChainUnavailable(error.to_string()))?;
        u128::try_from(nonce).map_err(|_| ChainUnavailable("a nonce beyond all use".to_owned()))
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

//! Wallet data for the core: permit nonce, balance and allowance, many wallets in one request; and whether a wallet that
//! is a contract confirms a signature.

use crate::contracts::permit::Permit;
use crate::contracts::token::TestToken;
use crate::rpc::{self, BatchedView, BlockHead};
use alloy::eips::BlockId;
use alloy::primitives::{Address, Bytes, U256};
use alloy::providers::{DynProvider, Provider};
use alloy::rpc::client::BatchRequest;
use alloy::transports::{RpcError, TransportError};
use dvp_core::chain::{
    ChainAnswer, ChainHead, ChainUnavailable, Confirmation, SignedHash, WalletFacts, WalletKey, WalletReader,
    WalletReading,
};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// An order may wait for this answer, so the limit is short. All endpoints share it.
const ANSWER_WITHIN: Duration = Duration::from_secs(3);

const NEWEST: BlockId = BlockId::latest();

/// The maximum number of readings to get answers of one block.
const READINGS: u32 = 3;

type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, TransportError>> + Send + 'a>>;

/// Reads wallets at the latest block, from the endpoint that answered last, or from the next one if it does not answer.
///
/// An endpoint that lags returns an older nonce and balance; what was locked since counts as pending for some time.
#[derive(Clone)]
pub struct ChainWallets {
    providers: Arc<[DynProvider]>,
    answering: Arc<AtomicUsize>,
    permit: Address,
}

impl ChainWallets {
    /// Over the endpoints of one chain. Does not connect yet.
    pub fn over<'a>(
        rpc_urls: impl IntoIterator<Item = &'a str>,
        permit: Address,
    ) -> Result<Self, TransportError> {
        let providers = rpc_urls.into_iter().map(rpc::connect).collect::<Result<_, _>>()?;
        Ok(Self { providers, answering: Arc::default(), permit })
    }

    /// Queries one endpoint after the other, beginning with the one that answered last.
    async fn ask<'a, T>(
        &self,
        question: impl Fn(DynProvider) -> Answer<'a, T> + Send,
    ) -> Result<T, ChainUnavailable> {
        let patience = ANSWER_WITHIN / u32::try_from(self.providers.len().max(1)).unwrap_or(u32::MAX);
        let first = self.answering.load(Ordering::Relaxed);
        let mut unavailable = ChainUnavailable("no endpoint".to_owned());
        for at in (0..self.providers.len()).map(|step| (first + step) % self.providers.len()) {
            let answer = tokio::time::timeout(patience, question(self.providers[at].clone())).await;
            unavailable = match answer {
                Ok(Ok(answer)) => {
                    self.answering.store(at, Ordering::Relaxed);
                    return Ok(answer);
                }
                Ok(Err(error)) => ChainUnavailable(rpc::told(&error)),
                Err(_) => ChainUnavailable("no answer in time".to_owned()),
            };
        }
        Err(unavailable)
    }
}

/// Has the permit contract ask the wallet, as it does when it pulls.
async fn confirm(
    provider: &DynProvider,
    permit: Address,
    owner: Address,
    signed: &SignedHash,
) -> Result<Confirmation, TransportError> {
    let code: Bytes = provider.raw_request("eth_getCode".into(), (owner, "latest")).await?;
    if code.is_empty() {
        return Ok(Confirmation::NoContract);
    }
    let SignedHash { digest, signature } = signed;
    let call = Permit::confirmsCall { owner, digest: digest.into(), signature: signature.clone().into() };
    let confirms = rpc::view_now(provider, permit, &call).await?;
    Ok(if confirms { Confirmation::Confirmed } else { Confirmation::Refused })
}

/// A wallet and its token, as addresses.
#[derive(Clone, Copy)]
struct WalletToken {
    owner: Address,
    token: Address,
}

impl WalletToken {
    fn parse(wallet: &WalletKey) -> Result<Self, ChainUnavailable> {
        Ok(Self { owner: address(&wallet.owner)?, token: address(&wallet.token)? })
    }
}

fn address(text: &str) -> Result<Address, ChainUnavailable> {
    text.parse().map_err(|_| ChainUnavailable(format!("{text} is no address")))
}

/// The calls about one wallet in a batch to be sent.
struct Calls {
    nonce: BatchedView<Permit::noncesCall>,
    balance: BatchedView<TestToken::balanceOfCall>,
    allowance: BatchedView<TestToken::allowanceCall>,
}

impl Calls {
    fn add(
        batch: &mut BatchRequest<'_>,
        permit: Address,
        requested: WalletToken,
    ) -> Result<Self, TransportError> {
        let WalletToken { owner, token } = requested;
        // The nonce first: a lock in between counts as pending and as spent, never as neither.
        Ok(Self {
            nonce: BatchedView::add(batch, permit, Permit::noncesCall { owner }, NEWEST)?,
            balance: BatchedView::add(batch, token, TestToken::balanceOfCall { account: owner }, NEWEST)?,
            allowance: BatchedView::add(
                batch,
                token,
                TestToken::allowanceCall { owner, spender: permit },
                NEWEST,
            )?,
        })
    }

    async fn answers(self, provider: &DynProvider) -> Result<WalletFacts, TransportError> {
        let nonce = self.nonce.answer(provider).await?;
        Ok(WalletFacts {
            nonce: saturated(nonce),
            balance: saturated(self.balance.answer(provider).await?),
            allowance: saturated(self.allowance.answer(provider).await?),
        })
    }
}

fn saturated(amount: U256) -> u128 {
    u128::try_from(amount).unwrap_or(u128::MAX)
}

/// Reads again when a block arrived in between: some answers would include its locks and others not.
async fn read(
    provider: &DynProvider,
    permit: Address,
    wallets: &[WalletToken],
) -> Result<WalletReading, TransportError> {
    for _ in 1..READINGS {
        let (reading, is_of_one_block) = read_once(provider, permit, wallets).await?;
        if is_of_one_block {
            return Ok(reading);
        }
    }
    Ok(read_once(provider, permit, wallets).await?.0)
}

async fn read_once(
    provider: &DynProvider,
    permit: Address,
    wallets: &[WalletToken],
) -> Result<(WalletReading, bool), TransportError> {
    let mut batch = BatchRequest::new(provider.client());
    // Answered first, so that the following calls see this block or a later one.
    let head = batch.add_call::<_, Option<BlockHead>>("eth_getBlockByNumber", &("latest", false))?;
    let calls = wallets.iter().map(|wallet| Calls::add(&mut batch, permit, *wallet));
    let calls = calls.collect::<Result<Vec<_>, _>>()?;
    let after = batch.add_call::<_, Option<BlockHead>>("eth_getBlockByNumber", &("latest", false))?;
    batch.send().await?;
    let head = head.await?.ok_or(RpcError::NullResp)?;
    let mut facts = Vec::with_capacity(calls.len());
    for calls in calls {
        facts.push(calls.answers(provider).await?);
    }
    let is_of_one_block = after.await?.ok_or(RpcError::NullResp)?.hash == head.hash;
    let head = ChainHead { number: head.number, hash: head.hash.0 };
    Ok((WalletReading { head, facts }, is_of_one_block))
}

impl WalletReader for ChainWallets {
    fn head(&self) -> ChainAnswer<'_, ChainHead> {
        Box::pin(self.ask(|provider| {
            Box::pin(async move {
                let head = rpc::head(&provider).await?;
                Ok(ChainHead { number: head.number, hash: head.hash.0 })
            })
        }))
    }

    fn confirm<'a>(&'a self, owner: &'a str, signed: &'a SignedHash) -> ChainAnswer<'a, Confirmation> {
        Box::pin(async move {
            let owner = address(owner)?;
            let question = |provider: DynProvider| -> Answer<'_, Confirmation> {
                Box::pin(async move { confirm(&provider, self.permit, owner, signed).await })
            };
            self.ask(question).await
        })
    }

    fn read<'a>(&'a self, wallets: &'a [WalletKey]) -> ChainAnswer<'a, WalletReading> {
        Box::pin(async move {
            let requested = wallets.iter().map(WalletToken::parse).collect::<Result<Vec<_>, _>>()?;
            let requested = requested.as_slice();
            let question = |provider: DynProvider| -> Answer<'_, WalletReading> {
                Box::pin(async move { read(&provider, self.permit, requested).await })
            };
            self.ask(question).await
        })
    }
}

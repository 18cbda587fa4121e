//! Indicative and firm quotes.

use std::time::Instant;

use dvp_domain::ids::QuoteId;
use dvp_domain::liquidity::Market;
use dvp_domain::quote::{Candidate, FirmRequest, FirmTerms, IndicativeRequest, firm, indicative};
use dvp_store::database::ids;
use dvp_store::orders::quotes::{NewFirmQuote, QuoteContext};

use super::Engine;
use super::error::EngineError;
use crate::liquidity::{PairAssets, PriceRequest};
use crate::writer::{Done, FixPart, IdempotencyPart, Pending, Unit, Work};

impl Engine {
    /// Candidates for a pair, best first. The context is stored under the requestId with the answer.
    pub async fn quote(&self, request: &IndicativeRequest<'_>) -> Result<Vec<Candidate>, EngineError> {
        let started = Instant::now();
        if self.context.is_halted([request.input, request.output]) {
            return Ok(Vec::new());
        }
        let liquidity = &self.context.liquidity;
        let holdings = liquidity.balances().read(&self.pool).await?;
        let pair = PairAssets { input: request.input, output: request.output };
        let requested = PriceRequest { pair, amount: request.amount, actor: request.actor };
        let snapshot = liquidity.snapshot_with_answers(requested).await;
        let market = Market {
            registry: &self.context.registry,
            snapshot: &snapshot,
            holdings: holdings.as_ref(),
            now: self.now(),
        };
        let latency_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        Ok(indicative(&market, request, latency_ms))
    }

    /// A locked price, not yet stored. `None`: no liquidity, or a halted chain.
    pub async fn firm_quote(&self, request: &FirmRequest<'_>) -> Result<Option<FirmTerms>, EngineError> {
        Ok(self.prices(std::slice::from_ref(request)).await?.pop().flatten())
    }

    /// What each of these would be locked at now.
    pub async fn prices(&self, requests: &[FirmRequest<'_>]) -> Result<Vec<Option<FirmTerms>>, EngineError> {
        let liquidity = &self.context.liquidity;
        let holdings = liquidity.balances().read(&self.pool).await?;
        let market = Market {
            registry: &self.context.registry,
            snapshot: &liquidity.snapshot(),
            holdings: holdings.as_ref(),
            now: self.now(),
        };
        let price = |request: &FirmRequest<'_>| {
            if self.context.is_halted([request.input, request.output]) {
                return None;
            }
            firm(&market, request, QuoteId::from_unique(ids::draw(self.context.cell).simple()))
        };
        Ok(requests.iter().map(price).collect())
    }

    /// Stores an indicative quote's context with its answer.
    pub async fn keep_quote(&self, context: QuoteContext, key: IdempotencyPart) -> Result<Done, EngineError> {
        let work = Work::Quote(Box::new(context));
        Ok(self.writer.write(Unit::of_request(work, key)).await?)
    }

    pub async fn keep_firm_quote(
        &self,
        quote: NewFirmQuote,
        key: IdempotencyPart,
    ) -> Result<Done, EngineError> {
        let work = Work::FirmQuote(Box::new(quote));
        Ok(self.writer.write(Unit::of_request(work, key)).await?)
    }

    /// Queues a firm quote with the FIX message that reports it, behind the session's earlier units; returns when it
    /// has a place in the queue.
    pub fn begin_firm_quote(
        &self,
        quote: NewFirmQuote,
        fix: FixPart,
    ) -> impl Future<Output = Result<Pending, EngineError>> + use<> {
        let tenant = quote.tenant.clone();
        self.queue(Unit::of_session(tenant, Work::FirmQuote(Box::new(quote)), fix))
    }
}

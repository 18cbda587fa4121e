//! What the database knows of an order's chain and rails. After a restore they are ahead of it: an order that looks too late
//! may have been committed and paid, and only the chain's events or the rail's answer show it.

use dvp_domain::settlement::State;
use dvp_store::StoreError;
use dvp_store::chain::{self as store, open_facts};
use dvp_store::orders::executions::Execution;
use dvp_store::orders::screenings;

use super::{Engine, EngineError};

/// The result that due work shows which waits for the index.
pub(crate) const NOT_READ: &str = "waits for the events of its chain";

/// Whether everything that the order's chain had when this process started is known, and no fact of the order waits to
/// be applied or is kept. A restored process starts after everything that its database has forgotten.
pub(crate) async fn knows_chain(engine: &Engine, execution: &Execution) -> Result<bool, EngineError> {
    if !execution.terms.converts() {
        // Money for money is on no chain.
        return Ok(true);
    }
    let chain_id = engine.context.chain_of(&execution.terms)?.chain_id;
    let mut conn = engine.pool.acquire().await?;
    Ok(store::has_facts_since(&mut conn, chain_id, engine.started_at().to_utc()).await?
        && !open_facts::has_open(&mut conn, &entity(execution)?).await?)
}

/// Whether the chain has something of an order that has not begun here.
pub(crate) async fn has_begun_there(engine: &Engine, execution: &Execution) -> Result<bool, EngineError> {
    has_events(engine, execution, engine.context.chain_of(&execution.terms)?.chain_id).await
}

/// Whether an order was accepted before this process started. A restored database has forgotten steps of such orders only.
pub(crate) fn is_older(engine: &Engine, execution: &Execution) -> bool {
    execution.terms.accepted_at <= engine.started_at()
}

/// Why a resting order is not filled at the market: its chain may have filled it before a restore.
pub(crate) fn keeps_from_market(engine: &Engine, execution: &Execution) -> Option<&'static str> {
    let known = engine.forgotten.lock();
    let chain = engine.context.chain_of(&execution.terms).ok()?.chain_id;
    if is_older(engine, execution) && !known.read.contains(&chain) {
        return Some("chain_unread");
    }
    known.kept.contains(execution.terms.reference.as_str()).then_some("begun_on_chain")
}

/// Whether an order that has not begun here may have begun out there: its chain has it, or an order from before the start
/// of this process was not looked for yet. Rails are asked by the workers, each time that screening holds an order.
pub(crate) async fn may_have_begun_there(
    engine: &Engine,
    execution: &Execution,
) -> Result<bool, EngineError> {
    let (terms, started_at) = (&execution.terms, engine.started_at().to_utc());
    if terms.locks() && has_begun_there(engine, execution).await? {
        return Ok(true);
    }
    // Nothing holds a resting order of money until it was looked for.
    if !is_older(engine, execution) || !terms.locks() && execution.state == State::Resting {
        return Ok(false);
    }
    let mut conn = engine.pool.acquire().await?;
    Ok(!if terms.locks() {
        store::has_facts_since(&mut conn, engine.context.chain_of(terms)?.chain_id, started_at).await?
    } else {
        screenings::is_held_since(&mut conn, terms.reference.as_str(), started_at).await?
    })
}

/// Whether the chain of the payment has one of the order, final or not.
pub(crate) async fn is_paid_there(engine: &Engine, execution: &Execution) -> Result<bool, EngineError> {
    has_events(engine, execution, engine.context.payout_chain_of(&execution.terms)?.chain_id).await
}

async fn has_events(engine: &Engine, execution: &Execution, chain_id: i64) -> Result<bool, EngineError> {
    let mut conn = engine.pool.acquire().await?;
    Ok(store::has_events(&mut conn, chain_id, &entity(execution)?).await?)
}

fn entity(execution: &Execution) -> Result<Vec<u8>, StoreError> {
    let digits = execution.terms.entity.trim_start_matches("0x");
    hex::decode(digits).map_err(|error| StoreError::corrupt("execution", error))
}

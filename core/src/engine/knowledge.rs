//! What the database knows of an order's chain and rails. After a restore they are ahead of it: an order that looks too late
//! may have been committed and paid, and only the chain's events or the rail's answer show it.

use std::time::{Duration, Instant};

use dvp_domain::settlement::State;
use dvp_domain::settlement::leg::IN_FLIGHT_SECS;
use dvp_store::StoreError;
use dvp_store::chain::{self as store, open_facts};
use dvp_store::orders::effects::{self, EffectKind};
use dvp_store::orders::executions::Execution;
use dvp_store::orders::operations::{Nudge, nudge};

use super::{Engine, EngineError};

/// The result that due work shows which waits for the index.
pub(crate) const NOT_READ: &str = "waits for the events of its chain";
/// Of an order that screening holds, and of one that rests. Of an order from before the start of this process that locks
/// nothing, each says that a worker has asked its rails since, and that they do not know it.
pub(crate) const HELD: &str = "held by screening";
pub(crate) const RESTS: &str = "rests until it is filled";
/// Of an order of money that rests and that a rail knows.
pub const KNOWN: &str = "filled before a restore, as its rail or chain shows: two operators fill it again with \
                                the amounts of the bank's statement (dvp execution resolve --action fill)";

/// How long a cancellation waits for the word of a rail.
const PATIENCE: Duration = Duration::from_secs(1);
const ASK_EVERY: Duration = Duration::from_millis(50);

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

/// Why a resting order is not filled at the market: it may have been filled before a restore, as its chain or its rails
/// know.
pub(crate) async fn keeps_from_market(
    engine: &Engine,
    execution: &Execution,
) -> Result<Option<&'static str>, EngineError> {
    if execution.terms.converts() {
        let chain = engine.context.chain_of(&execution.terms)?.chain_id;
        let known = engine.forgotten.lock();
        if is_older(engine, execution) && !known.read.contains(&chain) {
            return Ok(Some("chain_unread"));
        }
        if known.kept.contains(execution.terms.reference.as_str()) {
            return Ok(Some("begun_on_chain"));
        }
    }
    let is_asked = execution.terms.locks() || !is_older(engine, execution);
    Ok((!is_asked && may_be_called(engine, execution, Duration::ZERO).await?).then_some("rails_not_asked"))
}

/// Whether an order that has not begun here may have begun out there: its chain has it, or an order from before the start
/// of this process was not looked for yet. Rails are asked by the workers: each time that screening holds an order, and when
/// somebody would cancel or fill one of money that rests.
pub(crate) async fn may_have_begun_there(
    engine: &Engine,
    execution: &Execution,
) -> Result<bool, EngineError> {
    let (terms, started_at) = (&execution.terms, engine.started_at().to_utc());
    if terms.locks() && has_begun_there(engine, execution).await? {
        return Ok(true);
    }
    if !is_older(engine, execution) {
        return Ok(false);
    }
    if !terms.locks() && execution.state == State::Resting {
        return may_be_called(engine, execution, PATIENCE).await;
    }
    let mut conn = engine.pool.acquire().await?;
    Ok(!if terms.locks() {
        store::has_facts_since(&mut conn, engine.context.chain_of(terms)?.chain_id, started_at).await?
    } else {
        effects::waits_since(&mut conn, terms.reference.as_str(), HELD, started_at).await?
    })
}

/// Whether a rail may have been called for an order that rests here and locks nothing, and that is from before the start of
/// this process. Workers are made to ask; their answer is waited for so long.
async fn may_be_called(
    engine: &Engine,
    execution: &Execution,
    patience: Duration,
) -> Result<bool, EngineError> {
    let (reference, since) = (execution.terms.reference.as_str(), engine.started_at().to_utc());
    let (began, mut is_asked) = (Instant::now(), false);
    loop {
        let mut conn = engine.pool.acquire().await?;
        if effects::waits_since(&mut conn, reference, RESTS, since).await? {
            return Ok(false);
        }
        if !is_asked {
            let lock = Some(EffectKind::Lock.as_str());
            is_asked = nudge(&mut conn, reference, lock, &Nudge::Now, IN_FLIGHT_SECS).await?;
        }
        drop(conn);
        if began.elapsed() >= patience {
            return Ok(true);
        }
        tokio::time::sleep(ASK_EVERY).await;
    }
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

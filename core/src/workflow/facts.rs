//! Chain facts, processed in order within a settlement and concurrently across settlements.
//!
//! A worker claims the facts that it applies, so that several divide them. A claim is no guard: two workers may have the
//! same fact for a moment, and the settlement's version lets one of them commit.

use std::collections::BTreeMap;
use std::time::Duration;

use dvp_domain::chain::ChainFact;
use dvp_domain::settlement::{Finality, Happened, LegDone, Lock, RailAnswer};
use dvp_domain::time::Timestamp;
use dvp_store::audit;
use dvp_store::chain::commands;
use dvp_store::chain::open_facts::{self, OpenFact};
use dvp_store::orders::executions;
use futures_util::future::join_all;
use metrics::counter;
use tokio::sync::watch;
use tracing::field::Empty;
use tracing::{Instrument, error, info_span, warn};
use uuid::Uuid;

use super::putting_off::{Failed, PutOff};
use super::step::{StepResult, take};
use super::{BACK_OFF, POLL, Wake};
use crate::chain::expected::{Difference, difference, difference_of_chain, is_compared, is_of_payment};
use crate::context::ChainConfig;
use crate::engine::{Engine, EngineError};
use crate::trace;
use crate::writer::Consumed;

/// Facts claimed at a time.
const PAGE: i64 = 512;
/// The lease of a claim. Other workers apply the facts of one that has ended after this time.
const LEASE: Duration = Duration::from_secs(10);

pub(super) async fn run(engine: &Engine, stop: watch::Receiver<bool>) {
    let worker = Uuid::new_v4();
    let mut wake = Wake::new(engine, &["dvp_facts"], stop).await;
    loop {
        let pause = match take_open(engine, worker).await {
            Ok(()) => POLL,
            Err(error) => {
                warn!(%error, "chain fact poll failed, will retry");
                BACK_OFF
            }
        };
        if !wake.wait(pause).await {
            return;
        }
        wake.listen().await;
    }
}

async fn take_open(engine: &Engine, worker: Uuid) -> Result<(), EngineError> {
    let mut after = 0;
    loop {
        let mut conn = engine.pool.acquire().await?;
        let facts = open_facts::claim(&mut conn, worker, LEASE, after, PAGE).await?;
        drop(conn);
        let Some(last) = facts.last() else { return Ok(()) };
        after = last.turn;
        let mut by_entity: BTreeMap<Vec<u8>, Vec<OpenFact>> = BTreeMap::new();
        for fact in facts {
            by_entity.entry(fact.entity.clone()).or_default().push(fact);
        }
        let taken = join_all(by_entity.into_values().map(|facts| take_in_order(engine, facts))).await;
        // A fact that cannot be processed stays open and blocks only its own entity.
        let failed: Vec<EngineError> = taken.into_iter().filter_map(Result::err).collect();
        let count = failed.len();
        if let Some(first) = failed.into_iter().next() {
            warn!(error = %first, entities = count, "chain facts of some entities failed, will retry");
            return Err(first);
        }
    }
}

/// A fact that cannot be written is postponed, and the later facts of its entity wait for it.
async fn take_in_order(engine: &Engine, facts: Vec<OpenFact>) -> Result<(), EngineError> {
    for fact in facts {
        loop {
            match take_one(engine, &fact).await {
                Ok(StepResult::Stale) => {}
                Ok(StepResult::Stepped | StepResult::Ignored) => break,
                Err(Failed::Unwritable(why)) => return put_off(engine, &fact, &why).await,
                Err(Failed::Later(error)) => return Err(error),
            }
        }
    }
    Ok(())
}

async fn put_off(engine: &Engine, fact: &OpenFact, why: &str) -> Result<(), EngineError> {
    let (about, attempts) = (hex::encode(&fact.entity), fact.unwritten.saturating_add(1));
    let wait = PutOff { kind: "fact", id: fact.id, about: &about, attempts }.wait(why);
    let mut conn = engine.pool.acquire().await?;
    Ok(open_facts::put_off(&mut conn, fact.id, wait, why).await?)
}

async fn take_one(engine: &Engine, fact: &OpenFact) -> Result<StepResult, Failed> {
    let reported = fact.fact.as_ref().map_err(|why| Failed::Unwritable(why.clone()))?;
    let mut conn = engine.pool.acquire().await?;
    let Some(execution) = executions::find_by_entity(&mut conn, &fact.entity).await? else {
        if *reported == ChainFact::Anchored
            && audit::mark_anchored(&mut conn, &fact.entity, &fact.tx_hash).await?
        {
            open_facts::consume(&mut conn, &[fact.id]).await?;
            return Ok(StepResult::Ignored);
        }
        // A foreign use of the contracts, or a break: reconciliation decides. The fact is marked as processed.
        error!(entity = %hex::encode(&fact.entity), fact = ?reported, "chain fact without an execution");
        open_facts::consume(&mut conn, &[fact.id]).await?;
        return Ok(StepResult::Ignored);
    };
    // Read after the version: a fact that another process consumes from here on changes the version.
    if !open_facts::is_next(&mut conn, fact.id).await? {
        return Ok(StepResult::Ignored);
    }
    let terms = &execution.terms;
    let chain = if is_of_payment(reported) {
        engine.context.payout_chain_of(terms)
    } else {
        engine.context.chain_of(terms)
    };
    let chain = chain.map_err(EngineError::from)?;
    let requested = if is_compared(reported) {
        commands::list_requested(&mut conn, chain.chain_id, &fact.entity).await?
    } else {
        Vec::new()
    };
    drop(conn);
    let span = info_span!(
        "fact",
        intent_id = %execution.terms.request.intent_id,
        reference = %execution.terms.reference,
        tx_hash = %fact.tx_hash,
        trace_id = Empty,
        span_id = Empty,
        parent_span_id = Empty,
    );
    let placed = execution.terms.trace;
    trace::mark(&span, trace::child(placed), placed);
    let of_chain = difference_of_chain(fact.chain_id, chain.chain_id);
    if let Some(difference) = of_chain.or_else(|| difference(reported, &requested)) {
        return set_aside(engine, fact, &difference).instrument(span).await;
    }
    let Some(happened) = span.in_scope(|| happened(engine, chain, fact, reported))? else {
        open_facts::consume(&mut *engine.pool.acquire().await?, &[fact.id]).await?;
        return Ok(StepResult::Ignored);
    };
    let consumed = Consumed { fact: Some(fact.id), ..Consumed::default() };
    let version = execution.version;
    let is_suspect = fact.unwritten > 0;
    let taken = take(engine, execution, happened, consumed, is_suspect).instrument(span).await?;
    if taken == StepResult::Stale {
        warn!(version, "settlement changed concurrently, applying the fact again");
    }
    Ok(taken)
}

/// A fact that differs from the order's command changes nothing and is kept.
async fn set_aside(engine: &Engine, fact: &OpenFact, difference: &Difference) -> Result<StepResult, Failed> {
    let mut conn = engine.pool.acquire().await?;
    if open_facts::set_aside(&mut conn, fact.id, &difference.to_string()).await? {
        let Difference { field, requested, reported } = difference;
        counter!("dvp_workflow_differing_facts_total", "field" => *field).increment(1);
        error!(
            fact = fact.id,
            field,
            requested,
            reported,
            "on-chain terms differ from the order's terms; the fact is kept and the order stays as it is"
        );
    }
    Ok(StepResult::Ignored)
}

/// `None`: it changes no settlement.
fn happened(
    engine: &Engine,
    chain: &ChainConfig,
    fact: &OpenFact,
    reported: &ChainFact,
) -> Result<Option<Happened>, Failed> {
    let at = fact.block_time.map_or_else(|| engine.now(), Timestamp::from);
    let happened = match reported {
        ChainFact::LockLost => {
            counter!("dvp_workflow_lost_facts_total", "fact" => "lock").increment(1);
            error!("a reorg reverted the lock of an order; the order is not paid without it");
            Happened::LockLost { at }
        }
        ChainFact::FillLost => {
            counter!("dvp_workflow_lost_facts_total", "fact" => "fill").increment(1);
            error!(
                "a reorganization reverted the commitment to a payout that may be in progress: anyone may cancel the \
                 lock from its fill deadline on; the relayer sends the commitment again, and the chain's payout gate \
                 is too shallow"
            );
            Happened::FillLost
        }
        ChainFact::TransferLost => {
            counter!("dvp_workflow_lost_facts_total", "fact" => "transfer").increment(1);
            error!(
                "a reorganization reverted the payment for a lock on another chain, which is being released: the \
                 relayer sends it again while it may be paid, reconciliation reports it while it is missing, and the \
                 payout gate of its chain is too shallow"
            );
            return Ok(None);
        }
        ChainFact::Created { timelock, lock, .. } => {
            let time = |secs: u64| {
                Timestamp::from_millis(i64::try_from(secs).unwrap_or(i64::MAX).saturating_mul(1000))
            };
            let windows = engine.context.windows;
            let deadlines = windows.deadlines(lock.fill_deadline, *timelock);
            let lock = Lock::new(fact.tx_hash.clone(), time(*timelock), deadlines);
            Happened::Locked { lock, at }
        }
        // The block is older: what matters is whether there is time for the payout now.
        ChainFact::Filled { .. } => Happened::Filled { at: engine.now() },
        ChainFact::Settled { .. } => Happened::Settled { tx_hash: fact.tx_hash.clone(), at },
        ChainFact::Cancelled | ChainFact::Refunded => {
            Happened::Refunded { tx_hash: fact.tx_hash.clone(), at }
        }
        ChainFact::Transferred { .. } => Happened::Payout {
            answer: RailAnswer::Done(LegDone { provider_reference: fact.tx_hash.clone(), occurred_at: at }),
            at,
        },
        ChainFact::Anchored => Happened::Anchored(Finality {
            tx_hash: fact.tx_hash.clone(),
            contract_address: chain.anchor.clone(),
            chain_id: u64::try_from(fact.chain_id)
                .map_err(|_| Failed::Unwritable(format!("{} is no chain id", fact.chain_id)))?,
        }),
        ChainFact::CommandFailed { command, code, message } => {
            failed(command, code.clone(), message.clone(), at)
        }
    };
    Ok(Some(happened))
}

/// A command can never succeed. When no settlement waits for it, only an alarm is raised.
fn failed(command: &str, code: String, message: String, at: Timestamp) -> Happened {
    match command {
        "transfer" => Happened::Payout { answer: RailAnswer::Failed { code, message, retryable: false }, at },
        "fill" => Happened::FillFailed { code, message, at },
        "create" | "swap" => Happened::LockFailed { code, message, at },
        _ => {
            error!(command, %code, %message, "chain command failed permanently; reconciliation reports open funds");
            Happened::LockFailed { code, message, at }
        }
    }
}

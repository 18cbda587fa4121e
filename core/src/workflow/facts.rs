//! Chain facts, processed in order within a settlement and concurrently across settlements.
//!
//! A worker claims the facts that it applies, so that several divide them. A claim is no guard: two workers may have the
//! same fact for a moment, and the settlement's version lets one of them commit.
//!
//! A fact is used up by a step, or when it can never matter to its settlement; one that comes too early is kept, and
//! offered again when the settlement has changed.
//!
//! Kept by `core/tests/it/fact_claims.rs::a_fact_is_one_workers_until_its_claim_ends` and
//! `core/tests/it/early_facts.rs::facts_of_steps_that_were_forgotten_are_applied_as_the_order_comes_to_them`.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use dvp_domain::canonical::hex32;
use dvp_domain::chain::{ChainCommand, ChainFact};
use dvp_domain::settlement::leg::LegKind;
use dvp_domain::settlement::{Finality, Happened, LegDone, Lock, RailAnswer};
use dvp_domain::terms::Terms;
use dvp_domain::time::Timestamp;
use dvp_store::chain::commands;
use dvp_store::chain::open_facts::{self, OpenFact};
use dvp_store::operators::audit;
use dvp_store::orders::executions::{self, Execution};
use dvp_store::workers::{self, Step, Worker, set_aside_for};
use metrics::counter;
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tracing::field::Empty;
use tracing::{Instrument, error, info, info_span, warn};
use uuid::Uuid;

use super::failed::{Failed, contained};
use super::step::{StepResult, take};
use super::{BACK_OFF, POLL, Wake};
use crate::chain::expected::{
    Difference, difference, difference_of_chain, is_compared, is_of_payment, other_times,
};
use crate::context::ChainConfig;
use crate::engine::knowledge::is_paid_there;
use crate::engine::{Engine, EngineError};
use crate::trace;
use crate::writer::Consumed;

/// Facts claimed at a time.
const PAGE: i64 = 512;
/// Entities whose facts are applied at a time; a page may begin one more each.
const ENTITIES_MAX: usize = 512;
/// The duration of a claim. Other workers apply the facts of one that has ended after this time.
const CLAIM: Duration = Duration::from_secs(10);

pub(super) async fn run(engine: &Engine, stop: watch::Receiver<bool>) {
    let mut wake = Wake::new(engine, &["dvp_facts"], stop).await;
    let mut taking = Taking {
        engine,
        worker: Uuid::new_v4(),
        busy: HashSet::new(),
        in_progress: JoinSet::new(),
        has_more: false,
    };
    loop {
        let pause = match taking.take_open().await {
            Ok(()) => POLL,
            Err(error) => {
                warn!(%error, "chain fact poll failed, will retry");
                BACK_OFF
            }
        };
        if !taking.finish_until(wake.wait(pause)).await {
            break;
        }
        wake.listen().await;
    }
    while taking.in_progress.join_next().await.is_some() {}
}

/// The entities whose facts are being applied, each by a task of its own: none waits for another's.
struct Taking<'a> {
    engine: &'a Engine,
    worker: Uuid,
    busy: HashSet<Vec<u8>>,
    in_progress: JoinSet<Vec<u8>>,
    /// Facts of a busy entity were read: they are read again when it is free.
    has_more: bool,
}

impl Taking<'_> {
    /// Starts applying the open facts.
    async fn take_open(&mut self) -> Result<(), EngineError> {
        self.has_more = false;
        let mut after = 0;
        loop {
            while self.busy.len() >= ENTITIES_MAX {
                let ended = self.in_progress.join_next().await;
                self.ended(ended);
            }
            let mut conn = self.engine.pool.acquire().await?;
            let facts = open_facts::claim(&mut conn, self.worker, CLAIM, after, PAGE).await?;
            drop(conn);
            let Some(last) = facts.last() else { return Ok(()) };
            after = last.turn;
            let mut by_entity: BTreeMap<Vec<u8>, Vec<OpenFact>> = BTreeMap::new();
            for fact in facts {
                by_entity.entry(fact.entity.clone()).or_default().push(fact);
            }
            for (entity, facts) in by_entity {
                if self.busy.contains(&entity) {
                    self.has_more = true;
                } else {
                    self.busy.insert(entity.clone());
                    let engine = self.engine.clone();
                    self.in_progress.spawn(async move {
                        Box::pin(take_in_order(&engine, facts)).await;
                        entity
                    });
                }
            }
        }
    }

    /// Waits until `woken` is ready, or an entity is free whose later facts were read. `false`: stop.
    async fn finish_until(&mut self, woken: impl Future<Output = bool>) -> bool {
        let mut woken = std::pin::pin!(woken);
        loop {
            tokio::select! {
                go_on = &mut woken => return go_on,
                Some(ended) = self.in_progress.join_next() => {
                    self.ended(Some(ended));
                    if self.has_more { return true; }
                }
            }
        }
    }

    fn ended(&mut self, ended: Option<Result<Vec<u8>, JoinError>>) {
        match ended {
            Some(Ok(entity)) => drop(self.busy.remove(&entity)),
            // Its facts are contained, so that no task of one fails. Were it otherwise, all are read again.
            Some(Err(error)) => {
                error!(%error, "task of chain facts failed, reading all open facts again");
                self.busy.clear();
            }
            None => self.busy.clear(),
        }
    }
}

/// A fact that fails is set aside, and the later facts of its entity wait for it.
async fn take_in_order(engine: &Engine, facts: Vec<OpenFact>) {
    for fact in facts {
        let put_off = match Box::pin(contained(take_one_until_done(engine, &fact))).await {
            Ok(()) => continue,
            Err(Failed::Later(EngineError::Busy)) => Err(EngineError::Busy),
            Err(failed) => put_off(engine, &fact, &failed.to_string()).await,
        };
        if let Err(error) = put_off {
            warn!(%error, fact = fact.id, "chain fact failed, will retry");
        }
        return;
    }
}

async fn take_one_until_done(engine: &Engine, fact: &OpenFact) -> Result<(), Failed> {
    while take_one(engine, fact).await? == StepResult::Stale {}
    Ok(())
}

async fn put_off(engine: &Engine, fact: &OpenFact, why: &str) -> Result<(), EngineError> {
    let (id, about, attempts) =
        (fact.id.to_string(), hex::encode(&fact.entity), fact.unwritten.saturating_add(1));
    let wait = set_aside_for(Worker::Facts, &id, &about, why, attempts);
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
    workers::at(Step::FactRead, &execution.terms.reference).await?;
    // Read after the version: a fact that another process consumes from here on changes the version.
    if !open_facts::is_next(&mut conn, fact.id, execution.version).await? {
        return Ok(StepResult::Ignored);
    }
    let terms = &execution.terms;
    let chain = if is_of_payment(reported) {
        engine.context.payout_chain_of(terms)
    } else {
        engine.context.chain_of(terms)
    };
    let chain = chain.map_err(EngineError::from)?;
    let mut requested = if is_compared(reported) {
        commands::list_requested(&mut conn, chain.chain_id, &fact.entity).await?
    } else {
        Vec::new()
    };
    drop(conn);
    if matches!(reported, ChainFact::Filled { .. }) && !terms.swaps() {
        // A restore may have forgotten that it was requested; it commits to the one payment of the order.
        let payout_ref = hex32(&LegKind::Payout.reference(&terms.reference));
        requested.push(ChainCommand::Fill { entity: terms.entity.clone(), payout_ref });
    }
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
    let was_forgotten =
        of_chain.is_none() && adopts_times(engine, (chain.chain_id, fact), reported, &requested).await?;
    let difference = of_chain.or_else(|| difference(reported, &requested)).filter(|_| !was_forgotten);
    // What was not requested yet may be requested by a later state.
    if let Some(difference) = difference.as_ref().filter(|difference| !difference.is_unrequested()) {
        return set_aside(engine, fact, difference).instrument(span).await;
    }
    let was_paid_there = matches!(reported, ChainFact::Filled { .. })
        && terms.crosses()
        && is_paid_there(engine, &execution).await.map_err(Failed::from)?;
    let Some(happened) =
        span.in_scope(|| happened(engine, (chain, terms), fact, reported, was_paid_there))?
    else {
        open_facts::consume(&mut *engine.pool.acquire().await?, &[fact.id]).await?;
        return Ok(StepResult::Ignored);
    };
    let is_refused = || execution.state.clone().step(terms, happened.clone()).is_err();
    if (difference.is_some() || is_refused()) && execution.state.takes_later(terms, &happened) {
        return keep(engine, fact, &execution).instrument(span).await;
    }
    if let Some(difference) = difference {
        return set_aside(engine, fact, &difference).instrument(span).await;
    }
    let consumed = Consumed { fact: Some(fact.id), ..Consumed::default() };
    let version = execution.version;
    let is_suspect = fact.unwritten > 0;
    let taken = take(engine, execution, happened, consumed, is_suspect).instrument(span).await?;
    if taken == StepResult::Stale {
        warn!(version, "settlement changed concurrently, applying the fact again");
    }
    Ok(taken)
}

/// A lock or a swap that the chain had before its command was written differs from it in the times alone: a restore has
/// forgotten the first command, and the second one takes its times.
async fn adopts_times(
    engine: &Engine,
    (chain_id, fact): (i64, &OpenFact),
    reported: &ChainFact,
    requested: &[ChainCommand],
) -> Result<bool, Failed> {
    let Some((times, at)) = other_times(reported, requested).zip(fact.block_time) else { return Ok(false) };
    let mut conn = engine.pool.acquire().await?;
    let adopted = commands::adopt_times(&mut conn, chain_id, &fact.entity, at, &times).await?;
    if adopted {
        warn!(fact = fact.id, %times, "the chain had this before it was requested here; its times are taken over");
    }
    Ok(adopted)
}

/// A fact that came too early is offered again after the settlement's next change.
async fn keep(engine: &Engine, fact: &OpenFact, execution: &Execution) -> Result<StepResult, Failed> {
    let state = execution.state.name();
    info!(
        fact = fact.id,
        state, "chain fact came before its order waits for it; it is kept until the order changes"
    );
    let mut conn = engine.pool.acquire().await?;
    open_facts::keep(&mut conn, fact.id, execution.version).await?;
    Ok(StepResult::Ignored)
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
    (chain, terms): (&ChainConfig, &Terms),
    fact: &OpenFact,
    reported: &ChainFact,
    is_paid_there: bool,
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
            let deadlines = windows.deadlines(terms, lock.fill_deadline, *timelock);
            let lock = Lock::new(fact.tx_hash.clone(), time(*timelock), deadlines);
            Happened::Locked { lock, at }
        }
        // The block is older: what matters is whether there is time for the payout now.
        ChainFact::Filled { .. } if !is_paid_there => Happened::Filled { at: engine.now() },
        // A restored database has forgotten the payment.
        ChainFact::Filled { .. } => Happened::Filled { at },
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
            contract_address: chain.contracts_of(terms).map_err(EngineError::from)?.anchor.clone(),
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

//! Facts from the chain, taken in order per settlement and side by side across settlements.

use std::collections::BTreeMap;

use dvp_domain::settlement::{Finality, Happened, LegDone, Lock, RailAnswer};
use dvp_domain::time::Timestamp;
use futures_util::future::join_all;
use tokio::sync::watch;
use tracing::{Instrument, error, info_span, warn};

use super::step::{Taken, take};
use super::{BACK_OFF, POLL, Wake};
use crate::chain::ChainFact;
use crate::context::now;
use crate::engine::{Engine, EngineError};
use crate::store::commands::{self, OpenFact};
use crate::store::executions;
use crate::writer::Consumed;

/// Facts read at a time.
const PAGE: i64 = 512;

pub(super) async fn run(engine: &Engine, stop: watch::Receiver<bool>) {
    let mut wake = Wake::new(engine, "dvp_facts", stop).await;
    loop {
        let pause = match take_open(engine).await {
            Ok(()) => POLL,
            Err(error) => {
                warn!(%error, "facts are not taken in; trying again");
                BACK_OFF
            }
        };
        if !wake.wait(pause).await {
            return;
        }
        if wake.listener.is_none() {
            wake.listen(engine).await;
        }
    }
}

async fn take_open(engine: &Engine) -> Result<(), EngineError> {
    let mut after = 0;
    loop {
        let mut conn = engine.pool.acquire().await?;
        let facts = commands::list_open_facts(&mut conn, after, PAGE).await?;
        drop(conn);
        let Some(last) = facts.last() else { return Ok(()) };
        after = last.id;
        let mut by_entity: BTreeMap<Vec<u8>, Vec<OpenFact>> = BTreeMap::new();
        for fact in facts {
            by_entity.entry(fact.entity.clone()).or_default().push(fact);
        }
        let taken = join_all(by_entity.into_values().map(|facts| take_in_order(engine, facts))).await;
        // What cannot be taken in stays open and holds up nobody else's.
        for error in taken.into_iter().filter_map(Result::err) {
            warn!(%error, "a fact is not taken in; trying again");
        }
    }
}

async fn take_in_order(engine: &Engine, facts: Vec<OpenFact>) -> Result<(), EngineError> {
    for fact in facts {
        while take_one(engine, &fact).await? == Taken::Stale {}
    }
    Ok(())
}

async fn take_one(engine: &Engine, fact: &OpenFact) -> Result<Taken, EngineError> {
    let mut conn = engine.pool.acquire().await?;
    let Some(execution) = executions::find_by_entity(&mut conn, &fact.entity).await? else {
        // Somebody else's use of the contracts, or a break: reconciliation says which. It is kept as seen.
        error!(entity = %hex::encode(&fact.entity), ?fact.fact, "a fact about no execution of ours");
        commands::consume_facts(&mut conn, &[fact.id]).await?;
        return Ok(Taken::Ignored);
    };
    let fill_deadline = match fact.fact {
        ChainFact::Created { .. } => {
            commands::find_fill_deadline(&mut conn, execution.terms.reference.as_str()).await?
        }
        _ => None,
    };
    drop(conn);
    let span = info_span!(
        "fact",
        intent_id = %execution.terms.request.intent_id,
        reference = %execution.terms.reference,
        tx_hash = %fact.tx_hash,
    );
    let happened = happened(engine, fact, fill_deadline);
    let consumed = Consumed { fact: Some(fact.id), effect: None };
    let version = execution.version;
    let taken = take(engine, execution, happened, consumed).instrument(span).await?;
    if taken == Taken::Stale {
        warn!(version, "settlement moved while a fact was taken in; again");
    }
    Ok(taken)
}

/// `fill_deadline`: of a lock, in Unix seconds.
fn happened(engine: &Engine, fact: &OpenFact, fill_deadline: Option<u64>) -> Happened {
    let at = fact.block_time.map_or_else(now, Timestamp::from);
    match &fact.fact {
        ChainFact::Created { timelock, .. } => {
            let time = |secs: u64| {
                Timestamp::from_millis(i64::try_from(secs).unwrap_or(i64::MAX).saturating_mul(1000))
            };
            let windows = engine.context.windows;
            let lock = Lock {
                tx_hash: fact.tx_hash.clone(),
                timelock_expires_at: time(*timelock),
                begin_before: fill_deadline.map(|deadline| time(windows.begin_before(deadline))),
                refunded: false,
            };
            Happened::Locked { lock, at }
        }
        ChainFact::Filled { .. } => Happened::Filled,
        ChainFact::Settled => Happened::Settled { tx_hash: fact.tx_hash.clone() },
        ChainFact::Cancelled | ChainFact::Refunded => Happened::Refunded,
        ChainFact::Transferred { .. } => Happened::Payout {
            answer: RailAnswer::Done(LegDone { provider_reference: fact.tx_hash.clone(), occurred_at: at }),
            at,
        },
        ChainFact::Anchored => Happened::Anchored(Finality {
            tx_hash: fact.tx_hash.clone(),
            contract_address: engine.context.chain.anchor.clone(),
            chain_id: u64::try_from(fact.chain_id).unwrap_or_default(),
        }),
        ChainFact::CommandFailed { command, code, message } if command == "transfer" => {
            let (code, message) = (code.clone(), message.clone());
            Happened::Payout { answer: RailAnswer::Failed { code, message, retryable: false }, at }
        }
        ChainFact::CommandFailed { command, code, message } => {
            if command != "create" {
                error!(%command, %code, %message, "a command failed for good");
            }
            Happened::LockFailed { code: code.clone(), message: message.clone(), at }
        }
    }
}

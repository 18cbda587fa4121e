//! Hands orders that the market meets to the writer, and reads what became of them.

use std::collections::HashMap;
use std::time::Duration;

use dvp_domain::permit::PermitDefect;
use dvp_domain::settlement::{Happened, State};
use dvp_store::orders::executions::{self, Execution};
use dvp_store::orders::intents::Tenant;
use futures_util::future::join_all;
use tracing::{debug, info, warn};

use super::book::Met;
use crate::engine::{Engine, EngineError, PermitCheck};
use crate::writer::{
    Change, Consumed, FillAttempt, KnownWallet, Outcome, Submission, Unfilled, Unit, WriteError,
};

/// An order whose wallet is not known so soon is tried again; the look-up goes on.
const WALLET_WITHIN: Duration = Duration::from_secs(1);

/// What became of an order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Attempted {
    /// It was filled or has ended.
    Ended(Box<str>),
    /// The market that the writer saw does not meet it.
    Missed,
    /// The market meets it, and something else prevents the fill.
    Postponed(&'static str),
}

impl Attempted {
    pub(super) const fn as_str(&self) -> &'static str {
        match self {
            Self::Ended(_) => "ended",
            Self::Missed => "missed",
            Self::Postponed(why) => why,
        }
    }
}

/// Fills orders of one pair in the given order.
pub(super) async fn fill(engine: &Engine, orders: Vec<Met>) -> Vec<(i64, Attempted)> {
    let mut executions = match load(engine, &orders).await {
        Ok(executions) => executions,
        Err(error) => {
            warn!(%error, orders = orders.len(), "resting orders could not be read, will retry");
            return orders.iter().map(|met| (met.number, Attempted::Postponed("unavailable"))).collect();
        }
    };
    let prepared = orders.into_iter().map(|met| {
        let execution = executions.remove(&*met.reference).filter(|found| found.state == State::Resting);
        async move {
            let attempt = match execution {
                Some(execution) => prepare(engine, execution).await,
                None => Err(Attempted::Ended(met.reference.clone())),
            };
            (met, attempt)
        }
    });
    // Queued one after the other, so that they are decided in this order.
    let mut queued = Vec::new();
    for (met, attempt) in join_all(prepared).await {
        let pending = match attempt {
            Ok(attempt) => {
                engine.writer.enqueue_patiently(Unit::of_fill(attempt)).await.map_err(|error| failed(&error))
            }
            Err(how) => Err(how),
        };
        queued.push((met, pending));
    }
    let mut ended = Vec::with_capacity(queued.len());
    for (met, pending) in queued {
        let how = match pending {
            Ok(pending) => {
                let done = pending.await.unwrap_or(Err(WriteError::Stopped));
                match done {
                    Ok(done) => filled(engine, &met, done.outcome).await,
                    Err(error) => failed(&error),
                }
            }
            Err(how) => how,
        };
        ended.push((met.number, how));
    }
    ended
}

async fn load(engine: &Engine, orders: &[Met]) -> Result<HashMap<String, Execution>, EngineError> {
    let references: Vec<&str> = orders.iter().map(|met| &*met.reference).collect();
    let mut conn = engine.pool().acquire().await?;
    let found = executions::list_by_references(&mut conn, &references).await?;
    Ok(found.into_iter().map(|found| (found.terms.reference.to_string(), found)).collect())
}

/// With what is known of the wallet that pays.
async fn prepare(engine: &Engine, execution: Execution) -> Result<FillAttempt, Attempted> {
    let tenant =
        Tenant { partner_id: execution.terms.partner_id.to_string(), livemode: execution.terms.livemode };
    let request = execution.terms.request.clone();
    let wallet = match engine.wallet_of(&tenant, &request) {
        None => None,
        Some(PermitCheck::Judged(judged)) => judged.known_wallet(),
        Some(PermitCheck::UnknownWallet(key)) => {
            let look_up = engine.wallets().look_up(&tenant.partner_id, &key);
            match tokio::time::timeout(WALLET_WITHIN, look_up).await {
                Ok(Ok(facts)) => Some(KnownWallet { key, facts }),
                Ok(Err(_)) | Err(_) => return Err(Attempted::Postponed("wallet_unknown")),
            }
        }
    };
    let trace = execution.terms.trace;
    Ok(FillAttempt { execution, submission: Submission { tenant, request, wallet, turn: None, trace } })
}

fn failed(error: &WriteError) -> Attempted {
    match error {
        // Somebody cancelled, ended or filled it: the next attempt reads it again.
        WriteError::Stale { .. } => Attempted::Postponed("changed"),
        WriteError::Busy
        | WriteError::Stopped
        | WriteError::Unavailable(_)
        | WriteError::Slow(_)
        | WriteError::Store(_) => Attempted::Postponed("unavailable"),
    }
}

async fn filled(engine: &Engine, met: &Met, outcome: Outcome) -> Attempted {
    match outcome {
        Outcome::Written => {
            info!(reference = &*met.reference, "resting order filled");
            Attempted::Ended(met.reference.clone())
        }
        Outcome::Unfilled(Unfilled::NotMet) => Attempted::Missed,
        Outcome::Unfilled(Unfilled::Permit(PermitDefect::NonceUsed { .. })) => {
            end_unusable(engine, met).await
        }
        Outcome::Unfilled(why) => {
            debug!(reference = &*met.reference, ?why, "resting order not filled");
            Attempted::Postponed(why.as_str())
        }
        _ => Attempted::Postponed("unavailable"),
    }
}

/// The permit's nonce was used on the chain for something else: the order can never be filled.
async fn end_unusable(engine: &Engine, met: &Met) -> Attempted {
    let done = async {
        let mut conn = engine.pool().acquire().await?;
        let found = executions::find_by_reference(&mut conn, &met.reference).await?;
        drop(conn);
        let Some(execution) = found.filter(|found| found.state == State::Resting) else { return Ok(()) };
        let Execution { terms, state, version, last_sequence, last_occurred_at } = execution;
        let refused = Happened::Refused {
            code: "permit_nonce_used".to_owned(),
            message: "the permit's nonce was used on the chain while the order rested".to_owned(),
            at: engine.now(),
        };
        let Ok(step) = state.step(&terms, refused.between(last_occurred_at, engine.now())) else {
            return Ok(());
        };
        let consumed = Consumed::default();
        let change = Change {
            terms,
            version,
            last_sequence,
            last_occurred_at,
            step: Some(step),
            consumed,
            was_open: false,
        };
        match engine.writer.write_patiently(Unit::of_settlement(change, false)).await {
            Ok(_) | Err(WriteError::Stale { .. }) => Ok(()),
            Err(error) => Err(EngineError::from(error)),
        }
    };
    match done.await {
        Ok(()) => Attempted::Ended(met.reference.clone()),
        Err(error) => {
            warn!(%error, reference = &*met.reference, "a resting order could not be ended, will retry");
            Attempted::Postponed("unavailable")
        }
    }
}

//! Hands orders that the market meets to the writer, and reads what became of them.

use std::collections::HashMap;
use std::time::Duration;

use dvp_domain::money::Minor;
use dvp_domain::permit::PermitDefect;
use dvp_domain::plan::InputFunding;
use dvp_domain::settlement::{Happened, State};
use dvp_domain::terms::Terms;
use dvp_store::StoreError;
use dvp_store::orders::deposits;
use dvp_store::orders::executions::{self, Execution};
use dvp_store::orders::intents::Tenant;
use dvp_store::workers::{self, Items, Step, guarded};
use futures_util::future::join_all;
use tracing::{debug, info, warn};

use super::book::Met;
use crate::engine::knowledge::keeps_from_market;
use crate::engine::{Engine, EngineError, PermitCheck};
use crate::writer::{
    Change, Consumed, FillAttempt, KnownWallet, Outcome, Submission, Unfilled, Unit, WriteError,
};

/// An order whose wallet is not known so soon is tried again; the look-up goes on.
const WALLET_WITHIN: Duration = Duration::from_secs(1);

/// The longest time to prepare an order, its wallet included.
const PREPARE_MAX: Duration = Duration::from_secs(2);
/// The longest time to fill orders that are handed to the writer together.
const FILL_MAX: Duration = Duration::from_secs(10);

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

/// Fills orders of one pair in the given order. Where that fails, each is filled by itself, and those that fail are set
/// aside.
pub(super) async fn fill(engine: &Engine, items: &Items, orders: Vec<Met>) -> Vec<(i64, Attempted)> {
    let together = guarded(FILL_MAX, fill_together(engine, items, &orders)).await;
    match (together, orders.as_slice()) {
        (Ok(attempted), _) => attempted,
        (Err(error), [met]) => vec![failed_alone(items, met, error.to_string()).await],
        (Err(error), _) => {
            warn!(%error, orders = orders.len(), "resting orders could not be filled together, filling each alone");
            let alone = orders.iter().map(|met| async move {
                let only = std::slice::from_ref(met);
                match guarded(FILL_MAX, fill_together(engine, items, only)).await {
                    Ok(attempted) => attempted,
                    Err(error) => vec![failed_alone(items, met, error.to_string()).await],
                }
            });
            join_all(alone).await.into_iter().flatten().collect()
        }
    }
}

async fn failed_alone(items: &Items, met: &Met, why: String) -> (i64, Attempted) {
    items.note(&met.reference, &met.reference, Err(why)).await;
    (met.number, Attempted::Postponed("unavailable"))
}

async fn fill_together(
    engine: &Engine,
    items: &Items,
    orders: &[Met],
) -> Result<Vec<(i64, Attempted)>, EngineError> {
    let mut executions = load(engine, orders).await?;
    let prepared = orders.iter().map(|met| {
        let execution = executions.remove(&*met.reference).filter(|found| found.state == State::Resting);
        async move {
            let Some(execution) = execution else {
                return (met, Err(Attempted::Ended(met.reference.clone())));
            };
            let preparing = async {
                workers::at(Step::RangePrepare, &met.reference).await?;
                Ok::<_, StoreError>(prepare(engine, execution).await)
            };
            match Box::pin(guarded(PREPARE_MAX, preparing)).await {
                Ok(attempt) => {
                    if items.is_set_aside(&met.reference) {
                        items.note(&met.reference, &met.reference, Ok(())).await;
                    }
                    (met, attempt)
                }
                Err(error) => (met, Err(failed_alone(items, met, error.to_string()).await.1)),
            }
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
                    Ok(done) => filled(engine, met, done.outcome).await,
                    Err(error) => failed(&error),
                }
            }
            Err(how) => how,
        };
        ended.push((met.number, how));
    }
    Ok(ended)
}

async fn load(engine: &Engine, orders: &[Met]) -> Result<HashMap<String, Execution>, EngineError> {
    for met in orders {
        workers::at(Step::RangeRead, &met.reference).await?;
    }
    let references: Vec<&str> = orders.iter().map(|met| &*met.reference).collect();
    let mut conn = engine.pool().acquire().await?;
    let found = executions::list_by_references(&mut conn, &references).await?;
    Ok(found.into_iter().map(|found| (found.terms.reference.to_string(), found)).collect())
}

/// With what is known of the wallet that pays.
async fn prepare(engine: &Engine, execution: Execution) -> Result<FillAttempt, Attempted> {
    match keeps_from_market(engine, &execution).await {
        Ok(None) => {}
        Ok(Some(why)) => return Err(Attempted::Postponed(why)),
        Err(error) => {
            warn!(%error, "what is known of a resting order could not be read, will retry");
            return Err(Attempted::Postponed("unavailable"));
        }
    }
    let tenant =
        Tenant { partner_id: execution.terms.partner_id.to_string(), livemode: execution.terms.livemode };
    let wallet = match engine.wallet_of(&tenant, &execution.terms.request) {
        None => None,
        Some(PermitCheck::Judged(judged)) => judged.known_wallet(),
        Some(PermitCheck::Unknown(unknown)) => {
            let look_up = engine.wallets().look_up(&tenant.partner_id, &unknown.question);
            match tokio::time::timeout(WALLET_WITHIN, look_up).await {
                Ok(Ok(answer)) => unknown.judged(answer).known_wallet(),
                Ok(Err(_)) | Err(_) => return Err(Attempted::Postponed("wallet_unknown")),
            }
        }
    };
    let deposited = match execution.terms.plan.funding {
        InputFunding::Deposit => Some(deposited(engine, &execution.terms).await.map_err(|error| {
            warn!(%error, "a deposit could not be read, will retry");
            Attempted::Postponed("unavailable")
        })?),
        InputFunding::Permit | InputFunding::PartnerBalance { .. } => None,
    };
    if deposited == Some(Minor::ZERO) {
        return Err(Attempted::Postponed("deposit"));
    }
    Ok(FillAttempt { submission: submission(&execution, wallet), execution, deposited, filled_as: None })
}

async fn deposited(engine: &Engine, terms: &Terms) -> Result<Minor, EngineError> {
    let chain = engine.context().chain_of(terms)?;
    let gate = chain.contracts_of(terms)?.gate.as_deref();
    let mut conn = engine.pool().acquire().await?;
    Ok(deposits::find_total(&mut conn, terms, chain.chain_id, gate).await?)
}

/// A resting order, to be decided as a new one.
pub(super) fn submission(execution: &Execution, wallet: Option<KnownWallet>) -> Submission {
    let terms = &execution.terms;
    Submission {
        tenant: Tenant { partner_id: terms.partner_id.to_string(), livemode: terms.livemode },
        request: terms.request.clone(),
        wallet,
        turn: None,
        fills: Some(terms.reference.to_string()),
        trace: terms.trace,
    }
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

/// Ends an order that is not filled, unless it has changed meanwhile.
pub(super) async fn end(
    engine: &Engine,
    execution: Execution,
    code: &str,
    message: &str,
) -> Result<(), EngineError> {
    let Execution { terms, state, version, last_sequence, last_occurred_at } = execution;
    let now = engine.now();
    let refused = Happened::Refused { code: code.to_owned(), message: message.to_owned(), at: now };
    let Ok(step) = state.step(&terms, refused.between(last_occurred_at, now)) else { return Ok(()) };
    let change = Change {
        terms,
        version,
        last_sequence,
        last_occurred_at,
        step: Some(step),
        consumed: Consumed::default(),
        was_open: false,
        was_held: false,
    };
    match engine.writer.write_patiently(Unit::of_settlement(change, false)).await {
        Ok(_) | Err(WriteError::Stale { .. }) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// The permit's nonce was used on the chain for something else: the order can never be filled.
async fn end_unusable(engine: &Engine, met: &Met) -> Attempted {
    let done = async {
        let mut conn = engine.pool().acquire().await?;
        let found = executions::find_by_reference(&mut conn, &met.reference).await?;
        drop(conn);
        let Some(execution) = found.filter(|found| found.state == State::Resting) else { return Ok(()) };
        let why = "the permit's nonce was used on the chain while the order rested";
        end(engine, execution, "permit_nonce_used", why).await
    };
    match done.await {
        Ok(()) => Attempted::Ended(met.reference.clone()),
        Err(error) => {
            warn!(%error, reference = &*met.reference, "a resting order could not be ended, will retry");
            Attempted::Postponed("unavailable")
        }
    }
}

//! Orders of a chain's coin that wait for their user's deposit: once it is there, the order is decided at the market under
//! its own bounds, as a new one is, and filled or ended. What is not taken is the depositor's to reclaim from the gate.

use std::time::Duration;

use dvp_domain::decision::Reason;
use dvp_domain::settlement::State;
use dvp_store::orders::deposits::{self, FullDeposit};
use dvp_store::orders::executions::{self, Execution};
use futures_util::future::join_all;
use tracing::{debug, info, warn};

use super::attempt::{end, submission};
use crate::engine::knowledge::keeps_from_market;
use crate::engine::{Engine, EngineError};
use crate::writer::{FillAttempt, Outcome, Unfilled, Unit, WriteError};

/// How often waiting orders are compared with the deposits.
const EVERY: Duration = Duration::from_secs(1);
/// Waiting orders that are compared at a time.
const PAGE: i64 = 1_000;
/// An order that something else keeps from its fill is looked at again after this time.
const AGAIN: Duration = Duration::from_secs(5);

/// What became of an order whose deposit was looked at.
enum Looked {
    /// It was filled, has ended, or changed meanwhile.
    Done,
    /// The fill would take more.
    TooLittle,
    Later(&'static str),
}

/// Fills orders whose deposit is there, for ever.
pub(super) async fn run(engine: &Engine) {
    let mut after = String::new();
    loop {
        match fill_page(engine, &after).await {
            Ok(Some(last)) => {
                after = last;
                continue;
            }
            Ok(None) => {}
            Err(error) => warn!(%error, "deposits could not be compared with waiting orders, will retry"),
        }
        after.clear();
        tokio::time::sleep(EVERY).await;
    }
}

/// Returns the page's last order if there may be more.
async fn fill_page(engine: &Engine, after: &str) -> Result<Option<String>, EngineError> {
    let mut conn = engine.pool().acquire().await?;
    let (last, deposited) = deposits::list(&mut conn, after, PAGE).await?;
    let references: Vec<&str> = deposited.iter().map(|one| one.reference.as_str()).collect();
    let found = executions::list_by_references(&mut conn, &references).await?;
    drop(conn);
    let of = |one: &FullDeposit| {
        found.iter().find(|found| found.terms.reference.as_str() == one.reference).cloned()
    };
    join_all(deposited.iter().map(|one| look(engine, one, of(one)))).await;
    Ok(last)
}

/// One order's failure is its own.
async fn look(engine: &Engine, deposited: &FullDeposit, execution: Option<Execution>) {
    let Some(execution) = execution.filter(|found| found.state == State::Resting) else { return };
    // What cannot be read is looked at again.
    if !matches!(keeps_from_market(engine, &execution).await, Ok(None)) {
        return;
    }
    let looked = fill(engine, deposited, execution).await;
    let noted = async {
        let mut conn = engine.pool().acquire().await?;
        match looked {
            Ok(Looked::Done) => Ok(()),
            Ok(Looked::TooLittle) => {
                deposits::mark_tried(&mut conn, deposited).await.map_err(EngineError::from)
            }
            Ok(Looked::Later(why)) => {
                debug!(reference = deposited.reference, why, "deposited order not filled yet");
                Ok(deposits::put_off(&mut conn, &deposited.reference, AGAIN).await?)
            }
            Err(error) => {
                deposits::put_off(&mut conn, &deposited.reference, AGAIN).await?;
                Err(error)
            }
        }
    };
    let noted: Result<(), EngineError> = noted.await;
    if let Err(error) = noted {
        warn!(%error, reference = deposited.reference, "a deposited order could not be filled, will retry");
    }
}

async fn fill(engine: &Engine, deposited: &FullDeposit, execution: Execution) -> Result<Looked, EngineError> {
    let attempt = FillAttempt {
        submission: submission(&execution, None),
        deposited: Some(deposited.total),
        filled_as: None,
        execution: execution.clone(),
    };
    let done = match engine.writer.write_patiently(Unit::of_fill(attempt)).await {
        Ok(done) => done,
        Err(WriteError::Stale { .. }) => return Ok(Looked::Done),
        Err(error) => return Err(error.into()),
    };
    match done.outcome {
        Outcome::Written => {
            info!(reference = deposited.reference, "deposited order filled");
            Ok(Looked::Done)
        }
        Outcome::Unfilled(Unfilled::Deposit) => Ok(Looked::TooLittle),
        Outcome::Unfilled(Unfilled::Rejected(reason)) if is_final(reason) => {
            let why =
                "the market did not fill the order when its deposit had come; the deposit can be reclaimed";
            end(engine, execution, reason.as_str(), why).await?;
            Ok(Looked::Done)
        }
        Outcome::Unfilled(why) => Ok(Looked::Later(why.as_str())),
        _ => Ok(Looked::Later("unavailable")),
    }
}

/// Whether the market, or the order's quote, has refused it. A limit, a pause or a halt may end before its deadline.
const fn is_final(reason: Reason) -> bool {
    match reason {
        Reason::Limit(_) | Reason::ChainHalted => false,
        Reason::BeneficiaryRequiredForRemittance
        | Reason::PermitRequired
        | Reason::QuoteNotFound
        | Reason::QuoteExpired
        | Reason::QuoteAlreadyUsed
        | Reason::QuoteMismatch(_)
        | Reason::NoLiquidity
        | Reason::BelowMinimumOutput
        | Reason::AboveMaximumInput
        | Reason::BeneficiaryAccountRequiredForFiatOutput
        | Reason::BeneficiaryIncompleteForJitPayout
        | Reason::BeneficiaryAddressRequiredForRail => true,
    }
}

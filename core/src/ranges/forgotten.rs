//! Orders that rest here and were filled: the database was restored to a moment before their fill, and their chain has
//! their lock or their swap. Each is filled again with the same amounts, which the chain's hash of the terms proves.
//! Until the chain's events up to the start of this process are read, no order from before it is filled.

use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use dvp_domain::chain::{ChainFact, OutputArgs};
use dvp_domain::intent::Bounds;
use dvp_domain::money::Minor;
use dvp_domain::plan::Plan;
use dvp_domain::range::Range;
use dvp_domain::settlement::State;
use dvp_domain::terms::Terms;
use dvp_domain::time::Timestamp;
use dvp_store::StoreError;
use dvp_store::chain as store;
use dvp_store::orders::executions::{self, Execution};
use dvp_store::orders::ranges;
use dvp_store::reconcile::wallets::list_wallets;
use tracing::{error, warn};

use super::attempt::submission;
use crate::chain::expected::binding;
use crate::context::Context;
use crate::engine::{Engine, EngineError};
use crate::writer::plan::{agreed, output_token};
use crate::writer::{FillAttempt, FilledAs, Outcome, Unit, WriteError};

/// How often the orders are looked for, until the chains are read.
const EVERY: Duration = Duration::from_millis(500);
/// How long before its block a transaction's order was filled at most, and how far the clocks may differ.
const FILLED_BEFORE: TimeDelta = TimeDelta::minutes(10);
const CLOCKS: TimeDelta = TimeDelta::minutes(1);
/// How far from the output that was expected at its acceptance an order's output is looked for, in minor units.
const AROUND_MAX: u128 = 1_000_000;

/// The first look. Where nothing is forgotten and the chains are read, nothing waits after it.
pub(super) async fn begin(engine: &Engine) {
    let chains: Vec<i64> = engine.context().chains.iter().map(|chain| chain.chain_id).collect();
    let _ = tokio::time::timeout(EVERY, look(engine, &chains)).await;
}

/// Fills the orders again, until every chain is read and none is left; never returns.
pub(super) async fn run(engine: &Engine) {
    let chains: Vec<i64> = engine.context().chains.iter().map(|chain| chain.chain_id).collect();
    while !engine.forgotten.is_done(&chains) {
        if let Err(error) = look(engine, &chains).await {
            warn!(%error, "resting orders could not be compared with their chains, will retry");
        }
        tokio::time::sleep(EVERY).await;
    }
    std::future::pending().await
}

async fn look(engine: &Engine, chains: &[i64]) -> Result<(), EngineError> {
    let mut conn = engine.pool().acquire().await?;
    let mut read = Vec::new();
    for chain in chains {
        if store::has_facts_since(&mut conn, *chain, engine.started_at().to_utc()).await? {
            read.push(*chain);
        }
    }
    // After it is known what is read.
    let begun = ranges::list_begun(&mut conn).await?;
    drop(conn);
    for reference in begun {
        if engine.forgotten.lock().unfound.contains(&reference) {
            continue;
        }
        match fill_again(engine, &reference, &read).await {
            Ok(Again::Filled) => drop(engine.forgotten.lock().kept.remove(&reference)),
            Ok(Again::Later) => drop(engine.forgotten.lock().kept.insert(reference)),
            Ok(Again::Unfound) => {
                give_up(engine, reference, "its amounts or its provider could not be found")
            }
            Err(EngineError::Corrupt(why)) => give_up(engine, reference, &why),
            Err(error) => return Err(error),
        }
    }
    engine.forgotten.lock().read.extend(read);
    Ok(())
}

fn give_up(engine: &Engine, reference: String, why: &str) {
    error!(
        reference,
        why, "a resting order was filled before the restore, and cannot be filled again: it rests"
    );
    let mut known = engine.forgotten.lock();
    known.kept.insert(reference.clone());
    known.unfound.insert(reference);
}

/// What became of an order.
enum Again {
    /// It is filled, or rests no more.
    Filled,
    Later,
    Unfound,
}

/// `read`: the chains whose events are known.
async fn fill_again(engine: &Engine, reference: &str, read: &[i64]) -> Result<Again, EngineError> {
    let mut conn = engine.pool().acquire().await?;
    let found = executions::find_by_reference(&mut conn, reference).await?;
    let Some(execution) = found.filter(|found| found.state == State::Resting) else {
        return Ok(Again::Filled);
    };
    let terms = &execution.terms;
    let chain = engine.context().chain_of(terms)?.chain_id;
    let payout_chain = engine.context().payout_chain_of(terms)?.chain_id;
    let entity = hex::decode(terms.entity.trim_start_matches("0x"))
        .map_err(|error| StoreError::corrupt("execution", error))?;
    let events = store::list_events(&mut conn, &entity).await?;
    let wallets = list_wallets(&mut conn).await?;
    drop(conn);
    let (context, searched) = (Arc::clone(&engine.context), terms.clone());
    let searching = tokio::task::spawn_blocking(move || filled_as(&context, &searched, &events, &wallets));
    let Some(filled_as) = searching.await.map_err(|error| StoreError::corrupt("chain_log", error))? else {
        // The chain that it is paid on may have been read before the one that has its lock, or after it.
        let is_read = [chain, payout_chain].iter().all(|chain| read.contains(chain));
        return Ok(if is_read { Again::Unfound } else { Again::Later });
    };
    warn!(
        reference,
        ?filled_as,
        "the order was filled before the restore, it is filled again as its chain has it"
    );
    match write(engine, execution, filled_as).await {
        Ok(Outcome::Written) => Ok(Again::Filled),
        Ok(outcome) => {
            warn!(reference, ?outcome, "the order could not be filled again, will retry");
            Ok(Again::Later)
        }
        Err(WriteError::Stale { .. }) => Ok(Again::Later),
        Err(error) => Err(error.into()),
    }
}

async fn write(engine: &Engine, execution: Execution, filled_as: FilledAs) -> Result<Outcome, WriteError> {
    let attempt = FillAttempt {
        submission: submission(&execution, None),
        deposited: None,
        filled_as: Some(filled_as),
        execution,
    };
    Ok(engine.writer.write_patiently(Unit::of_fill(attempt)).await?.outcome)
}

/// Fills an order of money for the amounts that operators have found, by the provider that it was to be filled by.
pub(crate) async fn fill_as_found(
    engine: &Engine,
    execution: Execution,
    [input, output]: [Minor; 2],
) -> Result<Outcome, WriteError> {
    let Plan { solver_id: provider_id, solver_wallet: wallet, .. } = execution.terms.plan.clone();
    write(engine, execution, FilledAs { input, output, provider_id, wallet }).await
}

/// The amounts of the lock or the swap among an order's events, and whose wallet it names: of several providers' the one
/// that the order was to be filled by. `None`: they are not found.
fn filled_as(
    context: &Context,
    terms: &Terms,
    events: &[(ChainFact, DateTime<Utc>)],
    wallets: &[(String, String)],
) -> Option<FilledAs> {
    let begun = events.iter().find_map(|(fact, at)| match fact {
        ChainFact::Created { amount, lock, .. } => Some((amount, &lock.solver, &lock.terms, *at)),
        ChainFact::Settled { swap: Some(swap) } => Some((&swap.amount, &swap.solver, &swap.terms, *at)),
        _ => None,
    });
    let (input, solver, hash, at) = begun?;
    let input = Minor::parse(input).ok()?;
    let paid = events.iter().filter_map(|(fact, _)| match fact {
        ChainFact::Transferred { amount, .. } => Minor::parse(amount).ok(),
        _ => None,
    });
    let is_it = |output: &Minor| {
        let agreed = agreed(terms, [input, *output]);
        let bound = || {
            let args: OutputArgs = output_token(context, terms).ok()?;
            binding(&OutputArgs { amount: output.to_string(), ..args }, &agreed)
        };
        let found = if terms.swaps() { bound() } else { Some(agreed) };
        found.is_some_and(|found| found.eq_ignore_ascii_case(hash))
    };
    let output = paid.chain(outputs(terms, at)).find(is_it)?;
    let expected = terms.plan.slices.iter().map(|slice| (&slice.provider_id, &slice.wallet));
    let known = wallets.iter().map(|(provider, wallet)| (provider, wallet));
    let (provider, _) = expected.chain(known).find(|(_, wallet)| wallet.eq_ignore_ascii_case(solver))?;
    Some(FilledAs { input, output, provider_id: provider.clone(), wallet: solver.clone() })
}

/// The outputs that an order may have been filled for before a block, the likeliest first.
fn outputs(terms: &Terms, at: DateTime<Utc>) -> Box<dyn Iterator<Item = Minor> + '_> {
    if let Some(range) = Range::of(&terms.request) {
        let last = (at + CLOCKS).timestamp_millis().min(range.deadline.millis());
        let first = (at - FILLED_BEFORE).timestamp_millis().max(range.received_at.millis());
        let mut before = None;
        let falling = (first..=last).rev().map(move |at| range.output_at(Timestamp::from_millis(at)));
        return Box::new(falling.filter(move |output| before.replace(*output) != Some(*output)));
    }
    if let Bounds::ExactOutput { output, .. } = terms.request.bounds {
        return Box::new(std::iter::once(output));
    }
    let expected = terms.plan.priced.output.get();
    let around = (1..=AROUND_MAX).flat_map(move |by| [expected.checked_add(by), expected.checked_sub(by)]);
    Box::new(std::iter::once(expected).chain(around.flatten()).map(Minor::new))
}

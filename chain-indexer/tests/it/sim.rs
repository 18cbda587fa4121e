//! The indexer over simulated chains, and the relayer over simulated nodes; `drill chain-sim` runs many more seeds.

#![expect(clippy::unwrap_used, reason = "a test without a database has failed")]

use dvp_chain_indexer::sim::{Outcome, RelayOutcome, SimDatabase, run_relay_seed, run_seed};

async fn run(from: u64, count: u64) -> Vec<Outcome> {
    let database = SimDatabase::create().await.unwrap();
    let mut outcomes = Vec::new();
    for seed in from..from + count {
        match run_seed(&database, seed).await {
            Ok(outcome) => outcomes.push(outcome),
            Err(broken) => panic!("seed {seed}: {broken}"),
        }
    }
    outcomes
}

#[tokio::test]
async fn rows_are_the_chains_and_facts_final_or_retracted_under_all_faults() {
    let outcomes = run(1, 25).await;
    let unwound = outcomes.iter().filter(|o| o.unwound > 0).count();
    assert!(unwound > 0, "no chain forked under us");
    let sum = |of: fn(&Outcome) -> u32| outcomes.iter().map(of).sum::<u32>();
    assert!(sum(|o| o.errors) > 0 && sum(|o| o.disturbed) > 0, "nothing went wrong");
}

/// Seeds that once violated a condition: a refund reported before the cancel that caused it was indexed, and a missing
/// answer mistaken for a node without the finalized tag.
#[tokio::test]
async fn seeds_that_violated_a_condition_satisfy_it() {
    for seed in [1_518, 5_855] {
        run(seed, 1).await;
    }
}

#[tokio::test]
async fn every_command_takes_effect_once_and_no_nonce_is_stuck_under_all_faults() {
    let database = SimDatabase::create().await.unwrap();
    let mut sum = RelayOutcome::default();
    for seed in 1..=15 {
        match Box::pin(run_relay_seed(&database, seed)).await {
            Ok(outcome) => sum.add(&outcome),
            Err(broken) => panic!("seed {seed}: {broken}"),
        }
    }
    assert!(sum.reorgs > 0 && sum.errors > 0 && sum.disturbed > 0, "nothing went wrong: {sum:?}");
    assert!(sum.commands > sum.transactions / 2, "nothing was batched: {sum:?}");
}

/// A reorganization removed a lock whose next command was inserted already, and the wallet was empty by then.
#[tokio::test]
async fn commands_on_an_abandoned_lock_come_to_their_end() {
    let database = SimDatabase::create().await.unwrap();
    for seed in [206, 1_212, 1_457] {
        if let Err(broken) = Box::pin(run_relay_seed(&database, seed)).await {
            panic!("seed {seed}: {broken}");
        }
    }
}

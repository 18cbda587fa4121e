//! The indexer over simulated chains, and the relayer over simulated nodes; `drill chain-sim` runs many more seeds.

use dvp_chain_indexer::sim::{Outcome, RelayOutcome, SimDatabase, run_relay_seed, run_seed};

/// Runs seeds in one database; a violated condition names its seed.
macro_rules! outcomes {
    ($run:ident, $seeds:expr) => {{
        let database = SimDatabase::create().await.unwrap();
        let mut outcomes = Vec::new();
        for seed in $seeds {
            let outcome = Box::pin($run(&database, seed)).await;
            outcomes.push(outcome.unwrap_or_else(|broken| panic!("seed {seed}: {broken}")));
        }
        outcomes
    }};
}

#[tokio::test]
async fn rows_are_the_chains_and_facts_final_or_retracted_under_all_faults() {
    let outcomes = outcomes!(run_seed, 1..=25);
    let unwound = outcomes.iter().filter(|o| o.unwound > 0).count();
    assert!(unwound > 0, "no chain forked under us");
    let sum = |of: fn(&Outcome) -> u32| outcomes.iter().map(of).sum::<u32>();
    assert!(sum(|o| o.errors) > 0 && sum(|o| o.disturbed) > 0, "nothing went wrong");
}

/// Seeds that once violated a condition: a refund reported before the cancel that caused it was indexed, and a missing
/// answer mistaken for a node without the finalized tag.
#[tokio::test]
async fn seeds_that_violated_a_condition_satisfy_it() {
    outcomes!(run_seed, [1_518, 5_855]);
}

#[tokio::test]
async fn every_command_takes_effect_once_and_no_nonce_is_stuck_under_all_faults() {
    let outcomes = outcomes!(run_relay_seed, 1..=15);
    let sum = |of: fn(&RelayOutcome) -> u32| outcomes.iter().map(of).sum::<u32>();
    assert!(sum(|o| o.reorgs) > 0 && sum(|o| o.errors) > 0 && sum(|o| o.disturbed) > 0, "nothing went wrong");
    let sum = |of: fn(&RelayOutcome) -> u64| outcomes.iter().map(of).sum::<u64>();
    assert!(sum(|o| o.commands) > sum(|o| o.transactions) / 2, "nothing was batched");
}

/// A reorganization removed a lock whose next command was inserted already, and the wallet was empty by then.
#[tokio::test]
async fn commands_on_an_abandoned_lock_come_to_their_end() {
    outcomes!(run_relay_seed, [206, 1_212, 1_457]);
}

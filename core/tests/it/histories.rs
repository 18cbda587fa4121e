//! Random histories of orders of every kind through the real store: rails that misbehave, commands that fail, repeated
//! facts, returned funds, cancellations, killed workers. Each order ends once and the books agree.

use std::collections::BTreeSet;

use dvp_core::writer::Outcome;
use dvp_domain::chain::{ChainCommand, ChainFact};
use dvp_store::chain::open_facts;
use dvp_store::orders::effects;
use sqlx::Row as _;
use sqlx::types::Json;

use crate::scenes;
use dvp_testing::Harness;
use dvp_testing::chain::failed;
use dvp_testing::dice::Dice;
use dvp_testing::orders::{Terms, order_for};

const ORDERS: u64 = 40;
/// The number of times that the workers of a history are killed.
const CRASHES: u32 = 8;

fn wanted(dice: &mut Dice) -> Terms<'static> {
    let account = ["0001", "0002", "0003", "0004", "0005", "0006", "9999", "9999"];
    let account = account[usize::try_from(dice.throw(8)).unwrap()];
    let (input, output) = match dice.throw(4) {
        0 => (("USDC", 100_000_000), "USD"),
        1 => (("WETH", 1_000_000_000_000_000_000), "USDC"),
        2 => (("USD", 100_000), "EUR"),
        _ => (("USD", 100_000), "USDC"),
    };
    Terms { input, output, account }
}

/// Plays the chain's part for a command, sometimes with repeated facts; a failure of `create` and `transfer` is final.
async fn play(harness: &Harness, dice: &mut Dice, kind: &str, entity: &[u8], command: &ChainCommand) {
    let failed = |code: &str| failed(kind, code);
    let fails = dice.throw(6) == 0;
    let fact = match kind {
        "create" if fails => failed("lock_rejected"),
        "transfer" if fails => failed("insufficient_funds"),
        "fill" if fails => failed("fill_rejected"),
        "swap" if fails => failed("swap_rejected"),
        _ => dvp_core::chain::expected::goal(command),
    };
    for _ in 0..=dice.throw(2) {
        harness.report_fact(entity, &fact).await;
    }
    if kind == "create" && !fails && dice.throw(8) == 0 {
        harness.report_fact(entity, &ChainFact::Cancelled).await;
    }
}

async fn live(harness: &Harness, seed: u64) {
    let mut dice = Dice(seed);
    for (provider, asset, amount) in
        [("north", "EUR", 1_200_000), ("south", "EUR", 300_000), ("north", "USDC", 60_000_000_000)]
    {
        harness.fund(provider, asset, amount).await;
    }
    harness.deposit("USD", 1_500_000).await;
    let mut workers = harness.start_workers();
    let mut crashes = 0;
    let mut accepted = Vec::new();
    for _ in 0..ORDERS {
        if let Outcome::Accepted(one) = harness.submit(order_for(&wanted(&mut dice))).await {
            if dice.throw(8) == 0 {
                harness.engine.cancel(&harness.tenant, &one.reference, None).await.unwrap();
            }
            accepted.push(one.reference);
        }
    }
    assert!(!accepted.is_empty(), "seed {seed} accepts something");
    let mut played = BTreeSet::new();
    let open = "select count(*) from execution where terminal_at is null";
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(300);
    loop {
        // Uncommitted work is lost; the next worker finds the claims of the killed ones free.
        if crashes < CRASHES && dice.throw(6) == 0 {
            crashes += 1;
            workers.abort();
            let _ = workers.await;
            let mut conn = harness.pool().acquire().await.unwrap();
            effects::free_all_claims(&mut conn).await.unwrap();
            open_facts::free_all_claims(&mut conn).await.unwrap();
            drop(conn);
            let_time_pass(harness).await;
            workers = harness.start_workers();
        } else if dice.throw(10) == 0 {
            let_time_pass(harness).await;
        }
        let commands = sqlx::query("select id, kind, entity, payload from chain_command order by id")
            .fetch_all(harness.pool())
            .await
            .unwrap();
        for command in commands {
            if played.insert(command.get::<i64, _>("id")) {
                let Json(payload): Json<ChainCommand> = command.get("payload");
                play(harness, &mut dice, command.get("kind"), command.get("entity"), &payload).await;
            }
        }
        let unseen = harness.count("select count(*) from chain_fact where consumed_at is null").await;
        let unplayed = harness.count("select count(*) from chain_command").await;
        if harness.count(open).await == 0 && unseen == 0 && usize::try_from(unplayed) == Ok(played.len()) {
            return;
        }
        if std::time::Instant::now() >= deadline {
            panic!("seed {seed}: orders are left open: {:#?}", left_open(harness).await);
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

/// Ends the waits before a called rail is queried again, and ages calls of aborted workers beyond their flight time:
/// the waits between attempts, which grow with their number, are not under test.
async fn let_time_pass(harness: &Harness) {
    sqlx::query(
        "update effect set run_at = least(run_at, now()), called_at = called_at - interval '15 seconds' \
         where called and lease_until is null",
    )
    .execute(harness.pool())
    .await
    .unwrap();
}

/// The work that each open order waits for.
async fn left_open(harness: &Harness) -> Vec<String> {
    let rows: Vec<(String,)> = sqlx::query_as(
        "select concat_ws(' ', e.reference, e.state::text, f.*::text, \
                (select count(*) from chain_fact c where c.consumed_at is null)) \
         from execution e left join effect f using (reference) where e.terminal_at is null",
    )
    .fetch_all(harness.pool())
    .await
    .unwrap();
    rows.into_iter().map(|(row,)| row).collect()
}

async fn check(harness: &Harness, seed: u64) {
    let twice: Vec<(String, String, i32, i32, String, String)> = harness.rows("select leg, account, calls, executed, first_call::text, executed_at::text from simulated_rail where executed > 1").await;
    assert_eq!(twice, [], "seed {seed}: paid twice");
    harness.check_books().await;
    for (what, sql) in [
        ("reserved without an order", "select count(*) from account_balance where reserved <> 0"),
        (
            "in clearing without an order",
            "select count(*) from (select asset from ledger_entry where owner_kind = 'clearing' \
             group by asset having sum(amount) <> 0) c",
        ),
        (
            "with a gap in its events",
            "select count(*) from execution e where last_sequence <> \
             (select count(*) from event v where v.reference = e.reference) or last_sequence <> \
             (select max(sequence) from event v where v.reference = e.reference)",
        ),
        (
            "ended not once",
            "select count(*) from (select e.reference from execution e left join event v \
             on v.reference = e.reference and v.type in ('offramp.failed', \
             'payout.completed', 'payout.failed', 'intent.cancelled', 'intent.expired', 'intent.failed') \
             where e.terminal_at is not null group by e.reference having count(v.*) <> 1) t",
        ),
        (
            "completed without a receipt",
            "select count(*) from execution e where state_name = 'completed' and not exists \
             (select from receipt r where r.reference = e.reference)",
        ),
        (
            "locked against the books",
            "select count(*) from (select e.terms #>> '{input,asset}' as asset, \
                    sum((e.terms #>> '{input,amount}')::numeric) as locked from execution e \
                    where e.state_name in ('payout_failed', 'conversion_failed') \
                      and e.state #>> '{lock,refunded}' = 'false' group by 1) held \
             full join (select asset, sum(amount) as posted from ledger_entry where owner_kind = 'escrow' \
                        group by asset having sum(amount) <> 0) books using (asset) \
             where coalesce(locked, 0) <> coalesce(posted, 0)",
        ),
        (
            "fees other than the locked ones",
            "select count(*) from execution e join receipt r using (reference) \
             where (r.body::jsonb -> 'fees') <> (e.terms #> '{plan,priced,fees}')::jsonb",
        ),
    ] {
        assert_eq!(harness.count(sql).await, 0, "seed {seed}: {what}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_random_history_ends_each_order_once_with_the_books_in_agreement() {
    let seeds = [1, 7, 42];
    let runs = seeds.map(|seed| async move {
        let harness = scenes::harness().await;
        live(&harness, seed).await;
        check(&harness, seed).await;
    });
    futures_util::future::join_all(runs).await;
}

//! Network fees that follow the fees of the chain are quoted only while they are known; `tests/e2e/two_chains.rs` follows
//! them from the quote to the ledger.

use dvp_core::liquidity::{FEES_GOOD_FOR_MS, GasConfig, Liquidity};
use dvp_core::writer::Outcome;
use dvp_domain::decision::Reason;
use dvp_domain::liquidity::network_fee::ChainGas;
use dvp_store::chain::{ChainFees, note_fees};
use dvp_testing::Harness;
use dvp_testing::market::CHAIN_ID;
use dvp_testing::orders::order;

use crate::quote_holds::{quote, with_quote};
use crate::{liquidity, scenes};

const GWEI: u128 = 1_000_000_000;

async fn harness() -> Harness {
    let market = scenes::market().with_funds("north", "USD", 100_000_000_000);
    let gas =
        ChainGas { settlement_gas: 122_000, payment_gas: 50_000, ..ChainGas::measured("anvil", "WETH") };
    let gas = GasConfig { chain_id: CHAIN_ID, gas, tip_floor_wei: GWEI / 10 };
    let configured = Liquidity::configured(&market.registry, market.providers.iter().cloned());
    Harness::with_liquidity(market, |_| configured.with_network_fees(vec![gas])).await
}

/// A relayer records the chain's fees, and the process reads them. Whether they are fresh.
async fn record(harness: &Harness, base_fee: u128) -> bool {
    let fees = ChainFees { base_fee, tip: 0, cap: 500 * GWEI, data: 0 };
    note_fees(&mut harness.pool().acquire().await.unwrap(), CHAIN_ID, fees).await.unwrap();
    load(harness).await
}

async fn load(harness: &Harness) -> bool {
    harness.engine.context().liquidity.load_network_fees(harness.pool()).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chain_whose_fee_is_unknown_or_stale_has_no_quotes_and_no_best_effort_orders() {
    let harness = harness().await;
    assert!(!load(&harness).await);
    let is_quoted = async || {
        let indicative = !liquidity::quoted(&harness, 100_000_000).await.is_empty();
        let firm = quote(&harness.engine, &harness.tenant).await.ok();
        assert_eq!(indicative, firm.is_some());
        firm
    };
    let refused = async || {
        let outcome = harness.submit(order("000123456789")).await;
        assert!(matches!(outcome, Outcome::Rejected { reason: Reason::NoLiquidity, .. }), "{outcome:?}");
    };
    assert!(is_quoted().await.is_none());
    refused().await;
    assert!(record(&harness, GWEI).await);
    let firm = is_quoted().await.unwrap();

    let age = "update chain_fees set seen_at = clock_timestamp() - make_interval(secs => $1)";
    let limit = FEES_GOOD_FOR_MS / 1000;
    sqlx::query(age).bind(limit - 20).execute(harness.pool()).await.unwrap();
    assert!(load(&harness).await);
    assert!(is_quoted().await.is_some());
    sqlx::query(age).bind(limit).execute(harness.pool()).await.unwrap();
    assert!(!load(&harness).await);
    assert!(is_quoted().await.is_none());
    refused().await;
    // What was locked is kept.
    harness.accept(with_quote(&firm)).await;
}

//! Network fees that follow the fees of the chain: quoted, locked with the quote or the order, and posted as locked.

use dvp_core::liquidity::{FEES_GOOD_FOR_MS, GasConfig, Liquidity};
use dvp_core::writer::Outcome;
use dvp_domain::decision::Reason;
use dvp_domain::fees::{FeeItem, FeeType};
use dvp_domain::liquidity::network_fee::ChainGas;
use dvp_store::chain::{ChainFees, note_fees};
use dvp_testing::Harness;
use dvp_testing::market::CHAIN_ID;
use dvp_testing::orders::order;

use crate::quote_holds::{quote, with_quote};
use crate::{kinds, liquidity, scenes};

const GWEI: u128 = 1_000_000_000;
/// 122,000 gas at one gwei and 2,000 USDC.
const AT_ONE_GWEI: &str = "244000";

async fn harness() -> Harness {
    let market = scenes::market().with_funds("north", "USD", 100_000_000_000);
    let gas =
        ChainGas { chain: "anvil".into(), coin: "WETH".into(), settlement_gas: 122_000, payment_gas: 50_000 };
    let gas = GasConfig { chain_id: CHAIN_ID, gas, tip_floor_wei: GWEI / 10 };
    let configured = Liquidity::configured(&market.registry, market.providers.iter().cloned());
    Harness::with_liquidity(market, |_| configured.with_network_fees(vec![gas])).await
}

/// A relayer records the chain's fees, and the process reads them. Whether they are fresh.
async fn record(harness: &Harness, base_fee: u128) -> bool {
    let fees = ChainFees { base_fee, tip: 0, cap: 500 * GWEI };
    note_fees(&mut harness.pool().acquire().await.unwrap(), CHAIN_ID, fees).await.unwrap();
    load(harness).await
}

async fn load(harness: &Harness) -> bool {
    harness.engine.context().liquidity.load_network_fees(harness.pool()).await.unwrap()
}

/// The amount of the network fee, with its currency and collection.
fn network_fee(fees: &[FeeItem]) -> (String, &str, String) {
    let fee = fees.iter().find(|fee| fee.kind == FeeType::NetworkFee).unwrap();
    (fee.amount_minor.to_string(), &fee.currency, format!("{:?}", fee.collection))
}

fn absorbed(amount: &str) -> (String, &'static str, String) {
    (amount.to_owned(), "USDC", "Absorbed".to_owned())
}

/// What the network was paid for an order, in the ledger.
async fn posted(harness: &Harness, reference: &str) -> String {
    sqlx::query_scalar(
        "select sum(amount)::numeric(39, 0)::text from ledger_entry \
         where reference = $1 and owner_kind = 'external' and owner = 'network' and asset = 'USDC'",
    )
    .bind(reference)
    .fetch_one(harness.pool())
    .await
    .unwrap()
}

/// Settles an order. Returns its receipt's network fee.
async fn settled(harness: &Harness, reference: &str) -> String {
    harness.play_chain(reference).await;
    harness.wait_for_state(reference, "completed").await;
    let receipt = kinds::receipt(harness, reference).await;
    let fees = receipt["fees"].as_array().unwrap();
    let fee = fees.iter().find(|fee| fee["type"] == "network_fee").unwrap();
    fee["amountMinor"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quote_and_its_order_keep_the_fee_that_was_accepted_though_the_chains_fee_rises() {
    let harness = harness().await;
    harness.start_workers();
    assert!(record(&harness, GWEI - GWEI / 10).await, "with the smallest tip one gwei");
    let firm = quote(&harness.engine, &harness.tenant).await.unwrap();
    assert_eq!(network_fee(firm.fees()), absorbed(AT_ONE_GWEI));
    let best_effort = harness.accept(order("000123456789")).await;
    assert_eq!(network_fee(&best_effort.plan.priced.fees), absorbed(AT_ONE_GWEI));

    assert!(record(&harness, 300 * GWEI).await);
    let quoted = harness.accept(with_quote(&firm)).await;
    assert_eq!(quoted.plan.priced, firm.priced);
    let dear = quote(&harness.engine, &harness.tenant).await.unwrap();
    // 122,000 gas at 300.1 gwei.
    assert_eq!(network_fee(dear.fees()), absorbed("73224400"));
    let charge = &dear.priced.gas[0];
    assert_eq!((charge.gas, charge.wei_per_gas.get()), (122_000, 300 * GWEI + GWEI / 10));
    for accepted in [best_effort, quoted] {
        assert_eq!(settled(&harness, &accepted.reference).await, AT_ONE_GWEI);
        assert_eq!(posted(&harness, &accepted.reference).await, AT_ONE_GWEI);
    }
    harness.check_books().await;
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

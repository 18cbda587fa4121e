//! How long it takes to price and to decide, without a database.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use dvp_benches::house::{order, provider, registry};
use dvp_domain::decision::{QuoteLookup, decide};
use dvp_domain::money::Minor;
use dvp_domain::quote::{IndicativeRequest, Market, indicative};
use dvp_domain::time::Timestamp;

fn pricing(criterion: &mut Criterion) {
    let (registry, provider) = (registry().expect("constant prices parse"), provider());
    let market = Market { registry: &registry, provider: &provider, available: Minor::new(u128::MAX >> 8) };
    let (input, output) = (registry.find("USDC").expect("listed"), registry.find("USD").expect("listed"));
    let asked = IndicativeRequest {
        request_id: "r",
        input,
        output,
        amount: Minor::new(100_000_000),
        max_slippage_bps: Some(50),
    };
    criterion.bench_function("indicative quote, one provider", |bench| {
        bench.iter(|| indicative(black_box(&market), black_box(&asked), 0));
    });
    let request = order().expect("a fresh wallet signs");
    let now = Timestamp::from_millis(request.deadline.millis() - 60_000);
    criterion.bench_function("decide an intent", |bench| {
        bench.iter(|| decide(black_box(&request), black_box(&market), &QuoteLookup::NotAsked, "bank", now));
    });
}

criterion_group!(benches, pricing);
criterion_main!(benches);

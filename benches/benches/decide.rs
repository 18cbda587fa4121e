//! How long it takes to decide an intent, without a database.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use dvp_benches::harness::{self, order};
use dvp_core::liquidity::Liquidity;
use dvp_domain::decision::{QuoteLookup, decide};
use dvp_domain::liquidity::{Market, Unlimited};
use dvp_domain::time::Timestamp;

fn deciding(criterion: &mut Criterion) {
    let dvp_testing::Market { registry, providers, .. } = harness::market();
    let liquidity = Liquidity::configured(&registry, providers);
    let request = order();
    let now = Timestamp::from_millis(request.deadline.millis() - 60_000);
    let market = Market { registry: &registry, snapshot: &liquidity.snapshot(), holdings: &Unlimited, now };
    criterion.bench_function("decide an intent", |bench| {
        bench.iter(|| decide(black_box(&request), black_box(&market), &QuoteLookup::NotRequested, "bank"));
    });
}

criterion_group!(benches, deciding);
criterion_main!(benches);

//! The measurements of `dvp-benches`, and in the same run those of fefix.

use std::hint::black_box;

use base::REPORT;
use criterion::{Criterion, criterion_group, criterion_main};
use dvp_benches::fix_messages::{EXECUTION_REPORT, NEW_ORDER_SINGLE, wire};
use fefix::{
    GetConfig as _,
    tagvalue::{Config, Decoder, Encoder, FvWrite as _},
};

#[path = "../../benches/fix_codec.rs"]
#[expect(dead_code, reason = "its own entry is not this run's")]
mod base;

fn decode(criterion: &mut Criterion) {
    for (name, text) in [("NewOrderSingle", NEW_ORDER_SINGLE), ("ExecutionReport", EXECUTION_REPORT)] {
        let bytes = wire(text);
        let mut decoder = Decoder::<Config>::new(fefix::Dictionary::fix44());
        decoder.config_mut().set_verify_checksum(true);
        criterion.benchmark_group(format!("decode {name}")).bench_function("fefix", |bench| {
            bench.iter(|| {
                let message = decoder.decode(black_box(&bytes[..])).expect("a proper frame");
                black_box(message.len())
            });
        });
    }
}

fn encoding(criterion: &mut Criterion) {
    let head = [(34, "1201"), (49, "DVP"), (52, "20261121-12:00:40.123"), (56, "CLNT")];
    let (mut encoder, mut out) = (Encoder::<Config>::default(), Vec::new());
    criterion.benchmark_group("encode ExecutionReport").bench_function("fefix", |bench| {
        bench.iter(|| {
            out.clear();
            let mut message = encoder.start_message(b"FIX.4.4", &mut out, b"8");
            for (tag, value) in black_box(head).into_iter().chain(black_box(REPORT)) {
                message.set_fv(&tag, value.as_bytes());
            }
            black_box(message.wrap().len())
        });
    });
}

criterion_group!(benches, base::decode, decode, base::encoding, encoding);
criterion_main!(benches);

//! How long it takes to check a request's signature and to fingerprint it, for a body of 1 KiB; beside the two hashes
//! over the same bytes that nothing can do without.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use dvp_api::{check_signature, fingerprint};
use dvp_benches::http::headers;
use dvp_core::secrets::{MacKey, mac};
use dvp_domain::canonical::sha256;

const PATH: &str = "/v1/intents";
const SECRET: &[u8] = b"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
const NOW: u64 = 1_800_000_000;

fn auth(criterion: &mut Criterion) {
    let body = "x".repeat(1024);
    let signed = headers(SECRET, PATH, body.as_bytes(), NOW).expect("the headers are ASCII");
    let (method, key) = (axum::http::Method::POST, MacKey::new(SECRET));
    criterion.bench_function("signature check and fingerprint, 1 KiB", |bench| {
        bench.iter(|| {
            let body = black_box(body.as_bytes());
            let used = check_signature(&key, &method, PATH, black_box(&signed), body, NOW);
            assert!(used.is_ok());
            fingerprint("POST", PATH, body)
        });
    });
    criterion.bench_function("floor: HMAC and SHA-256 of 1 KiB", |bench| {
        bench.iter(|| (mac(SECRET, black_box(body.as_bytes())), sha256(black_box(&body))));
    });
}

criterion_group!(benches, auth);
criterion_main!(benches);

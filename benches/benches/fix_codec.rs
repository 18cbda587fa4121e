//! Frames to fields and back, beside other engines on the same bytes in the same run.
//!
//! Every decoder checks BodyLength and CheckSum and indexes all fields; every encoder writes the same ExecutionReport.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use dvp_benches::fix_messages::{EXECUTION_REPORT, NEW_ORDER_SINGLE, wire};
use dvp_fix::{
    SeqNum, UtcNanos,
    codec::{Body, Framed, Framer, Head, MsgType, Parser, encode},
};

pub(crate) fn decode(criterion: &mut Criterion) {
    for (name, text) in [("NewOrderSingle", NEW_ORDER_SINGLE), ("ExecutionReport", EXECUTION_REPORT)] {
        let bytes = wire(text);
        let mut group = criterion.benchmark_group(format!("decode {name}"));
        let mut parser = Parser::new();
        group.bench_function("dvp", |bench| {
            bench.iter(|| {
                let message = parser.parse(black_box(&bytes)).expect("a proper frame");
                black_box(message.fields().len())
            });
        });
        let mut framer = Framer::new(4096);
        group.bench_function("dvp, framed from a stream", |bench| {
            bench.iter(|| {
                framer.push(black_box(&bytes));
                let Framed::Frame(frame) = framer.next_frame() else { panic!("one frame") };
                let message = parser.parse(frame).expect("a proper frame");
                black_box(message.fields().len())
            });
        });
        let mut decoder = fix_codec_rs::decoder::Decoder::new();
        group.bench_function("fix-codec-rs", |bench| {
            bench.iter(|| {
                let message = decoder.decode(black_box(&bytes)).expect("fields");
                message.validate_body_length().expect("its length");
                message.validate_checksum().expect("its checksum");
                black_box(message.len())
            });
        });
        group.finish();
    }
}

/// The report's body as in the gateway: values and their tags.
pub(crate) const REPORT: [(u32, &str); 22] = [
    (37, "ord_0198"),
    (198, "7f2"),
    (11, "ORD1201"),
    (17, "0198.4"),
    (150, "F"),
    (39, "2"),
    (1, "A"),
    (55, "USDC/USD"),
    (54, "2"),
    (38, "250000.00"),
    (40, "2"),
    (44, "0.9991"),
    (15, "USDC"),
    (59, "0"),
    (32, "250000"),
    (31, "0.9991"),
    (151, "0"),
    (14, "250000"),
    (6, "0.9991"),
    (60, "20261121-12:00:40"),
    (58, "done"),
    (20101, "4"),
];

/// Field by field with constant tags, as the gateway writes its reports.
fn write_report(body: &mut Body, report: &[(u32, &str); 22]) {
    let mut values = report.iter().map(|(_, value)| value.as_bytes());
    let mut next = || values.next().unwrap_or_default();
    body.push(37, next());
    body.push(198, next());
    body.push(11, next());
    body.push(17, next());
    body.push(150, next());
    body.push(39, next());
    body.push(1, next());
    body.push(55, next());
    body.push(54, next());
    body.push(38, next());
    body.push(40, next());
    body.push(44, next());
    body.push(15, next());
    body.push(59, next());
    body.push(32, next());
    body.push(31, next());
    body.push(151, next());
    body.push(14, next());
    body.push(6, next());
    body.push(60, next());
    body.push(58, next());
    body.push(20101, next());
}

pub(crate) fn encoding(criterion: &mut Criterion) {
    let bytes = wire(EXECUTION_REPORT);
    let mut group = criterion.benchmark_group("encode ExecutionReport");
    let sending_time = UtcNanos::parse(b"20261121-12:00:40.123").expect("a time");
    let mut head = Head {
        begin_string: "FIX.4.4",
        msg_type: MsgType::EXECUTION_REPORT,
        seq: SeqNum(1201),
        sender_comp_id: "DVP",
        target_comp_id: "CLNT",
        sending_time,
        orig_sending_time: None,
        last_processed: None,
    };
    let (mut body, mut out) = (Body::new(), Vec::new());
    group.bench_function("dvp", |bench| {
        bench.iter(|| {
            body.clear();
            write_report(&mut body, &black_box(REPORT));
            out.clear();
            head.seq = black_box(SeqNum(1201));
            encode(&head, &body, &mut out);
            black_box(out.len())
        });
    });
    assert_eq!(out, bytes, "what is measured is the report");
    let mut decoder = fix_codec_rs::decoder::Decoder::new();
    let message = decoder.decode(&bytes).expect("fields");
    let mut encoder = fix_codec_rs::encoder::Encoder::new();
    group.bench_function("fix-codec-rs, from a decoded message", |bench| {
        bench.iter(|| {
            encoder.encode(black_box(&message), &mut out).expect("a message");
            black_box(out.len())
        });
    });
    assert_eq!(out, bytes, "what is measured is the report");
    group.finish();
}

criterion_group!(benches, decode, encoding);
criterion_main!(benches);

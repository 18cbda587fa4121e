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

fn decode(criterion: &mut Criterion) {
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

/// Field by field with constant tags, as the gateway writes its reports.
fn write_report(body: &mut Body, values: &[&[u8]]) {
    let mut values = values.iter().copied();
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

fn encoding(criterion: &mut Criterion) {
    let bytes = wire(EXECUTION_REPORT);
    let mut group = criterion.benchmark_group("encode ExecutionReport");
    let sending_time = UtcNanos::parse(b"20261121-12:00:40.123").expect("a time");
    let mut head = Head {
        begin_string: "FIX.4.4",
        msg_type: MsgType::EXECUTION_REPORT,
        seq: SeqNum(1201),
        sender_comp_id: "DVP",
        target_comp_id: "CLNT",
        sending_time: sending_time.into(),
        orig_sending_time: None,
        last_processed: None,
    };
    let fields = EXECUTION_REPORT.split('|').filter_map(|field| field.split_once('='));
    let values: Vec<&[u8]> = fields.skip(7).map(|(_, value)| value.as_bytes()).collect();
    let (mut body, mut out) = (Body::new(), Vec::new());
    group.bench_function("dvp", |bench| {
        bench.iter(|| {
            body.clear();
            write_report(&mut body, black_box(&values));
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

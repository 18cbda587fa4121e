//! Any messages and events in any order: no panic, bounded queues, and no number that stands for two messages.
//!
//! Every line of the input is a step: `+N` lets N tenths of a second pass, `!` is a garbled frame, `x` loses the
//! connection, `>` sends a report, anything else is a message (`35=D|34=2|…`, the rest of the header is added). The
//! driver is that of the transcripts.
#![no_main]

#[expect(dead_code, reason = "the transcripts use all of it")]
#[path = "../../tests/transcripts/driver.rs"]
mod driver;
#[expect(dead_code, reason = "the transcripts use all of it")]
#[path = "../../tests/transcripts/script.rs"]
mod script;

use driver::Driver;
use libfuzzer_sys::fuzz_target;
use script::{Pieces, Step};

fn step(driver: &mut Driver, line: &[u8]) {
    match line {
        [b'+', tenths @ ..] => {
            let digits = tenths.iter().take(6).map(|byte| u32::from(byte.wrapping_sub(b'0') % 10));
            let tenths = digits.fold(0, |sum, digit| sum * 10 + digit).min(100_000);
            driver.step(Step::Wait(f64::from(tenths) / 10.0), Pieces::Whole);
        }
        b"!" => driver.take(b"8=FIX.4.4\x019=1\x0110=000\x01", Pieces::Whole),
        b"x" => driver.step(Step::Cut, Pieces::Whole),
        b">" => driver.step(Step::Report("8"), Pieces::Whole),
        fields => {
            let message = message(&driver.time(0), fields);
            driver.take(&message, Pieces::Whole);
        }
    }
    if !driver.is_connected() {
        driver.step(Step::Connect, Pieces::Whole);
    }
}

/// `35=D|34=2|…` with the header around it.
fn message(time: &str, fields: &[u8]) -> Vec<u8> {
    let header = format!("49=ACME\x0152={time}\x0156=DVP");
    let mut parts: Vec<&[u8]> = fields.split(|byte| *byte == b'|').collect();
    if parts.len() > 1 && !parts.iter().any(|part| part.starts_with(b"49=")) {
        parts.insert(2, header.as_bytes());
    }
    parts.push(b"");
    let body = parts.join(&1);
    let mut wire = format!("8=FIX.4.4\x019={}\x01", body.len()).into_bytes();
    wire.extend(body);
    let sum = wire.iter().fold(0_u8, |sum, byte| sum.wrapping_add(*byte));
    wire.extend(format!("10={sum:03}\x01").into_bytes());
    wire
}

fuzz_target!(|data: &[u8]| {
    let mut driver = Driver::of_tasks();
    for line in ["set queue_max 16", "set resend_slice 3", "connect"] {
        driver.step(Step::parse(line), Pieces::Whole);
    }
    for line in data.split(|byte| *byte == b'\n').take(64) {
        step(&mut driver, line);
    }
});

//! Any bytes as a frame, and any bytes as the body of a frame whose length and checksum are right.
#![no_main]

use dvp_fix::{
    codec::{MessageRef, Parser},
    dictionary::Rules,
};
use libfuzzer_sys::fuzz_target;

fn look_at_all(message: MessageRef<'_>) {
    let mut bytes = 0;
    for field in message.fields() {
        let (tag, value) = (message.tag_text(field), message.value(field));
        assert!(!tag.is_empty());
        // Tag, `=`, value, SOH.
        bytes += tag.len() + value.len() + 2;
    }
    assert_eq!(bytes, message.bytes().len(), "the fields are the frame");
    assert!(!message.redacted().is_empty());
    let _ = (message.seq(), message.msg_type(), message.begin_string());
    for (session, application) in [("FIX.4.2", "FIX.4.2"), ("FIX.4.4", "FIX.4.4"), ("FIXT.1.1", "FIX.5.0SP2")] {
        if let Some(rules) = Rules::strict(session, application) {
            let _ = rules.check(message);
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let mut parser = Parser::new();
    if let Ok(message) = parser.parse(data) {
        look_at_all(message);
    }
    let body: Vec<u8> = data.iter().map(|byte| if *byte == b'|' { 1 } else { *byte }).collect();
    let mut frame = format!("8=FIX.4.4\x019={}\x01", body.len()).into_bytes();
    frame.extend_from_slice(&body);
    let sum = frame.iter().fold(0_u8, |sum, byte| sum.wrapping_add(*byte));
    frame.extend_from_slice(format!("10={sum:03}\x01").as_bytes());
    if let Ok(message) = parser.parse(&frame) {
        look_at_all(message);
    }
});

//! Any bytes in any pieces: the same frames as in one piece, and never more held than the limit and one piece.
#![no_main]

use dvp_fix::codec::{Framed, Framer};
use libfuzzer_sys::fuzz_target;

const LIMIT: usize = 256;

/// What came out, and whether the framer gave up.
fn frames(framer: &mut Framer, out: &mut Vec<Vec<u8>>) -> bool {
    loop {
        match framer.next_frame() {
            Framed::Frame(frame) => {
                assert!(frame.starts_with(b"8=FIX") && frame.ends_with(b"\x01"));
                out.push(frame.to_vec());
            }
            Framed::Incomplete => return false,
            Framed::Discarded(head) => assert!(head.len() <= 512),
            Framed::TooLong => return true,
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((&size, stream)) = data.split_first() else { return };
    let size = usize::from(size).max(1);
    let (mut pieces, mut from_pieces, mut gave_up) = (Framer::new(LIMIT), Vec::new(), false);
    for piece in stream.chunks(size) {
        pieces.push(piece);
        gave_up = frames(&mut pieces, &mut from_pieces);
        if gave_up {
            break;
        }
        assert!(pieces.pending() <= LIMIT);
    }
    let (mut whole, mut from_whole) = (Framer::new(usize::MAX), Vec::new());
    whole.set_limit(LIMIT);
    whole.push(stream);
    let whole_gave_up = frames(&mut whole, &mut from_whole);
    // In pieces it may give up earlier, never see anything else.
    assert!(from_whole.starts_with(&from_pieces));
    if !gave_up && !whole_gave_up {
        assert_eq!(from_pieces, from_whole);
    }
});

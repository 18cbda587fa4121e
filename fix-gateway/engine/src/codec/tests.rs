use proptest::prelude::*;

use super::*;
use crate::{SeqNum, UtcNanos, session::Discarded};

/// `|` for SOH; `9=` and `10=` are put in where the text has none.
pub(crate) fn wire(text: &str) -> Vec<u8> {
    let text = text.replace('|', "\x01");
    let (begin, rest) = text.split_once('\x01').unwrap();
    let mut out = format!("{begin}\x01");
    if !text.contains("\x019=") {
        let body = rest.find("\x0110=").map_or(rest.len(), |at| at + 1);
        out.push_str(&format!("9={body}\x01"));
    }
    out.push_str(rest);
    if !text.contains("\x0110=") {
        let sum = out.bytes().fold(0_u8, u8::wrapping_add);
        out.push_str(&format!("10={sum:03}\x01"));
    }
    out.into_bytes()
}

fn frames(framer: &mut Framer) -> Vec<Vec<u8>> {
    let mut out = Vec::new();
    while let Framed::Frame(frame) = framer.next_frame() {
        out.push(frame.to_vec());
    }
    out
}

fn head(seq: u64) -> Head<'static> {
    Head {
        begin_string: "FIX.4.4",
        msg_type: MsgType::NEW_ORDER_SINGLE,
        seq: SeqNum(seq),
        sender_comp_id: "DVP",
        target_comp_id: "ACME",
        sending_time: UtcNanos(0).into(),
        orig_sending_time: None,
        last_processed: None,
    }
}

const ORDER: &str = "8=FIX.4.4|35=D|34=2|49=ACME|52=20260101-00:00:00|56=DVP|11=a=b|58=x|";

#[test]
fn an_invalid_length_loses_one_message() {
    for length in ["x", "99999999999", "5000", "-1", ""] {
        let mut framer = Framer::new(512);
        framer.push(&[wire(&format!("8=FIX.4.4|9={length}|35=0|34=2|")), wire(ORDER)].concat());
        let got = frames(&mut framer);
        assert_eq!(got.len(), 2, "{length}");
        assert!(Message::parse(&got[0]).is_err(), "{length}");
        assert!(Message::parse(&got[1]).is_ok(), "{length}");
    }
}

#[test]
fn a_frame_beyond_the_limit_is_discarded_as_a_whole_and_the_next_is_read() {
    let body = format!("35=D|34=7|49=A|56=B|58={}|", "x".repeat(2_000));
    let frame = wire(&format!("8=FIX.4.4|9={}|{body}10=123|", body.len()));
    let stream = [&frame[..], &wire(ORDER)].concat();
    for step in [1, 7, 300, stream.len()] {
        let mut framer = Framer::new(256);
        let mut seen = Vec::new();
        for chunk in stream.chunks(step) {
            framer.push(chunk);
            loop {
                match framer.next_frame() {
                    Framed::Frame(frame) => seen.push(frame.to_vec()),
                    Framed::Discarded(head) => {
                        let discarded = Discarded::of(head).unwrap();
                        assert_eq!((discarded.msg_type.as_str(), discarded.seq), ("D", SeqNum(7)));
                        seen.push(Vec::new());
                    }
                    Framed::Incomplete => break,
                    Framed::TooLong => panic!("given up"),
                }
            }
            assert!(framer.pending() <= 256 + step, "{} held", framer.pending());
        }
        assert_eq!(seen, [Vec::new(), wire(ORDER)], "{step}");
    }
    // One that does not end where it says.
    let mut framer = Framer::new(256);
    let wrong = wire(&format!("8=FIX.4.4|9={}|{body}", body.len() - 3));
    let given_up = wrong.chunks(300).any(|chunk| {
        framer.push(chunk);
        framer.next_frame() == Framed::TooLong
    });
    assert!(given_up);
}

#[test]
fn an_endless_frame_is_given_up_at_the_limit() {
    let mut framer = Framer::new(256);
    framer.push(b"8=FIX.4.4\x019=10\x0135=0\x01");
    assert_eq!(framer.next_frame(), Framed::Incomplete);
    framer.push(&[b'x'; 300]);
    assert_eq!(framer.next_frame(), Framed::TooLong);

    let mut junk = Framer::new(256);
    for _ in 0..100 {
        junk.push(&[b'8'; 100]);
        assert_eq!(junk.next_frame(), Framed::Incomplete);
        assert!(junk.pending() < 8);
    }
}

#[test]
fn garbled_frames_are_distinguished_from_messages() {
    let cases = [
        ("8=FIX.4.4|34=2|35=0|", Err(Garbled::Header)),
        ("8=FIX.4.4|9=5|35=0|34=2|", Err(Garbled::BodyLength)),
        ("8=FIX.4.4|35=0|34=2|10=256|", Err(Garbled::CheckSum)),
        ("8=FIX.4.4|35=0|34=2|10=7|", Err(Garbled::CheckSum)),
        ("8=FIX.4.4|35=0|34=2|4garbled9=TW|", Err(Garbled::Field)),
        ("8=FIX.4.4|35=0|34=2|=x|", Err(Garbled::Field)),
        ("8=FIX.4.4|35=0|34=2|x|", Err(Garbled::Field)),
        ("8=FIX.4.4|35=A|34=2|95=4|96=ab|", Err(Garbled::Data)),
        ("8=FIX.4.4|35=A|34=2|95=5|96=a|10=|", Err(Garbled::CheckSum)),
        ("8=FIX.4.4|35=0|34=2|0=a|-1=b|034=c|", Ok(())),
    ];
    for (text, expected) in cases {
        assert_eq!(Message::parse(&wire(text)).map(|_| ()), expected, "{text}");
    }
}

#[test]
fn padded_lengths_and_any_legal_field_order_are_read() {
    let message = Message::parse(&wire("8=FIX.4.4|9=0000019|35=0|34=2|58=a=b=c|")).unwrap();
    assert_eq!(
        (message.msg_type(), message.seq(), message.text(58)),
        (&b"0"[..], Some(SeqNum(2)), Some("a=b=c"))
    );
}

#[test]
fn encoding_orders_the_header_and_keeps_the_body() {
    let body =
        Body::new().field(97, "Y").field(115, "DESK").field(11, "id").field(58, "no\x01more").field(5, "x");
    let mut out = Vec::new();
    encode(&Head { orig_sending_time: Some(UtcNanos(0).into()), ..head(7) }, &body, &mut out);
    let message = Message::parse(&out).unwrap();
    assert_eq!(
        message.fields().iter().map(|field| field.tag).collect::<Vec<_>>(),
        [8, 9, 35, 34, 43, 49, 52, 56, 97, 115, 122, 11, 58, 5, 10]
    );
    assert_eq!(message.text(58), Some("no"));
}

#[test]
fn adjacent_fields_are_copied_unchanged() {
    let message = Message::parse(&wire("8=FIX.4.4|35=D|34=1|11=id|95=3|96=a\u{1}b|5000=x|")).unwrap();
    let mut body = Body::new();
    body.copy_run(message.view(), &message.fields()[4..8]);
    body.copy_run(message.view(), &[]);
    body.copy_run(message.view(), &message.fields()[7..8]);
    assert_eq!(body.as_bytes(), b"11=id\x0195=3\x0196=a\x01b\x015000=x\x015000=x\x01");
}

#[test]
fn secrets_are_not_shown() {
    let message =
        Message::parse(&wire("8=FIX.4.4|35=A|34=1|553=me|554=hush|925=hush|95=4|96=hush|1402=hush|"))
            .unwrap();
    assert!(!format!("{message:?}").contains("hush"));
    assert!(format!("{message:?}").contains("553=me"));
}

proptest! {
    #[test]
    fn encoded_messages_parse_back(fields in prop::collection::vec((200_u32..99_999, "[^\x01]{1,20}"), 0..20)) {
        let is_data = |tag: u32| [212, 348, 350, 352, 354, 356, 358, 360, 362, 364, 445, 618, 621, 1184, 1277, 1280,
            1397, 1401, 1403, 1468, 1525, 1128].contains(&tag);
        let fields: Vec<_> = fields.into_iter().filter(|(tag, _)| !is_data(*tag)).collect();
        let body = fields.iter().fold(Body::new(), |body, (tag, value)| body.field(*tag, value));
        let mut out = Vec::new();
        encode(&head(1), &body, &mut out);
        let message = Message::parse(&out).unwrap();
        let read: Vec<_> = message.fields()[7..message.fields().len() - 1].iter()
            .map(|field| (field.tag, String::from_utf8(message.value(field).to_vec()).unwrap())).collect();
        prop_assert_eq!(read, fields);
    }

    #[test]
    fn arbitrary_bytes_never_panic_or_grow_framer_and_parser(chunks in prop::collection::vec(
        prop_oneof![prop::collection::vec(any::<u8>(), 0..64), Just(b"8=FIX.4.4\x019=".to_vec()), Just(b"5\x01".to_vec()),
            Just(b"\x0110=000\x01".to_vec()), Just(wire(ORDER))], 0..40)) {
        let mut framer = Framer::new(512);
        for chunk in chunks {
            framer.push(&chunk);
            loop {
                match framer.next_frame() {
                    Framed::Frame(frame) => { let _ = Message::parse(frame); }
                    Framed::Incomplete => break,
                    Framed::Discarded(head) => prop_assert!(head.len() <= 512),
                    Framed::TooLong => return Ok(()),
                }
            }
            prop_assert!(framer.pending() <= 512 + 128);
        }
    }
}

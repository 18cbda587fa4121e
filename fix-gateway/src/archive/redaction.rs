//! An archived message: its fields as text, without secrets and personal data.

use chrono::DateTime;
use dvp_fix::{
    UtcNanos,
    codec::{Field, MessageRef},
    tag::{self, Tag},
};
use dvp_store::fix::archive::NewMessage;

use crate::{dictionaries::OWN_FIELDS, orders::tags};

/// Bytes of a message that are kept; the rest is only counted.
const CONTENT_MAX: usize = 8 * 1024;
/// Characters of an identifier that are kept to be searched for.
const ID_MAX: usize = 128;
/// Tags from here on are users' own.
const FIRST_OWN_TAG: Tag = 5000;

/// Data and signatures, whose content no dictionary describes.
const OPAQUE: [Tag; 4] = [SIGNATURE, SECURE_DATA, XML_DATA, ENCODED_TEXT];
const SIGNATURE: Tag = 89;
const SECURE_DATA: Tag = 91;
const XML_DATA: Tag = 213;
const ENCODED_TEXT: Tag = 355;
const ALLOC_ACCOUNT: Tag = 79;

/// What says who is paid and where, and what authorizes the transfer of the order's tokens.
const PERSONAL: [Tag; 8] = [
    tags::PERMIT_SIGNATURE,
    tags::BENEFICIARY_NAME,
    tags::BENEFICIARY_ACCOUNT,
    tags::ADDRESS_LINE1,
    tags::ADDRESS_CITY,
    tags::ADDRESS_STATE,
    tags::ADDRESS_POSTAL_CODE,
    ALLOC_ACCOUNT,
];

/// Is the value replaced? Of Account(1) only the id of a registered beneficiary is shown, and of fields beyond the
/// standard only those of this service.
fn is_hidden(tag: Tag, value: &[u8]) -> bool {
    if tag::SECRET.contains(&tag) || OPAQUE.contains(&tag) || PERSONAL.contains(&tag) {
        return true;
    }
    match tag {
        tags::ACCOUNT => !value.starts_with(b"bene_"),
        // Not a legal tag: whatever the peer means by it.
        0 => true,
        _ => tag >= FIRST_OWN_TAG && !OWN_FIELDS.iter().any(|own| own.tag == tag),
    }
}

pub(super) fn archived(
    session: &str,
    is_outbound: bool,
    at: UtcNanos,
    message: MessageRef<'_>,
) -> NewMessage {
    let id = |tag| message.get(tag).map(|value| kept(value, ID_MAX)).filter(|id| !id.is_empty());
    NewMessage {
        session_id: session.to_owned(),
        at: DateTime::from_timestamp_nanos(i64::try_from(at.0).unwrap_or(i64::MAX)),
        is_outbound,
        seq: message.seq().map(|seq| seq.0),
        msg_type: kept(message.msg_type(), ID_MAX),
        cl_ord_id: id(tags::CL_ORD_ID),
        orig_cl_ord_id: id(tags::ORIG_CL_ORD_ID),
        content: content(message),
    }
}

fn content(message: MessageRef<'_>) -> String {
    let mut content = String::with_capacity(message.bytes().len());
    for (index, field) in message.fields().iter().enumerate() {
        if content.len() >= CONTENT_MAX {
            let left = message.fields().len().saturating_sub(index);
            content.push_str(&format!("… {left} more fields"));
            break;
        }
        push(&mut content, message, field);
    }
    content
}

fn push(content: &mut String, message: MessageRef<'_>, field: &Field) {
    content.push_str(&kept(message.tag_text(field), ID_MAX));
    content.push('=');
    let value = message.value(field);
    if is_hidden(field.tag, value) {
        content.push_str("***");
    } else {
        let room = CONTENT_MAX.saturating_sub(content.len());
        content.push_str(&kept(value, room));
        if value.len() > room {
            content.push('…');
        }
    }
    content.push('|');
}

/// The first `max` bytes as one line of text, which a column takes.
fn kept(value: &[u8], max: usize) -> String {
    let text = String::from_utf8_lossy(value.get(..max).unwrap_or(value));
    text.chars().map(|letter| if letter.is_control() { '\u{fffd}' } else { letter }).collect()
}

#[cfg(test)]
mod tests {
    use dvp_fix::{
        SeqNum,
        codec::{Body, Head, Message, MsgType, encode},
    };

    use super::*;

    fn row(msg_type: MsgType, body: &Body) -> NewMessage {
        let head = Head {
            begin_string: "FIX.4.4",
            msg_type,
            seq: SeqNum(7),
            sender_comp_id: "ACME",
            target_comp_id: "DVP",
            sending_time: UtcNanos(1_700_000_000_000_000_000).into(),
            orig_sending_time: None,
            last_processed: None,
        };
        let mut bytes = Vec::new();
        encode(&head, body, &mut bytes);
        let message = Message::parse(&bytes).unwrap();
        archived("acme", false, UtcNanos(1_700_000_000_000_000_000), message.view())
    }

    #[test]
    fn secrets_and_personal_data_are_replaced_and_the_rest_is_kept() {
        let body = Body::new()
            .field(553, "acme")
            .field(554, "hush")
            .field(925, "hush")
            .field(95, "4")
            .field(96, "hush")
            .field(1, "DE89370400440532013000")
            .field(11, "o-1")
            .field(41, "o-0")
            .field(20003, "hush")
            .field(20010, "hush")
            .field(20011, "hush")
            .field(20012, "US")
            .field(20016, "hush")
            .field(20999, "hush")
            .field(79, "hush");
        let row = row(MsgType::NEW_ORDER_SINGLE, &body);
        assert_eq!(
            (row.seq, row.msg_type.as_str(), row.cl_ord_id.as_deref(), row.orig_cl_ord_id.as_deref()),
            (Some(7), "D", Some("o-1"), Some("o-0"))
        );
        assert!(!row.content.contains("hush") && !row.content.contains("DE89"), "{}", row.content);
        assert!(row.content.starts_with("8=FIX.4.4|9="), "{}", row.content);
        let shown = "|553=acme|554=***|925=***|95=4|96=***|1=***|11=o-1|41=o-0|20003=***|20010=***|20011=***|\
                     20012=US|20016=***|20999=***|79=***|10=";
        assert!(row.content.contains(shown), "{}", row.content);
        assert_eq!(row.at.timestamp(), 1_700_000_000);
    }

    #[test]
    fn a_registered_beneficiary_is_shown_and_text_has_no_control_characters() {
        let body = Body::new().field(1, "bene_1:dest_2").field(58, b"a\0b\nc\xffd");
        let row = row(MsgType::NEW_ORDER_SINGLE, &body);
        assert!(row.content.contains("|1=bene_1:dest_2|58=a\u{fffd}b\u{fffd}c\u{fffd}d|"), "{}", row.content);
    }

    #[test]
    fn a_long_message_is_cut() {
        let body = (0..400).fold(Body::new(), |body, _| body.field(58, "x".repeat(100)));
        let many = row(MsgType::NEW_ORDER_SINGLE, &body);
        assert!(many.content.len() < CONTENT_MAX + 200 && many.content.ends_with("more fields"));
        let one = row(MsgType::NEW_ORDER_SINGLE, &Body::new().field(58, "é".repeat(10_000)));
        assert!(one.content.len() < CONTENT_MAX + 200 && one.content.contains('…'));
    }
}

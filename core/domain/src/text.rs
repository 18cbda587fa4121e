//! The one rule for text that is stored, from any interface.
//!
//! A stored text is one line of a known length. PostgreSQL refuses NUL, and an index refuses a long value; the other
//! refused characters break log lines, statements of account and the bank's XML, or display another text than the one
//! that is compared. The rule is applied before work is queued for the writer, so that no statement fails because of a
//! peer's text.
//!
//! Kept by `fix-gateway/tests/it/fields.rs::every_field_of_fix_44_refuses_values_that_cannot_be_stored` and
//! `api/tests/it/bodies.rs::every_text_of_a_body_is_checked`.

use serde_json::{Map, Value};

/// The longest identifier, in characters.
pub const ID_MAX: usize = 128;
/// The longest other text, in characters.
pub const TEXT_MAX: usize = 1024;

/// Why a text cannot be stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TextFault {
    #[error("must have at most {max} characters")]
    TooLong { max: usize },
    #[error("must have 1 to {ID_MAX} characters")]
    IdLength,
    #[error("must not hold control characters")]
    Control,
    #[error("must not hold the character U+{:04X}", u32::from(*.0))]
    Refused(char),
}

/// Checks one line of text of at most `max` characters, possibly empty.
/// A text that is both too long and holds a refused character is too long.
pub fn check_line(text: &str, max: usize) -> Result<(), TextFault> {
    // A character has at most four bytes, so a text that is far too long need not be counted.
    if text.len() > max.saturating_mul(4) || text.chars().count() > max {
        return Err(TextFault::TooLong { max });
    }
    text.chars().find_map(refused).map_or(Ok(()), Err)
}

/// Checks an identifier: one line of 1 to 128 characters, all of which are seen. Two identifiers that look the same are the
/// same.
pub fn check_id(text: &str) -> Result<(), TextFault> {
    match check_line(text, ID_MAX) {
        Err(TextFault::TooLong { .. }) => Err(TextFault::IdLength),
        Ok(()) if text.is_empty() => Err(TextFault::IdLength),
        Ok(()) => text.chars().find(|c| is_unseen(*c)).map_or(Ok(()), |c| Err(TextFault::Refused(c))),
        Err(fault) => Err(fault),
    }
}

pub fn is_id(text: &str) -> bool {
    check_id(text).is_ok()
}

/// The format characters (Unicode's category Cf) beside those that no text may hold. Names have some of them: between
/// letters of Persian, in emoji.
const fn is_unseen(character: char) -> bool {
    matches!(
        character,
        '\u{ad}'
            | '\u{600}'..='\u{605}'
            | '\u{61c}'
            | '\u{6dd}'
            | '\u{70f}'
            | '\u{890}'..='\u{891}'
            | '\u{8e2}'
            | '\u{180e}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2060}'..='\u{2065}'
            | '\u{206a}'..='\u{206f}'
            | '\u{fff9}'..='\u{fffb}'
            | '\u{110bd}'
            | '\u{110cd}'
            | '\u{13430}'..='\u{1343f}'
            | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0001}'
            | '\u{e0020}'..='\u{e007f}'
    )
}

/// Checks a document whose content is the caller's own. Its texts may have several lines and any length that the body
/// allows, but PostgreSQL's JSON has no U+0000, in keys or values.
pub fn check_document(fields: &Map<String, Value>) -> Result<(), TextFault> {
    fields.iter().try_for_each(|(key, value)| check_storable(key).and_then(|()| check_value(value)))
}

/// Foreign text as it may be stored, logged, shown or sent on: a node's error, a bank's reason, a desk's answer, a
/// receiver's body. Runs of refused characters and white space become one space, and what is longer than `max`
/// characters is cut and marked. It accepts bytes that are no UTF-8 by way of [`String::from_utf8_lossy`].
pub fn clean(foreign: &str, max: usize) -> String {
    let mut cleaned = String::new();
    let mut length = 0;
    let words =
        foreign.split(|c: char| c.is_whitespace() || refused(c).is_some()).filter(|word| !word.is_empty());
    for word in words {
        for character in (length > 0).then_some(' ').into_iter().chain(word.chars()) {
            if length == max {
                cleaned.pop();
                cleaned.push('…');
                return cleaned;
            }
            cleaned.push(character);
            length += 1;
        }
    }
    cleaned
}

fn check_value(value: &Value) -> Result<(), TextFault> {
    match value {
        Value::String(text) => check_storable(text),
        Value::Array(items) => items.iter().try_for_each(check_value),
        Value::Object(fields) => check_document(fields),
        Value::Null | Value::Bool(_) | Value::Number(_) => Ok(()),
    }
}

fn check_storable(text: &str) -> Result<(), TextFault> {
    if text.contains('\0') { Err(TextFault::Refused('\0')) } else { Ok(()) }
}

fn refused(character: char) -> Option<TextFault> {
    match character {
        control if control.is_control() => Some(TextFault::Control),
        // Line and paragraph separators, the embeddings and overrides of writing direction, the byte order mark, and
        // the two noncharacters that XML excludes.
        '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}' => {
            Some(TextFault::Refused(character))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_line_excludes_characters_that_stores_logs_or_banks_refuse() {
        for fine in ["", "Jürgen Größe", "東京", "a b/c", "💶", "\u{a0}", &"é".repeat(1024)] {
            assert_eq!(check_line(fine, TEXT_MAX), Ok(()), "{fine}");
        }
        for control in ["a\0b", "\t", "a\nb", "\r", "\u{1b}[31m", "\u{7f}", "\u{80}", "\u{85}", "\u{9f}"] {
            assert_eq!(check_line(control, TEXT_MAX), Err(TextFault::Control), "{control:?}");
        }
        for refused in ['\u{2028}', '\u{2029}', '\u{202e}', '\u{2066}', '\u{feff}', '\u{fffe}', '\u{ffff}'] {
            let text = format!("a{refused}");
            assert_eq!(check_line(&text, TEXT_MAX), Err(TextFault::Refused(refused)), "{text:?}");
        }
        assert_eq!(TextFault::Refused('\u{2028}').to_string(), "must not hold the character U+2028");
    }

    #[test]
    fn foreign_text_becomes_one_storable_line() {
        let cases = [
            ("", ""),
            (
                "execution reverted: ERC20\0\0InvalidReceiver\u{1}",
                "execution reverted: ERC20 InvalidReceiver",
            ),
            ("\r\n a\tb \u{202e}c\u{feff}\n", "a b c"),
            ("\0", ""),
            ("Größe 東京 💶", "Größe 東京 💶"),
        ];
        for (foreign, stored) in cases {
            assert_eq!(clean(foreign, TEXT_MAX), stored, "{foreign:?}");
            assert_eq!(check_line(stored, TEXT_MAX), Ok(()));
        }
        assert_eq!(clean("abc def", 7), "abc def");
        assert_eq!(clean("abc def", 6), "abc d…");
        assert_eq!(clean(&"💶".repeat(60_000), TEXT_MAX).chars().count(), TEXT_MAX);
    }

    #[test]
    fn length_is_counted_in_characters() {
        assert_eq!(check_line(&"💶".repeat(128), ID_MAX), Ok(()));
        for long in ["a".repeat(129), "💶".repeat(129), "\0".repeat(60_000)] {
            assert_eq!(check_line(&long, ID_MAX), Err(TextFault::TooLong { max: 128 }));
        }
        assert!(is_id("é") && !is_id("") && !is_id(&"a".repeat(129)) && !is_id("a\0"));
    }

    #[test]
    fn every_character_of_an_identifier_is_seen() {
        for unseen in ['\u{200b}', '\u{61c}', '\u{200f}', '\u{ad}', '\u{2060}', '\u{e0041}'] {
            let text = format!("order{unseen}");
            assert_eq!(check_id(&text), Err(TextFault::Refused(unseen)), "{text:?}");
            assert_eq!(check_line(&text, ID_MAX), Ok(()), "a name may have it");
        }
        assert_eq!(check_id(&"a".repeat(129)), Err(TextFault::IdLength));
        assert_eq!(TextFault::IdLength.to_string(), "must have 1 to 128 characters");
    }

    #[test]
    fn a_document_excludes_only_nul_in_keys_and_values() {
        let check = |document: Value| check_document(document.as_object().unwrap());
        assert_eq!(check(json!({"a": ["line\nline", {"b\t": 1e300}, null, true]})), Ok(()));
        for wrong in [json!({"\0": 1}), json!({"a": ["b\0"]}), json!({"a": {"\0": 1}}), json!({"a": "\0"})] {
            assert_eq!(check(wrong.clone()), Err(TextFault::Refused('\0')), "{wrong}");
        }
    }
}

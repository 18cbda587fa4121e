//! Texts and documents that a field may hold and that something behind the door may misread: a bank's XML and character
//! set, a statement in CSV, a log, a page, a statement of SQL, a path.

use serde_json::{Map, Value, json};

/// Lines of text in many scripts and many syntaxes. Each is short enough for an identifier.
pub(super) const LINES: [&str; 26] = [
    "<script>alert(1)</script>&amp;]]><!--<?xml version='1.0'?>",
    "\"><img src=x onerror=alert(1)>",
    "=HYPERLINK(\"http://127.0.0.1\";\"y\")",
    "+1+cmd|' /C calc'!A0",
    "\"a\",\"b\";c|d",
    "'; drop table execution; --",
    "$1 %s %n {} {0} ${jndi:ldap://x/a} \\x00 \\u0000 \\",
    "level=error msg=\"forged\" {\"level\":\"ERROR\"}",
    "../../../../etc/passwd",
    "{1:F01}{4::59:/DE-}",
    ":20:-}",
    "Đorđe Guðrún Łódź ẞ ß ı İ ŋ Æ",
    "Ελλάδα Україна საქართველო Հայաստան",
    "مرحبا שלום",
    "東京 서울 ไทย हिन्दी ລາວ",
    "𝔘𝔫𝔦 👩\u{200d}👩\u{200d}👧 🏳\u{fe0f}\u{200d}🌈 \u{e0041}",
    "e\u{301}\u{302}\u{303}\u{304}\u{305}\u{306}\u{307}\u{308}\u{309}\u{30a}\u{30b}\u{30c}\u{30d}\u{30e}",
    "\u{200b}\u{200d}\u{2060}\u{ad}",
    "\u{61c}x\u{200f}y\u{200e}",
    "\u{a0}\u{3000} ",
    " x ",
    "\u{fffd}\u{e000}\u{f8ff}\u{1fffe}\u{10ffff}",
    "null",
    "١٢٣",
    "-0",
    "1e999",
];

/// The longest lines, of one-byte and of four-byte characters.
pub(super) fn longest(characters: usize) -> [String; 2] {
    ["W".repeat(characters), "𝔘".repeat(characters)]
}

/// Objects whose content is the caller's own: deep, wide, long, with odd keys and odd numbers.
pub(super) fn documents() -> Vec<Value> {
    let deep = (0..100).fold(json!("end"), |inner, _| json!({ "a": [inner] }));
    let shallow = (0..30).fold(json!({}), |inner, _| json!({ "a": inner }));
    let wide: Map<String, Value> = (0..2_000).map(|n| (format!("key {n}"), json!(n))).collect();
    let lines: Map<String, Value> = LINES.iter().map(|line| ((*line).to_owned(), json!(line))).collect();
    vec![
        json!({ "deep": deep }),
        json!({ "shallow": shallow }),
        Value::Object(wide),
        Value::Object(lines),
        json!({"long": "W".repeat(50_000)}),
        json!({"W".repeat(50_000): 1}),
        json!({"": "", "__proto__": {"a": 1}, "$ref": "#", "constructor": null, "a\nb": "c\r\n\td"}),
        json!({"n": [1e308, -0.0, 5e-324, 9_007_199_254_740_993_u64, i64::MIN, u64::MAX]}),
        json!({"nothing": [null, [], {}, [[[[]]]], ""]}),
    ]
}

#[cfg(test)]
mod tests {
    use dvp_domain::text::{ID_MAX, TEXT_MAX, check_document, check_line};

    use super::*;

    #[test]
    fn the_rule_for_stored_text_lets_all_of_them_pass() {
        for line in LINES {
            assert_eq!(check_line(line, ID_MAX), Ok(()), "{line}");
        }
        for line in longest(TEXT_MAX) {
            assert_eq!(check_line(&line, TEXT_MAX), Ok(()));
        }
        for document in documents() {
            assert_eq!(check_document(document.as_object().unwrap()), Ok(()));
        }
    }
}

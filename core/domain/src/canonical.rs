//! Canonical JSON: object keys sorted recursively, array order kept, no white space, UTF-8 (spec section 2.7).

use serde_json::Value;
use sha2::{Digest, Sha256};

/// The canonical text of a JSON value.
pub fn canonical_json(value: &Value) -> String {
    let mut out = String::new();
    write_value(value, &mut out);
    out
}

/// SHA-256 over the canonical text.
pub fn canonical_sha256(value: &Value) -> [u8; 32] {
    Sha256::digest(canonical_json(value).as_bytes()).into()
}

/// SHA-256 of text.
pub fn sha256(text: &str) -> [u8; 32] {
    Sha256::digest(text.as_bytes()).into()
}

/// `0x` and 64 lowercase hex digits.
pub fn hex32(bytes: &[u8; 32]) -> String {
    format!("0x{}", hex::encode(bytes))
}

fn write_value(value: &Value, out: &mut String) {
    match value {
        Value::Object(map) => {
            let mut entries: Vec<_> = map.iter().collect();
            entries.sort_by(|a, b| a.0.cmp(b.0));
            write_list(out, '{', '}', entries, |(key, value), out| {
                write_value(&Value::String(key.clone()), out);
                out.push(':');
                write_value(value, out);
            });
        }
        Value::Array(items) => write_list(out, '[', ']', items, write_value),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            out.push_str(&value.to_string())
        }
    }
}

fn write_list<T>(
    out: &mut String,
    open: char,
    close: char,
    items: impl IntoIterator<Item = T>,
    mut write: impl FnMut(T, &mut String),
) {
    out.push(open);
    for (index, item) in items.into_iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        write(item, out);
    }
    out.push(close);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn keys_are_sorted_at_every_depth_and_arrays_keep_their_order() {
        let value = json!({"b": [{"z": 1, "a": null}, "x"], "a": "é\n"});
        assert_eq!(canonical_json(&value), r#"{"a":"é\n","b":[{"a":null,"z":1},"x"]}"#);
    }

    #[test]
    fn the_hash_is_sha256_of_the_canonical_bytes() {
        // printf '{"a":1}' | sha256sum
        let expected = "015abd7f5cc57a2dd94b7590f04ad8084273905ee33ec5cebeae62276a97f862";
        assert_eq!(hex::encode(canonical_sha256(&json!({"a": 1}))), expected);
    }
}

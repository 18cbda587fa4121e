//! JSON from outside, where a member that is given twice is a fault: which of the two values its sender meant is not
//! known, and another reader of the same text may take the other one.

use std::cell::RefCell;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// A document that was read.
#[derive(Debug, Clone, PartialEq)]
pub struct Document {
    /// With the last one of a member's values.
    pub value: Value,
    /// The path of the first member that is there twice.
    pub repeated: Option<String>,
}

/// Why a document is not taken.
#[derive(Debug, thiserror::Error)]
pub enum JsonFault {
    #[error("is not valid JSON")]
    Syntax(#[source] serde_json::Error),
    #[error("{0} is given twice")]
    Repeated(String),
}

/// Reads a document, and finds a member that is given twice.
pub fn read(text: &[u8]) -> Result<Document, serde_json::Error> {
    let repeated = RefCell::default();
    let mut reader = serde_json::Deserializer::from_slice(text);
    let value = Node(&repeated).deserialize(&mut reader)?;
    reader.end()?;
    Ok(Document { value, repeated: repeated.into_inner() })
}

/// Reads a document without a member that is given twice.
pub fn parse(text: &[u8]) -> Result<Value, JsonFault> {
    let Document { value, repeated } = read(text).map_err(JsonFault::Syntax)?;
    repeated.map_or(Ok(value), |path| Err(JsonFault::Repeated(path)))
}

/// Reads one value. The path of a repeated member is built from the inside out, so that other documents cost nothing.
#[derive(Clone, Copy)]
struct Node<'a>(&'a RefCell<Option<String>>);

impl Node<'_> {
    /// Reads a value inside of this one, which `place` names.
    fn within<V, E>(
        self,
        place: impl FnOnce() -> String,
        read: impl FnOnce() -> Result<V, E>,
    ) -> Result<V, E> {
        let was_found = self.0.borrow().is_some();
        let value = read()?;
        if let (false, Some(path)) = (was_found, self.0.borrow_mut().as_mut()) {
            let joint = if path.starts_with('[') { "" } else { "." };
            *path = format!("{}{joint}{path}", place());
        }
        Ok(value)
    }
}

impl<'de> DeserializeSeed<'de> for Node<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("a number beyond all bounds"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut all = Vec::new();
        while let Some(item) = self.within(|| format!("[{}]", all.len()), || items.next_element_seed(self))? {
            all.push(item);
        }
        Ok(Value::Array(all))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut all = Map::new();
        while let Some(name) = members.next_key::<String>()? {
            let value = self.within(|| name.clone(), || members.next_value_seed(self))?;
            if all.contains_key(&name) {
                self.0.borrow_mut().get_or_insert_with(|| name.clone());
            }
            all.insert(name, value);
        }
        Ok(Value::Object(all))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repeated(text: &str) -> Option<String> {
        read(text.as_bytes()).unwrap().repeated
    }

    #[test]
    fn a_repeated_member_is_found_by_its_path() {
        for (text, path) in [
            (r#"{"a":1,"a":1}"#, "a"),
            (r#"{"a":1,"\u0061":2}"#, "a"),
            (r#"{"a":{"b":{"c":null,"c":1}}}"#, "a.b.c"),
            (r#"{"a":[0,{"b":1,"b":2}],"c":{"d":1,"d":2}}"#, "a[1].b"),
            (r#"[[{"a":1,"a":2}]]"#, "[0][0].a"),
            (r#"{"a":1,"b":{"c":1},"a":{"c":1}}"#, "a"),
        ] {
            assert_eq!(repeated(text).as_deref(), Some(path), "{text}");
            let fault = parse(text.as_bytes()).unwrap_err();
            assert_eq!(fault.to_string(), format!("{path} is given twice"));
        }
        for text in [r#"{"a":{"b":1},"b":{"a":1}}"#, r#"[{"a":1},{"a":1}]"#, "{}", "null"] {
            assert_eq!(repeated(text), None, "{text}");
        }
    }

    #[test]
    fn everything_else_is_read_as_serde_json_reads_it() {
        let deep = format!("{}1{}", "[".repeat(200), "]".repeat(200));
        for text in [
            r#" {"a":[1,-1,1.5,1e300,18446744073709551615,true,null,"\u20ac\n"],"":{}} "#,
            "3",
            "",
            "{",
            "{} {}",
            r#"{"a":1,}"#,
            r#"{1:2}"#,
            "1e999",
            "\"\u{1}\"",
            &deep,
        ] {
            let (ours, theirs) = (parse(text.as_bytes()), serde_json::from_str::<Value>(text));
            assert_eq!(ours.ok(), theirs.ok(), "{text}");
        }
        assert!(parse(b"\"\xff\"").is_err());
    }
}

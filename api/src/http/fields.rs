//! Reading a JSON body field by field. Every fault is `INVALID_PARAMETER` with the path of the field first.
//!
//! `null` is the same as absent. A field that an object does not have is refused: `quoteid` for `quoteId` would change
//! what is asked for. Open objects are the caller's own. No text that leaves this module breaks the domain's rule for
//! stored text.

use axum::extract::Request;
use chrono::{DateTime, Utc};
use dvp_domain::address::{Address, AddressFault};
use dvp_domain::json::{self, Document};
use dvp_domain::money::{AmountError, Minor};
use dvp_domain::names::suggestion;
pub(crate) use dvp_domain::text::{ID_MAX, is_id};
use dvp_domain::text::{TEXT_MAX, check_document, check_id, check_line, clean};
use serde_json::{Map, Value};

use crate::http::body::{RawBody, check_media};
use crate::http::error::ApiError;

/// The end of the year 9999, Unix milliseconds: beyond it a date has no ISO 8601 form.
const MILLIS_MAX: i64 = 253_402_300_799_999;

pub(crate) fn fault(path: &str, problem: impl std::fmt::Display) -> ApiError {
    ApiError::InvalidParameter { param: path.to_owned(), problem: problem.to_string() }
}

pub(crate) fn repeated(path: &str) -> ApiError {
    fault(path, "is given twice")
}

/// The JSON body of a request, of a type that says so.
pub(crate) async fn take_body(request: Request) -> Result<Value, ApiError> {
    let (mut parts, body) = request.into_parts();
    let bytes = RawBody::take(&mut parts, body).await?;
    check_media(&parts.headers)?;
    read_body(&bytes)
}

/// A body without a member that is given twice.
pub(crate) fn read_body(bytes: &[u8]) -> Result<Value, ApiError> {
    match json::read(bytes) {
        Ok(Document { value, repeated: None }) => Ok(value),
        Ok(Document { repeated: Some(path), .. }) => Err(repeated(&path)),
        Err(_) => Err(fault("body", "is not valid JSON")),
    }
}

/// A JSON object and where it is in the body.
pub(crate) struct Object<'a> {
    path: String,
    fields: &'a Map<String, Value>,
}

impl<'a> Object<'a> {
    /// A body that has none but the `known` fields.
    pub(crate) fn root(body: &'a Value, known: &[&str]) -> Result<Self, ApiError> {
        let fields = body.as_object().ok_or_else(|| fault("body", "must be a JSON object"))?;
        Self { path: String::new(), fields }.of(known)
    }

    fn of(self, known: &[&str]) -> Result<Self, ApiError> {
        match self.fields.keys().find(|name| !known.contains(&name.as_str())) {
            None => Ok(self),
            Some(name) => {
                let near = suggestion(name, known.iter().copied());
                Err(self.fault(&clean(name, ID_MAX), format_args!("unknown field{near}")))
            }
        }
    }

    pub(crate) fn path(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }

    pub(crate) fn fault(&self, name: &str, problem: impl std::fmt::Display) -> ApiError {
        fault(&self.path(name), problem)
    }

    fn value(&self, name: &str) -> Option<&'a Value> {
        self.fields.get(name).filter(|value| !value.is_null())
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.value(name).is_some()
    }

    pub(crate) fn required<T>(&self, name: &str, found: Option<T>) -> Result<T, ApiError> {
        found.ok_or_else(|| self.fault(name, "is required"))
    }

    /// A line of text, possibly empty.
    pub(crate) fn opt_text(&self, name: &str) -> Result<Option<&'a str>, ApiError> {
        self.opt_text_of(name, TEXT_MAX)
    }

    /// A text of so many characters at most.
    pub(crate) fn opt_text_of(&self, name: &str, max: usize) -> Result<Option<&'a str>, ApiError> {
        let Some(value) = self.value(name) else { return Ok(None) };
        let text = value.as_str().ok_or_else(|| self.fault(name, "must be a string"))?;
        check_line(text, max).map_err(|problem| self.fault(name, problem))?;
        Ok(Some(text))
    }

    pub(crate) fn text(&self, name: &str) -> Result<&'a str, ApiError> {
        self.required(name, self.opt_text(name)?)
    }

    pub(crate) fn opt_id(&self, name: &str) -> Result<Option<&'a str>, ApiError> {
        let text = self.opt_text(name)?;
        if let Some(Err(problem)) = text.map(check_id) {
            return Err(self.fault(name, problem));
        }
        Ok(text)
    }

    pub(crate) fn id(&self, name: &str) -> Result<&'a str, ApiError> {
        self.required(name, self.opt_id(name)?)
    }

    /// An address, with its checksum if it is of both cases.
    pub(crate) fn opt_address(&self, name: &str) -> Result<Option<&'a str>, ApiError> {
        let text = self.opt_text(name)?;
        if let Some(Err(fault)) = text.map(str::parse::<Address>) {
            return Err(self.fault(name, fault));
        }
        Ok(text)
    }

    /// An identifier that is an address in most requests: a wrong checksum is its own fault, the rest is found later.
    pub(crate) fn id_or_address(&self, name: &str) -> Result<&'a str, ApiError> {
        let text = self.id(name)?;
        match text.parse::<Address>() {
            Err(fault @ AddressFault::Checksum) => Err(self.fault(name, fault)),
            Ok(_) | Err(_) => Ok(text),
        }
    }

    /// One of the named values.
    pub(crate) fn opt_choice<T: Copy>(
        &self,
        name: &str,
        choices: &[(&str, T)],
    ) -> Result<Option<T>, ApiError> {
        let Some(text) = self.opt_text(name)? else { return Ok(None) };
        let chosen = choices.iter().find(|choice| choice.0 == text).map(|choice| choice.1);
        chosen.map(Some).ok_or_else(|| {
            let names: Vec<&str> = choices.iter().map(|choice| choice.0).collect();
            self.fault(name, format_args!("must be one of {}", names.join(", ")))
        })
    }

    pub(crate) fn choice<T: Copy>(&self, name: &str, choices: &[(&str, T)]) -> Result<T, ApiError> {
        self.required(name, self.opt_choice(name, choices)?)
    }

    /// Minor units above zero.
    pub(crate) fn amount(&self, name: &str) -> Result<Minor, ApiError> {
        let amount = self.units(name)?;
        if amount.is_zero() { Err(self.fault(name, "must be above zero")) } else { Ok(amount) }
    }

    /// An integer string, zero too.
    pub(crate) fn units(&self, name: &str) -> Result<Minor, ApiError> {
        Minor::parse(self.text(name)?).map_err(|error: AmountError| self.fault(name, error))
    }

    /// Unix milliseconds.
    pub(crate) fn millis(&self, name: &str) -> Result<i64, ApiError> {
        let value = self.required(name, self.value(name))?;
        value
            .as_i64()
            .filter(|millis| (0..=MILLIS_MAX).contains(millis))
            .ok_or_else(|| self.fault(name, "must be a whole number of Unix milliseconds"))
    }

    /// A time as text, RFC 3339.
    pub(crate) fn time(&self, name: &str) -> Result<DateTime<Utc>, ApiError> {
        let parsed = DateTime::parse_from_rfc3339(self.text(name)?);
        parsed
            .map(|at| at.to_utc())
            .map_err(|_| self.fault(name, "must be an ISO 8601 time such as 2026-11-01T09:00:00Z"))
    }

    /// Unix seconds.
    pub(crate) fn seconds(&self, name: &str) -> Result<u64, ApiError> {
        let value = self.required(name, self.value(name))?;
        let latest = MILLIS_MAX.cast_unsigned() / 1000;
        value
            .as_u64()
            .filter(|seconds| *seconds <= latest)
            .ok_or_else(|| self.fault(name, "must be a whole number of Unix seconds"))
    }

    /// Basis points of at most the whole. A fraction is cut off, which makes a bound stricter.
    pub(crate) fn opt_bps(&self, name: &str) -> Result<Option<u128>, ApiError> {
        let Some(value) = self.value(name) else { return Ok(None) };
        let number = value.as_f64().filter(|number| (0.0..=10_000.0).contains(number));
        // Written without an exponent, with a point only before a fraction.
        let whole = number.and_then(|number| format!("{number}").split('.').next()?.parse().ok());
        whole.map(Some).ok_or_else(|| self.fault(name, "must be a number of basis points from 0 to 10000"))
    }

    /// An object that has none but the `known` fields.
    pub(crate) fn opt_object(&self, name: &str, known: &[&str]) -> Result<Option<Self>, ApiError> {
        self.opt_open(name)?.map(|object| object.of(known)).transpose()
    }

    pub(crate) fn object(&self, name: &str, known: &[&str]) -> Result<Self, ApiError> {
        self.required(name, self.opt_object(name, known)?)
    }

    /// An object that may have further fields, of the caller's own.
    pub(crate) fn opt_open(&self, name: &str) -> Result<Option<Self>, ApiError> {
        let Some(value) = self.value(name) else { return Ok(None) };
        let fields = value.as_object().ok_or_else(|| self.fault(name, "must be an object"))?;
        Ok(Some(Self { path: self.path(name), fields }))
    }

    /// An object whose content is the caller's own.
    pub(crate) fn opt_open_object(&self, name: &str) -> Result<Option<Map<String, Value>>, ApiError> {
        let Some(object) = self.opt_open(name)? else { return Ok(None) };
        check_document(object.fields).map_err(|problem| self.fault(name, problem))?;
        Ok(Some(object.fields.clone()))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn message<T>(read: Result<T, ApiError>) -> String {
        match read {
            Err(ApiError::InvalidParameter { param, problem }) => format!("{param}: {problem}"),
            Err(other) => panic!("{other:?}"),
            Ok(_) => panic!("was read"),
        }
    }

    #[test]
    fn a_fault_names_the_path_of_its_field() {
        let body = json!({"a": {"b": {"c": 1}}, "n": null, "o": {"x": ["\u{0}"]}});
        let root = Object::root(&body, &["a", "n", "o"]).unwrap();
        let inner = root.object("a", &["b"]).unwrap().object("b", &["c", "d"]).unwrap();
        assert_eq!(message(inner.id("c")), "a.b.c: must be a string");
        assert_eq!(message(inner.id("d")), "a.b.d: is required");
        assert_eq!(message(root.id("n")), "n: is required");
        assert_eq!(message(root.opt_open_object("o")), "o: must not hold the character U+0000");
        assert_eq!(message(Object::root(&json!([]), &[])), "body: must be a JSON object");
    }

    #[test]
    fn a_field_that_an_object_does_not_have_is_refused_with_the_nearest_name() {
        let body = json!({"quoteid": "q", "a": {"Limit": 1}, "x\u{202e}\n": null});
        let fault = |known: &[&str]| message(Object::root(&body, known));
        let rest = ["a", "x\u{202e}\n"];
        assert_eq!(
            fault(&[&rest[..], &["quoteId"]].concat()),
            "quoteid: unknown field, did you mean quoteId?"
        );
        assert_eq!(
            fault(&[&rest[..], &["side"]].concat()),
            "quoteid: unknown field; there is a, x\u{202e}\n, side"
        );
        assert_eq!(fault(&["a", "quoteid"]), "x: unknown field; there is a, quoteid");
        let root = Object::root(&body, &[&rest[..], &["quoteid"]].concat()).unwrap();
        assert_eq!(message(root.object("a", &["limit"])), "a.Limit: unknown field, did you mean limit?");
    }

    #[test]
    fn basis_points_may_have_a_fraction() {
        let read =
            |bps: Value| Object::root(&json!({ "b": bps }), &["b"]).unwrap().opt_bps("b").ok().flatten();
        for (given, taken) in [(json!(50), 50), (json!(12.5), 12), (json!(0.9), 0), (json!(10_000), 10_000)] {
            assert_eq!(read(given.clone()), Some(taken), "{given}");
        }
        for wrong in [json!(-0.5), json!(10_000.1), json!("50"), json!(1e300)] {
            assert_eq!(read(wrong.clone()), None, "{wrong}");
        }
    }

    #[test]
    fn times_are_whole_numbers_within_the_calendar() {
        for wrong in [json!(1.5), json!("1"), json!(-1), json!(MILLIS_MAX + 1), json!(1e12), json!(true)] {
            let body = json!({ "t": wrong });
            assert!(Object::root(&body, &["t"]).unwrap().millis("t").is_err(), "{body}");
        }
        let body = json!({ "t": MILLIS_MAX });
        assert_eq!(Object::root(&body, &["t"]).unwrap().millis("t").unwrap(), MILLIS_MAX);
    }
}

//! One JSON object a line: the event's fields and those of the spans around it (`intent_id`, `partner`, `session`,
//! `request_id`, `trace_id`), all at the top, so that any of them can be searched for without knowing the spans.

use std::fmt;
use std::io::Write as _;

use chrono::{SecondsFormat, Utc};
use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

/// Writes each event to `W`.
pub(super) struct JsonLines<W>(pub W);

/// The fields that a span has so far.
#[derive(Default)]
struct Fields(Map<String, Value>);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.insert(field, format!("{value:?}").into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.insert(field, value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.insert(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.insert(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.insert(field, value.into());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.insert(field, value.into());
    }
}

impl Fields {
    fn insert(&mut self, field: &Field, value: Value) {
        self.0.insert(field.name().to_owned(), value);
    }
}

impl<S, W> Layer<S> for JsonLines<W>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    W: for<'a> MakeWriter<'a> + 'static,
{
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        span.extensions_mut().insert(fields);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        if let Some(fields) = span.extensions_mut().get_mut::<Fields>() {
            values.record(fields);
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut line = Fields::default();
        let mut spans = Vec::new();
        for span in context.event_scope(event).into_iter().flat_map(|scope| scope.from_root()) {
            spans.push(Value::from(span.name()));
            if let Some(fields) = span.extensions().get::<Fields>() {
                line.0.extend(fields.0.iter().map(|(name, value)| (name.clone(), value.clone())));
            }
        }
        event.record(&mut line);
        // These names are the line's own.
        let metadata = event.metadata();
        line.0.insert("timestamp".into(), Utc::now().to_rfc3339_opts(SecondsFormat::Micros, true).into());
        line.0.insert("level".into(), metadata.level().as_str().into());
        line.0.insert("target".into(), metadata.target().into());
        if !spans.is_empty() {
            line.0.insert("spans".into(), spans.into());
        }
        let mut text = Value::Object(line.0).to_string();
        text.push('\n');
        // A log that cannot be written has nowhere to say so.
        let _ = self.0.make_writer_for(metadata).write_all(text.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tempfile::NamedTempFile;
    use tracing::{info, info_span};
    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;

    #[test]
    fn a_line_is_one_object_with_the_fields_of_all_spans() {
        let log = NamedTempFile::new().unwrap();
        let subscriber = tracing_subscriber::registry().with(JsonLines(log.reopen().unwrap()));
        tracing::subscriber::with_default(subscriber, || {
            let request = info_span!("request", request_id = "r-1", partner = tracing::field::Empty);
            let _request = request.enter();
            request.record("partner", "acme");
            let _submit = info_span!("submit", intent_id = "i \"1\"\n").entered();
            info!(status = 202, level = "mine", "request answered");
        });
        let text = fs::read_to_string(log.path()).unwrap();
        assert_eq!(text.matches('\n').count(), 1, "{text}");
        let mut line: Map<String, Value> = serde_json::from_str(&text).unwrap();
        let at = line.remove("timestamp").unwrap();
        assert!(at.as_str().unwrap().ends_with('Z'), "{at}");
        let expected = serde_json::json!({
            "level": "INFO", "target": module_path!(), "message": "request answered", "status": 202,
            "request_id": "r-1", "partner": "acme", "intent_id": "i \"1\"\n", "spans": ["request", "submit"],
        });
        assert_eq!(Value::Object(line), expected);
    }
}

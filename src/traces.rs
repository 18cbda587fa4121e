//! Exports the spans of traces as OTLP over HTTP, in its JSON encoding.
//!
//! The ids are the service's own ([`dvp_core::trace`]), because a trace goes on in other processes and long after its
//! request: a span names its trace in the fields `trace_id`, `span_id` and `parent_span_id`, and a span without them
//! belongs to the span around it. A span of no trace, or of one that its caller does not record, is not exported.
//! Written here and not by the OpenTelemetry crates, which keep a span's ids to themselves and would be forty crates
//! more for this one request.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context as _;
use metrics::counter;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Subscriber, warn};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

/// Spans that wait for their export; more are dropped and counted.
const QUEUE: usize = 8192;
/// Spans of one request.
const BATCH: usize = 512;
/// How long spans are gathered.
const GATHER: Duration = Duration::from_secs(1);
const TIMEOUT: Duration = Duration::from_secs(10);
/// The time for the last spans at the end of the process.
const FLUSH: Duration = Duration::from_secs(3);

/// Records spans for the [`Exporter`].
pub(crate) struct SpanRecorder(mpsc::Sender<Value>);

/// Sends recorded spans to a collector.
pub(crate) struct Exporter {
    url: reqwest::Url,
    spans: mpsc::Receiver<Value>,
}

/// The two ends of the export to a collector, such as `http://127.0.0.1:4318`.
pub(crate) fn to(endpoint: &reqwest::Url) -> anyhow::Result<(SpanRecorder, Exporter)> {
    let mut url = endpoint.clone();
    url.path_segments_mut()
        .ok()
        .context("the endpoint of traces is no http address")?
        .pop_if_empty()
        .extend(["v1", "traces"]);
    let (sender, spans) = mpsc::channel(QUEUE);
    Ok((SpanRecorder(sender), Exporter { url, spans }))
}

/// A span that has not ended.
struct Open {
    trace: Option<String>,
    span: Option<String>,
    parent: Option<String>,
    began: u128,
    attributes: Vec<Value>,
}

impl Visit for Open {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.text(field, format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.text(field, value.to_owned());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.attributes.push(json!({"key": field.name(), "value": {"intValue": value.to_string()}}));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.attributes.push(json!({"key": field.name(), "value": {"intValue": value.to_string()}}));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.attributes.push(json!({"key": field.name(), "value": {"boolValue": value}}));
    }
}

impl Open {
    fn text(&mut self, field: &Field, value: String) {
        match field.name() {
            "trace_id" => self.trace = Some(value),
            "span_id" => self.span = Some(value),
            "parent_span_id" => self.parent = Some(value),
            name => self.attributes.push(json!({"key": name, "value": {"stringValue": value}})),
        }
    }
}

fn unix_nanos() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos())
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for SpanRecorder {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let mut open =
            Open { trace: None, span: None, parent: None, began: unix_nanos(), attributes: Vec::new() };
        attributes.record(&mut open);
        // The span around it may still be without ids, and belong to no trace.
        if let Some(around) = span.parent()
            && let Some(around) = around.extensions().get::<Open>()
            && let (Some(trace), Some(parent)) = (&around.trace, &around.span)
        {
            open.trace = Some(trace.clone());
            open.parent = Some(parent.clone());
            open.span = Some(dvp_core::trace::new_span_id());
        }
        span.extensions_mut().insert(open);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        if let Some(open) = span.extensions_mut().get_mut::<Open>() {
            values.record(open);
        }
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let Some(span) = context.span(&id) else { return };
        let Some(Open { trace: Some(trace), span: Some(own), parent, began, attributes }) =
            span.extensions_mut().remove::<Open>()
        else {
            return;
        };
        // Of OTLP: a server's, a client's, or an inner span.
        let kind = match span.name() {
            "request" | "fix_order" => 2,
            "effect" | "webhook" | "relay" => 3,
            _ => 1,
        };
        let mut recorded = json!({
            "traceId": trace, "spanId": own, "name": span.name(), "kind": kind,
            "startTimeUnixNano": began.to_string(), "endTimeUnixNano": unix_nanos().to_string(),
            "attributes": attributes,
        });
        if let Some(parent) = parent {
            recorded["parentSpanId"] = parent.into();
        }
        if self.0.try_send(recorded).is_err() {
            counter!("dvp_trace_spans_total", "result" => "dropped").increment(1);
        }
    }
}

/// A running export.
pub(crate) struct Export {
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Export {
    /// Sends what is left, as far as the collector takes it in time.
    pub(crate) async fn end(self) {
        let _ = self.stop.send(());
        let _ = tokio::time::timeout(FLUSH, self.task).await;
    }
}

impl Exporter {
    pub(crate) fn start(self) -> anyhow::Result<Export> {
        let client = reqwest::Client::builder().timeout(TIMEOUT).build().context("export of traces")?;
        dvp_core::trace::record_spans();
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(self.run(client, stopped));
        Ok(Export { stop, task })
    }

    async fn run(mut self, client: reqwest::Client, mut stopped: oneshot::Receiver<()>) {
        let mut gathered = Vec::with_capacity(BATCH);
        let mut works = true;
        loop {
            let stops = tokio::select! {
                _ = &mut stopped => true,
                () = tokio::time::sleep(GATHER) => false,
            };
            while let Ok(span) = self.spans.try_recv() {
                gathered.push(span);
                if gathered.len() == BATCH {
                    self.send(&client, &mut gathered, &mut works).await;
                }
            }
            if !gathered.is_empty() {
                self.send(&client, &mut gathered, &mut works).await;
            }
            if stops {
                return;
            }
        }
    }

    async fn send(&self, client: &reqwest::Client, gathered: &mut Vec<Value>, works: &mut bool) {
        let spans = std::mem::take(gathered);
        let count = u64::try_from(spans.len()).unwrap_or(u64::MAX);
        let version = env!("CARGO_PKG_VERSION");
        let resource = json!({"attributes": [
            {"key": "service.name", "value": {"stringValue": "dvp"}},
            {"key": "service.version", "value": {"stringValue": version}},
        ]});
        let scope = json!({"name": "dvp", "version": version});
        let body = json!({"resourceSpans": [
            {"resource": resource, "scopeSpans": [{"scope": scope, "spans": spans}]}
        ]});
        let sent = client.post(self.url.clone()).json(&body).send().await;
        let failure = match sent.and_then(reqwest::Response::error_for_status) {
            Ok(_) => None,
            Err(error) => Some(error.without_url().to_string()),
        };
        let result = if failure.is_some() { "failed" } else { "exported" };
        counter!("dvp_trace_spans_total", "result" => result).increment(count);
        if let (Some(error), true) = (&failure, *works) {
            warn!(error, spans = count, "the collector does not take spans; they are dropped");
        }
        *works = failure.is_none();
    }
}

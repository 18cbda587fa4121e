//! Errors of requests: one envelope, one released set of codes.
//!
//! A code is never renamed or reused; `docs/errors/<code>.md` explains each. The answer contains what a partner can
//! change; internal causes go to the log only.

use std::time::Instant;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use dvp_core::engine::EngineError;
use dvp_domain::abandonment::CoolDown;
use dvp_domain::permit::PermitDefect;
use dvp_domain::rejection::Detail;
use dvp_store::orders::idempotency::StoredResponse;
use dvp_store::{DatabaseError, StoreError};
use metrics::counter;
use serde::Serialize;
use tracing::{error, warn};

use crate::delivery::url::UrlFault;
use crate::http::log_limit::LogLimit;
use crate::http::request_id::current_id;

macro_rules! codes {
    ($($variant:ident $text:literal $status:ident $(= $message:literal)?)*) => {
        /// The `code` of an error answer.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Code { $($variant),* }

        impl Code {
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text),* }
            }

            pub const fn status(self) -> StatusCode {
                match self { $(Self::$variant => StatusCode::$status),* }
            }

            /// Of an error that says the same each time.
            const fn message(self) -> &'static str {
                match self { $(Self::$variant => concat!($($message)?)),* }
            }

            pub fn parse(text: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|code| code.as_str() == text)
            }

            /// The code's documentation, as Markdown.
            pub(crate) const fn page(self) -> &'static str {
                match self {
                    $(Self::$variant => include_str!(concat!("../../../docs/errors/", $text, ".md"))),*
                }
            }
        }
    };
}

codes! {
    MissingApiKey "MISSING_API_KEY" UNAUTHORIZED = "the header X-API-Key is missing"
    InvalidApiKey "INVALID_API_KEY" UNAUTHORIZED = "the API key is not valid"
    ApiKeyDisabled "API_KEY_DISABLED" FORBIDDEN = "the API key is disabled"
    InsufficientScope "INSUFFICIENT_SCOPE" FORBIDDEN
    RateLimitExceeded "RATE_LIMIT_EXCEEDED" TOO_MANY_REQUESTS
    InvalidSignature "INVALID_SIGNATURE" UNAUTHORIZED
    IdempotencyKeyRequired "IDEMPOTENCY_KEY_REQUIRED" BAD_REQUEST = "the header X-Idempotency-Key is missing"
    IdempotencyKeyInvalid "IDEMPOTENCY_KEY_INVALID" BAD_REQUEST
    IdempotencyKeyConflict "IDEMPOTENCY_KEY_CONFLICT" CONFLICT
        = "the idempotency key was used for a different request"
    IdempotencyKeyProcessing "IDEMPOTENCY_KEY_PROCESSING" CONFLICT
        = "the request with this idempotency key is still being worked on"
    PayloadTooLarge "PAYLOAD_TOO_LARGE" PAYLOAD_TOO_LARGE = "the body is larger than 65536 bytes"
    UnsupportedMediaType "UNSUPPORTED_MEDIA_TYPE" UNSUPPORTED_MEDIA_TYPE = "Content-Type must be application/json"
    InvalidParameter "INVALID_PARAMETER" BAD_REQUEST
    InvalidPermit "INVALID_PERMIT" BAD_REQUEST
    AlreadyExists "ALREADY_EXISTS" CONFLICT
    IdempotencyConflict "IDEMPOTENCY_CONFLICT" CONFLICT = "the Idempotency-Key was used for a different request"
    InvalidUrl "INVALID_URL" BAD_REQUEST
    InsufficientLiquidity "INSUFFICIENT_LIQUIDITY" UNPROCESSABLE_ENTITY = "no provider can lock this exchange right now"
    InvalidRefType "INVALID_REF_TYPE" BAD_REQUEST = "refType: must be clientReference or executionId"
    ExecutionNotFound "EXECUTION_NOT_FOUND" NOT_FOUND = "no execution has this reference"
    ReceiptNotFound "receipt_not_found" NOT_FOUND = "no execution has this reference"
    ReceiptNotIssued "receipt_not_issued" CONFLICT = "the execution has not completed, so there is no receipt"
    ReceiptCorrupt "receipt_corrupt" INTERNAL_SERVER_ERROR = "the stored receipt cannot be read"
    InvalidCursor "INVALID_CURSOR" BAD_REQUEST = "the cursor is not one of this list; ask again without it"
    InvalidType "INVALID_TYPE" BAD_REQUEST
    IntentNotFound "INTENT_NOT_FOUND" NOT_FOUND = "no intent has this id"
    InvalidPair "INVALID_PAIR" BAD_REQUEST = "the pair is not dealt in; GET /v1/pairs lists those that are"
    InvalidStrategy "INVALID_STRATEGY" BAD_REQUEST = "strategy: must be instant, optimized or scheduled"
    AmountOutOfRange "AMOUNT_OUT_OF_RANGE" BAD_REQUEST = "amount: must be above zero and below 2^128 minor units"
    ConstraintsNotMet "CONSTRAINTS_NOT_MET" BAD_REQUEST
    IntentExpired "INTENT_EXPIRED" BAD_REQUEST = "the intent has expired"
    IntentAlreadyExecuting "INTENT_ALREADY_EXECUTING" BAD_REQUEST
        = "the intent is being executed or has ended, and cannot be cancelled"
    NotFound "NOT_FOUND" NOT_FOUND = "there is nothing at this path"
    MethodNotAllowed "METHOD_NOT_ALLOWED" METHOD_NOT_ALLOWED = "this path does not take this method"
    InternalError "INTERNAL_ERROR" INTERNAL_SERVER_ERROR
    ServiceUnavailable "SERVICE_UNAVAILABLE" SERVICE_UNAVAILABLE
}

impl Code {
    /// The field or header that every error of this code is about.
    const fn param(self) -> Option<&'static str> {
        match self {
            Self::MissingApiKey | Self::InvalidApiKey | Self::ApiKeyDisabled => Some("X-API-Key"),
            Self::IdempotencyKeyRequired | Self::IdempotencyKeyConflict | Self::IdempotencyKeyProcessing => {
                Some("X-Idempotency-Key")
            }
            Self::IdempotencyConflict => Some("Idempotency-Key"),
            Self::UnsupportedMediaType => Some("Content-Type"),
            Self::InvalidRefType => Some("refType"),
            Self::InvalidStrategy => Some("strategy"),
            Self::AmountOutOfRange => Some("amount"),
            _ => None,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ApiError {
    /// Of a code with a message of its own.
    Plain(Code),
    InsufficientScope(&'static str),
    RateLimitExceeded {
        retry_after_secs: u64,
    },
    /// The caller's address has sent too many invalid keys.
    TooManyUnknownKeys {
        retry_after_secs: u64,
    },
    /// The caller has as many waiting orders of the older surface as it may have.
    TooManyWaiting,
    /// The caller, or the wallet of its order, has let too many orders or quotes go.
    CoolingDown(CoolDown),
    /// Names the cause.
    InvalidSignature(&'static str),
    IdempotencyKeyInvalid(&'static str),
    InvalidParameter {
        /// The path of the field, or the name of the query parameter.
        param: String,
        problem: String,
    },
    InvalidPermit(PermitDefect),
    AlreadyExists(&'static str),
    /// The webhook endpoint has a replay of another range.
    ReplayInProgress,
    InvalidUrl(UrlFault),
    Missing(&'static str),
    /// The field that holds the type.
    InvalidType(&'static str),
    /// The field, and what would be right.
    ConstraintsNotMet(&'static str, &'static str),
    /// Why a firm quote is not given.
    NoQuote(Detail),
    /// For the log.
    Internal(String),
    /// For the log.
    Unavailable(String),
    /// Too many requests are in progress.
    Busy,
    /// The route's time limit passed.
    TimedOut,
}

/// How a handler answers.
pub(crate) type Reply = Result<Response, ApiError>;

/// Why a request was refused, for its line in the log.
#[derive(Debug, Clone)]
pub(crate) struct RefusedRequest {
    pub(crate) code: Code,
    pub(crate) message: String,
}

/// How long a caller waits before asking again for a key under way, or a busy service. A floor, in seconds.
const RETRY_SOON_SECS: u64 = 1;
/// How long a caller waits for its waiting orders to end: the usual life of one.
const RETRY_WAITING_SECS: u64 = 30;

#[derive(Serialize)]
struct Envelope<'a> {
    success: bool,
    error: Body<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Body<'a> {
    code: &'a str,
    message: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    param: Option<&'a str>,
    doc_url: String,
    request_id: &'a str,
}

impl ApiError {
    pub(crate) const fn code(&self) -> Code {
        match self {
            Self::Plain(code) => *code,
            Self::InsufficientScope(_) => Code::InsufficientScope,
            Self::RateLimitExceeded { .. }
            | Self::TooManyUnknownKeys { .. }
            | Self::TooManyWaiting
            | Self::CoolingDown(_) => Code::RateLimitExceeded,
            Self::InvalidSignature(_) => Code::InvalidSignature,
            Self::IdempotencyKeyInvalid(_) => Code::IdempotencyKeyInvalid,
            Self::InvalidParameter { .. } => Code::InvalidParameter,
            Self::InvalidPermit(_) => Code::InvalidPermit,
            Self::AlreadyExists(_) | Self::ReplayInProgress => Code::AlreadyExists,
            Self::InvalidUrl(_) => Code::InvalidUrl,
            Self::InvalidType(_) => Code::InvalidType,
            Self::ConstraintsNotMet(..) => Code::ConstraintsNotMet,
            Self::NoQuote(_) => Code::InsufficientLiquidity,
            Self::Missing(_) => Code::NotFound,
            Self::Internal(_) => Code::InternalError,
            Self::Unavailable(_) | Self::Busy | Self::TimedOut => Code::ServiceUnavailable,
        }
    }

    pub(crate) const fn status(&self) -> StatusCode {
        self.code().status()
    }

    fn message(&self) -> String {
        let fixed = match self {
            Self::Plain(code) => code.message(),
            Self::InsufficientScope(scope) => return format!("the API key lacks the scope {scope}"),
            Self::InvalidParameter { param, problem } => return format!("{param}: {problem}"),
            Self::NoQuote(detail) => return detail.to_string(),
            Self::ConstraintsNotMet(param, problem) => return format!("{param}: {problem}"),
            // A registration again: the endpoint that is there can be changed.
            Self::AlreadyExists("endpoint") => {
                "endpoint: this API key has one; change it with PATCH /v1/webhook_endpoints, which also switches it on"
            }
            Self::InvalidUrl(fault) => return format!("url: {fault}"),
            Self::AlreadyExists(field) => return format!("{field}: was used before"),
            Self::InvalidType(field) => return format!("{field}: is not an event type of the contract"),
            Self::InvalidSignature(cause) | Self::IdempotencyKeyInvalid(cause) => cause,
            Self::InvalidPermit(defect) => return defect.to_string(),
            Self::CoolingDown(cool_down) => return cool_down.to_string(),
            Self::Missing(what) => what,
            Self::ReplayInProgress => {
                "a replay of another range to this endpoint is in progress; wait until its events are queued"
            }
            Self::TooManyUnknownKeys { .. } => {
                "too many API keys from this address are not valid; wait as long as Retry-After says"
            }
            Self::RateLimitExceeded { .. } => "too many requests; wait as long as Retry-After says",
            Self::TooManyWaiting => {
                "too many orders of the older surface wait; cancel some, or wait until they have ended"
            }
            Self::Internal(_) => "something went wrong on our side",
            Self::Unavailable(_) | Self::Busy | Self::TimedOut => {
                "the service cannot answer right now; try again with the same idempotency key"
            }
        };
        fixed.to_owned()
    }

    /// The field, query parameter or header at fault, if it is one.
    fn param(&self) -> Option<&str> {
        match self {
            Self::Plain(code) => code.param(),
            Self::InvalidParameter { param, .. } => Some(param),
            Self::InvalidPermit(defect) => Some(defect.field()),
            Self::AlreadyExists(param) if *param != "endpoint" => Some(param),
            Self::InvalidType(param) | Self::ConstraintsNotMet(param, _) => Some(param),
            Self::InvalidUrl(_) => Some("url"),
            // Their texts begin with the header, if it is one.
            Self::InvalidSignature(text) | Self::IdempotencyKeyInvalid(text) => {
                text.split(' ').next().filter(|word| word.contains('-'))
            }
            Self::NoQuote(detail) => detail.param,
            Self::InsufficientScope(_)
            | Self::RateLimitExceeded { .. }
            | Self::TooManyUnknownKeys { .. }
            | Self::TooManyWaiting
            | Self::CoolingDown(_)
            | Self::AlreadyExists(_)
            | Self::ReplayInProgress
            | Self::Missing(_)
            | Self::Internal(_)
            | Self::Unavailable(_)
            | Self::Busy
            | Self::TimedOut => None,
        }
    }

    const fn retry_after_secs(&self) -> Option<u64> {
        match self {
            Self::RateLimitExceeded { retry_after_secs } | Self::TooManyUnknownKeys { retry_after_secs } => {
                Some(*retry_after_secs)
            }
            Self::Plain(Code::IdempotencyKeyProcessing)
            | Self::Unavailable(_)
            | Self::Busy
            | Self::TimedOut => Some(RETRY_SOON_SECS),
            Self::TooManyWaiting => Some(RETRY_WAITING_SECS),
            Self::CoolingDown(cool_down) => Some(cool_down.retry_after_secs),
            _ => None,
        }
    }

    /// Counts and logs a failure of the service. Failures that one client can cause at any rate, and that all requests
    /// cause while the database is unavailable, share one line per second and kind.
    fn log(&self) {
        static UNAVAILABLE: LogLimit = LogLimit::new();
        static BUSY: LogLimit = LogLimit::new();
        static TIMED_OUT: LogLimit = LogLimit::new();
        let code = self.code().as_str();
        let failed = |kind: &'static str| counter!("dvp_rest_failed_total", "kind" => kind).increment(1);
        match self {
            Self::Internal(reason) => {
                failed("internal");
                error!(code, reason, "request failed");
            }
            Self::Plain(Code::ReceiptCorrupt) => {
                failed("internal");
                error!(code, "request failed: the stored receipt cannot be read");
            }
            Self::Unavailable(reason) => {
                failed("unavailable");
                if let Some(suppressed) = UNAVAILABLE.admit(Instant::now()) {
                    error!(code, reason, suppressed, "request failed: the service is unavailable");
                }
            }
            Self::Busy => {
                failed("busy");
                if let Some(suppressed) = BUSY.admit(Instant::now()) {
                    warn!(code, suppressed, "request refused: too many requests in flight");
                }
            }
            Self::TimedOut => {
                failed("timed_out");
                if let Some(suppressed) = TIMED_OUT.admit(Instant::now()) {
                    warn!(code, suppressed, "request failed: timed out");
                }
            }
            _ => {}
        }
    }

    /// The answer as it is stored under an idempotency key.
    pub(crate) fn stored(&self) -> StoredResponse {
        let (code, message, request_id) = (self.code().as_str(), self.message(), current_id());
        let body = Body {
            code,
            message: &message,
            param: self.param(),
            doc_url: format!("/docs/errors/{code}"),
            request_id: &request_id,
        };
        let envelope = Envelope { success: false, error: body };
        StoredResponse { status: self.status().as_u16(), body: text(&envelope) }
    }
}

impl From<Code> for ApiError {
    fn from(code: Code) -> Self {
        Self::Plain(code)
    }
}

impl From<EngineError> for ApiError {
    fn from(error: EngineError) -> Self {
        match error {
            EngineError::Busy => Self::Busy,
            EngineError::Unavailable(reason) => Self::Unavailable(reason),
            EngineError::Corrupt(reason) => Self::Internal(reason),
        }
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        EngineError::from(error).into()
    }
}

impl From<DatabaseError> for ApiError {
    fn from(error: DatabaseError) -> Self {
        EngineError::from(error).into()
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        self.log();
        let message = self.message();
        let mut response = json(self.status(), self.stored().body);
        response.extensions_mut().insert(RefusedRequest { code: self.code(), message });
        if let Some(seconds) = self.retry_after_secs() {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

/// Serializes a value whose maps have text keys and whose numbers are finite, so that serialization cannot fail.
pub(crate) fn text<T: Serialize>(value: &T) -> String {
    serde_json::to_string(value).unwrap_or_else(|error| {
        error!(%error, "response could not be serialized");
        "null".to_owned()
    })
}

pub(crate) fn json(status: StatusCode, body: impl Into<axum::body::Body>) -> Response {
    let kind = (header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let fresh = (header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    (status, [kind, fresh], body.into()).into_response()
}

/// The refusal in a stored answer, if it is one.
fn refused_by(body: &str) -> Option<RefusedRequest> {
    let envelope: serde_json::Value = serde_json::from_str(body).ok()?;
    let error = envelope.get("error")?;
    let code = Code::parse(error.get("code")?.as_str()?)?;
    Some(RefusedRequest { code, message: error.get("message")?.as_str()?.to_owned() })
}

/// A stored answer.
pub(crate) fn given(stored: StoredResponse) -> Response {
    match StatusCode::from_u16(stored.status) {
        Ok(status) => {
            let refused = (status.as_u16() >= 400).then(|| refused_by(&stored.body)).flatten();
            let mut response = json(status, stored.body);
            if let Some(refused) = refused {
                response.extensions_mut().insert(refused);
            }
            response
        }
        Err(error) => ApiError::Internal(error.to_string()).into_response(),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use metrics_exporter_prometheus::PrometheusBuilder;
    use tempfile::NamedTempFile;
    use tracing_subscriber::util::SubscriberInitExt;

    use super::*;

    #[test]
    fn repeated_refusals_are_all_counted_and_rarely_logged() {
        let (log, recorder) = (NamedTempFile::new().unwrap(), PrometheusBuilder::new().build_recorder());
        let started = Instant::now();
        let subscriber = tracing_subscriber::fmt().with_writer(log.reopen().unwrap()).finish();
        let _guard = subscriber.set_default();
        tracing::callsite::rebuild_interest_cache();
        metrics::with_local_recorder(&recorder, || {
            for _ in 0..1_000 {
                let refused = [ApiError::Busy, ApiError::TimedOut, ApiError::Unavailable("away".into())];
                for one in refused {
                    assert_eq!(one.into_response().status(), StatusCode::SERVICE_UNAVAILABLE);
                }
            }
        });
        let figures = recorder.handle().render();
        for kind in ["busy", "timed_out", "unavailable"] {
            assert!(figures.contains(&format!("dvp_rest_failed_total{{kind=\"{kind}\"}} 1000")), "{figures}");
        }
        let text = fs::read_to_string(log.path()).unwrap();
        let lines = u64::try_from(text.lines().count()).unwrap();
        assert!(lines <= 3 * (2 + started.elapsed().as_secs()), "{text}");
    }
}

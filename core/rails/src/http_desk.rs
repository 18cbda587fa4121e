//! Conversion by a desk over HTTP: an order under the service's reference, and a query of the order's outcome.
//!
//! ```text
//! submit ─> POST orders ──────────> working ─> in progress
//! status ─> GET  orders/REFERENCE ─> filled ─> done      rejected ─> failed      404 unknown_reference ─> never seen
//!                                   anything else, no answer ─> unconfirmed: queried again
//! ```
//!
//! Invariants: an order is sent again only after the desk answered that it does not know the reference; only an answer
//! in the desk's own format counts (`answer`); a fill counts when it is the whole order at the agreed amounts. The wire
//! format is in `docs/rails.md`.

mod answer;

use std::time::Duration;

use chrono::{DateTime, SecondsFormat, Utc};
use dvp_domain::settlement::RailAnswer;
use dvp_store::database::clock;
use metrics::counter;
use reqwest::header::{AUTHORIZATION, HeaderValue};
use reqwest::redirect::Policy;
use reqwest::{Certificate, Client, RequestBuilder, Url};
use serde_json::json;
use tracing::error;

use self::answer::CallResult;
use super::{LegKind, Rail, RailError, RailFuture, RailRequest, RailStatus};

/// Shorter than the workflow's limit for a rail.
const EXCHANGE_TIMEOUT: Duration = Duration::from_secs(9);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// Larger than any valid answer.
const BODY_BYTES_MAX: usize = 64 * 1024;

#[derive(Debug, Clone)]
pub struct DeskConfig {
    /// The base of the URLs; orders are sent to `orders` below it.
    pub url: Url,
    /// Sent as `Authorization: Bearer`.
    pub token: String,
    /// PEM certificates of the trusted authorities, instead of the machine's.
    pub authorities: Option<Vec<u8>>,
}

#[derive(Debug, thiserror::Error)]
pub enum DeskError {
    #[error("desk.url {0} cannot have paths below it")]
    Url(Url),
    #[error("desk.token cannot be sent in a header")]
    Token,
    #[error("desk: {0}")]
    Client(#[from] reqwest::Error),
}

/// The conversion rail over HTTP. Makes no payouts.
#[derive(Clone)]
pub struct HttpDesk {
    client: Client,
    orders: Url,
    authorization: HeaderValue,
}

impl HttpDesk {
    /// Connects when the first order is sent.
    ///
    /// # Errors
    /// The URL, the token or the authorities cannot be used.
    pub fn new(config: DeskConfig) -> Result<Self, DeskError> {
        let DeskConfig { url, token, authorities } = config;
        let mut orders = url.clone();
        orders.path_segments_mut().map_err(|()| DeskError::Url(url))?.pop_if_empty().push("orders");
        let mut authorization =
            HeaderValue::from_str(&format!("Bearer {token}")).map_err(|_| DeskError::Token)?;
        authorization.set_sensitive(true);
        let mut client = Client::builder()
            .timeout(EXCHANGE_TIMEOUT)
            .connect_timeout(CONNECT_TIMEOUT)
            .redirect(Policy::none())
            .retry(reqwest::retry::never())
            .referer(false)
            .no_proxy();
        if let Some(pem) = authorities {
            client = client.tls_certs_only(Certificate::from_pem_bundle(&pem)?);
        }
        Ok(Self { client: client.build()?, orders, authorization })
    }

    async fn order(&self, request: &RailRequest) -> Result<RailAnswer, RailError> {
        let Some(sold) = request.sold.as_ref().filter(|_| request.leg == LegKind::Offramp) else {
            return Err(RailError::Down("a desk carries out conversions only".into()));
        };
        if clock::now().to_utc() > request.not_after {
            return Err(RailError::Down("too late for this call".into()));
        }
        let body = json!({
            "reference": request.reference,
            "execution": request.execution,
            "sell": { "asset": sold.asset, "amountMinor": sold.amount.to_string(), "exponent": sold.exponent },
            "buy": {
                "asset": request.currency,
                "amountMinor": request.amount.to_string(),
                "exponent": request.exponent,
            },
            "notAfter": timestamp(request.not_after),
        });
        let call =
            self.client.post(self.orders.clone()).header("Idempotency-Key", &request.reference).json(&body);
        match self.exchange(request, call).await? {
            CallResult::Known(answer) => Ok(answer),
            CallResult::Refused(why) => Err(RailError::Down(why)),
            CallResult::NeverSeen => Err(self.doubt(request, "an order was answered with unknown_reference")),
            CallResult::Nothing(why) => Err(self.doubt(request, &why)),
        }
    }

    async fn ask(&self, request: &RailRequest) -> Result<RailStatus, RailError> {
        let mut url = self.orders.clone();
        if let Ok(mut path) = url.path_segments_mut() {
            path.push(&request.reference);
        }
        let answer = self.exchange(request, self.client.get(url)).await?;
        if answer == CallResult::NeverSeen && request.provider_reference.is_some() {
            self.doubt(request, "the desk does not know an order that it has answered for");
        }
        answer.into_status().map_err(|why| self.doubt(request, &why))
    }

    async fn exchange(&self, request: &RailRequest, call: RequestBuilder) -> Result<CallResult, RailError> {
        let call = call.header(AUTHORIZATION, self.authorization.clone());
        let call = match request.trace {
            Some(trace) => call.header("traceparent", trace.to_string()),
            None => call,
        };
        let sent = call.send().await;
        let mut response = match sent {
            Ok(response) => response,
            // No connection was made, so nothing was sent.
            Err(error) if error.is_connect() => return Err(RailError::Down(error.without_url().to_string())),
            Err(_) => return Err(RailError::Unconfirmed),
        };
        let status = response.status().as_u16();
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|_| RailError::Unconfirmed)? {
            if body.len().saturating_add(chunk.len()) > BODY_BYTES_MAX {
                return Ok(CallResult::Nothing(format!("an answer of more than {BODY_BYTES_MAX} bytes")));
            }
            body.extend_from_slice(&chunk);
        }
        Ok(answer::read(request, status, &body, clock::now().to_utc()))
    }

    /// Reports an answer that proves nothing: the order is queried again, and an operator is alerted.
    fn doubt(&self, request: &RailRequest, why: &str) -> RailError {
        counter!("dvp_rail_wrong_answers_total", "rail" => "http_desk").increment(1);
        error!(
            execution = request.execution,
            leg = request.leg.as_str(),
            why,
            "conversion desk returned an inconclusive answer"
        );
        RailError::Unconfirmed
    }
}

fn timestamp(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Millis, true)
}

impl Rail for HttpDesk {
    fn submit<'a>(&'a self, request: &'a RailRequest) -> RailFuture<'a, RailAnswer> {
        Box::pin(self.order(request))
    }

    fn status<'a>(&'a self, request: &'a RailRequest) -> RailFuture<'a, RailStatus> {
        Box::pin(self.ask(request))
    }
}

//! JSON-RPC over HTTP.
//!
//! Invariants: no error, log line or span names the URL, which may hold a provider's key; an answer's length is
//! bounded, and the text of its errors is cleaned; a request is repeated only when the endpoint has limited it, for some
//! seconds as it says, and when it is about a block that the URL has announced and denies, for a second (`announced`); and calls
//! that the endpoint refuses as one request go in smaller ones.
//!
//! Kept by `chain-indexer/tests/it/secrets.rs::no_error_of_an_endpoint_names_its_key`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use alloy::rpc::json_rpc::{RequestPacket, ResponsePacket, ResponsePayload};
use alloy::transports::http::reqwest::header::RETRY_AFTER;
use alloy::transports::http::reqwest::{Client, Response, StatusCode, Url};
use alloy::transports::{RpcError, TransportError, TransportErrorKind, TransportFut};
use dvp_domain::text::{TEXT_MAX, clean};
use tower::Service;

use super::announced::{Announced, PAUSES};

/// Longer than any answer to what is asked here.
const ANSWER_BYTES_MAX: usize = 256 * 1024 * 1024;
/// The least times between repetitions of a request that the endpoint has limited, and the longest.
const LIMITED_PAUSES: [Duration; 4] = [
    Duration::from_millis(150),
    Duration::from_millis(300),
    Duration::from_millis(600),
    Duration::from_secs(1),
];
const LIMITED_PAUSE_MAX: Duration = Duration::from_secs(2);
const LIMITED: [&str; 4] = ["too many requests", "rate limit", "compute units per second", "request limit"];
/// What an error quotes of an answer.
const QUOTED_CHARS: usize = 300;

/// One endpoint. Cheap to clone; keeps connections.
#[derive(Clone)]
pub(super) struct HttpTransport {
    client: Client,
    url: Url,
    announced: Announced,
    /// The most calls that the endpoint takes as one request, as far as it has refused more.
    batch_max: Arc<AtomicUsize>,
}

impl HttpTransport {
    pub(super) fn new(client: Client, url: Url) -> Self {
        let batch_max = Arc::new(AtomicUsize::new(usize::MAX));
        Self { client, url, announced: Announced::default(), batch_max }
    }

    pub(super) fn batch_max(&self) -> usize {
        self.batch_max.load(Ordering::Relaxed)
    }

    /// The answer of a node that has the block, as far as there is one behind the URL.
    async fn settled(self, request: RequestPacket) -> Result<ResponsePacket, TransportError> {
        let mut answer = self.in_parts(&request).await?;
        for pause in PAUSES {
            if !self.announced.denied(&request, &answer) {
                break;
            }
            tokio::time::sleep(pause).await;
            answer = self.in_parts(&request).await?;
        }
        self.announced.learn(&request, &answer);
        Ok(answer)
    }

    /// The answers to the calls of a request, in their order, in parts that the endpoint takes.
    async fn in_parts(&self, request: &RequestPacket) -> Result<ResponsePacket, TransportError> {
        let RequestPacket::Batch(calls) = request else { return self.unlimited(request).await };
        let mut answers = Vec::with_capacity(calls.len());
        let mut rest = calls.as_slice();
        while !rest.is_empty() {
            let most = self.batch_max.load(Ordering::Relaxed).clamp(1, rest.len());
            let (part, later) = rest.split_at(most);
            let answer = match part {
                [call] => self.unlimited(&RequestPacket::Single(call.clone())).await,
                part => self.unlimited(&RequestPacket::Batch(part.to_vec())).await,
            };
            if most > 1 && refuses_batch(&answer) {
                self.batch_max.fetch_min(most.div_ceil(2), Ordering::Relaxed);
                continue;
            }
            match answer? {
                ResponsePacket::Single(answer) => answers.push(answer),
                ResponsePacket::Batch(more) => answers.extend(more),
            }
            rest = later;
        }
        Ok(ResponsePacket::Batch(answers))
    }

    /// The answer to a request, which is repeated alone while the endpoint limits it: nothing that was read before is lost.
    async fn unlimited(&self, request: &RequestPacket) -> Result<ResponsePacket, TransportError> {
        for pause in LIMITED_PAUSES {
            let (answer, told) = self.exchange(request).await;
            let is_limited = told.is_some() || matches!(&answer, Ok(answer) if is_limited(answer));
            if !is_limited {
                return answer;
            }
            tokio::time::sleep(told.unwrap_or(pause).clamp(pause, LIMITED_PAUSE_MAX)).await;
        }
        self.exchange(request).await.0
    }

    /// The answer, and of one that is limited after which time to come again.
    async fn exchange(
        &self,
        request: &RequestPacket,
    ) -> (Result<ResponsePacket, TransportError>, Option<Duration>) {
        let sent = self.client.post(self.url.clone()).headers(request.headers()).json(request).send().await;
        let response = match sent {
            Ok(response) => response,
            Err(error) => return (Err(without_url(error)), None),
        };
        let told = retry_after(&response);
        (self.answer(response).await, told)
    }

    async fn answer(&self, response: Response) -> Result<ResponsePacket, TransportError> {
        let status = response.status();
        let body = read(response).await?;
        // A node may answer with an error of JSON-RPC under any status.
        match serde_json::from_slice::<ResponsePacket>(&body) {
            Ok(answer) if status.is_success() || answer.is_error() => Ok(cleaned(answer)),
            Ok(_) => Err(TransportErrorKind::http_error(status.as_u16(), self.quoted(&body))),
            Err(_) if !status.is_success() => {
                Err(TransportErrorKind::http_error(status.as_u16(), self.quoted(&body)))
            }
            Err(error) => Err(TransportError::deser_err(error, self.quoted(&body))),
        }
    }

    /// The beginning of an answer, without the parts of the URL that may be secret.
    fn quoted(&self, body: &[u8]) -> String {
        let beginning = &body[..body.len().min(QUOTED_CHARS * 4)];
        clean(&without_secrets(String::from_utf8_lossy(beginning).into_owned(), &self.url), QUOTED_CHARS)
    }
}

/// The text without the parts of the URL that may be a provider's key.
pub(crate) fn without_secrets(mut text: String, url: &Url) -> String {
    let (path, query) = (url.path_segments().into_iter().flatten(), url.query());
    let values: Vec<String> = url.query_pairs().map(|(_, value)| value.into_owned()).collect();
    let secrets = path.chain(query).chain(url.password()).chain([url.username()]);
    for secret in secrets.chain(values.iter().map(String::as_str)).filter(|secret| secret.len() >= 8) {
        text = text.replace(secret, "…");
    }
    text
}

/// Of a limited answer: the time that it tells, or none.
fn retry_after(response: &Response) -> Option<Duration> {
    if response.status() != StatusCode::TOO_MANY_REQUESTS {
        return None;
    }
    let told = response.headers().get(RETRY_AFTER).and_then(|told| told.to_str().ok()?.trim().parse().ok());
    Some(told.map_or(Duration::ZERO, Duration::from_secs))
}

/// Whether the endpoint takes so many calls as no one request: nodes say it in one error in place of the answers.
fn refuses_batch(answer: &Result<ResponsePacket, TransportError>) -> bool {
    match answer {
        Ok(answer) => {
            let said = answer.as_error().map(|error| error.message.to_ascii_lowercase());
            said.is_some_and(|said| said.contains("batch")) && answer.responses().len() == 1
        }
        Err(RpcError::Transport(TransportErrorKind::HttpError(http))) => http.status == 413,
        Err(_) => false,
    }
}

/// Providers say it within JSON-RPC, too.
fn is_limited(answer: &ResponsePacket) -> bool {
    answer.as_error().is_some_and(|error| {
        let said = error.message.to_ascii_lowercase();
        error.code == 429 || LIMITED.iter().any(|words| said.contains(words))
    })
}

async fn read(mut response: Response) -> Result<Vec<u8>, TransportError> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(without_url)? {
        if body.len().saturating_add(chunk.len()) > ANSWER_BYTES_MAX {
            return Err(TransportErrorKind::custom_str("the node's answer is too long"));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

fn without_url(error: alloy::transports::http::reqwest::Error) -> TransportError {
    TransportErrorKind::custom(error.without_url())
}

/// The answer with the messages of its errors as they may be stored and shown.
fn cleaned(mut answer: ResponsePacket) -> ResponsePacket {
    let answers = match &mut answer {
        ResponsePacket::Single(answer) => std::slice::from_mut(answer),
        ResponsePacket::Batch(answers) => answers.as_mut_slice(),
    };
    for answer in answers {
        if let ResponsePayload::Failure(error) = &mut answer.payload {
            error.message = clean(&error.message, TEXT_MAX).into();
        }
    }
    answer
}

impl Service<RequestPacket> for HttpTransport {
    type Response = ResponsePacket;
    type Error = TransportError;
    type Future = TransportFut<'static>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: RequestPacket) -> Self::Future {
        Box::pin(self.clone().settled(request))
    }
}

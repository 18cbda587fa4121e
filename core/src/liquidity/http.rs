//! The HTTP client of sources: one time limit for a whole exchange, a bounded body, JSON only.

use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::SourceError;

/// Larger than any valid answer.
const BODY_BYTES_MAX: usize = 64 * 1024;

/// Cheap to clone; keeps connections.
#[derive(Clone)]
pub(crate) struct HttpClient {
    client: reqwest::Client,
}

impl HttpClient {
    /// `timeout` bounds each exchange, from the connection to the last byte of the body.
    pub(crate) fn new(timeout: Duration) -> Result<Self, SourceError> {
        let client = reqwest::Client::builder()
            .timeout(timeout)
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .map_err(|error| SourceError::Unavailable(error.to_string()))?;
        Ok(Self { client })
    }

    pub(super) async fn get<T: DeserializeOwned>(&self, url: &str) -> Result<T, SourceError> {
        read(self.client.get(url)).await
    }

    pub(super) async fn post<T: DeserializeOwned>(
        &self,
        url: &str,
        body: &impl Serialize,
    ) -> Result<T, SourceError> {
        read(self.client.post(url).json(body)).await
    }
}

impl HttpClient {
    /// The same for a request that may be repeated under a key.
    pub(crate) async fn post_under<T: DeserializeOwned>(
        &self,
        url: &str,
        body: &impl Serialize,
        key: &str,
        token: Option<&str>,
    ) -> Result<T, SourceError> {
        let request = self.client.post(url).header("Idempotency-Key", key).json(body);
        read(match token {
            Some(token) => request.bearer_auth(token),
            None => request,
        })
        .await
    }
}

async fn read<T: DeserializeOwned>(request: reqwest::RequestBuilder) -> Result<T, SourceError> {
    let unavailable = |error: reqwest::Error| SourceError::Unavailable(error.without_url().to_string());
    let mut response = request.send().await.map_err(unavailable)?;
    if !response.status().is_success() {
        return Err(SourceError::Unavailable(format!("status {}", response.status().as_u16())));
    }
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(unavailable)? {
        if body.len().saturating_add(chunk.len()) > BODY_BYTES_MAX {
            return Err(SourceError::InvalidResponse("a body without end".into()));
        }
        body.extend_from_slice(&chunk);
    }
    serde_json::from_slice(&body).map_err(|error| SourceError::InvalidResponse(error.to_string()))
}

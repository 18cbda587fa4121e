//! The time limit for the arrival of a request's body.

use std::io;
use std::time::Duration;

use axum::body::{Body, BodyDataStream, Bytes, HttpBody as _};
use axum::extract::Request;
use futures_util::StreamExt as _;
use futures_util::stream;
use tokio::time::{Instant, timeout_at};

/// The request with a body that fails at the reader when it has not arrived as a whole within the time. The server then
/// closes the connection, because the rest of the body was not read.
pub(crate) fn bound(request: Request, limit: Duration) -> Request {
    if request.body().is_end_stream() {
        return request;
    }
    let until = Instant::now() + limit;
    request.map(|body| {
        let parts = stream::unfold(Some(body.into_data_stream()), move |data| next(data, until));
        Body::from_stream(parts)
    })
}

type Part = Result<Bytes, axum::Error>;

/// The next part of the body, and what is left of it: nothing after a failure.
async fn next(data: Option<BodyDataStream>, until: Instant) -> Option<(Part, Option<BodyDataStream>)> {
    let mut data = data?;
    match timeout_at(until, data.next()).await {
        Ok(part) => Some((part?, Some(data))),
        Err(_) => {
            let late = io::Error::new(io::ErrorKind::TimedOut, "the form did not arrive in time");
            Some((Err(axum::Error::new(late)), None))
        }
    }
}

//! Tells open pages what has changed, so that they are read again: once for any number of changes.

use std::convert::Infallible;
use std::time::Duration;

use axum::extract::State;
use axum::response::sse::{Event, KeepAlive, Sse};
use futures_util::StreamExt as _;
use futures_util::stream::{self, Stream};

use crate::state::Console;

/// A stream ends after this time: the browser requests another one, which needs a session again.
const LASTS: Duration = Duration::from_secs(60);
/// How soon the browser requests it.
const AGAIN: Duration = Duration::from_millis(100);

/// The names of changed subjects, ten times a second at most, until the console stops.
pub(crate) async fn stream(
    State(console): State<Console>,
) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let (versions, ended) = console.pulse.changes();
    let until = tokio::time::Instant::now() + LASTS;
    let seen = *versions.borrow();
    let changes = stream::unfold((versions, seen), move |(mut versions, seen)| {
        let ended = ended.clone();
        async move {
            tokio::select! {
                () = ended.cancelled() => return None,
                () = tokio::time::sleep_until(until) => return None,
                changed = versions.changed() => changed.ok()?,
            }
            let now = *versions.borrow_and_update();
            let names: Vec<&str> = now.since(&seen).into_iter().map(|subject| subject.as_str()).collect();
            Some((Ok(Event::default().data(names.join(" "))), (versions, now)))
        }
    });
    let first = stream::iter([Ok(Event::default().retry(AGAIN))]);
    Sse::new(first.chain(changes)).keep_alive(KeepAlive::default())
}

//! Tells open pages that something has changed, so that they are read again: once for any number of events.

use std::convert::Infallible;

use axum::extract::State;
use axum::response::sse::{Event, KeepAlive, Sse};
use futures_util::stream::{self, Stream};

use crate::state::Console;

/// An event for each change of the feed's position, four a second at most, until the console stops.
pub(crate) async fn stream(
    State(console): State<Console>,
) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let (positions, ended) = console.pulse.changes();
    let changes = stream::unfold((positions, ended), |(mut positions, ended)| async move {
        let position = tokio::select! {
            () = ended.cancelled() => return None,
            changed = positions.changed() => {
                changed.ok()?;
                *positions.borrow_and_update()
            }
        };
        Some((Ok(Event::default().data(position.to_string())), (positions, ended)))
    });
    Sse::new(changes).keep_alive(KeepAlive::default())
}

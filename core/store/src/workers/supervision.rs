//! A loop that ends by a panic, or without being told to, is started again.

use std::hash::{BuildHasher as _, RandomState};
use std::panic::AssertUnwindSafe;
use std::time::{Duration, Instant};

use dvp_domain::settlement::leg::back_off_ms;
use futures_util::FutureExt as _;
use metrics::counter;
use tokio::sync::watch;
use tracing::error;

use super::guard::message;
use super::{WAIT_MAX_MS, WAIT_MS, Worker};

/// A loop that ran for so long is started again without the delay of its earlier ends.
const RAN_WELL: Duration = Duration::from_secs(300);
/// How often a loop that waits for its start notices a stop.
const NOTICE: Duration = Duration::from_millis(100);

/// Runs a loop until `stop` turns true.
pub async fn supervise<F: Future<Output = ()>>(
    worker: Worker,
    stop: watch::Receiver<bool>,
    start: impl FnMut() -> F,
) {
    supervise_until(worker, || *stop.borrow(), start).await;
}

/// Runs a loop until `is_stopped`, which it notices itself.
pub async fn supervise_until<F: Future<Output = ()>>(
    worker: Worker,
    is_stopped: impl Fn() -> bool,
    mut start: impl FnMut() -> F,
) {
    let mut ends = 0_u32;
    while !is_stopped() {
        let began = Instant::now();
        let ended = AssertUnwindSafe(async { start().await }).catch_unwind().await;
        if is_stopped() {
            return;
        }
        ends = if began.elapsed() >= RAN_WELL { 1 } else { ends.saturating_add(1) };
        let why = ended.err().map_or_else(|| "it returned".to_owned(), |panic| message(panic.as_ref()));
        let wait = back_off_ms(ends, WAIT_MS, WAIT_MAX_MS, RandomState::new().hash_one(ends));
        counter!("dvp_worker_restarts_total", "loop" => worker.as_str()).increment(1);
        error!(worker = worker.as_str(), why, ends, wait_ms = wait, "worker loop ended, starting it again");
        let again = Instant::now() + Duration::from_millis(wait);
        while Instant::now() < again && !is_stopped() {
            tokio::time::sleep(NOTICE).await;
        }
    }
}

/// Waits for the next pass of a loop. `false`: it is to stop.
pub async fn pause(every: Duration, stop: &mut watch::Receiver<bool>) -> bool {
    tokio::select! {
        () = tokio::time::sleep(every) => true,
        // It was told to before or is now, or whoever could tell it is gone.
        _ = stop.wait_for(|stop| *stop) => false,
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[tokio::test]
    async fn a_loop_that_begins_after_the_stop_does_not_pause() {
        let stop = watch::Sender::new(false);
        stop.send_replace(true);
        let mut told = stop.subscribe();
        let ended = pause(Duration::from_secs(3600), &mut told);
        assert_eq!(tokio::time::timeout(Duration::from_secs(5), ended).await, Ok(false));
    }

    #[tokio::test]
    async fn a_loop_that_panics_or_returns_is_started_again_until_it_is_stopped() {
        let stop = watch::Sender::new(false);
        let starts = Cell::new(0);
        let looping = || async {
            starts.set(starts.get() + 1);
            match starts.get() {
                1 => panic!("a defect"),
                2 => {}
                _ => drop(stop.send_replace(true)),
            }
        };
        supervise(Worker::Figures, stop.subscribe(), looping).await;
        assert_eq!(starts.get(), 3);
    }
}

//! Metrics of orders, from a NewOrderSingle(D) to its committed answer.

use std::{sync::LazyLock, time::Instant};

use metrics::{Counter, Histogram, counter, histogram};

use crate::application::{Commit, Unavailable};

/// Kept for what every order counts: making a handle costs more than counting.
static ANSWERED: LazyLock<Counter> = LazyLock::new(|| orders("answered"));
static SECONDS: LazyLock<Histogram> = LazyLock::new(|| histogram!("dvp_fix_order_seconds"));

fn orders(result: &'static str) -> Counter {
    counter!("dvp_fix_orders_total", "result" => result)
}

/// Why an order gets no decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Failure {
    /// It may be sent again.
    Unavailable,
    /// It cannot be stored.
    Data,
}

impl Failure {
    const fn of(error: &Unavailable) -> Self {
        if error.is_data() { Self::Data } else { Self::Unavailable }
    }

    fn count(self) {
        let result = match self {
            Self::Unavailable => "unavailable",
            Self::Data => "data",
        };
        orders(result).increment(1);
    }
}

/// An order that has no answer yet.
#[derive(Debug, Clone, Copy)]
pub(super) struct Unanswered {
    since: Instant,
    failure: Option<Failure>,
}

impl Unanswered {
    pub(super) fn begin() -> Self {
        Self { since: Instant::now(), failure: None }
    }

    /// Its answer will be a refusal for this reason.
    pub(super) const fn fails(&mut self, failure: Failure) {
        self.failure = Some(failure);
    }

    /// The same commit, counted as the order's answer when it ends.
    pub(super) fn answer(self, commit: Result<Commit, Unavailable>) -> Result<Commit, Unavailable> {
        let work = commit.inspect_err(|error| self.end(Some(Failure::of(error))))?;
        let mut counted = Counted(Some(self));
        Ok(Box::pin(async move {
            let done = work.await;
            counted.end(done.as_ref().err().map(Failure::of));
            done
        }))
    }

    fn end(self, failure: Option<Failure>) {
        match failure.or(self.failure) {
            Some(failure) => failure.count(),
            None => {
                ANSWERED.increment(1);
                SECONDS.record(self.since.elapsed());
            }
        }
    }
}

/// An order whose commit is under way. Dropped before the commit ends, it was not answered.
struct Counted(Option<Unanswered>);

impl Counted {
    fn end(&mut self, failure: Option<Failure>) {
        if let Some(order) = self.0.take() {
            order.end(failure);
        }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.end(Some(Failure::Unavailable));
    }
}

/// The commit that parks an order: it answers nothing, and the peer sends the order again when it fails.
pub(super) fn parking(commit: Commit) -> Commit {
    Box::pin(async move {
        let done = commit.await;
        if let Err(error) = &done {
            Failure::of(error).count();
        }
        done
    })
}

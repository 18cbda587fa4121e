//! A circuit breaker: a source that fails repeatedly is not called for a while, and is then tested with one call.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Consecutive failures that open the circuit.
const FAILURES: u32 = 3;

/// ```text
/// Closed ──three failures in a row──> Open ──after the pause──> Trying ──success──> Closed
///                                      ^───────── failure ──────────┘
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Circuit {
    Closed {
        failures: u32,
    },
    Open {
        until: Instant,
    },
    /// One test call is in progress; if it does not report, another one is allowed at this time.
    Trying {
        again: Instant,
    },
}

#[derive(Debug)]
pub(super) struct Breaker {
    circuit: Mutex<Circuit>,
    pause: Duration,
}

impl Breaker {
    pub(super) const fn new(pause: Duration) -> Self {
        Self { circuit: Mutex::new(Circuit::Closed { failures: 0 }), pause }
    }

    /// Whether a call is allowed now. The caller reports its result with [`done`](Self::done).
    pub(super) fn allows(&self, now: Instant) -> bool {
        let mut circuit = self.circuit.lock();
        match *circuit {
            Circuit::Closed { .. } => true,
            Circuit::Open { until: due } | Circuit::Trying { again: due } if now >= due => {
                *circuit = Circuit::Trying { again: now + self.pause };
                true
            }
            Circuit::Open { .. } | Circuit::Trying { .. } => false,
        }
    }

    pub(super) fn done(&self, succeeded: bool, now: Instant) {
        let mut circuit = self.circuit.lock();
        let open = Circuit::Open { until: now + self.pause };
        *circuit = match *circuit {
            _ if succeeded => Circuit::Closed { failures: 0 },
            Circuit::Closed { failures } if failures + 1 < FAILURES => {
                Circuit::Closed { failures: failures + 1 }
            }
            Circuit::Closed { .. } | Circuit::Trying { .. } => open,
            // A call that began before the circuit opened.
            Circuit::Open { until } => Circuit::Open { until },
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_failures_open_it_and_a_successful_test_call_closes_it() {
        let pause = Duration::from_secs(5);
        let breaker = Breaker::new(pause);
        let start = Instant::now();
        for _ in 0..2 {
            breaker.done(false, start);
        }
        breaker.done(true, start);
        for _ in 0..3 {
            assert!(breaker.allows(start), "failures in a row are counted, not all of them");
            breaker.done(false, start);
        }
        assert!(!breaker.allows(start));
        let later = start + pause;
        assert!(breaker.allows(later));
        assert!(!breaker.allows(later), "one call tries");
        breaker.done(false, later);
        assert!(!breaker.allows(later));
        assert!(breaker.allows(later + pause));
        breaker.done(true, later + pause);
        assert!(breaker.allows(later + pause));
    }
}

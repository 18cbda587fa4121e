//! The rate limit of a partner: a window of a minute that opens with its first request.
//!
//! Counted per process and per environment, so that a test client cannot use up the live limit. A window can be stated
//! exactly in the `RateLimit` header; the price is that a burst may span two windows.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use dvp_store::orders::intents::Tenant;

const WINDOW: Duration = Duration::from_secs(60);
/// The number of windows above which closed ones are dropped.
const WINDOWS_MAX: usize = 10_000;

struct Window {
    opened: Instant,
    used: u64,
}

/// The present state of a tenant's window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RateWindow {
    pub(crate) limit: u64,
    pub(crate) remaining: u64,
    /// Until the window closes, rounded up.
    pub(crate) reset_secs: u64,
    pub(crate) allowed: bool,
}

#[derive(Default)]
pub(crate) struct Limiter {
    windows: Mutex<HashMap<Tenant, Window>>,
}

impl Limiter {
    /// Counts one request, if the limit allows it.
    pub(crate) fn take(&self, tenant: &Tenant, limit: u64, now: Instant) -> RateWindow {
        self.spend(tenant, limit, now, 1)
    }

    /// Returns the window and counts nothing.
    pub(crate) fn peek(&self, tenant: &Tenant, limit: u64, now: Instant) -> RateWindow {
        self.spend(tenant, limit, now, 0)
    }

    fn spend(&self, tenant: &Tenant, limit: u64, now: Instant, cost: u64) -> RateWindow {
        let mut windows = self.windows.lock().unwrap_or_else(PoisonError::into_inner);
        let open = |window: &Window| now.saturating_duration_since(window.opened) < WINDOW;
        if windows.len() >= WINDOWS_MAX && !windows.contains_key(tenant) {
            windows.retain(|_, window| open(window));
        }
        let window = windows.entry(tenant.clone()).or_insert(Window { opened: now, used: 0 });
        if !open(window) {
            *window = Window { opened: now, used: 0 };
        }
        let used = window.used.saturating_add(cost);
        let allowed = used <= limit;
        if allowed {
            window.used = used;
        }
        let left = WINDOW.saturating_sub(now.saturating_duration_since(window.opened));
        RateWindow {
            limit,
            remaining: limit.saturating_sub(window.used),
            reset_secs: left.as_secs().saturating_add(u64::from(left.subsec_nanos() > 0)),
            allowed,
        }
    }
}

impl RateWindow {
    /// The IETF fields `RateLimit-Policy` and `RateLimit`.
    pub(crate) fn write(self, headers: &mut HeaderMap) {
        let Self { limit, remaining, reset_secs, .. } = self;
        let mut put = |name: &'static str, text: String| {
            if let Ok(value) = HeaderValue::try_from(text) {
                headers.insert(HeaderName::from_static(name), value);
            }
        };
        put("ratelimit-policy", format!("\"minute\";q={limit};w={}", WINDOW.as_secs()));
        put("ratelimit", format!("\"minute\";r={remaining};t={reset_secs}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(livemode: bool) -> Tenant {
        Tenant { partner_id: "ptn_1".into(), livemode }
    }

    #[test]
    fn a_window_admits_its_limit_and_lasts_a_minute() {
        let limiter = Limiter::default();
        let start = Instant::now();
        for left in [1, 0] {
            let window = limiter.take(&tenant(false), 2, start);
            assert_eq!((window.allowed, window.remaining, window.reset_secs), (true, left, 60));
        }
        let late = start + Duration::from_millis(59_500);
        let refused = limiter.take(&tenant(false), 2, late);
        assert_eq!((refused.allowed, refused.remaining, refused.reset_secs), (false, 0, 1));
        assert!(limiter.take(&tenant(false), 2, start + WINDOW).allowed);
    }

    #[test]
    fn environments_are_counted_separately_and_queries_are_free() {
        let limiter = Limiter::default();
        let now = Instant::now();
        assert!(limiter.take(&tenant(false), 1, now).allowed);
        assert!(limiter.take(&tenant(true), 1, now).allowed);
        assert_eq!(limiter.peek(&tenant(false), 1, now).remaining, 0);
        assert!(!limiter.take(&tenant(false), 1, now).allowed);
    }

    #[test]
    fn a_full_table_drops_closed_windows() {
        let limiter = Limiter::default();
        let start = Instant::now();
        for n in 0..WINDOWS_MAX {
            limiter.take(&Tenant { partner_id: n.to_string(), livemode: false }, 1, start);
        }
        limiter.take(&tenant(false), 1, start + WINDOW);
        assert_eq!(limiter.windows.lock().unwrap().len(), 1);
    }
}

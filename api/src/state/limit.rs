//! The rate limit of a partner: a window of a minute that opens with its first request.
//!
//! Counted for all processes together and per environment, so that a test client cannot use up the live limit. A process
//! takes a share of the window from the database, answers so many requests, and takes another one. A share is smaller
//! the less is left, so that few requests are kept by a process that does not get them. While the database does not
//! answer, each process counts for itself. A window can be stated exactly in the `RateLimit` header by a single process;
//! the price is that a burst may span two windows.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use dvp_store::PgPool;
use dvp_store::orders::intents::Tenant;
use dvp_store::partners::registry::rates::{self, RateShare};
use parking_lot::Mutex;
use tracing::warn;

const WINDOW: Duration = Duration::from_secs(60);
/// The number of windows above which closed ones are dropped.
const WINDOWS_MAX: usize = 10_000;
/// How long a request waits for its process's share.
const SHARE_WITHIN: Duration = Duration::from_millis(250);

struct Window {
    /// Of the database's row; `None`: this process counts for itself.
    id: Option<i64>,
    opened: Instant,
    used: u64,
    /// What this process may use, and what all together may.
    granted: u64,
    total: u64,
    /// Held while a share is taken.
    taking: Arc<tokio::sync::Mutex<()>>,
}

impl Window {
    fn new(opened: Instant) -> Self {
        Self { id: None, opened, used: 0, granted: 0, total: 0, taking: Arc::default() }
    }

    fn is_open(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.opened) < WINDOW
    }

    fn state(&self, limit: u64, now: Instant, allowed: bool) -> RateWindow {
        let left = WINDOW.saturating_sub(now.saturating_duration_since(self.opened));
        let others = self.total.saturating_sub(self.granted);
        RateWindow {
            limit,
            remaining: limit.saturating_sub(others).saturating_sub(self.used),
            reset_secs: left.as_secs().saturating_add(u64::from(left.subsec_nanos() > 0)),
            allowed,
        }
    }

    fn add(&mut self, share: RateShare, now: Instant) {
        if self.id != Some(share.window) {
            let opened = now.checked_sub(share.age).unwrap_or(now);
            *self = Self {
                id: Some(share.window),
                opened,
                taking: Arc::clone(&self.taking),
                ..Self::new(opened)
            };
        }
        self.granted = self.granted.saturating_add(share.granted);
        self.total = share.total;
    }

    /// Without the database: the window's rest, as if no other process had a part of it.
    fn alone(&mut self, limit: u64, now: Instant) {
        if !self.is_open(now) {
            *self = Self { taking: Arc::clone(&self.taking), ..Self::new(now) };
        }
        (self.granted, self.total) = (limit, limit);
    }
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

enum Counted {
    Yes(RateWindow),
    /// Nothing is left of the limit.
    Refused(RateWindow),
    /// The process's share is used up.
    NoShare(Arc<tokio::sync::Mutex<()>>),
}

#[derive(Default)]
pub(crate) struct Limiter {
    windows: Mutex<HashMap<Tenant, Window>>,
}

impl Limiter {
    /// Counts one request, if the limit allows it.
    pub(crate) async fn take(&self, pool: &PgPool, tenant: &Tenant, limit: u64) -> RateWindow {
        let taking = match self.count(tenant, limit, Instant::now()) {
            Counted::Yes(window) | Counted::Refused(window) => return window,
            Counted::NoShare(taking) => taking,
        };
        let _one = taking.lock().await;
        loop {
            // Another request may have taken a share meanwhile.
            match self.count(tenant, limit, Instant::now()) {
                Counted::Yes(window) | Counted::Refused(window) => return window,
                Counted::NoShare(_) => {}
            }
            let share = tokio::time::timeout(SHARE_WITHIN, share(pool, tenant, limit)).await;
            let failed = match share {
                Ok(Ok(share)) => {
                    self.update(tenant, |window, now| window.add(share, now));
                    continue;
                }
                Ok(Err(error)) => error.to_string(),
                Err(_) => format!("no answer within {} ms", SHARE_WITHIN.as_millis()),
            };
            warn!(partner = tenant.partner_id, failed, "rate limit is counted by this process alone");
            self.update(tenant, |window, now| window.alone(limit, now));
        }
    }

    #[cfg(test)]
    fn peek(&self, tenant: &Tenant, limit: u64, now: Instant) -> RateWindow {
        let windows = self.windows.lock();
        let open = windows.get(tenant).filter(|window| window.is_open(now));
        open.map_or_else(|| Window::new(now).state(limit, now, true), |window| window.state(limit, now, true))
    }

    fn count(&self, tenant: &Tenant, limit: u64, now: Instant) -> Counted {
        let mut windows = self.windows.lock();
        if windows.len() >= WINDOWS_MAX && !windows.contains_key(tenant) {
            windows.retain(|_, window| window.is_open(now));
        }
        let window = windows.entry(tenant.clone()).or_insert_with(|| Window::new(now));
        if !window.is_open(now) {
            *window = Window { taking: Arc::clone(&window.taking), ..Window::new(now) };
        }
        if window.used < window.granted.min(limit) {
            window.used = window.used.saturating_add(1);
            return Counted::Yes(window.state(limit, now, true));
        }
        if window.total >= limit {
            Counted::Refused(window.state(limit, now, false))
        } else {
            Counted::NoShare(Arc::clone(&window.taking))
        }
    }

    fn update(&self, tenant: &Tenant, change: impl FnOnce(&mut Window, Instant)) {
        let mut windows = self.windows.lock();
        let now = Instant::now();
        change(windows.entry(tenant.clone()).or_insert_with(|| Window::new(now)), now);
    }
}

async fn share(pool: &PgPool, tenant: &Tenant, limit: u64) -> Result<RateShare, dvp_store::StoreError> {
    let mut conn = pool.acquire().await?;
    rates::take_share(&mut conn, tenant, limit, WINDOW).await
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

    const fn share(window: i64, granted: u64, total: u64) -> RateShare {
        RateShare { window, age: Duration::ZERO, granted, total }
    }

    /// The remaining requests after each of so many that are counted.
    fn counted(limiter: &Limiter, times: usize, limit: u64, now: Instant) -> Vec<u64> {
        let left = |_| match limiter.count(&tenant(false), limit, now) {
            Counted::Yes(window) => Some(window.remaining),
            Counted::Refused(_) | Counted::NoShare(_) => None,
        };
        (0..times).map_while(left).collect()
    }

    #[test]
    fn a_process_counts_no_more_than_its_shares_and_knows_what_the_others_have() {
        let limiter = Limiter::default();
        let now = Instant::now();
        assert!(matches!(limiter.count(&tenant(false), 5, now), Counted::NoShare(_)));
        limiter.update(&tenant(false), |window, now| window.add(share(1, 2, 2), now));
        assert_eq!(counted(&limiter, 9, 5, now), [4, 3]);
        // Another process took two.
        limiter.update(&tenant(false), |window, now| window.add(share(1, 1, 5), now));
        assert_eq!(counted(&limiter, 9, 5, now), [0]);
        let Counted::Refused(refused) = limiter.count(&tenant(false), 5, now) else { panic!("not refused") };
        assert_eq!((refused.allowed, refused.remaining), (false, 0));
        assert_eq!(limiter.peek(&tenant(false), 5, now).remaining, 0);
        assert_eq!(limiter.peek(&tenant(true), 5, now).remaining, 5, "environments are counted separately");
    }

    #[test]
    fn a_window_lasts_a_minute_and_a_new_one_begins_with_nothing() {
        let limiter = Limiter::default();
        limiter.update(&tenant(false), |window, now| window.add(share(1, 2, 2), now));
        let late = Instant::now() + Duration::from_millis(59_000);
        let Counted::Yes(window) = limiter.count(&tenant(false), 2, late) else { panic!("not counted") };
        assert!((window.remaining, window.reset_secs) == (1, 1) || window.reset_secs == 2, "{window:?}");
        assert!(matches!(limiter.count(&tenant(false), 2, late + WINDOW), Counted::NoShare(_)));
    }

    #[test]
    fn without_the_database_a_process_counts_the_rest_for_itself() {
        let limiter = Limiter::default();
        let now = Instant::now();
        limiter.update(&tenant(false), |window, now| window.add(share(1, 1, 1), now));
        assert_eq!(counted(&limiter, 9, 3, now), [2]);
        limiter.update(&tenant(false), |window, now| window.alone(3, now));
        assert_eq!(counted(&limiter, 9, 3, now), [1, 0]);
        assert!(matches!(limiter.count(&tenant(false), 3, now), Counted::Refused(_)));
    }

    #[test]
    fn a_full_table_drops_closed_windows() {
        let limiter = Limiter::default();
        let start = Instant::now();
        for n in 0..WINDOWS_MAX {
            let tenant = Tenant { partner_id: n.to_string(), livemode: false };
            drop(limiter.count(&tenant, 1, start));
        }
        drop(limiter.count(&tenant(false), 1, start + WINDOW));
        assert_eq!(limiter.windows.lock().len(), 1);
    }
}

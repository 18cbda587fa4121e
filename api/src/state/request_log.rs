//! Requests that changed something or were refused, on their way to the log that their partner reads. They are written
//! together; a request never waits for it, and when there are many in a second, some are left out.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dvp_core::engine::Engine;
use dvp_store::StoreError;
use dvp_store::orders::intents::Tenant;
use dvp_store::partners::requests::{self, NewRequest};
use parking_lot::Mutex;
use tracing::warn;

use crate::http::error::Code;

const EVERY: Duration = Duration::from_millis(500);
/// Requests of a partner in one writing; others are left out.
const EACH_MAX: usize = 20;
/// Requests of all partners in one writing; others are left out.
const ALL_MAX: usize = 2_000;

#[derive(Debug, Default)]
pub(crate) struct RequestLog {
    waiting: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    requests: Vec<NewRequest>,
    each: HashMap<Tenant, Taken>,
    is_writing: bool,
}

/// What a partner has in a writing. Of requests beyond its rate limit one is kept, so that they displace no others.
#[derive(Debug, Default)]
struct Taken {
    count: usize,
    has_limited: bool,
}

impl Waiting {
    /// Keeps a request for the next writing, unless its partner, or all partners together, have too many.
    fn take(&mut self, request: NewRequest) {
        let taken = self.each.entry(request.tenant.clone()).or_default();
        let is_limited = request.code.as_deref() == Some(Code::RateLimitExceeded.as_str());
        if self.requests.len() >= ALL_MAX || taken.count >= EACH_MAX || is_limited && taken.has_limited {
            return;
        }
        taken.count += 1;
        taken.has_limited |= is_limited;
        self.requests.push(request);
    }
}

impl RequestLog {
    /// The first request starts the writing, which ends with the log.
    pub(crate) fn add(self: &Arc<Self>, engine: &Engine, request: NewRequest) {
        let mut waiting = self.waiting.lock();
        waiting.take(request);
        if !std::mem::replace(&mut waiting.is_writing, true) {
            let (log, engine) = (Arc::downgrade(self), engine.clone());
            tokio::spawn(async move {
                let mut last_warned: Option<Instant> = None;
                loop {
                    tokio::time::sleep(EVERY).await;
                    let Some(log) = log.upgrade() else { return };
                    if let Err(error) = log.write(&engine).await
                        && last_warned.is_none_or(|at| at.elapsed() > Duration::from_secs(60))
                    {
                        last_warned = Some(Instant::now());
                        warn!(%error, "requests are missing in the log of requests");
                    }
                }
            });
        }
    }

    async fn write(&self, engine: &Engine) -> Result<(), StoreError> {
        let requests = {
            let mut waiting = self.waiting.lock();
            waiting.each.clear();
            std::mem::take(&mut waiting.requests)
        };
        if requests.is_empty() {
            return Ok(());
        }
        let mut conn = engine.lookups().acquire().await?;
        requests::insert(&mut conn, &requests).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_requests_some_of_each_partner_are_kept() {
        let request = |partner: &str, code: Option<Code>| NewRequest {
            id: uuid::Uuid::nil(),
            at: chrono::DateTime::UNIX_EPOCH,
            tenant: Tenant { partner_id: partner.to_owned(), livemode: false },
            key_id: String::new(),
            request_id: String::new(),
            method: String::new(),
            path: String::new(),
            status: 200,
            code: code.map(|code| code.as_str().to_owned()),
            message: None,
            millis: 0,
        };
        let mut waiting = Waiting::default();
        for _ in 0..60 {
            waiting.take(request("a", Some(Code::RateLimitExceeded)));
        }
        assert_eq!(waiting.requests.len(), 1, "those that were too many are one");
        for _ in 0..60 {
            waiting.take(request("a", None));
        }
        waiting.take(request("b", Some(Code::NotFound)));
        assert_eq!(waiting.requests.len(), EACH_MAX + 1);
        for n in 0..ALL_MAX {
            waiting.take(request(&n.to_string(), None));
        }
        assert_eq!(waiting.requests.len(), ALL_MAX);
    }
}

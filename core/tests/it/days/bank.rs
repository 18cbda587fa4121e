//! A bank, and a desk that converts, with business hours: both answer by the virtual clock.

use std::collections::HashMap;
use std::sync::Mutex;

use chrono::{DateTime, Utc};
use dvp_core::context::Clock;
use dvp_domain::settlement::{LegDone, RailAnswer};
use dvp_rails::{Rail, RailError, RailFuture, RailRequest, RailStatus};
use dvp_testing::month::booked_at;

/// What the rail does with the orders of one account.
#[derive(Debug, Clone)]
pub(super) enum Manner {
    /// Books on the business day after the one that processes the payment.
    Books,
    /// Takes the order and never answers.
    Silent,
    /// In progress until this time, then booked.
    BooksAt(DateTime<Utc>),
    /// Unreachable before this time; from then on, orders are executed at once.
    DownUntil(DateTime<Utc>),
}

#[derive(Debug, Default)]
struct Orders {
    /// The time of each order's first call.
    ordered_at: HashMap<String, DateTime<Utc>>,
    /// Calls that reached the bank, by account.
    calls: HashMap<String, u32>,
    /// Attempts that did not reach it, by account.
    unreached: HashMap<String, u32>,
}

pub(super) struct Bank {
    clock: Clock,
    manners: HashMap<&'static str, Manner>,
    orders: Mutex<Orders>,
}

impl Bank {
    pub(super) fn new(clock: Clock, manners: impl IntoIterator<Item = (&'static str, Manner)>) -> Self {
        Self { clock, manners: manners.into_iter().collect(), orders: Mutex::default() }
    }

    /// The calls for an account that reached the bank.
    pub(super) fn calls(&self, account: &str) -> u32 {
        self.orders.lock().unwrap().calls.get(account).copied().unwrap_or(0)
    }

    /// The attempts for an account that did not reach it.
    pub(super) fn unreached(&self, account: &str) -> u32 {
        self.orders.lock().unwrap().unreached.get(account).copied().unwrap_or(0)
    }

    /// The answer for an account; one without a manner is served immediately.
    fn answer(&self, request: &RailRequest, ordered: DateTime<Utc>) -> Result<RailAnswer, RailError> {
        let now = self.clock.now().to_utc();
        let provider_reference = request.reference.clone();
        let done_at = match self.manners.get(request.account.as_str()) {
            Some(Manner::Silent) => return Err(RailError::Unconfirmed),
            Some(Manner::BooksAt(at)) => *at,
            Some(Manner::Books) => booked_at(ordered),
            Some(Manner::DownUntil(_)) | None => ordered,
        };
        Ok(if now < done_at {
            RailAnswer::InProgress { provider_reference }
        } else {
            RailAnswer::Done(LegDone { provider_reference, occurred_at: done_at.into() })
        })
    }

    fn submitted(&self, request: &RailRequest) -> Result<RailAnswer, RailError> {
        let (now, account) = (self.clock.now().to_utc(), request.account.clone());
        let ordered = {
            let mut orders = self.orders.lock().unwrap();
            if matches!(self.manners.get(account.as_str()), Some(Manner::DownUntil(up)) if now < *up) {
                *orders.unreached.entry(account).or_default() += 1;
                return Err(RailError::Down("connection refused".into()));
            }
            *orders.calls.entry(account).or_default() += 1;
            *orders.ordered_at.entry(request.reference.clone()).or_insert(now)
        };
        self.answer(request, ordered)
    }
}

impl Rail for Bank {
    fn submit<'a>(&'a self, request: &'a RailRequest) -> RailFuture<'a, RailAnswer> {
        Box::pin(async { self.submitted(request) })
    }

    fn status<'a>(&'a self, request: &'a RailRequest) -> RailFuture<'a, RailStatus> {
        Box::pin(async {
            let ordered = self.orders.lock().unwrap().ordered_at.get(&request.reference).copied();
            match ordered {
                None => Ok(RailStatus::NeverSeen),
                Some(ordered) => self.answer(request, ordered).map(RailStatus::Known),
            }
        })
    }
}

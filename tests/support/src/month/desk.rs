//! A desk with books: it converts at once, fails for one account, and is silent about another's orders for long.

use std::collections::BTreeMap;
use std::sync::Mutex;

use chrono::{DateTime, TimeDelta, Utc};
use dvp_core::context::Clock;
use dvp_domain::settlement::{LegDone, RailAnswer};
use dvp_rails::{Rail, RailError, RailFuture, RailRequest, RailStatus};

/// Orders to this account are not converted.
pub(super) const UNCONVERTED: &str = "000123450003";
/// Orders to this account are converted, and for so long nobody is told.
pub(super) const SILENT: &str = "000123450014";
const SILENT_FOR: TimeDelta = TimeDelta::hours(30);

/// What the desk has bought and sold for an execution, in minor units of its assets.
#[derive(Debug, Clone)]
pub(super) struct Trade {
    pub(super) sold: (String, u128),
    pub(super) bought: (String, u128),
    told_at: DateTime<Utc>,
    reference: String,
}

pub(super) struct Desk {
    clock: Clock,
    trades: Mutex<BTreeMap<String, Trade>>,
}

impl Desk {
    pub(super) fn new(clock: Clock) -> Self {
        Self { clock, trades: Mutex::default() }
    }

    pub(super) fn trades(&self) -> BTreeMap<String, Trade> {
        self.trades.lock().unwrap().clone()
    }

    fn answer(&self, trade: &Trade) -> Result<RailAnswer, RailError> {
        if self.clock.now().to_utc() < trade.told_at {
            return Err(RailError::Unconfirmed);
        }
        let (provider_reference, occurred_at) = (trade.reference.clone(), trade.told_at.into());
        Ok(RailAnswer::Done(LegDone { provider_reference, occurred_at }))
    }

    fn convert(&self, request: &RailRequest) -> Result<RailAnswer, RailError> {
        if request.account == UNCONVERTED {
            let (code, message) = ("desk_closed".to_owned(), "the desk is closed".to_owned());
            return Ok(RailAnswer::Failed { code, message, retryable: false });
        }
        let mut trades = self.trades.lock().unwrap();
        let sold = request.sold.as_ref().expect("a conversion sells the input");
        let silent_for = if request.account == SILENT { SILENT_FOR } else { TimeDelta::zero() };
        let trade = Trade {
            sold: (sold.asset.clone(), sold.amount.get()),
            bought: (request.currency.clone(), request.amount.get()),
            told_at: self.clock.now().to_utc() + silent_for,
            reference: format!("D-{}", trades.len()),
        };
        let answer = self.answer(&trade);
        assert!(trades.insert(request.execution.clone(), trade).is_none(), "no order is converted twice");
        answer
    }
}

impl Rail for Desk {
    fn submit<'a>(&'a self, request: &'a RailRequest) -> RailFuture<'a, RailAnswer> {
        Box::pin(async { self.convert(request) })
    }

    fn status<'a>(&'a self, request: &'a RailRequest) -> RailFuture<'a, RailStatus> {
        let found = self.trades.lock().unwrap().get(&request.execution).cloned();
        let status = match found {
            Some(trade) => self.answer(&trade).map(RailStatus::Known),
            None => Ok(RailStatus::NeverSeen),
        };
        Box::pin(std::future::ready(status))
    }
}

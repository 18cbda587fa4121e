//! The deadlines of an order's steps on the chain, from the longest time that its payout takes.
//!
//! ```text
//! now ── lock_by ── fill_deadline ───────── the payout's longest time ───────── margin ── timelock
//!  create │      fill │ anyone may cancel                              settle │ anyone may refund
//! ```
//!
//! The fill window covers the conversion and not the payout: the payout begins after `fill`, which comes before the
//! fill deadline at the latest, and has its own longest time from then on.

use chrono::{DateTime, NaiveTime, Utc};

use crate::beneficiary::PayoutMethod;
use crate::intent::IntentRequest;
use crate::plan::Plan;
use crate::scheme::{LongestTime, Scheme};
use crate::settlement::{Deadlines, Lock};
use crate::terms::Terms;
use crate::time::Timestamp;

/// How long a path may be locked: contract section 7, path validity.
pub const PATH_SECS: u64 = 5 * 60;
/// The contract's limit for the fill deadline, less `CLOCKS_SECS`.
pub const FILL_SECS_MAX: u64 = 7 * DAY_SECS - CLOCKS_SECS;
/// The contract's limit for the timelock, less `CLOCKS_SECS`.
pub const TIMELOCK_SECS_MAX: u64 = 60 * DAY_SECS - CLOCKS_SECS;
/// The smallest margin: time for the payout gate, the transactions that fill and settle, and a decision of two
/// operators.
pub const MARGIN_SECS_MIN: u64 = 60 * 60;
/// How far the chain's clock may be behind when the contract compares the service's times with its limits.
const CLOCKS_SECS: u64 = 60 * 60;
const DAY_SECS: u64 = 24 * 60 * 60;
/// No bank payout takes longer, whenever it begins: a test checks every day of a century.
const BANK_DAYS_MAX: u64 = 14;
const _: () = assert!(
    FILL_SECS_MAX + BANK_DAYS_MAX * DAY_SECS + MARGIN_SECS_MIN < TIMELOCK_SECS_MAX,
    "the contract's limit for the timelock has room for every bank payout"
);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PayoutTime {
    /// The same at any time, in seconds.
    Elapsed(u64),
    /// Business days, by the payment method.
    BusinessDays,
}

impl PayoutTime {
    /// Unix seconds by which a payout that begins at `begun` has ended.
    ///
    /// A payment that misses the day's cut-off counts from the next business day on, so the first day is always
    /// counted.
    pub(crate) fn ends_by(self, method: Option<PayoutMethod>, begun: u64) -> u64 {
        match self {
            Self::Elapsed(secs) => begun.saturating_add(secs),
            // Without a method: as the slowest.
            Self::BusinessDays => {
                let (calendar, days) = match Scheme::of(method.unwrap_or(PayoutMethod::Swift)).longest {
                    LongestTime::Hours(hours) => return begun.saturating_add(hours * 60 * 60),
                    LongestTime::BusinessDays(calendar, days) => (calendar, days),
                };
                let ends = i64::try_from(begun)
                    .ok()
                    .and_then(|begun| DateTime::<Utc>::from_timestamp(begun, 0))
                    .and_then(|begun| calendar.business_day_after(begun.date_naive(), 1 + days).succ_opt())
                    .and_then(|after| {
                        u64::try_from(after.and_time(NaiveTime::MIN).and_utc().timestamp()).ok()
                    });
                ends.unwrap_or_else(|| begun.saturating_add(BANK_DAYS_MAX * DAY_SECS))
            }
        }
    }

    const fn secs_max(self) -> u64 {
        match self {
            Self::Elapsed(secs) => secs,
            Self::BusinessDays => BANK_DAYS_MAX * DAY_SECS,
        }
    }
}

/// How the deadlines of an order are computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Windows {
    /// From now to the fill deadline.
    pub fill_secs: u64,
    /// From the end of the slowest payout to the timelock.
    pub margin_secs: u64,
    pub payout: PayoutTime,
    /// From the last moment of a payment on another chain until it is known there for good whether it was made.
    pub finality_secs: u64,
}

/// The deadlines of one order, in Unix seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LockTimes {
    /// The last second at which the funds may be locked.
    pub lock_by: u64,
    /// `fill` strictly before; from here on anyone may cancel an order that is not filled.
    pub fill_deadline: u64,
    /// `settle` strictly before; from here on anyone may refund.
    pub timelock: u64,
}

/// Why windows cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WindowsError {
    #[error("must be longer than the {PATH_SECS} s for which a path may be locked")]
    FillTooShort,
    #[error("is 167h at most: the contract allows 7 days, and the chain's clock may be behind")]
    FillTooLong,
    #[error("is 1h at least")]
    MarginTooShort,
    #[error(
        "is too long: with the fill window and the payout's {} days it must end an hour before the 60 days that the \
         contract allows",
        payout_secs.div_ceil(DAY_SECS)
    )]
    MarginTooLong { payout_secs: u64 },
}

impl Windows {
    /// Checks that the contract accepts the deadlines of these windows, whenever an order comes.
    pub fn check(self) -> Result<(), WindowsError> {
        if self.fill_secs <= PATH_SECS {
            return Err(WindowsError::FillTooShort);
        }
        if self.fill_secs > FILL_SECS_MAX {
            return Err(WindowsError::FillTooLong);
        }
        if self.margin_secs < MARGIN_SECS_MIN {
            return Err(WindowsError::MarginTooShort);
        }
        let payout_secs = self.payout.secs_max().max(self.finality_secs);
        let longest = self.fill_secs.saturating_add(payout_secs).saturating_add(self.margin_secs);
        if longest > TIMELOCK_SECS_MAX {
            return Err(WindowsError::MarginTooLong { payout_secs });
        }
        Ok(())
    }

    /// The deadlines of an order whose lock is requested now. A lock is useful until the order's deadline and as long
    /// as its path is valid.
    pub fn of(self, terms: &Terms, now: Timestamp) -> LockTimes {
        let fill_deadline = now.unix_secs().saturating_add(self.fill_secs);
        let timelock = self.payout_ends_by(terms, fill_deadline).saturating_add(self.margin_secs);
        LockTimes { lock_by: self.lock_by(&terms.request, &terms.plan, now), fill_deadline, timelock }
    }

    /// The last second at which the funds of an order may be locked, in Unix seconds.
    pub fn lock_by(self, request: &IntentRequest, plan: &Plan, now: Timestamp) -> u64 {
        let requested = request.deadline.min(plan.path.expires_at).unix_secs();
        requested.min(now.unix_secs().saturating_add(self.fill_secs))
    }

    /// When the order's payout that begins at `begun` has ended at the latest, in Unix seconds.
    pub fn payout_ends_by(self, terms: &Terms, begun: u64) -> u64 {
        if terms.crosses() {
            return begun.saturating_add(self.finality_secs);
        }
        if terms.pays_on_chain() {
            return begun;
        }
        let method = terms.request.beneficiary.as_ref().and_then(crate::beneficiary::Beneficiary::rail);
        self.payout.ends_by(method, begun)
    }

    /// The last second of a payment on the chain that is requested now, in Unix seconds. With a lock on another chain it
    /// is well before that one's timelock, by the time in which the payment becomes final.
    pub fn pay_by(self, lock: Option<&Lock>, now: Timestamp) -> u64 {
        let usual = now.unix_secs().saturating_add(self.fill_secs);
        lock.map_or(usual, |lock| usual.min(lock.deadlines.pay_before.unix_secs()))
    }

    /// The service's deadlines for a lock, from its deadlines on the chain in Unix seconds.
    ///
    /// The last quarter of the time to the fill deadline is kept for the commitment. Half of the margin is for payouts
    /// that begin after the fill deadline because their commitment took long to become final; the other half for the
    /// release. A payout that would end in that half because it misses its rail's cut-off does not begin any more.
    pub fn deadlines(self, terms: &Terms, fill_deadline: u64, timelock: u64) -> Deadlines {
        let settle_at = timelock.saturating_sub(self.margin_secs / 2);
        let usual = fill_deadline.saturating_add(self.margin_secs / 2);
        // A rail's time depends on the day on which a payout begins, and the fill deadline's own day is in the timelock.
        let end_of_day = (fill_deadline / DAY_SECS).saturating_add(1).saturating_mul(DAY_SECS) - 1;
        let in_time = self.payout_ends_by(terms, usual) <= settle_at;
        let pay_before = if in_time { usual } else { usual.min(end_of_day) };
        let at =
            |secs: u64| Timestamp::from_millis(i64::try_from(secs).unwrap_or(i64::MAX).saturating_mul(1000));
        Deadlines {
            begin_before: at(fill_deadline.saturating_sub(self.fill_secs / 4)),
            pay_before: at(pay_before),
            overdue_at: at(timelock.saturating_sub(self.margin_secs)),
            settle_at: at(settle_at),
        }
    }
}

#[cfg(test)]
mod tests;

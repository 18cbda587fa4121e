//! The meaning of a desk's answers. Pure.
//!
//! Only an answer in the desk's own format counts: one that a proxy could have given, that names another order, or that
//! contradicts the order or an earlier answer is ignored, and the order is queried again.

use chrono::{DateTime, TimeDelta, Utc};
use dvp_domain::money::Minor;
use dvp_domain::settlement::{LegDone, RailAnswer};
use dvp_domain::text;
use serde::Deserialize;

use crate::{RailRequest, RailStatus};

/// How far ahead of the service's clock a fill may be dated.
const CLOCK_SKEW: TimeDelta = TimeDelta::minutes(5);
/// The longest message of a desk that is stored.
const MESSAGE_MAX: usize = 200;

#[derive(Debug, Deserialize)]
struct Order {
    reference: String,
    status: Status,
    #[serde(rename = "deskReference")]
    desk_reference: Option<String>,
    sell: Option<Side>,
    buy: Option<Side>,
    #[serde(rename = "filledAt")]
    filled_at: Option<DateTime<Utc>>,
    reason: Option<FailureReason>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Status {
    Working,
    Filled,
    Rejected,
}

#[derive(Debug, Deserialize)]
struct Side {
    asset: String,
    #[serde(rename = "amountMinor")]
    amount_minor: String,
}

#[derive(Debug, Deserialize)]
struct FailureReason {
    code: String,
    message: Option<String>,
}

#[derive(Debug, Deserialize)]
struct ErrorBody {
    error: String,
    reference: Option<String>,
}

/// The result of a call or a query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum CallResult {
    Known(RailAnswer),
    NeverSeen,
    /// The desk refused before it did anything.
    Refused(String),
    /// The answer proves nothing.
    Nothing(String),
}

impl CallResult {
    /// The result as the answer to a query.
    pub(super) fn into_status(self) -> Result<RailStatus, String> {
        match self {
            Self::Known(answer) => Ok(RailStatus::Known(answer)),
            Self::NeverSeen => Ok(RailStatus::NeverSeen),
            Self::Refused(why) | Self::Nothing(why) => Err(why),
        }
    }
}

/// Parses the answer to an order or to a query.
pub(super) fn read(request: &RailRequest, status: u16, body: &[u8], now: DateTime<Utc>) -> CallResult {
    match status {
        200..=202 | 422 => match serde_json::from_slice(body) {
            Ok(order) => known(request, order, now).map_or_else(CallResult::Nothing, CallResult::Known),
            Err(error) => {
                CallResult::Nothing(format!("status {status} with a body that is no order: {error}"))
            }
        },
        _ => match serde_json::from_slice::<ErrorBody>(body) {
            Ok(ErrorBody { error, reference: Some(reference) })
                if status == 404 && error == "unknown_reference" && reference == request.reference =>
            {
                CallResult::NeverSeen
            }
            Ok(ErrorBody { error, .. }) if matches!(status, 401 | 403 | 429) && text::is_id(&error) => {
                CallResult::Refused(format!("status {status}, {error}"))
            }
            Ok(_) | Err(_) => CallResult::Nothing(format!("status {status}")),
        },
    }
}

fn known(request: &RailRequest, order: Order, now: DateTime<Utc>) -> Result<RailAnswer, String> {
    if order.reference != request.reference {
        return Err("the answer names another order".into());
    }
    match order.status {
        Status::Working => {
            Ok(RailAnswer::InProgress { provider_reference: desk_reference(request, order.desk_reference)? })
        }
        Status::Rejected => Ok(rejected(order.reason)),
        Status::Filled => {
            let sold = request.sold.as_ref().ok_or("nothing is sold by this order")?;
            same("sell", order.sell.as_ref(), &sold.asset, sold.amount)?;
            same("buy", order.buy.as_ref(), &request.currency, request.amount)?;
            let at = order.filled_at.ok_or("filledAt is missing")?;
            if at > now + CLOCK_SKEW {
                return Err(format!("filledAt {at} lies in the future"));
            }
            let provider_reference = desk_reference(request, order.desk_reference)?;
            Ok(RailAnswer::Done(LegDone { provider_reference, occurred_at: at.min(now).into() }))
        }
    }
}

/// The desk's own reference; the same in all its answers for one order.
fn desk_reference(request: &RailRequest, said: Option<String>) -> Result<String, String> {
    let said = said.filter(|said| text::is_id(said)).ok_or("deskReference is missing or no identifier")?;
    match &request.provider_reference {
        Some(before) if *before != said => Err(format!("deskReference was {before} and is {said}")),
        _ => Ok(said),
    }
}

/// Checks that the fill is the whole amount at the agreed rate.
fn same(name: &str, side: Option<&Side>, asset: &str, amount: Minor) -> Result<(), String> {
    let side = side.ok_or_else(|| format!("{name} is missing"))?;
    if side.asset == asset && side.amount_minor == amount.to_string() {
        Ok(())
    } else {
        Err(format!("{name} is {} {}, ordered was {amount} {asset}", side.amount_minor, side.asset))
    }
}

fn rejected(reason: Option<FailureReason>) -> RailAnswer {
    let is_code = |code: &str| {
        (1..=64).contains(&code.len())
            && code.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
    };
    let (code, message) = reason.map_or((None, None), |reason| (Some(reason.code), reason.message));
    RailAnswer::Failed {
        code: code.filter(|code| is_code(code)).unwrap_or_else(|| "conversion_failed".into()),
        message: message
            .filter(|message| text::check_line(message, MESSAGE_MAX).is_ok())
            .unwrap_or_else(|| "the desk rejected the order".into()),
        retryable: false,
    }
}

#[cfg(test)]
mod tests;

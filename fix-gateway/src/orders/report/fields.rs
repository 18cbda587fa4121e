//! The fields that FIX has no tag for, and the fees.

use dvp_fix::{UtcNanos, codec::Body, tag::Tag};

use super::{Ids, ReportContent};
use crate::orders::{
    facts::{DepositFacts, OrderFacts},
    tags,
    trade::{Fee, Trade},
};

/// NoMiscFees(136), which a report of FIX 4.2 does not have: there Commission(12) has everything.
pub(super) fn misc_fees(trade: &Trade, is_later: bool) -> Body {
    if !is_later || trade.misc.is_zero() {
        return Body::new();
    }
    Body::new()
        .field(tags::NO_MISC_FEES, "1")
        .field(tags::MISC_FEE_AMT, trade.quote(trade.misc))
        .field(tags::MISC_FEE_CURR, &trade.quote_currency)
        // Other.
        .field(tags::MISC_FEE_TYPE, "7")
}

/// The fees as they were deducted, in the assets that they were deducted from.
pub(super) fn own_fees(content: &ReportContent, ids: &Ids<'_>) -> Body {
    let trade = match content {
        ReportContent::Filled(trade) => trade,
        ReportContent::RestCanceled(trade) if ids.is_status => trade,
        _ => return Body::new(),
    };
    let fee = |fee: &Option<Fee>, tags: (Tag, Tag)| {
        let amount = fee.as_ref().map(|fee| fee.amount.to_string());
        Body::new().maybe(tags.0, amount).maybe(tags.1, fee.as_ref().map(|fee| fee.currency.as_str()))
    };
    fee(&trade.payout_fee, (tags::PAYOUT_FEE, tags::PAYOUT_FEE_CURRENCY))
        .and(fee(&trade.protocol_fee, (tags::PROTOCOL_FEE, tags::PROTOCOL_FEE_CURRENCY)))
}

/// What an order waits for whose input is a chain's coin, while nothing has followed its acceptance.
pub(super) fn deposit(facts: &OrderFacts, content: &ReportContent, ids: &Ids<'_>) -> Body {
    let due = facts.deposit.as_ref().filter(|_| matches!(content, ReportContent::New));
    let Some(DepositFacts { contract, id, amount, by }) = due else { return Body::new() };
    let by = u64::try_from(by.millis()).unwrap_or(0).saturating_mul(1_000_000);
    Body::new()
        .field(tags::DEPOSIT_CONTRACT, contract)
        .field(tags::DEPOSIT_ID, id)
        .field(tags::DEPOSIT_AMOUNT, amount.to_string())
        .field(tags::DEPOSIT_BY, UtcNanos(by).text(ids.at.precision))
}

pub(super) fn words(content: &ReportContent) -> (Option<&str>, Option<String>) {
    match content {
        ReportContent::RestCanceled(_) => (Some("the rest is not traded"), None),
        ReportContent::Rejected(rejection) => {
            (Some(&rejection.text), Some(rejection.ord_rej_reason.to_string()))
        }
        ReportContent::Canceled(Some(failure)) | ReportContent::Reversed { failure: Some(failure), .. }
            if !failure.message.is_empty() =>
        {
            (Some(&failure.message), None)
        }
        ReportContent::Pending
        | ReportContent::New
        | ReportContent::Progress { .. }
        | ReportContent::Filled(_)
        | ReportContent::Canceled(_)
        | ReportContent::Reversed { .. }
        | ReportContent::Expired => (None, None),
    }
}

pub(super) fn own_fields(content: &ReportContent) -> Body {
    let body = Body::new();
    match content {
        ReportContent::Progress { phase, state } => {
            body.field(tags::PHASE, phase).field(tags::PHASE_STATE, state)
        }
        ReportContent::Filled(_) | ReportContent::RestCanceled(_) => {
            body.field(tags::PHASE, "payout").field(tags::PHASE_STATE, "completed")
        }
        ReportContent::Reversed { failure: Some(failure), .. } => body
            .field(tags::PHASE, &failure.stage)
            .field(tags::PHASE_STATE, "reversed")
            .field(tags::FAILURE_STAGE, &failure.stage)
            .field(tags::FAILURE_CODE, &failure.code),
        ReportContent::Canceled(Some(failure)) => body
            .field(tags::PHASE, &failure.stage)
            .field(tags::PHASE_STATE, "failed")
            .field(tags::FAILURE_STAGE, &failure.stage)
            .field(tags::FAILURE_CODE, &failure.code),
        ReportContent::Pending
        | ReportContent::New
        | ReportContent::Rejected(_)
        | ReportContent::Canceled(None)
        | ReportContent::Reversed { failure: None, .. }
        | ReportContent::Expired => body,
    }
}

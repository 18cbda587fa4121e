//! The fields that FIX has no tag for, and the fees.

use dvp_domain::fees::{FeeItem, FeeType};
use dvp_domain::money::Minor;
use dvp_fix::UtcNanos;
use dvp_fix::codec::Body;

use super::ReportContent;
use crate::orders::{
    Version,
    facts::{DepositFacts, OrderFacts},
    tags,
};

/// The deducted fees, reported with the fill.
#[derive(Default)]
pub(super) struct Fees<'a> {
    /// CommCurrency(479), and the amount as it was accepted.
    pub(super) protocol: Option<&'a FeeItem>,
    protocol_fee: Option<Minor>,
    payout: Option<&'a FeeItem>,
}

impl<'a> Fees<'a> {
    pub(super) fn of(facts: &'a OrderFacts, content: &ReportContent) -> Self {
        let ReportContent::Filled { protocol_fee, .. } = content else { return Self::default() };
        let find = |kind| facts.fees.iter().find(|fee| fee.kind == kind);
        Self {
            protocol: find(FeeType::ProtocolFee),
            protocol_fee: *protocol_fee,
            payout: find(FeeType::PayoutFee),
        }
    }

    pub(super) fn commission(&self) -> Option<String> {
        let fee = self.protocol?;
        Some(self.protocol_fee.unwrap_or(fee.amount_minor).to_decimal_string(fee.exponent))
    }

    /// NoMiscFees(136), which a report of FIX 4.2 does not have.
    pub(super) fn group(&self, is_later: bool) -> Body {
        let Some(fee) = self.payout.filter(|_| is_later) else { return Body::new() };
        Body::new()
            .field(tags::NO_MISC_FEES, "1")
            .field(tags::MISC_FEE_AMT, fee.amount_minor.to_decimal_string(fee.exponent))
            .field(tags::MISC_FEE_CURR, &fee.currency)
            // Other.
            .field(tags::MISC_FEE_TYPE, "7")
    }
}

/// The payout's fee in FIX 4.2.
pub(super) fn own_fees(version: Version, facts: &OrderFacts, content: &ReportContent) -> Body {
    match Fees::of(facts, content).payout {
        Some(fee) if version == Version::Fix42 => Body::new()
            .field(tags::PAYOUT_FEE, fee.amount_minor.to_decimal_string(fee.exponent))
            .field(tags::PAYOUT_FEE_CURRENCY, &fee.currency),
        Some(_) | None => Body::new(),
    }
}

/// What an order waits for whose input is a chain's coin, while nothing has followed its acceptance.
pub(super) fn deposit(facts: &OrderFacts, content: &ReportContent) -> Body {
    let due = facts.deposit.as_ref().filter(|_| matches!(content, ReportContent::New));
    let Some(DepositFacts { contract, id, amount, by }) = due else { return Body::new() };
    let by = u64::try_from(by.millis()).unwrap_or(0).saturating_mul(1_000_000);
    Body::new()
        .field(tags::DEPOSIT_CONTRACT, contract)
        .field(tags::DEPOSIT_ID, id)
        .field(tags::DEPOSIT_AMOUNT, amount.to_string())
        .field(tags::DEPOSIT_BY, UtcNanos(by).millis_text())
}

pub(super) fn words(content: &ReportContent) -> (Option<&str>, Option<String>) {
    match content {
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
        | ReportContent::Filled { .. }
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
        ReportContent::Filled { .. } => {
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

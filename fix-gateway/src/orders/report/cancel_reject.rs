//! OrderCancelReject(9).

use dvp_fix::{Stamp, codec::Body, tag::Tag};

use crate::orders::{
    Version,
    facts::{CancelRefusal, fields_of},
    tags,
};

impl CancelRefusal {
    /// The number and Text(58). FIX 4.2 has no reason for a duplicate and no "other"; its nearest is 2, "broker option".
    fn words(&self, version: Version) -> (&'static str, &str) {
        match (self, version) {
            (Self::TooLate, _) => ("0", "too late to cancel"),
            (Self::UnknownOrder, _) => ("1", "unknown order"),
            (Self::DuplicateClOrdId, Version::Fix42) => ("2", "duplicate ClOrdID"),
            (Self::DuplicateClOrdId, Version::Fix44) => ("6", "duplicate ClOrdID"),
            (Self::Field(problem), Version::Fix42) => ("2", problem),
            (Self::Field(problem), Version::Fix44) => ("99", problem),
            (Self::NoReplacement, _) => ("2", "orders are not replaced: cancel, and send another"),
        }
    }

    /// CxlRejResponseTo(434): a cancel request, or a replacement.
    const fn response_to(&self) -> &'static str {
        match self {
            Self::NoReplacement => "2",
            Self::TooLate | Self::UnknownOrder | Self::DuplicateClOrdId | Self::Field(_) => "1",
        }
    }
}

/// The order's fields in an OrderCancelReject.
pub(crate) struct CancelRejected<'a> {
    pub(crate) cl_ord_id: &'a str,
    pub(crate) orig_cl_ord_id: &'a str,
    pub(crate) order_id: &'a str,
    pub(crate) ord_status: &'a str,
    pub(crate) refusal: CancelRefusal,
    pub(crate) at: Stamp,
    /// Back along the way of the request.
    pub(crate) route: Vec<(Tag, String)>,
}

/// An OrderCancelReject's body, tags ascending.
pub(crate) fn cancel_reject(version: Version, rejected: &CancelRejected<'_>) -> Body {
    let (reason, text) = rejected.refusal.words(version);
    fields_of(&rejected.route)
        .field(tags::CL_ORD_ID, rejected.cl_ord_id)
        .field(tags::ORDER_ID, rejected.order_id)
        .field(tags::ORD_STATUS, rejected.ord_status)
        .field(tags::ORIG_CL_ORD_ID, rejected.orig_cl_ord_id)
        .field(tags::TEXT, text)
        .field(tags::TRANSACT_TIME, rejected.at.text())
        .field(tags::CXL_REJ_REASON, reason)
        .field(tags::CXL_REJ_RESPONSE_TO, rejected.refusal.response_to())
}

//! The rows of a session's store: messages under their numbers, orders under their ClOrdIDs.

use dvp_core::writer::{Outcome, Refusal};
use dvp_domain::{
    fees::{Collection, FeeItem},
    plan::plan_id,
};
use dvp_fix::{
    Precision, SeqNum, Stamp, UtcNanos,
    codec::{Body, MessageRef, MsgType},
    session::Stored,
    tag,
};
use dvp_store::fix::rows::{ClOrdId, FixOrder, FixOutbound, FixRows};

use crate::{
    application::{Numbers, Turn, Unavailable},
    orders::{
        Version,
        facts::{CancelRefusal, DepositFacts, Details, OrderFacts, intent_id},
        report::{self, Ids, ReportContent},
    },
};

/// The number and the time of an answer.
#[derive(Clone, Copy)]
pub(super) struct Slot {
    pub(super) seq: SeqNum,
    pub(super) at: Stamp,
}

impl Slot {
    /// One of several answers of a turn, whose numbers are committed when all have theirs.
    pub(super) fn next(turn: &mut Turn<'_>) -> Self {
        Self { seq: turn.reserve(), at: turn.sending_time() }
    }

    pub(super) fn take(turn: &mut Turn<'_>) -> (Self, Numbers) {
        let slot = Self::next(turn);
        (slot, turn.numbers())
    }

    /// A unique part of an ExecID(17): numbers restart at a reset, times do not.
    pub(super) fn unique(self) -> String {
        format!("{}.{}", self.at.time.0, self.seq)
    }

    pub(super) fn holds(self, msg_type: MsgType, body: Body) -> FixOutbound {
        FixOutbound {
            seq: self.seq.0,
            msg_type: msg_type.as_str().to_owned(),
            body: body.into_bytes(),
            sending_time: i64::try_from(self.at.time.0).unwrap_or(i64::MAX),
            fraction_digits: self.at.precision.digits(),
        }
    }
}

/// Does the message have PossDupFlag or PossResend?
pub(super) fn is_repetition(message: MessageRef<'_>) -> bool {
    message.is_yes(tag::POSS_DUP_FLAG) || message.is_yes(tag::POSS_RESEND)
}

/// The fees that were taken from what was paid or delivered.
pub(super) fn deducted(fees: &[FeeItem]) -> Vec<FeeItem> {
    fees.iter().filter(|fee| fee.collection == Collection::Deducted).cloned().collect()
}

pub(super) fn submitted_rows(
    version: Version,
    session_id: &str,
    slot: Slot,
    cl_ord_id: &ClOrdId,
    facts: &OrderFacts,
    content: &ReportContent,
    outcome: Option<&Outcome>,
) -> FixRows {
    let intent_id = intent_id(session_id, cl_ord_id);
    let accepted = match outcome {
        Some(Outcome::Accepted(accepted)) => Some(accepted),
        _ => None,
    };
    let reference = accepted.map(|accepted| accepted.reference.clone());
    let fees = accepted.map(|accepted| accepted.plan.priced.fees.as_slice()).unwrap_or_default();
    let facts = OrderFacts {
        plan_id: reference.as_ref().map(|_| plan_id(&intent_id)),
        fees: deducted(fees),
        deposit: accepted.and_then(|accepted| accepted.deposit.as_ref()).map(|due| DepositFacts {
            contract: due.contract.clone(),
            id: due.id.clone(),
            amount: due.amount,
            by: due.by,
        }),
        rejection: match content {
            ReportContent::Rejected(rejection) => Some(rejection.clone()),
            _ => None,
        },
        ..facts.clone()
    };
    let is_repeated = matches!(
        outcome,
        Some(Outcome::Refused(Refusal::DuplicateIntent | Refusal::DuplicateClientReference))
    );
    let exec_id = match &reference {
        Some(reference) => format!("{reference}.1"),
        None if is_repeated => format!("{intent_id}.{}", slot.unique()),
        // The only report of a rejected order, repeated identically.
        None => format!("{intent_id}.0"),
    };
    let ids = Ids {
        cl_ord_id: &cl_ord_id.id,
        orig_cl_ord_id: None,
        order_id: reference.as_deref().unwrap_or("NONE"),
        exec_id,
        at: slot.at,
        is_status: false,
    };
    let body = report::execution_report(version, &facts, content, &ids);
    let order = FixOrder {
        cl_ord_id: cl_ord_id.id.clone(),
        trading_day: cl_ord_id.trading_day,
        reference,
        intent_id,
        details: to_json(&Details::Order(Box::new(facts))),
    };
    let outbound = vec![slot.holds(MsgType::EXECUTION_REPORT, body)];
    FixRows { outbound, orders: vec![order], ..FixRows::default() }
}

pub(super) fn cancel_order(cl_ord_id: &ClOrdId, orig: &str, refusal: Option<CancelRefusal>) -> FixOrder {
    FixOrder {
        cl_ord_id: cl_ord_id.id.clone(),
        trading_day: cl_ord_id.trading_day,
        reference: None,
        // A request has no event.
        intent_id: String::new(),
        details: to_json(&Details::Cancel { orig_cl_ord_id: orig.to_owned(), refusal }),
    }
}

pub(super) fn to_json(details: &Details) -> serde_json::Value {
    serde_json::to_value(details).expect("strings, numbers and booleans under string keys always serialize")
}

pub(super) fn details(order: &FixOrder) -> Option<Details> {
    serde_json::from_value(order.details.clone()).ok()
}

pub(super) fn order_facts(order: &FixOrder) -> Option<OrderFacts> {
    match details(order)? {
        Details::Order(facts) => Some(*facts),
        Details::Cancel { .. } => None,
    }
}

pub(super) fn stored(message: FixOutbound) -> Result<Stored, Unavailable> {
    let msg_type = MsgType::new(&message.msg_type)
        .ok_or_else(|| Unavailable::data(format!("stored message {} has no type", message.seq)))?;
    let precision = Precision::of_digits(message.fraction_digits)
        .ok_or_else(|| Unavailable::data(format!("stored message {} has no precision", message.seq)))?;
    let time = UtcNanos(u64::try_from(message.sending_time).unwrap_or(0));
    Ok(Stored {
        seq: SeqNum(message.seq),
        msg_type,
        body: Body::from_bytes(message.body),
        sending_time: Stamp { time, precision },
        resend: true,
    })
}

pub(super) fn transmissible(outbound: Vec<FixOutbound>) -> Result<Vec<Stored>, Unavailable> {
    outbound.into_iter().map(stored).collect()
}

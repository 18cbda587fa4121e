//! Maps outcomes and events to ExecutionReport(8) and OrderCancelReject(9).

mod cancel_reject;
mod fields;

use dvp_core::writer::{Outcome, Refusal};
use dvp_domain::{decision::Reason, event::EventType, permit::PermitDefect, snapshot::IntentSnapshot};
use dvp_fix::{Stamp, codec::Body};
use serde::Deserialize as _;
use serde_json::Value;

pub(crate) use self::cancel_reject::{CancelRejected, cancel_reject};
use self::fields::{deposit, misc_fees, own_fees, own_fields, words};
use super::{
    Version,
    facts::{NO_SYMBOL, OrderFacts, Rejection, fields_of},
    parse::other_reason,
    price::price_of,
    tags,
    trade::Trade,
};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ReportContent {
    /// Received, and not decided yet.
    Pending,
    New,
    Rejected(Rejection),
    /// A phase has changed; the order's status has not.
    Progress {
        phase: String,
        state: String,
    },
    Filled(Box<Trade>),
    /// What a fill has left of the order's quantity is not traded any more.
    RestCanceled(Box<Trade>),
    Canceled(Option<Failure>),
    /// The payment of a filled order came back: the fill with this ExecID(17) is taken back.
    Reversed {
        failure: Option<Failure>,
        fill: String,
    },
    Expired,
}

/// Why a leg failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) stage: String,
    pub(crate) code: String,
    pub(crate) message: String,
}

/// The fields of a status request beside the order, and the fields that only its answers have.
#[derive(Debug, Clone, Default)]
pub(crate) struct StatusRequest<'a> {
    pub(crate) ord_status_req_id: Option<&'a str>,
    pub(crate) mass: Option<MassAnswer<'a>>,
    pub(crate) receipt: Option<ReceiptFacts>,
}

/// The position of the answer to an OrderMassStatusRequest.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MassAnswer<'a> {
    pub(crate) request_id: &'a str,
    pub(crate) total: usize,
    pub(crate) is_last: bool,
}

#[derive(Debug, Clone)]
pub(crate) struct ReceiptFacts {
    /// SHA-256 of the receipt, `0x` and hex.
    pub(crate) hash: String,
    /// Once the anchor is final.
    pub(crate) anchor_tx_hash: Option<String>,
}

impl StatusRequest<'_> {
    fn standard_fields(&self) -> Body {
        let body = Body::new().maybe(tags::MASS_STATUS_REQ_ID, self.mass.map(|mass| mass.request_id));
        let body = body.maybe(tags::ORD_STATUS_REQ_ID, self.ord_status_req_id);
        match self.mass {
            Some(mass) => body
                .field(tags::TOT_NUM_REPORTS, mass.total.to_string())
                .field(tags::LAST_RPT_REQUESTED, if mass.is_last { "Y" } else { "N" }),
            None => body,
        }
    }

    fn own_fields(&self) -> Body {
        let receipt = self.receipt.as_ref();
        Body::new()
            .maybe(tags::RECEIPT_HASH, receipt.map(|receipt| receipt.hash.as_str()))
            .maybe(tags::ANCHOR_TX_HASH, receipt.and_then(|receipt| receipt.anchor_tx_hash.as_deref()))
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Ids<'a> {
    pub(crate) cl_ord_id: &'a str,
    /// Of the order that a cancel request was about.
    pub(crate) orig_cl_ord_id: Option<&'a str>,
    /// The execution's reference, `NONE` without one.
    pub(crate) order_id: &'a str,
    pub(crate) exec_id: String,
    pub(crate) at: Stamp,
    /// An answer to a status request, which changes nothing.
    pub(crate) is_status: bool,
}

impl ReportContent {
    /// ExecType(150) of the event, OrdStatus(39).
    const fn codes(&self, version: Version) -> (&'static str, &'static str) {
        match (self, version) {
            (Self::Pending, _) => ("A", "A"),
            (Self::New, _) => ("0", "0"),
            (Self::Rejected(_), _) => ("8", "8"),
            // FIX 4.2 marks a report without a change by ExecTransType(20).
            (Self::Progress { .. }, Version::Fix42) => ("0", "0"),
            (Self::Progress { .. }, Version::Fix44) => ("I", "0"),
            (Self::Filled(_), Version::Fix42) => ("2", "2"),
            (Self::Filled(_), Version::Fix44) => ("F", "2"),
            (Self::Canceled(_) | Self::RestCanceled(_), _) => ("4", "4"),
            // FIX 4.2 cancels the fill with ExecTransType(20); later versions with Trade Cancel.
            (Self::Reversed { .. }, Version::Fix42) => ("4", "4"),
            (Self::Reversed { .. }, Version::Fix44) => ("H", "4"),
            (Self::Expired, _) => ("C", "C"),
        }
    }

    const fn is_open(&self) -> bool {
        matches!(self, Self::Pending | Self::New | Self::Progress { .. })
    }

    /// The report content of a submission's outcome, and the reason to store when it is a rejection.
    pub(crate) fn of_outcome(outcome: &Outcome, version: Version) -> Self {
        let other = |text: String| Self::Rejected(Rejection { ord_rej_reason: other_reason(version), text });
        match outcome {
            Outcome::Accepted(_) => Self::New,
            Outcome::Rejected { reason, .. } => Self::Rejected(rejection(*reason, version)),
            Outcome::Refused(refusal) => match refusal {
                Refusal::DuplicateIntent | Refusal::DuplicateClientReference => Self::duplicate(),
                Refusal::InvalidPermit(defect) => other(permit_text(*defect)),
                Refusal::Unpayable(why) => other(format!("{}: {why}", fix_field(why.field))),
                Refusal::PartnerDisabled => other("partner disabled".to_owned()),
                Refusal::CoolingDown(cool_down) => other(cool_down.to_string()),
                Refusal::NotHeld | Refusal::TooManyWaiting | Refusal::Redirected => {
                    other("not accepted".to_owned())
                }
            },
            Outcome::Unfilled(_) | Outcome::Written | Outcome::KeyUsed(_) => other("not accepted".to_owned()),
        }
    }

    pub(crate) fn duplicate() -> Self {
        Self::rejected(6, "duplicate ClOrdID")
    }

    /// What follows this report of an order at once: of a fill of less than its quantity, the end of the rest.
    pub(crate) fn rest(&self, facts: &OrderFacts) -> Option<Self> {
        match self {
            Self::Filled(trade) if trade.leaves(&facts.order_qty).is_some() => {
                Some(Self::RestCanceled(trade.clone()))
            }
            _ => None,
        }
    }

    /// A rejection whose OrdRejReason(103) is the same in every version.
    pub(crate) fn rejected(ord_rej_reason: u8, text: &str) -> Self {
        Self::Rejected(Rejection { ord_rej_reason, text: text.to_owned() })
    }

    /// The report content of an event; its snapshot has the amounts and the failure. `at`: the execution's reference
    /// and the event's number, of which reports make their ExecID(17).
    pub(crate) fn of_event(
        kind: EventType,
        snapshot: &Value,
        facts: &OrderFacts,
        (reference, sequence): (&str, i64),
    ) -> Self {
        match kind {
            EventType::IntentAccepted => Self::New,
            EventType::OfframpInitiated
            | EventType::OfframpInProgress
            | EventType::OfframpCompleted
            | EventType::PayoutInitiated
            | EventType::PayoutInProgress => {
                let (phase, state) = kind.as_str().split_once('.').unwrap_or((kind.as_str(), ""));
                Self::Progress { phase: phase.to_owned(), state: state.to_owned() }
            }
            EventType::PayoutCompleted => {
                let is_sell = facts.side == "2";
                // What is not read any more has no amounts to report.
                let trade = self::snapshot(snapshot)
                    .map_or_else(Trade::default, |snapshot| Trade::of(&snapshot, is_sell, &facts.fees));
                Self::Filled(Box::new(trade))
            }
            EventType::OfframpFailed | EventType::PayoutFailed | EventType::IntentFailed => {
                Self::Canceled(failure(snapshot))
            }
            EventType::PayoutReversed => {
                // The fill was reported by the event before.
                let fill = format!("{reference}.{}", sequence.saturating_sub(1));
                Self::Reversed { failure: failure(snapshot), fill }
            }
            EventType::IntentCancelled => Self::Canceled(None),
            EventType::IntentExpired => Self::Expired,
        }
    }
}

/// A permit defect, with the tag of the permit's field.
/// The field of a NewOrderSingle that holds what an intent has under a name.
fn fix_field(name: &str) -> &str {
    match name {
        "beneficiary.name" => "BeneficiaryName(20010)",
        "beneficiary.account" => "BeneficiaryAccount(20011)",
        "beneficiary.payoutMethod" => "PayoutMethod(20013)",
        "beneficiary.swiftCode" => "SwiftCode(20014)",
        "beneficiary.bank" => "BeneficiaryBank(20015)",
        "beneficiary.address" | "beneficiary.address.line1" => "BeneficiaryAddressLine1(20016)",
        "beneficiary.address.city" => "BeneficiaryAddressCity(20017)",
        "beneficiary.address.state" => "BeneficiaryAddressState(20018)",
        "beneficiary.address.postalCode" => "BeneficiaryAddressPostalCode(20019)",
        "outputAsset" => "Symbol(55)",
        "bounds" => "OrderQty(38)",
        "clientReference" => "ClOrdID(11)",
        other => other,
    }
}

fn permit_text(defect: PermitDefect) -> String {
    let tags = [
        ("permit.nonce", "PermitNonce(20001)"),
        ("permit.deadline", "PermitDeadline(20002)"),
        ("permit.signature", "PermitSignature(20003)"),
        ("permit.amountMinor", "PermitAmount(20004)"),
        // The token follows from the symbol.
        ("permit.token: ", ""),
    ];
    let text = defect.to_string();
    let named = tags.iter().find_map(|(field, tag)| Some(format!("{tag}{}", text.strip_prefix(field)?)));
    named.unwrap_or(text)
}

fn rejection(reason: Reason, version: Version) -> Rejection {
    let ord_rej_reason = match reason {
        // Stale order.
        Reason::QuoteExpired | Reason::QuoteAlreadyUsed => 8,
        Reason::BeneficiaryRequiredForRemittance
        | Reason::PermitRequired
        | Reason::QuoteNotFound
        | Reason::QuoteMismatch(_)
        | Reason::NoLiquidity
        | Reason::BelowMinimumOutput
        | Reason::AboveMaximumInput
        | Reason::BeneficiaryAccountRequiredForFiatOutput
        | Reason::BeneficiaryIncompleteForJitPayout
        | Reason::BeneficiaryAddressRequiredForRail
        | Reason::ChainHalted
        | Reason::Limit(_) => other_reason(version),
    };
    Rejection { ord_rej_reason, text: reason.as_str().to_owned() }
}

/// The Intent that an event carries. `None`: it was recorded in a form that is not read any more.
pub(crate) fn snapshot(object: &Value) -> Option<IntentSnapshot> {
    IntentSnapshot::deserialize(object).ok()
}

fn failure(object: &Value) -> Option<Failure> {
    let shown = snapshot(object)?.failure?;
    let code = shown.exact_code().to_owned();
    let stage = shown.failure.stage.as_str().to_owned();
    Some(Failure { stage, code, message: shown.failure.message })
}

/// An ExecutionReport's body, tags ascending.
pub(crate) fn execution_report(
    version: Version,
    facts: &OrderFacts,
    content: &ReportContent,
    ids: &Ids<'_>,
) -> Body {
    standard_fields(version, facts, content, ids)
        .and(own_fields(content))
        .and(own_fees(content, ids))
        .and(deposit(facts, content, ids))
}

/// The body of a report that answers a status request, tags ascending.
pub(crate) fn status_report(
    version: Version,
    facts: &OrderFacts,
    content: &ReportContent,
    ids: &Ids<'_>,
    request: &StatusRequest<'_>,
) -> Body {
    let standard = standard_fields(version, facts, content, ids).and(request.standard_fields());
    let own = own_fields(content).and(request.own_fields()).and(own_fees(content, ids));
    standard.and(own).and(deposit(facts, content, ids))
}

fn standard_fields(version: Version, facts: &OrderFacts, content: &ReportContent, ids: &Ids<'_>) -> Body {
    let (exec_type, ord_status) = content.codes(version);
    let changes_nothing = ids.is_status || matches!(content, ReportContent::Progress { .. });
    let (exec_type, exec_trans_type) = match version {
        Version::Fix42 if !ids.is_status && matches!(content, ReportContent::Reversed { .. }) => {
            (exec_type, Some("1"))
        }
        Version::Fix42 => (exec_type, Some(if changes_nothing { "3" } else { "0" })),
        Version::Fix44 if ids.is_status => ("I", None),
        Version::Fix44 => (exec_type, None),
    };
    let trade = match content {
        ReportContent::Filled(trade) | ReportContent::RestCanceled(trade) => Some(&**trade),
        ReportContent::Pending
        | ReportContent::New
        | ReportContent::Rejected(_)
        | ReportContent::Progress { .. }
        | ReportContent::Canceled(_)
        | ReportContent::Reversed { .. }
        | ReportContent::Expired => None,
    };
    let qty = trade.map(|trade| trade.base.to_string());
    let px = trade.map(|trade| price_of(trade.base, trade.gross).unwrap_or_default());
    // The end of the rest repeats no amounts: a book would count them twice.
    let moved = trade.filter(|_| ids.is_status || matches!(content, ReportContent::Filled(_)));
    let partly = trade
        .and_then(|trade| trade.leaves(&facts.order_qty))
        .filter(|_| !ids.is_status && matches!(content, ReportContent::Filled(_)));
    let (exec_type, ord_status) = match (&partly, version) {
        (Some(_), Version::Fix42) => ("1", "1"),
        (Some(_), Version::Fix44) => (exec_type, "1"),
        (None, _) => (exec_type, ord_status),
    };
    let leaves = match &partly {
        Some(rest) => rest.as_str(),
        None if content.is_open() => facts.order_qty.as_str(),
        None => "0",
    };
    let (text, ord_rej_reason) = words(content);
    let is_fill_now = !ids.is_status;
    let taken_back = match content {
        ReportContent::Reversed { fill, .. } if is_fill_now => Some(fill.as_str()),
        _ => None,
    };
    let is_later = version == Version::Fix44;
    let commission = moved.map(|trade| trade.commission(is_later));
    let quote_currency = moved.map(|trade| trade.quote_currency.as_str());
    let repeated = |tag| facts.repeated.iter().find(|(known, _)| *known == tag).map(|(_, value)| value);
    let parties = facts.repeated.iter().position(|(tag, _)| *tag == tags::NO_PARTY_IDS);
    fields_of(&facts.route)
        .maybe(tags::ACCOUNT, facts.account.as_deref())
        .field(tags::AVG_PX, px.as_deref().unwrap_or("0"))
        .field(tags::CL_ORD_ID, ids.cl_ord_id)
        .maybe(tags::COMMISSION, commission.as_deref())
        // Absolute.
        .maybe(tags::COMM_TYPE, commission.as_deref().map(|_| "3"))
        .field(tags::CUM_QTY, qty.as_deref().unwrap_or("0"))
        .maybe(tags::CURRENCY, base_of(&facts.symbol))
        .field(tags::EXEC_ID, &ids.exec_id)
        .maybe(tags::EXEC_REF_ID, taken_back)
        .maybe(tags::EXEC_TRANS_TYPE, exec_trans_type)
        .maybe(tags::LAST_PX, px.as_deref().filter(|_| is_fill_now && moved.is_some()))
        .maybe(tags::LAST_QTY, qty.as_deref().filter(|_| is_fill_now && moved.is_some()))
        .field(tags::ORDER_ID, ids.order_id)
        .field(tags::ORDER_QTY, &facts.order_qty)
        .field(tags::ORD_STATUS, ord_status)
        .maybe(tags::ORD_TYPE, Some(&facts.ord_type).filter(|ord_type| !ord_type.is_empty()))
        .maybe(tags::ORIG_CL_ORD_ID, ids.orig_cl_ord_id)
        .maybe(tags::PRICE, facts.price.as_deref())
        .field(tags::SIDE, &facts.side)
        .field(tags::SYMBOL, &facts.symbol)
        .maybe(tags::TEXT, text)
        .maybe(tags::TIME_IN_FORCE, repeated(tags::TIME_IN_FORCE))
        .field(tags::TRANSACT_TIME, ids.at.text())
        .maybe(tags::SETTL_TYPE, repeated(tags::SETTL_TYPE))
        .maybe(tags::SETTL_DATE, repeated(tags::SETTL_DATE))
        .maybe(tags::ORD_REJ_REASON, ord_rej_reason)
        .maybe(tags::CLIENT_ID, repeated(tags::CLIENT_ID))
        .maybe(tags::NET_MONEY, moved.filter(|_| is_later).map(Trade::net))
        // FIX 4.2 has no NetMoney.
        .maybe(tags::SETTL_CURR_AMT, moved.filter(|_| !is_later).map(Trade::net))
        .maybe(tags::SETTL_CURRENCY, quote_currency.filter(|_| !is_later))
        .and(moved.map_or_else(Body::new, |trade| misc_fees(trade, is_later)))
        .field(tags::EXEC_TYPE, exec_type)
        .field(tags::LEAVES_QTY, leaves)
        .maybe(tags::SECONDARY_ORDER_ID, facts.plan_id.as_deref())
        .maybe(tags::GROSS_TRADE_AMT, moved.map(|trade| trade.gross.to_string()))
        .and(parties.map_or_else(Body::new, |at| fields_of(&facts.repeated[at..])))
        .maybe(tags::COMM_CURRENCY, quote_currency.filter(|_| is_later))
}

/// Currency(15): OrderQty(38) is of the base asset.
fn base_of(symbol: &str) -> Option<&str> {
    symbol.split_once('/').map(|(base, _)| base).filter(|base| !base.is_empty() && symbol != NO_SYMBOL)
}

/// OrdStatus(39) of the last report.
pub(crate) const fn ord_status(content: &ReportContent) -> &'static str {
    content.codes(Version::Fix44).1
}

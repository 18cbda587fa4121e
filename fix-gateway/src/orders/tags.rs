//! Tags of application messages, standard and our own.

use dvp_fix::{
    dictionary::{FieldDef, Kind},
    tag::Tag,
};

use crate::dictionaries::{OWN_FIELDS, OwnField};

macro_rules! tags {
    ($($name:ident = $number:literal),* $(,)?) => { $(pub(crate) const $name: Tag = $number;)* };
}

tags! {
    ACCOUNT = 1, AVG_PX = 6, CL_ORD_ID = 11, COMMISSION = 12, COMM_TYPE = 13, CUM_QTY = 14, CURRENCY = 15, EXEC_ID = 17, EXEC_REF_ID = 19, EXEC_TRANS_TYPE = 20, LAST_PX = 31,
    LAST_QTY = 32, ORDER_ID = 37, ORDER_QTY = 38, ORD_STATUS = 39, ORD_TYPE = 40, ORIG_CL_ORD_ID = 41, PRICE = 44,
    SIDE = 54, SYMBOL = 55, TEXT = 58, TIME_IN_FORCE = 59, TRANSACT_TIME = 60, CXL_REJ_REASON = 102,
    ORD_REJ_REASON = 103, QUOTE_ID = 117, EXPIRE_TIME = 126, EXPIRE_DATE = 432, SECURITY_REQ_ID = 320, SECURITY_RESPONSE_ID = 322, TOT_NO_RELATED_SYM = 393,
    MASS_CANCEL_REQUEST_TYPE = 530, MASS_CANCEL_RESPONSE = 531, MASS_CANCEL_REJECT_REASON = 532,
    MASS_ACTION_REPORT_ID = 1369, TOTAL_AFFECTED_ORDERS = 533, SECURITY_LIST_REQUEST_TYPE = 559, SECURITY_REQUEST_RESULT = 560, SETTL_TYPE = 63, SETTL_DATE = 64, CLIENT_ID = 109, NO_PARTY_IDS = 453,
    NET_MONEY = 118, SETTL_CURR_AMT = 119, SETTL_CURRENCY = 120, GROSS_TRADE_AMT = 381, COPY_MSG_INDICATOR = 797, EXEC_TYPE = 150, LEAVES_QTY = 151,
    SECONDARY_ORDER_ID = 198, CXL_REJ_RESPONSE_TO = 434,

    NO_MISC_FEES = 136, MISC_FEE_AMT = 137, MISC_FEE_CURR = 138, MISC_FEE_TYPE = 139, COMM_CURRENCY = 479,

    VALID_UNTIL_TIME = 62, QUOTE_REQ_ID = 131, BID_PX = 132, OFFER_PX = 133, BID_SIZE = 134, OFFER_SIZE = 135,
    NO_RELATED_SYM = 146, QUOTE_ACK_STATUS = 297, QUOTE_REJECT_REASON = 300, QUOTE_TYPE = 537,
    QUOTE_REQUEST_REJECT_REASON = 658,

    MD_REQ_ID = 262, SUBSCRIPTION_REQUEST_TYPE = 263, MARKET_DEPTH = 264, MD_UPDATE_TYPE = 265, NO_MD_ENTRIES = 268,
    MD_ENTRY_TYPE = 269, MD_ENTRY_PX = 270, MD_ENTRY_SIZE = 271, QUOTE_CONDITION = 276, MD_REQ_REJ_REASON = 281,
    MD_ENTRY_POSITION_NO = 290,

    MASS_STATUS_REQ_ID = 584, MASS_STATUS_REQ_TYPE = 585, ORD_STATUS_REQ_ID = 790, TOT_NUM_REPORTS = 911,
    LAST_RPT_REQUESTED = 912,

    PERMIT_NONCE = 20001, PERMIT_DEADLINE = 20002, PERMIT_SIGNATURE = 20003, PERMIT_AMOUNT = 20004,
    BENEFICIARY_NAME = 20010, BENEFICIARY_ACCOUNT = 20011, BENEFICIARY_COUNTRY = 20012, PAYOUT_METHOD = 20013,
    SWIFT_CODE = 20014, BENEFICIARY_BANK = 20015, ADDRESS_LINE1 = 20016, ADDRESS_CITY = 20017,
    ADDRESS_STATE = 20018, ADDRESS_POSTAL_CODE = 20019, OUTPUT_RECIPIENT = 20020, USER_WALLET = 20021,
    TARGET_PRICE = 20030,

    PHASE = 20101, PHASE_STATE = 20102, FAILURE_STAGE = 20103, FAILURE_CODE = 20104, RECEIPT_HASH = 20105,
    ANCHOR_TX_HASH = 20106, PAYOUT_FEE = 20107, PAYOUT_FEE_CURRENCY = 20108, PROTOCOL_FEE = 20109,
    PROTOCOL_FEE_CURRENCY = 20114,
    DEPOSIT_CONTRACT = 20110, DEPOSIT_ID = 20111, DEPOSIT_AMOUNT = 20112, DEPOSIT_BY = 20113,
}

/// Fields beyond the dictionary of its version that a peer may send: our own on NewOrderSingle(D), the fields of a
/// Logon(A) that FIX 4.2 does not have, and on OrderCancelReplaceRequest(G) every field of an order, so that it is
/// rejected as such and not for its fields.
pub(crate) static EXTRA: [(&str, FieldDef); 37] = {
    const fn text(tag: Tag) -> FieldDef {
        FieldDef { tag, kind: Kind::Text, values: &[] }
    }
    let mut extra = [("A", text(dvp_fix::tag::USERNAME)); 37];
    extra[1] = ("A", text(dvp_fix::tag::PASSWORD));
    extra[2] = ("G", text(QUOTE_ID));
    let mut next = 3;
    let mut at = 0;
    while at < OWN_FIELDS.len() {
        let OwnField { tag, data_type, message, values, .. } = OWN_FIELDS[at];
        at += 1;
        if !matches!(message.as_bytes(), b"D") {
            continue;
        }
        let kind = match data_type.as_bytes() {
            b"INT" => Kind::Integer,
            b"PRICE" => Kind::Decimal,
            _ => Kind::Text,
        };
        let field = FieldDef { tag, kind, values };
        extra[next] = ("D", field);
        extra[next + 1] = ("G", field);
        next += 2;
    }
    assert!(next == extra.len(), "a field is missing");
    extra
};

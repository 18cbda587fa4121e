//! Data dictionaries for institutions, in QuickFIX's format: the messages of this service, with its own fields.
//!
//! The files are generated from the tables that the engine uses, and from [`OWN_FIELDS`]; a test compares them.
//! FIX Orchestra files say the same, and what is read, ignored and rejected.
//!
//! A field of a message that is not listed is rejected by its tag.
//!
//! Kept by `fix-gateway/tests/it/fields.rs::an_unsupported_instruction_is_refused_by_its_tag` and
//! `fix-gateway/tests/it/dictionaries.rs::every_field_of_the_published_dictionaries_is_processed_or_ignored`.

use dvp_domain::permit::SIGNATURE_TEXT_MAX;
use dvp_domain::text::{ID_MAX, TEXT_MAX};

/// A field beyond the FIX standard.
#[derive(Debug, Clone, Copy)]
pub struct OwnField {
    pub tag: u32,
    pub name: &'static str,
    /// The type's name in the dictionaries: `STRING`, `INT`.
    pub data_type: &'static str,
    /// MsgType(35) of the only message that has it.
    pub message: &'static str,
    /// The valid values; an empty list means any.
    pub values: &'static [&'static str],
}

const fn own(tag: u32, name: &'static str, data_type: &'static str, message: &'static str) -> OwnField {
    OwnField { tag, name, data_type, message, values: &[] }
}

/// All fields beyond the standard that dvp's messages, in either direction, may have.
pub const OWN_FIELDS: [OwnField; 31] = [
    own(20001, "PermitNonce", "INT", "D"),
    own(20002, "PermitDeadline", "INT", "D"),
    own(20003, "PermitSignature", "STRING", "D"),
    own(20004, "PermitAmount", "INT", "D"),
    own(20010, "BeneficiaryName", "STRING", "D"),
    own(20011, "BeneficiaryAccount", "STRING", "D"),
    own(20012, "BeneficiaryCountry", "STRING", "D"),
    OwnField {
        values: &["ach", "sepa", "sepa_instant", "swift", "wire"],
        ..own(20013, "PayoutMethod", "STRING", "D")
    },
    own(20014, "SwiftCode", "STRING", "D"),
    own(20015, "BeneficiaryBank", "STRING", "D"),
    own(20016, "BeneficiaryAddressLine1", "STRING", "D"),
    own(20017, "BeneficiaryAddressCity", "STRING", "D"),
    own(20018, "BeneficiaryAddressState", "STRING", "D"),
    own(20019, "BeneficiaryAddressPostalCode", "STRING", "D"),
    own(20020, "OutputRecipient", "STRING", "D"),
    own(20021, "UserWallet", "STRING", "D"),
    own(20030, "TargetPrice", "PRICE", "D"),
    OwnField { values: &["intent", "offramp", "payout"], ..own(20101, "Phase", "STRING", "8") },
    OwnField {
        values: &["completed", "failed", "in_progress", "initiated", "reversed"],
        ..own(20102, "PhaseState", "STRING", "8")
    },
    OwnField { values: &["intent", "offramp", "payout"], ..own(20103, "FailureStage", "STRING", "8") },
    own(20104, "FailureCode", "STRING", "8"),
    own(20105, "ReceiptHash", "STRING", "8"),
    own(20106, "AnchorTxHash", "STRING", "8"),
    own(20107, "PayoutFee", "AMT", "8"),
    own(20108, "PayoutFeeCurrency", "CURRENCY", "8"),
    own(20109, "ProtocolFee", "AMT", "8"),
    own(20110, "DepositContract", "STRING", "8"),
    own(20111, "DepositID", "STRING", "8"),
    own(20112, "DepositAmount", "INT", "8"),
    own(20113, "DepositBy", "UTCTIMESTAMP", "8"),
    own(20114, "ProtocolFeeCurrency", "CURRENCY", "8"),
];

/// A set of the messages whose fields are accepted one by one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Messages(u16);

impl Messages {
    pub const NONE: Self = Self(0);
    /// NewOrderSingle.
    pub const D: Self = Self(1);
    /// OrderCancelRequest.
    pub const F: Self = Self(1 << 1);
    /// OrderStatusRequest.
    pub const H: Self = Self(1 << 2);
    /// OrderMassStatusRequest.
    pub const AF: Self = Self(1 << 3);
    /// QuoteRequest.
    pub const R: Self = Self(1 << 4);
    /// OrderCancelReplaceRequest, which is always rejected.
    pub const G: Self = Self(1 << 5);
    /// OrderMassCancelRequest.
    pub const Q: Self = Self(1 << 6);
    /// SecurityListRequest.
    pub const X: Self = Self(1 << 7);
    /// MarketDataRequest.
    pub const V: Self = Self(1 << 8);

    /// The set of one MsgType(35); empty for a message whose fields are not listed.
    pub const fn of(msg_type: &[u8]) -> Self {
        match msg_type {
            b"D" => Self::D,
            b"F" => Self::F,
            b"H" => Self::H,
            b"AF" => Self::AF,
            b"R" => Self::R,
            b"G" => Self::G,
            b"q" => Self::Q,
            b"x" => Self::X,
            b"V" => Self::V,
            _ => Self::NONE,
        }
    }

    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub const fn has(self, one: Self) -> bool {
        self.0 & one.0 != 0
    }
}

/// A field that a message to us may have.
#[derive(Debug, PartialEq, Eq)]
pub struct TakenField {
    pub tag: u32,
    pub name: &'static str,
    /// The longest value, in characters.
    pub max: usize,
    /// The messages in which the field has an effect.
    pub processed: Messages,
    /// The messages in which the field has no effect.
    pub ignored: Messages,
}

impl TakenField {
    /// May the message have the field?
    pub const fn is_taken_in(&self, messages: Messages) -> bool {
        self.processed.has(messages) || self.ignored.has(messages)
    }
}

/// The longest number, in characters: an amount has 39 digits.
const NUMBER_MAX: usize = 64;

const fn taken(
    tag: u32,
    name: &'static str,
    max: usize,
    processed: Messages,
    ignored: Messages,
) -> TakenField {
    TakenField { tag, name, max, processed, ignored }
}

/// A field of an order. A replacement may have it, too, and is rejected with it.
const fn of_order(tag: u32, name: &'static str, max: usize) -> TakenField {
    taken(tag, name, max, Messages::D, Messages::G)
}

/// Every accepted field of D, F, H, AF, R, G, q, x and V; any other is rejected by its tag.
pub const TAKEN: [TakenField; 51] = {
    use Messages as M;
    let [d, f, h, af, r, g, q, x, v, none] = [M::D, M::F, M::H, M::AF, M::R, M::G, M::Q, M::X, M::V, M::NONE];
    [
        taken(1, "Account", ID_MAX, d, f.and(h).and(r).and(g)),
        taken(11, "ClOrdID", ID_MAX, d.and(f).and(h).and(g).and(q), none),
        taken(15, "Currency", ID_MAX, d.and(r), g),
        taken(21, "HandlInst", ID_MAX, none, d.and(g)),
        taken(37, "OrderID", ID_MAX, f.and(h), g),
        taken(38, "OrderQty", NUMBER_MAX, d.and(r), f.and(g)),
        taken(40, "OrdType", ID_MAX, d, g),
        taken(41, "OrigClOrdID", ID_MAX, f.and(g), none),
        taken(44, "Price", NUMBER_MAX, d, g),
        taken(54, "Side", ID_MAX, d.and(f).and(r), h.and(g)),
        taken(55, "Symbol", ID_MAX, d.and(f).and(af).and(r).and(q).and(x).and(v), h.and(g)),
        taken(58, "Text", TEXT_MAX, none, d.and(f).and(r).and(g).and(q).and(x)),
        taken(59, "TimeInForce", ID_MAX, d, g),
        taken(60, "TransactTime", ID_MAX, d, f.and(r).and(g).and(q)),
        taken(117, "QuoteID", ID_MAX, d, g),
        taken(126, "ExpireTime", ID_MAX, d, g),
        taken(131, "QuoteReqID", ID_MAX, r, none),
        taken(146, "NoRelatedSym", NUMBER_MAX, r.and(v), none),
        taken(262, "MDReqID", ID_MAX, v, none),
        taken(263, "SubscriptionRequestType", ID_MAX, v, none),
        taken(264, "MarketDepth", NUMBER_MAX, v, none),
        taken(265, "MDUpdateType", ID_MAX, v, none),
        taken(266, "AggregatedBook", ID_MAX, none, v),
        taken(267, "NoMDEntryTypes", NUMBER_MAX, v, none),
        taken(269, "MDEntryType", ID_MAX, v, none),
        taken(303, "QuoteRequestType", ID_MAX, none, r),
        taken(320, "SecurityReqID", ID_MAX, x, none),
        taken(530, "MassCancelRequestType", ID_MAX, q, none),
        taken(559, "SecurityListRequestType", ID_MAX, x, none),
        taken(432, "ExpireDate", ID_MAX, d, g),
        taken(537, "QuoteType", ID_MAX, r, none),
        taken(584, "MassStatusReqID", ID_MAX, af, none),
        taken(585, "MassStatusReqType", ID_MAX, af, none),
        taken(790, "OrdStatusReqID", ID_MAX, h, none),
        of_order(20001, "PermitNonce", NUMBER_MAX),
        of_order(20002, "PermitDeadline", NUMBER_MAX),
        of_order(20003, "PermitSignature", SIGNATURE_TEXT_MAX),
        of_order(20004, "PermitAmount", NUMBER_MAX),
        of_order(20010, "BeneficiaryName", TEXT_MAX),
        of_order(20011, "BeneficiaryAccount", ID_MAX),
        of_order(20012, "BeneficiaryCountry", TEXT_MAX),
        of_order(20013, "PayoutMethod", ID_MAX),
        of_order(20014, "SwiftCode", TEXT_MAX),
        of_order(20015, "BeneficiaryBank", TEXT_MAX),
        of_order(20016, "BeneficiaryAddressLine1", TEXT_MAX),
        of_order(20017, "BeneficiaryAddressCity", TEXT_MAX),
        of_order(20018, "BeneficiaryAddressState", TEXT_MAX),
        of_order(20019, "BeneficiaryAddressPostalCode", TEXT_MAX),
        of_order(20020, "OutputRecipient", ID_MAX),
        of_order(20021, "UserWallet", ID_MAX),
        of_order(20030, "TargetPrice", NUMBER_MAX),
    ]
};

/// A field that cannot change what an order means, and that many order management systems always send: a session reads
/// and ignores it unless its settings say otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IgnoredField {
    pub tag: u32,
    pub name: &'static str,
    /// The only values that are ignored; an empty list means any.
    pub values: &'static [&'static str],
}

const fn ignored(tag: u32, name: &'static str) -> IgnoredField {
    IgnoredField { tag, name, values: &[] }
}

/// The fields that a session ignores unless its settings say otherwise, and those of its groups. SettlDate(64) may be
/// today's date. User-defined tags from 5000 on are ignored with them, but for [`OWN_TAGS`].
pub const IGNORED: [IgnoredField; 17] = [
    ignored(18, "ExecInst"),
    ignored(22, "SecurityIDSource"),
    ignored(47, "OrderCapacity"),
    ignored(48, "SecurityID"),
    IgnoredField { values: &["0"], ..ignored(63, "SettlType") },
    ignored(64, "SettlDate"),
    ignored(77, "PositionEffect"),
    ignored(100, "ExDestination"),
    ignored(109, "ClientID"),
    ignored(114, "LocateReqd"),
    ignored(453, "NoPartyIDs"),
    ignored(460, "Product"),
    ignored(526, "SecondaryClOrdID"),
    ignored(528, "OrderCapacity"),
    ignored(581, "AccountType"),
    ignored(582, "CustOrderCapacity"),
    ignored(1028, "ManualOrderIndicator"),
];

/// Tags that are this service's own, or may become so: they are never ignored.
pub const OWN_TAGS: std::ops::Range<u32> = 20_000..21_000;

/// File names and contents: FIX 4.2 and 4.4 have one each; FIXT 1.1 is the transport of FIX 5.0 SP2.
pub const PUBLISHED: [(&str, &str); 4] = [
    ("FIX42.xml", include_str!("../dictionaries/FIX42.xml")),
    ("FIX44.xml", include_str!("../dictionaries/FIX44.xml")),
    ("FIXT11.xml", include_str!("../dictionaries/FIXT11.xml")),
    ("FIX50SP2.xml", include_str!("../dictionaries/FIX50SP2.xml")),
];

/// A dictionary by its file name, with or without `.xml`.
pub fn find(name: &str) -> Option<&'static str> {
    let name = name.trim_end_matches(".xml");
    let found = PUBLISHED.iter().find(|(file, _)| file.trim_end_matches(".xml") == name);
    found.map(|(_, text)| *text)
}

/// FIX Orchestra 1.0 files, each with the versions it describes: FIXT 1.1 and FIX 5.0 SP2 are one.
pub const ORCHESTRA: [(&[&str], &str); 3] = [
    (&["FIX.4.2"], include_str!("../../docs/fix/orchestra-FIX42.xml")),
    (&["FIX.4.4"], include_str!("../../docs/fix/orchestra-FIX44.xml")),
    (&["FIXT.1.1", "FIX.5.0SP2"], include_str!("../../docs/fix/orchestra-FIX50SP2.xml")),
];

/// The Orchestra file of a version.
pub fn orchestra(version: &str) -> Option<&'static str> {
    ORCHESTRA.iter().find(|(versions, _)| versions.contains(&version)).map(|(_, text)| *text)
}

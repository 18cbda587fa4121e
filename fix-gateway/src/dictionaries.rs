//! Data dictionaries for institutions, in the form that QuickFIX and its kin read: the messages of this service, with
//! its own fields.
//!
//! The files are made from the facts that the engine's own tables are made from, and from [`OWN_FIELDS`]; a test
//! compares them.

/// A field beyond the FIX standard.
#[derive(Debug, Clone, Copy)]
pub struct OwnField {
    pub tag: u32,
    pub name: &'static str,
    /// In the words of the dictionaries: `STRING`, `INT`.
    pub data_type: &'static str,
    /// MsgType(35) of the only message that has it.
    pub message: &'static str,
    /// The legal values; none listed means any.
    pub values: &'static [&'static str],
}

const fn own(tag: u32, name: &'static str, data_type: &'static str, message: &'static str) -> OwnField {
    OwnField { tag, name, data_type, message, values: &[] }
}

/// Everything that a message of ours, or to us, may have beyond the standard.
pub const OWN_FIELDS: [OwnField; 22] = [
    own(20001, "PermitNonce", "INT", "D"),
    own(20002, "PermitDeadline", "INT", "D"),
    own(20003, "PermitSignature", "STRING", "D"),
    own(20004, "PermitAmount", "INT", "D"),
    own(20010, "BeneficiaryName", "STRING", "D"),
    own(20011, "BeneficiaryAccount", "STRING", "D"),
    own(20012, "BeneficiaryCountry", "STRING", "D"),
    OwnField { values: &["ach", "sepa", "swift", "wire"], ..own(20013, "PayoutMethod", "STRING", "D") },
    own(20014, "SwiftCode", "STRING", "D"),
    own(20015, "BeneficiaryBank", "STRING", "D"),
    own(20016, "BeneficiaryAddressLine1", "STRING", "D"),
    own(20017, "BeneficiaryAddressCity", "STRING", "D"),
    own(20018, "BeneficiaryAddressState", "STRING", "D"),
    own(20019, "BeneficiaryAddressPostalCode", "STRING", "D"),
    own(20020, "OutputRecipient", "STRING", "D"),
    own(20021, "UserWallet", "STRING", "D"),
    OwnField { values: &["intent", "offramp", "payout"], ..own(20101, "Phase", "STRING", "8") },
    OwnField {
        values: &["completed", "failed", "in_progress", "initiated"],
        ..own(20102, "PhaseState", "STRING", "8")
    },
    OwnField { values: &["intent", "offramp", "payout"], ..own(20103, "FailureStage", "STRING", "8") },
    own(20104, "FailureCode", "STRING", "8"),
    own(20105, "ReceiptHash", "STRING", "8"),
    own(20106, "AnchorTxHash", "STRING", "8"),
];

/// File names and texts: FIX 4.2 and 4.4 have one each; FIXT 1.1 is the transport of FIX 5.0 SP2.
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

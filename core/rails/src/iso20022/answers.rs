//! Parses the bank's files. What is stored or shown of their texts is cleaned; ids that name our payments are compared as
//! they are. Pure.

use chrono::{DateTime, Utc};
use dvp_domain::payment::PaymentSubject;
use dvp_domain::text::{ID_MAX, TEXT_MAX, clean};

use super::camt029::{self, RecallReport};
use super::schema::{Message, Violation, check};
use super::statement::{self, Statement, WrongStatement};
use super::text::{booked_at, boolean, decimal, time};
use super::xml::{Document, Node, Unreadable};

/// The content of a report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Word {
    /// Received, not decided yet.
    Pending { status: String },
    /// The money has left the service's account, or reached the beneficiary's.
    Paid { at: DateTime<Utc>, bank_reference: Option<String>, amount: Option<Booked> },
    /// It is not and will not be paid.
    Refused { reason: String, text: String },
    /// The bank considers it a duplicate of an earlier one: this says nothing about the earlier one.
    TakenForDuplicate,
    /// It was paid and has been returned.
    Returned { reason: String, at: DateTime<Utc>, amount: Option<Booked>, by: GivenBack },
    /// The bank takes a return back.
    TakenBack { at: DateTime<Utc>, amount: Option<Booked> },
}

/// A booked amount in its shortest form, and its currency.
pub type Booked = (String, String);

/// How the bank gives a debit back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GivenBack {
    /// The payment has come back. The bank may have deducted its charge.
    Return,
    /// The bank takes an entry of its own back.
    Reversal,
}

impl Word {
    /// Its name for operators.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Pending { .. } => "not decided yet",
            Self::Paid { .. } => "paid",
            Self::Refused { .. } => "refused",
            Self::TakenForDuplicate => "taken for a duplicate",
            Self::Returned { .. } => "returned",
            Self::TakenBack { .. } => "return taken back",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PaymentReport {
    pub of: PaymentSubject,
    pub word: Word,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParsedFile {
    pub message: Message,
    pub message_id: String,
    pub said: Vec<PaymentReport>,
    /// What a file of statements has.
    pub statements: Vec<Statement>,
    pub recalls: Vec<RecallReport>,
}

/// Why the file cannot be imported.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FileError {
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
    #[error("unsupported message: {0}")]
    UnknownMessage(String),
    #[error("schema violations: {0:?}")]
    Invalid(Vec<Violation>),
    #[error(transparent)]
    Statement(#[from] WrongStatement),
}

/// Parses a file of the bank. `now` is used where the bank gives no time.
pub fn read(bytes: &[u8], now: DateTime<Utc>) -> Result<ParsedFile, FileError> {
    let document = Document::read(bytes)?;
    let message = match Message::of(&document) {
        Some(message @ (Message::Pain002 | Message::Camt029 | Message::Camt053 | Message::Camt054)) => {
            message
        }
        Some(Message::Pain001 | Message::Camt056) | None => {
            return Err(FileError::UnknownMessage(document.namespace));
        }
    };
    let mut violations = check(message, &document);
    if !violations.is_empty() {
        violations.truncate(5);
        return Err(FileError::Invalid(violations));
    }
    let body = document.root.children.first().cloned().unwrap_or_default();
    let message_id =
        clean(body.text_at("GrpHdr/MsgId").or(body.text_at("Assgnmt/Id")).unwrap_or_default(), ID_MAX);
    let (mut statements, mut recalls) = (Vec::new(), Vec::new());
    let said = match message {
        Message::Pain002 => status_report(&body, now),
        Message::Camt053 => {
            statements = body.all("Stmt").map(statement::read).collect::<Result<_, _>>()?;
            entries_of(&body, "Stmt", now)
        }
        Message::Camt029 => {
            recalls = camt029::read(&body);
            Vec::new()
        }
        Message::Camt054 | Message::Pain001 | Message::Camt056 => entries_of(&body, "Ntfctn", now),
    };
    Ok(ParsedFile { message, message_id, said, statements, recalls })
}

/// A node that may have a status, and the status's name.
type Level<'a> = (&'a Node, &'static str);

/// A payment's own status takes precedence over that of its block, and that over the status of the message.
fn status_report(body: &Node, now: DateTime<Utc>) -> Vec<PaymentReport> {
    let mut said = Vec::new();
    let Some(group) = body.child("OrgnlGrpInfAndSts") else { return said };
    let of_group = (group, "GrpSts");
    let mut is_detailed = false;
    for block in body.all("OrgnlPmtInfAndSts") {
        let of_block = (block, "PmtInfSts");
        let mut has_payments = false;
        for payment in block.all("TxInfAndSts") {
            let Some(id) = payment.text_at("OrgnlEndToEndId").or_else(|| payment.text_at("OrgnlInstrId"))
            else {
                continue;
            };
            has_payments = true;
            if let Some(word) = status(&[(payment, "TxSts"), of_block, of_group], now) {
                said.push(PaymentReport { of: PaymentSubject::Payment(id.to_owned()), word });
            }
        }
        // A block with neither status nor reason leaves the word to the message.
        let is_silent = block.child("PmtInfSts").or(block.child("StsRsnInf")).is_none();
        let word = if has_payments || is_silent { None } else { status(&[of_block, of_group], now) };
        is_detailed |= has_payments || word.is_some();
        if let (Some(word), Some(id)) = (word, block.text_at("OrgnlPmtInfId")) {
            said.push(PaymentReport { of: PaymentSubject::Block(id.to_owned()), word });
        }
    }
    if !is_detailed && let (Some(word), Some(id)) = (status(&[of_group], now), group.text_at("OrgnlMsgId")) {
        said.push(PaymentReport { of: PaymentSubject::Message(id.to_owned()), word });
    }
    said
}

/// The nearest status of these levels, from the payment outwards. The reasons of all levels count: a bank may give the
/// status at one and the reason at another.
fn status(levels: &[Level<'_>], now: DateTime<Utc>) -> Option<Word> {
    let text_at = |path: &str| levels.iter().find_map(|(node, _)| node.text_at(path));
    let given = || levels.iter().flat_map(|(node, _)| node.all("StsRsnInf"));
    let reasons = || given().filter_map(|info| info.text_at("Rsn/Cd").or(info.text_at("Rsn/Prtry")));
    let code = levels.iter().find_map(|(node, name)| node.text_at(name))?;
    Some(match code {
        "RJCT"
            if reasons()
                .any(|code| matches!(code, "AM05" | "DUPL" | "DU01" | "DU02" | "DU03" | "DU04" | "DU05")) =>
        {
            Word::TakenForDuplicate
        }
        "RJCT" | "CANC" => {
            let reason = clean(reasons().next().unwrap_or("NARR"), ID_MAX);
            let texts = given().flat_map(|info| info.all("AddtlInf")).map(|text| text.text.as_str());
            Word::Refused { reason, text: clean(&texts.collect::<Vec<_>>().join(" "), TEXT_MAX) }
        }
        "ACSC" | "ACCC" => Word::Paid {
            at: text_at("AccptncDtTm").and_then(time).unwrap_or(now),
            bank_reference: text_at("AcctSvcrRef").map(|text| clean(text, ID_MAX)),
            amount: None,
        },
        // Partly accepted: each payment has its own status.
        "PART" => return None,
        other => Word::Pending { status: clean(other, ID_MAX) },
    })
}

/// What the entries of notifications or statements say of payments.
fn entries_of(body: &Node, of: &str, now: DateTime<Utc>) -> Vec<PaymentReport> {
    let entries = body.all(of).flat_map(|notification| notification.all("Ntry"));
    let mut said = Vec::new();
    for entry in entries {
        let payments: Vec<&Node> = entry.all("NtryDtls").flat_map(|details| details.all("TxDtls")).collect();
        let alone = payments.len() == 1;
        for payment in payments {
            let id = payment.text_at("Refs/EndToEndId").filter(|id| *id != "NOTPROVIDED");
            if let Some(id) = id
                && let Some(word) = booked(entry, payment, alone, now)
            {
                said.push(PaymentReport { of: PaymentSubject::Payment(id.to_owned()), word });
            }
        }
    }
    said
}

/// The report of an entry about one of its payments.
fn booked(entry: &Node, payment: &Node, alone: bool, now: DateTime<Utc>) -> Option<Word> {
    let status = entry.text_at("Sts/Cd").or(entry.text_at("Sts/Prtry"))?;
    let direction = payment.text_at("CdtDbtInd").or(entry.text_at("CdtDbtInd"))?;
    let is_reversal = entry.text_at("RvslInd").and_then(boolean) == Some(true);
    let returned = payment.child("RtrInf");
    match (direction, status) {
        (_, "INFO") => None,
        ("CRDT", "BOOK") if is_reversal || returned.is_some() => {
            let reason = returned.and_then(|info| info.text_at("Rsn/Cd").or(info.text_at("Rsn/Prtry")));
            let at = booked_at(entry).unwrap_or(now);
            let amount = booked_amount(entry, payment, alone);
            let by = if returned.is_some() { GivenBack::Return } else { GivenBack::Reversal };
            Some(Word::Returned { reason: clean(reason.unwrap_or("NARR"), ID_MAX), at, amount, by })
        }
        ("DBIT", "BOOK") if !is_reversal => {
            let amount = booked_amount(entry, payment, alone);
            let reference = payment.text_at("Refs/AcctSvcrRef").or(entry.text_at("AcctSvcrRef"));
            let at = booked_at(entry).unwrap_or(now);
            Some(Word::Paid { at, bank_reference: reference.map(|text| clean(text, ID_MAX)), amount })
        }
        ("DBIT", "BOOK") => {
            let (at, amount) = (booked_at(entry).unwrap_or(now), booked_amount(entry, payment, alone));
            Some(Word::TakenBack { at, amount })
        }
        ("DBIT", _) if is_reversal => None,
        ("DBIT", _) => Some(Word::Pending { status: clean(status, ID_MAX) }),
        _ => None,
    }
}

/// The payment's own amount, or that of an entry of this payment `alone`.
fn booked_amount(entry: &Node, payment: &Node, alone: bool) -> Option<Booked> {
    let amount = payment.child("Amt").or_else(|| entry.child("Amt").filter(|_| alone))?;
    Some((decimal(&amount.text)?, amount.attribute("Ccy")?.to_owned()))
}

//! Parses the bank's files by the meaning of the fields that are needed, whatever the version of the message. What is not
//! understood is set aside by itself, and the rest counts. What is stored or shown of their texts is cleaned; ids that name our payments are compared as
//! they are. Pure.

use std::ops::RangeInclusive;

use chrono::{DateTime, Utc};
use dvp_domain::payment::{PayeeCheck, PaymentSubject};
use dvp_domain::text::{ID_MAX, TEXT_MAX, clean};
use dvp_store::orders::received_recalls::NewReceivedRecall;

use super::camt029::{self, RecallReport};
use super::camt056;
use super::entry::{self, Direction, Entry, EntryPayment, EntryStatus};
use super::instruction::{by_uetr, one_payment};
use super::pain001::{BLOCK, MESSAGE};
use super::part::{Part, told};
use super::schema::{Message, unknown_elements};
use super::statement::{self, Statement};
use super::text::time;
use super::word::{GivenBack, PaymentReport, Word, is_duplicate};
use super::xml::{Document, Node, Unreadable};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParsedFile {
    pub message: Message,
    /// The message's name with its version.
    pub name: String,
    pub message_id: String,
    pub said: Vec<PaymentReport>,
    /// What a file of statements has.
    pub statements: Vec<Statement>,
    pub recalls: Vec<RecallReport>,
    /// What the bank asks back.
    pub asked: Vec<NewReceivedRecall>,
    /// The parts that are not understood, and why. The others count.
    pub set_aside: Vec<Part>,
}

/// Why the file cannot be imported.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FileError {
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
    #[error("{0}")]
    UnknownMessage(String),
    /// None of its parts is understood.
    #[error("{}", told(.0))]
    SetAside(Vec<Part>),
}

/// The versions in which the fields that are read have the same meaning.
const fn versions(message: Message) -> Option<RangeInclusive<u8>> {
    match message {
        Message::Pain002 | Message::Camt029 => Some(3..=14),
        Message::Camt056 => Some(1..=12),
        Message::Camt052 | Message::Camt053 | Message::Camt054 => Some(2..=13),
        Message::Pain001 => None,
    }
}

/// Whether the rules of a message name every element of a version.
fn has_rules(message: Message, version: u8) -> bool {
    // Those of camt.056 are of what we write, and earlier versions of camt.029 name banks by other elements.
    message != Message::Camt056
        && (version == message.version() || (version < message.version() && message != Message::Camt029))
}

/// Parses a file of the bank. `now` is used where the bank gives no time.
pub fn read(bytes: &[u8], now: DateTime<Utc>) -> Result<ParsedFile, FileError> {
    let document = Document::read(bytes)?;
    let name = clean(document.namespace.rsplit(':').next().unwrap_or_default(), ID_MAX);
    let known =
        Message::of(&document).and_then(|(message, version)| Some((message, version, versions(message)?)));
    let Some((message, version, versions)) = known else {
        let namespace = clean(&document.namespace, ID_MAX);
        return Err(FileError::UnknownMessage(format!("{namespace} is no message that is read")));
    };
    if !versions.contains(&version) {
        let (first, last) = versions.into_inner();
        return Err(FileError::UnknownMessage(format!(
            "{name} is not read: of this message the versions {first:02} to {last} are"
        )));
    }
    let nothing = Node::default();
    let body = document.root.children.first().unwrap_or(&nothing);
    let message_id =
        clean(body.text_at("GrpHdr/MsgId").or(body.text_at("Assgnmt/Id")).unwrap_or_default(), ID_MAX);
    let (said, statements, recalls) = (Vec::new(), Vec::new(), Vec::new());
    let (asked, set_aside) = (Vec::new(), Vec::new());
    let mut file = ParsedFile { message, name, message_id, said, statements, recalls, asked, set_aside };
    match message {
        Message::Pain002 => file.said = status_report(body, now, &mut file.set_aside),
        Message::Camt029 => file.recalls = camt029::read(body, &mut file.set_aside),
        Message::Camt052 => file.read_reports(body, "Rpt", now),
        Message::Camt053 => file.read_statements(body, now),
        Message::Camt056 => file.asked = camt056::read(body, &mut file.set_aside),
        Message::Camt054 | Message::Pain001 => file.read_reports(body, "Ntfctn", now),
    }
    if has_rules(message, version) {
        let unknown = unknown_elements(message, &document);
        let part = |(path, node)| Part::of(node, format!("unknown element {path}"));
        file.set_aside.extend(unknown.into_iter().map(part));
    }
    if !file.says_something() && !file.set_aside.is_empty() {
        return Err(FileError::SetAside(file.set_aside));
    }
    Ok(file)
}

impl ParsedFile {
    /// Whether any of its parts is understood.
    pub(super) fn says_something(&self) -> bool {
        !(self.said.is_empty()
            && self.statements.is_empty()
            && self.recalls.is_empty()
            && self.asked.is_empty())
    }

    fn read_reports(&mut self, body: &Node, of: &str, now: DateTime<Utc>) {
        for report in body.all(of) {
            let entries = entry::read_all(report, &mut self.set_aside);
            self.said.extend(words(&entries, now, &mut self.set_aside));
        }
        if body.child(of).is_none() {
            self.set_aside.push(Part::of(body, format!("the message has no {of}")));
        }
    }

    fn read_statements(&mut self, body: &Node, now: DateTime<Utc>) {
        let page = body.text_at("GrpHdr/MsgPgntn/PgNb");
        for node in body.all("Stmt") {
            let before = self.set_aside.len();
            let entries = entry::read_all(node, &mut self.set_aside);
            let is_complete = self.set_aside.len() == before;
            let said = words(&entries, now, &mut self.set_aside);
            match statement::read(node, &entries, is_complete, page) {
                Ok(statement) => self.statements.push(Statement { said, ..statement }),
                Err(wrong) => {
                    self.set_aside.push(Part::of(node, wrong.to_string()));
                    if !wrong.is_contradiction {
                        self.said.extend(said);
                    }
                }
            }
        }
        if body.child("Stmt").is_none() {
            self.set_aside.push(Part::of(body, "the message has no Stmt"));
        }
    }
}

/// A node that may have a status, and the status's name.
type Level<'a> = (&'a Node, &'static str);

/// A payment's own status takes precedence over that of its block, and that over the status of the message.
fn status_report(body: &Node, now: DateTime<Utc>, set_aside: &mut Vec<Part>) -> Vec<PaymentReport> {
    let mut said = Vec::new();
    let nothing = Node::default();
    let group = body.sole("OrgnlGrpInfAndSts").unwrap_or_else(|why| {
        set_aside.push(Part::of(body, why));
        None
    });
    let of_group = (group.unwrap_or(&nothing), "GrpSts");
    let message_id = of_group.0.text_at("OrgnlMsgId").filter(|id| !id.is_empty());
    let blocks: Vec<&Node> = body.all("OrgnlPmtInfAndSts").collect();
    let is_alone = blocks.iter().flat_map(|block| block.all("TxInfAndSts")).count() == 1;
    let mut is_detailed = false;
    for (n, block) in blocks.into_iter().enumerate() {
        let of_block = (block, "PmtInfSts");
        let block_id = block.text_at("OrgnlPmtInfId").filter(|id| !id.is_empty());
        let place = block_id.map_or_else(|| format!("block {}", n + 1), |id| format!("block {id}"));
        let payments: Vec<&Node> = block.all("TxInfAndSts").collect();
        // A message of ours has one block, and a block one payment.
        let subject = |payment: &Node| match (named(payment, block_id, message_id)?, block_id, message_id) {
            (Some(of), _, _) => Ok(of),
            (None, Some(id), _) if payments.len() == 1 => Ok(PaymentSubject::Block(id.to_owned())),
            (None, None, Some(id)) if is_alone => Ok(PaymentSubject::Message(id.to_owned())),
            (None, _, _) => Err("it names no payment".to_owned()),
        };
        for (n, payment) in payments.iter().enumerate() {
            let word = status(&[(payment, "TxSts"), of_block, of_group], now);
            match subject(payment).and_then(|of| Ok((of, word?))) {
                Ok((of, Some(word))) => said.push(PaymentReport { of, word }),
                Ok((_, None)) => {}
                Err(why) => set_aside.push(Part::of(payment, format!("payment {} of {place}: {why}", n + 1))),
            }
        }
        // A block with neither status nor reason leaves the word to the message.
        let is_silent = block.child("PmtInfSts").or(block.child("StsRsnInf")).is_none();
        is_detailed |= !payments.is_empty();
        if payments.is_empty() && !is_silent {
            match status(&[of_block, of_group], now).map(|word| (word, block_id)) {
                Ok((Some(word), Some(id))) => {
                    said.push(PaymentReport { of: PaymentSubject::Block(id.to_owned()), word });
                }
                Ok((None, _)) => continue,
                Ok((Some(_), None)) => {
                    set_aside.push(Part::of(block, format!("{place}: it has no OrgnlPmtInfId")))
                }
                Err(why) => set_aside.push(Part::of(block, format!("{place}: {why}"))),
            }
            is_detailed = true;
        }
    }
    if !is_detailed {
        match status(&[of_group], now).map(|word| (word, message_id)) {
            Ok((Some(word), Some(id))) => {
                said.push(PaymentReport { of: PaymentSubject::Message(id.to_owned()), word });
            }
            Ok((None, _)) => {}
            Ok((Some(_), None)) => set_aside.push(Part::of(body, "the message names no message of ours")),
            Err(why) => set_aside.push(Part::of(body, format!("the message: {why}"))),
        }
    }
    said
}

/// The payment that a part of a status report names by its own ids.
fn named(
    payment: &Node,
    block: Option<&str>,
    message: Option<&str>,
) -> Result<Option<PaymentSubject>, String> {
    let around =
        [block.and_then(|id| id.strip_prefix(BLOCK)), message.and_then(|id| id.strip_prefix(MESSAGE))];
    let (end_to_end, instruction) =
        (payment.sole_text("OrgnlEndToEndId")?, payment.sole_text("OrgnlInstrId")?);
    one_payment(&[end_to_end, instruction, around[0], around[1]])?;
    let id = payment.sole_text("OrgnlEndToEndId")?.filter(|id| *id != "NOTPROVIDED");
    if let Some(id) = id.or(payment.sole_text("OrgnlInstrId")?) {
        return Ok(Some(PaymentSubject::Payment(id.to_owned())));
    }
    Ok(payment.sole_text("OrgnlUETR")?.and_then(by_uetr))
}

/// The nearest status of these levels, from the payment outwards. The reasons of all levels count: a bank may give the
/// status at one and the reason at another.
fn status(levels: &[Level<'_>], now: DateTime<Utc>) -> Result<Option<Word>, String> {
    let text_at = |path| levels.iter().find_map(|(node, _)| node.sole_text(path).transpose()).transpose();
    let given = || levels.iter().flat_map(|(node, _)| node.all("StsRsnInf"));
    let reasons = || given().filter_map(|info| info.text_at("Rsn/Cd").or(info.text_at("Rsn/Prtry")));
    let code = levels.iter().find_map(|(node, name)| node.sole_text(name).transpose()).transpose()?;
    Ok(Some(match code.ok_or("it has no status")? {
        "RJCT" if reasons().any(is_duplicate) => Word::TakenForDuplicate,
        "RJCT" | "CANC" => {
            let reason = clean(reasons().next().unwrap_or("NARR"), ID_MAX);
            let texts = given().flat_map(|info| info.all("AddtlInf")).map(|text| text.text.as_str());
            Word::Refused { reason, text: clean(&texts.collect::<Vec<_>>().join(" "), TEXT_MAX) }
        }
        "ACSC" | "ACCC" => Word::Paid {
            at: match text_at("AccptncDtTm")? {
                Some(text) => time(text).ok_or_else(|| format!("{text} is no time"))?,
                None => now,
            },
            bank_reference: text_at("AcctSvcrRef")?.map(|text| clean(text, ID_MAX)),
            amount: None,
        },
        // Verification of payee: ISO's external code sets of statuses of payments and of groups. Of a group of one
        // payment, which ours are, mismatching data are the payment's.
        code @ ("RCVC" | "RVMC" | "RVNM" | "RVNA" | "RVCM") => {
            let payee = match code {
                "RCVC" => PayeeCheck::Match,
                "RVMC" => PayeeCheck::CloseMatch,
                "RVNA" => PayeeCheck::NotPossible,
                _ => PayeeCheck::NoMatch,
            };
            let text = given().flat_map(|info| info.all("AddtlInf")).map(|text| text.text.as_str()).next();
            // Some banks repeat the code before the name.
            let name = text.map(|text| text.strip_prefix(code).unwrap_or(text).trim());
            let name = name.filter(|name| payee == PayeeCheck::CloseMatch && !name.is_empty());
            Word::Checked { payee, name: name.map(|name| clean(name, TEXT_MAX)) }
        }
        // Partly accepted: each payment has its own status.
        "PART" => return Ok(None),
        other => Word::Pending { status: clean(other, ID_MAX) },
    }))
}

/// What statement entries say about payments.
fn words(entries: &[Entry<'_>], now: DateTime<Utc>, set_aside: &mut Vec<Part>) -> Vec<PaymentReport> {
    let mut said = Vec::new();
    for entry in entries.iter().filter(|entry| entry.status != EntryStatus::Information) {
        for (n, payment) in entry.payments.iter().enumerate() {
            match entry.read_payment(payment) {
                Ok(payment) => {
                    let word = booked(entry, &payment, now);
                    said.extend(payment.subject.zip(word).map(|(of, word)| PaymentReport { of, word }));
                }
                Err(why) => {
                    set_aside.push(Part::of(payment, format!("payment {} of {}: {why}", n + 1, entry.place)))
                }
            }
        }
    }
    said
}

/// The report of an entry about one of its payments.
fn booked(entry: &Entry<'_>, payment: &EntryPayment<'_>, now: DateTime<Utc>) -> Option<Word> {
    let (at, amount) = (entry.booked_at.unwrap_or(now), payment.amount.clone());
    let is_booked = entry.status == EntryStatus::Booked;
    match (payment.direction, payment.returned) {
        (Direction::Credit, Some(reason)) if is_booked => {
            let reason = clean(reason.unwrap_or("NARR"), ID_MAX);
            Some(Word::Returned { reason, at, amount, by: GivenBack::Return })
        }
        (Direction::Credit, None) if is_booked && entry.is_reversal => {
            Some(Word::Returned { reason: "NARR".to_owned(), at, amount, by: GivenBack::Reversal })
        }
        (Direction::Debit, _) if is_booked && entry.is_reversal => Some(Word::TakenBack { at, amount }),
        (Direction::Debit, _) if is_booked => {
            let bank_reference = payment.bank_reference.map(|text| clean(text, ID_MAX));
            Some(Word::Paid { at, bank_reference, amount })
        }
        (Direction::Debit, _) if !entry.is_reversal => Some(Word::Pending { status: "PDNG".to_owned() }),
        (Direction::Credit | Direction::Debit, _) => None,
    }
}

#[cfg(test)]
mod tests;

//! How a real bank's files differ from those of the simulated one: versions, references, forms, encodings, envelopes,
//! charges, repetitions.

use dvp_domain::money::Minor;
use dvp_domain::scheme::PayoutMethod;
use dvp_rails::iso20022::instruction::uetr;
use dvp_rails::iso20022::schema::{Message, exponent};
use dvp_rails::iso20022::text::{fixed, minor};
use dvp_rails::iso20022::xml::{Document, Node};
use serde::Deserialize;

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    pub name: String,
    /// Public documents that say so.
    pub sources: Vec<String>,
    /// What they do not say, and is a guess.
    pub assumed: Vec<String>,
    /// Versions of pain.002, and of camt.052, camt.053 and camt.054.
    pub status_version: u8,
    pub account_version: u8,
    pub status_of: StatusOf,
    pub notifies: Notifies,
    /// The references of a payment that its entries repeat: `EndToEndId`, `InstrId`, `PmtInfId`, `MsgId`, `UETR`.
    pub references: Vec<String>,
    /// A debit names its block (`Btch`) in place of its payment.
    pub books_batches: bool,
    /// A day in place of a booking time, with this zone.
    pub day_zone: Option<String>,
    pub encoding: Encoding,
    pub envelope: Envelope,
    /// Each file comes once more under another name.
    pub repeats: bool,
    /// What it says comes so much later.
    pub late_ms: u64,
    /// A charge for each payment, an entry of its own, in minor units.
    pub charge_minor: i64,
    /// What it keeps of a return.
    pub return_deducts_minor: i64,
    /// The payments that are ordered from it.
    pub method: PayoutMethod,
    /// It verifies payees, and pays once a payment is released.
    pub verifies_payees: bool,
}

/// What a status report gives its status to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StatusOf {
    Payment,
    Block,
    Message,
}

/// How a booking is told before its statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Notifies {
    Camt054,
    Camt052,
    Nothing,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub enum Encoding {
    #[serde(rename = "UTF-8")]
    Utf8,
    #[serde(rename = "ISO-8859-1")]
    Latin1,
    #[serde(rename = "UTF-16")]
    Utf16,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub enum Envelope {
    None,
    #[serde(rename = "BizMsgEnvlp")]
    Business,
    #[serde(rename = "DataPDU")]
    DataPdu,
}

impl Profile {
    /// The files in place of one of the simulated bank's, each with what its name begins with.
    pub(super) fn files(&self, content: &str) -> Vec<(&'static str, Vec<u8>)> {
        let Ok(mut document) = Document::read(content.as_bytes()) else {
            return vec![("", content.as_bytes().to_vec())];
        };
        let message = Message::of(&document).map(|(message, _)| message);
        let (written, version) = match message {
            Some(Message::Camt054) if self.notifies == Notifies::Nothing => return Vec::new(),
            Some(Message::Camt054) if self.notifies == Notifies::Camt052 => {
                to_account_report(&mut document.root);
                (Message::Camt052, self.account_version)
            }
            Some(of @ (Message::Camt052 | Message::Camt053 | Message::Camt054)) => (of, self.account_version),
            Some(Message::Pain002) => (Message::Pain002, self.status_version),
            _ => return vec![("", content.as_bytes().to_vec())],
        };
        let namespace = written.namespace();
        let of = namespace.get(..namespace.len().saturating_sub(2)).unwrap_or_default();
        document.namespace = format!("{of}{version:02}");
        if written == Message::Pain002 {
            self.report(&mut document.root)
        } else {
            self.entries(&mut document.root)
        }
        let bytes = self.encode(&self.wrap(&document));
        let again = self.repeats.then(|| ("again-", bytes.clone()));
        [("", bytes)].into_iter().chain(again).collect()
    }

    /// A status of the payment becomes that of its block or its message.
    fn report(&self, root: &mut Node) {
        let Some(body) = root.children.first_mut() else { return };
        let Some(block) = body.children.iter_mut().find(|one| one.name == "OrgnlPmtInfAndSts") else {
            return;
        };
        let payments: Vec<Node> = block.all("TxInfAndSts").cloned().collect();
        let [payment] = payments.as_slice() else { return };
        let status = payment.text_at("TxSts").unwrap_or_default().to_owned();
        let reasons: Vec<Node> = payment.all("StsRsnInf").cloned().collect();
        match self.status_of {
            StatusOf::Payment => {}
            StatusOf::Block => {
                block.children.retain(|child| child.name != "TxInfAndSts");
                block.children.push(Node::leaf("PmtInfSts", status));
                block.children.extend(reasons);
            }
            StatusOf::Message => {
                body.children.retain(|child| child.name != "OrgnlPmtInfAndSts");
                if let Some(group) = body.children.iter_mut().find(|one| one.name == "OrgnlGrpInfAndSts") {
                    group.children.retain(|child| child.name != "GrpSts");
                    group.children.push(Node::leaf("GrpSts", status));
                    group.children.extend(reasons);
                }
            }
        }
    }

    fn entries(&self, node: &mut Node) {
        for child in &mut node.children {
            if child.name == "Ntry" { self.entry(child) } else { self.entries(child) }
        }
    }

    fn entry(&self, entry: &mut Node) {
        let is_credit = entry.text_at("CdtDbtInd") == Some("CRDT");
        let id = entry.text_at("NtryDtls/TxDtls/Refs/EndToEndId").unwrap_or_default().to_owned();
        let is_ours = uetr(&id).is_some();
        // The books of its statements have what is deducted already.
        let returned = entry.at("NtryDtls/TxDtls/RtrInf").and(entry.child("Amt")).cloned();
        for child in &mut entry.children {
            match child.name.as_str() {
                // The early versions have the code itself.
                "Sts" if self.account_version < 8 => {
                    let code = child.children.pop();
                    child.text = code.map(|code| code.text).unwrap_or_default();
                }
                "BookgDt" => {
                    if let (Some(zone), Some(at)) = (&self.day_zone, child.children.pop()) {
                        let day: String = at.text.chars().take(10).collect();
                        child.children.push(Node::leaf("Dt", format!("{day}{zone}")));
                    }
                }
                "NtryDtls" if is_ours && !is_credit && self.books_batches => {
                    let batch = [Node::leaf("PmtInfId", format!("P{id}")), Node::leaf("NbOfTxs", "1")];
                    child.children = vec![Node::of("Btch", batch)];
                }
                "NtryDtls" if is_ours => self.payment(child, &id, is_credit),
                _ => {}
            }
        }
        if let Some(amount) = returned {
            amounts(entry, &amount.text, &self.deducted(&amount));
        }
        entry.children.push(Node::leaf("AddtlNtryInf", "\u{dc}berweisung ausgef\u{fc}hrt"));
    }

    fn payment(&self, details: &mut Node, id: &str, is_credit: bool) {
        let Some(payment) = details.children.iter_mut().find(|one| one.name == "TxDtls") else { return };
        if is_credit && payment.child("RtrInf").is_none() {
            payment.children.push(Node::leaf("RtrInf/Rsn/Cd", "AC04"));
        }
        let Some(refs) = payment.children.iter_mut().find(|one| one.name == "Refs") else { return };
        let bank = refs.child("AcctSvcrRef").cloned();
        let own = |name: &str| {
            let text = match name {
                "MsgId" => format!("M{id}"),
                "PmtInfId" => format!("P{id}"),
                "UETR" => uetr(id).unwrap_or_default(),
                _ => id.to_owned(),
            };
            self.references.iter().any(|one| one == name).then(|| Node::leaf(name, text))
        };
        let end_to_end_id = own("EndToEndId").unwrap_or_else(|| Node::leaf("EndToEndId", "NOTPROVIDED"));
        let parts = [own("MsgId"), bank, own("PmtInfId"), own("InstrId"), Some(end_to_end_id), own("UETR")];
        refs.children = parts.into_iter().flatten().collect();
    }

    /// What comes of a return.
    fn deducted(&self, amount: &Node) -> String {
        let currency = amount.attribute("Ccy").unwrap_or_default();
        let all = minor(&amount.text, exponent(currency)).unwrap_or(Minor::ZERO);
        let kept = Minor::new(self.return_deducts_minor.unsigned_abs().into());
        fixed(all.checked_sub(kept).unwrap_or(all), exponent(currency))
    }

    fn wrap(&self, document: &Document) -> String {
        let rendered = document.render();
        let body = rendered.split_once('\n').map_or(rendered.as_str(), |(_, body)| body);
        let header = "<AppHdr xmlns=\"urn:iso:std:iso:20022:tech:xsd:head.001.001.02\"><BizMsgIdr>1</BizMsgIdr></AppHdr>";
        match self.envelope {
            Envelope::None => body.to_owned(),
            Envelope::Business => format!("<BizMsgEnvlp xmlns=\"urn:envelope\">{header}{body}</BizMsgEnvlp>"),
            Envelope::DataPdu => format!(
                "<Saa:DataPDU xmlns:Saa=\"urn:swift:saa:xsd:saa.2.0\"><Saa:Body>{header}{body}</Saa:Body></Saa:DataPDU>"
            ),
        }
    }

    fn encode(&self, body: &str) -> Vec<u8> {
        let text = |encoding| format!("<?xml version=\"1.0\" encoding=\"{encoding}\"?>\n{body}");
        match self.encoding {
            Encoding::Utf8 => text("UTF-8").into_bytes(),
            Encoding::Latin1 => {
                text("ISO-8859-1").chars().map(|letter| u8::try_from(letter).unwrap_or(b'?')).collect()
            }
            Encoding::Utf16 => {
                let units = "\u{feff}".chars().chain(text("UTF-16").chars().collect::<Vec<_>>());
                units.collect::<String>().encode_utf16().flat_map(u16::to_be_bytes).collect()
            }
        }
    }
}

/// camt.054 as camt.052: names of elements.
fn to_account_report(root: &mut Node) {
    for body in &mut root.children {
        "BkToCstmrAcctRpt".clone_into(&mut body.name);
        for child in body.children.iter_mut().filter(|child| child.name == "Ntfctn") {
            "Rpt".clone_into(&mut child.name);
        }
    }
}

/// Every amount of an entry.
fn amounts(node: &mut Node, from: &str, to: &str) {
    for child in &mut node.children {
        if child.name == "Amt" && child.text == from {
            to.clone_into(&mut child.text);
        }
        amounts(child, from, to);
    }
}

//! How the bank answers recalls (camt.056), by the account of the recalled payment.
//!
//! | account | answers |
//! |---|---|
//! | …0007 | accepted: the payment, which was not made yet, is cancelled |
//! | …0013 | rejected: it has come back already (ARDT) |
//! | …0021 | rejected: the beneficiary does not agree (CUST) |
//! | …0022 | nothing for about 3 s, then accepted, said three times, then returned |
//! | …0023 | accepted, and nothing comes back, ever |
//! | …0024 | rejected, then accepted, then returned |
//! | …0025 | garbage, half an answer, then accepted beside somebody else's that is rejected, then returned |
//! | …0026 | accepted in part |
//! | …0028 | no answer; the payment is returned |
//! | else | pending, then accepted, then returned (FOCR) |

use std::time::Duration;

use chrono::{DateTime, Utc};
use dvp_rails::iso20022::schema::{Message, check};
use dvp_rails::iso20022::xml::{Document, Node};

use super::{Order, Reply};

/// The fields of a request that the bank uses, and the order that it is about.
pub(super) struct Recall {
    case: String,
    name: String,
    order: Order,
}

/// What a file is.
pub(super) fn message_of(content: &[u8]) -> Option<Message> {
    Message::of(&Document::read(content).ok()?).map(|(message, _)| message)
}

/// The end-to-end id of the payment that a request is about, and its case: a request that breaks the schema has none.
pub(super) fn named(content: &[u8]) -> Option<(String, String, String)> {
    let document = Document::read(content).ok()?;
    if !check(Message::Camt056, &document).is_empty() {
        return None;
    }
    let body = document.root.child("FIToFIPmtCxlReq")?;
    let text = |path: &str| body.text_at(path).map(str::to_owned);
    Some((text("Undrlyg/TxInf/OrgnlEndToEndId")?, text("Case/Id")?, text("Case/Cretr/Pty/Nm")?))
}

/// One payment's line of an answer.
struct Resolved<'a> {
    end_to_end_id: &'a str,
    status: &'a str,
    reason: Option<&'a str>,
}

impl Recall {
    pub(super) const fn new(case: String, name: String, order: Order) -> Self {
        Self { case, name, order }
    }

    pub(super) fn replies(&self, at: DateTime<Utc>) -> Vec<Reply> {
        let order = &self.order;
        let accepted = || self.resolution("CNCL", &[self.line("ACCR", None)], at);
        let rejected = |code| self.resolution("RJCR", &[self.line("RJCR", Some(code))], at);
        let returned = || order.booked(&order.amount, Some("FOCR"), at);
        // The account is credited when it is said that the payment came back.
        let (script, credited): (Vec<(u64, String)>, _) = match order.suffix() {
            "0007" => (vec![(0, accepted()), (200, order.report("CANC", Some("FOCR"), at))], None),
            "0013" => (vec![(0, rejected("ARDT"))], None),
            "0021" => (vec![(0, rejected("CUST"))], None),
            "0022" => {
                let again = [(3_000, accepted()), (3_000, accepted()), (3_100, accepted())];
                (again.into_iter().chain([(3_400, returned())]).collect(), Some(3))
            }
            "0023" => (vec![(0, accepted())], None),
            "0024" => (vec![(0, rejected("CUST")), (300, accepted()), (600, returned())], Some(2)),
            "0025" => {
                let half: String = accepted().chars().take(300).collect();
                let foreign = Resolved { end_to_end_id: "SOMEBODY-ELSES", status: "RJCR", reason: None };
                let both = self.resolution("CNCL", &[foreign, self.line("ACCR", None)], at);
                let script =
                    vec![(0, "garbage \u{0} & <".to_owned()), (100, half), (300, both), (600, returned())];
                (script, Some(3))
            }
            "0026" => (vec![(0, self.resolution("PECR", &[], at))], None),
            "0028" => (vec![(300, returned())], Some(0)),
            _ => {
                let pending = self.resolution("PDCR", &[self.line("PDCR", None)], at);
                (vec![(0, pending), (300, accepted()), (600, returned())], Some(2))
            }
        };
        let replies = script.into_iter().enumerate().map(|(n, (after, content))| {
            let booked = (credited == Some(n)).then(|| order.line(1)).flatten();
            Reply { after: Duration::from_millis(after), content, booked }
        });
        replies.collect()
    }

    fn line<'a>(&'a self, status: &'a str, reason: Option<&'a str>) -> Resolved<'a> {
        Resolved { end_to_end_id: &self.order.end_to_end_id, status, reason }
    }

    /// The answer of a bank: what it says of the whole, and of single payments.
    fn resolution(&self, confirmation: &str, lines: &[Resolved<'_>], at: DateTime<Utc>) -> String {
        let customer = |role: &str| Node::leaf(&format!("{role}/Pty/Nm"), self.name.clone());
        let assignment = [
            Node::leaf("Id", format!("R{}", self.order.end_to_end_id)),
            Node::leaf("Assgnr/Agt/FinInstnId/BICFI", "SANDUS33"),
            customer("Assgne"),
            Node::leaf("CreDtTm", at.format("%Y-%m-%dT%H:%M:%SZ").to_string()),
        ];
        let case = [Node::leaf("Id", self.case.clone()), customer("Cretr")];
        let mut children = vec![
            Node::of("Assgnmt", assignment),
            Node::of("RslvdCase", case),
            Node::leaf("Sts/Conf", confirmation),
        ];
        if !lines.is_empty() {
            children.push(Node::of("CxlDtls", lines.iter().map(|line| self.payment(line))));
        }
        Message::Camt029.document("RsltnOfInvstgtn", children).render()
    }

    fn payment(&self, line: &Resolved<'_>) -> Node {
        let mut children = vec![Node::leaf("CxlStsId", format!("CS{}", self.order.bank_reference()))];
        // Somebody else's payment has a case of its own.
        if line.end_to_end_id != self.order.end_to_end_id {
            let theirs = [Node::leaf("Id", "THEIR-CASE"), Node::leaf("Cretr/Pty/Nm", "Somebody Else")];
            children.push(Node::of("RslvdCase", theirs));
        }
        let original = [
            Node::leaf("OrgnlMsgId", self.order.message_id.clone()),
            Node::leaf("OrgnlMsgNmId", Message::Pain001.name()),
        ];
        children.push(Node::of("OrgnlGrpInf", original));
        children.push(Node::leaf("OrgnlEndToEndId", line.end_to_end_id));
        children.push(Node::leaf("TxCxlSts", line.status));
        if let Some(code) = line.reason {
            let information = Node::leaf("AddtlInf", "the recall was refused");
            children.push(Node::of("CxlStsRsnInf", [Node::leaf("Rsn/Cd", code), information]));
        }
        Node::of("TxInfAndSts", children)
    }
}

/// Of a payment that nobody has asked back.
pub(super) fn never_requested(order: &Order, at: DateTime<Utc>) -> String {
    let recall = Recall::new("BANK-CASE-1".to_owned(), "Sandbox Bank".to_owned(), order.clone());
    recall.resolution("CNCL", &[recall.line("ACCR", None)], at)
}

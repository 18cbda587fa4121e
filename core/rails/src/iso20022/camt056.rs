//! Recalls as payment cancellation requests. Pure.

use chrono::{DateTime, Utc};
use dvp_domain::ids::RecallId;
use dvp_domain::money::Minor;
use dvp_domain::recall::{INFORMATION_MAX, RecallReason};

use super::instruction::{Agent, Debtor, uetr};
use super::pain001::agent;
use super::schema::Message;
use super::text::{fixed, plain};
use super::xml::{Document, Node};

/// Before the unique part of a case.
const CASE: &str = "RCL";

#[derive(Debug, Clone, Copy)]
pub struct RecallRequest<'a> {
    pub id: &'a RecallId,
    pub approved_at: DateTime<Utc>,
    pub reason: RecallReason,
    pub information: Option<&'a str>,
    pub end_to_end_id: &'a str,
    /// Of the message that ordered the payment.
    pub message_id: &'a str,
    pub amount: Minor,
    pub currency: &'a str,
    pub exponent: u8,
}

/// A recall's case at the bank: 35 characters, as long as an id may be.
pub fn case_of(id: &RecallId) -> String {
    let unique = id.as_str().strip_prefix(RecallId::PREFIX).unwrap_or_default();
    format!("{CASE}{}", unique.to_ascii_uppercase())
}

/// The recall that a case of ours names.
pub fn recall_of(case: &str) -> Option<String> {
    let unique = case.strip_prefix(CASE).filter(|unique| !unique.is_empty())?;
    Some(format!("{}{}", RecallId::PREFIX, unique.to_ascii_lowercase()))
}

/// The message of one recall: the same at every attempt.
pub fn build(debtor: &Debtor, recall: &RecallRequest<'_>) -> Document {
    let case = case_of(recall.id);
    let name = plain(&debtor.name, 140);
    let party = |role: &str| Node::leaf(&format!("{role}/Pty/Nm"), name.clone());
    let assignment = [
        Node::leaf("Id", case.clone()),
        party("Assgnr"),
        Node::of("Assgne", [agent("Agt", &Agent::Bic(debtor.bic.clone()))]),
        Node::leaf("CreDtTm", recall.approved_at.format("%Y-%m-%dT%H:%M:%SZ").to_string()),
    ];
    let children = [
        Node::of("Assgnmt", assignment),
        Node::of("Case", [Node::leaf("Id", case.clone()), party("Cretr")]),
        Node::leaf("CtrlData/NbOfTxs", "1"),
        Node::of("Undrlyg", [payment(case, &name, recall)]),
    ];
    Message::Camt056.document("FIToFIPmtCxlReq", children)
}

fn payment(case: String, name: &str, recall: &RecallRequest<'_>) -> Node {
    let original =
        [Node::leaf("OrgnlMsgId", recall.message_id), Node::leaf("OrgnlMsgNmId", Message::Pain001.name())];
    let amount = fixed(recall.amount, recall.exponent);
    let mut reason = vec![Node::leaf("Orgtr/Nm", name), Node::leaf("Rsn/Cd", recall.reason.as_str())];
    let information = recall.information.map(|text| plain(text, INFORMATION_MAX));
    let information = information.filter(|text| !text.is_empty());
    reason.extend(information.map(|text| Node::leaf("AddtlInf", text)));
    let mut children = vec![
        Node::leaf("CxlId", case),
        Node::of("OrgnlGrpInf", original),
        Node::leaf("OrgnlInstrId", recall.end_to_end_id),
        Node::leaf("OrgnlEndToEndId", recall.end_to_end_id),
    ];
    children.extend(uetr(recall.end_to_end_id).map(|uetr| Node::leaf("OrgnlUETR", uetr)));
    children.push(Node::leaf("OrgnlIntrBkSttlmAmt", amount).with_attribute("Ccy", recall.currency));
    children.push(Node::of("CxlRsnInf", reason));
    Node::of("TxInf", children)
}

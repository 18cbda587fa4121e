//! Recalls as payment cancellation requests: ours, and those that the bank passes on to us. Pure.

use chrono::{DateTime, Utc};
use dvp_domain::ids::{RecallId, ReceivedRecallId};
use dvp_domain::money::Minor;
use dvp_domain::recall::{INFORMATION_MAX, RecallReason};

use dvp_domain::currency;
use dvp_domain::text::{ID_MAX, TEXT_MAX, clean};
use dvp_store::orders::received_recalls::NewReceivedRecall;

use super::instruction::{Agent, Debtor, uetr};
use super::pain001::agent;
use super::part::Part;
use super::schema::Message;
use super::text::{fixed, minor, plain};
use super::xml::{Document, Node};

/// Before the unique part of a case.
const CASE: &str = "RCL";
/// Before the unique part of an answer.
const ANSWER: &str = "RCA";

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

/// The id of our answer to a request of the bank.
pub fn answer_of(id: &ReceivedRecallId) -> String {
    let unique = id.as_str().strip_prefix(ReceivedRecallId::PREFIX).unwrap_or_default();
    format!("{ANSWER}{}", unique.to_ascii_uppercase())
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

/// Reads what the bank asks back: one request for each payment that it names. What cannot be understood is described in
/// `set_aside`.
pub(super) fn read(body: &Node, set_aside: &mut Vec<Part>) -> Vec<NewReceivedRecall> {
    let mut asked = Vec::new();
    for underlying in body.all("Undrlyg") {
        // The whole message, or a block of it, beside single payments.
        let group = underlying.child("OrgnlGrpInfAndCxl");
        let whole = group.into_iter().chain(underlying.all("OrgnlPmtInfAndCxl"));
        let before = asked.len();
        for (n, payment) in underlying.all("TxInf").enumerate() {
            match request(body, payment, group) {
                Ok(request) => asked.push(request),
                Err(why) => set_aside.push(Part::of(payment, format!("payment {}: {why}", n + 1))),
            }
        }
        if asked.len() == before && underlying.child("TxInf").is_none() {
            for whole in whole {
                match request(body, whole, group) {
                    Ok(request) => asked.push(request),
                    Err(why) => set_aside.push(Part::of(whole, format!("the message: {why}"))),
                }
            }
        }
    }
    if asked.is_empty() && set_aside.is_empty() {
        set_aside.push(Part::of(body, "the message names no payment"));
    }
    asked
}

/// A BIC or a name.
fn party<'a>(of: &'a Node, role: &str) -> Option<&'a str> {
    ["Agt/FinInstnId/BICFI", "Agt/FinInstnId/BIC", "Pty/Nm", "Agt/FinInstnId/Nm"]
        .iter()
        .find_map(|path| of.text_at(&format!("{role}/{path}")))
}

fn request(body: &Node, payment: &Node, group: Option<&Node>) -> Result<NewReceivedRecall, String> {
    let id = |text: Option<&str>| text.map(|text| clean(text, ID_MAX)).filter(|text| !text.is_empty());
    let case = payment.child("Case").or(body.child("Case"));
    let case_id = id(case.and_then(|case| case.text_at("Id")));
    let assignment = id(body.text_at("Assgnmt/Id"));
    let request = id(payment.text_at("CxlId")).or_else(|| case_id.clone()).or(assignment);
    let original = payment.child("OrgnlGrpInf").or(group);
    let message_id = id(original.and_then(|original| original.text_at("OrgnlMsgId")));
    let end_to_end_id = id(payment.text_at("OrgnlEndToEndId")).filter(|id| id != "NOTPROVIDED");
    let (uetr, transaction_id) = (id(payment.text_at("OrgnlUETR")), id(payment.text_at("OrgnlTxId")));
    let mut request = request.ok_or("it has no id")?;
    // Of several payments in one case each is its own request, also one without an end-to-end id.
    if end_to_end_id.is_none()
        && let Some(other) = transaction_id.as_ref().or(uetr.as_ref()).or(message_id.as_ref())
    {
        request = clean(&format!("{request}/{other}"), ID_MAX);
    }
    if message_id.is_none() && end_to_end_id.is_none() && uetr.is_none() && transaction_id.is_none() {
        return Err("it names no payment".to_owned());
    }
    let amount = match payment.child("OrgnlIntrBkSttlmAmt").or(payment.at("OrgnlInstdAmt")) {
        None => None,
        Some(node) => {
            let currency = node.attribute("Ccy").unwrap_or_default();
            let exponent =
                currency::exponent(currency).ok_or_else(|| format!("{currency} is no currency"))?;
            let amount = minor(&node.text, exponent).filter(|amount| *amount > Minor::ZERO);
            let amount = amount.ok_or_else(|| format!("{} {currency} is no amount", node.text))?;
            Some((amount, currency.to_owned()))
        }
    };
    let (amount, currency) = amount.unzip();
    let reasons = || payment.all("CxlRsnInf");
    let reason = id(reasons().find_map(|info| info.text_at("Rsn/Cd").or(info.text_at("Rsn/Prtry"))));
    let texts = reasons().flat_map(|info| info.all("AddtlInf")).map(|text| text.text.as_str());
    let information = clean(&texts.collect::<Vec<_>>().join(" "), TEXT_MAX);
    Ok(NewReceivedRecall {
        assigner: id(party(body, "Assgnmt/Assgnr")).unwrap_or_default(),
        request,
        case_id,
        case_creator: id(case.and_then(|case| party(case, "Cretr"))),
        message_id,
        end_to_end_id: end_to_end_id.unwrap_or_default(),
        uetr,
        transaction_id,
        amount,
        currency,
        reason,
        information: Some(information).filter(|text| !text.is_empty()),
    })
}

#[cfg(test)]
mod tests;

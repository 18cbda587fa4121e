//! Answers to recalls: resolutions of an investigation, the bank's to ours and ours to the bank's. Pure.

use chrono::{DateTime, Utc};
use dvp_domain::currency::is_bic;
use dvp_domain::payment::PaymentSubject;
use dvp_domain::recall::{RecallAnswer, RecallSubject, RefusalReason};
use dvp_domain::text::{ID_MAX, TEXT_MAX, clean};
use dvp_store::orders::received_recalls::ReceivedRecall;

use super::camt056::{self, recall_of};
use super::instruction::{Agent, Debtor, by_uetr};
use super::pain001::agent;
use super::part::Part;
use super::schema::Message;
use super::text::plain;
use super::xml::{Document, Node};

/// An answer to a recall.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecallReport {
    pub of: RecallSubject,
    pub answer: RecallAnswer,
}

/// Where a status stands, from the payment outwards.
type Levels<'a> = [Option<(&'a Node, &'static str)>; 3];

/// Reads the answers of one message. A payment's own status takes precedence over its block's or message's, and that
/// over the confirmation of the whole. What cannot be understood is described in `set_aside`.
pub(super) fn read(body: &Node, set_aside: &mut Vec<Part>) -> Vec<RecallReport> {
    let confirmed = match body.sole_text("Sts/Conf") {
        Ok(confirmed) => confirmed,
        Err(why) => {
            set_aside.push(Part::of(body, why));
            return Vec::new();
        }
    };
    let case = body.child("RslvdCase");
    let mut said = Vec::new();
    let mut add = |place: &str, of: &Node, levels: Levels<'_>| match report(of, levels, case, confirmed) {
        Ok(report) => said.push(report),
        Err(why) => set_aside.push(Part::of(of, format!("{place}: {why}"))),
    };
    let mut is_detailed = false;
    for details in body.all("CxlDtls") {
        let group = details.child("OrgnlGrpInfAndSts");
        let of_group = group.map(|group| (group, "GrpCxlSts"));
        for (n, payment) in details.all("TxInfAndSts").enumerate() {
            let place = format!("payment {}", n + 1);
            add(&place, payment, [Some((payment, "TxCxlSts")), of_group, None]);
        }
        for (n, block) in details.all("OrgnlPmtInfAndSts").enumerate() {
            let of_block = Some((block, "PmtInfCxlSts"));
            let place = format!("block {}", n + 1);
            for (n, payment) in block.all("TxInfAndSts").enumerate() {
                let place = format!("payment {} of {place}", n + 1);
                add(&place, payment, [Some((payment, "TxCxlSts")), of_block, of_group]);
            }
            if block.child("TxInfAndSts").is_none() {
                add(&place, block, [of_block, of_group, None]);
            }
        }
        let has_parts = details.child("TxInfAndSts").or(details.child("OrgnlPmtInfAndSts")).is_some();
        if let Some(group) = group.filter(|_| !has_parts) {
            add("the message", group, [of_group, None, None]);
        }
        is_detailed |= has_parts || group.is_some();
    }
    if !is_detailed {
        add("the message", body, [None, None, None]);
    }
    said
}

fn report(
    of: &Node,
    levels: Levels<'_>,
    case: Option<&Node>,
    confirmed: Option<&str>,
) -> Result<RecallReport, String> {
    let nodes = || levels.iter().flatten();
    let mut code = None;
    for (node, name) in nodes() {
        code = code.or(node.sole_text(name)?.filter(|code| *code != "PACR"));
    }
    let answer = match code.or(confirmed).ok_or("it has no status")? {
        "ACCR" | "CNCL" => RecallAnswer::Accepted,
        "PECR" => RecallAnswer::PartlyAccepted,
        "RJCR" => {
            let given = || nodes().flat_map(|(node, _)| node.all("CxlStsRsnInf"));
            let coded = given().find_map(|info| info.text_at("Rsn/Cd").or(info.text_at("Rsn/Prtry")));
            let texts = given().flat_map(|info| info.all("AddtlInf"));
            let text = texts.map(|text| text.text.as_str()).collect::<Vec<_>>().join(" ");
            let reason = clean(coded.unwrap_or("NARR"), ID_MAX);
            RecallAnswer::Rejected { reason, text: clean(&text, TEXT_MAX) }
        }
        other => RecallAnswer::Pending { status: clean(other, ID_MAX) },
    };
    let case = nodes()
        .find_map(|(node, _)| node.text_at("RslvdCase/Id"))
        .or(case.and_then(|case| case.text_at("Id")));
    // A case of the bank's own says nothing: the payment does.
    let case = case.and_then(recall_of);
    let of = match payment(of, &levels) {
        // Some banks answer to the message of the request.
        Some(PaymentSubject::Message(id)) if recall_of(&id).is_some() => {
            RecallSubject { case: case.or_else(|| recall_of(&id)), payment: None }
        }
        payment => RecallSubject { case, payment },
    };
    Ok(RecallReport { of, answer })
}

fn payment(of: &Node, levels: &Levels<'_>) -> Option<PaymentSubject> {
    let id = of.text_at("OrgnlEndToEndId").filter(|id| *id != "NOTPROVIDED").or(of.text_at("OrgnlInstrId"));
    if let Some(id) = id {
        return Some(PaymentSubject::Payment(id.to_owned()));
    }
    if let Some(of) = of.text_at("OrgnlUETR").and_then(by_uetr) {
        return Some(of);
    }
    // A payment that is named by other ids only is not the message's one.
    if of.child("TxCxlSts").is_some() || of.child("OrgnlUETR").is_some() || of.child("OrgnlTxId").is_some() {
        return None;
    }
    if let Some(id) = of.text_at("OrgnlPmtInfId") {
        return Some(PaymentSubject::Block(id.to_owned()));
    }
    let mut nodes = levels.iter().flatten();
    let id =
        nodes.find_map(|(node, _)| node.text_at("OrgnlMsgId").or(node.text_at("OrgnlGrpInf/OrgnlMsgId")));
    id.map(|id| PaymentSubject::Message(id.to_owned()))
}

/// Our answer to a request of the bank: the same at every attempt. Without a refusal the money is given back.
pub fn build(
    debtor: &Debtor,
    recall: &ReceivedRecall,
    refusal: Option<RefusalReason>,
    at: DateTime<Utc>,
) -> Document {
    let (asked, id) = (&recall.asked, camt056::answer_of(&recall.id));
    let name = plain(&debtor.name, 140);
    let assignment = [
        Node::leaf("Id", id.clone()),
        Node::leaf("Assgnr/Pty/Nm", name.clone()),
        Node::of("Assgne", [agent("Agt", &Agent::Bic(debtor.bic.clone()))]),
        Node::leaf("CreDtTm", at.format("%Y-%m-%dT%H:%M:%SZ").to_string()),
    ];
    let mut children = vec![Node::of("Assgnmt", assignment)];
    children.extend(asked.case_id.as_ref().map(|case| {
        let creator = asked.case_creator.as_ref().unwrap_or(&asked.assigner);
        let creator = if is_bic(creator) {
            Node::of("Cretr", [agent("Agt", &Agent::Bic(creator.clone()))])
        } else {
            Node::leaf("Cretr/Pty/Nm", plain(creator, 140))
        };
        Node::of("RslvdCase", [Node::leaf("Id", plain(case, 35)), creator])
    }));
    let (confirmation, status) = if refusal.is_some() { ("RJCR", "RJCR") } else { ("CNCL", "ACCR") };
    children.push(Node::leaf("Sts/Conf", confirmation));
    let mut payment = vec![Node::leaf("CxlStsId", id)];
    payment.extend(asked.message_id.as_ref().map(|message| {
        let original =
            [Node::leaf("OrgnlMsgId", plain(message, 35)), Node::leaf("OrgnlMsgNmId", "pacs.008.001.08")];
        Node::of("OrgnlGrpInf", original)
    }));
    let named = Some(&asked.end_to_end_id).filter(|id| !id.is_empty());
    payment.extend(named.map(|id| Node::leaf("OrgnlEndToEndId", plain(id, 35))));
    payment.extend(asked.transaction_id.as_ref().map(|id| Node::leaf("OrgnlTxId", plain(id, 35))));
    payment.extend(asked.uetr.as_ref().map(|uetr| Node::leaf("OrgnlUETR", uetr.to_ascii_lowercase())));
    payment.push(Node::leaf("TxCxlSts", status));
    payment.extend(refusal.map(|reason| {
        Node::of("CxlStsRsnInf", [Node::leaf("Orgtr/Nm", name), Node::leaf("Rsn/Cd", reason.as_str())])
    }));
    children.push(Node::of("CxlDtls", [Node::of("TxInfAndSts", payment)]));
    Message::Camt029.document("RsltnOfInvstgtn", children)
}

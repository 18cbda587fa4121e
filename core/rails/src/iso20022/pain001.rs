//! Payment orders as customer credit transfer initiations. Pure.

use chrono::{DateTime, Utc};
use dvp_domain::money::Minor;
use dvp_domain::scheme::Scheme;

use super::instruction::{Account, Address, Agent, Debtor, Instruction, uetr};
use super::schema::Message;
use super::text::{fixed, iban, plain};
use super::xml::{Document, Node};

/// The longest name of a payer that every scheme takes.
pub const DEBTOR_MAX: usize = 70;
/// Before the end-to-end id, in the ids of its message and of its block.
pub(super) const MESSAGE: &str = "M";
pub(super) const BLOCK: &str = "P";

/// The ids of a message with one payment are derived from the payment: the same at every attempt.
pub fn message_id(end_to_end_id: &str) -> String {
    format!("{MESSAGE}{end_to_end_id}")
}

pub fn payment_id(end_to_end_id: &str) -> String {
    format!("{BLOCK}{end_to_end_id}")
}

/// A message that orders payments, one block each: banks answer for a block as a whole.
pub fn build(message_id: &str, debtor: &Debtor, payments: &[Instruction], now: DateTime<Utc>) -> Document {
    let mut header = vec![
        Node::leaf("MsgId", message_id),
        Node::leaf("CreDtTm", now.format("%Y-%m-%dT%H:%M:%SZ").to_string()),
        Node::leaf("NbOfTxs", payments.len().to_string()),
    ];
    header.extend(control_sum(payments).map(|sum| Node::leaf("CtrlSum", sum)));
    header.push(Node::leaf("InitgPty/Nm", plain(&debtor.name, DEBTOR_MAX)));
    let blocks = payments.iter().map(|payment| block(debtor, payment, now));
    Message::Pain001.document("CstmrCdtTrfInitn", [Node::of("GrpHdr", header)].into_iter().chain(blocks))
}

/// The sum of all amounts regardless of currency, as the standard defines it: a check of completeness.
fn control_sum(payments: &[Instruction]) -> Option<String> {
    let places = payments.iter().map(|payment| payment.exponent).max()?;
    let total = payments.iter().try_fold(0_u128, |total, payment| {
        let scale = 10_u128.checked_pow(u32::from(places - payment.exponent))?;
        total.checked_add(payment.amount.get().checked_mul(scale)?)
    })?;
    Some(fixed(Minor::new(total), places))
}

fn block(debtor: &Debtor, payment: &Instruction, now: DateTime<Utc>) -> Node {
    let amount = fixed(payment.amount, payment.exponent);
    let Scheme { service_level, local_instrument, charge_bearer, .. } = *payment.scheme;
    let kind = [Node::leaf("SvcLvl/Cd", service_level)]
        .into_iter()
        .chain(local_instrument.map(|code| Node::leaf("LclInstrm/Cd", code)));
    let debtor_account =
        iban(&debtor.account).map_or_else(|| Account::Other(debtor.account.clone()), Account::Iban);
    let name = Node::leaf("Nm", plain(&debtor.name, DEBTOR_MAX));
    let party = [name].into_iter().chain(debtor.address().as_ref().map(address));
    Node::of(
        "PmtInf",
        [
            Node::leaf("PmtInfId", payment_id(&payment.end_to_end_id)),
            Node::leaf("PmtMtd", "TRF"),
            // Each payment is an entry of its own in the bank's statement.
            Node::leaf("BtchBookg", "false"),
            Node::leaf("NbOfTxs", "1"),
            Node::leaf("CtrlSum", amount.clone()),
            Node::of("PmtTpInf", kind),
            Node::leaf("ReqdExctnDt/Dt", now.format("%Y-%m-%d").to_string()),
            Node::of("Dbtr", party),
            Node::of("DbtrAcct", [account(&debtor_account), Node::leaf("Ccy", debtor.currency.clone())]),
            agent("DbtrAgt", &Agent::Bic(debtor.bic.clone())),
            Node::leaf("ChrgBr", charge_bearer),
            transfer(payment, debtor, &amount),
        ],
    )
}

fn transfer(payment: &Instruction, debtor: &Debtor, amount: &str) -> Node {
    let mut ids = vec![
        Node::leaf("InstrId", payment.end_to_end_id.clone()),
        Node::leaf("EndToEndId", payment.end_to_end_id.clone()),
    ];
    ids.extend(uetr(&payment.end_to_end_id).map(|uetr| Node::leaf("UETR", uetr)));
    let instructed = Node::leaf("InstdAmt", amount).with_attribute("Ccy", &payment.currency);
    let mut children = vec![Node::of("PmtId", ids), Node::of("Amt", [instructed])];
    children.extend(payment.ultimate_debtor.clone().map(|name| Node::leaf("UltmtDbtr/Nm", name)));
    children.extend(payment.agent.as_ref().map(|bank| agent("CdtrAgt", bank)));
    let mut creditor = vec![Node::leaf("Nm", payment.name.clone())];
    creditor.extend(payment.address.as_ref().map(address));
    children.push(Node::of("Cdtr", creditor));
    children.push(Node::of("CdtrAcct", [account(&payment.account)]));
    let purpose = debtor.purpose.clone().filter(|_| payment.scheme.takes_purpose);
    children.extend(purpose.map(|code| Node::leaf("Purp/Cd", code)));
    if !payment.remittance.is_empty() {
        children.push(Node::leaf("RmtInf/Ustrd", payment.remittance.clone()));
    }
    Node::of("CdtTrfTxInf", children)
}

fn account(account: &Account) -> Node {
    match account {
        Account::Iban(iban) => Node::leaf("Id/IBAN", iban.clone()),
        Account::Other(number) => Node::leaf("Id/Othr/Id", number.clone()),
    }
}

pub(super) fn agent(name: &str, agent: &Agent) -> Node {
    let children = match agent {
        Agent::Bic(bic) => vec![Node::leaf("BICFI", bic.clone())],
        Agent::Member { system, member, name } => {
            let ids = [Node::leaf("ClrSysId/Cd", *system), Node::leaf("MmbId", member.clone())];
            let member = Node::of("ClrSysMmbId", ids);
            [member].into_iter().chain(name.clone().map(|name| Node::leaf("Nm", name))).collect()
        }
    };
    Node::of(&format!("{name}/FinInstnId"), children)
}

fn address(address: &Address) -> Node {
    let Address { street, post_code, town, subdivision, country } = address;
    let parts = [
        ("StrtNm", street.as_ref()),
        ("PstCd", post_code.as_ref()),
        ("TwnNm", Some(town)),
        ("CtrySubDvsn", subdivision.as_ref()),
        ("Ctry", Some(country)),
    ];
    let given = parts.into_iter().filter_map(|(name, text)| Some(Node::leaf(name, text?.clone())));
    Node::of("PstlAdr", given)
}

//! A statement of account as a bank writes it: camt.053.

use chrono::{DateTime, Utc};
use dvp_domain::money::Minor;
use dvp_rails::iso20022::schema::{Message, exponent};
use dvp_rails::iso20022::text::fixed;
use dvp_rails::iso20022::xml::Node;
use serde::{Deserialize, Serialize};

/// An entry: positive amounts are credits, in minor units.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    pub currency: String,
    pub amount: i64,
    /// The order's end-to-end id, where a payment was ordered.
    pub end_to_end_id: Option<String>,
    pub bank_reference: String,
    /// Unstructured remittance information.
    pub text: Option<String>,
    pub at: DateTime<Utc>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatementOf {
    pub account: String,
    pub currency: String,
    pub id: String,
    pub from: DateTime<Utc>,
    pub to: DateTime<Utc>,
    pub opening: i64,
    pub lines: Vec<Line>,
}

fn instant(name: &str, at: DateTime<Utc>) -> Node {
    Node::leaf(name, at.format("%Y-%m-%dT%H:%M:%S%.3fZ").to_string())
}

impl StatementOf {
    pub fn closing(&self) -> i64 {
        self.lines.iter().fold(self.opening, |sum, line| sum.saturating_add(line.amount))
    }

    pub fn render(&self) -> String {
        let header = [Node::leaf("MsgId", self.id.clone()), instant("CreDtTm", self.to)];
        let children = [Node::of("GrpHdr", header), self.statement()];
        Message::Camt053.document("BkToCstmrStmt", children).render()
    }

    fn statement(&self) -> Node {
        let is_iban = self.account.starts_with(|first: char| first.is_ascii_alphabetic());
        let id = Node::leaf(if is_iban { "Id/IBAN" } else { "Id/Othr/Id" }, self.account.clone());
        let account = Node::of("Acct", [id, Node::leaf("Ccy", self.currency.clone())]);
        let children = [
            Node::leaf("Id", self.id.clone()),
            Node::of("FrToDt", [instant("FrDtTm", self.from), instant("ToDtTm", self.to)]),
            account,
            self.balance("OPBD", self.opening, self.from),
            self.balance("CLBD", self.closing(), self.to),
        ];
        Node::of("Stmt", children.into_iter().chain(self.lines.iter().map(|line| self.entry(line))))
    }

    fn money(&self, amount: i64) -> Node {
        let text = fixed(Minor::new(amount.unsigned_abs().into()), exponent(&self.currency));
        Node::leaf("Amt", text).with_attribute("Ccy", &self.currency)
    }

    fn balance(&self, kind: &str, amount: i64, at: DateTime<Utc>) -> Node {
        Node::of(
            "Bal",
            [
                Node::leaf("Tp/CdOrPrtry/Cd", kind),
                self.money(amount),
                direction(amount),
                instant("Dt/DtTm", at),
            ],
        )
    }

    fn entry(&self, line: &Line) -> Node {
        let id = line.end_to_end_id.clone().unwrap_or_else(|| "NOTPROVIDED".to_owned());
        let refs = [Node::leaf("AcctSvcrRef", line.bank_reference.clone()), Node::leaf("EndToEndId", id)];
        let mut payment = vec![Node::of("Refs", refs), self.money(line.amount)];
        payment.extend(line.text.clone().map(|text| Node::leaf("RmtInf/Ustrd", text)));
        Node::of(
            "Ntry",
            [
                self.money(line.amount),
                direction(line.amount),
                Node::leaf("Sts/Cd", "BOOK"),
                instant("BookgDt/DtTm", line.at),
                Node::leaf("AcctSvcrRef", line.bank_reference.clone()),
                Node::leaf("BkTxCd/Prtry/Cd", "TRF"),
                Node::of("NtryDtls/TxDtls", payment),
            ],
        )
    }
}

fn direction(amount: i64) -> Node {
    Node::leaf("CdtDbtInd", if amount < 0 { "DBIT" } else { "CRDT" })
}

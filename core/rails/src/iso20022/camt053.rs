//! A statement of account as a bank writes it: camt.053, or MT940. Pure.

use chrono::{DateTime, Datelike as _, TimeDelta, Utc};
use dvp_domain::money::Minor;
use serde::{Deserialize, Serialize};

use super::schema::{Message, exponent};
use super::text::{fixed, iban, plain};
use super::xml::Node;

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
        file(&self.id, self.to, [self.statement(None)])
    }

    /// The statement, of an account with a name.
    pub fn statement(&self, name: Option<&str>) -> Node {
        let kind = if iban(&self.account).is_some() { "Id/IBAN" } else { "Id/Othr/Id" };
        let account = [Node::leaf(kind, self.account.clone()), Node::leaf("Ccy", self.currency.clone())];
        let name = name.map(|name| Node::leaf("Nm", name.chars().take(70).collect::<String>()));
        let account = Node::of("Acct", account.into_iter().chain(name));
        let children = [
            Node::leaf("Id", self.id.clone()),
            Node::of("FrToDt", [instant("FrDtTm", self.from), instant("ToDtTm", self.to)]),
            account,
            self.balance("OPBD", self.opening, self.from),
            self.balance("CLBD", self.closing(), self.last()),
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
                Node::leaf("Dt/Dt", at.format("%Y-%m-%d").to_string()),
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

/// A file of statements.
pub fn file(id: &str, at: DateTime<Utc>, statements: impl IntoIterator<Item = Node>) -> String {
    let header = [Node::leaf("MsgId", id), instant("CreDtTm", at)];
    let children = [Node::of("GrpHdr", header)].into_iter().chain(statements);
    Message::Camt053.document("BkToCstmrStmt", children).render()
}

/// MT940, of an account with a name: block 4, and a line with a hyphen that ends it.
impl StatementOf {
    pub fn mt940(&self, name: &str) -> String {
        let (from, last) = (self.from.format("%y%m%d"), self.last().format("%y%m%d"));
        // The day of the year, after the year.
        let number = format!("{}{:03}", self.from.format("%y"), self.from.ordinal());
        let mut lines = vec![
            format!(":20:{from}{last}{}", self.currency),
            format!(":25:{}", self.account),
            format!(":28C:{number}/1"),
            format!(":60F:{}", self.swift_balance(self.opening, &from.to_string())),
        ];
        for line in &self.lines {
            let (sign, amount) = self.swift_amount(line.amount);
            let reference = swift_text(&line.bank_reference);
            let reference = if reference.len() <= 16 { &reference } else { "NONREF" };
            lines.push(format!(":61:{}{sign}{amount}NTRF{reference}", line.at.format("%y%m%d%m%d")));
            lines.extend(narrative(line.text.as_deref().unwrap_or(&line.bank_reference), 6));
        }
        lines.push(format!(":62F:{}", self.swift_balance(self.closing(), &last.to_string())));
        lines.extend(narrative(name, 6));
        lines.push("-".to_owned());
        lines.iter().map(|line| format!("{line}\r\n")).collect()
    }

    /// The last day of it begins at or before this.
    fn last(&self) -> DateTime<Utc> {
        (self.to - TimeDelta::milliseconds(1)).max(self.from)
    }

    fn swift_amount(&self, amount: i64) -> (char, String) {
        let text =
            fixed(Minor::new(amount.unsigned_abs().into()), exponent(&self.currency)).replace('.', ",");
        let comma = if text.contains(',') { "" } else { "," };
        (if amount < 0 { 'D' } else { 'C' }, format!("{text}{comma}"))
    }

    fn swift_balance(&self, amount: i64, day: &str) -> String {
        let (sign, amount) = self.swift_amount(amount);
        format!("{sign}{day}{}{amount}", self.currency)
    }
}

/// SWIFT's characters have no underscore.
fn swift_text(text: &str) -> String {
    plain(&text.replace('_', "-"), usize::MAX)
}

/// Field 86: lines of 65 characters at most, none of which looks like another field or the end.
fn narrative(text: &str, most: usize) -> Vec<String> {
    let text: Vec<char> = swift_text(text).chars().collect();
    let (mut lines, mut rest) = (Vec::new(), text.as_slice());
    while !rest.is_empty() && lines.len() < most {
        let mut end = rest.len().min(if lines.is_empty() { 61 } else { 65 });
        while end > 1 && rest.get(end).is_some_and(|next| matches!(next, '-' | ':' | ' ')) {
            end -= 1;
        }
        let (line, after) = rest.split_at(end);
        let tag = if lines.is_empty() { ":86:" } else { "" };
        lines.push(format!("{tag}{}", line.iter().collect::<String>()));
        rest = after;
    }
    lines
}

fn direction(amount: i64) -> Node {
    Node::leaf("CdtDbtInd", if amount < 0 { "DBIT" } else { "CRDT" })
}

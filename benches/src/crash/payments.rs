//! What a bank has, held against the orders and the database: plain observations, and a verdict over them. Each file of
//! a payment belongs to one order, no payment is in two files, and every order is paid once or not at all.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context as _, bail, ensure};
use dvp_rails::iso20022::xml::{Document, Node};
use sqlx::PgConnection;

use super::recipients::RETURNED;

/// A payment that the bank was ordered to make. It makes each that it has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Payment {
    pub file: String,
    pub id: String,
    pub account: String,
    pub amount: String,
    pub currency: String,
}

impl Payment {
    pub(super) fn is_returned(&self) -> bool {
        self.account.ends_with(RETURNED)
    }

    /// The ends of the order that it pays: the bank refuses the payments to one account, gives back those to another, and
    /// makes all others. A payment that came back before the order was completed has failed.
    pub(super) fn ends(&self) -> &'static [&'static str] {
        match self {
            payment if payment.account.ends_with("0002") => &["payout_failed"],
            payment if payment.is_returned() => &["reversed", "payout_failed"],
            _ => &["completed"],
        }
    }
}

/// An order, and the payment that it is to have.
#[derive(Debug, Clone)]
pub(super) struct Paid {
    pub reference: String,
    pub state: &'static str,
    /// It is paid on the chain, and not by the bank.
    pub is_on_chain: bool,
    pub id: String,
    pub account: String,
    pub amount: String,
    pub currency: String,
}

/// The payments of the files that the bank has received.
pub(super) fn read(bank: &Path) -> anyhow::Result<Vec<Payment>> {
    let mut payments = Vec::new();
    for file in names(bank)?.iter().filter(|name| name.ends_with(".xml")) {
        let document = Document::read(&std::fs::read(bank.join(file))?);
        let document = document.map_err(|error| anyhow::anyhow!("{file}: {error}"))?;
        let order = document.root.child("CstmrCdtTrfInitn").with_context(|| format!("{file}: no order"))?;
        for block in order.all("PmtInf") {
            for payment in block.all("CdtTrfTxInf") {
                payments.push(payment_of(file, payment).with_context(|| file.clone())?);
            }
        }
        ensure!(payments.last().is_some_and(|last| last.file == *file), "{file} has no payment");
    }
    Ok(payments)
}

fn payment_of(file: &str, payment: &Node) -> anyhow::Result<Payment> {
    let account = payment.text_at("CdtrAcct/Id/IBAN").or_else(|| payment.text_at("CdtrAcct/Id/Othr/Id"));
    let amount = payment.at("Amt/InstdAmt").context("a payment without its amount")?;
    Ok(Payment {
        file: file.to_owned(),
        id: payment.text_at("PmtId/EndToEndId").context("a payment without its id")?.to_owned(),
        account: account.context("a payment without its account")?.to_owned(),
        amount: amount.text.clone(),
        currency: amount.attribute("Ccy").context("a payment without its currency")?.to_owned(),
    })
}

/// Holds the payments against the orders.
pub(super) fn judge(orders: &[Paid], payments: &[Payment]) -> anyhow::Result<()> {
    let (mut by_id, mut files) = (BTreeMap::new(), BTreeSet::new());
    for payment in payments {
        ensure!(files.insert(&payment.file), "a file has two payments: {payment:?}");
        if let Some(before) = by_id.insert(payment.id.as_str(), payment) {
            bail!("the bank was ordered twice to make a payment: {before:?}, {payment:?}");
        }
    }
    for order in orders {
        let (reference, state) = (&order.reference, order.state);
        let Some(payment) = by_id.remove(order.id.as_str()) else {
            let is_paid = matches!(state, "completed" | "reversed");
            ensure!(!is_paid || order.is_on_chain, "{reference} is {state}, and the bank got no request");
            continue;
        };
        let same = (&payment.account, &payment.amount, &payment.currency)
            == (&order.account, &order.amount, &order.currency);
        ensure!(same && !order.is_on_chain, "{order:?}, and the bank was ordered {payment:?}");
        ensure!(
            payment.ends().contains(&state),
            "{reference} is {state}, and the bank was ordered {payment:?}"
        );
    }
    ensure!(by_id.is_empty(), "the bank was given payments of no order: {:?}", by_id.values());
    Ok(())
}

/// A payment's row.
#[derive(Debug, Clone, sqlx::FromRow)]
pub(super) struct PaymentRow {
    pub end_to_end_id: String,
    pub staged_file: String,
    pub status: String,
}

/// The folder that is shared with the bank, when nothing moves in it, and the rows about it.
#[derive(Debug, Clone, Default)]
pub(super) struct Folder {
    pub rows: Vec<PaymentRow>,
    /// The files of payments that the bank has.
    pub received: BTreeSet<String>,
    pub given: BTreeSet<String>,
    pub outbox: BTreeSet<String>,
    pub staging: BTreeSet<String>,
}

impl Folder {
    /// `root`: what is shared, with the bank's own folder in it.
    pub(super) async fn look(conn: &mut PgConnection, root: &Path) -> anyhow::Result<Self> {
        let rows = sqlx::query_as("select end_to_end_id, staged_file, status from bank_payment");
        let received = names(&root.join("bank"))?;
        Ok(Self {
            rows: rows.fetch_all(conn).await?,
            received: received.into_iter().filter(|name| name.ends_with(".xml")).collect(),
            given: names(&root.join("given"))?,
            outbox: names(&root.join("outbox"))?,
            staging: names(&root.join("staging"))?,
        })
    }

    /// The bank has exactly the files that rows name, each left its mark, and none that a row names still waits. Returns
    /// how many staged files no row names: a process stopped before their rows, or another was first.
    pub(super) fn judge(&self) -> anyhow::Result<usize> {
        let named: BTreeSet<String> =
            self.rows.iter().map(|row| format!("{}.xml", row.end_to_end_id)).collect();
        let differ = |one: &BTreeSet<String>| one.symmetric_difference(&named).cloned().collect::<Vec<_>>();
        let received = differ(&self.received);
        ensure!(received.is_empty(), "the bank's files and the payments differ by {received:?}");
        let given = differ(&self.given);
        ensure!(given.is_empty(), "the given files and the payments differ by {given:?}");
        ensure!(self.outbox.is_empty(), "the bank has not taken {:?}", self.outbox);
        for row in &self.rows {
            ensure!(row.status != "staged", "the bank has the file of {row:?}");
            ensure!(!self.staging.contains(&row.staged_file), "the file of {row:?} is still staged");
        }
        Ok(self.staging.len())
    }
}

fn names(folder: &Path) -> anyhow::Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    for entry in std::fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        names.insert(entry?.file_name().to_string_lossy().into_owned());
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(n: u32, state: &'static str) -> Paid {
        Paid {
            reference: format!("exe_{n}"),
            state,
            is_on_chain: false,
            id: format!("id-{n}"),
            account: account(state),
            amount: "92.00".into(),
            currency: "EUR".into(),
        }
    }

    fn account(state: &str) -> String {
        match state {
            "payout_failed" => "DE0002",
            "reversed" => "DE0013",
            _ => "DE0004",
        }
        .to_owned()
    }

    fn payment(n: u32, state: &str) -> Payment {
        Payment {
            file: format!("id-{n}.xml"),
            id: format!("id-{n}"),
            account: account(state),
            amount: "92.00".into(),
            currency: "EUR".into(),
        }
    }

    /// Orders of every end with their payments, one that was cancelled before its payment, and one in tokens.
    fn seen() -> (Vec<Paid>, Vec<Payment>) {
        let ends = ["completed", "payout_failed", "reversed"];
        let mut orders: Vec<Paid> = (1..).zip(ends).map(|(n, state)| order(n, state)).collect();
        orders.push(order(4, "cancelled"));
        orders.push(Paid { is_on_chain: true, ..order(5, "completed") });
        (orders, (1..).zip(ends).map(|(n, state)| payment(n, state)).collect())
    }

    #[test]
    fn each_order_with_its_own_payment_is_in_order() {
        let (orders, payments) = seen();
        judge(&orders, &payments).unwrap();
    }

    #[test]
    fn every_planted_defect_of_the_payments_is_found() {
        type Plant = fn(&mut Vec<Paid>, &mut Vec<Payment>);
        let defects: [(&str, Plant); 11] = [
            ("ordered twice", |_, payments| {
                payments.push(Payment { file: "again-2-id-1.xml".into(), ..payments[0].clone() });
            }),
            ("two payments", |orders, payments| {
                orders.push(order(6, "completed"));
                payments.push(Payment { file: "id-1.xml".into(), ..payment(6, "completed") });
            }),
            ("of no order", |_, payments| payments.push(payment(9, "completed"))),
            ("got no request", |_, payments| drop(payments.remove(0))),
            ("got no request", |orders, _| orders.push(order(1, "completed"))),
            ("bank was ordered", |_, payments| payments[0].amount = "92.01".into()),
            ("bank was ordered", |_, payments| payments[0].currency = "USD".into()),
            ("bank was ordered", |_, payments| payments[0].account = "DE0009".into()),
            ("bank was ordered", |_, payments| payments.push(payment(5, "completed"))),
            ("is cancelled", |_, payments| payments.push(payment(4, "completed"))),
            ("is completed", |orders, payments| {
                orders[1].state = "completed";
                payments[1].account = orders[1].account.clone();
            }),
        ];
        for (wanted, plant) in defects {
            let (mut orders, mut payments) = seen();
            plant(&mut orders, &mut payments);
            let found = judge(&orders, &payments).expect_err(wanted).to_string();
            assert!(found.contains(wanted), "{wanted}: {found}");
        }
    }

    fn folder() -> Folder {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let row = |id: &str| PaymentRow {
            end_to_end_id: id.to_owned(),
            staged_file: format!("{id}.f1.xml"),
            status: "paid".to_owned(),
        };
        Folder {
            rows: vec![row("a"), row("b")],
            received: names(&["a.xml", "b.xml"]),
            given: names(&["a.xml", "b.xml"]),
            outbox: BTreeSet::new(),
            // Of a process that came second.
            staging: names(&["b.f2.xml"]),
        }
    }

    #[test]
    fn every_planted_defect_of_the_folder_is_found() {
        assert_eq!(folder().judge().unwrap(), 1);
        type Plant = fn(&mut Folder);
        let defects: [(&str, Plant); 7] = [
            ("bank's files", |folder| assert!(folder.received.remove("b.xml"))),
            ("bank's files", |folder| assert!(folder.received.insert("again-2-b.xml".into()))),
            ("bank's files", |folder| drop(folder.rows.remove(0))),
            ("given files", |folder| assert!(folder.given.remove("a.xml"))),
            ("not taken", |folder| assert!(folder.outbox.insert("a.xml".into()))),
            ("bank has the file", |folder| folder.rows[0].status = "staged".into()),
            ("still staged", |folder| assert!(folder.staging.insert("a.f1.xml".into()))),
        ];
        for (wanted, plant) in defects {
            let mut seen = folder();
            plant(&mut seen);
            let found = seen.judge().expect_err(wanted).to_string();
            assert!(found.contains(wanted), "{wanted}: {found}");
        }
    }

    #[test]
    fn all_payments_of_a_file_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let payment = |id: &str| {
            let amount = Node::leaf("InstdAmt", "5.00").with_attribute("Ccy", "EUR");
            let account = Node::of("Id", [Node::leaf("IBAN", "DE0004")]);
            Node::of(
                "CdtTrfTxInf",
                [
                    Node::of("PmtId", [Node::leaf("EndToEndId", id)]),
                    Node::of("Amt", [amount]),
                    Node::of("CdtrAcct", [account]),
                ],
            )
        };
        let block = Node::of("PmtInf", [payment("a"), payment("b")]);
        let root = Node::of("Document", [Node::of("CstmrCdtTrfInitn", [block])]);
        let document = Document { namespace: "urn:test".into(), root };
        std::fs::write(dir.path().join("a.xml"), document.render()).unwrap();
        let found = read(dir.path()).unwrap();
        assert_eq!(found.iter().map(|one| one.id.as_str()).collect::<Vec<_>>(), ["a", "b"]);
        judge(&[], &found).expect_err("a file has two payments");
    }
}

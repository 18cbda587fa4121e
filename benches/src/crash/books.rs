//! The books of the bank and of the desk, held against the orders: each order is converted and paid once or not at all,
//! each file of a payment belongs to one order, and no payment is in two files.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;

use anyhow::{Context as _, bail, ensure};
use dvp_domain::plan::OrderKind;
use dvp_domain::settlement::leg::LegKind;
use dvp_rails::iso20022::instruction::end_to_end_id;
use dvp_rails::iso20022::xml::{Document, Node};
use dvp_store::orders::executions::{self, Execution};
use sqlx::PgConnection;

use super::desk::{Entry, Manner};
use super::recipients::{RETURNED, Recipients};
use super::rest::FIRST;
use crate::drill::{PATIENCE, Report, until};

/// No order is converted twice, regardless of its end.
pub(super) fn check_once(desk: &HashMap<String, Entry>) -> anyhow::Result<()> {
    for entry in desk.values() {
        ensure!(entry.filled <= 1, "an order was converted {} times: {entry:?}", entry.filled);
    }
    Ok(())
}

/// Compares every order with the requests that bank and desk received, and their results. `root` is the folder that is
/// shared with the bank. Without a desk, conversions are not compared.
pub(crate) async fn check(
    conn: &mut PgConnection,
    root: &Path,
    desk: Option<HashMap<String, Entry>>,
    recipients: &Recipients,
    report: &mut Report,
) -> anyhow::Result<()> {
    let has_desk = desk.is_some();
    let mut conversions = desk.unwrap_or_default();
    check_once(&conversions)?;
    let given = read(&root.join("bank"))?;
    report.count("payments", given.len());
    report.count("returned", given.iter().filter(|payment| payment.is_returned()).count());
    report.count("conversions", conversions.len());
    let references: Vec<(String,)> =
        sqlx::query_as("select reference from execution order by reference").fetch_all(&mut *conn).await?;
    let mut orders = Vec::with_capacity(references.len());
    for (reference,) in references {
        let execution = executions::find_by_reference(conn, &reference).await?;
        let execution = execution.with_context(|| format!("{reference} is gone"))?;
        orders.push(paid(&execution, recipients));
        if has_desk {
            check_conversion(&execution, conversions.remove(&known_as(&execution, LegKind::Offramp)))?;
        }
    }
    judge(&orders, &given)?;
    report.count("unnamedFiles", Folder::look(conn, root).await?.judge()?);
    ensure!(conversions.is_empty(), "the desk was given orders of no order: {conversions:?}");
    Ok(())
}

/// Waits until every payment that the bank gives back has reversed its order, or failed it before its end.
pub(crate) async fn await_returns(conn: &mut PgConnection, root: &Path) -> anyhow::Result<()> {
    let given = read(&root.join("bank"))?;
    let returned: Vec<String> =
        given.into_iter().filter(Payment::is_returned).map(|payment| payment.id).collect();
    let mut open: Vec<String> = Vec::new();
    let reversed = until(PATIENCE, "orders whose payments came back are reversed", async || {
        open = sqlx::query_scalar(
            "select e.reference from bank_payment p join execution e on e.reference = p.execution \
             where p.end_to_end_id = any($1) and e.state_name = 'completed'",
        )
        .bind(&returned)
        .fetch_all(&mut *conn)
        .await?;
        Ok(open.is_empty().then_some(()))
    });
    reversed.await.with_context(|| format!("not reversed: {open:?}"))
}

fn paid(execution: &Execution, recipients: &Recipients) -> Paid {
    let terms = &execution.terms;
    let units = terms.plan.priced.output.get();
    let named = terms.request.beneficiary.as_ref().and_then(|beneficiary| beneficiary.account());
    Paid {
        reference: terms.reference.to_string(),
        state: execution.state.name(),
        is_on_chain: terms.pays_on_chain(),
        id: end_to_end_id(&known_as(execution, LegKind::Payout)),
        account: recipients.account(named.unwrap_or_default()),
        amount: format!("{}.{:02}", units / 100, units % 100),
        currency: terms.output.asset.clone(),
    }
}

fn known_as(execution: &Execution, leg: LegKind) -> String {
    hex::encode(leg.reference(&execution.terms.reference))
}

fn check_conversion(execution: &Execution, entry: Option<Entry>) -> anyhow::Result<()> {
    let (terms, state) = (&execution.terms, execution.state.name());
    let reference = &terms.reference;
    let converts = terms.plan.kind == OrderKind::TokenToFiat;
    let is_converted = converts && matches!(state, "completed" | "reversed" | "payout_failed");
    let Some(entry) = entry else {
        ensure!(!is_converted, "{reference} is {state}, and the desk got no request");
        return Ok(());
    };
    let priced = &terms.plan.priced;
    let sold = priced.input.checked_sub(priced.protocol_fee).context("a fee above the input")?;
    let said = |side: &str| entry.order[side]["amountMinor"].as_str().unwrap_or_default().to_owned();
    ensure!(
        said("sell") == sold.to_string() && said("buy") == priced.gross_output.to_string(),
        "{reference} converts {sold} to {}, and the desk was ordered {}",
        priced.gross_output,
        entry.order
    );
    let is_first = priced.input.get() == u128::from(FIRST);
    ensure!(
        is_first == (entry.manner == Manner::Silent),
        "{reference} is the first order: {is_first}, {entry:?}"
    );
    ensure!(!is_converted || entry.filled == 1, "{reference} is {state}, and the desk has {entry:?}");
    // A desk that denies a conversion it has made is believed.
    let is_unconverted = entry.filled == 0 || entry.manner == Manner::FillsThenRejects;
    ensure!(is_converted || is_unconverted, "{reference} is {state}, and the desk has {entry:?}");
    Ok(())
}

/// A payment that the bank was ordered to make. It makes each that it has.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Payment {
    pub file: String,
    pub id: String,
    pub account: String,
    pub amount: String,
    pub currency: String,
}

impl Payment {
    fn is_returned(&self) -> bool {
        self.account.ends_with(RETURNED)
    }

    /// The ends of the order that it pays: the bank refuses the payments to one account, gives back those to another, and
    /// makes all others. A payment that came back before the order was completed has failed.
    fn ends(&self) -> &'static [&'static str] {
        match self {
            payment if payment.account.ends_with("0002") => &["payout_failed"],
            payment if payment.is_returned() => &["reversed", "payout_failed"],
            _ => &["completed"],
        }
    }
}

#[derive(Debug, Clone)]
struct Paid {
    pub reference: String,
    pub state: &'static str,
    /// It is paid on the chain, and not by the bank.
    pub is_on_chain: bool,
    pub id: String,
    pub account: String,
    pub amount: String,
    pub currency: String,
}

fn read(bank: &Path) -> anyhow::Result<Vec<Payment>> {
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

fn judge(orders: &[Paid], payments: &[Payment]) -> anyhow::Result<()> {
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

#[derive(Debug, Clone, sqlx::FromRow)]
struct PaymentRow {
    pub end_to_end_id: String,
    pub staged_file: String,
    pub status: String,
}

/// The folder that is shared with the bank, when nothing moves in it, and the rows about it.
#[derive(Debug, Clone, Default)]
struct Folder {
    pub rows: Vec<PaymentRow>,
    /// The files of payments that the bank has.
    pub received: BTreeSet<String>,
    pub given: BTreeSet<String>,
    pub outbox: BTreeSet<String>,
    pub staging: BTreeSet<String>,
}

impl Folder {
    /// `root`: what is shared, with the bank's own folder in it.
    async fn look(conn: &mut PgConnection, root: &Path) -> anyhow::Result<Self> {
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
    fn judge(&self) -> anyhow::Result<usize> {
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

/// The names in a folder. Those with a dot at their beginning are no files yet: a probe, or what a process was writing
/// when it was killed.
fn names(folder: &Path) -> anyhow::Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    for entry in std::fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        names.insert(entry?.file_name().to_string_lossy().into_owned());
    }
    names.retain(|name| !name.starts_with('.'));
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

//! The books of the bank and of the desk, held against the orders: each order is converted and paid once or not at all.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use dvp_domain::plan::OrderKind;
use dvp_domain::settlement::leg::LegKind;
use dvp_rails::iso20022::instruction::end_to_end_id;
use dvp_rails::iso20022::xml::Document;
use dvp_store::orders::executions::{self, Execution};
use sqlx::PgConnection;

use super::desk::{Entry, Manner};
use super::recipients::{RETURNED, Recipients};
use super::rest::FIRST;

/// A payment that the bank was ordered to make.
#[derive(Debug)]
struct Payment {
    account: String,
    amount: String,
    currency: String,
}

impl Payment {
    fn is_returned(&self) -> bool {
        self.account.ends_with(RETURNED)
    }
}

/// How much the books hold.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Booked {
    pub payments: usize,
    /// Those that came back.
    pub returned: usize,
    pub conversions: usize,
}

/// No order is converted twice, regardless of its end.
pub(super) fn check_once(desk: &HashMap<String, Entry>) -> anyhow::Result<()> {
    for entry in desk.values() {
        ensure!(entry.filled <= 1, "an order was converted {} times: {entry:?}", entry.filled);
    }
    Ok(())
}

/// Compares every order with the requests that bank and desk received, and their results. Without a desk, conversions
/// are not compared.
pub(crate) async fn check(
    conn: &mut PgConnection,
    bank: &Path,
    desk: Option<HashMap<String, Entry>>,
    recipients: &Recipients,
) -> anyhow::Result<Booked> {
    let has_desk = desk.is_some();
    let mut conversions = desk.unwrap_or_default();
    check_once(&conversions)?;
    let mut payments = payments(bank)?;
    let returned = payments.values().filter(|payment| payment.is_returned()).count();
    let booked = Booked { payments: payments.len(), returned, conversions: conversions.len() };
    let references: Vec<(String,)> =
        sqlx::query_as("select reference from execution order by reference").fetch_all(&mut *conn).await?;
    for (reference,) in references {
        let execution = executions::find_by_reference(conn, &reference).await?;
        let execution = execution.with_context(|| format!("{reference} is gone"))?;
        let known_as = |leg: LegKind| hex::encode(leg.reference(&execution.terms.reference));
        let payment = payments.remove(&end_to_end_id(&known_as(LegKind::Payout)));
        check_payment(&execution, payment, recipients)?;
        if has_desk {
            check_conversion(&execution, conversions.remove(&known_as(LegKind::Offramp)))?;
        }
    }
    ensure!(payments.is_empty(), "the bank was given payments of no order: {payments:?}");
    ensure!(conversions.is_empty(), "the desk was given orders of no order: {conversions:?}");
    Ok(booked)
}

/// Waits until every payment that the bank gives back has reversed its order.
pub(crate) async fn await_returns(
    conn: &mut PgConnection,
    bank: &Path,
    deadline: Instant,
) -> anyhow::Result<()> {
    let returned: Vec<String> =
        payments(bank)?.into_iter().filter(|(_, payment)| payment.is_returned()).map(|(id, _)| id).collect();
    loop {
        let open: Vec<(String,)> = sqlx::query_as(
            "select e.reference from bank_payment p join execution e on e.reference = p.execution \
             where p.end_to_end_id = any($1) and e.state_name <> 'reversed'",
        )
        .bind(&returned)
        .fetch_all(&mut *conn)
        .await?;
        if open.is_empty() {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "payments came back, and their orders are not reversed: {open:?}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// The payments of the files that the bank has received, by their end-to-end id. Each file that it gets is paid.
fn payments(bank: &Path) -> anyhow::Result<BTreeMap<String, Payment>> {
    let mut payments = BTreeMap::new();
    for file in std::fs::read_dir(bank)? {
        let path = file?.path();
        if path.extension().is_none_or(|extension| extension != "xml") {
            continue;
        }
        let document = Document::read(&std::fs::read(&path)?)
            .map_err(|error| anyhow::anyhow!("{}: {error}", path.display()))?;
        let payment = document.root.at("CstmrCdtTrfInitn/PmtInf/CdtTrfTxInf").context("no payment")?;
        let account = payment.text_at("CdtrAcct/Id/IBAN").or_else(|| payment.text_at("CdtrAcct/Id/Othr/Id"));
        let amount = payment.at("Amt/InstdAmt").context("a payment without its amount")?;
        let id = payment.text_at("PmtId/EndToEndId").context("a payment without its id")?;
        let read = Payment {
            account: account.context("a payment without its account")?.to_owned(),
            amount: amount.text.clone(),
            currency: amount.attribute("Ccy").context("a payment without its currency")?.to_owned(),
        };
        let before = payments.insert(id.to_owned(), read);
        ensure!(before.is_none(), "the bank was ordered twice to make {before:?}, {id}");
    }
    Ok(payments)
}

fn check_payment(
    execution: &Execution,
    payment: Option<Payment>,
    recipients: &Recipients,
) -> anyhow::Result<()> {
    let (terms, state) = (&execution.terms, execution.state.name());
    let reference = &terms.reference;
    let is_paid = matches!(state, "completed" | "reversed");
    let Some(payment) = payment else {
        ensure!(!is_paid || terms.pays_on_chain(), "{reference} is {state}, and the bank got no request");
        return Ok(());
    };
    let priced = &terms.plan.priced;
    let units = priced.output.get();
    let amount = format!("{}.{:02}", units / 100, units % 100);
    let named = terms.request.beneficiary.as_ref().and_then(|beneficiary| beneficiary.account());
    let account = recipients.account(named.unwrap_or_default());
    ensure!(
        payment.account == account && payment.amount == amount && payment.currency == terms.output.asset,
        "{reference} is to pay {amount} {} to {account}, and the bank was ordered {payment:?}",
        terms.output.asset
    );
    // The bank refuses the payments to one account, gives back those to another, and makes all others.
    let wanted = match &payment {
        payment if payment.account.ends_with("0002") => "payout_failed",
        payment if payment.is_returned() => "reversed",
        _ => "completed",
    };
    ensure!(state == wanted, "{reference} is {state}, and the bank was ordered {payment:?}");
    Ok(())
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

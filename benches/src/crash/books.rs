//! The books of the bank and of the desk, held against the orders: each order is converted and paid once or not at all.

use std::collections::HashMap;
use std::path::Path;

use anyhow::{Context as _, ensure};
use dvp_domain::plan::OrderKind;
use dvp_domain::settlement::leg::LegKind;
use dvp_rails::iso20022::instruction::end_to_end_id;
use dvp_store::orders::executions::{self, Execution};
use sqlx::PgConnection;

use super::desk::{Entry, Manner};
use super::payments::{self, Folder, Paid, Payment};
use super::recipients::Recipients;
use super::rest::FIRST;
use crate::drill::{PATIENCE, until};

/// How much the books hold.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Booked {
    pub payments: usize,
    /// Those that came back.
    pub returned: usize,
    pub conversions: usize,
    /// Files that were staged and that no payment names: they are never given to the bank.
    pub unnamed: usize,
}

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
) -> anyhow::Result<Booked> {
    let has_desk = desk.is_some();
    let mut conversions = desk.unwrap_or_default();
    check_once(&conversions)?;
    let given = payments::read(&root.join("bank"))?;
    let returned = given.iter().filter(|payment| payment.is_returned()).count();
    let conversions_made = conversions.len();
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
    payments::judge(&orders, &given)?;
    let unnamed = Folder::look(conn, root).await?.judge()?;
    ensure!(conversions.is_empty(), "the desk was given orders of no order: {conversions:?}");
    Ok(Booked { payments: given.len(), returned, conversions: conversions_made, unnamed })
}

/// Waits until every payment that the bank gives back has reversed its order, or failed it before its end.
pub(crate) async fn await_returns(conn: &mut PgConnection, root: &Path) -> anyhow::Result<()> {
    let given = payments::read(&root.join("bank"))?;
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

/// What the order says of its payment.
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

/// The reference of a leg.
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

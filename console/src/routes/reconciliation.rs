//! Reconciliation: the last comparisons, what they found, and the actions that may end a break.

use axum::extract::Path;
use dvp_domain::currency;
use dvp_domain::reconcile::BreakKind;
use dvp_store::database::changes::Subject;
use dvp_store::orders::bank::{self, BankAlarm};
use dvp_store::orders::executions;
use dvp_store::orders::received_recalls::{self, ReceivedRecall};
use dvp_store::reconcile::{self, KeptBreak};

use crate::blocks::{self, Block, Cell};
use crate::error::PageError;
use crate::lines::BreakLine;
use crate::navigation::PERSONAL;
use crate::offers::Offer;
use crate::operator::Operator;
use crate::request::{Reply, Visit};
use crate::routes::order::AtBank;
use crate::routes::{order, statement, treasury};
use crate::state::Console;
use crate::view;

const RUNS: i64 = 50;
const FILES_MAX: i64 = 200;

const BREAKS: [&str; 7] =
    ["Kind", "Subject", "Account", "#Difference", "What was found", "Proposed action", "Since"];

fn break_row(row: &KeptBreak, console: &Console) -> Vec<Cell> {
    let line = BreakLine::of(row, console);
    let subject =
        if line.reference.is_empty() { row.entity.clone().unwrap_or_default() } else { line.reference };
    vec![
        Cell::toned(line.kind, "bad"),
        Cell::found(subject),
        Cell::text(line.account),
        Cell::number(line.difference),
        Cell::text(line.detail),
        Cell::link(line.action, line.link),
        Cell::time(row.first_seen_at),
    ]
}

const RECALLS: [&str; 6] = ["Asked by", "Payment", "#Amount", "Why", "Since (UTC)", "Answer"];

fn recall_row(row: &ReceivedRecall, operator: &Operator) -> Vec<Cell> {
    let asked = &row.asked;
    let amount = asked.amount.zip(asked.currency.as_deref()).map(|(amount, currency)| {
        let decimals = currency::exponent(currency).unwrap_or_default();
        format!("{} {currency}", view::amount(&amount.to_string(), decimals))
    });
    let why = [asked.reason.as_deref(), asked.information.as_deref()];
    let offer = Offer::new("recall answer", "Answer").about("id", row.id.as_str());
    vec![
        Cell::text(&asked.assigner),
        Cell::found(&asked.end_to_end_id),
        Cell::number(amount.unwrap_or_default()),
        Cell::text(why.into_iter().flatten().collect::<Vec<_>>().join(" ")),
        Cell::time(row.received_at),
        Cell::offers(operator.offers([offer])),
    ]
}

const FILES: [&str; 3] = ["File", "What does not count", "Since (UTC)"];

fn file_row(row: &BankAlarm, operator: &Operator) -> Vec<Cell> {
    let link = format!("/bank-files/{}", view::segment(&row.subject));
    let name = if operator.may(PERSONAL) { Cell::link(&row.name, link) } else { Cell::text(&row.name) };
    vec![name, Cell::text(&row.alarm), Cell::time(row.raised_at)]
}

pub(crate) async fn show(Visit { console, operator }: Visit) -> Reply {
    let mut conn = console.reading().await?;
    let files = bank::list_file_alarms(&mut conn, FILES_MAX).await?;
    let breaks = reconcile::list_open_breaks(&mut conn).await?;
    let runs = reconcile::list_runs(&mut conn, RUNS).await?;
    let recalls = received_recalls::list(&mut conn, true, RUNS).await?;
    drop(conn);
    let run_rows = runs.iter().map(|run| {
        vec![
            Cell::link(run.id.to_string(), format!("/reconciliation/{}", run.id)),
            Cell::text(run.chain_id.map_or_else(|| "bank".to_owned(), |chain| format!("chain {chain}"))),
            Cell::number(run.block_number.map(|block| block.to_string()).unwrap_or_default()),
            Cell::count(run.subjects),
            if run.breaks == 0 {
                Cell::number("0")
            } else {
                Cell { is_number: true, ..Cell::toned(run.breaks.to_string(), "bad") }
            },
            Cell::time(run.finished_at),
        ]
    });
    let open = Block::table(
        "Open breaks",
        &BREAKS,
        "The last comparisons found no difference.",
        breaks.iter().map(|row| break_row(row, &console)),
    );
    let asked = (!recalls.is_empty()).then(|| {
        let rows = recalls.iter().map(|row| recall_row(row, &operator));
        Block::table("Money that banks ask back", &RECALLS, "", rows)
    });
    let files: Vec<_> = files.iter().map(|alarm| file_row(alarm, &operator)).collect();
    let files =
        (!files.is_empty()).then(|| Block::table("Files of the bank that need a person", &FILES, "", files));
    let headings = ["Run", "Compared with", "#Block", "#Subjects", "#Breaks", "Finished (UTC)"];
    let runs = Block::table("Last runs", &headings, "Nothing was compared yet.", run_rows);
    blocks::render(
        operator.page("Reconciliation", "Reconciliation").live(&[Subject::Breaks]),
        None,
        [open].into_iter().chain(files).chain(asked).chain([runs]).collect(),
    )
}

pub(crate) async fn run(Visit { console, operator }: Visit, Path(id): Path<String>) -> Reply {
    let number = id.parse().map_err(|_| PageError::NotFound(format!("run {id}")))?;
    let mut conn = console.reading().await?;
    let breaks = reconcile::list_breaks(&mut conn, number).await?;
    drop(conn);
    let rows = breaks.iter().map(|row| break_row(row, &console));
    let found = Block::table("Breaks", &BREAKS, "This run found no difference, or is no longer kept.", rows);
    blocks::render(operator.page("Reconciliation", format!("Run {id}")), None, vec![found])
}

/// What a proposed action is, for operators.
fn describe(action: &str) -> &'static str {
    match action {
        "page" => {
            "Find out now what happened: money may be lost. The order's page has everything that is known."
        }
        "cancel" => {
            "IntentSettler.cancel returns the funds to the wallet. Anyone may call it; the relayer does."
        }
        "refund" => "Escrow.refund returns the funds to the wallet from the timelock on. Anyone may call it.",
        "return" => {
            "Two operators sign IntentSettler.returnFilled; `dvp execution resolve` takes the signatures."
        }
        "settle" => "Find out on the page of chains why the relayer has not settled, before the timelock.",
        "anchor" => "Find out on the page of chains why the relayer has not anchored the receipt.",
        "resolve" => "Decide about the order, once the outcome of the leg at the rail is known.",
        "rescan" => {
            "Compare the index with another endpoint of the chain; resume the chain where they differ."
        }
        "ask_bank" => {
            "Request the statement, or the payment's status, from the bank; recall the payment if it is wrong."
        }
        "post" => "Request the posting of what happened outside; another operator approves it.",
        _ => "",
    }
}

/// A break: what was found, what it is about, and the requests that may end it.
pub(crate) async fn show_break(
    Visit { console, operator }: Visit,
    Path((run, ordinal)): Path<(String, String)>,
) -> Reply {
    let missing = || PageError::NotFound(format!("break {run}/{ordinal}"));
    let (Ok(run_id), Ok(place)) = (run.parse(), ordinal.parse()) else { return Err(missing()) };
    let mut conn = console.reading().await?;
    let found = reconcile::find_break(&mut conn, run_id, place).await?.ok_or_else(missing)?;
    let execution = match &found.reference {
        Some(reference) => executions::find_by_reference(&mut conn, reference).await?,
        None => None,
    };
    let at_bank = match &execution {
        Some(execution) => Some(AtBank::find(&mut conn, execution.terms.reference.as_str()).await?),
        None => None,
    };
    drop(conn);
    let line = BreakLine::of(&found, &console);
    let mut facts = vec![
        ("What was found", Cell::text(&line.detail)),
        ("Proposed action", Cell::text(&line.action)),
        ("What it is", Cell::text(describe(&found.action))),
        ("First seen", Cell::time(found.first_seen_at)),
    ];
    if let Some(reference) = &found.reference {
        let cell = match &execution {
            Some(_) => {
                let link = view::order(reference);
                Cell { class: "id".to_owned(), ..Cell::link(reference, link) }
            }
            None => Cell::found(reference),
        };
        facts.push(("Subject", cell));
    }
    facts.extend(found.entity.iter().map(|entity| ("Id on the chain", Cell::found(entity))));
    facts.extend(found.account.iter().map(|account| ("Account outside", Cell::text(account))));
    if !line.difference.is_empty() {
        facts.push(("Difference", Cell::text(&line.difference)));
    }
    facts.extend(
        ledger_account(&found).map(|account| ("Ledger", Cell::link(&account, statement::address(&account)))),
    );
    let offers = offers(&found, execution.as_ref().zip(at_bank), &operator, &console);
    let mut all = vec![Block::facts("Break", facts)];
    all.extend(offers);
    let title = format!("Break: {}", line.kind);
    let state = Cell::toned(format!("run {run_id}"), "bad");
    blocks::render(
        operator.page("Reconciliation", title).live(&[Subject::Breaks, Subject::Approvals]),
        Some(state),
        all,
    )
}

/// The ledger's account beside the account outside.
fn ledger_account(found: &KeptBreak) -> Option<String> {
    match found.account.as_deref()?.split_once(':') {
        Some(("bank", _)) => Some("external:bank".to_owned()),
        Some(("wallet", address)) => Some(format!("external:{address}")),
        _ => (found.account.as_deref() == Some("escrow")).then(|| "escrow".to_owned()),
    }
}

/// The requests that may end a break, for those who may make them.
fn offers(
    found: &KeptBreak,
    order: Option<(&executions::Execution, AtBank)>,
    operator: &Operator,
    console: &Console,
) -> Vec<Block> {
    let mut all = Vec::new();
    if let Some((execution, at_bank)) = order {
        all.push(("Decide about the order", operator.offers(order::offers(execution, at_bank))));
    }
    if matches!(found.action.as_str(), "post" | "ask_bank" | "page") {
        let asset = found.asset.clone().unwrap_or_default();
        let difference = found.difference.as_deref().unwrap_or_default();
        let came_in = !difference.is_empty() && !difference.starts_with('-') && order.is_none();
        let amount = difference.trim_start_matches('-');
        let amount =
            if amount.is_empty() { String::new() } else { view::amount(amount, console.decimals(&asset)) };
        let id = found.reference.clone().filter(|_| order.is_none()).unwrap_or_default();
        let deposits = treasury::deposits().into_iter().filter(|_| came_in);
        let offers = deposits.chain(treasury::postings()).map(|offer| {
            let offer = if asset.is_empty() { offer } else { offer.proposed("asset", &asset) };
            let offer = if amount.is_empty() { offer } else { offer.proposed("amount-minor", &amount) };
            if id.is_empty() { offer } else { offer.proposed("id", &id) }
        });
        all.push(("Post an operation of the ledger", operator.offers(offers)));
    }
    let is_closable = BreakKind::parse(&found.kind).is_some_and(BreakKind::is_closable);
    let about = found.reference.as_ref().filter(|_| order.is_none()).or(found.entity.as_ref());
    let close = about.filter(|_| is_closable).map(|about| {
        Offer::new("execution close-break", "Close the break")
            .about("type", &found.kind)
            .about("about", about)
    });
    all.push(("The break itself", operator.offers(close)));
    all.into_iter()
        .filter(|(_, offers)| !offers.is_empty())
        .map(|(title, offers)| Block::offers(title, offers))
        .collect()
}

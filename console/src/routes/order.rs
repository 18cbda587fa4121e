//! An order: its terms, its state, and everything that happened to it.

use askama::Template;
use axum::extract::Path;
use axum::response::{Html, IntoResponse as _};
use dvp_core::operators::operations::EXECUTION;
use dvp_ops::actions::executions::{Choice, choices};
use dvp_store::database::changes::Subject;
use dvp_store::database::clock;
use dvp_store::operators::accounts::ConsoleAction;
use dvp_store::operators::approvals;
use dvp_store::operators::overview::{self, Lately};
use dvp_store::orders::bank_messages::{self, BankMessage};
use dvp_store::orders::executions::{self, Execution};
use dvp_store::orders::listing::{self, OrderRow};
use dvp_store::orders::{bank, operations, recalls, receipts};
use dvp_store::{PgConnection, StoreError};

use crate::error::PageError;
use crate::lanes::{self, Lanes};
use crate::lines::{ApprovalLine, OrderLine};
use crate::navigation::PERSONAL;
use crate::offers::Offer;
use crate::request::{Reply, Visit};
use crate::timeline::{self, Happening};
use crate::view::{self, Moment, Page};

#[derive(Template)]
#[template(path = "order.html")]
struct OrderPage {
    page: Page,
    reference: String,
    state: String,
    tone: &'static str,
    version: i64,
    input: String,
    output: String,
    accepted: Moment,
    deadline: Moment,
    terms: Vec<Term>,
    failure: Option<String>,
    timeline: Vec<Happening>,
    lanes: Option<Lanes>,
    /// What it waits for, and until when.
    now: Vec<(&'static str, String)>,
    /// The newest request about it.
    approval: Option<ApprovalLine>,
    /// Where its documents are, for an operator who may read them.
    documents: Option<String>,
    /// What can be decided now, by operators who may.
    offers: Vec<Offer>,
}

/// A term of an order. An identifier leads to what it names.
struct Term {
    name: &'static str,
    value: String,
    link: Option<String>,
}

async fn load(conn: &mut PgConnection, reference: &str) -> Result<Execution, PageError> {
    let found = executions::find_by_reference(conn, reference).await?;
    found.ok_or_else(|| PageError::NotFound(format!("order {reference}")))
}

pub(crate) async fn show(Visit { console, operator }: Visit, Path(reference): Path<String>) -> Reply {
    let mut conn = console.reading().await?;
    let execution = load(&mut conn, &reference).await?;
    let history = operations::load_history(&mut conn, &reference).await?;
    let approval = approvals::find_newest(&mut conn, EXECUTION, &reference).await?;
    let at_bank = AtBank::find(&mut conn, &reference).await?;
    let row = listing::find(&mut conn, &reference).await?;
    let usual = overview::load_lately(&mut conn).await?;
    drop(conn);
    let terms = &execution.terms;
    let documents =
        operator.may(PERSONAL).then(|| format!("/orders/{}/documents", view::segment(&reference)));
    let timeline = timeline::of(&history, |asset| console.decimals(asset), documents.as_deref());
    let state = execution.state.name();
    let amount = |given: &dvp_domain::terms::AssetAmount| {
        format!("{} {}", view::amount(&given.amount.to_string(), given.exponent), given.asset)
    };
    let page = OrderPage {
        page: operator.page("Orders", format!("Order {reference}")).live(&[
            Subject::Feed,
            Subject::Approvals,
            Subject::Breaks,
        ]),
        state: view::words(state),
        tone: view::tone(state),
        version: execution.version,
        input: amount(&terms.input),
        output: amount(&terms.output),
        accepted: terms.accepted_at.to_utc().into(),
        deadline: terms.request.deadline.to_utc().into(),
        terms: terms_of(&execution, row.as_ref().map(|row| row.partner.as_str())),
        failure: execution.state.failure().map(|failure| format!("{}: {}", failure.code, failure.message)),
        lanes: lanes::of(&timeline),
        now: row.map(|row| now(&execution, &row, &timeline, &usual)).unwrap_or_default(),
        timeline,
        approval: approval.as_ref().map(ApprovalLine::from),
        documents,
        offers: operator.offers(offers(&execution, at_bank)),
        reference,
    };
    Ok(Html(page.render()?).into_response())
}

/// What an open order waits for and since when, until when it may, and how long others have taken.
fn now(
    execution: &Execution,
    row: &OrderRow,
    timeline: &[Happening],
    usual: &Lately,
) -> Vec<(&'static str, String)> {
    if row.terminal_at.is_some() {
        return vec![("Took", view::took(row.accepted_at, row.terminal_at))];
    }
    let line = OrderLine::from(row);
    let last = timeline.iter().rev().find(|one| one.kind != "ledger").map(|one| one.time);
    let deadlines = execution.state.lock().map(|lock| &lock.deadlines);
    let until = |at: dvp_domain::time::Timestamp| {
        let (left, at) = (
            at.to_utc().signed_duration_since(clock::now().to_utc()).num_seconds(),
            Moment::from(at.to_utc()),
        );
        if left < 0 {
            format!("{} UTC, passed", at.text)
        } else {
            format!("{} UTC, in {}", at.text, view::span(left))
        }
    };
    let facts = [
        ("Waits for", Some(line.waits_for).filter(|what| !what.is_empty())),
        ("Nothing has happened for", last.map(view::age)),
        ("Alarm", Some(line.alarm).filter(|alarm| !alarm.is_empty())),
        ("Begins to settle until", deadlines.map(|all| until(all.begin_before))),
        ("Pays until", deadlines.map(|all| until(all.pay_before))),
        ("Timelock", deadlines.map(|all| until(all.settle_at))),
        ("Open for", Some(view::age(row.accepted_at))),
        ("Others take", usual.words()),
    ];
    facts.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}

/// The decisions that the order's state can take, and a recall of its payment.
pub(crate) fn offers(execution: &Execution, at_bank: AtBank) -> Vec<Offer> {
    let terms = &execution.terms;
    let reference = terms.reference.as_str();
    let decide = |choice: Choice| {
        let (action, leg) = choice.values();
        let offer = Offer::new("execution resolve", choice.words)
            .about("action", action)
            .about("leg", leg.unwrap_or_default())
            .about("reference", reference)
            .about("confirm", reference)
            .about("seen-version", execution.version.to_string())
            .only(choice.fields)
            .unit("input-minor", &terms.input.asset)
            .unit("output-minor", &terms.output.asset)
            .unit("came-minor", &terms.output.asset);
        if choice.moves_money() { offer.dangerous() } else { offer }
    };
    let mut all: Vec<Offer> = choices(execution).map(decide).collect();
    if at_bank.is_recalled {
        all.push(Offer::new("recall close", "Close the recall").about("id", reference));
    } else if at_bank.is_ordered {
        all.push(Offer::new("recall request", "Request a recall").about("id", reference));
    }
    all
}

/// What a bank has of an order, which decides about recalls.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AtBank {
    /// A payment was ordered.
    is_ordered: bool,
    /// A recall of it is open.
    is_recalled: bool,
}

impl AtBank {
    pub(crate) async fn find(conn: &mut PgConnection, reference: &str) -> Result<Self, PageError> {
        let is_ordered = bank::find_standing(conn, reference).await?.is_some();
        let is_recalled = is_ordered && recalls::find_open(conn, reference).await?.is_some();
        Ok(Self { is_ordered, is_recalled })
    }
}

fn terms_of(execution: &Execution, partner: Option<&str>) -> Vec<Term> {
    let terms = &execution.terms;
    let request = &terms.request;
    let found = |name, value: &str| Term { name, value: value.to_owned(), link: Some(view::found(value)) };
    let plain = |name, value: String| Term { name, value, link: None };
    let mut all = vec![
        Term {
            name: "Partner",
            value: partner.map_or_else(|| terms.partner_id.to_string(), ToOwned::to_owned),
            link: Some(view::found(&terms.partner_id.to_string())),
        },
        found("Intent", &request.intent_id),
    ];
    all.extend(request.client_reference.as_deref().map(|reference| found("Client reference", reference)));
    all.extend(request.quote_id.as_deref().map(|quote| plain("Quote", quote.to_owned())));
    if terms.locks() {
        all.push(found("Paying wallet", &request.user.to_lowercase()));
    }
    all.push(found("Id on the chain", &terms.entity));
    all.push(plain("Actor", format!("{:?}", request.actor_type).to_lowercase()));
    all.push(plain("Side", format!("{:?}", request.side).to_lowercase()));
    let slices = terms.plan.slices.iter().map(|slice| slice.provider_id.as_str());
    all.push(plain("Providers", slices.collect::<Vec<_>>().join(", ")));
    all
}

#[derive(Template)]
#[template(path = "documents.html")]
struct DocumentsPage {
    page: Page,
    reference: String,
    documents: Vec<(&'static str, String)>,
    messages: Vec<MessageLine>,
}

/// A message to or from the bank, and where its text is while it is kept.
struct MessageLine {
    at: Moment,
    title: String,
    file: String,
    link: Option<String>,
}

/// The stored documents, personal data included. The look is an entry of the audit log, which is written first.
pub(crate) async fn documents(Visit { console, operator }: Visit, Path(reference): Path<String>) -> Reply {
    let mut conn = console.acting().await?;
    let execution = load(&mut conn, &reference).await?;
    operator.record(&mut conn, ConsoleAction::Read, "GET /orders/{reference}/documents", &reference).await?;
    let receipt = receipts::find_body(&mut conn, &reference).await?;
    let messages = bank_messages::list(&mut conn, &reference).await?;
    drop(conn);
    let mut documents = vec![("Terms", document(&execution.terms)?), ("State", document(&execution.state)?)];
    documents.extend(receipt.map(|receipt| ("Receipt", receipt)));
    let line = |message: BankMessage| MessageLine {
        at: message.at.into(),
        title: format!(
            "{} {}: {}",
            if message.is_sent { "sent" } else { "received" },
            message.message,
            message.said
        ),
        link: message
            .is_kept
            .then(|| format!("/orders/{}/documents/{}", view::segment(&reference), message.digest)),
        file: message.file,
    };
    let messages = messages.into_iter().map(line).collect();
    let page = operator.page("Orders", format!("Documents of {reference}"));
    Ok(Html(DocumentsPage { page, reference, documents, messages }.render()?).into_response())
}

/// The text of a message to or from the bank about the order. A file of the bank may name other orders, too. The look
/// is an entry of the audit log, which is written first.
pub(crate) async fn bank_document(
    Visit { console, operator }: Visit,
    Path((reference, digest)): Path<(String, String)>,
) -> Reply {
    let mut conn = console.acting().await?;
    load(&mut conn, &reference).await?;
    let bytes =
        hex::decode(&digest).map_err(|_| PageError::Invalid("a digest is hexadecimal.".to_owned()))?;
    let route = format!("GET /orders/{{reference}}/documents/{}", hex::encode(&bytes));
    operator.record(&mut conn, ConsoleAction::Read, &route, &reference).await?;
    let found = bank_messages::find_document(&mut conn, &reference, &bytes).await?;
    let content = found.ok_or_else(|| PageError::NotFound(format!("document {digest} of {reference}")))?;
    drop(conn);
    let page = operator.page("Orders", format!("Document of {reference}"));
    let documents = vec![("Message", content)];
    Ok(Html(DocumentsPage { page, reference, documents, messages: Vec::new() }.render()?).into_response())
}

/// A stored document without the permit's signature, which is the user's authorization.
fn document(value: &impl serde::Serialize) -> Result<String, PageError> {
    let corrupt = |error| PageError::from(StoreError::corrupt("execution", error));
    let mut value = serde_json::to_value(value).map_err(corrupt)?;
    if let Some(signature) = value.pointer_mut("/request/permit/signature") {
        *signature = "not shown".into();
    }
    serde_json::to_string_pretty(&value).map_err(corrupt)
}

//! Requests of operators: lists, one with its details, and the decision of another operator about it.

use std::collections::HashMap;

use askama::Template;
use axum::extract::Path;
use axum::http::Uri;
use axum::response::{Html, IntoResponse as _};
use dvp_core::operators::invitations;
use dvp_core::operators::operations::EXECUTION;
use dvp_core::operators::requests::is_same_operator;
use dvp_ops::APPROVAL;
use dvp_store::database::changes::Subject;
use dvp_store::operators::accounts::sessions;
use dvp_store::operators::approvals::{self, Approval, Filter};
use dvp_store::orders::executions::{self, Execution};
use dvp_store::orders::{bank_messages, listing};
use dvp_store::partners::registry;
use serde_json::{Value, json};

use crate::blocks::{self, Block, Cell};
use crate::error::PageError;
use crate::filter::{self, links};
use crate::lines::{ApprovalLine, OrderLine};
use crate::request::{self, Fields, Reply, Visit};
use crate::view::{self, Moment, Page};

const ROWS: usize = 50;
const STATES: [&str; 4] = ["pending", "approved", "denied", "lapsed"];

pub(crate) async fn list(Visit { console, operator }: Visit, uri: Uri) -> Reply {
    let given = Fields::asked(&uri);
    let wanted = given.one("state");
    let state = STATES.into_iter().find(|state| *state == wanted);
    if state.is_none() && !wanted.is_empty() {
        return Err(PageError::Invalid(format!("There is no state {wanted}.")));
    }
    let before = Some(given.one("before")).filter(|place| !place.is_empty());
    let before = before.map(request::placed).transpose()?;
    let limit = i64::try_from(ROWS + 1).unwrap_or(i64::MAX);
    let mut conn = console.reading().await?;
    let mut rows = approvals::list(&mut conn, &Filter { state, kind: None, before, limit }).await?;
    let filter = filter::Filter::new("/approvals", vec![links("state", STATES)], &given);
    let filter = filter.with_saved(&mut conn, &operator).await?;
    drop(conn);
    let has_more = rows.len() > ROWS;
    rows.truncate(ROWS);
    let last = rows.last().filter(|_| has_more).map(|row| view::place(row.requested_at, &row.id));
    let headings = ["Requested (UTC)", "Request", "Subject", "Maker", "Reason", "State", "Checker"];
    let table = Block::table("Requests", &headings, "There is no such request.", rows.iter().map(row));
    let page = operator.page("Approvals", "Approvals").live(&[Subject::Approvals]);
    let table = table.paged(&filter, last, None);
    blocks::list(page, None, filter, vec![table])
}

fn row(row: &Approval) -> Vec<Cell> {
    let line = ApprovalLine::from(row);
    vec![
        Cell::time(line.requested),
        Cell::link(format!("{}: {}", line.kind, line.action), view::approval(&line.id)),
        Cell { link: line.link, ..Cell::id(line.subject) },
        Cell::text(line.maker),
        Cell::text(line.reason),
        Cell::toned(line.state, line.tone),
        Cell::text(line.checker),
    ]
}

#[derive(Template)]
#[template(path = "approval.html")]
struct ApprovalPage {
    page: Page,
    line: ApprovalLine,
    evidence: String,
    expires: Moment,
    decided: Option<Moment>,
    note: String,
    fields: Vec<(String, String)>,
    /// Of a decision about an order: the order.
    order: Vec<(&'static str, String)>,
    version: i64,
    /// The subject has another version now, so that the request cannot be approved.
    moved_to: Option<i64>,
    is_open: bool,
    is_own: bool,
    may_approve: bool,
    may_deny: bool,
    /// The operator has approved an invitation whose link was not made yet.
    may_make_link: bool,
}

pub(crate) async fn show(Visit { console, operator }: Visit, Path(id): Path<String>) -> Reply {
    let mut conn = console.reading().await?;
    let request = find(&mut conn, &id).await?;
    let subject = match request.kind.as_str() {
        EXECUTION => executions::find_by_reference(&mut conn, &request.subject).await?,
        _ => None,
    };
    let may_make_link =
        invitations::may_make_link(&request, &operator.name) && !sessions::has_link(&mut conn, &id).await?;
    let mut ids = Vec::new();
    find_partners(&request.details, &mut ids);
    let names = registry::list_names(&mut conn, &ids).await?;
    let order = match &subject {
        Some(execution) => order(&mut conn, execution).await?,
        None => Vec::new(),
    };
    drop(conn);
    let details = named(&request.details, &names);
    let terms = subject.as_ref().map(|execution| &execution.terms);
    let asset = |field: &str| {
        let of_order = terms.and_then(|terms| match field {
            "input" => Some(terms.input.asset.as_str()),
            "output" | "came" => Some(terms.output.asset.as_str()),
            _ => None,
        });
        of_order.or_else(|| details["asset"].as_str())
    };
    let fields = fields(&details, &asset, &|asset| console.decimals(asset));
    let is_open = request.state == "pending" && !request.is_expired;
    let is_own = is_same_operator(&request.maker, &operator.name);
    let may_approve = operator.may(APPROVAL);
    let moved_to = subject.map(|execution| execution.version).filter(|version| *version != request.version);
    let page = ApprovalPage {
        page: operator.page("Approvals", format!("Request {id}")).live(&[Subject::Approvals]),
        evidence: request.evidence.clone(),
        expires: request.expires_at.into(),
        decided: request.decided_at.map(Moment::from),
        note: request.note.clone().unwrap_or_default(),
        fields,
        order,
        version: request.version,
        moved_to: moved_to.filter(|_| is_open),
        is_open,
        is_own,
        may_approve: may_approve && !is_own,
        may_deny: may_approve || is_own,
        may_make_link: may_make_link && may_approve,
        line: ApprovalLine::from(&request),
    };
    Ok(Html(page.render()?).into_response())
}

/// What an approver has to know of the order that a decision is about.
async fn order(
    conn: &mut dvp_store::PgConnection,
    execution: &Execution,
) -> Result<Vec<(&'static str, String)>, PageError> {
    let reference = execution.terms.reference.as_str();
    let Some(row) = listing::find(conn, reference).await? else { return Ok(Vec::new()) };
    let line = OrderLine::from(&row);
    let said = bank_messages::list(conn, reference).await?.pop();
    let said = said.map(|one| format!("{} {}: {}", Moment::from(one.at).text, one.message, one.said));
    let facts = [
        ("Partner", line.partner),
        ("Pays", format!("{} {}", line.input, line.input_asset)),
        ("Gets", format!("{} {}", line.output, line.output_asset)),
        ("State", line.state),
        ("Waits for", line.waits_for),
        ("Alarm", line.alarm),
        ("Last message of the bank", said.unwrap_or_default()),
    ];
    Ok(facts.into_iter().filter(|(_, value)| !value.is_empty()).collect())
}

async fn find(conn: &mut dvp_store::PgConnection, id: &str) -> Result<Approval, PageError> {
    approvals::find(conn, id).await?.ok_or_else(|| PageError::NotFound(format!("request {id}")))
}

/// What means nothing to an operator, or is shown beside.
const UNSHOWN: [&str; 7] =
    ["passwordHash", "masterKey", "partnerId", "before", "change", "livemode", "refusal"];
/// Sealed: an operator sees that it is set.
const SEALED: &str = "logonSecret";

/// The ids of the partners that own what a request is about: `{"partner": {"id": …}}`, at any depth.
fn find_partners<'a>(details: &'a Value, ids: &mut Vec<&'a str>) {
    for (name, value) in details.as_object().into_iter().flatten() {
        match (name.as_str(), value["id"].as_str()) {
            ("partner", Some(id)) => ids.push(id),
            _ => find_partners(value, ids),
        }
    }
}

/// The details with the names of these partners beside their ids.
fn named(details: &Value, names: &HashMap<String, String>) -> Value {
    let Value::Object(fields) = details else { return details.clone() };
    let fields = fields.iter().map(|(field, value)| {
        let id = value["id"].as_str().filter(|_| field == "partner");
        let value = match id.and_then(|id| Some((id, names.get(id)?))) {
            Some((id, name)) => json!({"id": format!("{name} ({id})")}),
            None => named(value, names),
        };
        (field.clone(), value)
    });
    Value::Object(fields.collect())
}

/// The fields of a request's details. Of a session's settings, those that the request changes.
fn fields<'a>(
    details: &Value,
    asset: &dyn Fn(&str) -> Option<&'a str>,
    decimals: &dyn Fn(&str) -> u8,
) -> Vec<(String, String)> {
    let mut all = Vec::new();
    let before = details.get("before");
    for (name, value) in details.as_object().into_iter().flatten() {
        match (name.as_str(), value) {
            (name, value) if UNSHOWN.contains(&name) || value.is_null() || *value == "" => {}
            ("amount" | "amountMinor" | "input" | "output" | "came", value) => {
                let minor = text(value);
                let shown =
                    asset(name).map(|asset| format!("{} {asset}", view::amount(&minor, decimals(asset))));
                let shown = shown.unwrap_or_else(|| format!("{minor} minor units"));
                all.push((label(name.trim_end_matches("Minor")), shown));
            }
            ("settings", Value::Object(settings)) => {
                all.extend(settings.iter().filter_map(|(name, value)| {
                    let shown = changed(name, value, before.and_then(|before| before.get(name)))?;
                    Some((label(name), shown))
                }))
            }
            _ => all.push((label(name), text(value))),
        }
    }
    all
}

/// A setting that a request changes; of a new session, one that is not off.
fn changed(name: &str, value: &Value, before: Option<&Value>) -> Option<String> {
    let shown =
        |value: &Value| if name == SEALED && !value.is_null() { "set".to_owned() } else { text(value) };
    match before {
        Some(before) => (before != value).then(|| format!("{} (now {})", shown(value), shown(before))),
        None => (!value.is_null() && *value != Value::Bool(false)).then(|| shown(value)),
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::Null => "none".to_owned(),
        Value::Bool(is_so) => if *is_so { "yes" } else { "no" }.to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(list) => list.iter().map(text).collect::<Vec<_>>().join(", "),
        Value::Number(_) => value.to_string(),
        // An owner, an account: `available provider northwind`.
        Value::Object(fields) => {
            let shown = fields.iter().filter(|(name, _)| !UNSHOWN.contains(&name.as_str()));
            let words = shown.map(|(name, value)| match name.as_str() {
                "id" => text(value),
                name => format!("{} {}", view::words(name), text(value)),
            });
            words.collect::<Vec<_>>().join(" ")
        }
    }
}

/// The words of a field's name: `keyId` is Key id. Fields of FIX have their names.
fn label(name: &str) -> String {
    match name {
        "beginString" => return "BeginString".to_owned(),
        "clientCompId" => return "Peer's CompID".to_owned(),
        "serviceCompId" => return "Our CompID".to_owned(),
        "defaultApplVerId" => return "DefaultApplVerID".to_owned(),
        "allowedSources" => return "Networks of the peer".to_owned(),
        _ => {}
    }
    let mut label = String::with_capacity(name.len() + 4);
    for letter in name.chars() {
        if letter.is_ascii_uppercase() {
            label.push(' ');
        }
        label.push(if label.is_empty() { letter.to_ascii_uppercase() } else { letter.to_ascii_lowercase() });
    }
    view::words(&label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_approver_sees_an_amount_in_units_of_its_asset() {
        let shown = |details: Value| fields(&details, &|_| details["asset"].as_str(), &|_| 2);
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let limit = json!({"amountMinor": 1_000_000, "asset": "USD", "target": "", "period": "order"});
        let expected = [pair("Amount", "10,000.00 USD"), pair("Asset", "USD"), pair("Period", "order")];
        assert_eq!(shown(limit), expected);
        assert_eq!(shown(json!({"amount": "5"})), [pair("Amount", "5 minor units")]);
        let removed = json!({"amountMinor": null, "asset": "USD"});
        assert_eq!(shown(removed), [pair("Asset", "USD")]);
    }

    #[test]
    fn an_approver_sees_whose_account_it_is() {
        let owner = json!({"partner": {"id": "ptn_1", "livemode": true}});
        let credit = json!({"operation": "adjustment", "account": {"available": owner}});
        let withdrawal = json!({"operation": "withdrawal", "owner": {"provider": "north"}});
        let names = HashMap::from([("ptn_1".to_owned(), "acme".to_owned())]);
        let all = [&credit, &withdrawal].map(|details| {
            let mut ids = Vec::new();
            find_partners(details, &mut ids);
            let shown = fields(&named(details, &names), &|_| None, &|_| 2);
            let shown: Vec<_> = shown.into_iter().map(|(name, value)| format!("{name}: {value}")).collect();
            (ids, shown.join("; "))
        });
        let expected = [
            (vec!["ptn_1"], "Account: available partner acme (ptn_1); Operation: adjustment"),
            (vec![], "Operation: withdrawal; Owner: provider north"),
        ];
        assert_eq!(all, expected.map(|(ids, shown)| (ids, shown.to_owned())));
    }
}

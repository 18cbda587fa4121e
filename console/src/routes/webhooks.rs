//! Webhook endpoints, their deliveries with all attempts, and repeated deliveries.

use axum::extract::Path;
use chrono::{DateTime, Utc};
use dvp_core::engine::webhooks::{
    self as core_webhooks, Command, CommandOutcome, Owner, WebhookError, WebhookRejection,
};
use dvp_store::database::changes::Subject;
use dvp_store::operators::accounts::ConsoleAction;
use dvp_store::orders::idempotency::StoredResponse;
use dvp_store::webhooks::deliveries::{self, LogFilter, LoggedAttempt};
use dvp_store::webhooks::{self, Endpoint};
use serde::Deserialize;

use crate::blocks::{self, Block, Cell, Field, Form as FormBlock};
use crate::error::PageError;
use crate::navigation::OPERATION;
use crate::operator::Operator;
use crate::request::{Asked, Reply, Sent, Visit, lead_to};
use crate::state::Console;
use crate::view::{self};

const ROWS: i64 = 100;
const DELIVERIES: i64 = 50;

#[derive(Debug, Default, Deserialize)]
pub(crate) struct WebhooksQuery {
    #[serde(default)]
    after: String,
    #[serde(default)]
    before: String,
}

fn address(id: &str) -> String {
    format!("/webhooks/{}", view::segment(id))
}

fn state(endpoint: &Endpoint) -> Cell {
    match (endpoint.is_active, endpoint.health.failing_since) {
        (false, _) => Cell::state("inactive"),
        (true, Some(_)) => Cell::state("failing"),
        (true, None) => Cell::state("active"),
    }
}

pub(crate) async fn list(Visit { console, operator }: Visit, Asked(query): Asked<WebhooksQuery>) -> Reply {
    let mut conn = console.reading().await?;
    let endpoints = webhooks::list(&mut conn, None, &query.after, ROWS).await?;
    drop(conn);
    let rows = endpoints.iter().map(|row| {
        vec![
            Cell { class: "id".to_owned(), ..Cell::link(&row.id, address(&row.id)) },
            Cell::found(&row.tenant.partner_id),
            Cell::text(&row.url),
            state(row),
            Cell::maybe_time(row.health.failing_since.map(|since| since.to_utc())),
            Cell::text(row.subscribed_types.join(", ")),
        ]
    });
    let headings = ["Endpoint", "Partner", "URL", "State", "Failing since", "Events"];
    let mut table = Block::table("Endpoints", &headings, "There is no endpoint.", rows);
    let is_full = i64::try_from(endpoints.len()) == Ok(ROWS);
    table.older =
        endpoints.last().filter(|_| is_full).map(|row| format!("/webhooks?after={}", view::segment(&row.id)));
    blocks::render(operator.page("Webhooks", "Webhooks").live(&[Subject::Webhooks]), None, vec![table])
}

async fn find(conn: &mut dvp_store::PgConnection, id: &str) -> Result<Endpoint, PageError> {
    let found = webhooks::find_many(conn, &[id]).await?.pop();
    found.ok_or_else(|| PageError::NotFound(format!("endpoint {id}")))
}

pub(crate) async fn show(
    Visit { console, operator }: Visit,
    Path(id): Path<String>,
    Asked(query): Asked<WebhooksQuery>,
) -> Reply {
    let before = (!query.before.is_empty()).then(|| query.before.parse()).transpose();
    let before =
        before.map_err(|_| PageError::Invalid("This page of the log cannot be found.".to_owned()))?;
    let mut conn = console.reading().await?;
    let endpoint = find(&mut conn, &id).await?;
    let filter = LogFilter { before, limit: DELIVERIES, ..LogFilter::default() };
    let log = deliveries::list_log(&mut conn, &id, &filter).await?;
    let attempts = deliveries::list_attempts(&mut conn, &id, &log).await?;
    drop(conn);
    let facts = vec![
        ("Partner", Cell::found(&endpoint.tenant.partner_id)),
        ("URL", Cell::text(&endpoint.url)),
        ("API key", Cell::text(&endpoint.key_id)),
        ("Events", Cell::text(endpoint.subscribed_types.join(", "))),
        ("Failing since", Cell::maybe_time(endpoint.health.failing_since.map(|since| since.to_utc()))),
    ];
    let attempted = |one: &LoggedAttempt| {
        let status = one.status.map_or_else(|| "no answer".to_owned(), |status| status.to_string());
        let error = one.error.as_deref().map(|error| format!(", {error}")).unwrap_or_default();
        format!("{}. {status}, {} ms{error}", one.number, one.latency_ms)
    };
    let rows = log.iter().map(|row| {
        let own = attempts.iter().filter(|attempt| attempt.delivery_id == row.id);
        vec![
            Cell::time(row.created_at),
            Cell::found(&row.event_id),
            Cell::text(&row.kind),
            Cell::text(&row.origin),
            Cell::state(&row.state),
            Cell::text(own.map(attempted).collect::<Vec<_>>().join("; ")),
        ]
    });
    let headings = ["Queued (UTC)", "Event", "Type", "Origin", "State", "Attempts"];
    let mut table = Block::table("Deliveries", &headings, "Nothing was delivered yet.", rows);
    let is_full = i64::try_from(log.len()) == Ok(DELIVERIES);
    table.older = log.last().filter(|_| is_full).map(|row| format!("{}?before={}", address(&id), row.id));
    let mut all = vec![Block::facts("Endpoint", facts).half()];
    if operator.may(OPERATION) && endpoint.is_active {
        all.push(Block::forms("Deliver again", forms(&id)).half());
    }
    all.push(table);
    let state = state(&endpoint);
    blocks::render(
        operator.page("Webhooks", format!("Endpoint {id}")).live(&[Subject::Webhooks]),
        Some(state),
        all,
    )
}

fn forms(id: &str) -> Vec<FormBlock> {
    let at = address(id);
    vec![
        FormBlock::new(
            format!("{at}/resend"),
            "Resend the event",
            vec![Field::text("event", "Event id"), Field::text("reason", "Reason")],
        ),
        FormBlock::new(
            format!("{at}/replay"),
            "Replay",
            vec![
                Field::text("from", "From (2026-01-31T09:00:00Z)"),
                Field::text("to", "To"),
                Field::text("reason", "Reason"),
            ],
        ),
    ]
}

#[derive(Debug, Deserialize)]
pub(crate) struct Again {
    #[serde(default)]
    event: String,
    #[serde(default)]
    from: String,
    #[serde(default)]
    to: String,
    reason: String,
}

pub(crate) async fn resend(
    Visit { console, operator }: Visit,
    Path(id): Path<String>,
    Sent(form): Sent<Again>,
) -> Reply {
    let command = Command::Resend { event_id: form.event.trim().to_owned() };
    carry_out(&console, &operator, &id, "POST /webhooks/{endpoint}/resend", command, form).await
}

pub(crate) async fn replay(
    Visit { console, operator }: Visit,
    Path(id): Path<String>,
    Sent(form): Sent<Again>,
) -> Reply {
    let time = |text: &str| -> Result<DateTime<Utc>, PageError> {
        let unread = |_| PageError::Invalid("A time is written as 2026-01-31T09:00:00Z.".to_owned());
        text.trim().parse().map_err(unread)
    };
    let (from, to) = (time(&form.from)?, time(&form.to)?);
    if from >= to {
        return Err(PageError::Invalid("The replay ends before it begins.".to_owned()));
    }
    let command = Command::Replay { from, to, types: None };
    carry_out(&console, &operator, &id, "POST /webhooks/{endpoint}/replay", command, form).await
}

async fn carry_out(
    console: &Console,
    operator: &Operator,
    id: &str,
    route: &str,
    command: Command,
    form: Again,
) -> Reply {
    if form.reason.trim().is_empty() {
        return Err(PageError::Invalid("A reason is needed.".to_owned()));
    }
    let mut conn = console.acting().await?;
    let endpoint = find(&mut conn, id).await?;
    let owner = Owner { key_id: endpoint.key_id, tenant: endpoint.tenant };
    let render = |_: &CommandOutcome| StoredResponse { status: 200, body: String::new() };
    let done = core_webhooks::carry_out(&mut conn, &console.vault, &owner, command, None, render).await;
    let subject = format!("{id} {}{}{}: {}", form.event, form.from, form.to, form.reason.trim());
    match done {
        Ok(_) => {
            operator.record(&mut conn, ConsoleAction::Acted, route, &subject).await?;
            lead_to(&address(id))
        }
        Err(WebhookError::Store(error)) => Err(error.into()),
        Err(error) => {
            let message = match error {
                WebhookError::Refused(WebhookRejection::NoEvent) => {
                    "The event does not exist, or has left the feed."
                }
                WebhookError::Refused(WebhookRejection::Inactive) => "The endpoint is inactive.",
                WebhookError::Refused(WebhookRejection::ReplayInProgress) => {
                    "A replay of another range is in progress."
                }
                _ => "The endpoint does not accept this.",
            };
            operator.record(&mut conn, ConsoleAction::Refused, route, &subject).await?;
            Err(PageError::Conflict(message.to_owned()))
        }
    }
}

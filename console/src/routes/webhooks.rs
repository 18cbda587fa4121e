//! Webhook endpoints, their deliveries with all attempts, and repeated deliveries.

use axum::extract::Path;
use axum::http::Uri;
use dvp_store::database::changes::Subject;
use dvp_store::webhooks::deliveries::{self, LogFilter, Logged, LoggedAttempt};
use dvp_store::webhooks::{self, Endpoint};
use serde::Deserialize;

use crate::blocks::{self, Block, Cell, Field};
use crate::error::PageError;
use crate::filter::{Filter, links};
use crate::offers::Offer;
use crate::request::{Asked, Fields, Reply, Visit};
use crate::view;

const ROWS: i64 = 100;
const DELIVERIES: i64 = 50;
/// What has become of a delivery.
const STATES: [&str; 3] = ["pending", "delivered", "failed"];

#[derive(Debug, Default, Deserialize)]
pub(crate) struct WebhooksQuery {
    #[serde(default)]
    after: String,
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

pub(crate) async fn show(Visit { console, operator }: Visit, Path(id): Path<String>, uri: Uri) -> Reply {
    let given = Fields::asked(&uri);
    let some = |name: &str| Some(given.one(name)).filter(|value| !value.is_empty());
    let before = some("before").map(str::parse).transpose();
    let before =
        before.map_err(|_| PageError::Invalid("This page of the log cannot be found.".to_owned()))?;
    let mut conn = console.reading().await?;
    let endpoint = find(&mut conn, &id).await?;
    let (state_wanted, event_id) =
        (some("state").map(ToOwned::to_owned), some("event").map(ToOwned::to_owned));
    let wanted = LogFilter { before, event_id, state: state_wanted, limit: DELIVERIES };
    let log = deliveries::list_log(&mut conn, &id, &wanted).await?;
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
    let fields = vec![links("state", STATES), Field::text("event", "Event")];
    let filter = Filter::new(address(&id), fields, &given);
    let resend = |row: &Logged| {
        Offer::new("webhook resend", "Resend").about("endpoint-id", &id).about("event-id", &row.event_id)
    };
    let failed: Vec<Offer> = log.iter().filter(|row| row.state == "failed").map(resend).collect();
    let rows = log.iter().map(|row| {
        let own = attempts.iter().filter(|attempt| attempt.delivery_id == row.id);
        vec![
            Cell::time(row.created_at),
            Cell::found(&row.event_id),
            Cell::text(&row.kind),
            Cell::text(&row.origin),
            Cell::state(&row.state),
            Cell::text(own.map(attempted).collect::<Vec<_>>().join("; ")),
            Cell::offers(operator.offers([resend(row)])),
        ]
    });
    let headings = ["Queued (UTC)", "Event", "Type", "Origin", "State", "Attempts", "Change"];
    let is_full = i64::try_from(log.len()) == Ok(DELIVERIES);
    let last = log.last().filter(|_| is_full).map(|row| row.id.to_string());
    let table = Block::table("Deliveries", &headings, "There is no such delivery.", rows)
        .with_offers(operator.offers(Offer::all(&failed)))
        .paged(&filter, last, None);
    let about = |action, label: &str| Offer::new(action, label).about("endpoint-id", &id);
    let offers = [
        about("webhook resend", "Resend an event"),
        about("webhook replay", "Replay a range"),
        about("webhook disable", "Stop deliveries").dangerous(),
    ];
    let offers = if endpoint.is_active { operator.offers(offers) } else { Vec::new() };
    let all = vec![Block::facts("Endpoint", facts).half().with_offers(offers), table];
    let page = operator.page("Webhooks", format!("Endpoint {id}")).live(&[Subject::Webhooks]);
    blocks::list(page, Some(state(&endpoint)), filter, all)
}

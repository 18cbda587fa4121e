//! The search box: one field for every identifier, and for the words of a failure.

use askama::Template;
use axum::response::{Html, IntoResponse as _};
use dvp_store::operators::search::{self, Found};
use serde::Deserialize;

use crate::error::PageError;
use crate::request::{Asked, Reply, Visit, lead_to};
use crate::state::Console;
use crate::view::{self, Page};

/// The longest identifier that is looked for.
const BYTES_MAX: usize = 200;

#[derive(Debug, Default, Deserialize)]
pub(crate) struct SearchQuery {
    #[serde(default)]
    q: String,
}

struct Line {
    kind: String,
    id: String,
    link: String,
    detail: String,
}

#[derive(Template)]
#[template(path = "search.html")]
struct SearchPage {
    page: Page,
    rows: Vec<Line>,
}

/// One result is opened at once.
pub(crate) async fn show(
    Visit { console, operator }: Visit,
    Asked(SearchQuery { q }): Asked<SearchQuery>,
) -> Reply {
    let text = q.trim();
    if text.len() > BYTES_MAX || text.contains(char::is_control) {
        return Err(PageError::Invalid(
            "An identifier has 200 bytes at most and no control characters.".to_owned(),
        ));
    }
    let found = if text.is_empty() { Vec::new() } else { find(&console, text).await? };
    let rows: Vec<Line> = found.into_iter().map(line).collect();
    let mut pages: Vec<&str> = rows.iter().map(|row| row.link.as_str()).collect();
    pages.dedup();
    // Of these the search says more than the page that they lead to.
    let is_said_here =
        |row: &Line| matches!(row.kind.as_str(), "rejected" | "block" | "account" | "contract" | "file");
    if let [only] = pages[..]
        && !only.is_empty()
        && !rows.iter().any(is_said_here)
    {
        return lead_to(only);
    }
    let mut page = operator.page("", "Search");
    page.query = text.to_owned();
    Ok(Html(SearchPage { page, rows }.render()?).into_response())
}

async fn find(console: &Console, text: &str) -> Result<Vec<Found>, PageError> {
    let mut conn = console.reading().await?;
    let hex = text.strip_prefix("0x").unwrap_or(text);
    let bytes = hex::decode(hex).ok();
    let mut found = search::find_text(&mut conn, text).await?;
    found.extend(search::find_at_bank(&mut conn, text).await?);
    match bytes.as_deref() {
        Some(hash) if hash.len() == 32 => found.extend(search::find_hash(&mut conn, hash).await?),
        Some(address) if address.len() == 20 => {
            found.extend(search::find_address(&mut conn, address).await?);
        }
        Some(_) | None => {}
    }
    if found.is_empty() {
        found = search::find_words(&mut conn, text).await?;
    }
    Ok(found)
}

fn line(found: Found) -> Line {
    let Found { kind, id, detail, partner } = found;
    let of_partner = |name: String| view::partner(&name);
    let link = match kind.as_str() {
        "order" => view::order(&id),
        "approval" => view::approval(&id),
        "partner" => view::partner(&id),
        "session" => format!("/fix/{}", view::segment(&id)),
        "operator" => format!("/operators/{}", view::segment(&id)),
        "key" | "rejected" => partner.map(of_partner).unwrap_or_default(),
        "account" | "contract" | "block" => "/chains".to_owned(),
        "file" => format!("/bank-files/{}", view::segment(&id)),
        "endpoint" => format!("/webhooks/{}", view::segment(&id)),
        _ => String::new(),
    };
    Line { kind, id, link, detail }
}

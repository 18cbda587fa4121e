//! Operators and their roles, and what an administrator may do about them.

use axum::extract::Path;
use dvp_core::operators::requests::is_same_operator;
use dvp_store::database::changes::Subject;
use dvp_store::operators::accounts::{self, OperatorRow};

use super::operator_sessions::{self, find};
use crate::blocks::{self, Block, Cell};
use crate::offers::Offer;
use crate::request::{Reply, Visit};
use crate::view;

const ROWS: i64 = 500;

fn state(row: &OperatorRow) -> Cell {
    Cell::state(if row.disabled_at.is_none() { "enabled" } else { "disabled" })
}

pub(crate) async fn list(Visit { console, operator }: Visit) -> Reply {
    let mut conn = console.reading().await?;
    let all = accounts::list(&mut conn, "", ROWS).await?;
    drop(conn);
    let rows = all.iter().map(|row| {
        vec![
            Cell::link(&row.name, view::operator(&row.name)),
            Cell::text(view::role_words(&row.roles)),
            state(row),
            Cell::maybe_time(row.last_seen_at),
            Cell::text(&row.created_by),
            Cell::time(row.created_at),
        ]
    });
    let headings = ["Operator", "Roles", "State", "Seen (UTC)", "Added by", "Added (UTC)"];
    let invite = operator.offers([Offer::new("operator add", "Invite an operator")]);
    let table = Block::table("All operators", &headings, "There is no operator.", rows).with_offers(invite);
    blocks::render(operator.page("Operators", "Operators").live(&[Subject::Operators]), None, vec![table])
}

pub(crate) async fn show(Visit { console, operator }: Visit, Path(name): Path<String>) -> Reply {
    let mut conn = console.reading().await?;
    let shown = find(&mut conn, &name).await?;
    let sessions = operator_sessions::block(&mut conn, &console, &operator, &shown).await?;
    drop(conn);
    let facts = vec![
        ("Roles", Cell::text(view::role_words(&shown.roles))),
        ("Seen (UTC)", Cell::maybe_time(shown.last_seen_at)),
        ("Added by", Cell::text(&shown.created_by)),
        ("Added (UTC)", Cell::time(shown.created_at)),
    ];
    let is_other = !is_same_operator(&shown.name, &operator.name);
    let offers = if is_other { operator.offers(offers(&shown)) } else { Vec::new() };
    let mut parts = vec![Block::facts("Operator", facts).half().with_offers(offers)];
    parts.extend(sessions);
    let state = state(&shown);
    let page = operator
        .page("Operators", format!("Operator {}", shown.name))
        .live(&[Subject::Operators, Subject::Audit]);
    blocks::render(page, Some(state), parts)
}

/// What an administrator can do about another operator.
fn offers(shown: &OperatorRow) -> Vec<Offer> {
    let offer = |action, label: &str| Offer::new(action, label).about("name", &shown.name);
    if shown.disabled_at.is_some() {
        return vec![offer("operator enable", "Enable")];
    }
    let roles = shown.roles.iter();
    let roles = roles.fold(offer("operator roles", "Change the roles"), |offer, role| {
        offer.proposed("roles", role.as_str())
    });
    vec![
        roles,
        offer("operator link", "New sign-in link"),
        offer("operator identity", "Identity at the provider"),
        offer("operator token", "Token for automation"),
        offer("operator end-tokens", "End all tokens").dangerous(),
        offer("operator disable", "Disable").dangerous(),
    ]
}

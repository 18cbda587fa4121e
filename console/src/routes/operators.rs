//! Operators and their roles. An administrator can disable another one, and requests what gives an operator more than
//! it has.

use axum::extract::Path;
use dvp_core::operators::requests::is_same_operator;
use dvp_store::database::changes::Subject;
use dvp_store::operators::accounts::{self, ConsoleAction, OperatorRow};

use super::operator_sessions::find;
use super::{invitations, operator_sessions};
use crate::blocks::{self, Block, Cell, Form as FormBlock};
use crate::error::PageError;
use crate::navigation::ADMINISTRATION;
use crate::request::{Reply, Visit, lead_to};
use crate::view::{self};

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
    let mut parts = vec![Block::table("All operators", &headings, "There is no operator.", rows)];
    if operator.may(ADMINISTRATION) {
        parts.push(Block::forms("Invite an operator", vec![invitations::invite_form()]));
    }
    blocks::render(operator.page("Operators", "Operators").live(&[Subject::Operators]), None, parts)
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
    let mut parts = Vec::new();
    let mut block = Block::facts("Operator", facts).half();
    if operator.may(ADMINISTRATION) && is_other && shown.disabled_at.is_none() {
        let form = FormBlock::new(format!("{}/disable", view::operator(&shown.name)), "Disable", Vec::new());
        block = block.with_forms([form.dangerous()]);
        parts.extend(invitations::change_blocks(&shown));
    }
    parts.insert(0, block);
    parts.extend(sessions);
    let state = state(&shown);
    let page = operator
        .page("Operators", format!("Operator {}", shown.name))
        .live(&[Subject::Operators, Subject::Audit]);
    blocks::render(page, Some(state), parts)
}

/// Ends the operator's sessions and links, and refuses new ones.
pub(crate) async fn disable(Visit { console, operator }: Visit, Path(name): Path<String>) -> Reply {
    const ROUTE: &str = "POST /operators/{name}/disable";
    let mut conn = console.acting().await?;
    let shown = find(&mut conn, &name).await?;
    if is_same_operator(&shown.name, &operator.name) {
        operator.record(&mut conn, ConsoleAction::Refused, ROUTE, &name).await?;
        return Err(PageError::Conflict("Another administrator disables you.".to_owned()));
    }
    if accounts::set_disabled(&mut conn, &shown.id, true).await? {
        operator.record(&mut conn, ConsoleAction::Acted, ROUTE, &shown.name).await?;
    }
    lead_to(&view::operator(&shown.name))
}

//! The sign-in sessions of an operator: itself and administrators see them, and end them.

use axum::extract::Path;
use dvp_core::operators::accounts::{OperatorError, named};
use dvp_core::operators::requests::is_same_operator;
use dvp_ops::ADMINISTRATION;
use dvp_store::PgConnection;
use dvp_store::operators::accounts::sessions::{self, OpenSession};
use dvp_store::operators::accounts::{ConsoleAction, OperatorRow};
use serde::Deserialize;

use crate::blocks::{Block, Cell, Field, Form as FormBlock};
use crate::error::PageError;
use crate::operator::Operator;
use crate::request::{Reply, Sent, Visit, lead_to};
use crate::state::Console;
use crate::view::{self, words};

pub(crate) async fn find(conn: &mut PgConnection, name: &str) -> Result<OperatorRow, PageError> {
    named(conn, name).await.map_err(|error| match error {
        OperatorError::Store(error) => error.into(),
        _ => PageError::NotFound(format!("operator {name}")),
    })
}

/// The open sessions of an operator, with forms that end them. `None`: they are not this viewer's to see.
pub(crate) async fn block(
    conn: &mut PgConnection,
    console: &Console,
    viewer: &Operator,
    shown: &OperatorRow,
) -> Result<Option<Block>, PageError> {
    let is_own = is_same_operator(&shown.name, &viewer.name);
    if !is_own && !viewer.may(ADMINISTRATION) {
        return Ok(None);
    }
    let open = sessions::list_open(conn, &shown.id, console.settings.sessions.into()).await?;
    let own = hex::encode(viewer.session.get(..8).unwrap_or_default());
    let action = if is_own {
        "/account/sessions/end".to_owned()
    } else {
        format!("{}/sessions/end", view::operator(&shown.name))
    };
    let rows = open.iter().map(|session| {
        vec![
            Cell::id(&session.id),
            Cell::text(words(&session.method)),
            Cell::text(&session.source),
            Cell::time(session.started_at),
            Cell::time(session.last_used_at),
            if session.id == own { Cell::toned("this session", "good") } else { Cell::default() },
        ]
    });
    let headings = ["Session", "Signed in by", "From", "Since (UTC)", "Used (UTC)", "Is"];
    let forms = open.iter().filter(|session| session.id != own).map(|session| {
        let OpenSession { id, source, .. } = session;
        FormBlock::new(&action, "End the session", vec![Field::hidden("session", id)])
            .about(format!("{id} from {source}"))
            .dangerous()
    });
    let forms: Vec<FormBlock> = forms.collect();
    Ok(Some(Block::table("Sign-in sessions", &headings, "No session is open.", rows).with_forms(forms)))
}

#[derive(Debug, Deserialize)]
pub(crate) struct EndForm {
    session: String,
}

/// Ends a session of another operator.
pub(crate) async fn end(
    Visit { console, operator }: Visit,
    Path(name): Path<String>,
    Sent(form): Sent<EndForm>,
) -> Reply {
    let mut conn = console.acting().await?;
    let shown = find(&mut conn, &name).await?;
    end_one(
        &mut conn,
        &operator,
        (&shown.id, &shown.name),
        "POST /operators/{name}/sessions/end",
        &form.session,
    )
    .await
}

/// Ends a session of one's own.
pub(crate) async fn end_own(Visit { console, operator }: Visit, Sent(form): Sent<EndForm>) -> Reply {
    let mut conn = console.acting().await?;
    end_one(&mut conn, &operator, (&operator.id, &operator.name), "POST /account/sessions/end", &form.session)
        .await
}

async fn end_one(
    conn: &mut PgConnection,
    operator: &Operator,
    (id, name): (&str, &str),
    route: &str,
    session: &str,
) -> Reply {
    let session = session.trim();
    if sessions::end_open(conn, id, session).await? {
        operator.record(conn, ConsoleAction::Acted, route, &format!("{name}: {session}")).await?;
    }
    lead_to(&view::operator(name))
}

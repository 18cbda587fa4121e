//! Invitations of operators and changes of their roles: an administrator requests them, an approver approves them and
//! makes the link. The administrator has the link's code, so that neither can use it alone.

use axum::extract::Path;
use dvp_core::operators::invitations::{self, InvitationError, RequestedInvitation};
use dvp_core::operators::requests::Maker;
use dvp_domain::operator::OperatorRole;
use dvp_store::operators::accounts::{ConsoleAction, OperatorRow};
use dvp_store::{Acquire as _, PgConnection, StoreError};

use crate::blocks::{self, Block, Cell, Field, Form};
use crate::error::PageError;
use crate::operator::Operator;
use crate::request::{Fields, Reply, Visit};
use crate::view::{self};

const INVITE: &str = "POST /operators";
const ROLES: &str = "POST /operators/{name}/roles";
const LINK: &str = "POST /operators/{name}/link";
const MAKE_LINK: &str = "POST /approvals/{id}/link";

fn roles_field(chosen: &[OperatorRole]) -> Field {
    let all = OperatorRole::ALL.map(OperatorRole::as_str);
    Field::set("roles", "Roles", all, chosen.iter().map(|role| role.as_str()))
}

fn reasons() -> [Field; 2] {
    [Field::text("reason", "Reason"), Field::text("evidence", "Evidence")]
}

pub(crate) fn invite_form() -> Form {
    let [reason, evidence] = reasons();
    let fields = vec![Field::text("name", "Name"), reason, evidence, roles_field(&[])];
    Form::new("/operators", "Request the invitation", fields)
}

/// What can be requested of another operator.
pub(crate) fn change_blocks(shown: &OperatorRow) -> [Block; 2] {
    let [reason, evidence] = reasons();
    let roles = vec![roles_field(&shown.roles), reason, evidence];
    let roles = Form::new(format!("{}/roles", view::operator(&shown.name)), "Request the roles", roles);
    let link = Form::new(format!("{}/link", view::operator(&shown.name)), "Request a link", reasons().into());
    [Block::forms("Roles", vec![roles]).half(), Block::forms("New sign-in link", vec![link]).half()]
}

fn roles_of(form: &Fields) -> Result<Vec<OperatorRole>, PageError> {
    let role = |name: String| {
        OperatorRole::parse(&name).ok_or_else(|| PageError::Invalid(format!("There is no role {name}.")))
    };
    let mut roles = form.all("roles").into_iter().map(role).collect::<Result<Vec<_>, _>>()?;
    roles.sort_unstable();
    Ok(roles)
}

fn maker<'a>(form: &'a Fields, operator: &'a Operator) -> Maker<'a> {
    Maker { operator: &operator.name, reason: form.one("reason"), evidence: form.one("evidence") }
}

pub(crate) async fn invite(Visit { console, operator }: Visit, form: Fields) -> Reply {
    let (name, roles) = (form.one("name"), roles_of(&form)?);
    let mut conn = console.acting().await?;
    let made = invitations::request_invitation(&mut conn, name, &roles, maker(&form, &operator)).await;
    requested(&mut conn, &operator, INVITE, name, made).await
}

pub(crate) async fn link(
    Visit { console, operator }: Visit,
    Path(name): Path<String>,
    form: Fields,
) -> Reply {
    let mut conn = console.acting().await?;
    let made = invitations::request_link(&mut conn, &name, maker(&form, &operator)).await;
    requested(&mut conn, &operator, LINK, &name, made).await
}

/// The page that shows the code, once.
async fn requested(
    conn: &mut PgConnection,
    operator: &Operator,
    route: &str,
    name: &str,
    made: Result<RequestedInvitation, InvitationError>,
) -> Reply {
    let RequestedInvitation { requested, code } = match made {
        Ok(made) => made,
        Err(error) => return operator.refuse(conn, route, name, error).await,
    };
    let id = requested.approval.id;
    let facts = vec![("Code", Cell::id(code)), ("Request", Cell::link(&id, view::approval(&id)))];
    let note = format!(
        "Give this code to {name}. It is shown once. Another operator approves the request and gives the link."
    );
    let page = operator.page("Operators", format!("Code for {name}"));
    blocks::noted(page, None, Some(note), vec![Block::facts("Invitation", facts)])
}

pub(crate) async fn roles(
    Visit { console, operator }: Visit,
    Path(name): Path<String>,
    form: Fields,
) -> Reply {
    let mut conn = console.acting().await?;
    let roles = roles_of(&form)?;
    let requested = invitations::request_roles(&mut conn, &name, &roles, maker(&form, &operator)).await;
    operator.requested(&mut conn, ROLES, &name, requested).await
}

/// Makes the link of an invitation that this operator approved, and shows it once.
pub(crate) async fn make_link(Visit { console, operator }: Visit, Path(id): Path<String>) -> Reply {
    let mut conn = console.acting().await?;
    let mut tx = conn.begin().await.map_err(StoreError::from)?;
    let (name, token) = match invitations::make_link(&mut tx, &id, &operator.name).await {
        Ok(made) => made,
        Err(error) => {
            tx.rollback().await.map_err(StoreError::from)?;
            return operator.refuse(&mut conn, MAKE_LINK, &id, error).await;
        }
    };
    operator.record(&mut tx, ConsoleAction::Acted, MAKE_LINK, &format!("{id}: link of {name}")).await?;
    tx.commit().await.map_err(StoreError::from)?;
    let base = console.settings.origins.first().map(ToString::to_string).unwrap_or_default();
    let link = format!("{}/login?token={token}", base.trim_end_matches('/'));
    let note =
        format!("Give this link to {name}. It is shown once, can be used once, and expires after a day.");
    let page = operator.page("Approvals", format!("Link of {name}"));
    let facts = vec![("Link", Cell::id(link)), ("Request", Cell::link(&id, view::approval(&id)))];
    blocks::noted(page, None, Some(note), vec![Block::facts("Sign-in link", facts)])
}

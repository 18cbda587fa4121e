//! Invitations of operators and changes of their roles: an administrator requests them, an approver approves them and
//! makes the link. The administrator has the link's code, so that neither can use it alone.

use axum::extract::{Extension, Path, RawForm, State};
use axum::response::{IntoResponse as _, Redirect, Response};
use dvp_core::invitations::{self, InvitationError, RequestedInvitation};
use dvp_core::requests::Maker;
use dvp_domain::operator::OperatorRole;
use dvp_store::operators::{ConsoleAction, OperatorRow};
use dvp_store::{Acquire as _, StoreError};

use super::operators::address;
use crate::blocks::{self, Block, Cell, Field, Form};
use crate::error::PageError;
use crate::operator::Operator;
use crate::state::Console;
use crate::view::{self, Page};

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
    let roles = Form::new(format!("{}/roles", address(&shown.name)), "Request the roles", roles);
    let link = Form::new(format!("{}/link", address(&shown.name)), "Request a link", reasons().into());
    [Block::forms("Roles", vec![roles]).half(), Block::forms("New sign-in link", vec![link]).half()]
}

/// The fields of a form; one of them can occur several times.
#[derive(Debug, Default)]
struct Given {
    name: String,
    reason: String,
    evidence: String,
    roles: Vec<OperatorRole>,
}

impl Given {
    fn read(form: &[u8]) -> Result<Self, PageError> {
        let mut given = Self::default();
        for (field, value) in url::form_urlencoded::parse(form) {
            let value = value.trim().to_owned();
            match &*field {
                "name" => given.name = value,
                "reason" => given.reason = value,
                "evidence" => given.evidence = value,
                "roles" => given.roles.push(
                    OperatorRole::parse(&value)
                        .ok_or_else(|| PageError::Invalid(format!("There is no role {value}.")))?,
                ),
                _ => {}
            }
        }
        given.roles.sort_unstable();
        given.roles.dedup();
        Ok(given)
    }

    fn maker<'a>(&'a self, operator: &'a Operator) -> Maker<'a> {
        Maker { operator: &operator.name, reason: &self.reason, evidence: &self.evidence }
    }
}

pub(crate) async fn invite(
    State(console): State<Console>,
    Extension(operator): Extension<Operator>,
    RawForm(form): RawForm,
) -> Result<Response, PageError> {
    let given = Given::read(&form)?;
    let mut conn = console.acting().await?;
    let made =
        invitations::request_invitation(&mut conn, &given.name, &given.roles, given.maker(&operator)).await;
    drop(conn);
    requested(&console, &operator, INVITE, &given.name, made).await
}

pub(crate) async fn link(
    State(console): State<Console>,
    Extension(operator): Extension<Operator>,
    Path(name): Path<String>,
    RawForm(form): RawForm,
) -> Result<Response, PageError> {
    let given = Given::read(&form)?;
    let mut conn = console.acting().await?;
    let made = invitations::request_link(&mut conn, &name, given.maker(&operator)).await;
    drop(conn);
    requested(&console, &operator, LINK, &name, made).await
}

/// The page that shows the code, once.
async fn requested(
    console: &Console,
    operator: &Operator,
    route: &str,
    name: &str,
    made: Result<RequestedInvitation, InvitationError>,
) -> Result<Response, PageError> {
    let RequestedInvitation { requested, code } = match made {
        Ok(made) => made,
        Err(error) => return refuse(console, operator, route, name, error).await,
    };
    let id = requested.approval.id;
    let facts = vec![
        ("Code", Cell::id(code)),
        ("Request", Cell::link(&id, format!("/approvals/{}", view::segment(&id)))),
    ];
    let note = format!(
        "Give this code to {name}. It is shown once. Another operator approves the request and gives the link."
    );
    let page = Page::of(Some(operator), "Operators", format!("Code for {name}"));
    blocks::noted(page, None, Some(note), vec![Block::facts("Invitation", facts)])
}

pub(crate) async fn roles(
    State(console): State<Console>,
    Extension(operator): Extension<Operator>,
    Path(name): Path<String>,
    RawForm(form): RawForm,
) -> Result<Response, PageError> {
    let given = Given::read(&form)?;
    let mut conn = console.acting().await?;
    match invitations::request_roles(&mut conn, &name, &given.roles, given.maker(&operator)).await {
        Ok(requested) => {
            let id = view::segment(&requested.approval.id);
            Ok(Redirect::to(&format!("/approvals/{id}")).into_response())
        }
        Err(error) => refuse(&console, &operator, ROLES, &name, error).await,
    }
}

/// Makes the link of an invitation that this operator approved, and shows it once.
pub(crate) async fn make_link(
    State(console): State<Console>,
    Extension(operator): Extension<Operator>,
    Path(id): Path<String>,
) -> Result<Response, PageError> {
    let mut conn = console.acting().await?;
    let mut tx = conn.begin().await.map_err(StoreError::from)?;
    let (name, token) = match invitations::make_link(&mut tx, &id, &operator.name).await {
        Ok(made) => made,
        Err(error) => {
            tx.rollback().await.map_err(StoreError::from)?;
            return refuse(&console, &operator, MAKE_LINK, &id, error).await;
        }
    };
    operator.record(&mut tx, ConsoleAction::Acted, MAKE_LINK, &format!("{id}: link of {name}")).await?;
    tx.commit().await.map_err(StoreError::from)?;
    let base = console.settings.origins.first().map(ToString::to_string).unwrap_or_default();
    let link = format!("{}/login?token={token}", base.trim_end_matches('/'));
    let note =
        format!("Give this link to {name}. It is shown once, can be used once, and expires after a day.");
    let page = Page::of(Some(&operator), "Approvals", format!("Link of {name}"));
    let facts = vec![
        ("Link", Cell::id(link)),
        ("Request", Cell::link(&id, format!("/approvals/{}", view::segment(&id)))),
    ];
    blocks::noted(page, None, Some(note), vec![Block::facts("Sign-in link", facts)])
}

async fn refuse(
    console: &Console,
    operator: &Operator,
    route: &str,
    subject: &str,
    error: InvitationError,
) -> Result<Response, PageError> {
    let error = PageError::from(error);
    if !matches!(error, PageError::Internal | PageError::Unavailable) {
        let mut conn = console.acting().await?;
        operator.record(&mut conn, ConsoleAction::Refused, route, &format!("{subject}: {error}")).await?;
    }
    Err(error)
}

//! Credentials of partners: API keys and passwords of FIX sessions. What is drawn here is shown once, and used once
//! another operator has approved it.

use axum::body::Bytes;
use axum::extract::rejection::FormRejection;
use axum::extract::{Extension, Form, Path, State};
use axum::response::{IntoResponse as _, Redirect, Response};
use dvp_core::credentials::{self, CredentialError};
use dvp_core::fix_sessions::SessionCommandError;
use dvp_core::keys::SCOPES;
use dvp_core::requests::{Maker, RequestedChange};
use dvp_store::operators::ConsoleAction;
use dvp_store::partners::ListedKey;
use dvp_store::{PgConnection, partners};
use serde::Deserialize;

use crate::blocks::{self, Block, Cell, Field, Form as FormBlock};
use crate::error::{PageError, sentence};
use crate::operator::Operator;
use crate::state::Console;
use crate::view::{self, Page};

impl From<CredentialError> for PageError {
    fn from(error: CredentialError) -> Self {
        match error {
            CredentialError::Store(error) => error.into(),
            CredentialError::Change(error) => error.into(),
            CredentialError::Unknown(what) => Self::NotFound(what),
            CredentialError::Issue(error) => {
                tracing::error!(%error, "a credential could not be issued");
                Self::Internal
            }
            CredentialError::Session(SessionCommandError::Store(error)) => error.into(),
            CredentialError::Session(SessionCommandError::Unknown(id)) => {
                Self::NotFound(format!("session {id}"))
            }
            refused @ (CredentialError::Revoked
            | CredentialError::NotDisabled(_)
            | CredentialError::Session(_)
            | CredentialError::Scope
            | CredentialError::SessionId
            | CredentialError::Exists(_)) => Self::Conflict(sentence(&refused.to_string())),
        }
    }
}

/// The form that issues a key of a partner.
pub(crate) fn issue_form(partner: &str) -> FormBlock {
    let names = SCOPES.map(|scope| (scope.to_owned(), scope.to_owned()));
    let scopes = Field { options: names.into(), ..Field::set("scopes", "Scopes", [], SCOPES) };
    let fields = vec![Field::text("reason", "Reason"), Field::text("evidence", "Evidence"), scopes];
    FormBlock::new(format!("/partners/{}/keys", view::segment(partner)), "Issue a key", fields)
}

/// The form that changes a key of a partner.
pub(crate) fn key_forms(keys: &[ListedKey]) -> Vec<FormBlock> {
    let form = |key: &ListedKey, change: &str, button: &'static str| {
        let mut fields = vec![Field::text("reason", "Reason")];
        if change == "enable" {
            fields.push(Field::text("evidence", "Evidence"));
        }
        let label = format!("{}…", key.key_prefix);
        FormBlock::new(format!("/keys/{}/{change}", view::segment(&key.key_id)), button, fields).about(label)
    };
    let open = keys.iter().filter(|key| key.revoked_at.is_none());
    open.flat_map(|key| {
        let switch = if key.disabled_at.is_none() {
            form(key, "disable", "Disable").dangerous()
        } else {
            form(key, "enable", "Request to enable")
        };
        [switch, form(key, "revoke", "Revoke").dangerous()]
    })
    .collect()
}

/// The form that draws a session's password.
pub(crate) fn password_form(session: &str) -> FormBlock {
    let fields = vec![Field::text("reason", "Reason"), Field::text("evidence", "Evidence")];
    FormBlock::new(format!("/fix/{}/password", view::segment(session)), "Draw a new password", fields)
}

#[derive(Debug, Deserialize)]
pub(crate) struct CredentialForm {
    reason: String,
    #[serde(default)]
    evidence: String,
}

/// The form of a key: `scopes` is there once for each scope.
#[derive(Debug, Default)]
struct IssueForm {
    scopes: Vec<String>,
    reason: String,
    evidence: String,
}

impl IssueForm {
    fn read(form: &[u8]) -> Self {
        let mut given = Self::default();
        for (field, value) in url::form_urlencoded::parse(form) {
            match &*field {
                "scopes" => given.scopes.push(value.into_owned()),
                "reason" => given.reason = value.into_owned(),
                "evidence" => given.evidence = value.into_owned(),
                _ => {}
            }
        }
        given.scopes.sort_unstable();
        given.scopes.dedup();
        given
    }
}

type Given = Result<Form<CredentialForm>, FormRejection>;

fn read(form: Given) -> Result<CredentialForm, PageError> {
    form.map(|Form(form)| form).map_err(|error| PageError::Invalid(error.to_string()))
}

/// Shows what was drawn, once.
pub(crate) fn shown(
    operator: &Operator,
    section: &'static str,
    facts: Vec<(&'static str, Cell)>,
    requested: &RequestedChange,
) -> Result<Response, PageError> {
    let request = &requested.approval.id;
    let note = "This is shown once and is not stored: pass it on now. It can be used when another operator has approved \
                the request.";
    let mut all = facts;
    all.push(("Request", Cell::link(request, format!("/approvals/{}", view::segment(request)))));
    let page = Page::of(Some(operator), section, "New credential");
    blocks::noted(page, None, Some(note.to_owned()), vec![Block::facts("Credential", all)])
}

/// Issues a key, disabled, and requests that it is enabled.
pub(crate) async fn issue(
    State(console): State<Console>,
    Extension(operator): Extension<Operator>,
    Path(partner): Path<String>,
    form: Bytes,
) -> Result<Response, PageError> {
    const ROUTE: &str = "POST /partners/{name}/keys";
    let form = IssueForm::read(&form);
    let maker = Maker { operator: &operator.name, reason: &form.reason, evidence: &form.evidence };
    let (vault, environment) = (&console.vault, console.settings.environment);
    let mut conn = console.acting().await?;
    match credentials::issue_key(&mut conn, vault, &partner, environment, &form.scopes, maker).await {
        Ok((issued, requested)) => {
            let subject = format!("{partner}: {}: {}", issued.key_id, form.reason);
            operator.record(&mut conn, ConsoleAction::Acted, ROUTE, &subject).await?;
            let facts = vec![
                ("Key", Cell::id(&issued.key_id)),
                ("API key", Cell::id(&issued.api_key)),
                ("Signing secret", Cell::id(&issued.signing_secret)),
            ];
            shown(&operator, "Partners", facts, &requested)
        }
        Err(error) => refuse(&mut conn, &operator, ROUTE, &partner, error.into()).await,
    }
}

/// Draws a session's password, and requests that it replaces the present one.
pub(crate) async fn draw_password(
    State(console): State<Console>,
    Extension(operator): Extension<Operator>,
    Path(session): Path<String>,
    form: Given,
) -> Result<Response, PageError> {
    const ROUTE: &str = "POST /fix/{session}/password";
    let form = read(form)?;
    let maker = Maker { operator: &operator.name, reason: &form.reason, evidence: &form.evidence };
    let mut conn = console.acting().await?;
    match credentials::request_password(&mut conn, &console.vault, &session, None, maker).await {
        Ok((password, requested)) => {
            let subject = format!("{session}: {}", form.reason);
            operator.record(&mut conn, ConsoleAction::Acted, ROUTE, &subject).await?;
            let facts = vec![("Session", Cell::id(&session)), ("Password", Cell::id(password))];
            shown(&operator, "FIX", facts, &requested)
        }
        Err(error) => refuse(&mut conn, &operator, ROUTE, &session, error.into()).await,
    }
}

/// The key of a form, and its partner's page.
async fn find(conn: &mut PgConnection, key_id: &str) -> Result<ListedKey, PageError> {
    let key = partners::find_listed_key(conn, key_id).await?;
    key.ok_or_else(|| PageError::NotFound(format!("key {key_id}")))
}

pub(crate) async fn disable(
    state: State<Console>,
    operator: Extension<Operator>,
    key: Path<String>,
    form: Given,
) -> Result<Response, PageError> {
    stop(state, operator, key, form, "POST /keys/{key}/disable", false).await
}

pub(crate) async fn revoke(
    state: State<Console>,
    operator: Extension<Operator>,
    key: Path<String>,
    form: Given,
) -> Result<Response, PageError> {
    stop(state, operator, key, form, "POST /keys/{key}/revoke", true).await
}

async fn stop(
    State(console): State<Console>,
    Extension(operator): Extension<Operator>,
    Path(key_id): Path<String>,
    form: Given,
    route: &str,
    for_good: bool,
) -> Result<Response, PageError> {
    let form = read(form)?;
    let mut conn = console.acting().await?;
    let key = find(&mut conn, &key_id).await?;
    let subject = format!("{key_id}: {}", form.reason.trim());
    if form.reason.trim().is_empty() {
        let error = PageError::Conflict("A reason is needed.".to_owned());
        return refuse(&mut conn, &operator, route, &subject, error).await;
    }
    if for_good {
        partners::revoke_key(&mut conn, &key_id).await?;
    } else {
        partners::disable_key(&mut conn, &key_id).await?;
    }
    operator.record(&mut conn, ConsoleAction::Acted, route, &subject).await?;
    Ok(Redirect::to(&format!("/partners/{}", view::segment(&key.partner))).into_response())
}

/// Requests that a disabled key may be used.
pub(crate) async fn enable(
    State(console): State<Console>,
    Extension(operator): Extension<Operator>,
    Path(key_id): Path<String>,
    form: Given,
) -> Result<Response, PageError> {
    const ROUTE: &str = "POST /keys/{key}/enable";
    let form = read(form)?;
    let maker = Maker { operator: &operator.name, reason: &form.reason, evidence: &form.evidence };
    let mut conn = console.acting().await?;
    match credentials::request_enabling(&mut conn, &key_id, maker).await {
        Ok(requested) => {
            let at = format!("/approvals/{}", view::segment(&requested.approval.id));
            Ok(Redirect::to(&at).into_response())
        }
        Err(error) => refuse(&mut conn, &operator, ROUTE, &key_id, error.into()).await,
    }
}

pub(crate) async fn refuse(
    conn: &mut PgConnection,
    operator: &Operator,
    route: &str,
    subject: &str,
    error: PageError,
) -> Result<Response, PageError> {
    operator.record(conn, ConsoleAction::Refused, route, &format!("{subject}: {error}")).await?;
    Err(error)
}

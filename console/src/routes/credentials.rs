//! Credentials of partners: API keys and passwords of FIX sessions. What is drawn here is shown once, and used once
//! another operator has approved it.

use axum::extract::Path;
use dvp_core::operators::credentials::{self, CredentialError};
use dvp_core::operators::fix_sessions::SessionCommandError;
use dvp_core::operators::keys::SCOPES;
use dvp_core::operators::requests::{Maker, RequestedChange};
use dvp_store::operators::accounts::ConsoleAction;
use dvp_store::partners::registry::ListedKey;
use dvp_store::{PgConnection, partners::registry};
use serde::Deserialize;

use crate::blocks::{self, Block, Cell, Field, Form as FormBlock};
use crate::error::{PageError, sentence};
use crate::operator::Operator;
use crate::request::{Fields, Reply, Sent, Visit, lead_to};
use crate::view::{self};

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
    pub reason: String,
    #[serde(default)]
    pub evidence: String,
}

/// Shows what was drawn, once.
pub(crate) fn shown(
    operator: &Operator,
    section: &'static str,
    facts: Vec<(&'static str, Cell)>,
    requested: &RequestedChange,
) -> Reply {
    let request = &requested.approval.id;
    let note = "This is shown once and is not stored: pass it on now. It can be used when another operator has approved \
                the request.";
    let mut all = facts;
    all.push(("Request", Cell::link(request, view::approval(request))));
    let page = operator.page(section, "New credential");
    blocks::noted(page, None, Some(note.to_owned()), vec![Block::facts("Credential", all)])
}

/// Issues a key, disabled, and requests that it is enabled.
pub(crate) async fn issue(
    Visit { console, operator }: Visit,
    Path(partner): Path<String>,
    form: Fields,
) -> Reply {
    const ROUTE: &str = "POST /partners/{name}/keys";
    let (reason, scopes) = (form.one("reason"), form.all("scopes"));
    let maker = Maker { operator: &operator.name, reason, evidence: form.one("evidence") };
    let (vault, environment) = (&console.vault, console.settings.environment);
    let mut conn = console.acting().await?;
    match credentials::issue_key(&mut conn, vault, &partner, environment, &scopes, maker).await {
        Ok((issued, requested)) => {
            let subject = format!("{partner}: {}: {reason}", issued.key_id);
            operator.record(&mut conn, ConsoleAction::Acted, ROUTE, &subject).await?;
            let facts = vec![
                ("Key", Cell::id(&issued.key_id)),
                ("API key", Cell::id(&issued.api_key)),
                ("Signing secret", Cell::id(&issued.signing_secret)),
            ];
            shown(&operator, "Partners", facts, &requested)
        }
        Err(error) => operator.refuse(&mut conn, ROUTE, &partner, error).await,
    }
}

/// Draws a session's password, and requests that it replaces the present one.
pub(crate) async fn draw_password(
    Visit { console, operator }: Visit,
    Path(session): Path<String>,
    Sent(form): Sent<CredentialForm>,
) -> Reply {
    const ROUTE: &str = "POST /fix/{session}/password";
    let maker = Maker { operator: &operator.name, reason: &form.reason, evidence: &form.evidence };
    let mut conn = console.acting().await?;
    match credentials::request_password(&mut conn, &console.vault, &session, None, maker).await {
        Ok((password, requested)) => {
            let subject = format!("{session}: {}", form.reason);
            operator.record(&mut conn, ConsoleAction::Acted, ROUTE, &subject).await?;
            let facts = vec![("Session", Cell::id(&session)), ("Password", Cell::id(password))];
            shown(&operator, "FIX", facts, &requested)
        }
        Err(error) => operator.refuse(&mut conn, ROUTE, &session, error).await,
    }
}

/// The key of a form, and its partner's page.
async fn find(conn: &mut PgConnection, key_id: &str) -> Result<ListedKey, PageError> {
    let key = registry::find_listed_key(conn, key_id).await?;
    key.ok_or_else(|| PageError::NotFound(format!("key {key_id}")))
}

pub(crate) async fn disable(
    visit: Visit,
    Path(key): Path<String>,
    Sent(form): Sent<CredentialForm>,
) -> Reply {
    stop(visit, &key, &form.reason, "POST /keys/{key}/disable", false).await
}

pub(crate) async fn revoke(visit: Visit, Path(key): Path<String>, Sent(form): Sent<CredentialForm>) -> Reply {
    stop(visit, &key, &form.reason, "POST /keys/{key}/revoke", true).await
}

async fn stop(
    Visit { console, operator }: Visit,
    key_id: &str,
    reason: &str,
    route: &str,
    for_good: bool,
) -> Reply {
    let mut conn = console.acting().await?;
    let key = find(&mut conn, key_id).await?;
    let subject = format!("{key_id}: {}", reason.trim());
    if reason.trim().is_empty() {
        let error = PageError::Conflict("A reason is needed.".to_owned());
        return operator.refuse(&mut conn, route, &subject, error).await;
    }
    if for_good {
        registry::revoke_key(&mut conn, key_id).await?;
    } else {
        registry::disable_key(&mut conn, key_id).await?;
    }
    operator.record(&mut conn, ConsoleAction::Acted, route, &subject).await?;
    lead_to(&view::partner(&key.partner))
}

/// Requests that a disabled key may be used.
pub(crate) async fn enable(
    Visit { console, operator }: Visit,
    Path(key_id): Path<String>,
    Sent(form): Sent<CredentialForm>,
) -> Reply {
    const ROUTE: &str = "POST /keys/{key}/enable";
    let maker = Maker { operator: &operator.name, reason: &form.reason, evidence: &form.evidence };
    let mut conn = console.acting().await?;
    let requested = credentials::request_enabling(&mut conn, &key_id, maker).await;
    operator.requested(&mut conn, ROUTE, &key_id, requested).await
}

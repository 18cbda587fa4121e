//! New FIX sessions, disabled ones that may log on again, and the addresses that a session's peer may come from. All are
//! requests.

use axum::extract::Path;
use dvp_core::operators::credentials::CredentialError;
use dvp_core::operators::credentials::sessions::{self, NewSession};
use dvp_core::operators::requests::Maker;
use dvp_store::fix::settings::{self, FixSessionSettings};
use dvp_store::operators::accounts::ConsoleAction;
use serde::Deserialize;

use crate::blocks::{Cell, Field, Form as FormBlock};
use crate::error::PageError;
use crate::request::{Reply, Sent, Visit};
use crate::routes::credentials::{CredentialForm, shown};
use crate::view;

const VERSIONS: [(&str, &str); 3] =
    [("FIX.4.4", "FIX 4.4"), ("FIX.4.2", "FIX 4.2"), ("FIXT.1.1", "FIX 5.0 SP2 (FIXT 1.1)")];
const USES: [(&str, &str); 2] = [("orders", "Orders"), ("drop_copy", "Drop copy: reports of all orders")];

fn choice(name: &'static str, label: &'static str, options: &[(&str, &str)]) -> Field {
    let options = options.iter().map(|(value, name)| ((*value).to_owned(), (*name).to_owned())).collect();
    Field { options, ..Field::choice(name, label, []) }
}

/// The form that requests a session.
pub(crate) fn form() -> FormBlock {
    let fields = vec![
        Field::text("partner", "Partner"),
        choice("begin_string", "Version", &VERSIONS),
        Field::text("client_comp_id", "Peer's CompID"),
        Field { value: "DVP".to_owned(), ..Field::text("service_comp_id", "Our CompID") },
        Field::text("username", "Username (the partner's name when empty)").optional(),
        choice("use", "For", &USES),
        Field::text("allowed_sources", "Networks of the peer, with commas (any when empty)").optional(),
        Field::text("reason", "Reason"),
        Field::text("evidence", "Evidence"),
    ];
    FormBlock::new("/fix", "Request the session", fields)
}

/// The form that requests other networks of a session's peer.
pub(crate) fn sources_form(session: &str, present: Option<&[String]>) -> FormBlock {
    let networks = Field {
        value: present.unwrap_or_default().join(", "),
        ..Field::text("allowed_sources", "Networks of the peer, with commas (any when empty)").optional()
    };
    let fields = vec![networks, Field::text("reason", "Reason"), Field::text("evidence", "Evidence")];
    let action = format!("/fix/{}/sources", view::segment(session));
    FormBlock::new(action, "Request the networks", fields)
}

/// The form that requests that a disabled session may log on again.
pub(crate) fn enable_form(session: &str) -> FormBlock {
    let fields = vec![Field::text("reason", "Reason"), Field::text("evidence", "Evidence")];
    FormBlock::new(format!("/fix/{}/enable", view::segment(session)), "Request to enable", fields)
}

/// The networks of a field; none means any.
fn networks(field: &str) -> Result<Option<Vec<String>>, PageError> {
    if field.trim().is_empty() {
        return Ok(None);
    }
    let wrong =
        |part| PageError::Invalid(format!("{part} is no network. A network is 192.0.2.0/24 or 192.0.2.7."));
    sessions::networks(field).map(Some).map_err(wrong)
}

#[derive(Debug, Deserialize)]
pub(crate) struct SessionForm {
    partner: String,
    begin_string: String,
    client_comp_id: String,
    service_comp_id: String,
    #[serde(default)]
    username: String,
    #[serde(rename = "use")]
    used_for: String,
    #[serde(default)]
    allowed_sources: String,
    reason: String,
    #[serde(default)]
    evidence: String,
}

/// Requests a session, and shows its password.
pub(crate) async fn create(Visit { console, operator }: Visit, Sent(form): Sent<SessionForm>) -> Reply {
    const ROUTE: &str = "POST /fix";
    let settings = FixSessionSettings {
        allowed_sources: networks(&form.allowed_sources)?,
        drop_copy: form.used_for == "drop_copy",
        ..FixSessionSettings::default()
    };
    let new = NewSession {
        partner: form.partner.trim(),
        environment: console.settings.environment,
        begin_string: &form.begin_string,
        client_comp_id: form.client_comp_id.trim(),
        service_comp_id: form.service_comp_id.trim(),
        username: Some(form.username.trim()),
        password: None,
        settings,
        max_slippage_bps: None,
    };
    let maker = Maker { operator: &operator.name, reason: &form.reason, evidence: &form.evidence };
    let mut conn = console.acting().await?;
    match sessions::request_session(&mut conn, &console.vault, new, maker).await {
        Ok((session, password, requested)) => {
            let subject = format!("{session}: {}", form.reason);
            operator.record(&mut conn, ConsoleAction::Acted, ROUTE, &subject).await?;
            let facts = vec![("Session", Cell::id(&session)), ("Password", Cell::id(password))];
            shown(&operator, "FIX", facts, &requested)
        }
        Err(error) => operator.refuse(&mut conn, ROUTE, form.client_comp_id.trim(), error).await,
    }
}

#[derive(Debug, Deserialize)]
pub(crate) struct SourcesForm {
    #[serde(default)]
    allowed_sources: String,
    reason: String,
    #[serde(default)]
    evidence: String,
}

/// Requests the networks that a session's peer may come from.
pub(crate) async fn set_sources(
    Visit { console, operator }: Visit,
    Path(session): Path<String>,
    Sent(form): Sent<SourcesForm>,
) -> Reply {
    const ROUTE: &str = "POST /fix/{session}/sources";
    let allowed_sources = networks(&form.allowed_sources)?;
    let maker = Maker { operator: &operator.name, reason: &form.reason, evidence: &form.evidence };
    let mut conn = console.acting().await?;
    let requested = match settings::find_settings(&mut conn, &session).await? {
        Some(before) => {
            let settings = FixSessionSettings { allowed_sources, ..before };
            sessions::request_settings(&mut conn, &session, settings, None, maker).await
        }
        None => Err(CredentialError::Unknown(format!("session {session}"))),
    };
    operator.requested(&mut conn, ROUTE, &session, requested).await
}

/// Requests that a disabled session may log on again.
pub(crate) async fn enable(
    Visit { console, operator }: Visit,
    Path(session): Path<String>,
    Sent(form): Sent<CredentialForm>,
) -> Reply {
    const ROUTE: &str = "POST /fix/{session}/enable";
    let maker = Maker { operator: &operator.name, reason: &form.reason, evidence: &form.evidence };
    let mut conn = console.acting().await?;
    let requested = sessions::request_enabling(&mut conn, &session, maker).await;
    operator.requested(&mut conn, ROUTE, &session, requested).await
}

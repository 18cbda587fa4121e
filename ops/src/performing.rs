//! The way of every action: its fields are read, the caller's authority decides, it is carried out, and the audit log has
//! who did it.

use std::fmt::Write as _;

use clap::error::{ContextKind, ContextValue};
use clap::{ArgAction, FromArgMatches as _};
use dvp_domain::operator::OperatorRole;
use dvp_store::operators::accounts::{self, ConsoleAction, ConsoleRecord};
use dvp_store::{Acquire as _, PgConnection, StoreError};
use serde_json::Value;

use crate::actions::{self, Action};
use crate::caller::Caller;
use crate::desk::{Desk, House};
use crate::outcome::Outcome;
use crate::table::{self, Spec};

/// Why an action was not carried out.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Refusal {
    #[error("there is no action {0}")]
    UnknownAction(String),
    #[error("the operator's roles do not allow this; it needs one of {}", words(.0))]
    Forbidden(&'static [OperatorRole]),
    #[error("this token is not good for this action")]
    NotOfToken,
    #[error("this needs an authentication of the last minutes: run dvp login again")]
    StepUp,
    /// A field is missing or wrong.
    #[error("{message}")]
    Field { field: Option<String>, message: String },
    /// What it is about does not allow it.
    #[error("{0}")]
    Refused(String),
    #[error("the database is unavailable: try again")]
    Unavailable,
}

impl Refusal {
    /// The stable code.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::UnknownAction(_) => "UNKNOWN_ACTION",
            Self::Forbidden(_) => "FORBIDDEN",
            Self::NotOfToken => "NOT_OF_TOKEN",
            Self::StepUp => "STEP_UP_REQUIRED",
            Self::Field { .. } => "INVALID_FIELD",
            Self::Refused(_) => "REFUSED",
            Self::Unavailable => "UNAVAILABLE",
        }
    }
}

fn words(roles: &[OperatorRole]) -> String {
    roles.iter().map(|role| role.as_str()).collect::<Vec<_>>().join(", ")
}

impl From<anyhow::Error> for Refusal {
    fn from(error: anyhow::Error) -> Self {
        let is_database = |cause: &(dyn std::error::Error + 'static)| {
            cause.is::<dvp_store::DatabaseError>()
                || matches!(cause.downcast_ref(), Some(StoreError::Database(_)))
        };
        if error.chain().any(is_database) {
            tracing::error!(%error, "an operator's action failed");
            return Self::Unavailable;
        }
        Self::Refused(format!("{error:#}"))
    }
}

impl From<StoreError> for Refusal {
    fn from(error: StoreError) -> Self {
        anyhow::Error::from(error).into()
    }
}

/// Carries out an action for a caller. `fields` are the options of the command line: texts, lists of texts, and true for
/// what has no value.
///
/// # Errors
/// The refusal, of which the audit log has an entry unless the fields could not be read.
pub async fn perform(
    conn: &mut PgConnection,
    house: &House,
    by: &Caller,
    name: &str,
    fields: &serde_json::Map<String, Value>,
) -> Result<Outcome, Refusal> {
    let spec = table::find(name).ok_or_else(|| Refusal::UnknownAction(name.to_owned()))?;
    let subject = told(spec, fields);
    if let Err(refusal) = allow(spec, by) {
        record(conn, by, ConsoleAction::Refused, spec, &format!("{subject}: {refusal}")).await?;
        return Err(refusal);
    }
    let action = read(spec, fields)?;
    let done = carry_out(conn, house, by, spec, action, &subject).await;
    if let Err(refusal @ Refusal::Refused(_)) = &done {
        record(conn, by, ConsoleAction::Refused, spec, &format!("{subject}: {refusal}")).await?;
    }
    done
}

fn allow(spec: &Spec, by: &Caller) -> Result<(), Refusal> {
    if !by.proof.is_good_for(spec) {
        return Err(Refusal::NotOfToken);
    }
    if !by.may(spec.roles) {
        return Err(Refusal::Forbidden(spec.roles));
    }
    if spec.step_up && !by.is_recent { Err(Refusal::StepUp) } else { Ok(()) }
}

async fn carry_out(
    conn: &mut PgConnection,
    house: &House,
    by: &Caller,
    spec: &Spec,
    action: Action,
    subject: &str,
) -> Result<Outcome, Refusal> {
    if spec.waits {
        record(conn, by, ConsoleAction::Acted, spec, subject).await?;
        return Ok(action.perform(&mut Desk { conn, house, by }).await?);
    }
    let mut tx = conn.begin().await.map_err(StoreError::from)?;
    let performed = action.perform(&mut Desk { conn: &mut tx, house, by }).await;
    let outcome = match performed {
        Ok(outcome) => outcome,
        Err(error) => {
            tx.rollback().await.map_err(StoreError::from)?;
            return Err(error.into());
        }
    };
    record(&mut tx, by, ConsoleAction::Acted, spec, subject).await?;
    tx.commit().await.map_err(StoreError::from)?;
    Ok(outcome)
}

async fn record(
    conn: &mut PgConnection,
    by: &Caller,
    action: ConsoleAction,
    spec: &Spec,
    subject: &str,
) -> Result<(), StoreError> {
    let (operator, source) = (by.name.as_str(), by.origin());
    let entry = ConsoleRecord { operator, action, route: spec.name, subject, source: &source };
    accounts::record(conn, &entry).await
}

/// The fields as an entry of the audit log has them: without secrets and personal data, and each cut at a length that a person reads.
fn told(spec: &Spec, fields: &serde_json::Map<String, Value>) -> String {
    let mut text = String::new();
    for (name, value) in fields {
        let value = match value {
            _ if actions::is_secret(name) || actions::is_personal(spec.name, name) => "…".to_owned(),
            Value::String(value) => value.chars().take(200).collect(),
            other => other.to_string().chars().take(200).collect(),
        };
        // Writing to a text does not fail.
        let _ = write!(text, "{}{name}={value}", if text.is_empty() { "" } else { " " });
    }
    text
}

fn read(spec: &Spec, fields: &serde_json::Map<String, Value>) -> Result<Action, Refusal> {
    let unread = |field: &str, message: &str| Refusal::Field {
        field: Some(field.to_owned()),
        message: message.to_owned(),
    };
    let root = actions::command();
    let leaf = actions::leaf(&root, spec).ok_or_else(|| Refusal::UnknownAction(spec.name.to_owned()))?;
    let mut given: Vec<String> = spec.name.split(' ').map(str::to_owned).collect();
    for (name, value) in fields {
        let known = leaf.get_arguments().find(|arg| arg.get_long() == Some(name));
        let arg = known.ok_or_else(|| unread(name, "there is no such field"))?;
        let takes_value = !matches!(arg.get_action(), ArgAction::SetTrue);
        match value {
            Value::Null => {}
            Value::Bool(true) if !takes_value => given.push(format!("--{name}")),
            Value::Bool(false) if !takes_value => {}
            Value::String(value) if takes_value => given.push(format!("--{name}={value}")),
            Value::Array(values) if takes_value => {
                for value in values {
                    let value = value.as_str().ok_or_else(|| unread(name, "a list of texts is wanted"))?;
                    given.push(format!("--{name}={value}"));
                }
            }
            _ => return Err(unread(name, "a text, or true of what has no value, is wanted")),
        }
    }
    let matches = root.clone().try_get_matches_from(given).map_err(|error| wrong(&error))?;
    Action::from_arg_matches(&matches).map_err(|error| wrong(&error))
}

/// What is wrong with the fields, by the first of them.
fn wrong(error: &clap::Error) -> Refusal {
    let field = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(arg)) => Some(arg.as_str()),
        Some(ContextValue::Strings(args)) => args.first().map(String::as_str),
        _ => None,
    };
    let field =
        field.map(|arg| arg.trim_start_matches('-').split([' ', '=']).next().unwrap_or(arg).to_owned());
    let text = error.render().to_string();
    let told = text.split("\n\n").next().unwrap_or(&text);
    let message = told.trim_start_matches("error: ").lines().map(str::trim).collect::<Vec<_>>().join(" ");
    Refusal::Field { field, message }
}

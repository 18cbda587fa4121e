//! Step-up: a request that moves money or changes limits needs an authentication of the last minutes. Without one its
//! form is answered with a page that has the same fields, so that it is sent again together with the authentication.
//!
//! Invariants: the authentication is of the session's own operator; with it the session gets a new token, so that a
//! copied cookie ends; nothing of the form is carried out before.
//!
//! Kept by `console/tests/it/step_up.rs::nothing_but_a_new_answer_of_the_operators_own_passkey_is_a_step_up`.

use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::{HeaderValue, header};
use axum::response::{Html, IntoResponse as _, Response};
use dvp_core::operators::accounts::{new_token, token_hash};
use dvp_store::operators::accounts::ConsoleAction;
use dvp_store::operators::accounts::challenges::Purpose;
use dvp_store::operators::accounts::sessions;
use dvp_store::{Acquire as _, StoreError};
use tracing::warn;

use crate::assets;
use crate::cookies;
use crate::error::{PageError, sentence};
use crate::operator::Operator;
use crate::passkeys::{Answer, PasskeyError, RelyingParty};
use crate::passwords::PasswordError;
use crate::state::{Console, ConsoleSettings};
use crate::view::{self, Page};

/// The field with the browser's answer.
const PASSKEY: &str = "step_up_passkey";
/// The field with a one-time code.
const CODE: &str = "step_up_code";

/// Why an operator was not authenticated.
#[derive(Debug, thiserror::Error)]
enum StepUpError {
    #[error(transparent)]
    Passkey(#[from] PasskeyError),
    #[error(transparent)]
    Password(#[from] PasswordError),
    #[error("the passkey is of another operator")]
    OtherOperator,
    #[error("the session has ended")]
    SessionEnded,
    #[error("the system has no randomness")]
    NoRandomness,
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What the form has of an authentication.
enum Given {
    Passkey(String),
    Code(String),
}

/// A request after its operator was authenticated.
pub(crate) struct Authenticated {
    pub operator: Operator,
    pub request: Request,
    /// The session's new token.
    pub cookie: HeaderValue,
}

type Fields = Vec<(String, String)>;

/// Authenticates the operator by the form's own fields, or answers with the page that requests it.
pub(crate) async fn authenticate(
    console: &Console,
    operator: Operator,
    route: &str,
    request: Request,
) -> Result<Authenticated, Response> {
    let (mut parts, body) = request.into_parts();
    let too_long = |_| PageError::Invalid("The form is too long.".to_owned()).shown_to(&operator);
    let body = to_bytes(body, ConsoleSettings::FORM_BYTES_MAX).await.map_err(too_long)?;
    let fields = url::form_urlencoded::parse(&body).into_owned();
    let (answers, fields): (Fields, Fields) = fields.partition(|(name, _)| name == PASSKEY || name == CODE);
    let given = answers.into_iter().find(|(_, value)| !value.is_empty());
    let given =
        given.map(|(name, value)| if name == PASSKEY { Given::Passkey(value) } else { Given::Code(value) });
    let path = parts.uri.path().to_owned();
    let problem = match given {
        None => {
            let subject = format!("{path}: it needs an authentication of the last minutes");
            record(console, &operator, ConsoleAction::Refused, route, &subject)
                .await
                .map_err(|error| error.shown_to(&operator))?;
            String::new()
        }
        Some(given) => match verify(console, &operator, route, given).await {
            Ok((session, cookie)) => {
                let form = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish();
                parts.headers.insert(header::CONTENT_LENGTH, HeaderValue::from(form.len()));
                let request = Request::from_parts(parts, Body::from(form));
                return Ok(Authenticated { operator: operator.authenticated(session), request, cookie });
            }
            Err(
                StepUpError::Store(error)
                | StepUpError::Passkey(PasskeyError::Store(error))
                | StepUpError::Password(PasswordError::Store(error)),
            ) => return Err(PageError::from(error).shown_to(&operator)),
            Err(error) => {
                warn!(operator = operator.name, route, %error, "an authentication in a session failed");
                let subject = format!("{path}: {error}");
                record(console, &operator, ConsoleAction::Failed, route, &subject)
                    .await
                    .map_err(|error| error.shown_to(&operator))?;
                sentence(&error.to_string())
            }
        },
    };
    page(&operator, path, fields, problem).map_err(|error| error.shown_to(&operator)).and_then(Err)
}

async fn verify(
    console: &Console,
    operator: &Operator,
    route: &str,
    given: Given,
) -> Result<([u8; 32], HeaderValue), StepUpError> {
    let token = new_token().map_err(|_| StepUpError::NoRandomness)?;
    let session = token_hash(&token);
    let mut conn = console.acting().await?;
    let (mut tx, subject) = match given {
        Given::Passkey(answer) => {
            let party = RelyingParty::of(&console.settings)?;
            let answer = Answer::take(&mut conn, Purpose::StepUp(&operator.id), &answer).await?;
            let mut tx = conn.begin().await.map_err(StoreError::from)?;
            let found = party.verify(&mut tx, answer).await?;
            if found.operator.operator_id != operator.id {
                return Err(StepUpError::OtherOperator);
            }
            (tx, format!("passkey {}", found.name))
        }
        Given::Code(code) => {
            let who = (operator.id.as_str(), operator.name.as_str());
            console.passwords.step_up(&mut conn, &console.vault, who, &code).await?;
            (conn.begin().await.map_err(StoreError::from)?, "code".to_owned())
        }
    };
    if !sessions::renew_session(&mut tx, &operator.session, &session).await? {
        return Err(StepUpError::SessionEnded);
    }
    operator.record(&mut tx, ConsoleAction::SteppedUp, route, &subject).await?;
    tx.commit().await.map_err(StoreError::from)?;
    Ok((session, cookies::session_cookie(console, &token)))
}

async fn record(
    console: &Console,
    operator: &Operator,
    action: ConsoleAction,
    route: &str,
    subject: &str,
) -> Result<(), PageError> {
    let mut conn = console.acting().await?;
    Ok(operator.record(&mut conn, action, route, subject).await?)
}

#[derive(askama::Template)]
#[template(path = "step_up.html")]
struct StepUpPage {
    page: Page,
    script: &'static str,
    action: String,
    fields: Fields,
    /// The fields that the operator has filled in.
    shown: Fields,
    has_passkey: bool,
    has_password: bool,
    problem: String,
}

fn page(operator: &Operator, action: String, fields: Fields, problem: String) -> Result<Response, PageError> {
    let shown = fields.iter().filter(|(name, value)| !name.starts_with('_') && !value.trim().is_empty());
    let shown = shown.map(|(name, value)| (view::words(name), value.clone())).collect();
    let page = StepUpPage {
        page: Page::of(Some(operator), "", "Confirm that it is you"),
        script: assets::passkeys(),
        action,
        fields,
        shown,
        has_passkey: operator.has_passkey(),
        has_password: operator.has_password(),
        problem,
    };
    Ok(Html(askama::Template::render(&page)?).into_response())
}

//! Answers to requests that were not carried out.

use axum::http::StatusCode;
use axum::response::{Html, IntoResponse, Response};
use dvp_domain::operator::OperatorRole;
use dvp_store::{DatabaseError, StoreError};
use tracing::error;

use crate::operator::Operator;
use crate::view::Page;

/// Why a request was not carried out.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum PageError {
    #[error("Your session has ended. Sign in again.")]
    Unauthenticated,
    #[error("This form was not sent by a page of the console.")]
    ForeignForm,
    #[error("Your roles do not allow this. The attempt is in the audit log.")]
    Forbidden(&'static [OperatorRole]),
    #[error("Add a passkey or a password first, so that you can sign in again.")]
    Unregistered,
    #[error("There is no {0}.")]
    NotFound(String),
    /// A field of a query or a form.
    #[error("{0}")]
    Invalid(String),
    /// The state of the subject does not allow it.
    #[error("{0}")]
    Conflict(String),
    #[error("Too many sign-ins failed or were begun. Try again in a minute.")]
    TooMany,
    #[error("The database is unavailable. Try again.")]
    Unavailable,
    #[error("The page could not be made. The log of the service has the reason.")]
    Internal,
}

impl PageError {
    pub(crate) const fn status(&self) -> StatusCode {
        match self {
            Self::Unauthenticated => StatusCode::UNAUTHORIZED,
            Self::ForeignForm | Self::Forbidden(_) | Self::Unregistered => StatusCode::FORBIDDEN,
            Self::NotFound(_) => StatusCode::NOT_FOUND,
            Self::Invalid(_) => StatusCode::BAD_REQUEST,
            Self::Conflict(_) => StatusCode::CONFLICT,
            Self::TooMany => StatusCode::TOO_MANY_REQUESTS,
            Self::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            Self::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    fn page(&self, operator: Option<&Operator>) -> Response {
        let title = match self {
            Self::Unauthenticated => "Signed out",
            Self::ForeignForm | Self::Forbidden(_) | Self::Unregistered => "Not allowed",
            Self::NotFound(_) => "Not found",
            Self::Invalid(_) => "Not understood",
            Self::Conflict(_) => "Not done",
            Self::TooMany | Self::Unavailable => "Unavailable",
            Self::Internal => "Failed",
        };
        let needed = match self {
            Self::Forbidden(roles) => roles.iter().map(|role| role.as_str()).collect::<Vec<_>>().join(", "),
            _ => String::new(),
        };
        let page = Page::of(operator, "", title);
        let view = ErrorPage { page, message: self.to_string(), needed };
        let body = askama::Template::render(&view).unwrap_or_else(|_| self.to_string());
        (self.status(), Html(body)).into_response()
    }

    /// The answer to a signed-in operator, with the console's navigation.
    pub(crate) fn shown_to(&self, operator: &Operator) -> Response {
        self.page(Some(operator))
    }
}

impl IntoResponse for PageError {
    fn into_response(self) -> Response {
        let mut response = self.page(None);
        response.extensions_mut().insert(self);
        response
    }
}

#[derive(askama::Template)]
#[template(path = "error.html")]
struct ErrorPage {
    page: Page,
    message: String,
    /// The roles that the request needs.
    needed: String,
}

impl From<StoreError> for PageError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Database(
                DatabaseError::PoolTimedOut | DatabaseError::Io(_) | DatabaseError::PoolClosed,
            ) => Self::Unavailable,
            StoreError::Stale { what } => Self::Conflict(format!("{what} was changed meanwhile: look again")),
            error @ (StoreError::Database(_) | StoreError::Migrate(_) | StoreError::Corrupt { .. }) => {
                error!(%error, "a page of the console failed");
                Self::Internal
            }
        }
    }
}

impl From<askama::Error> for PageError {
    fn from(error: askama::Error) -> Self {
        error!(%error, "a page of the console could not be rendered");
        Self::Internal
    }
}

/// An error's message as a sentence.
pub(crate) fn sentence(message: &str) -> String {
    let mut letters = message.chars();
    letters.next().map_or_else(String::new, |first| format!("{}{}.", first.to_uppercase(), letters.as_str()))
}

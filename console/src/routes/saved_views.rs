//! Views of the list of orders that an operator has saved for itself.

use axum::extract::rejection::FormRejection;
use axum::extract::{Extension, Form, State};
use axum::response::{IntoResponse as _, Redirect, Response};
use dvp_store::order_views::{self, SavedView, VIEWS_MAX};
use serde::Deserialize;

use crate::error::PageError;
use crate::operator::Operator;
use crate::routes::orders::OrdersQuery;
use crate::state::Console;

/// The longest name.
const NAME_MAX: usize = 60;

#[derive(Debug, Deserialize)]
pub(crate) struct ViewForm {
    name: String,
    /// The filter, as it is in the address.
    #[serde(default)]
    query: String,
}

type Given = Result<Form<ViewForm>, FormRejection>;

/// Saves the filter of the list under a name, in place of an earlier one of the name.
pub(crate) async fn save(
    State(console): State<Console>,
    Extension(operator): Extension<Operator>,
    form: Given,
) -> Result<Response, PageError> {
    let Form(form) = form.map_err(|error| PageError::Invalid(error.to_string()))?;
    let name = form.name.trim();
    if name.is_empty() || name.chars().count() > NAME_MAX || name.contains(char::is_control) {
        return Err(PageError::Invalid(format!("A view has a name of {NAME_MAX} characters at most.")));
    }
    // Only what the page understands is stored, in its own words.
    let filter = OrdersQuery::parse(&form.query)?;
    let view = SavedView { name: name.to_owned(), query: filter.text() };
    let mut conn = console.acting().await?;
    if !order_views::save(&mut conn, &operator.name, &view).await? {
        return Err(PageError::Conflict(format!("You have {VIEWS_MAX} saved views: delete one first.")));
    }
    Ok(Redirect::to(&filter.page()).into_response())
}

pub(crate) async fn delete(
    State(console): State<Console>,
    Extension(operator): Extension<Operator>,
    form: Given,
) -> Result<Response, PageError> {
    let Form(form) = form.map_err(|error| PageError::Invalid(error.to_string()))?;
    let mut conn = console.acting().await?;
    if !order_views::delete(&mut conn, &operator.name, &form.name).await? {
        return Err(PageError::NotFound(format!("saved view {}", form.name)));
    }
    Ok(Redirect::to("/orders").into_response())
}

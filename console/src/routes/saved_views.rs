//! Views of the list of orders that an operator has saved for itself.

use dvp_store::operators::order_views::{self, SavedView, VIEWS_MAX};
use serde::Deserialize;

use crate::error::PageError;
use crate::request::{Reply, Sent, Visit, lead_to};
use crate::routes::orders::OrdersQuery;

/// The longest name.
const NAME_MAX: usize = 60;

#[derive(Debug, Deserialize)]
pub(crate) struct ViewForm {
    name: String,
    /// The filter, as it is in the address.
    #[serde(default)]
    query: String,
}

/// Saves the filter of the list under a name, in place of an earlier one of the name.
pub(crate) async fn save(Visit { console, operator }: Visit, Sent(form): Sent<ViewForm>) -> Reply {
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
    lead_to(&filter.page())
}

pub(crate) async fn delete(Visit { console, operator }: Visit, Sent(form): Sent<ViewForm>) -> Reply {
    let mut conn = console.acting().await?;
    if !order_views::delete(&mut conn, &operator.name, &form.name).await? {
        return Err(PageError::NotFound(format!("saved view {}", form.name)));
    }
    lead_to("/orders")
}

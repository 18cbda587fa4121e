//! Views of lists that an operator has saved for itself.

use dvp_store::operators::saved_views::{self, SavedView, VIEWS_MAX};
use serde::Deserialize;

use crate::error::PageError;
use crate::filter;
use crate::request::{Reply, Sent, Visit, lead_to};

/// The longest name.
const NAME_MAX: usize = 60;

#[derive(Debug, Deserialize)]
pub(crate) struct ViewForm {
    page: String,
    name: String,
    /// The filter, as it is in the address.
    #[serde(default)]
    query: String,
}

/// Saves the filter of a list under a name, in place of an earlier one of the name.
pub(crate) async fn save(Visit { console, operator }: Visit, Sent(form): Sent<ViewForm>) -> Reply {
    let name = form.name.trim();
    if name.is_empty() || name.chars().count() > NAME_MAX || name.contains(char::is_control) {
        return Err(PageError::Invalid(format!("A view has a name of {NAME_MAX} characters at most.")));
    }
    let (page, query) = filter::read(&form.page, &form.query)?;
    let view = SavedView { name: name.to_owned(), query };
    let mut conn = console.acting().await?;
    if !saved_views::save(&mut conn, &operator.name, page, &view).await? {
        return Err(PageError::Conflict(format!("You have {VIEWS_MAX} saved views: delete one first.")));
    }
    lead_to(&format!("{page}?{}", view.query))
}

pub(crate) async fn delete(Visit { console, operator }: Visit, Sent(form): Sent<ViewForm>) -> Reply {
    let (page, _) = filter::read(&form.page, "")?;
    let mut conn = console.acting().await?;
    if !saved_views::delete(&mut conn, &operator.name, page, &form.name).await? {
        return Err(PageError::NotFound(format!("saved view {}", form.name)));
    }
    lead_to(page)
}

//! The filter of a list: it is in the address, and an operator saves it under a name as a view of the list.

use axum::http::Uri;
use dvp_store::PgConnection;
use dvp_store::operators::saved_views::{self, SavedView};

use crate::error::PageError;
use crate::form::Field;
use crate::operator::Operator;
use crate::request::Fields;
use crate::view;

/// The lists whose filters are saved, with the names of their fields.
pub(crate) const SAVED: [(&str, &[&str]); 3] = [
    ("/orders", &["view", "partner", "state", "from", "until"]),
    ("/approvals", &["state"]),
    ("/audit", &["record", "operator", "subject", "until"]),
];

/// The place of a page in a list.
const BEFORE: &str = "before";

/// A list's filter as its page shows it.
#[derive(Debug, Clone)]
pub(crate) struct Filter {
    pub path: String,
    /// The fields with what the address gives. Each value of one of the kind `links` is a link.
    pub fields: Vec<Field>,
    /// What the operator may save: the filter of the address.
    pub query: String,
    pub saved: Vec<SavedView>,
    is_first_page: bool,
}

impl Filter {
    pub(crate) fn new(path: impl Into<String>, fields: Vec<Field>, given: &Fields) -> Self {
        let fields = fields.into_iter();
        let fields =
            fields.map(|field| Field { value: given.one(&field.name).to_owned(), ..field.optional() });
        let fields: Vec<Field> = fields.collect();
        let mut filter = Self {
            path: path.into(),
            is_first_page: given.one(BEFORE).is_empty(),
            fields,
            query: String::new(),
            saved: Vec::new(),
        };
        filter.query = filter.with("", &[]).trim_start_matches('?').to_owned();
        filter
    }

    /// With the views that the operator has saved.
    pub(crate) async fn with_saved(
        self,
        conn: &mut PgConnection,
        operator: &Operator,
    ) -> Result<Self, PageError> {
        let saved = saved_views::list(conn, &operator.name, &self.path).await?;
        Ok(Self { saved, ..self })
    }

    /// The address of a path with this filter, but for these fields.
    fn with(&self, path: &str, other: &[(&str, &str)]) -> String {
        let own = self.fields.iter().map(|field| (field.name.as_str(), field.value.as_str()));
        let kept = own.filter(|(name, _)| other.iter().all(|(changed, _)| changed != name));
        view::address(path, &kept.chain(other.iter().copied()).collect::<Vec<_>>())
    }

    /// The address of the rows after a place.
    pub(crate) fn older(&self, place: &str) -> String {
        self.with(&self.path, &[(BEFORE, place)])
    }

    /// The rows of this page as a file of the same name.
    pub(crate) fn file(&self, path: &str, given: &Fields) -> String {
        self.with(path, &[(BEFORE, given.one(BEFORE))])
    }

    pub(crate) fn newest(&self) -> Option<String> {
        (!self.is_first_page).then(|| self.with(&self.path, &[]))
    }

    /// The values of the field of links: what they are called, where they lead, and whether they are shown.
    pub(crate) fn links(&self) -> Vec<(String, String, bool)> {
        let Some(field) = self.fields.iter().find(|field| field.kind == "links") else { return Vec::new() };
        let link = |value: &str, name: &str| {
            (name.to_owned(), self.with(&self.path, &[(&field.name, value)]), value == field.value)
        };
        let all = [link("", "all")];
        all.into_iter().chain(field.options.iter().map(|(value, name)| link(value, name))).collect()
    }

    /// The address of a view, and whether it is the one that is shown.
    pub(crate) fn shown(&self, saved: &SavedView) -> (String, bool) {
        (format!("{}?{}", self.path, saved.query), saved.query == self.query)
    }

    /// Whether it has fields to be filled in.
    pub(crate) fn is_form(&self) -> bool {
        self.fields.iter().any(|field| field.kind != "links")
    }

    /// Whether it can be saved.
    pub(crate) fn is_saved(&self) -> bool {
        SAVED.iter().any(|(path, _)| *path == self.path)
    }
}

/// The page that has the list of a saved view, and the filter in the list's own words; the place of a page is no part of
/// it.
pub(crate) fn read(path: &str, query: &str) -> Result<(&'static str, String), PageError> {
    let unread = || PageError::Invalid("The filter cannot be read.".to_owned());
    let (path, names) = SAVED.into_iter().find(|(one, _)| *one == path).ok_or_else(unread)?;
    let address: Uri = format!("{path}?{query}").parse().map_err(|_| unread())?;
    let given = Fields::of(address.query().unwrap_or_default().as_bytes());
    let fields: Vec<(&str, &str)> = names.iter().map(|name| (*name, given.one(name))).collect();
    Ok((path, view::address("", &fields).trim_start_matches('?').to_owned()))
}

/// A choice among these values, each under its own words.
pub(crate) fn choice<'a>(name: &str, label: &str, values: impl IntoIterator<Item = &'a str>) -> Field {
    let options = values.into_iter().map(|value| (value.to_owned(), view::words(value))).collect();
    Field { kind: "choice", options, ..Field::text(name, label) }
}

/// A choice whose values are links.
pub(crate) fn links<'a>(name: &str, values: impl IntoIterator<Item = &'a str>) -> Field {
    Field { kind: "links", ..choice(name, "", values) }
}

//! Pages made of tables, facts and forms, which one template shows.

use askama::Template;
use axum::response::{Html, IntoResponse as _, Response};
use chrono::{DateTime, Utc};

use crate::error::PageError;
use crate::filter::Filter;
pub(crate) use crate::form::{Field, Form};
use crate::offers::Offer;
use crate::view::{self, Moment, Page};

/// A cell of a table, or a value.
#[derive(Debug, Clone, Default)]
pub(crate) struct Cell {
    pub text: String,
    /// Where it leads; empty: nowhere.
    pub link: String,
    /// The classes of its text.
    pub class: String,
    pub is_number: bool,
    /// What can be done about it.
    pub offers: Vec<Offer>,
}

impl Cell {
    pub(crate) fn text(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }

    pub(crate) fn id(text: impl Into<String>) -> Self {
        Self { text: text.into(), class: "id".to_owned(), ..Self::default() }
    }

    pub(crate) fn link(text: impl Into<String>, link: impl Into<String>) -> Self {
        Self { text: text.into(), link: link.into(), ..Self::default() }
    }

    /// An identifier that leads to what it names. A text of several words is none.
    pub(crate) fn found(id: impl Into<String>) -> Self {
        let text = id.into();
        if text.is_empty() {
            return Self::default();
        }
        if text.contains(char::is_whitespace) {
            return Self::text(text);
        }
        Self { link: view::found(&text), class: "id".to_owned(), text, ..Self::default() }
    }

    pub(crate) fn number(text: impl Into<String>) -> Self {
        Self { text: text.into(), is_number: true, ..Self::default() }
    }

    pub(crate) fn count(number: i64) -> Self {
        Self::number(view::count(number))
    }

    pub(crate) fn state(state: &str) -> Self {
        Self { text: view::words(state), class: format!("state {}", view::tone(state)), ..Self::default() }
    }

    pub(crate) fn toned(text: impl Into<String>, tone: &str) -> Self {
        Self { text: text.into(), class: format!("state {tone}"), ..Self::default() }
    }

    pub(crate) fn time(at: impl Into<Moment>) -> Self {
        Self { text: at.into().text, class: "time".to_owned(), ..Self::default() }
    }

    /// A time with its milliseconds.
    pub(crate) fn exact_time(at: DateTime<Utc>) -> Self {
        let text = at.format("%Y-%m-%d %H:%M:%S%.3f").to_string();
        Self { text, class: "time".to_owned(), ..Self::default() }
    }

    pub(crate) fn offers(offers: Vec<Offer>) -> Self {
        Self { offers, ..Self::default() }
    }

    pub(crate) fn maybe_time(at: Option<impl Into<Moment>>) -> Self {
        at.map_or_else(Self::default, Self::time)
    }
}

/// A column's heading.
#[derive(Debug, Clone)]
pub(crate) struct Heading {
    pub name: &'static str,
    pub is_number: bool,
}

/// A part of a page.
#[derive(Debug, Clone)]
pub(crate) struct Block {
    pub id: String,
    pub title: String,
    pub headings: Vec<Heading>,
    pub rows: Vec<Vec<Cell>>,
    /// Said under the title.
    pub text: String,
    pub facts: Vec<(String, Cell)>,
    /// Shown in place of a table without rows.
    pub empty: &'static str,
    pub forms: Vec<Form>,
    /// Actions about it.
    pub offers: Vec<Offer>,
    /// A text in pieces, some of them marked.
    pub document: Vec<(String, bool)>,
    pub is_wide: bool,
    /// The address of the following rows, and what leads there is called.
    pub older: Option<String>,
    pub older_name: &'static str,
    /// The address of the first rows, where these are not.
    pub newest: Option<String>,
    /// The address of the rows as CSV.
    pub csv: Option<String>,
}

impl Block {
    fn new(title: impl Into<String>) -> Self {
        let title = title.into();
        let id = title.to_lowercase().replace(|letter: char| !letter.is_ascii_alphanumeric(), "-");
        Self {
            id,
            title,
            headings: Vec::new(),
            rows: Vec::new(),
            text: String::new(),
            facts: Vec::new(),
            empty: "",
            forms: Vec::new(),
            offers: Vec::new(),
            document: Vec::new(),
            is_wide: true,
            older: None,
            older_name: "Older",
            newest: None,
            csv: None,
        }
    }

    /// A table. The name of a column of numbers begins with `#`.
    pub(crate) fn table(
        title: impl Into<String>,
        headings: &[&'static str],
        empty: &'static str,
        rows: impl IntoIterator<Item = Vec<Cell>>,
    ) -> Self {
        let heading = |name: &&'static str| Heading {
            name: name.trim_start_matches('#'),
            is_number: name.starts_with('#'),
        };
        Self {
            headings: headings.iter().map(heading).collect(),
            rows: rows.into_iter().collect(),
            empty,
            ..Self::new(title)
        }
    }

    pub(crate) fn facts(title: impl Into<String>, facts: Vec<(impl Into<String>, Cell)>) -> Self {
        let facts = facts.into_iter().map(|(name, cell)| (name.into(), cell)).collect();
        Self { facts, ..Self::new(title) }
    }

    /// Forms only.
    pub(crate) fn forms(title: impl Into<String>, forms: Vec<Form>) -> Self {
        Self { forms, ..Self::new(title) }
    }

    pub(crate) fn with_forms(self, forms: impl IntoIterator<Item = Form>) -> Self {
        Self { forms: forms.into_iter().collect(), ..self }
    }

    pub(crate) fn with_offers(self, offers: Vec<Offer>) -> Self {
        Self { offers, ..self }
    }

    /// A text in pieces, some of them marked.
    pub(crate) fn document(title: impl Into<String>, document: Vec<(String, bool)>) -> Self {
        Self { document, ..Self::new(title) }
    }

    /// Actions only.
    pub(crate) fn offers(title: impl Into<String>, offers: Vec<Offer>) -> Self {
        Self { offers, ..Self::new(title) }
    }

    /// Has it nothing to show?
    pub(crate) fn is_bare(&self) -> bool {
        self.headings.is_empty() && self.facts.is_empty() && self.forms.is_empty() && self.offers.is_empty()
    }

    /// The addresses of the rows that follow, of the newest ones, and of these rows as a file.
    pub(crate) fn paged(self, filter: &Filter, last: Option<String>, file: Option<String>) -> Self {
        let older = last.map(|place| filter.older(&place));
        Self { older, newest: filter.newest(), csv: file, ..self }
    }

    /// Half of the page's width.
    pub(crate) fn half(self) -> Self {
        Self { is_wide: false, ..self }
    }
}

#[derive(Template)]
#[template(path = "blocks.html")]
struct BlocksPage {
    page: Page,
    title: String,
    state: Option<Cell>,
    /// Said above the blocks: the outcome of a form.
    note: Option<String>,
    filter: Option<Filter>,
    blocks: Vec<Block>,
}

/// A page of blocks.
pub(crate) fn render(page: Page, state: Option<Cell>, blocks: Vec<Block>) -> Result<Response, PageError> {
    noted(page, state, None, blocks)
}

/// A page of blocks under the outcome of a form.
pub(crate) fn noted(
    page: Page,
    state: Option<Cell>,
    note: Option<String>,
    blocks: Vec<Block>,
) -> Result<Response, PageError> {
    show(BlocksPage { title: page.title.clone(), page, state, note, filter: None, blocks })
}

/// A list under its filter.
pub(crate) fn list(
    page: Page,
    state: Option<Cell>,
    filter: Filter,
    blocks: Vec<Block>,
) -> Result<Response, PageError> {
    show(BlocksPage { title: page.title.clone(), page, state, note: None, filter: Some(filter), blocks })
}

fn show(page: BlocksPage) -> Result<Response, PageError> {
    Ok(Html(page.render()?).into_response())
}

//! Pages made of tables, facts and forms, which one template shows.

use askama::Template;
use axum::response::{Html, IntoResponse as _, Response};
use chrono::{DateTime, Utc};

use crate::error::PageError;
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
    pub is_wide: bool,
    /// The address of the following rows, and what leads there is called.
    pub older: Option<String>,
    pub older_name: &'static str,
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
            is_wide: true,
            older: None,
            older_name: "Older",
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

    /// Actions only.
    pub(crate) fn offers(title: impl Into<String>, offers: Vec<Offer>) -> Self {
        Self { offers, ..Self::new(title) }
    }

    /// Has it nothing to show?
    pub(crate) fn is_bare(&self) -> bool {
        self.headings.is_empty() && self.facts.is_empty() && self.forms.is_empty() && self.offers.is_empty()
    }

    /// Half of the page's width.
    pub(crate) fn half(self) -> Self {
        Self { is_wide: false, ..self }
    }
}

/// A form.
#[derive(Debug, Clone)]
pub(crate) struct Form {
    pub action: String,
    pub method: &'static str,
    pub button: &'static str,
    pub is_danger: bool,
    /// What it is about, where several forms have the same button.
    pub about: String,
    pub fields: Vec<Field>,
    /// One field under the other, with their help.
    pub is_tall: bool,
    /// Optional fields, which are folded.
    pub more: Vec<Field>,
    /// What is wrong with no field of it.
    pub problem: String,
}

/// A field of a form.
#[derive(Debug, Clone, Default)]
pub(crate) struct Field {
    pub name: String,
    pub label: String,
    pub kind: &'static str,
    pub value: String,
    /// Of a choice or a set: values and names.
    pub options: Vec<(String, String)>,
    /// Of a set: the values that are chosen.
    pub chosen: Vec<String>,
    pub is_required: bool,
    pub help: String,
    /// What is wrong with it.
    pub problem: String,
}

impl Field {
    /// Whether something is said under it.
    pub(crate) fn is_described(&self) -> bool {
        let is_shown = !matches!(self.kind, "hidden" | "fixed");
        is_shown && (!self.help.is_empty() || !self.problem.is_empty())
    }

    pub(crate) fn text(name: &str, label: &str) -> Self {
        let (name, label) = (name.to_owned(), label.to_owned());
        Self { name, label, kind: "text", is_required: true, ..Self::default() }
    }

    pub(crate) fn date(name: &str, label: &str) -> Self {
        Self { kind: "date", ..Self::text(name, label) }
    }

    pub(crate) fn time(name: &str, label: &str) -> Self {
        Self { kind: "datetime-local", ..Self::text(name, label) }
    }

    pub(crate) fn optional(self) -> Self {
        Self { is_required: false, ..self }
    }

    pub(crate) fn hidden(name: &str, value: impl Into<String>) -> Self {
        Self { name: name.to_owned(), kind: "hidden", value: value.into(), ..Self::default() }
    }
}

impl Form {
    pub(crate) fn new(action: impl Into<String>, button: &'static str, fields: Vec<Field>) -> Self {
        Self {
            action: action.into(),
            method: "post",
            button,
            is_danger: false,
            about: String::new(),
            fields,
            is_tall: false,
            more: Vec::new(),
            problem: String::new(),
        }
    }

    /// One field under the other.
    pub(crate) fn tall(self, more: Vec<Field>, problem: String) -> Self {
        Self { is_tall: true, more, problem, ..self }
    }

    pub(crate) fn about(self, about: String) -> Self {
        Self { about, ..self }
    }

    /// A form that changes nothing: its fields are in the address of the page that it leads to.
    pub(crate) fn search(action: impl Into<String>, button: &'static str, fields: Vec<Field>) -> Self {
        Self { method: "get", ..Self::new(action, button, fields) }
    }

    pub(crate) fn dangerous(self) -> Self {
        Self { is_danger: true, ..self }
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
    let title = page.title.clone();
    Ok(Html(BlocksPage { page, title, state, note, blocks }.render()?).into_response())
}

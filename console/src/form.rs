//! Forms of pages, and their fields.

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

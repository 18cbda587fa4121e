//! An action as a form shows it: its fields in the order of the command line, with their help.

use clap::{Arg, ArgAction};

use crate::actions;
use crate::table::Spec;

/// A value with what it means; without a meaning it speaks for itself.
pub type Meaning = (String, String);

/// What a field takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Takes {
    Text,
    /// A secret: it is in no record.
    Secret,
    /// An amount in an asset's minor units.
    Amount,
    /// A time with its zone (RFC 3339).
    Time,
    Choice(Vec<Meaning>),
    /// Any number of these.
    Set(Vec<Meaning>),
    /// Any number of texts.
    Lines,
    /// The text of a file.
    Document,
    /// It is given or not.
    Flag,
}

/// A field of an action.
#[derive(Debug, Clone)]
pub struct FormField {
    pub name: String,
    pub help: String,
    pub takes: Takes,
    pub is_required: bool,
    /// What it is when nothing is given.
    pub default: String,
}

/// What an action does, and its fields.
#[derive(Debug, Clone)]
pub struct ActionForm {
    pub about: String,
    pub fields: Vec<FormField>,
}

/// The form of an action.
pub fn form(spec: &Spec) -> ActionForm {
    let root = actions::command();
    let Some(action) = actions::leaf(&root, spec) else {
        return ActionForm { about: String::new(), fields: Vec::new() };
    };
    let about = action.get_long_about().or_else(|| action.get_about());
    let fields = action.get_arguments().filter_map(field).collect();
    ActionForm { about: about.map(ToString::to_string).unwrap_or_default(), fields }
}

fn field(arg: &Arg) -> Option<FormField> {
    let name = arg.get_long().filter(|name| *name != "help")?;
    let values = arg.get_possible_values().into_iter().map(|value| {
        let meaning = value.get_help().map(ToString::to_string).unwrap_or_default();
        (value.get_name().to_owned(), meaning)
    });
    let values: Vec<Meaning> = values.collect();
    let is = |what: &str| arg.get_value_names().is_some_and(|names| names.iter().any(|name| name == what));
    let takes = match arg.get_action() {
        ArgAction::SetTrue => Takes::Flag,
        ArgAction::Append if values.is_empty() => Takes::Lines,
        ArgAction::Append => Takes::Set(values),
        _ if !values.is_empty() => Takes::Choice(values),
        _ if actions::is_secret(name) => Takes::Secret,
        _ if name.ends_with("-minor") => Takes::Amount,
        _ if is("TIME") => Takes::Time,
        _ if is("DOCUMENT") => Takes::Document,
        _ => Takes::Text,
    };
    Some(FormField {
        name: name.to_owned(),
        help: arg.get_long_help().or_else(|| arg.get_help()).map(ToString::to_string).unwrap_or_default(),
        takes,
        is_required: arg.is_required_set(),
        default: arg
            .get_default_values()
            .first()
            .map(|value| value.to_string_lossy().into_owned())
            .unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::{TABLE, find};

    #[test]
    fn every_action_says_what_it_does_and_has_fields() {
        for spec in TABLE {
            let ActionForm { about, fields } = form(spec);
            assert!(!about.is_empty() && !fields.is_empty(), "{}", spec.name);
        }
    }

    #[test]
    fn fields_are_of_the_kind_that_they_take() {
        let takes = |action: &str, name: &str| {
            let fields = form(find(action).unwrap()).fields;
            fields.into_iter().find(|field| field.name == name).unwrap().takes
        };
        assert!(matches!(takes("limit set", "scope"), Takes::Choice(values) if values.len() == 6));
        assert_eq!(takes("limit set", "amount-minor"), Takes::Amount);
        assert_eq!(takes("webhook replay", "from"), Takes::Time);
        assert!(matches!(takes("operator roles", "roles"), Takes::Set(values) if values.len() == 7));
        assert_eq!(takes("execution resolve", "signature"), Takes::Lines);
        assert_eq!(takes("bank import", "content"), Takes::Document);
        assert_eq!(takes("fix-session set-seq", "with-reset"), Takes::Flag);
        assert_eq!(takes("fix-session add", "password"), Takes::Secret);
        assert!(
            matches!(takes("recall request", "reason"), Takes::Choice(values) if values[0].1.contains("twice"))
        );
    }
}

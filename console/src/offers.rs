//! Actions that a page offers: each leads to the form of the action, with what the page knows of it filled in.

use chrono::{DateTime, SecondsFormat, Utc};
use dvp_ops::Spec;

use crate::operator::Operator;
use crate::view;

/// Fields of a form about the form itself; no action has a field that begins with an underscore.
pub(crate) mod about {
    /// The name of a field that the operator does not change here.
    pub(crate) const FIXED: &str = "_fixed";
    /// The name of an optional field that the form has; without any it has all.
    pub(crate) const ONLY: &str = "_only";
    /// The asset of an amount, as FIELD=ASSET.
    pub(crate) const UNIT: &str = "_unit";
    /// The page that the form was opened from.
    pub(crate) const BACK: &str = "_back";
    /// The name of a field that each item of several has a value of, in the order of the items.
    pub(crate) const EACH: &str = "_each";
    /// The number of an item that is chosen.
    pub(crate) const ITEM: &str = "_item";
    /// The amounts were shown as they were read.
    pub(crate) const CHECKED: &str = "_checked";
}

/// The address of an action's form.
pub(crate) fn path(spec: &Spec) -> String {
    format!("/act/{}", spec.name.replace(' ', "/"))
}

/// An action that a page offers.
#[derive(Debug, Clone)]
pub(crate) struct Offer {
    action: &'static str,
    pub label: String,
    query: Vec<(&'static str, String)>,
    pub is_danger: bool,
}

impl Offer {
    pub(crate) fn new(action: &'static str, label: impl Into<String>) -> Self {
        Self { action, label: label.into(), query: Vec::new(), is_danger: false }
    }

    /// The same action about each of several items, where there are several: one form, and one reason for all.
    pub(crate) fn all(offers: &[Self]) -> Option<Self> {
        let [first, _, ..] = offers else { return None };
        let differs = |at: usize| offers.iter().any(|one| one.query.get(at) != first.query.get(at));
        let mut query = Vec::new();
        for (at, (name, value)) in first.query.iter().enumerate() {
            if !differs(at) {
                query.push((*name, value.clone()));
                continue;
            }
            query.push((about::EACH, (*name).to_owned()));
            query.extend(offers.iter().filter_map(|one| one.query.get(at).cloned()));
        }
        Some(Self { label: format!("{}: all {}", first.label, offers.len()), query, ..first.clone() })
    }

    /// What the action is about. Nothing when empty.
    pub(crate) fn about(mut self, field: &'static str, value: impl Into<String>) -> Self {
        let value = value.into();
        if !value.is_empty() {
            self.query.extend([(field, value), (about::FIXED, field.to_owned())]);
        }
        self
    }

    /// A time that the operator saw, to the microsecond as it is stored.
    pub(crate) fn seen(self, field: &'static str, at: DateTime<Utc>) -> Self {
        self.about(field, at.to_rfc3339_opts(SecondsFormat::Micros, true))
    }

    /// A value that the operator may change.
    pub(crate) fn proposed(mut self, field: &'static str, value: impl Into<String>) -> Self {
        self.query.push((field, value.into()));
        self
    }

    /// Only these optional fields.
    pub(crate) fn only(mut self, fields: &[&str]) -> Self {
        let fields = if fields.is_empty() { &["reason"] } else { fields };
        self.query.extend(fields.iter().map(|field| (about::ONLY, (*field).to_owned())));
        self
    }

    /// The asset of an amount.
    pub(crate) fn unit(mut self, field: &str, asset: &str) -> Self {
        self.query.push((about::UNIT, format!("{field}={asset}")));
        self
    }

    pub(crate) fn dangerous(self) -> Self {
        Self { is_danger: true, ..self }
    }

    /// The address of the form. The page that leads there is where the form leads back to.
    pub(crate) fn href(&self) -> String {
        let fields: Vec<(&str, &str)> =
            self.query.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let path = dvp_ops::find(self.action).map(path).unwrap_or_default();
        view::address(&path, &fields)
    }
}

impl Operator {
    /// Those of the actions that the operator's roles allow.
    pub(crate) fn offers(&self, offers: impl IntoIterator<Item = Offer>) -> Vec<Offer> {
        let may = |offer: &Offer| dvp_ops::find(offer.action).is_some_and(|spec| self.may(spec.roles));
        offers.into_iter().filter(may).collect()
    }
}

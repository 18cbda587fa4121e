//! The FIX versions' fields, values, messages and groups, and the check of a message against them.
//!
//! The tables are constants made at build time, so that nothing is loaded or allocated: dense or sets of bits where
//! every field of every message asks, sorted lists elsewhere.

mod kind;
mod proof;
mod rules;
#[cfg(test)]
mod tests;

pub use kind::Kind;
pub use rules::{Fault, RejectReason, Rules};

use crate::tag::Tag;

include!(concat!(env!("OUT_DIR"), "/dictionaries.rs"));

#[derive(Debug)]
pub struct Dictionary {
    /// By ascending tag.
    fields: &'static [FieldDef],
    /// By tag: one more than the place in `fields`, 0 for an unknown tag.
    places: &'static [u16],
    /// By the place in `fields`: the legal values as bits, when each is one ASCII character.
    single_characters: &'static [u128],
    header: Section,
    trailer: Section,
    /// By MsgType(35), in byte order.
    messages: &'static [(&'static str, Section)],
    /// By the only character of a MsgType(35): one more than the place in `messages`.
    short_types: &'static [u16],
}

/// A field and its legal values; none listed means any.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FieldDef {
    pub tag: Tag,
    pub kind: Kind,
    pub values: &'static [&'static str],
}

/// The members of a message's body, one entry of a group, the header or the trailer. All lists ascend.
#[derive(Debug)]
pub struct Section {
    /// The field that begins it: of a group's entry, the delimiter.
    first: Tag,
    /// Fields of this level, including group counts, excluding the fields inside groups.
    members: &'static [Tag],
    required: &'static [Tag],
    /// By the tag of the count field.
    groups: &'static [(Tag, Section)],
    /// A bit for each member that counts no group; empty for a group's entry.
    plain: &'static [u64],
    /// A bit for each member, and for those of groups at every depth; empty for a group's entry.
    anywhere: &'static [u64],
}

/// Is the bit of this number set?
fn has_bit(words: &[u64], number: Tag) -> bool {
    let word = usize::try_from(number / 64).ok().and_then(|at| words.get(at));
    word.is_some_and(|word| word >> (number % 64) & 1 == 1)
}

impl Dictionary {
    /// The version whose application messages these are; `None` for a transport without any.
    pub fn named(version: &str) -> Option<&'static Self> {
        Some(match version {
            "FIX.4.2" => &FIX42,
            "FIX.4.4" => &FIX44,
            "FIXT.1.1" => &FIXT11,
            "FIX.5.0SP2" => &FIX50SP2,
            _ => return None,
        })
    }

    /// A field's definition.
    pub fn field(&self, tag: Tag) -> Option<&'static FieldDef> {
        self.fields.get(self.place(tag)?)
    }

    /// Where the field's facts are.
    fn place(&self, tag: Tag) -> Option<usize> {
        usize::from(*self.places.get(usize::try_from(tag).ok()?)?).checked_sub(1)
    }

    /// A message's body.
    pub fn message(&self, msg_type: &[u8]) -> Option<&'static Section> {
        let at = match msg_type {
            [character] => usize::from(*self.short_types.get(usize::from(*character))?).checked_sub(1)?,
            _ => self.messages.binary_search_by(|(known, _)| known.as_bytes().cmp(msg_type)).ok()?,
        };
        self.messages.get(at).map(|(_, section)| section)
    }

    pub const fn header(&self) -> &Section {
        &self.header
    }

    pub const fn trailer(&self) -> &Section {
        &self.trailer
    }
}

impl Section {
    /// Does the tag belong to this level?
    pub fn has(&self, tag: Tag) -> bool {
        self.members.binary_search(&tag).is_ok()
    }

    /// Does the tag belong to this level or to a group in it?
    pub fn has_anywhere(&self, tag: Tag) -> bool {
        if self.anywhere.is_empty() {
            self.has(tag) || self.groups.iter().any(|(_, group)| group.has_anywhere(tag))
        } else {
            has_bit(self.anywhere, tag)
        }
    }

    /// The group whose count field this is.
    pub fn group(&self, count: Tag) -> Option<&Self> {
        let at = self.groups.binary_search_by_key(&count, |(tag, _)| *tag).ok()?;
        self.groups.get(at).map(|(_, group)| group)
    }

    /// The first field of an entry.
    pub const fn first(&self) -> Tag {
        self.first
    }
}

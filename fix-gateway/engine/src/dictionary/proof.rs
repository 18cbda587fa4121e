//! The quick way to say that nothing is wrong with a message.
//!
//! One pass over the fields, without allocation. It proves, or gives up: what it gives up on, a group for instance or
//! anything that may be a fault, is looked at by the exact check, which alone says what is wrong.

use crate::{
    codec::MessageRef,
    tag::{self, Tag},
};

use super::{Dictionary, FieldDef, Rules, has_bit};

/// Tags up to here are remembered as bits; those beyond are compared with one another.
const SEEN_WORDS: usize = 64;

/// The tags seen so far.
struct Seen {
    words: [u64; SEEN_WORDS],
}

impl Seen {
    /// `false` when the tag was seen before, or is too large to be remembered.
    #[inline]
    fn insert(&mut self, tag: Tag) -> bool {
        let Some(word) = usize::try_from(tag / 64).ok().and_then(|at| self.words.get_mut(at)) else {
            return false;
        };
        let bit = 1 << (tag % 64);
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    }

    fn has_all(&self, tags: &[Tag]) -> bool {
        tags.iter().all(|tag| has_bit(&self.words, *tag))
    }
}

impl Rules {
    /// `true` when [`Rules::check`] would find nothing; `false` says nothing.
    pub(super) fn is_plainly_right(&self, message: MessageRef<'_>) -> bool {
        let msg_type = message.msg_type();
        let (dictionary, section) = match self.session.message(msg_type) {
            Some(section) => (self.session, section),
            None => match self.application.message(msg_type) {
                Some(section) => (self.application, section),
                None => return false,
            },
        };
        let (header, trailer) = (self.session.header(), self.session.trailer());
        let mut seen = Seen { words: [0; SEEN_WORDS] };
        // Header, body, trailer: each begins after the one before it.
        let mut part = 0;
        for (at, field) in message.fields().iter().enumerate() {
            let tag = field.tag;
            let value = message.value(field);
            let is_right = if part == 0 && has_bit(header.plain, tag) {
                self.session.allows(tag, value) && seen.insert(tag)
            } else if part <= 1 && has_bit(section.plain, tag) {
                part = 1;
                dictionary.allows(tag, value) && seen.insert(tag)
            } else if has_bit(trailer.plain, tag) {
                part = 2;
                self.session.allows(tag, value) && seen.insert(tag)
            } else if part <= 1 && !header.has_anywhere(tag) && !section.has_anywhere(tag) {
                part = 1;
                let is_repeated = || message.fields().iter().take(at).any(|before| before.tag == tag);
                self.extra_field(msg_type, tag).is_some_and(|definition| allows(definition, value))
                    && !is_repeated()
            } else {
                false
            };
            if !is_right {
                return false;
            }
        }
        seen.has_all(header.required) && seen.has_all(trailer.required) && seen.has_all(section.required)
    }
}

impl Dictionary {
    /// May the field have this value?
    #[inline]
    fn allows(&self, tag: Tag, value: &[u8]) -> bool {
        let Some(place) = self.place(tag) else { return false };
        match (value, self.single_characters.get(place)) {
            // Whatever is listed has the form of its datatype.
            ([character], Some(listed)) if *listed != 0 => {
                character.is_ascii() && listed >> character & 1 == 1
            }
            _ => self.fields.get(place).is_some_and(|definition| allows(definition, value)),
        }
    }
}

fn allows(definition: &FieldDef, value: &[u8]) -> bool {
    !value.is_empty()
        && definition.kind.accepts(value)
        && (definition.values.is_empty()
            || definition.tag == tag::MSG_TYPE
            || definition.kind.is_one_of(value, definition.values))
}

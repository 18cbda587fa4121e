//! The fast check that a message has no fault.
//!
//! One pass over the fields, groups with their entries included, without allocation. It proves the
//! absence of faults, or gives up: the exact check then examines the message and determines the fault.

use crate::{
    SeqNum,
    codec::MessageRef,
    tag::{self, Tag},
};

use super::{Dictionary, FieldDef, Rules, Section, has_bit};

/// Tags up to here are remembered as bits; those beyond are compared with one another.
const SEEN_WORDS: usize = 64;

/// Members of a group that are remembered, 64 in each word; a group that has more is not proven right.
const MEMBER_WORDS: usize = 4;

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
    /// `true`: [`Rules::check`] would find no fault. `false`: unknown.
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
        let fields = message.fields();
        let mut next = 0;
        while let Some(field) = fields.get(next) {
            let (at, tag) = (next, field.tag);
            next += 1;
            let value = message.value(field);
            let is_right = if part == 0 && has_bit(header.plain, tag) {
                self.allows_in_header(tag, value) && seen.insert(tag)
            } else if part <= 1 && has_bit(section.plain, tag) {
                part = 1;
                dictionary.allows(tag, value) && seen.insert(tag)
            } else if has_bit(trailer.plain, tag) {
                part = 2;
                self.session.allows(tag, value) && seen.insert(tag)
            } else if part <= 1 && !header.has_anywhere(tag) && !section.has_anywhere(tag) {
                part = 1;
                let is_repeated = || fields.iter().take(at).any(|before| before.tag == tag);
                let is_allowed = match self.extra_field(msg_type, tag) {
                    Some(definition) => allows(definition, value),
                    None => self.is_user_defined(tag) && !value.is_empty(),
                };
                is_allowed && !is_repeated()
            } else if part <= 1
                && let Some(group) = section.group(tag)
            {
                part = 1;
                seen.insert(tag) && self.is_group_right(message, dictionary, group, &mut next)
            } else {
                false
            };
            if !is_right {
                return false;
            }
        }
        seen.has_all(header.required) && seen.has_all(trailer.required) && seen.has_all(section.required)
    }

    #[inline]
    fn allows_in_header(&self, tag: Tag, value: &[u8]) -> bool {
        if tag == tag::MESSAGE_ENCODING {
            self.encoding.is_named(value)
        } else {
            self.session.allows(tag, value)
        }
    }

    /// Is the count in front of `next` right, and so are the entries from there on? Leaves `next` behind them.
    fn is_group_right(
        &self,
        message: MessageRef<'_>,
        dictionary: &Dictionary,
        group: &Section,
        next: &mut usize,
    ) -> bool {
        let count = next.checked_sub(1).and_then(|at| message.fields().get(at));
        let Some(count) = count.filter(|field| dictionary.allows(field.tag, message.value(field))) else {
            return false;
        };
        let (header, trailer) = (self.session.header(), self.session.trailer());
        let (mut entries, mut entry) = (0, Entry::default());
        while let Some(field) = message.fields().get(*next) {
            let Ok(place) = group.members.binary_search(&field.tag) else { break };
            if field.tag == group.first() {
                if entries > 0 && !entry.has_all(group) {
                    return false;
                }
                entries += 1;
                entry = Entry::default();
            }
            // Tags of the envelope have their own rules, wherever they stand.
            let is_of_envelope = header.has_anywhere(field.tag) || trailer.has_anywhere(field.tag);
            if entries == 0 || is_of_envelope || !entry.insert(place) {
                return false;
            }
            *next += 1;
            let is_right = match group.group(field.tag) {
                Some(nested) => self.is_group_right(message, dictionary, nested, next),
                None => dictionary.allows(field.tag, message.value(field)),
            };
            if !is_right {
                return false;
            }
        }
        (entries == 0 || entry.has_all(group)) && SeqNum::parse(message.value(count)) == Some(SeqNum(entries))
    }
}

/// The members of an entry seen so far, by their places in the group.
#[derive(Default)]
struct Entry {
    words: [u64; MEMBER_WORDS],
}

impl Entry {
    /// `false` when the member was seen before, or is too far behind to be remembered.
    fn insert(&mut self, place: usize) -> bool {
        let Some(word) = self.words.get_mut(place / 64) else { return false };
        let bit = 1 << (place % 64);
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    }

    fn has_all(&self, group: &Section) -> bool {
        let has = |place: usize| self.words.get(place / 64).is_some_and(|word| word >> (place % 64) & 1 == 1);
        group.required.iter().all(|tag| group.members.binary_search(tag).is_ok_and(has))
    }
}

impl Dictionary {
    /// May the field have this value?
    #[inline]
    fn allows(&self, tag: Tag, value: &[u8]) -> bool {
        let Some(place) = self.place(tag) else { return false };
        match (value, self.single_characters.get(place)) {
            // Every listed value has the form of its datatype.
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

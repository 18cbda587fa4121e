//! Erasure of personal data from what has ended: orders, rejected intents and beneficiaries.
//!
//! A transaction erases a subject everywhere or not at all, and a subject is erased once. Rows stay, with their amounts,
//! references, hashes and times: the books do not change. Free text is searched for the subject's own words.

pub mod beneficiaries;
pub mod messages;
pub mod orders;
pub mod trail;

use serde_json::Value;

/// Shorter words would be found where they mean something else.
const LETTERS_MIN: usize = 4;

/// Words that say who somebody is, in every form in which text may have them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Words(Vec<String>);

impl Words {
    /// A name, an account or a line of an address, also without its spaces.
    pub fn add(&mut self, word: &str) {
        let word = word.trim();
        let joined: String = word.split_whitespace().collect();
        self.add_forms([word, &joined]);
    }

    /// A name, and each of its words: text may have the surname only.
    pub fn add_name(&mut self, name: &str) {
        self.add(name);
        self.add_forms(name.split_whitespace());
    }

    fn add_forms<'a>(&mut self, forms: impl IntoIterator<Item = &'a str>) {
        for form in forms {
            let is_new = !self.0.iter().any(|one| one == form);
            if form.chars().count() >= LETTERS_MIN && is_new {
                self.0.push(form.to_owned());
            }
        }
    }

    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a text has one of them, in upper or lower case.
    pub fn are_in(&self, text: &str) -> bool {
        let text = text.to_lowercase();
        self.0.iter().any(|word| text.contains(&word.to_lowercase()))
    }

    /// For `erase_words`.
    fn json(&self) -> Value {
        Value::from(self.0.as_slice())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_found_in_all_their_forms_and_short_ones_are_left_out() {
        let mut words = Words::default();
        words.add_name("Jo van Doren");
        words.add("DE89 3704 0044");
        words.add("Li");
        for text in ["paid to JO VAN DOREN", "Ms Doren called", "IBAN de8937040044"] {
            assert!(words.are_in(text), "{text}");
        }
        assert!(!words.are_in("Joint van of Liverpool"));
    }
}
